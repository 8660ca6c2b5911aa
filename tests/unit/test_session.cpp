// SPDX-License-Identifier: Apache-2.0
// A session without LibTorch: ranks as threads, gradients that are known numbers.
#include "runtime/capi/session.hpp"
#include "runtime/collective/error.hpp"
#include "runtime/collective/threads.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <future>
#include <thread>
#include <unistd.h>

#include "tests/lib/suite.hpp" // last: Check defines a macro `fail`

using namespace jigsaw;
using capi::Session;

namespace {

constexpr std::uint32_t kBlocks = 4;
constexpr std::size_t kCount = 1001;
constexpr std::chrono::milliseconds kPatience{20000};

/// One rank: its buffers, its configuration, its session.
struct Rank {
    std::uint32_t rank = 0, size = 1;
    std::vector<std::vector<float>> buffers{kBlocks, std::vector<float>(kCount)};
    jigsaw_config_t config = JIGSAW_CONFIG_INIT;
    std::vector<jigsaw_block_t> blocks;
    std::unique_ptr<Session> session;
    std::vector<std::uint32_t> depths; ///< by iteration

    float gradient(std::uint64_t iteration, std::uint32_t block, std::uint32_t of_rank) const
    {
        return static_cast<float>(iteration * 100 + block * 10 + of_rank + 1);
    }
    void attach() { session = std::make_unique<Session>(capi::make_settings(&config)); }
    /// Forward and backward.
    jigsaw_iteration_t compute()
    {
        const jigsaw_iteration_t now = session->begin_iteration();
        depths.push_back(now.depth);
        session->end_forward();
        for (std::uint32_t block = kBlocks; block-- > kBlocks - now.depth;) {
            std::fill(buffers[block].begin(), buffers[block].end(), gradient(now.iteration, block, rank));
            session->block_ready(block);
        }
        return now;
    }
    void iterate()
    {
        compute();
        session->end_compute();
        session->sync(kPatience);
    }
};

struct Outcome {
    jigsaw_result_t code = JIGSAW_SUCCESS;
    std::string text;
};

using Configure = std::function<void(Rank &)>;

std::vector<Outcome> run(std::uint32_t size, const Configure &configure, const std::function<void(Rank &)> &body)
{
    auto world = collective::make_thread_world(static_cast<int>(size));
    std::vector<Outcome> outcomes(size);
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < size; ++r)
        threads.emplace_back([&, r] {
            Rank rank;
            rank.rank = r;
            rank.size = size;
            for (auto &buffer : rank.buffers)
                rank.blocks.push_back({buffer.data(), buffer.size(), JIGSAW_FLOAT32, 0});
            rank.config.num_blocks = kBlocks;
            rank.config.blocks = rank.blocks.data();
            rank.config.rank = static_cast<int>(r);
            rank.config.world_size = static_cast<int>(size);
            rank.config.backend = "threads";
            rank.config.thread_world = &world;
            rank.config.timeout_ms = 20000;
            rank.config.log = [](void *, const char *) {};
            try {
                configure(rank);
                rank.attach();
                body(rank);
                rank.session->detach();
            } catch (const Error &error) {
                outcomes[r] = {error.code(), error.what()};
                if (rank.session)
                    rank.session->poison(error.what());
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    return outcomes;
}

void nothing(Rank &) {}

void assert_all_well(const std::vector<Outcome> &outcomes)
{
    for (std::size_t r = 0; r < outcomes.size(); ++r)
        ck_assert_msg(outcomes[r].code == JIGSAW_SUCCESS, "rank %zu: %s", r, outcomes[r].text.c_str());
}

/// The mean over the contributors, from the pure plan, written apart from the product's sync.
void assert_means(const Rank &rank, const plan::Directive &directive, std::uint64_t iteration)
{
    const auto plan = plan::make_iteration_plan(directive, rank.size, kBlocks, iteration);
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
        const auto &who = plan.contributors[block];
        if (who.empty()) { // with uniform: nobody has a gradient, and nothing arrives
            ck_assert(directive.policy == plan::Policy::uniform && block + 1 < kBlocks);
            continue;
        }
        float sum = 0;
        for (const std::uint32_t r : who)
            sum += rank.gradient(iteration, block, r);
        for (const float value : rank.buffers[block])
            ck_assert_msg(value == sum / static_cast<float>(who.size()), "iteration %llu block %u: %f",
                          static_cast<unsigned long long>(iteration), block, static_cast<double>(value));
    }
}

START_TEST(means_are_right_at_every_size_and_policy)
{
    for (const std::uint32_t size : {1u, 2u, 4u})
        for (const char *policy : {static_cast<const char *>(nullptr), "two-level", "rotate", "shuffle", "fixed", "uniform"}) {
            const auto outcomes = run(
                size, [&](Rank &rank) { rank.config.policy = policy; },
                [&](Rank &rank) {
                    for (std::uint64_t t = 0; t < 12; ++t) {
                        rank.iterate();
                        assert_means(rank, rank.session->agreement_for_test().directive(t), t);
                    }
                    ck_assert_uint_eq(rank.session->stats().iterations, 12);
                });
            assert_all_well(outcomes);
        }
}
END_TEST

START_TEST(two_levels_rotate)
{
    std::vector<std::vector<std::uint32_t>> depths(2);
    assert_all_well(run(
        2, [](Rank &rank) { rank.config.policy = "two-level"; },
        [&](Rank &rank) {
            for (int t = 0; t < 8; ++t)
                rank.iterate();
            depths[rank.rank] = rank.depths;
        }));
    for (std::size_t t = 0; t < 8; ++t)
        ck_assert_msg(depths[0][t] + depths[1][t] == (t < 2 ? 8u : 5u), "iteration %zu", t);
}
END_TEST

START_TEST(a_resumed_run_counts_on)
{
    assert_all_well(run(
        2,
        [](Rank &rank) {
            rank.config.policy = "two-level";
            rank.config.first_iteration = 1000;
        },
        [](Rank &rank) {
            for (std::uint64_t t = 1000; t < 1006; ++t) {
                const jigsaw_iteration_t now = rank.compute();
                ck_assert_uint_eq(now.iteration, t);
                rank.session->end_compute();
                rank.session->sync(kPatience);
                assert_means(rank, rank.session->agreement_for_test().directive(t), t);
            }
            ck_assert(rank.depths[0] == kBlocks && rank.depths[1] == kBlocks);
        }));
}
END_TEST

START_TEST(a_flipped_depth_is_an_error_on_all_ranks)
{
    for (const char *strategy : {"default", "scatter-gather", "chain", "full"}) {
        const auto outcomes = run(
            4,
            [&](Rank &rank) {
                rank.config.policy = "rotate";
                rank.config.sync_strategy = strategy;
            },
            [](Rank &rank) {
                if (rank.rank == 2)
                    rank.session->agreement_for_test().corrupt_for_test(6, 1 + rank.rank % 2);
                for (int t = 0; t < 10; ++t)
                    rank.iterate();
            });
        for (const Outcome &outcome : outcomes) {
            ck_assert_msg(outcome.code == JIGSAW_DISAGREE, "%s: %d %s", strategy, outcome.code, outcome.text.c_str());
            ck_assert_msg(outcome.text.find("iteration") != std::string::npos, "%s", outcome.text.c_str());
        }
    }
}
END_TEST

START_TEST(all_leave_together)
{
    assert_all_well(run(4, nothing, [](Rank &rank) {
        rank.iterate();
        rank.compute();
        rank.session->leave();
        rank.session->end_compute();
        ck_assert_uint_eq(rank.session->sync(kPatience).last, 1);
        try {
            rank.session->begin_iteration();
            ck_abort_msg("an iteration began after all ranks had left");
        } catch (const Error &error) {
            ck_assert_int_eq(error.code(), JIGSAW_INVALID_STATE);
        }
    }));
}
END_TEST

START_TEST(detaching_at_the_same_place_is_clean)
{
    assert_all_well(run(4, nothing, [](Rank &rank) {
        for (int t = 0; t < 3; ++t)
            rank.iterate();
    }));
}
END_TEST

START_TEST(one_that_leaves_early_is_named)
{
    const auto outcomes = run(3, nothing, [](Rank &rank) {
        for (int t = 0; t < (rank.rank == 1 ? 3 : 9); ++t)
            rank.iterate();
    });
    ck_assert_int_eq(outcomes[1].code, JIGSAW_SUCCESS);
    for (const int r : {0, 2}) {
        ck_assert_msg(outcomes[r].code == JIGSAW_PEER_LEFT, "%s", outcomes[r].text.c_str());
        ck_assert_msg(outcomes[r].text.find("rank 1 left") != std::string::npos, "%s", outcomes[r].text.c_str());
    }
}
END_TEST

START_TEST(one_that_dies_in_backward_ends_all)
{
    const auto outcomes = run(3, nothing, [](Rank &rank) {
        for (int t = 0; t < 9; ++t) {
            if (rank.rank == 2 && t == 4) {
                rank.session->begin_iteration();
                rank.session->block_ready(3);
                rank.session.reset(); // as a crash: no goodbye
                throw Error(JIGSAW_INTERNAL_ERROR, "died");
            }
            rank.iterate();
        }
    });
    for (const int r : {0, 1})
        ck_assert_msg(outcomes[r].code == JIGSAW_PEER_LEFT, "%d %s", outcomes[r].code, outcomes[r].text.c_str());
}
END_TEST

jigsaw_result_t code_of(const std::function<void()> &call, const char *says)
{
    try {
        call();
    } catch (const Error &error) {
        ck_assert_msg(std::string(error.what()).find(says) != std::string::npos, "%s", error.what());
        return error.code();
    }
    return JIGSAW_SUCCESS;
}

START_TEST(calls_out_of_order_say_what_to_do)
{
    assert_all_well(run(1, nothing, [](Rank &rank) {
        Session &s = *rank.session;
        ck_assert_int_eq(code_of([&] { s.end_compute(); }, "jigsaw_begin_iteration"), JIGSAW_INVALID_STATE);
        ck_assert_int_eq(code_of([&] { s.sync(kPatience); }, "no iteration is open"), JIGSAW_INVALID_STATE);
        ck_assert_int_eq(code_of([&] { s.block_ready(0); }, "no iteration is open"), JIGSAW_INVALID_STATE);
        s.begin_iteration();
        ck_assert_int_eq(code_of([&] { s.begin_iteration(); }, "iteration 0 is open"), JIGSAW_INVALID_STATE);
        ck_assert_int_eq(code_of([&] { s.end_compute(); }, "block 3"), JIGSAW_INVALID_STATE);
        ck_assert_int_eq(code_of([&] { s.block_ready(4); }, "4 blocks"), JIGSAW_INVALID_ARGUMENT);
        s.block_ready(3);
        ck_assert_int_eq(code_of([&] { s.block_ready(3); }, "ready before"), JIGSAW_INVALID_STATE);
        ck_assert_int_eq(code_of([&] { s.end_compute(); }, "block 2"), JIGSAW_INVALID_STATE);
        for (const std::uint32_t block : {2u, 1u, 0u})
            s.block_ready(block);
        ck_assert_int_eq(code_of([&] { s.turn_begin(); }, "held already"), JIGSAW_INVALID_STATE);
        s.end_compute();
        ck_assert_int_eq(code_of([&] { s.begin_iteration(); }, "jigsaw_sync"), JIGSAW_INVALID_STATE);
        ck_assert_int_eq(code_of([&] { s.turn_begin(); }, "jigsaw_sync"), JIGSAW_INVALID_STATE);
        // None of that had an effect.
        ck_assert_uint_eq(s.sync(kPatience).iteration, 0);
        s.turn_begin();
        s.turn_end();
        ck_assert_int_eq(code_of([&] { s.turn_end(); }, "no turn"), JIGSAW_INVALID_STATE);
        jigsaw_report_t report = JIGSAW_REPORT_INIT;
        report.progress = 2;
        ck_assert_int_eq(code_of([&] { s.report(report); }, "progress"), JIGSAW_INVALID_ARGUMENT);
        rank.iterate();
        s.poison("for the test");
        ck_assert_int_eq(code_of([&] { s.begin_iteration(); }, "for the test"), JIGSAW_INVALID_STATE);
        ck_assert_int_eq(code_of([&] { s.turn_begin(); }, "for the test"), JIGSAW_INVALID_STATE);
        ck_assert_int_eq(code_of([&] { s.leave(); }, "for the test"), JIGSAW_INVALID_STATE);
    }));
}
END_TEST

START_TEST(a_block_beyond_the_depth_is_refused)
{
    assert_all_well(run(
        2, [](Rank &rank) { rank.config.policy = "two-level"; },
        [](Rank &rank) {
            rank.iterate();
            rank.iterate();
            for (int t = 2; t < 4; ++t) {
                const jigsaw_iteration_t now = rank.compute();
                if (now.depth == 1)
                    ck_assert_int_eq(code_of([&] { rank.session->block_ready(0); }, "beyond depth 1"), JIGSAW_INVALID_ARGUMENT);
                rank.session->end_compute();
                rank.session->sync(kPatience);
            }
        }));
}
END_TEST

START_TEST(the_learning_rate_drives_full_workers_and_a_log_replays)
{
    const std::string path = "/tmp/jigsaw-test-" + std::to_string(getpid()) + "-replay";
    std::remove(path.c_str());
    std::vector<std::vector<std::uint32_t>> recorded(4), replayed(4);
    const auto train = [](Rank &rank, std::vector<std::uint32_t> *ret_depths, bool falling) {
        for (int t = 0; t < 24; ++t) {
            jigsaw_report_t report = JIGSAW_REPORT_INIT;
            report.lr_over_peak = falling ? 1.0 - t / 24.0 : 1.0;
            rank.session->report(report);
            rank.iterate();
        }
        *ret_depths = rank.depths;
    };
    assert_all_well(run(
        4,
        [&](Rank &rank) {
            rank.config.policy = "two-level";
            rank.config.full_workers = 1;
            rank.config.directive_log = path.c_str();
        },
        [&](Rank &rank) { train(rank, &recorded[rank.rank], true); }));
    // Neither policy nor rate of the second run: only the log.
    assert_all_well(run(
        4, [&](Rank &rank) { rank.config.replay_log = path.c_str(); },
        [&](Rank &rank) { train(rank, &replayed[rank.rank], false); }));
    std::uint32_t first = 0, last = 0;
    for (int r = 0; r < 4; ++r) {
        ck_assert(recorded[r] == replayed[r]);
        first += recorded[r][3];
        last += recorded[r][23];
    }
    ck_assert_uint_ge(first, 15);     // rate still high: all or all but one at full depth
    ck_assert_uint_eq(last, 4 + 3);   // rate near zero: one at full depth, three at the last block
    std::remove(path.c_str());
}
END_TEST

START_TEST(group_operations_between_iterations)
{
    assert_all_well(run(4, nothing, [](Rank &rank) {
        double value = rank.rank;
        rank.session->mean(&value, 1);
        ck_assert(value == 1.5);
        std::uint32_t number = rank.rank;
        rank.session->broadcast(&number, sizeof number, 3);
        ck_assert_uint_eq(number, 3);
        rank.compute();
        rank.session->end_compute();
        value = 1;
        rank.session->mean(&value, 1); // while gradients are under way
        rank.session->sync(kPatience);
        ck_assert_int_eq(code_of([&] { rank.session->broadcast(&number, sizeof number, 4); }, "root is 4"), JIGSAW_INVALID_ARGUMENT);
    }));
}
END_TEST

/// All as one block for three iterations, which follows no directive; then four blocks, and the levels of rotate are min(ranks,
/// blocks).
START_TEST(blocks_are_given_anew_between_iterations)
{
    std::vector<std::uint32_t> shallow(2);
    assert_all_well(run(
        2,
        [](Rank &rank) {
            rank.config.policy = "rotate";
            rank.config.num_blocks = 1;
        },
        [&](Rank &rank) {
            std::vector<sync::BlockBuffer> blocks;
            for (auto &buffer : rank.buffers)
                blocks.push_back({buffer.data(), buffer.size(), sync::DataType::float32});
            for (std::uint64_t t = 0; t < 3; ++t) {
                ck_assert_uint_eq(rank.session->begin_iteration().depth, 1);
                std::fill(rank.buffers[0].begin(), rank.buffers[0].end(), rank.gradient(t, 0, rank.rank));
                rank.session->block_ready(0);
                rank.session->end_compute();
                rank.session->sync(kPatience);
                const float mean = (rank.gradient(t, 0, 0) + rank.gradient(t, 0, 1)) / 2;
                ck_assert(rank.buffers[0].front() == mean && rank.buffers[0].back() == mean);
            }
            double number = rank.rank; // the world is the same before and after
            rank.session->broadcast(&number, sizeof number, 0);
            rank.session->set_blocks(blocks);
            rank.session->broadcast(&number, sizeof number, 0);
            for (std::uint64_t t = 3; t < 15; ++t) {
                rank.iterate();
                assert_means(rank, rank.session->agreement_for_test().directive(t), t);
                ck_assert(t > 4 || rank.depths.back() == kBlocks);
                shallow[rank.rank] += rank.depths.back() < kBlocks;
            }
            ck_assert_int_eq(code_of([&] { rank.session->set_blocks(blocks); }, "a directive for 4 blocks was announced"),
                             JIGSAW_INVALID_STATE);
        }));
    ck_assert(shallow[0] > 0 && shallow[1] > 0);
}
END_TEST

START_TEST(a_wake_callback_ends_the_wait_and_the_wait_goes_on)
{
    struct Wake {
        int calls = 0, refusals = 0;
    };
    std::promise<void> interrupted; // rank 1 answers only after rank 0 was interrupted
    assert_all_well(run(
        2,
        [](Rank &rank) {
            rank.config.wake = [](void *arg) { return ++static_cast<Wake *>(arg)->calls > 0 ? 1 : 0; };
            rank.config.wake_arg = new Wake;
        },
        [&](Rank &rank) {
            if (rank.rank == 1) {
                interrupted.get_future().wait();
                rank.iterate();
            } else {
                rank.compute();
                rank.session->end_compute();
                ck_assert_int_eq(code_of([&] { rank.session->sync(kPatience); }, "again"), JIGSAW_INTERRUPTED);
                interrupted.set_value();
                for (bool done = false; !done;)
                    done = code_of([&] { rank.session->sync(kPatience); }, "again") == JIGSAW_SUCCESS;
            }
            delete static_cast<Wake *>(rank.config.wake_arg);
        }));
}
END_TEST

START_TEST(bad_configurations)
{
    struct Row {
        const char *says;
        std::function<void(Rank &)> spoil;
    };
    const std::vector<Row> rows = {
        {"num_blocks is 0", [](Rank &r) { r.config.num_blocks = 0; }},
        {"num_blocks is 65", [](Rank &r) { r.config.num_blocks = 65; }},
        {"blocks is NULL", [](Rank &r) { r.config.blocks = nullptr; }},
        {"blocks[1].type is 9", [](Rank &r) { r.blocks[1].type = 9; }},
        {"blocks[2] is empty", [](Rank &r) { r.blocks[2].count = 0; }},
        {"config->size is 8", [](Rank &r) { r.config.size = 8; }},
        {"rank 5 is not below", [](Rank &r) { r.config.rank = 5; }},
        {"backend is \"carrier pigeons\"", [](Rank &r) { r.config.backend = "carrier pigeons"; }},
        {"needs thread_world", [](Rank &r) { r.config.thread_world = nullptr; }},
        {"policy is \"deep\"", [](Rank &r) { r.config.policy = "deep"; }},
        {"levels is 17", [](Rank &r) { r.config.levels = 17; }},
        {"full_workers is 2 of 1", [](Rank &r) { r.config.full_workers = 2; }},
        {"min_depth_fraction is 1.5", [](Rank &r) { r.config.min_depth_fraction = 1.5; }},
        {"min_depth_fraction is", [](Rank &r) { r.config.min_depth_fraction = NAN; }},
        {"sync_strategy is \"fast\"", [](Rank &r) { r.config.sync_strategy = "fast"; }},
        {"replay_log /nonexistent", [](Rank &r) { r.config.replay_log = "/nonexistent"; }},
    };
    for (const Row &row : rows) {
        const auto outcomes = run(1, row.spoil, nothing);
        ck_assert_msg(outcomes[0].code == JIGSAW_INVALID_ARGUMENT, "%s: %s", row.says, outcomes[0].text.c_str());
        ck_assert_msg(outcomes[0].text.find(row.says) != std::string::npos, "%s: %s", row.says, outcomes[0].text.c_str());
    }
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("session");
    tests::add_case(suite, "iterations",
                    {means_are_right_at_every_size_and_policy, two_levels_rotate, a_resumed_run_counts_on,
                     blocks_are_given_anew_between_iterations,
                     a_flipped_depth_is_an_error_on_all_ranks, the_learning_rate_drives_full_workers_and_a_log_replays});
    tests::add_case(suite, "leaving",
                    {all_leave_together, detaching_at_the_same_place_is_clean, one_that_leaves_early_is_named,
                     one_that_dies_in_backward_ends_all});
    tests::add_case(suite, "calls",
                    {calls_out_of_order_say_what_to_do, a_block_beyond_the_depth_is_refused, group_operations_between_iterations,
                     a_wake_callback_ends_the_wait_and_the_wait_goes_on, bad_configurations});
    return tests::run_tap(suite);
}
