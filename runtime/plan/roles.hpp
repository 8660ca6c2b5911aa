// SPDX-License-Identifier: Apache-2.0
// Who runs how deep: pure functions from a directive to every rank's depth. jigsawd, the runtime and the simulator
// all call these, so that they can never disagree. docs/protocol.md "Words", algorithms: docs/paper-map.md.
#ifndef JIGSAW_PLAN_ROLES_HPP
#define JIGSAW_PLAN_ROLES_HPP

#include <jigsaw/page.h>

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::plan {

enum class Policy : std::uint32_t {
    full = JIGSAW_POLICY_FULL,
    two_level = JIGSAW_POLICY_TWO_LEVEL,
    rotate = JIGSAW_POLICY_ROTATE,
    shuffle = JIGSAW_POLICY_SHUFFLE,
    fixed = JIGSAW_POLICY_FIXED,
    uniform = JIGSAW_POLICY_UNIFORM,
};

/// "two-level", "rotate", ...: the words of --spb-policy. Returns false and leaves *ret_policy alone for others.
bool parse_policy(Policy *ret_policy, const std::string &word);
const char *policy_name(Policy policy);
/// Only the last block, and full depth: two_level and uniform.
bool has_two_depths(Policy policy);
/// What full_workers counts out of: ranks, or with uniform iterations of a period; 0 for policies without it.
std::uint32_t full_out_of(Policy policy, std::uint32_t world_size);

/// What jigsawd wants, or what all ranks agreed on: small, whole, and enough to know every rank's depth at every
/// iteration from first_iteration on.
struct Directive {
    std::uint64_t generation = 0;      ///< 0: nobody directs: full depth
    std::uint64_t first_iteration = 0; ///< stamped by rank 0 when it announces
    std::uint64_t seed = 0;
    Policy policy = Policy::full;
    std::int32_t phase = 0;
    std::int32_t direction = 1; ///< +1 or -1
    std::uint32_t levels = 1;
    std::uint32_t full_workers = 1; ///< of two_level: ranks; of uniform: iterations of JIGSAW_UNIFORM_PERIOD
    /// [l-1] is the depth (blocks from the loss) of level l; non-decreasing, last == num_blocks. Made by rank 0 from
    /// measured backward times, part of the directive so that no rank rounds for itself. Empty in a wanted directive.
    std::vector<std::uint32_t> depth_of_level;

    bool operator==(const Directive &other) const;
};

/// Empty when `directive` is usable for `world_size` ranks and `num_blocks` blocks, else one sentence that names
/// the field, its value and the limit. Every directive that crosses a process boundary goes through this.
std::string validate(const Directive &directive, std::uint32_t world_size, std::uint32_t num_blocks);

/// Level (1..levels) of a rank. With k = direction * rank + iteration + phase (mod n, mathematically: never negative):
///   full       levels
///   two_level  levels (== full depth) iff (k mod world_size) < full_workers, else 1
///   rotate     1 + (k mod levels) for world_size == levels; in general 1 + ((k mod world_size) * levels) / world_size
///   shuffle    like rotate with rank replaced by permutation(seed, iteration + phase)[rank]
///   fixed      like rotate with iteration = 0
///   uniform    levels iff floor((j + 1) f / P) > floor(j f / P), with j = (iteration + phase) mod P, P the uniform period and
///              f full_workers, else 1: whatever the rank
std::uint32_t level_of(const Directive &directive, std::uint32_t rank, std::uint32_t world_size,
                       std::uint64_t iteration);

/// Depth of every rank at `iteration`; num_blocks for all before first_iteration or when generation == 0.
std::vector<std::uint32_t> depth_vector(const Directive &directive, std::uint32_t world_size,
                                        std::uint32_t num_blocks, std::uint64_t iteration);

/// depth_of_level for `levels` levels from measured backward times: level l is the least depth whose suffix takes at
/// least l/levels of the backward time (so never less than asked), level `levels` is full depth, and with two_level and
/// uniform the first level is the last block only. backward_ns[i] is block i, 0 nearest the input; all zero: equal blocks assumed.
std::vector<std::uint32_t> make_depth_table(Policy policy, std::uint32_t levels,
                                            const std::vector<std::uint64_t> &backward_ns);

/// Mean over ranks and one period of the share of full backward time that `directive` asks for (0..1].
double mean_depth_fraction(const Directive &directive, std::uint32_t world_size,
                           const std::vector<std::uint64_t> &backward_ns);

/// Number of full-depth workers (with uniform: iterations) of `world_size` that the learning-rate rule asks for:
/// max(1, ceil(N * min(1, c * lr/lr_peak))).
std::uint32_t full_workers_for_rate(double lr_over_peak, std::uint32_t world_size, double c = 1.25);

} // namespace jigsaw::plan
#endif
