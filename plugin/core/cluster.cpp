// SPDX-License-Identifier: Apache-2.0
// Occupancy, changed in one place: occupy() and vacate() are the only functions that touch a GPU's residents,
// and whoever calls them reindexes the neighbours. audit() recounts from the jobs.
#include "plugin/core/cluster.hpp"

#include <algorithm>
#include <limits>

namespace jigsaw::core {

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// Ascending by node, GPUs ascending, nothing twice.
std::vector<NodeGpus> normalised(std::vector<NodeGpus> where)
{
    std::sort(where.begin(), where.end(), [](const NodeGpus &a, const NodeGpus &b) { return a.node < b.node; });
    std::vector<NodeGpus> merged;
    for (NodeGpus &one : where) {
        if (merged.empty() || merged.back().node != one.node)
            merged.push_back({one.node, {}});
        std::vector<int> &gpus = merged.back().gpus;
        gpus.insert(gpus.end(), one.gpus.begin(), one.gpus.end());
        std::sort(gpus.begin(), gpus.end());
        gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
    }
    return merged;
}

int idle_gpus(const Node &node)
{
    return static_cast<int>(
        std::count_if(node.gpus.begin(), node.gpus.end(), [](const Gpu &gpu) { return gpu.residents.empty(); }));
}

/// The job's load, by as many workers as it has GPUs.
void weigh(Resident *job)
{
    std::size_t workers = 0;
    for (const NodeGpus &one : job->where)
        workers += one.gpus.size();
    job->load = load_of(job->spb, job->profile, static_cast<std::uint32_t>(workers));
}

bool same_residents(std::vector<JobId> a, std::vector<JobId> b)
{
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    return a == b;
}

} // namespace

bool Cluster::exists(int node, int gpu) const
{
    return node >= 0 && node < node_count() && gpu >= 0 && at(gpu) < nodes_[at(node)].gpus.size();
}

bool Cluster::valid(const std::vector<NodeGpus> &where) const
{
    for (const NodeGpus &one : where)
        for (int gpu : one.gpus)
            if (!exists(one.node, gpu))
                return false;
    return true;
}

void Cluster::occupy(const Resident &job)
{
    for (const NodeGpus &one : job.where) {
        for (int gpu : one.gpus)
            nodes_[at(one.node)].gpus[at(gpu)].residents.push_back(job.id);
        reindex_idle(one.node);
    }
}

void Cluster::vacate(JobId id, const NodeGpus &place)
{
    for (int gpu : place.gpus) {
        std::vector<JobId> &residents = nodes_[at(place.node)].gpus[at(gpu)].residents;
        residents.erase(std::remove(residents.begin(), residents.end(), id), residents.end());
    }
    reindex_idle(place.node);
}

std::set<JobId> Cluster::neighbours(const std::vector<NodeGpus> &where) const
{
    std::set<JobId> found;
    for (const NodeGpus &one : where)
        for (int gpu : one.gpus) {
            const std::vector<JobId> &residents = nodes_[at(one.node)].gpus[at(gpu)].residents;
            found.insert(residents.begin(), residents.end());
        }
    return found;
}

bool Cluster::add(const Resident &job)
{
    if (!valid(job.where))
        return false;
    Resident copy = job; // `job` may be the record that remove() destroys
    copy.where = normalised(job.where);
    weigh(&copy);
    remove(copy.id);
    const Resident &stored = jobs_[copy.id] = std::move(copy);
    occupy(stored);
    reindex(neighbours(stored.where));
    return true;
}

void Cluster::remove(JobId id)
{
    const auto job = jobs_.find(id);
    if (job == jobs_.end())
        return;
    const std::set<JobId> affected = neighbours(job->second.where);
    for (const NodeGpus &one : job->second.where)
        vacate(id, one);
    jobs_.erase(job);
    reindex(affected);
}

void Cluster::remove_from_node(JobId id, int node)
{
    const auto job = jobs_.find(id);
    if (job == jobs_.end())
        return;
    std::vector<NodeGpus> &where = job->second.where;
    const auto place = std::find_if(where.begin(), where.end(), [&](const NodeGpus &w) { return w.node == node; });
    if (place == where.end())
        return;
    const std::set<JobId> affected = neighbours(where);
    vacate(id, *place);
    where.erase(place);
    weigh(&job->second);
    reindex(affected);
}

void Cluster::set_progress(JobId id, double done_s, std::int64_t at_s, double total_s)
{
    const auto job = jobs_.find(id);
    if (job == jobs_.end())
        return;
    job->second.done_s = done_s;
    job->second.done_at_s = at_s;
    job->second.total_s = total_s;
}

const Resident *Cluster::find(JobId id) const
{
    const auto job = jobs_.find(id);
    return job == jobs_.end() ? nullptr : &job->second;
}

