// SPDX-License-Identifier: Apache-2.0
// Roles: vectors by policy, what two jobs of one phase complement, the tables that must be refused, depth tables.
#include "runtime/plan/roles.hpp"
#include "tests/lib/suite.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace jigsaw::plan;
using Vector = std::vector<std::uint32_t>;

Directive make(Policy policy, std::uint32_t levels, Vector table, std::int32_t phase = 0, std::int32_t direction = 1,
               std::uint32_t full_workers = 1)
{
    Directive directive;
    directive.generation = 1;
    directive.policy = policy;
    directive.levels = levels;
    directive.depth_of_level = std::move(table);
    directive.phase = phase;
    directive.direction = direction;
    directive.full_workers = full_workers;
    return directive;
}

std::string text_of(const Vector &vector)
{
    std::string text;
    for (const std::uint32_t value : vector)
        text += (text.empty() ? "" : " ") + std::to_string(value);
    return text;
}

void same(const std::string &got, const std::string &want)
{
    ck_assert_msg(got == want, "got '%s', want '%s'", got.c_str(), want.c_str());
}

struct Row {
    const char *name;
    Directive directive;
    std::uint32_t world_size, num_blocks;
    std::uint64_t iteration;
    const char *depths;
};

const Row kRows[] = {
    {"full", make(Policy::full, 3, {1, 2, 4}), 3, 4, 7, "4 4 4"},
    {"two-level at 0", make(Policy::two_level, 2, {1, 4}), 4, 4, 0, "4 1 1 1"},
    {"two-level at 1", make(Policy::two_level, 2, {1, 4}), 4, 4, 1, "1 1 1 4"},
    {"two-level at 4 is a period", make(Policy::two_level, 2, {1, 4}), 4, 4, 4, "4 1 1 1"},
    {"two-level phase", make(Policy::two_level, 2, {1, 4}, 2), 4, 4, 0, "1 1 4 1"},
    {"two-level negative phase", make(Policy::two_level, 2, {1, 4}, -1), 4, 4, 0, "1 4 1 1"},
    {"two-level direction", make(Policy::two_level, 2, {1, 4}, 0, -1), 4, 4, 1, "1 4 1 1"},
    {"two-level two full", make(Policy::two_level, 2, {1, 4}, 0, 1, 2), 4, 4, 0, "4 4 1 1"},
    {"two-level all full", make(Policy::two_level, 2, {1, 4}, 0, 1, 4), 4, 4, 3, "4 4 4 4"},
    {"two-level uses the ends of more levels", make(Policy::two_level, 3, {2, 3, 5}), 3, 5, 0, "5 2 2"},
    {"rotate at 0", make(Policy::rotate, 4, {1, 2, 3, 4}), 4, 4, 0, "1 2 3 4"},
    {"rotate at 1", make(Policy::rotate, 4, {1, 2, 3, 4}), 4, 4, 1, "2 3 4 1"},
    {"rotate backwards", make(Policy::rotate, 4, {1, 2, 3, 4}, 0, -1), 4, 4, 0, "1 4 3 2"},
    {"rotate, two ranks a level", make(Policy::rotate, 2, {1, 3}), 4, 3, 0, "1 1 3 3"},
    {"rotate, more levels than ranks", make(Policy::rotate, 4, {1, 2, 3, 4}), 2, 4, 0, "1 3"},
    {"rotate, five ranks on two levels", make(Policy::rotate, 2, {1, 6}), 5, 6, 2, "1 6 6 1 1"},
    {"rotate far out", make(Policy::rotate, 3, {1, 2, 3}), 3, 3, UINT64_MAX, "1 2 3"},
    {"rotate, least phase", make(Policy::rotate, 3, {1, 2, 3}, INT32_MIN), 3, 3, 0, "2 3 1"},
    {"fixed at 0", make(Policy::fixed, 3, {1, 2, 3}), 3, 3, 0, "1 2 3"},
    {"fixed stays", make(Policy::fixed, 3, {1, 2, 3}), 3, 3, 5, "1 2 3"},
    {"fixed has a phase", make(Policy::fixed, 3, {1, 2, 3}, 1), 3, 3, 5, "2 3 1"},
    {"one rank", make(Policy::two_level, 2, {1, 4}), 1, 4, 9, "4"},
    {"uniform, half: shallow first", make(Policy::uniform, 2, {1, 4}, 0, 1, 4), 3, 4, 0, "1 1 1"},
    {"uniform, half: then full", make(Policy::uniform, 2, {1, 4}, 0, 1, 4), 3, 4, 1, "4 4 4"},
    {"uniform has a phase", make(Policy::uniform, 2, {1, 4}, 1, 1, 4), 3, 4, 0, "4 4 4"},
    {"uniform, negative phase", make(Policy::uniform, 2, {1, 4}, -1, 1, 4), 3, 4, 2, "4 4 4"},
    {"uniform, no direction", make(Policy::uniform, 2, {1, 4}, 0, -1, 4), 3, 4, 1, "4 4 4"},
    {"uniform, once in eight", make(Policy::uniform, 2, {1, 4}, 0, 1, 1), 2, 4, 6, "1 1"},
    {"uniform, the eighth", make(Policy::uniform, 2, {1, 4}, 0, 1, 1), 2, 4, 7, "4 4"},
    {"uniform, always", make(Policy::uniform, 2, {1, 4}, 0, 1, 8), 2, 4, 3, "4 4"},
    {"uniform, one rank", make(Policy::uniform, 2, {1, 4}, 0, 1, 4), 1, 4, 2, "1"},
};

