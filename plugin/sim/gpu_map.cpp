// SPDX-License-Identifier: Apache-2.0
// Occupancy of GPUs, and the best fit.
#include "plugin/sim/gpu_map.hpp"

#include <algorithm>

namespace jigsaw::sim {

GpuMap::GpuMap(const ClusterShape &shape)
    : shape_(shape), gpus_(static_cast<std::size_t>(shape.gpus())),
      idle_(static_cast<std::size_t>(shape.nodes), shape.gpus_per_node), idle_gpus_(shape.gpus())
{
}

void GpuMap::add_idle_gpus(int node, int count, std::vector<int> *place) const
{
    for (int gpu = node * shape_.gpus_per_node; count > 0; ++gpu) {
        if (on(gpu).count > 0)
            continue;
        place->push_back(gpu);
        --count;
    }
}

std::vector<int> GpuMap::nodes_for(int gpus, const std::vector<int> &idle) const
{
    const int whole = gpus > shape_.gpus_per_node ? gpus / shape_.gpus_per_node : 0;
    const int rest = gpus - whole * shape_.gpus_per_node;
    std::vector<int> nodes;
    for (int node = 0; node < shape_.nodes && static_cast<int>(nodes.size()) < whole; ++node)
        if (idle[static_cast<std::size_t>(node)] == shape_.gpus_per_node)
            nodes.push_back(node);
    if (static_cast<int>(nodes.size()) < whole)
        return {};
    int best = -1;
    for (int node = 0; rest > 0 && node < shape_.nodes; ++node) {
        const int room = idle[static_cast<std::size_t>(node)];
        const bool fits = room >= rest && (best < 0 || room < idle[static_cast<std::size_t>(best)]);
        if (fits && std::find(nodes.begin(), nodes.end(), node) == nodes.end())
            best = node;
        if (best >= 0 && idle[static_cast<std::size_t>(best)] == rest)
            break; // no fit is better
    }
    if (rest > 0 && best < 0)
        return {};
    if (rest > 0)
        nodes.push_back(best);
    return nodes;
}

std::vector<int> GpuMap::idle_place(int gpus, const std::vector<bool> *closed) const
{
    if (gpus > idle_gpus_)
        return {};
    std::vector<int> open;
    if (closed) {
        open = idle_;
        for (std::size_t node = 0; node < open.size(); ++node)
            if ((*closed)[node])
                open[node] = 0;
    }
    std::vector<int> place;
    int left = gpus;
    for (const int node : nodes_for(gpus, closed ? open : idle_)) {
        const int here = std::min(left, shape_.gpus_per_node);
        add_idle_gpus(node, here, &place);
        left -= here;
    }
    return place;
}

void GpuMap::put(int job, const std::vector<int> &gpus)
{
    for (const int gpu : gpus) {
        Residents &residents = gpus_[static_cast<std::size_t>(gpu)];
        if (residents.count == 0) {
            --idle_[static_cast<std::size_t>(node_of(gpu))];
            --idle_gpus_;
        }
        residents.jobs[static_cast<std::size_t>(residents.count++)] = job;
    }
}

void GpuMap::remove(int job, const std::vector<int> &gpus)
{
    for (const int gpu : gpus) {
        Residents &residents = gpus_[static_cast<std::size_t>(gpu)];
        const auto end = residents.jobs.begin() + residents.count;
        std::copy(std::find(residents.jobs.begin(), end, job) + 1, end, std::find(residents.jobs.begin(), end, job));
        if (--residents.count == 0) {
            ++idle_[static_cast<std::size_t>(node_of(gpu))];
            ++idle_gpus_;
        }
    }
}

} // namespace jigsaw::sim
