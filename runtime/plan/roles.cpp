// SPDX-License-Identifier: Apache-2.0
// Roles: from a directive to levels, from levels to depths. Everything here is integer arithmetic on the directive's
// own numbers, except the two functions that make a directive from measurements.
#include "runtime/plan/roles.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

namespace jigsaw::plan {
namespace {

// Sums of up to 64 times of 64 bits, multiplied by a level, fit.
using Wide = unsigned __int128;

struct Named {
    Policy policy;
    const char *name;
};
constexpr Named kPolicies[] = {
    {Policy::full, "full"},       {Policy::two_level, "two-level"}, {Policy::rotate, "rotate"},
    {Policy::shuffle, "shuffle"}, {Policy::fixed, "fixed"},         {Policy::uniform, "uniform"},
};

/// Never negative, whatever the sign of `value`.
std::uint64_t modulo(std::int64_t value, std::uint64_t n)
{
    const auto signed_n = static_cast<std::int64_t>(n);
    return static_cast<std::uint64_t>(((value % signed_n) + signed_n) % signed_n);
}

/// (direction * rank + iteration + phase) mod n without overflow at either end of the iterations.
std::uint64_t position(const Directive &directive, std::uint64_t rank, std::uint64_t iteration, std::uint64_t n)
{
    const std::uint64_t r = modulo(directive.direction * static_cast<std::int64_t>(rank % n), n);
    return (r + iteration % n + modulo(directive.phase, n)) % n;
}

/// splitmix64 (Steele, Lea, Flood 2014): a good 64-bit mix that every language can repeat in three lines.
std::uint64_t mix(std::uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/// Fisher-Yates, last place first, driven by splitmix64 of (seed, step).
std::vector<std::uint32_t> permutation(std::uint64_t seed, std::uint64_t step, std::uint32_t n)
{
    std::vector<std::uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0u);
    std::uint64_t stream = mix(seed) ^ mix(~step);
    for (std::uint32_t i = n; i > 1; --i) {
        stream = mix(stream);
        std::swap(order[i - 1], order[static_cast<std::uint32_t>((static_cast<Wide>(stream) * i) >> 64)]);
    }
    return order;
}

std::vector<std::uint32_t> shuffled(const Directive &directive, std::uint32_t world_size, std::uint64_t iteration)
{
    const std::uint64_t step = iteration + static_cast<std::uint64_t>(static_cast<std::int64_t>(directive.phase));
    return permutation(directive.seed, step, world_size);
}

std::uint32_t spread(const Directive &directive, std::uint64_t k, std::uint32_t world_size)
{
    return 1 + static_cast<std::uint32_t>(k * directive.levels / world_size);
}

/// Level of a rank whose place in the rotation is `seat`: its own rank, or what the shuffle gave it.
std::uint32_t level_at(const Directive &directive, std::uint32_t seat, std::uint32_t world_size,
                       std::uint64_t iteration)
{
    switch (directive.policy) {
    case Policy::full:
        break;
    case Policy::two_level:
        return position(directive, seat, iteration, world_size) < directive.full_workers ? directive.levels : 1;
    case Policy::rotate:
    case Policy::shuffle:
        return spread(directive, position(directive, seat, iteration, world_size), world_size);
    case Policy::fixed:
        return spread(directive, position(directive, seat, 0, world_size), world_size);
    case Policy::uniform: {
        const std::uint64_t at = position(directive, 0, iteration, JIGSAW_UNIFORM_PERIOD), full = directive.full_workers;
        return (at + 1) * full / JIGSAW_UNIFORM_PERIOD > at * full / JIGSAW_UNIFORM_PERIOD ? directive.levels : 1;
    }
    }
    return directive.levels;
}

std::string out_of_range(const char *field, std::int64_t value, std::int64_t lowest, std::int64_t highest)
{
    return std::string(field) + " is " + std::to_string(value) + ", allowed is " + std::to_string(lowest) + " to " +
           std::to_string(highest);
}

std::string check_table(const std::vector<std::uint32_t> &table, std::uint32_t levels, std::uint32_t num_blocks)
{
    if (table.size() != levels)
        return "depth_of_level has " + std::to_string(table.size()) + " entries, levels is " + std::to_string(levels);
    std::uint32_t previous = 1;
    for (std::uint32_t i = 0; i < levels; ++i) {
        const std::string name = "depth_of_level[" + std::to_string(i) + "]";
        if (table[i] < previous || table[i] > num_blocks)
            return out_of_range(name.c_str(), table[i], previous, num_blocks);
        previous = table[i];
    }
    if (table.back() != num_blocks)
        return "depth_of_level ends with " + std::to_string(table.back()) + ", the last level must be all " +
               std::to_string(num_blocks) + " blocks";
    return {};
}

/// suffix[d] is the backward time of the d blocks nearest the loss. All times zero: every block counts 1.
std::vector<Wide> suffix_times(const std::vector<std::uint64_t> &backward_ns)
{
    const bool measured = std::any_of(backward_ns.begin(), backward_ns.end(), [](auto ns) { return ns != 0; });
    std::vector<Wide> suffix{0};
    for (auto ns = backward_ns.rbegin(); ns != backward_ns.rend(); ++ns)
        suffix.push_back(suffix.back() + (measured ? *ns : 1));
    return suffix;
}

} // namespace

bool parse_policy(Policy *ret_policy, const std::string &word)
{
    for (const Named &named : kPolicies) {
        if (word == named.name) {
            *ret_policy = named.policy;
            return true;
        }
    }
    return false;
}

const char *policy_name(Policy policy)
{
    for (const Named &named : kPolicies)
        if (named.policy == policy)
            return named.name;
    return "unknown";
}

bool has_two_depths(Policy policy) { return policy == Policy::two_level || policy == Policy::uniform; }

std::uint32_t full_out_of(Policy policy, std::uint32_t world_size)
{
    if (policy == Policy::uniform)
        return JIGSAW_UNIFORM_PERIOD;
    return policy == Policy::two_level ? world_size : 0;
}

bool Directive::operator==(const Directive &other) const
{
    return generation == other.generation && first_iteration == other.first_iteration && seed == other.seed &&
           policy == other.policy && phase == other.phase && direction == other.direction &&
           levels == other.levels && full_workers == other.full_workers && depth_of_level == other.depth_of_level;
}

std::string validate(const Directive &directive, std::uint32_t world_size, std::uint32_t num_blocks)
{
    if (world_size < 1)
        return out_of_range("world_size", world_size, 1, UINT32_MAX);
    if (num_blocks < 1 || num_blocks > JIGSAW_MAX_BLOCKS)
        return out_of_range("num_blocks", num_blocks, 1, JIGSAW_MAX_BLOCKS);
    if (static_cast<std::uint32_t>(directive.policy) > JIGSAW_POLICY_UNIFORM)
        return out_of_range("policy", static_cast<std::uint32_t>(directive.policy), 0, JIGSAW_POLICY_UNIFORM);
    if (directive.direction != 1 && directive.direction != -1)
        return "direction is " + std::to_string(directive.direction) + ", allowed is 1 or -1";
    if (directive.levels < 1 || directive.levels > JIGSAW_MAX_LEVELS)
        return out_of_range("levels", directive.levels, 1, JIGSAW_MAX_LEVELS);
    const std::uint32_t most = full_out_of(directive.policy, world_size);
    if (most > 0 && (directive.full_workers < 1 || directive.full_workers > most))
        return out_of_range("full_workers", directive.full_workers, 1, most);
    if (directive.generation == 0 && directive.depth_of_level.empty())
        return {};
    return check_table(directive.depth_of_level, directive.levels, num_blocks);
}

std::uint32_t level_of(const Directive &directive, std::uint32_t rank, std::uint32_t world_size,
                       std::uint64_t iteration)
{
    assert(rank < world_size);
    if (directive.policy == Policy::shuffle)
        return level_at(directive, shuffled(directive, world_size, iteration)[rank], world_size, iteration);
    return level_at(directive, rank, world_size, iteration);
}

std::vector<std::uint32_t> depth_vector(const Directive &directive, std::uint32_t world_size,
                                        std::uint32_t num_blocks, std::uint64_t iteration)
{
    std::vector<std::uint32_t> depths(world_size, num_blocks);
    if (directive.generation == 0 || iteration < directive.first_iteration)
        return depths;
    // validate() refuses a directive without a table; one that came past it still trains correctly.
    if (directive.depth_of_level.size() != directive.levels)
        return depths;
    std::vector<std::uint32_t> seats;
    if (directive.policy == Policy::shuffle)
        seats = shuffled(directive, world_size, iteration);
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        const std::uint32_t seat = seats.empty() ? rank : seats[rank];
        depths[rank] = directive.depth_of_level[level_at(directive, seat, world_size, iteration) - 1];
    }
    return depths;
}

