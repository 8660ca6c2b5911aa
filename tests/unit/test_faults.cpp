// SPDX-License-Identifier: Apache-2.0
// A training loop of three ranks in which one operation of one rank goes wrong, for every operation in turn: all ranks
// end, none with gradients that are not the mean, none later than its time-out.
#include "runtime/sync/agreement.hpp"
#include "tests/lib/faulty_collective.hpp"
#include "tests/lib/gradients.hpp"
#include "tests/lib/ranks.hpp"
#include "tests/lib/suite.hpp"

#include <cstring>

namespace {

using namespace jigsaw;
using namespace jigsaw::tests;
using namespace std::chrono_literals;
using sync::Strategy;

constexpr int kRanks = 3;
constexpr std::uint64_t kIterations = 4;
const std::vector<std::size_t> kCounts = {700, 3, 5000}; // the last block is cut in chunks

plan::Directive rotating()
{
    plan::Directive directive;
    directive.generation = 1;
    directive.policy = plan::Policy::rotate;
    directive.levels = 3;
    directive.depth_of_level = {1, 2, 3};
    return directive;
}

void train(collective::Collective &world, Strategy strategy, std::chrono::milliseconds timeout)
{
    Blocks<float> mine;
    for (const std::size_t count : kCounts)
        mine.emplace_back(count);
    sync::Agreement agreement(world, static_cast<std::uint32_t>(kCounts.size()));
    sync::GradientSync sync(world, buffers_of(mine), strategy);
    sync::AgreementInput input;
    input.announce = rotating();
    for (std::uint64_t t = 0; t < kIterations; ++t) {
        const plan::IterationPlan plan = agreement.plan(t);
        agreement.start(t, input);
        run_iteration(sync, world, plan, mine, kCounts, timeout);
        const Blocks<float> expected = reference<float>(plan, kCounts);
        for (std::size_t block = 0; block < mine.size(); ++block)
            if (!plan.contributors[block].empty() &&
                std::memcmp(mine[block].data(), expected[block].data(), kCounts[block] * sizeof(float)) != 0)
                throw Error(JIGSAW_INTERNAL_ERROR, "WRONG GRADIENTS in iteration " + std::to_string(t));
        input.leave = t + 1 == kIterations;
        agreement.finish(t, timeout);
    }
}

/// Rank 1 has the fault. *ret_operations: how many operations rank 1 tried.
std::vector<Outcome> train_with(Fault fault, Strategy strategy, std::chrono::milliseconds timeout,
                                std::uint64_t *ret_operations = nullptr)
{
    return run_ranks(kRanks, [&](collective::Collective &inner) {
        FaultyCollective world(inner, inner.rank() == 1 ? fault : Fault());
        train(world, strategy, timeout);
        if (ret_operations && inner.rank() == 1)
            *ret_operations = world.operations();
    });
}

std::uint64_t operations_of_a_good_run(Strategy strategy)
{
    std::uint64_t operations = 0;
    const std::string failure = first_failure(train_with(Fault(), strategy, 60s, &operations));
    ck_assert_str_eq(failure.c_str(), "");
    ck_assert_uint_gt(operations, 20);
    return operations;
}

START_TEST(delays_change_nothing)
{
    for (const Strategy strategy : kStrategies)
        for (std::uint64_t seed = 0; seed < 10; ++seed) {
            const std::string failure = first_failure(train_with({Fault::Kind::delay, seed}, strategy, 60s));
            ck_assert_str_eq(failure.c_str(), "");
        }
}
END_TEST

START_TEST(every_failure_ends_all_ranks_at_once)
{
    for (const Strategy strategy : kStrategies) {
        const std::uint64_t operations = operations_of_a_good_run(strategy);
        for (const Fault::Kind kind : {Fault::Kind::fail, Fault::Kind::kill})
            for (std::uint64_t at = 0; at < operations; ++at)
                for (const Outcome &outcome : train_with({kind, at}, strategy, 60s)) {
                    // Never JIGSAW_TIMEOUT: somebody would have waited for a minute.
                    const bool expected = outcome.code == JIGSAW_PEER_LEFT || outcome.code == JIGSAW_SYSTEM_ERROR ||
                                          // The last messages of the run: who has all it needs is done.
                                          outcome.code == JIGSAW_SUCCESS;
                    ck_assert_msg(expected, "%s, operation %lu: %d %s", sync::strategy_name(strategy),
                                  static_cast<unsigned long>(at), static_cast<int>(outcome.code), outcome.text.c_str());
                }
    }
}
END_TEST

START_TEST(a_lost_message_is_never_a_wrong_gradient)
{
    for (const Strategy strategy : kStrategies) {
        const std::uint64_t operations = operations_of_a_good_run(strategy);
        for (std::uint64_t at = 0; at < operations; at += 3) {
            const auto outcomes = train_with({Fault::Kind::drop, at}, strategy, 150ms);
            int ended = 0;
            for (const Outcome &outcome : outcomes) {
                ended += outcome.code != JIGSAW_SUCCESS;
                ck_assert_msg(outcome.code != JIGSAW_INTERNAL_ERROR, "%s, operation %lu: %s",
                              sync::strategy_name(strategy), static_cast<unsigned long>(at), outcome.text.c_str());
            }
            ck_assert_int_gt(ended, 0);
        }
    }
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("faults");
    add_case(suite, "one rank breaks",
             {delays_change_nothing, every_failure_ends_all_ranks_at_once, a_lost_message_is_never_a_wrong_gradient});
    return run_tap(suite);
}
