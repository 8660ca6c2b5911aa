// SPDX-License-Identifier: Apache-2.0
// GPUs of a node for a job that needs so many of them: fewest residents first, then near each other.
#ifndef JIGSAW_CORE_PLACES_HPP
#define JIGSAW_CORE_PLACES_HPP

#include "plugin/core/admission.hpp"

#include <vector>

namespace jigsaw::core {

/// GPUs of one node.
struct Pick {
    std::size_t residents = 0; ///< most on any GPU of it
    NodeGpus place;
};

class Places {
  public:
    Places(const Cluster &cluster, const Admission &admission, std::uint32_t nodes, std::uint32_t gpus_per_node)
        : cluster_(cluster), admission_(admission), nodes_(nodes), gpus_per_node_(gpus_per_node)
    {
    }

    /// The GPUs with fewest residents of those that the job may take, as many as it needs; fewer when there are
    /// not so many. Among equals those of one link group.
    Pick pick(int node, const std::vector<int> &gpus) const;
    bool enough(const Pick &made) const { return made.place.gpus.size() >= gpus_per_node_; }
    /// The nodes with fewest residents, as many as the job wants; empty when there are too few.
    std::vector<NodeGpus> best_nodes(std::vector<Pick> picks) const;
    /// Up to `most` nodes with enough idle GPUs: all of each node's that the job may take.
    std::vector<Pick> idle_nodes(std::size_t most) const;
    /// GPUs in use that the job may take, one for every set of residents.
    std::vector<NodeGpus> lone(int node) const;
    std::vector<int> every_gpu(int node) const;

  private:
    struct Open {
        std::size_t residents;
        int group, gpu;
    };
    std::vector<Open> near(std::vector<Open> open) const;
    Pick idle_on(int node) const;
    const Gpu &gpu(int node, int index) const { return cluster_.node(node).gpus.at(static_cast<std::size_t>(index)); }

    const Cluster &cluster_;
    const Admission &admission_;
    std::uint32_t nodes_, gpus_per_node_;
};

/// Link groups that a place spans, over all its nodes; GPUs of unknown group count as one.
std::size_t groups_spanned(const Cluster &cluster, const std::vector<NodeGpus> &where);

} // namespace jigsaw::core
#endif