std::vector<std::uint32_t> make_depth_table(Policy policy, std::uint32_t levels,
                                            const std::vector<std::uint64_t> &backward_ns)
{
    assert(levels >= 1 && !backward_ns.empty());
    const std::vector<Wide> suffix = suffix_times(backward_ns);
    const auto num_blocks = static_cast<std::uint32_t>(backward_ns.size());
    std::vector<std::uint32_t> table;
    std::uint32_t depth = 1;
    for (std::uint32_t level = 1; level <= levels; ++level) {
        while (suffix[depth] * levels < suffix.back() * level)
            ++depth;
        table.push_back(depth);
    }
    if (has_two_depths(policy))
        table.front() = 1;
    table.back() = num_blocks; // blocks that took no measurable time belong to full depth all the same
    return table;
}

double mean_depth_fraction(const Directive &directive, std::uint32_t world_size,
                           const std::vector<std::uint64_t> &backward_ns)
{
    Directive complete = directive;
    complete.generation = std::max<std::uint64_t>(directive.generation, 1);
    complete.first_iteration = 0;
    if (complete.depth_of_level.empty())
        complete.depth_of_level = make_depth_table(directive.policy, directive.levels, backward_ns);
    const std::vector<Wide> suffix = suffix_times(backward_ns);
    const auto num_blocks = static_cast<std::uint32_t>(backward_ns.size());
    // Over the ranks, position() and the shuffle are bijections: every iteration has the same multiset of levels, so
    // one iteration is the mean over a period. With uniform all ranks are alike instead.
    const std::uint32_t steps = directive.policy == Policy::uniform ? JIGSAW_UNIFORM_PERIOD : 1;
    double sum = 0;
    for (std::uint32_t step = 0; step < steps; ++step)
        for (const std::uint32_t depth : depth_vector(complete, world_size, num_blocks, step))
            sum += static_cast<double>(suffix[std::min(depth, num_blocks)]);
    return directive.generation == 0 ? 1.0 : sum / static_cast<double>(suffix.back()) / world_size / steps;
}

std::uint32_t full_workers_for_rate(double lr_over_peak, std::uint32_t world_size, double c)
{
    const double share = c * lr_over_peak;
    if (!(share < 1)) // also NaN: when in doubt, full depth
        return world_size;
    // 1.25 * 0.2 * 4 is 1, not a rounding error more than 1.
    const double workers = std::ceil(share * world_size - 1e-9);
    return std::max<std::uint32_t>(1, workers < 1 ? 1 : static_cast<std::uint32_t>(workers));
}

} // namespace jigsaw::plan