START_TEST(depth_vectors)
{
    for (const Row &row : kRows) {
        const Vector depths = depth_vector(row.directive, row.world_size, row.num_blocks, row.iteration);
        ck_assert_msg(text_of(depths) == row.depths, "%s: got %s, want %s", row.name, text_of(depths).c_str(),
                      row.depths);
        for (std::uint32_t rank = 0; rank < row.world_size; ++rank) {
            const std::uint32_t level = level_of(row.directive, rank, row.world_size, row.iteration);
            ck_assert_uint_eq(row.directive.depth_of_level[level - 1], depths[rank]);
        }
    }
}
END_TEST

START_TEST(full_depth_when_nobody_directs)
{
    Directive directive = make(Policy::two_level, 2, {1, 4});
    directive.generation = 0;
    same(text_of(depth_vector(directive, 3, 4, 10)), "4 4 4");
    directive.generation = 5;
    directive.first_iteration = 10;
    same(text_of(depth_vector(directive, 3, 4, 9)), "4 4 4");
    ck_assert(text_of(depth_vector(directive, 3, 4, 10)) != "4 4 4");
    directive.depth_of_level.clear();
    same(text_of(depth_vector(directive, 3, 4, 10)), "4 4 4");
}
END_TEST

/// The ranks at full depth in an iteration.
std::set<std::uint32_t> full_ranks(const Directive &directive, std::uint32_t world_size, std::uint64_t iteration)
{
    std::set<std::uint32_t> ranks;
    for (std::uint32_t rank = 0; rank < world_size; ++rank)
        if (level_of(directive, rank, world_size, iteration) == directive.levels)
            ranks.insert(rank);
    return ranks;
}

START_TEST(two_level_gives_each_rank_the_same)
{
    for (std::uint32_t world_size = 1; world_size <= 9; ++world_size)
        for (std::uint32_t full = 1; full <= world_size; ++full)
            for (const std::int32_t direction : {1, -1}) {
                const Directive directive = make(Policy::two_level, 2, {1, 8}, 3, direction, full);
                std::vector<std::uint32_t> times(world_size, 0);
                for (std::uint64_t t = 100; t < 100 + world_size; ++t) {
                    const auto ranks = full_ranks(directive, world_size, t);
                    ck_assert_uint_eq(ranks.size(), full);
                    for (const std::uint32_t rank : ranks)
                        ++times[rank];
                }
                for (const std::uint32_t n : times)
                    ck_assert_uint_eq(n, full);
            }
}
END_TEST

/// Jobs on the same GPUs with phases one apart never run one rank deep at once while there are ranks enough.
START_TEST(phases_complement_each_other)
{
    for (std::uint32_t world_size = 2; world_size <= 8; ++world_size)
        for (const std::int32_t direction : {1, -1})
            for (std::uint64_t t = 0; t < 2 * world_size; ++t) {
                std::set<std::uint32_t> busy;
                for (std::uint32_t job = 0; job < world_size; ++job) {
                    const auto phase = static_cast<std::int32_t>(job) - 2;
                    const auto ranks = full_ranks(make(Policy::two_level, 2, {1, 4}, phase, direction), world_size, t);
                    busy.insert(ranks.begin(), ranks.end());
                }
                ck_assert_uint_eq(busy.size(), world_size);
            }
}
END_TEST

