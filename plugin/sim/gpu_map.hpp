// SPDX-License-Identifier: Apache-2.0
// Who sits on which GPU, for schedulers that leave jobs where they are.
#ifndef JIGSAW_SIM_GPU_MAP_HPP
#define JIGSAW_SIM_GPU_MAP_HPP

#include "plugin/sim/workload.hpp"

#include <array>
#include <vector>

namespace jigsaw::sim {

class GpuMap {
  public:
    struct Residents {
        std::array<int, kMaxSharing> jobs{};
        int count = 0;
    };

    explicit GpuMap(const ClusterShape &shape);
    const ClusterShape &shape() const { return shape_; }
    const Residents &on(int gpu) const { return gpus_[static_cast<std::size_t>(gpu)]; }
    int idle_on(int node) const { return idle_[static_cast<std::size_t>(node)]; }
    int idle_gpus() const { return idle_gpus_; }
    int node_of(int gpu) const { return gpu / shape_.gpus_per_node; }

    /// Idle GPUs for a job: on the node where fewest are left over, or whole idle nodes and the rest on one more.
    /// `closed` nodes are not taken; nullptr: all may be. Empty: there is no such place.
    std::vector<int> idle_place(int gpus, const std::vector<bool> *closed) const;
    /// Nodes that `idle` (free GPUs per node) could give a job, by the same rule; empty: none.
    std::vector<int> nodes_for(int gpus, const std::vector<int> &idle) const;
    const std::vector<int> &idle() const { return idle_; }

    void put(int job, const std::vector<int> &gpus);
    void remove(int job, const std::vector<int> &gpus);

  private:
    void add_idle_gpus(int node, int count, std::vector<int> *place) const;

    ClusterShape shape_;
    std::vector<Residents> gpus_;
    std::vector<int> idle_; ///< [node]
    int idle_gpus_ = 0;
};

} // namespace jigsaw::sim
#endif
