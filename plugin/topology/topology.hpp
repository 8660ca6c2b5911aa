// SPDX-License-Identifier: Apache-2.0
// What a node looks like to hwloc: its GPUs, and the CPUs near each. On a test host a CPU core stands for a GPU (gpu_cores
// in jigsaw.yaml); then that core is the GPU's, and all there is.
#ifndef JIGSAW_TOPOLOGY_TOPOLOGY_HPP
#define JIGSAW_TOPOLOGY_TOPOLOGY_HPP

#include "plugin/core/cluster.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

struct hwloc_topology;

namespace jigsaw::topology {

/// GPU index -> logical index of the core that stands for it (counted as lstopo does, L#: 0 is the first core this machine,
/// or this container, may use).
using StandIns = std::map<int, int>;

class Topology {
  public:
    /// Both throw std::runtime_error with one line. A stand-in for a core that does not exist is such an error.
    static Topology live(const StandIns &stand_ins = {});
    static Topology from_xml(const std::string &path, const StandIns &stand_ins = {});

    int core_count() const;
    /// GPUs by index, which is the order of their PCI addresses (as NVML counts them, and AutoDetect=nvml in gres.conf).
    /// Types stay empty (they are Slurm's); memory is set where hwloc knows it. With stand-ins: as many as the largest
    /// index says, `core` set. link_group: GPUs of one processor or NUMA node.
    std::vector<core::Gpu> gpus() const;
    /// CPUs (numbers of the operating system, ascending) of the stand-in's core, or those of the processor or NUMA node
    /// that the GPU hangs on. All CPUs when the machine does not say; empty for a GPU that does not exist.
    std::vector<int> cores_of_gpu(int index) const;

  private:
    struct Free {
        void operator()(hwloc_topology *topology) const;
    };
    using Owner = std::unique_ptr<hwloc_topology, Free>;
    Topology(Owner topology, StandIns stand_ins);
    static Owner make();
    static Topology load(Owner topology, const StandIns &stand_ins, const std::string &what);

    Owner topology_;
    StandIns stand_ins_;
};

/// "0-3,8" of ascending CPU numbers.
std::string format_cpu_list(const std::vector<int> &cpus);

} // namespace jigsaw::topology
#endif