START_TEST(shuffle_is_a_permutation_of_rotate)
{
    Directive directive = make(Policy::shuffle, 4, {1, 2, 3, 4});
    std::set<std::string> seen;
    std::vector<double> mean(8, 0);
    const int iterations = 4000;
    for (int t = 0; t < iterations; ++t) {
        Vector depths = depth_vector(directive, 8, 4, static_cast<std::uint64_t>(t));
        seen.insert(text_of(depths));
        for (std::size_t rank = 0; rank < depths.size(); ++rank)
            mean[rank] += depths[rank] / static_cast<double>(iterations);
        std::sort(depths.begin(), depths.end());
        same(text_of(depths), "1 1 2 2 3 3 4 4");
    }
    ck_assert_uint_gt(seen.size(), 1000); // 2520 are possible
    for (const double m : mean)           // sigma of the mean is 0.018: five of them
        ck_assert_msg(std::fabs(m - 2.5) < 0.09, "mean depth of a rank is %f", m);
    directive.seed = 1;
    ck_assert(depth_vector(directive, 8, 4, 5) !=
              depth_vector(make(Policy::shuffle, 4, {1, 2, 3, 4}), 8, 4, 5));
}
END_TEST

struct Refused {
    std::function<void(Directive &)> change;
    const char *says; ///< null: must be accepted
};

START_TEST(validation)
{
    const Refused rows[] = {
        {[](Directive &) {}, nullptr},
        {[](Directive &d) { d.phase = INT32_MIN; }, nullptr},
        {[](Directive &d) { d.first_iteration = UINT64_MAX; }, nullptr},
        {[](Directive &d) { d.generation = 0; }, nullptr},
        {[](Directive &d) { d = Directive{}; }, nullptr},
        {[](Directive &d) { d.policy = Policy::rotate, d.full_workers = 99; }, nullptr},
        {[](Directive &d) { d.policy = static_cast<Policy>(6); }, "policy is 6, allowed is 0 to 5"},
        {[](Directive &d) { d.direction = 0; }, "direction is 0"},
        {[](Directive &d) { d.direction = 2; }, "direction is 2"},
        {[](Directive &d) { d.levels = 0; }, "levels is 0, allowed is 1 to 16"},
        {[](Directive &d) { d.levels = 17; }, "levels is 17"},
        {[](Directive &d) { d.full_workers = 0; }, "full_workers is 0, allowed is 1 to 4"},
        {[](Directive &d) { d.full_workers = 5; }, "full_workers is 5"},
        {[](Directive &d) { d.depth_of_level.clear(); }, "depth_of_level has 0 entries, levels is 2"},
        {[](Directive &d) { d.depth_of_level = {1, 2, 6}; }, "depth_of_level has 3 entries"},
        {[](Directive &d) { d.depth_of_level = {0, 6}; }, "depth_of_level[0] is 0, allowed is 1 to 6"},
        {[](Directive &d) { d.depth_of_level = {6, 5}; }, "depth_of_level[1] is 5, allowed is 6 to 6"},
        {[](Directive &d) { d.depth_of_level = {1, 7}; }, "depth_of_level[1] is 7, allowed is 1 to 6"},
        {[](Directive &d) { d.depth_of_level = {1, 5}; }, "depth_of_level ends with 5"},
        {[](Directive &d) { d.generation = 0, d.depth_of_level = {9, 9}; }, "depth_of_level[0] is 9"},
    };
    for (const Refused &row : rows) {
        Directive directive = make(Policy::two_level, 2, {1, 6});
        row.change(directive);
        const std::string why = validate(directive, 4, 6);
        if (row.says)
            ck_assert_msg(why.find(row.says) != std::string::npos, "'%s' does not say '%s'", why.c_str(), row.says);
        else
            ck_assert_msg(why.empty(), "refused: %s", why.c_str());
    }
    const Directive good = make(Policy::two_level, 2, {1, 6});
    ck_assert(!validate(good, 0, 6).empty());
    ck_assert(!validate(good, 4, 0).empty());
    ck_assert(!validate(good, 4, JIGSAW_MAX_BLOCKS + 1).empty());
}
END_TEST

