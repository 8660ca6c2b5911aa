// SPDX-License-Identifier: GPL-2.0-or-later
// See occupancy.hpp.
#include "plugin/select/occupancy.hpp"

#include "plugin/select/view.hpp"

namespace jigsaw::select {
namespace {

std::uint64_t memory_of_type(const std::string &type)
{
    const auto &memory = settings().gpu_memory;
    auto found = memory.find(type);
    if (found == memory.end())
        found = memory.find("*");
    return found == memory.end() ? 0 : found->second;
}

/// GPUs that gres.conf (Links=, AutoDetect=nvml) says are linked, directly or over others, get one number.
void group_by_links(std::vector<core::Gpu> *gpus, const gres_node_state_t &state)
{
    const int count = std::min(static_cast<int>(gpus->size()), static_cast<int>(state.link_len));
    for (int i = 0; state.links_cnt && i < count; ++i) {
        core::Gpu &gpu = (*gpus)[static_cast<std::size_t>(i)];
        gpu.link_group = i;
        for (int j = 0; j < i; ++j) {
            const int other = (*gpus)[static_cast<std::size_t>(j)].link_group;
            if (!state.links_cnt[i] || state.links_cnt[i][j] <= 0 || other == gpu.link_group)
                continue;
            const int joined = std::min(other, gpu.link_group), gone = std::max(other, gpu.link_group);
            for (int k = 0; k <= i; ++k)
                if (int &group = (*gpus)[static_cast<std::size_t>(k)].link_group; group == gone)
                    group = joined;
        }
    }
}

/// The node's GPUs with type and memory. Without lines (before registration) a single configured type is everybody's.
std::vector<core::Gpu> describe_gpus(const gres_node_state_t &gpus)
{
    std::vector<core::Gpu> described(static_cast<std::size_t>(bit_size(gpus.gres_bit_alloc)));
    if (gpus.topo_cnt == 0 && gpus.type_cnt == 1 && gpus.type_name && gpus.type_name[0])
        for (core::Gpu &gpu : described)
            gpu.type = gpus.type_name[0];
    for (int line = 0; line < gpus.topo_cnt; ++line) {
        if (!gpus.topo_gres_bitmap || !gpus.topo_gres_bitmap[line] || !gpus.topo_type_name || !gpus.topo_type_name[line])
            continue;
        bitstr_t *bits = gpus.topo_gres_bitmap[line];
        for (int i = 0; i < bit_size(bits) && i < static_cast<int>(described.size()); ++i)
            if (bit_test(bits, i))
                described[static_cast<std::size_t>(i)].type = gpus.topo_type_name[line];
    }
    for (core::Gpu &gpu : described)
        gpu.memory_bytes = memory_of_type(gpu.type);
    group_by_links(&described, gpus);
    return described;
}

bool same_place(const std::vector<core::NodeGpus> &a, const std::vector<core::NodeGpus> &b)
{
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const core::NodeGpus &x, const core::NodeGpus &y) {
        return x.node == y.node && x.gpus == y.gpus;
    });
}

bool holds_gpus(const job_record_t *job)
{
    return IS_JOB_RUNNING(job) || IS_JOB_SUSPENDED(job);
}

template <class Visit> void for_each_holder(Visit visit)
{
    if (&job_list && job_list)
        for_each<job_record_t>(job_list, [&](job_record_t *job) {
            if (holds_gpus(job))
                visit(job);
        });
}

} // namespace

void Occupancy::refresh_node(int node)
{
    const gres_node_state_t *gpus = node_gpus(node);
    if (node >= static_cast<int>(shapes_.size()))
        shapes_.resize(static_cast<std::size_t>(node) + 1);
    Shape &known = shapes_[static_cast<std::size_t>(node)];
    const Shape now{gpus ? static_cast<int>(bit_size(gpus->gres_bit_alloc)) : 0, gpus ? gpus->topo_cnt : 0, &settings()};
    if (now.gpus == known.gpus && now.lines == known.lines && now.settings == known.settings)
        return;
    known = now;
    const node_record_t *record = node_at(node);
    cluster_.set_node(node, record && record->name ? record->name : "", gpus ? describe_gpus(*gpus) : std::vector<core::Gpu>());
}

