// SPDX-License-Identifier: Apache-2.0
// Gloo between real processes over loopback: bits, bytes, time-outs, and what the living hear when a rank dies.
#include "runtime/collective/ops.hpp"
#include "runtime/collective/tags.hpp"
#include "runtime/sync/agreement.hpp"
#include "tests/lib/gradients.hpp"
#include "tests/lib/processes.hpp"
#include "tests/lib/suite.hpp"

#include <sys/socket.h>

#include <cstring>

/// libgloo is not built with the thread sanitizer, which therefore does not see the reference counts that keep a buffer
/// alive while its connection's thread uses it. In the normal course of things a mutex orders both as well, and a race on
/// a buffer's bytes is found; where requests are cancelled nothing else does, so those tests are left to the address
/// sanitizer, which watches what Gloo receives into.
extern "C" __attribute__((visibility("default"))) const char *__tsan_default_suppressions();
extern "C" const char *__tsan_default_suppressions()
{
    return "race:gloo::transport::tcp::UnboundBuffer::\nrace:default_delete<gloo::transport::UnboundBuffer>\n";
}

namespace {

using namespace jigsaw;
using namespace jigsaw::collective;
using namespace jigsaw::tests;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

#ifdef __SANITIZE_THREAD__
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
constexpr auto kLong = 60s;
constexpr std::uint64_t kTag = sequence_tag(TagKind::test, 7);

#define ASSERT_CONTAINS(text, part)                                                                                    \
    ck_assert_msg((text).find(part) != std::string::npos, "\"%s\" is not in \"%s\"", std::string(part).c_str(),       \
                  (text).c_str())
#define ASSERT_ALL_WELL(outcomes)                                                                                      \
    do {                                                                                                               \
        const std::string failure = first_failure(outcomes);                                                          \
        ck_assert_str_eq(failure.c_str(), "");                                                                        \
    } while (0)

START_TEST(messages_keep_order_and_tags)
{
    const auto outcomes = run_processes(3, [](Collective &world) {
        std::vector<int> in(3 * 50), out(3 * 50);
        std::vector<std::unique_ptr<Request>> requests;
        for (int peer = 0; peer < 3; ++peer)
            for (int i = 0; peer != world.rank() && i < 50; ++i) {
                const auto at = static_cast<std::size_t>(peer * 50 + i);
                const std::uint64_t tag = kTag + static_cast<unsigned>(i % 2);
                out[at] = world.rank() * 1000 + i;
                requests.push_back(world.send(peer, tag, &out[at], sizeof(int)));
                requests.push_back(world.receive(peer, tag, &in[at], sizeof(int)));
            }
        for (auto &request : requests)
            request->wait(kLong);
        for (int peer = 0; peer < 3; ++peer)
            for (int i = 0; peer != world.rank() && i < 50; ++i)
                ck_assert_int_eq(in[static_cast<std::size_t>(peer * 50 + i)], peer * 1000 + i);
        ck_assert_uint_eq(world.bytes_sent(), 2 * 50 * sizeof(int));
        ck_assert_str_eq(world.name(), "gloo");
    });
    ASSERT_ALL_WELL(outcomes);
}
END_TEST

START_TEST(operations_work)
{
    const auto outcomes = run_processes(4, [](Collective &world) {
        double value = world.rank();
        mean(world, &value, 1, 0, kLong);
        ck_assert(value == 1.5);
        std::vector<int> data(300000, world.rank());
        broadcast(world, data.data(), data.size() * sizeof(int), 2, 1, kLong);
        ck_assert(data.front() == 2 && data.back() == 2);
        barrier(world, 2, kLong);
    });
    ASSERT_ALL_WELL(outcomes);
}
END_TEST

START_TEST(a_wait_that_ends_early_loses_nothing)
{
    const auto outcomes = run_processes(2, [](Collective &world) {
        int value = world.rank() == 0 ? 5 : 0, done = 0;
        if (world.rank() == 0) {
            world.receive(1, kTag, &done, sizeof done)->wait(kLong);
            world.send(1, kTag, &value, sizeof value)->wait(kLong);
            return;
        }
        const auto request = world.receive(0, kTag, &value, sizeof value);
        for (int i = 0; i < 20; ++i)
            ck_assert(!request->wait_for(std::chrono::milliseconds(i % 3)));
        try {
            request->wait(20ms);
            ck_abort_msg("no time-out");
        } catch (const Error &error) {
            ck_assert_int_eq(error.code(), JIGSAW_TIMEOUT);
            ck_assert_str_eq(error.what(), "rank 1: rank 0 sent nothing for 20 ms");
        }
        world.send(0, kTag, &done, sizeof done)->wait(kLong);
        request->wait(kLong);
        ck_assert_int_eq(value, 5);
        ck_assert(request->wait_for(0ms));
    });
    ASSERT_ALL_WELL(outcomes);
}
END_TEST

/// One object per strategy and world, several iterations; every block of every rank against the reference.
void check_gradients(int ranks, const std::vector<plan::IterationPlan> &plans, const std::vector<std::size_t> &counts)
{
    std::vector<Blocks<float>> expected;
    for (const plan::IterationPlan &plan : plans)
        expected.push_back(reference<float>(plan, counts));
    const auto outcomes = run_processes(ranks, [&](Collective &world) {
        for (const sync::Strategy strategy : kStrategies) {
            Blocks<float> mine;
            for (const std::size_t count : counts)
                mine.emplace_back(count);
            sync::GradientSync sync(world, buffers_of(mine), strategy);
            for (std::size_t i = 0; i < plans.size(); ++i) {
                run_iteration(sync, world, plans[i], mine, counts);
                for (std::size_t block = 0; block < counts.size(); ++block)
                    ck_assert(plans[i].contributors[block].empty() || counts[block] == 0 ||
                              std::memcmp(mine[block].data(), expected[i][block].data(),
                                          counts[block] * sizeof(float)) == 0);
            }
        }
    });
    ASSERT_ALL_WELL(outcomes);
}

START_TEST(gradients_equal_the_serial_sum)
{
    const std::vector<std::size_t> counts = {0, 1, 700000, 3, 5000};
    check_gradients(2, {plan_of({5, 5}, 5), plan_of({5, 2}, 5, 6)}, counts);
    check_gradients(3, {plan_of({1, 3, 5}, 5), plan_of({2, 2, 2}, 5, 6)}, counts);
    check_gradients(4, {plan_of({4, 3, 2, 1}, 5), plan_of({5, 5, 5, 5}, 5, 6), plan_of({1, 5, 1, 5}, 5, 7)}, counts);
}
END_TEST

/// What all ranks but `victim` must have heard, soon after it died.
void check_all_name(const std::vector<Outcome> &outcomes, std::size_t victim, const std::string &name)
{
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
        if (rank == victim) {
            ck_assert_str_eq(outcomes[rank].text.c_str(), "killed by signal 9");
        } else {
            ck_assert_int_eq(outcomes[rank].code, JIGSAW_PEER_LEFT);
            ASSERT_CONTAINS(outcomes[rank].text, name);
        }
}

/// Fails the rank if `body` takes long to throw: far more than the second that we promise on an idle machine, far less
/// than the time-out of the wait in it.
void expect_soon(const std::function<void()> &body)
{
    const auto start = Clock::now();
    try {
        body();
    } catch (const Error &) {
        ck_assert(Clock::now() - start < kLong / 3);
        throw;
    }
}

START_TEST(a_killed_rank_is_named_by_all)
{
    for (const int victim : {0, 2}) {
        // Nobody waits for the victim itself: the others wait for each other in a circle.
        const auto outcomes = run_processes(4, [victim](Collective &world) {
            barrier(world, 0, kLong);
            if (world.rank() == victim)
                kill(getpid(), SIGKILL);
            int next = (world.rank() + 1) % 4, value = 0;
            next = next == victim ? (next + 1) % 4 : next;
            expect_soon([&] { world.receive(next, kTag, &value, sizeof value)->wait(kLong); });
        });
        check_all_name(outcomes, static_cast<std::size_t>(victim),
                       "rank " + std::to_string(victim) + " ended without a word");
    }
}
END_TEST

START_TEST(a_rank_killed_in_the_sync_is_named_with_the_iteration)
{
    const auto outcomes = run_processes(4, [](Collective &world) {
        Blocks<float> mine(3, std::vector<float>(200000, 1.0f));
        sync::GradientSync sync(world, buffers_of(mine), sync::Strategy::automatic);
        sync.begin(plan_of({3, 3, 3, 3}, 3, 41));
        sync.block_ready(2);
        if (world.rank() == 3)
            kill(getpid(), SIGKILL);
        sync.block_ready(1);
        sync.block_ready(0);
        expect_soon([&] { sync.wait(kLong); });
    });
    check_all_name(outcomes, 3, "gradients of iteration 41: ");
    check_all_name(outcomes, 3, "rank 3 ended without a word");
}
END_TEST

/// A write to a dead peer raises SIGPIPE, which ends a program in C++ that does not ignore it.
START_TEST(a_write_to_nobody_is_an_error_and_no_signal)
{
    const auto outcomes = run_processes(2, [](Collective &world) {
        std::signal(SIGPIPE, SIG_DFL);
        barrier(world, 0, kLong);
        if (world.rank() == 0)
            return;
        for (int fd = 0; fd < 256; ++fd) // as if the peer had just died, whoever sees it first
            shutdown(fd, SHUT_WR);
        const int value = 0;
        expect_soon([&] { world.send(0, kTag, &value, sizeof value)->wait(kLong); });
    });
    ck_assert_msg(outcomes[1].code == JIGSAW_PEER_LEFT, "%d \"%s\"", outcomes[1].code, outcomes[1].text.c_str());
}
END_TEST

START_TEST(children_of_a_killed_rank_do_not_hide_its_death)
{
    const auto outcomes = run_processes(3, [](Collective &world) {
        barrier(world, 0, kLong);
        int value = 0;
        if (world.rank() == 1) {
            if (fork() == 0) { // a data loader's worker that outlives its parent
                alarm(20);
                pause();
                _exit(0);
            }
            kill(getpid(), SIGKILL);
        }
        expect_soon([&] { world.receive(2 - world.rank(), kTag, &value, sizeof value)->wait(kLong); });
    });
    check_all_name(outcomes, 1, "rank 1 ended without a word");
}
END_TEST

START_TEST(one_that_leaves_at_once_hinders_nobody_from_joining)
{
    for (int round = 0; round < 20; ++round) {
        const auto outcomes = run_processes(4, [](Collective &) {});
        ASSERT_ALL_WELL(outcomes);
    }
}
END_TEST

START_TEST(a_child_may_end_like_any_program)
{
    const auto outcomes = run_processes(2, [](Collective &world) {
        barrier(world, 0, kLong);
        const pid_t child = fork();
        if (child == 0) {
            world.~Collective(); // what exit() of a program with a static context does
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        barrier(world, 1, kLong);
    });
    ASSERT_ALL_WELL(outcomes);
}
END_TEST

START_TEST(an_abort_reaches_all_with_its_reason)
{
    const auto outcomes = run_processes(3, [](Collective &world) {
        barrier(world, 0, kLong);
        int value = 0;
        if (world.rank() == 1) {
            world.abort("loss is not a number");
            world.abort("a later reason");
        }
        expect_soon([&] { world.receive((world.rank() + 1) % 3, kTag, &value, sizeof value)->wait(kLong); });
    });
    for (const Outcome &outcome : outcomes) {
        ck_assert_int_eq(outcome.code, JIGSAW_PEER_LEFT);
        ASSERT_CONTAINS(outcome.text, "rank 1 gave up: loss is not a number");
    }
}
END_TEST

START_TEST(a_clean_end_disturbs_nobody)
{
    // Rank 0, with the store, goes first; the others still have something to say, then miss rank 0.
    const auto outcomes = run_processes(3, [](Collective &world) {
        barrier(world, 0, kLong);
        if (world.rank() == 0)
            return;
        std::vector<char> data(1 << 20, static_cast<char>(world.rank()));
        std::vector<char> theirs(data.size());
        for (int i = 0; i < 20; ++i) {
            const auto in = world.receive(3 - world.rank(), kTag, theirs.data(), theirs.size());
            world.send(3 - world.rank(), kTag, data.data(), data.size())->wait(kLong);
            in->wait(kLong);
        }
        ck_assert_int_eq(theirs.back(), 3 - world.rank());
        int value = 0;
        expect_soon([&] { world.receive(0, kTag, &value, sizeof value)->wait(kLong); });
    });
    ck_assert_int_eq(outcomes[0].code, JIGSAW_SUCCESS);
    for (std::size_t rank = 1; rank < 3; ++rank) {
        ck_assert_int_eq(outcomes[rank].code, JIGSAW_PEER_LEFT);
        ASSERT_CONTAINS(outcomes[rank].text, "rank 0 left");
    }
}
END_TEST

START_TEST(the_last_message_of_a_rank_that_leaves_arrives)
{
    // Large enough to be on its way when the sender has closed.
    const auto outcomes = run_processes(2, [](Collective &world) {
        std::vector<char> data(8 << 20, 'x');
        if (world.rank() == 0)
            return world.send(1, kTag, data.data(), data.size())->wait(kLong);
        data.assign(data.size(), 0);
        const auto request = world.receive(0, kTag, data.data(), data.size());
        usleep(100000);
        request->wait(kLong);
        ck_assert(data.front() == 'x' && data.back() == 'x');
    });
    ASSERT_ALL_WELL(outcomes);
}
END_TEST

START_TEST(a_flipped_depth_is_an_error_on_all_ranks)
{
    for (const sync::Strategy strategy : kStrategies) {
        const auto outcomes = run_processes(4, [strategy](Collective &world) {
            Blocks<float> mine(4, std::vector<float>(5000, 1.0f));
            sync::Agreement agreement(world, 4);
            sync::GradientSync sync(world, buffers_of(mine), strategy);
            if (world.rank() == 2)
                agreement.corrupt_for_test(4, 2);
            for (std::uint64_t t = 0; t < 10; ++t) {
                const plan::IterationPlan plan = agreement.plan(t);
                sync.begin(plan);
                agreement.start(t, {});
                for (std::uint32_t block = 0; block < 4; ++block)
                    sync.block_ready(3 - block);
                sync.wait(kLong);
                ck_assert(t < 3);
                agreement.finish(t, kLong);
            }
        });
        for (const Outcome &outcome : outcomes) {
            ck_assert_int_eq(outcome.code, JIGSAW_DISAGREE);
            ASSERT_CONTAINS(outcome.text, "ranks do not agree on the plan: ");
            ASSERT_CONTAINS(outcome.text, "rank 2: iteration 3");
        }
    }
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("gloo");
    add_case(suite, "messages", {messages_keep_order_and_tags, operations_work, a_wait_that_ends_early_loses_nothing,
                                 gradients_equal_the_serial_sum, a_flipped_depth_is_an_error_on_all_ranks});
    if (!kThreadSanitizer)
        add_case(suite, "ends", {a_killed_rank_is_named_by_all, a_rank_killed_in_the_sync_is_named_with_the_iteration,
              a_write_to_nobody_is_an_error_and_no_signal,
              children_of_a_killed_rank_do_not_hide_its_death, one_that_leaves_at_once_hinders_nobody_from_joining, a_child_may_end_like_any_program,
              an_abort_reaches_all_with_its_reason, a_clean_end_disturbs_nobody,
              the_last_message_of_a_rank_that_leaves_arrives});
    return run_tap(suite);
}
