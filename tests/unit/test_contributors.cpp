// SPDX-License-Identifier: Apache-2.0
// Contributor sets against a slow, obvious reference; the hash that ranks compare; the lower bound of bytes.
#include "runtime/plan/contributors.hpp"
#include "tests/lib/suite.hpp"

#include <set>
#include <vector>

namespace {

using namespace jigsaw::plan;

Directive make(Policy policy, std::uint32_t levels, std::vector<std::uint32_t> table)
{
    Directive directive;
    directive.generation = 3;
    directive.policy = policy;
    directive.levels = levels;
    directive.depth_of_level = std::move(table);
    return directive;
}

START_TEST(contributors_match_the_reference)
{
    for (const Policy policy : {Policy::full, Policy::two_level, Policy::rotate, Policy::shuffle, Policy::fixed, Policy::uniform})
        for (std::uint32_t world_size = 1; world_size <= 6; ++world_size)
            for (std::uint64_t t = 0; t < 8; ++t) {
                const Directive directive = make(policy, 3, {1, 3, 5});
                const IterationPlan plan = make_iteration_plan(directive, world_size, 5, t);
                ck_assert_uint_eq(plan.iteration, t);
                ck_assert(plan.depths == depth_vector(directive, world_size, 5, t));
                ck_assert_uint_eq(plan.contributors.size(), 5);
                for (std::uint32_t block = 0; block < 5; ++block) {
                    std::vector<std::uint32_t> expected;
                    for (std::uint32_t rank = 0; rank < world_size; ++rank)
                        if (plan.depths[rank] > 5 - 1 - block)
                            expected.push_back(rank);
                    ck_assert(plan.contributors[block] == expected);
                }
                ck_assert_uint_eq(plan.contributors[4].size(), world_size); // everybody has the block at the loss
            }
}
END_TEST

START_TEST(a_block_may_have_nobody)
{
    const IterationPlan plan = make_iteration_plan(make(Policy::rotate, 4, {1, 2, 3, 4}), 2, 4, 0);
    ck_assert(plan.depths == (std::vector<std::uint32_t>{1, 3}));
    ck_assert(plan.contributors[0].empty());
    ck_assert(plan.contributors[1] == std::vector<std::uint32_t>{1});
}
END_TEST

START_TEST(hash_sees_every_field)
{
    const Directive base = make(Policy::two_level, 2, {1, 4});
    std::set<std::uint64_t> hashes;
    const auto add = [&](const Directive &directive, std::uint32_t world_size, std::uint32_t blocks,
                         std::uint64_t iteration) {
        ck_assert(hashes.insert(make_iteration_plan(directive, world_size, blocks, iteration).hash).second);
    };
    add(base, 4, 4, 0);
    add(base, 4, 4, 1);  // another iteration, other depths
    add(base, 4, 4, 4);  // another iteration, the same depths
    add(base, 3, 4, 0);  // another world
    add(base, 4, 5, 0);  // another model
    Directive other = base;
    other.generation = 4; // the same depths of another generation
    add(other, 4, 4, 0);
    other = base;
    other.phase = 1;
    add(other, 4, 4, 0);
    other = base;
    other.depth_of_level = {2, 4};
    add(other, 4, 4, 0);
    ck_assert_uint_eq(make_iteration_plan(base, 4, 4, 0).hash, make_iteration_plan(base, 4, 4, 0).hash);
}
END_TEST

START_TEST(lower_bounds)
{
    const struct {
        std::uint64_t bytes;
        std::uint32_t contributors, ranks;
        std::uint64_t bound;
    } rows[] = {
        {100, 4, 4, 600}, {100, 1, 4, 300}, {100, 2, 4, 400}, {100, 0, 4, 0}, {100, 1, 1, 0},
        {100, 2, 2, 200}, {100, 1, 2, 100}, {0, 3, 4, 0},
    };
    for (const auto &row : rows)
        ck_assert_uint_eq(lower_bound_bytes(row.bytes, row.contributors, row.ranks), row.bound);
}
END_TEST

/// runtime-facts: with depths i/k the bound is 75 % of what a full ring all-reduce sends, for every k.
START_TEST(rotating_roles_send_three_quarters)
{
    for (const std::uint32_t k : {2u, 4u, 8u}) {
        std::vector<std::uint32_t> table;
        for (std::uint32_t level = 1; level <= k; ++level)
            table.push_back(level);
        const IterationPlan plan = make_iteration_plan(make(Policy::rotate, k, table), k, k, 5);
        std::uint64_t sent = 0, full = 0;
        for (const auto &contributors : plan.contributors) {
            sent += lower_bound_bytes(1000, static_cast<std::uint32_t>(contributors.size()), k);
            full += lower_bound_bytes(1000, k, k);
        }
        ck_assert_uint_eq(sent * 4, full * 3);
    }
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("contributors");
    jigsaw::tests::add_case(suite, "sets", {contributors_match_the_reference, a_block_may_have_nobody});
    jigsaw::tests::add_case(suite, "hash", {hash_sees_every_field});
    jigsaw::tests::add_case(suite, "bytes", {lower_bounds, rotating_roles_send_three_quarters});
    return jigsaw::tests::run_tap(suite);
}
