// SPDX-License-Identifier: Apache-2.0
// Free GPUs per node, by number only: what a scheduler that may move every job at any time needs to know.
#ifndef JIGSAW_SIM_NODE_POOL_HPP
#define JIGSAW_SIM_NODE_POOL_HPP

#include "plugin/sim/workload.hpp"

#include <cstdint>
#include <vector>

namespace jigsaw::sim {

/// Hadoop YARN's rule, as the peer's simulator has it: a job that fits a node goes to the first one with room; a wider
/// one takes whole idle nodes, first ones first, and the rest on the first other node with room.
class NodePool {
  public:
    explicit NodePool(const ClusterShape &shape);
    void clear(); ///< everything is free
    bool take(int gpus);
    int free_gpus() const { return free_gpus_; }

  private:
    using Bits = std::vector<std::uint64_t>;

    int first_with(int gpus) const; ///< -1: none
    void set_free(int node, int gpus);
    bool take_wide(int gpus);

    ClusterShape shape_;
    std::vector<int> free_;          ///< [node]
    std::vector<Bits> with_at_least_; ///< [gpus]: nodes with as many free; [0] is not used
    int free_gpus_ = 0;
};

} // namespace jigsaw::sim
#endif
