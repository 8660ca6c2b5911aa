// SPDX-License-Identifier: Apache-2.0
// From depths to what is synchronised with whom. Pure.
#ifndef JIGSAW_PLAN_CONTRIBUTORS_HPP
#define JIGSAW_PLAN_CONTRIBUTORS_HPP

#include "runtime/plan/roles.hpp"

#include <cstdint>
#include <vector>

namespace jigsaw::plan {

/// One iteration as every rank must see it. Block b (0 nearest the input) is computed by the ranks whose
/// depth > num_blocks - 1 - b.
struct IterationPlan {
    std::uint64_t iteration = 0;
    std::vector<std::uint32_t> depths;                    ///< [rank]
    std::vector<std::vector<std::uint32_t>> contributors; ///< [block], ranks ascending; empty: nobody: no gradient
    std::uint64_t hash = 0; ///< of iteration, generation and depths: ranks compare it before they trust the plan
};

IterationPlan make_iteration_plan(const Directive &directive, std::uint32_t world_size, std::uint32_t num_blocks,
                                  std::uint64_t iteration);

/// Bytes that an exact partial sync must send in total, all ranks together, for a block of `bytes` with m contributors
/// among k ranks: (m + k - 2) * bytes, 0 when m == 0 or k == 1. runtime-facts: lower bound of any exact scheme.
std::uint64_t lower_bound_bytes(std::uint64_t bytes, std::uint32_t contributors, std::uint32_t ranks);

} // namespace jigsaw::plan
#endif