void Occupancy::refresh_nodes(const std::vector<int> &nodes)
{
    for (int node : nodes)
        refresh_node(node);
}

void Occupancy::add(job_record_t *job)
{
    refresh_nodes(nodes_held(job));
    const core::Resident resident = make_resident(job);
    if (resident.where.empty())
        cluster_.remove(job->job_id);
    else if (!cluster_.add(resident))
        error("jigsaw: job %u holds %s, which the nodes do not have; the next check will try again", job->job_id,
              format_gpus(resident.where).c_str());
}

void Occupancy::rebuild()
{
    forget();
    for (int node = 0; node < node_record_count; ++node)
        refresh_node(node);
    for_each_holder([this](job_record_t *job) { add(job); });
}

int Occupancy::audit()
{
    int wrong = cluster_.audit();
    std::size_t holders = 0;
    for_each_holder([&](job_record_t *job) {
        refresh_nodes(nodes_held(job));
        const std::vector<core::NodeGpus> held = gpus_held(job);
        const core::Resident *known = cluster_.find(job->job_id);
        holders += !held.empty();
        wrong += known ? !same_place(known->where, held) : !held.empty();
    });
    wrong += static_cast<int>(std::max(cluster_.job_count(), holders) - std::min(cluster_.job_count(), holders));
    for (int node = 0; node < cluster_.node_count(); ++node)
        wrong += !truth_stands(*this, node);
    if (wrong == 0)
        return 0;
    rebuild();
    for (int node = 0; node < cluster_.node_count(); ++node)
        write_truth(*this, node);
    error("jigsaw: %d records of who holds which GPU differed from slurmctld's jobs; counted anew", wrong);
    return wrong;
}

std::vector<bool> Occupancy::taken(int node) const
{
    if (node < 0 || node >= cluster_.node_count())
        return {};
    std::vector<bool> taken;
    for (const core::Gpu &gpu : cluster_.node(node).gpus)
        taken.push_back(!gpu.residents.empty());
    return taken;
}

std::vector<job_record_t *> Occupancy::residents_of(int node) const
{
    std::set<core::JobId> ids;
    if (node >= 0 && node < cluster_.node_count())
        for (const core::Gpu &gpu : cluster_.node(node).gpus)
            ids.insert(gpu.residents.begin(), gpu.residents.end());
    std::vector<job_record_t *> jobs;
    for (core::JobId id : ids)
        if (job_record_t *job = find_job_record(id))
            jobs.push_back(job);
    return jobs;
}

std::vector<int> Occupancy::nodes_of(core::JobId job) const
{
    std::vector<int> nodes;
    if (const core::Resident *resident = cluster_.find(job))
        for (const core::NodeGpus &part : resident->where)
            nodes.push_back(part.node);
    return nodes;
}

std::vector<core::JobId> Occupancy::neighbours_of(core::JobId job) const
{
    std::set<core::JobId> ids;
    if (const core::Resident *resident = cluster_.find(job))
        for (const core::NodeGpus &part : resident->where)
            for (int gpu : part.gpus) {
                const auto &others = cluster_.node(part.node).gpus.at(static_cast<std::size_t>(gpu)).residents;
                ids.insert(others.begin(), others.end());
            }
    ids.erase(job);
    return {ids.begin(), ids.end()};
}

bool Occupancy::shared(int node) const
{
    if (node < 0 || node >= cluster_.node_count())
        return false;
    const auto &gpus = cluster_.node(node).gpus;
    return std::any_of(gpus.begin(), gpus.end(), [](const core::Gpu &gpu) { return gpu.residents.size() > 1; });
}

} // namespace jigsaw::select