START_TEST(depth_tables)
{
    const struct {
        Policy policy;
        std::uint32_t levels;
        std::vector<std::uint64_t> backward_ns;
        const char *table;
    } rows[] = {
        {Policy::rotate, 4, {1, 1, 1, 1}, "1 2 3 4"},
        {Policy::rotate, 4, {0, 0, 0, 0}, "1 2 3 4"},
        {Policy::rotate, 2, {10, 10, 10, 10, 10}, "3 5"},       // never less than asked
        {Policy::rotate, 4, {50, 30, 15, 5}, "3 3 4 4"},        // heavy blocks near the input
        {Policy::rotate, 4, {5, 15, 30, 50}, "1 1 2 4"},        // and near the loss
        {Policy::rotate, 4, {0, 0, 7}, "1 1 1 3"},              // full depth is all blocks, also free ones
        {Policy::rotate, 3, {7, 0, 0}, "3 3 3"},
        {Policy::rotate, 1, {1, 2, 3}, "3"},
        {Policy::rotate, 3, {5}, "1 1 1"},
        {Policy::two_level, 2, {40, 30, 20, 10}, "1 4"},        // the last block only, however little that is
        {Policy::two_level, 3, {40, 30, 20, 10}, "1 4 4"},
        {Policy::two_level, 1, {40, 30}, "2"},
        {Policy::rotate, 2, {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}, "2 4"},
        // eight layers like a convolutional network's: cheap at the loss, dear in the middle (milliseconds in ns)
        {Policy::rotate, 4, {21000000, 34000000, 31000000, 18000000, 9000000, 6000000, 3000000, 1000000}, "5 6 7 8"},
    };
    for (const auto &row : rows) {
        const Vector table = make_depth_table(row.policy, row.levels, row.backward_ns);
        ck_assert_msg(text_of(table) == row.table, "got %s, want %s", text_of(table).c_str(), row.table);
        Directive directive = make(row.policy, row.levels, table);
        const std::string why = validate(directive, 4, static_cast<std::uint32_t>(row.backward_ns.size()));
        ck_assert_msg(why.empty(), "%s", why.c_str());
    }
}
END_TEST

/// The definition, word by word, over many random tables.
START_TEST(depth_table_is_least_and_enough)
{
    std::uint64_t random = 7;
    const auto draw = [&](std::uint64_t n) { return (random = random * 6364136223846793005u + 1) / 7 % n; };
    for (int round = 0; round < 2000; ++round) {
        std::vector<std::uint64_t> ns(1 + draw(12));
        for (auto &t : ns)
            t = draw(50);
        ns.back() += 1;
        const auto levels = static_cast<std::uint32_t>(1 + draw(6));
        const Vector table = make_depth_table(Policy::rotate, levels, ns);
        const std::uint64_t total = std::accumulate(ns.begin(), ns.end(), std::uint64_t{0});
        const auto suffix = [&](std::uint32_t depth) {
            return std::accumulate(ns.end() - depth, ns.end(), std::uint64_t{0});
        };
        for (std::uint32_t level = 1; level < levels; ++level) {
            const std::uint32_t depth = table[level - 1];
            ck_assert(suffix(depth) * levels >= total * level);
            ck_assert(depth == 1 || suffix(depth - 1) * levels < total * level);
        }
        ck_assert_uint_eq(table.back(), ns.size());
    }
}
END_TEST

