// SPDX-License-Identifier: Apache-2.0
// See places.hpp.
#include "plugin/core/places.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace jigsaw::core {

/// The n best of `open` (sorted): those of the smallest link group that holds n with no more residents than the n
/// best of all have; else the n best of all.
std::vector<Places::Open> Places::near(std::vector<Open> open) const
{
    const std::size_t n = gpus_per_node_;
    if (open.size() <= n)
        return open;
    std::map<int, std::vector<Open>> groups;
    const std::size_t most = open[n - 1].residents;
    for (const Open &one : open)
        if (one.group >= 0 && one.residents <= most)
            groups[one.group].push_back(one);
    const std::vector<Open> *best = nullptr;
    for (const auto &[group, members] : groups)
        if (members.size() >= n && (!best || members.size() < best->size()))
            best = &members;
    if (best)
        open = *best;
    open.resize(n);
    return open;
}

Pick Places::pick(int node, const std::vector<int> &gpus) const
{
    std::vector<Open> open;
    for (int index : admission_.admitted(node, gpus))
        open.push_back({gpu(node, index).residents.size(), gpu(node, index).link_group, index});
    std::sort(open.begin(), open.end(), [](const Open &a, const Open &b) {
        return std::tie(a.residents, a.gpu) < std::tie(b.residents, b.gpu);
    });
    Pick made{0, {node, {}}};
    for (const Open &one : near(std::move(open))) {
        made.residents = std::max(made.residents, one.residents);
        made.place.gpus.push_back(one.gpu);
    }
    std::sort(made.place.gpus.begin(), made.place.gpus.end());
    return made;
}

std::vector<NodeGpus> Places::best_nodes(std::vector<Pick> picks) const
{
    if (picks.size() < nodes_)
        return {};
    std::sort(picks.begin(), picks.end(), [](const Pick &a, const Pick &b) {
        return std::tie(a.residents, a.place.node) < std::tie(b.residents, b.place.node);
    });
    picks.resize(nodes_);
    std::vector<NodeGpus> where;
    for (const Pick &one : picks)
        where.push_back(one.place);
    std::sort(where.begin(), where.end(), [](const NodeGpus &a, const NodeGpus &b) { return a.node < b.node; });
    return where;
}

std::vector<Pick> Places::idle_nodes(std::size_t most) const
{
    std::vector<Pick> found;
    const auto &by_idle = cluster_.nodes_by_idle();
    for (std::size_t idle = gpus_per_node_; idle < by_idle.size(); ++idle)
        for (int node : by_idle[idle]) {
            if (found.size() >= most)
                return found;
            Pick made = idle_on(node);
            if (enough(made))
                found.push_back(std::move(made));
        }
    return found;
}

Pick Places::idle_on(int node) const
{
    std::vector<int> idle;
    if (admission_.node_allowed(node))
        for (int index : every_gpu(node))
            if (gpu(node, index).residents.empty())
                idle.push_back(index);
    return {0, {node, admission_.admitted(node, idle)}};
}

std::vector<NodeGpus> Places::lone(int node) const
{
    std::vector<NodeGpus> found;
    for (int index : admission_.admitted(node, every_gpu(node))) {
        const std::vector<JobId> &residents = gpu(node, index).residents;
        const bool seen = std::any_of(found.begin(), found.end(), [&](const NodeGpus &one) {
            return gpu(node, one.gpus.front()).residents == residents;
        });
        if (!residents.empty() && !seen)
            found.push_back({node, {index}});
    }
    return found;
}

std::vector<int> Places::every_gpu(int node) const
{
    std::vector<int> gpus(cluster_.node(node).gpus.size());
    std::iota(gpus.begin(), gpus.end(), 0);
    return gpus;
}

std::size_t groups_spanned(const Cluster &cluster, const std::vector<NodeGpus> &where)
{
    std::size_t spanned = 0;
    for (const NodeGpus &one : where) {
        if (one.gpus.size() == 1) {
            ++spanned;
            continue;
        }
        std::vector<int> groups;
        for (int index : one.gpus)
            groups.push_back(cluster.node(one.node).gpus.at(static_cast<std::size_t>(index)).link_group);
        std::sort(groups.begin(), groups.end());
        spanned += static_cast<std::size_t>(std::unique(groups.begin(), groups.end()) - groups.begin());
    }
    return spanned;
}

} // namespace jigsaw::core
