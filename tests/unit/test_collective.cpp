// SPDX-License-Identifier: Apache-2.0
// The thread world: order, sizes, leaving, aborting, time-outs, and the operations built on it.
#include "runtime/collective/ops.hpp"
#include "runtime/collective/pipe_signal.hpp"
#include "runtime/collective/tags.hpp"
#include "tests/lib/ranks.hpp"
#include "tests/lib/suite.hpp"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <thread>

namespace {

using namespace jigsaw;
using namespace jigsaw::collective;
using namespace std::chrono_literals;
using jigsaw::tests::first_failure;
using jigsaw::tests::Outcome;
using jigsaw::tests::run_ranks;

constexpr auto kLong = 30s;
constexpr auto kShort = 20ms;
constexpr std::uint64_t kTag = sequence_tag(TagKind::test, 7);

#define ASSERT_CONTAINS(text, part)                                                                                    \
    ck_assert_msg((text).find(part) != std::string::npos, "\"%s\" is not in \"%s\"", std::string(part).c_str(),       \
                  (text).c_str())

START_TEST(messages_keep_their_order)
{
    const auto outcomes = run_ranks(2, [](Collective &world) {
        std::vector<int> values(100);
        std::vector<std::unique_ptr<Request>> requests;
        if (world.rank() == 0)
            std::iota(values.begin(), values.end(), 0);
        for (int &value : values)
            requests.push_back(world.rank() == 0 ? world.send(1, kTag, &value, sizeof value)
                                                 : world.receive(0, kTag, &value, sizeof value));
        for (auto &request : requests)
            request->wait(kLong);
        for (int i = 0; i < 100; ++i)
            ck_assert_int_eq(values[static_cast<std::size_t>(i)], i);
        ck_assert_uint_eq(world.bytes_sent(), world.rank() == 0 ? 400 : 0);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

START_TEST(tags_and_directions_do_not_mix)
{
    const auto outcomes = run_ranks(3, [](Collective &world) {
        int in[3][2] = {}, out[3][2] = {};
        std::vector<std::unique_ptr<Request>> requests;
        for (int peer = 0; peer < 3; ++peer)
            for (int t = 1; peer != world.rank() && t >= 0; --t) {
                out[peer][t] = world.rank() * 100 + peer * 10 + t;
                requests.push_back(world.send(peer, kTag + static_cast<unsigned>(t), &out[peer][t], sizeof(int)));
            }
        for (int peer = 0; peer < 3; ++peer)
            for (int t = 0; peer != world.rank() && t < 2; ++t)
                requests.push_back(world.receive(peer, kTag + static_cast<unsigned>(t), &in[peer][t], sizeof(int)));
        for (auto &request : requests)
            request->wait(kLong);
        for (int peer = 0; peer < 3; ++peer)
            for (int t = 0; peer != world.rank() && t < 2; ++t)
                ck_assert_int_eq(in[peer][t], peer * 100 + world.rank() * 10 + t);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

START_TEST(other_sizes_are_an_error_on_both_sides)
{
    const auto outcomes = run_ranks(2, [](Collective &world) {
        double value = 0;
        if (world.rank() == 0)
            world.send(1, kTag, &value, 8)->wait(kLong);
        else
            world.receive(0, kTag, &value, 4)->wait(kLong);
    });
    for (const Outcome &outcome : outcomes) {
        ck_assert_int_eq(outcome.code, JIGSAW_INTERNAL_ERROR);
        ASSERT_CONTAINS(outcome.text, "bytes meets one of");
    }
}
END_TEST

START_TEST(a_time_out_names_the_peer_and_loses_nothing)
{
    const auto outcomes = run_ranks(2, [](Collective &world) {
        int value = world.rank() == 0 ? 5 : 0, done = 0;
        if (world.rank() == 0) {
            world.receive(1, kTag, &done, sizeof done)->wait(kLong);
            world.send(1, kTag, &value, sizeof value)->wait(kLong);
            return;
        }
        const auto request = world.receive(0, kTag, &value, sizeof value);
        ck_assert(!request->wait_for(kShort));
        try {
            request->wait(kShort);
            ck_abort_msg("no time-out");
        } catch (const Error &error) {
            ck_assert_int_eq(error.code(), JIGSAW_TIMEOUT);
            ck_assert_str_eq(error.what(), "rank 1: rank 0 sent nothing for 20 ms");
        }
        world.send(0, kTag, &done, sizeof done)->wait(kLong);
        request->wait(kLong);
        ck_assert_int_eq(value, 5);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

START_TEST(who_waits_for_a_rank_that_left_hears_it)
{
    const auto outcomes = run_ranks(3, [](Collective &world) {
        int value = 0;
        if (world.rank() != 2)
            world.receive(2, kTag, &value, sizeof value)->wait(kLong);
    });
    for (int rank = 0; rank < 2; ++rank) {
        ck_assert_int_eq(outcomes[static_cast<std::size_t>(rank)].code, JIGSAW_PEER_LEFT);
        ck_assert(outcomes[static_cast<std::size_t>(rank)].text == "rank " + std::to_string(rank) + ": rank 2 left");
    }
}
END_TEST

START_TEST(an_abort_ends_everybodys_waiting)
{
    // Rank 0 waits for rank 1, rank 1 for rank 0: only rank 2's abort can end it.
    const auto outcomes = run_ranks(3, [](Collective &world) {
        int value = 0;
        if (world.rank() == 2) {
            world.abort("the roof is on fire");
            world.abort("a later reason");
        } else {
            world.receive(1 - world.rank(), kTag, &value, sizeof value)->wait(kLong);
        }
    });
    for (int rank = 0; rank < 2; ++rank) {
        ck_assert_int_eq(outcomes[static_cast<std::size_t>(rank)].code, JIGSAW_PEER_LEFT);
        ASSERT_CONTAINS(outcomes[static_cast<std::size_t>(rank)].text, "rank 2 gave up: the roof is on fire");
    }
}
END_TEST

START_TEST(operations_agree_on_all_ranks)
{
    for (int size = 1; size <= 5; ++size) {
        const auto outcomes = run_ranks(size, [size](Collective &world) {
            double data[3] = {world.rank() + 0.1, 1.0 / (world.rank() + 3), -0.0};
            double expected[3] = {0.1, 1.0 / 3, -0.0};
            for (int rank = 1; rank < size; ++rank) {
                expected[0] += rank + 0.1;
                expected[1] += 1.0 / (rank + 3);
                expected[2] += -0.0;
            }
            mean(world, data, 3, 0, kLong);
            for (int i = 0; i < 3; ++i) {
                expected[i] /= size;
                ck_assert_mem_eq(&data[i], &expected[i], sizeof(double));
            }
            char text[6] = "-----";
            if (world.rank() == size - 1)
                std::copy_n("hello", 6, text);
            broadcast(world, text, sizeof text, size - 1, 1, kLong);
            ck_assert_str_eq(text, "hello");
            barrier(world, 2, kLong);
        });
        ck_assert_str_eq(first_failure(outcomes).c_str(), "");
    }
}
END_TEST

START_TEST(bad_arguments_are_named)
{
    const auto world = make_thread_world(2);
    const auto view = join(world, 0);
    const std::function<void()> bad[] = {
        [] { make_thread_world(0); },
        [&] { join(world, 0); },
        [&] { join(world, 2); },
        [&] { join(nullptr, 0); },
        [&] { view->send(0, kTag, nullptr, 1); },
        [&] { view->receive(2, kTag, nullptr, 1); },
        [&] { broadcast(*view, nullptr, 1, 2, 0, kShort); },
    };
    for (const auto &call : bad) {
        try {
            call();
            ck_abort_msg("a bad argument was taken");
        } catch (const Error &error) {
            ck_assert_int_eq(error.code(), JIGSAW_INVALID_ARGUMENT);
        }
    }
}
END_TEST

int pipe_signals = 0;

START_TEST(writes_to_nobody_raise_no_signal_meanwhile)
{
    std::signal(SIGPIPE, [](int) { ++pipe_signals; });
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    close(ends[0]);
    const auto write_in_vain = [&] { ck_assert_int_eq(write(ends[1], "x", 1), -1); };
    {
        const NoPipeSignal quiet;
        write_in_vain();
        std::thread(write_in_vain).join();
    }
    ck_assert_int_eq(pipe_signals, 0);
    write_in_vain(); // and now as the program wants it
    ck_assert_int_eq(pipe_signals, 1);
    sigset_t all, before;
    sigemptyset(&all);
    sigaddset(&all, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    write_in_vain();
    {
        const NoPipeSignal quiet; // what waited already is not ours
        write_in_vain();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ck_assert_int_eq(pipe_signals, 2);
    close(ends[1]);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("collective");
    jigsaw::tests::add_case(suite, "messages",
                            {messages_keep_their_order, tags_and_directions_do_not_mix,
                             other_sizes_are_an_error_on_both_sides, a_time_out_names_the_peer_and_loses_nothing});
    jigsaw::tests::add_case(suite, "leaving", {who_waits_for_a_rank_that_left_hears_it, an_abort_ends_everybodys_waiting});
    jigsaw::tests::add_case(suite, "operations", {operations_agree_on_all_ranks, bad_arguments_are_named});
    jigsaw::tests::add_case(suite, "signals", {writes_to_nobody_raise_no_signal_meanwhile});
    return jigsaw::tests::run_tap(suite);
}
