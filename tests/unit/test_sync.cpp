// SPDX-License-Identifier: Apache-2.0
// Partial gradient sync against an obvious serial reference, bit for bit; bytes against the formula; failures.
#include "runtime/sync/gradient_sync.hpp"

#include "runtime/sync/schedule.hpp"
#include "tests/lib/gradients.hpp"
#include "tests/lib/ranks.hpp"
#include "tests/lib/suite.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>

namespace {

using namespace jigsaw;
using namespace jigsaw::sync;
using namespace std::chrono_literals;
using collective::Collective;
using namespace jigsaw::tests;

constexpr auto kLong = 60s;

template <typename Number>
void check_blocks(const plan::IterationPlan &plan, const Blocks<Number> &expected, const Blocks<Number> &mine,
                  const char *what)
{
    for (std::uint32_t block = 0; block < mine.size(); ++block)
        if (!plan.contributors[block].empty() && !mine[block].empty())
            ck_assert_msg(std::memcmp(expected[block].data(), mine[block].data(),
                                      mine[block].size() * sizeof(Number)) == 0,
                          "%s: block %u of iteration %lu differs from the serial sum", what, block,
                          static_cast<unsigned long>(plan.iteration));
}

template <typename Number>
void check_plans(const std::vector<plan::IterationPlan> &plans, const std::vector<std::size_t> &counts)
{
    std::vector<Blocks<Number>> expected;
    for (const plan::IterationPlan &plan : plans)
        expected.push_back(reference<Number>(plan, counts));
    for (const Strategy strategy : kStrategies) {
        const auto outcomes = run_ranks(static_cast<int>(plans.front().depths.size()), [&](Collective &world) {
            Blocks<Number> mine;
            for (const std::size_t count : counts)
                mine.emplace_back(count);
            GradientSync sync(world, buffers_of(mine), strategy);
            for (std::size_t i = 0; i < plans.size(); ++i) {
                run_iteration(sync, world, plans[i], mine, counts);
                check_blocks(plans[i], expected[i], mine, strategy_name(strategy));
                ck_assert(sync.idle());
            }
            ck_assert_uint_eq(sync.payload_bytes_sent(), world.bytes_sent());
        });
        ck_assert_str_eq(first_failure(outcomes).c_str(), "");
    }
}

START_TEST(full_depth_equals_the_serial_sum)
{
    const std::vector<std::size_t> counts = {0, 1, 3, 1000, 100003};
    const auto plan = plan_of({5, 5, 5, 5}, 5);
    check_plans<float>({plan}, counts);
    check_plans<double>({plan}, counts);
}
END_TEST

START_TEST(several_pieces_are_a_pipeline)
{
    // 1 million doubles: 8 pieces of a default block with four ranks and 31 of a chain, more than any window.
    check_plans<double>({plan_of({1, 3, 2, 3}, 3), plan_of({3, 3, 3, 3}, 3, 6)}, {5, 1000000, 70000});
}
END_TEST

plan::Directive directive_of(plan::Policy policy, std::uint32_t ranks, std::uint32_t num_blocks)
{
    plan::Directive directive;
    directive.generation = 3;
    directive.policy = policy;
    directive.seed = 99;
    directive.phase = 1;
    directive.levels = policy == plan::Policy::two_level ? 2 : std::min(ranks, num_blocks);
    directive.full_workers = std::max(1u, ranks / 2);
    directive.depth_of_level = plan::make_depth_table(policy, directive.levels, std::vector<std::uint64_t>(num_blocks));
    return directive;
}

START_TEST(every_policy_equals_the_reference)
{
    using plan::Policy;
    const std::vector<std::size_t> counts = {100, 1, 5000, 2, 0, 1500};
    const std::uint32_t num_blocks = static_cast<std::uint32_t>(counts.size());
    for (const std::uint32_t ranks : {1u, 2u, 3u, 4u, 8u})
        for (const Policy policy : {Policy::full, Policy::two_level, Policy::rotate, Policy::shuffle, Policy::fixed, Policy::uniform}) {
            const plan::Directive directive = directive_of(policy, ranks, num_blocks);
            ck_assert_str_eq(plan::validate(directive, ranks, num_blocks).c_str(), "");
            std::vector<plan::IterationPlan> plans;
            for (std::uint64_t iteration = 0; iteration < 12; ++iteration)
                plans.push_back(plan::make_iteration_plan(directive, ranks, num_blocks, iteration));
            check_plans<float>(plans, counts);
        }
}
END_TEST

START_TEST(bytes_are_the_formula)
{
    const std::vector<std::size_t> counts = {1, 40000, 1000, 300000, 7};
    for (const Strategy strategy : kStrategies)
        for (const std::vector<std::uint32_t> &depths :
             {std::vector<std::uint32_t>{1, 2, 4, 5}, {3, 3, 3, 3}, {5, 1}, {1, 1, 1}, {5}}) {
            const auto plan = plan_of(depths, 5);
            const int ranks = static_cast<int>(depths.size());
            std::mutex mutex;
            std::vector<std::uint64_t> sent(depths.size()), planned;
            run_ranks(ranks, [&](Collective &world) {
                Blocks<float> mine;
                for (const std::size_t count : counts)
                    mine.emplace_back(count);
                const auto buffers = buffers_of(mine);
                GradientSync sync(world, buffers, strategy);
                run_iteration(sync, world, plan, mine, counts);
                const std::lock_guard lock(mutex);
                sent[static_cast<std::size_t>(world.rank())] = sync.payload_bytes_sent();
                planned = bytes_by_rank(make_schedule(plan, buffers, strategy), buffers, ranks);
            });
            std::uint64_t expected = 0;
            for (std::uint32_t block = 0; block < counts.size(); ++block) {
                const auto contributors = static_cast<std::uint32_t>(plan.contributors[block].size());
                const bool full = strategy == Strategy::full_all_reduce && contributors > 0;
                expected += plan::lower_bound_bytes(counts[block] * sizeof(float),
                                                    full ? static_cast<std::uint32_t>(ranks) : contributors,
                                                    static_cast<std::uint32_t>(ranks));
            }
            ck_assert_uint_eq(std::accumulate(sent.begin(), sent.end(), std::uint64_t{0}), expected);
            ck_assert(sent == planned);
        }
}
END_TEST

START_TEST(the_default_spares_the_busiest_rank)
{
    // Depths i/k of a model of k equal blocks; units of the model's bytes. A full all-reduce: 2 (k - 1) / k each.
    const struct {
        std::uint32_t ranks;
        double most;
    } rows[] = {{2, 1.01}, {4, 1.14}, {8, 1.33}};
    for (const auto &row : rows) {
        std::vector<std::uint32_t> depths(row.ranks);
        std::iota(depths.begin(), depths.end(), 1);
        const std::vector<BlockBuffer> blocks(row.ranks, {nullptr, 1u << 20, DataType::float32});
        const auto plan = plan_of(depths, row.ranks);
        const auto sent = bytes_by_rank(make_schedule(plan, blocks, Strategy::automatic), blocks,
                                        static_cast<int>(row.ranks));
        const double busiest = static_cast<double>(*std::max_element(sent.begin(), sent.end())) /
                               (static_cast<double>(row.ranks) * 4 * (1u << 20));
        ck_assert_msg(busiest < row.most, "%u ranks: busiest sends %.3f of the model", row.ranks, busiest);
    }
}
END_TEST

START_TEST(a_block_moves_while_the_next_is_computed)
{
    for (const Strategy strategy : kStrategies) {
        const std::vector<std::size_t> counts = {1000, 1000};
        const auto plan = plan_of({2, 2, 1}, 2);
        std::atomic<int> moved{0};
        const auto outcomes = run_ranks(3, [&](Collective &world) {
            Blocks<float> mine = gradients_of<float>(world.rank(), plan.iteration, counts);
            GradientSync sync(world, buffers_of(mine), strategy);
            sync.begin(plan);
            sync.block_ready(1);
            // No rank has computed block 0; every contributor's part of block 1 leaves all the same.
            while (world.bytes_sent() == 0)
                std::this_thread::yield();
            // Looked at before anyone goes on: once two ranks hand over block 0, the third may be done with it.
            const bool idle = sync.idle();
            ++moved;
            while (moved < 3)
                std::this_thread::yield();
            ck_assert(!idle);
            if (world.rank() != 2)
                sync.block_ready(0);
            sync.wait(kLong);
            check_blocks(plan, reference<float>(plan, counts), mine, strategy_name(strategy));
        });
        const std::string failure = first_failure(outcomes);
        ck_assert_str_eq(failure.c_str(), "");
    }
}
END_TEST

#define ASSERT_CONTAINS(text, part)                                                                                    \
    ck_assert_msg((text).find(part) != std::string::npos, "\"%s\" is not in \"%s\"", std::string(part).c_str(),       \
                  (text).c_str())

/// Three ranks, rank 2 does `misbehave` instead of its part; what the others get.
std::vector<Outcome> run_with_a_bad_rank(Strategy strategy, const std::function<void(GradientSync &)> &misbehave)
{
    return run_ranks(3, [&](Collective &world) {
        std::vector<std::vector<float>> mine(2, std::vector<float>(1000, 1.0f));
        GradientSync sync(world, buffers_of(mine), strategy);
        sync.begin(plan_of({2, 2, 2}, 2));
        if (world.rank() == 2)
            return misbehave(sync);
        sync.block_ready(1);
        sync.block_ready(0);
        sync.wait(kLong);
    });
}

START_TEST(a_rank_that_dies_fails_all)
{
    for (const Strategy strategy : kStrategies) {
        const auto outcomes = run_with_a_bad_rank(strategy, [](GradientSync &sync) { sync.block_ready(1); });
        for (std::size_t rank = 0; rank < 2; ++rank) {
            ck_assert_int_eq(outcomes[rank].code, JIGSAW_PEER_LEFT);
            ASSERT_CONTAINS(outcomes[rank].text, "rank 2");
            ASSERT_CONTAINS(outcomes[rank].text, "iteration 5");
        }
    }
}
END_TEST

START_TEST(a_rank_that_is_late_is_a_time_out_that_names_it)
{
    for (const Strategy strategy : kStrategies) {
        // Rank 2 computes until the others have given up; then it hears why at once.
        std::atomic<int> waiting{2};
        const auto outcomes = run_ranks(3, [&](Collective &world) {
            Blocks<float> mine(2, std::vector<float>(1000, 1.0f));
            GradientSync sync(world, buffers_of(mine), strategy);
            sync.begin(plan_of({2, 2, 2}, 2));
            while (world.rank() == 2 && waiting > 0)
                std::this_thread::yield();
            sync.block_ready(1);
            sync.block_ready(0);
            try {
                sync.wait(world.rank() == 2 ? kLong : 100ms);
            } catch (const Error &) {
                --waiting;
                throw;
            }
        });
        ck_assert_int_eq(outcomes[2].code, JIGSAW_PEER_LEFT);
        const bool first = outcomes[0].code == JIGSAW_TIMEOUT;
        const Outcome &timed_out = outcomes[first ? 0 : 1];
        ck_assert_int_eq(timed_out.code, JIGSAW_TIMEOUT);
        ASSERT_CONTAINS(timed_out.text, "gradients of iteration 5: not complete after 100 ms: rank ");
        ASSERT_CONTAINS(outcomes[2].text, "not complete after 100 ms");
    }
}
END_TEST

START_TEST(other_plans_never_mix)
{
    for (const Strategy strategy : kStrategies) {
        const auto outcomes = run_ranks(4, [&](Collective &world) {
            std::vector<std::vector<float>> mine(2, std::vector<float>(1000, 1.0f));
            GradientSync sync(world, buffers_of(mine), strategy);
            plan::IterationPlan plan = plan_of({2, 1, 2, 1}, 2);
            if (world.rank() == 1) {
                plan = plan_of({2, 2, 2, 1}, 2);
                plan.hash += 1;
            }
            sync.begin(plan);
            for (std::uint32_t block = 0; block < 2; ++block)
                if (plan.depths[static_cast<std::size_t>(world.rank())] >= 2 - block)
                    sync.block_ready(block);
            sync.wait(200ms);
        });
        for (const auto &outcome : outcomes)
            ck_assert(outcome.code == JIGSAW_TIMEOUT || outcome.code == JIGSAW_PEER_LEFT);
    }
}
END_TEST

START_TEST(wrong_calls_are_named)
{
    const auto outcomes = run_ranks(2, [](Collective &world) {
        std::vector<std::vector<float>> mine(2, std::vector<float>(8));
        GradientSync sync(world, buffers_of(mine), Strategy::automatic);
        const auto plan = plan_of({1, 2}, 2);
        const auto expect = [](jigsaw_result_t code, const std::function<void()> &call) {
            try {
                call();
                ck_abort_msg("a wrong call was taken");
            } catch (const Error &error) {
                ck_assert_int_eq(error.code(), code);
            }
        };
        expect(JIGSAW_INVALID_ARGUMENT, [&] { sync.begin(plan_of({1, 2}, 3)); });
        expect(JIGSAW_INVALID_ARGUMENT, [&] { sync.begin(plan_of({1, 2, 1}, 2)); });
        sync.begin(plan);
        expect(JIGSAW_INVALID_STATE, [&] { sync.begin(plan); });
        expect(JIGSAW_INVALID_STATE, [&] { sync.block_ready(2); });
        if (world.rank() == 0)
            expect(JIGSAW_INVALID_STATE, [&] { sync.block_ready(0); });
        else
            sync.block_ready(0);
        ck_assert(!sync.wait_for(1ms) && !sync.idle());
        sync.block_ready(1);
        sync.wait(kLong);
        expect(JIGSAW_INVALID_STATE, [&] { sync.block_ready(1); });
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("sync");
    jigsaw::tests::add_case(suite, "bits",
                            {full_depth_equals_the_serial_sum, several_pieces_are_a_pipeline,
                             every_policy_equals_the_reference, a_block_moves_while_the_next_is_computed});
    jigsaw::tests::add_case(suite, "bytes", {bytes_are_the_formula, the_default_spares_the_busiest_rank});
    jigsaw::tests::add_case(suite, "failures",
                            {a_rank_that_dies_fails_all, a_rank_that_is_late_is_a_time_out_that_names_it,
                             other_plans_never_mix, wrong_calls_are_named});
    return jigsaw::tests::run_tap(suite);
}