void Cluster::set_node(int index, const std::string &name, const std::vector<Gpu> &gpus)
{
    if (index < 0)
        return;
    if (index >= node_count()) {
        const int known = node_count();
        nodes_.resize(at(index) + 1);
        idle_of_node_.resize(nodes_.size(), -1);
        for (int n = known; n < index; ++n)
            reindex_idle(n); // declared later, or never: nodes without GPUs
    }
    Node &node = nodes_[at(index)];
    std::set<JobId> affected;
    for (std::size_t gpu = 0; gpu < node.gpus.size(); ++gpu)
        for (JobId id : node.gpus[gpu].residents) {
            affected.insert(id);
            if (gpu < gpus.size())
                continue;
            for (NodeGpus &place : jobs_.at(id).where)
                if (place.node == index)
                    place.gpus.erase(std::remove(place.gpus.begin(), place.gpus.end(), static_cast<int>(gpu)),
                                     place.gpus.end());
        }
    std::vector<Gpu> next = gpus;
    for (std::size_t gpu = 0; gpu < next.size(); ++gpu)
        next[gpu].residents = gpu < node.gpus.size() ? node.gpus[gpu].residents : std::vector<JobId>{};
    node.name = name;
    node.gpus = std::move(next);
    for (JobId id : affected) {
        std::vector<NodeGpus> &where = jobs_.at(id).where;
        where.erase(std::remove_if(where.begin(), where.end(), [](const NodeGpus &w) { return w.gpus.empty(); }),
                    where.end());
        weigh(&jobs_.at(id));
    }
    reindex_idle(index);
    reindex(affected);
}

void Cluster::reindex_idle(int node)
{
    const int idle = idle_gpus(nodes_[at(node)]);
    int &known = idle_of_node_[at(node)];
    if (known == idle)
        return;
    if (known >= 0)
        nodes_by_idle_[at(known)].erase(node);
    if (at(idle) >= nodes_by_idle_.size())
        nodes_by_idle_.resize(at(idle) + 1);
    nodes_by_idle_[at(idle)].insert(node);
    known = idle;
}

void Cluster::reindex(const std::set<JobId> &ids)
{
    for (JobId id : ids) {
        const Resident *job = find(id);
        if (job && !job->where.empty())
            gangs_.put(*job, class_of(*job), free_bytes(*job));
        else
            gangs_.erase(id);
    }
}

GangClass Cluster::class_of(const Resident &job) const
{
    GangClass found;
    found.nodes = static_cast<std::uint32_t>(job.where.size());
    found.gpus_per_node = std::numeric_limits<std::uint32_t>::max();
    found.turn_class = turn_class_of(job.profile);
    for (const NodeGpus &one : job.where) {
        found.gpus_per_node = std::min(found.gpus_per_node, static_cast<std::uint32_t>(one.gpus.size()));
        for (int gpu : one.gpus) {
            const std::size_t residents = nodes_[at(one.node)].gpus[at(gpu)].residents.size();
            found.residents = std::max(found.residents, static_cast<std::uint32_t>(residents));
        }
    }
    return found;
}

std::uint64_t Cluster::free_bytes(const Resident &job) const
{
    std::uint64_t least = std::numeric_limits<std::int64_t>::max();
    for (const NodeGpus &one : job.where)
        for (int index : one.gpus) {
            const Gpu &gpu = nodes_[at(one.node)].gpus[at(index)];
            std::uint64_t claimed = 0;
            for (JobId id : gpu.residents) {
                const Resident *resident = find(id);
                claimed += resident ? claim_bytes(resident->spb, resident->profile) : 0;
            }
            least = std::min(least, gpu.memory_bytes > claimed ? gpu.memory_bytes - claimed : 0);
        }
    return least;
}

int Cluster::audit()
{
    const int wrong_gpus = audit_gpus();
    return wrong_gpus + audit_indexes();
}

int Cluster::audit_gpus()
{
    std::vector<std::vector<std::vector<JobId>>> truth(nodes_.size());
    for (std::size_t n = 0; n < nodes_.size(); ++n)
        truth[n].resize(nodes_[n].gpus.size());
    for (const auto &[id, job] : jobs_)
        for (const NodeGpus &one : job.where)
            for (int gpu : one.gpus)
                truth[at(one.node)][at(gpu)].push_back(id);
    int wrong = 0;
    for (std::size_t n = 0; n < nodes_.size(); ++n)
        for (std::size_t g = 0; g < nodes_[n].gpus.size(); ++g) {
            std::vector<JobId> &recorded = nodes_[n].gpus[g].residents;
            if (same_residents(recorded, truth[n][g]))
                continue;
            std::sort(truth[n][g].begin(),
                      truth[n][g].end()); // the order of arrival is lost: job ids are nearest to it
            recorded = truth[n][g];
            ++wrong;
        }
    return wrong;
}

int Cluster::audit_indexes()
{
    int wrong = 0;
    for (int n = 0; n < node_count(); ++n) {
        wrong += idle_of_node_[at(n)] != idle_gpus(nodes_[at(n)]);
        reindex_idle(n);
    }
    std::size_t filed = 0;
    for (const auto &[id, job] : jobs_) {
        const bool expected = job.spb.shares() && !job.where.empty();
        const GangClass *recorded = gangs_.find(id);
        filed += expected;
        if (expected == (recorded != nullptr) && (!expected || *recorded == class_of(job)))
            continue;
        ++wrong;
        reindex({id});
    }
    if (filed == gangs_.size())
        return wrong;
    wrong += static_cast<int>(gangs_.size() - filed);
    gangs_.clear();
    for (const auto &[id, job] : jobs_)
        reindex({id});
    return wrong;
}

} // namespace jigsaw::core
