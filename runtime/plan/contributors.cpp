// SPDX-License-Identifier: Apache-2.0
// The plan of one iteration: depths, who contributes to which block, and a hash to compare it by.
#include "runtime/plan/contributors.hpp"

namespace jigsaw::plan {
namespace {

/// FNV-1a over the eight bytes of each number, then over the next: ranks of one job compare it, nobody attacks it.
class Hash {
  public:
    void add(std::uint64_t value)
    {
        for (int byte = 0; byte < 8; ++byte) {
            hash_ = (hash_ ^ (value & 0xff)) * 0x100000001b3u;
            value >>= 8;
        }
    }
    std::uint64_t value() const { return hash_; }

  private:
    std::uint64_t hash_ = 0xcbf29ce484222325u;
};

std::uint64_t hash_of(const IterationPlan &plan, std::uint64_t generation, std::uint32_t num_blocks)
{
    Hash hash;
    hash.add(plan.iteration);
    hash.add(generation);
    hash.add(num_blocks);
    hash.add(plan.depths.size());
    for (const std::uint32_t depth : plan.depths)
        hash.add(depth);
    return hash.value();
}

} // namespace

IterationPlan make_iteration_plan(const Directive &directive, std::uint32_t world_size, std::uint32_t num_blocks,
                                  std::uint64_t iteration)
{
    IterationPlan plan;
    plan.iteration = iteration;
    plan.depths = depth_vector(directive, world_size, num_blocks, iteration);
    plan.contributors.resize(num_blocks);
    for (std::uint32_t rank = 0; rank < world_size; ++rank)
        for (std::uint32_t block = num_blocks - plan.depths[rank]; block < num_blocks; ++block)
            plan.contributors[block].push_back(rank);
    plan.hash = hash_of(plan, directive.generation, num_blocks);
    return plan;
}

std::uint64_t lower_bound_bytes(std::uint64_t bytes, std::uint32_t contributors, std::uint32_t ranks)
{
    if (contributors == 0 || ranks <= 1)
        return 0;
    return (static_cast<std::uint64_t>(contributors) + ranks - 2) * bytes;
}

} // namespace jigsaw::plan
