// SPDX-License-Identifier: Apache-2.0
// See topology.hpp. hwloc 2.x; GPUs are found as PCI devices, so that no vendor library is needed on a node.
#include "plugin/topology/topology.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <hwloc.h>
#include <stdexcept>
#include <tuple>

namespace jigsaw::topology {
namespace {

constexpr unsigned kVendorNvidia = 0x10de;
constexpr unsigned kVendorAmd = 0x1002;
constexpr unsigned kClassVga = 0x0300, kClass3d = 0x0302, kClassDisplay = 0x0380;

/// A device that computes: a 3D controller of the two vendors, or their display adapters.
bool is_gpu(hwloc_obj_t device)
{
    const auto &pci = device->attr->pcidev;
    const bool is_ours = pci.vendor_id == kVendorNvidia || pci.vendor_id == kVendorAmd;
    return is_ours && (pci.class_id == kClassVga || pci.class_id == kClass3d || pci.class_id == kClassDisplay);
}

std::vector<hwloc_obj_t> gpu_devices(hwloc_topology_t topology)
{
    std::vector<hwloc_obj_t> devices;
    for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology, device)) != nullptr;)
        if (is_gpu(device))
            devices.push_back(device);
    const auto address = [](hwloc_obj_t device) {
        const auto &pci = device->attr->pcidev;
        return std::make_tuple(pci.domain, pci.bus, pci.dev, pci.func);
    };
    std::sort(devices.begin(), devices.end(), [&](hwloc_obj_t a, hwloc_obj_t b) { return address(a) < address(b); });
    return devices;
}

/// From hwloc's CUDA back end, where it has one: KiB as text, on the OS device below the PCI device.
std::uint64_t memory_of(hwloc_obj_t device)
{
    for (hwloc_obj_t child = device->io_first_child; child != nullptr; child = child->next_sibling)
        if (const char *kib = hwloc_obj_get_info_by_name(child, "CUDAGlobalMemorySize"))
            return std::strtoull(kib, nullptr, 10) * 1024;
    return 0;
}

std::vector<int> cpus_of(hwloc_const_cpuset_t set)
{
    std::vector<int> cpus;
    for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu))
        cpus.push_back(cpu);
    return cpus;
}

} // namespace

void Topology::Free::operator()(hwloc_topology *topology) const { hwloc_topology_destroy(topology); }

Topology::Topology(Owner topology, StandIns stand_ins) : topology_(std::move(topology)), stand_ins_(std::move(stand_ins))
{
    const int cores = core_count();
    for (const auto &[gpu, core] : stand_ins_)
        if (core < 0 || core >= cores)
            throw std::runtime_error("core " + std::to_string(core) + " for GPU " + std::to_string(gpu) + ": there are " +
                                     std::to_string(cores) + " cores, counted from 0; correct gpu_cores");
}

Topology::Owner Topology::make()
{
    // Never freed: it keeps hwloc's plugins loaded. Each unload of libpciaccess loses the names it has read, 1 kB a time.
    static hwloc_topology_t plugins = nullptr;
    static const bool plugins_stay = hwloc_topology_init(&plugins) == 0;
    hwloc_topology_t topology = nullptr;
    if (!plugins_stay || hwloc_topology_init(&topology) != 0)
        throw std::runtime_error("hwloc cannot be initialised");
    Owner owner(topology);
    // PCI tells all we ask for; these two would open X displays and start every OpenCL driver inside a root daemon.
    for (const char *component : {"gl", "opencl"})
        hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    return owner;
}

Topology Topology::load(Owner topology, const StandIns &stand_ins, const std::string &what)
{
    if (hwloc_topology_load(topology.get()) != 0)
        throw std::runtime_error(what + ": " + std::strerror(errno));
    return Topology(std::move(topology), stand_ins);
}

Topology Topology::live(const StandIns &stand_ins) { return load(make(), stand_ins, "hwloc cannot read this machine"); }

Topology Topology::from_xml(const std::string &path, const StandIns &stand_ins)
{
    Owner topology = make();
    if (hwloc_topology_set_xml(topology.get(), path.c_str()) != 0)
        throw std::runtime_error(path + ": no hwloc XML");
    return load(std::move(topology), stand_ins, path);
}

int Topology::core_count() const { return std::max(0, hwloc_get_nbobjs_by_type(topology_.get(), HWLOC_OBJ_CORE)); }

std::vector<core::Gpu> Topology::gpus() const
{
    std::vector<core::Gpu> gpus;
    if (!stand_ins_.empty()) {
        gpus.resize(static_cast<std::size_t>(stand_ins_.rbegin()->first) + 1);
        for (const auto &[gpu, core] : stand_ins_)
            gpus[static_cast<std::size_t>(gpu)].core = core;
        return gpus;
    }
    std::vector<hwloc_obj_t> groups; // GPUs on one processor or NUMA node are near each other
    for (hwloc_obj_t device : gpu_devices(topology_.get())) {
        gpus.emplace_back();
        gpus.back().memory_bytes = memory_of(device);
        const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology_.get(), device);
        const auto known = std::find(groups.begin(), groups.end(), near);
        gpus.back().link_group = static_cast<int>(known - groups.begin());
        if (known == groups.end())
            groups.push_back(near);
    }
    return gpus;
}

std::vector<int> Topology::cores_of_gpu(int index) const
{
    if (const auto found = stand_ins_.find(index); found != stand_ins_.end())
        return cpus_of(hwloc_get_obj_by_type(topology_.get(), HWLOC_OBJ_CORE, static_cast<unsigned>(found->second))->cpuset);
    const std::vector<hwloc_obj_t> devices = gpu_devices(topology_.get());
    if (!stand_ins_.empty() || index < 0 || static_cast<std::size_t>(index) >= devices.size())
        return {};
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology_.get(), devices[static_cast<std::size_t>(index)]);
    return cpus_of(near->cpuset);
}

std::string format_cpu_list(const std::vector<int> &cpus)
{
    std::string text;
    for (std::size_t i = 0, last; i < cpus.size(); i = last + 1) {
        for (last = i; last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1; ++last)
            ;
        text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
        if (last > i)
            text += "-" + std::to_string(cpus[last]);
    }
    return text;
}

} // namespace jigsaw::topology