START_TEST(mean_depth_fractions)
{
    const std::vector<std::uint64_t> equal(4, 10), skewed{40, 30, 20, 10};
    const auto near = [](double got, double want) { ck_assert_msg(std::fabs(got - want) < 1e-12, "%g", got); };
    near(mean_depth_fraction(Directive{}, 4, equal), 1);
    near(mean_depth_fraction(make(Policy::full, 1, {4}), 4, equal), 1);
    near(mean_depth_fraction(make(Policy::rotate, 4, {1, 2, 3, 4}), 4, equal), 0.625); // (k+1)/2k
    near(mean_depth_fraction(make(Policy::shuffle, 4, {1, 2, 3, 4}), 4, equal), 0.625);
    near(mean_depth_fraction(make(Policy::fixed, 4, {1, 2, 3, 4}), 4, equal), 0.625);
    near(mean_depth_fraction(make(Policy::two_level, 2, {1, 4}), 2, equal), 0.625);
    near(mean_depth_fraction(make(Policy::two_level, 2, {1, 4}), 2, skewed), 0.55);
    near(mean_depth_fraction(make(Policy::two_level, 2, {1, 4}), 2, {0, 0, 0, 0}), 0.625);
    near(mean_depth_fraction(make(Policy::two_level, 2, {}), 2, skewed), 0.55); // wanted: no table yet
    near(mean_depth_fraction(make(Policy::uniform, 2, {1, 4}, 0, 1, 4), 3, skewed), 0.55);
    near(mean_depth_fraction(make(Policy::uniform, 2, {1, 4}, 3, 1, 2), 1, equal), (2 + 6 * 0.25) / 8);
}
END_TEST

START_TEST(full_workers_follow_the_rate)
{
    ck_assert_uint_eq(full_workers_for_rate(1.0, 4), 4);
    ck_assert_uint_eq(full_workers_for_rate(0.8, 4), 4);
    ck_assert_uint_eq(full_workers_for_rate(0.79, 4), 4);
    ck_assert_uint_eq(full_workers_for_rate(0.6, 4), 3);
    ck_assert_uint_eq(full_workers_for_rate(0.4, 4), 2);
    ck_assert_uint_eq(full_workers_for_rate(0.2, 4), 1);
    ck_assert_uint_eq(full_workers_for_rate(0.21, 4), 2);
    ck_assert_uint_eq(full_workers_for_rate(0.0, 4), 1);
    ck_assert_uint_eq(full_workers_for_rate(-1.0, 4), 1);
    ck_assert_uint_eq(full_workers_for_rate(0.5, 4, 1.0), 2);
    ck_assert_uint_eq(full_workers_for_rate(std::numeric_limits<double>::quiet_NaN(), 4), 4);
    ck_assert_uint_eq(full_workers_for_rate(std::numeric_limits<double>::infinity(), 4), 4);
}
END_TEST

START_TEST(policy_words)
{
    for (const Policy policy : {Policy::full, Policy::two_level, Policy::rotate, Policy::shuffle, Policy::fixed, Policy::uniform}) {
        Policy parsed = Policy::full;
        ck_assert(parse_policy(&parsed, policy_name(policy)));
        ck_assert(parsed == policy);
    }
    Policy kept = Policy::rotate;
    for (const char *word : {"", "two_level", "Rotate", "rotate ", "idle"})
        ck_assert(!parse_policy(&kept, word));
    ck_assert(kept == Policy::rotate);
    ck_assert_str_eq(policy_name(static_cast<Policy>(77)), "unknown");
}
END_TEST

START_TEST(equality_looks_at_every_field)
{
    const std::function<void(Directive &)> changes[] = {
        [](Directive &d) { ++d.generation; },   [](Directive &d) { ++d.first_iteration; },
        [](Directive &d) { ++d.seed; },         [](Directive &d) { d.policy = Policy::fixed; },
        [](Directive &d) { ++d.phase; },        [](Directive &d) { d.direction = -1; },
        [](Directive &d) { ++d.levels; },       [](Directive &d) { ++d.full_workers; },
        [](Directive &d) { d.depth_of_level[0] = 2; },
    };
    const Directive one = make(Policy::two_level, 2, {1, 6});
    ck_assert(one == make(Policy::two_level, 2, {1, 6}));
    for (const auto &change : changes) {
        Directive other = one;
        change(other);
        ck_assert(!(other == one));
    }
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("roles");
    jigsaw::tests::add_case(suite, "depths", {depth_vectors, full_depth_when_nobody_directs});
    jigsaw::tests::add_case(suite, "properties",
                            {two_level_gives_each_rank_the_same, phases_complement_each_other,
                             shuffle_is_a_permutation_of_rotate});
    jigsaw::tests::add_case(suite, "validation", {validation, policy_words, equality_looks_at_every_field});
    jigsaw::tests::add_case(suite, "tables",
                            {depth_tables, depth_table_is_least_and_enough, mean_depth_fractions,
                             full_workers_follow_the_rate});
    return jigsaw::tests::run_tap(suite);
}
