// SPDX-License-Identifier: GPL-2.0-or-later
// See owner.hpp.
#include "plugin/select/owner.hpp"

#include "plugin/select/view.hpp"

namespace jigsaw::select {
namespace {

/// Who owns a GPU: the resident whose leaving opens it; the last one when nothing opens it earlier.
core::JobId owner_of(const std::vector<job_record_t *> &leaving, int node, int gpu, const OneOwner::Opens &opens)
{
    std::vector<core::JobId> left;
    for (const job_record_t *job : leaving)
        left.push_back(job->job_id);
    for (const job_record_t *job : leaving) {
        left.erase(left.begin());
        if (left.empty() || opens(node, gpu, left))
            return job->job_id;
    }
    return 0;
}

} // namespace

Departures::Departures(ListPtr candidates, bool others_end) : others_end_(others_end)
{
    int next = 0;
    for_each<job_record_t>(candidates, [&](job_record_t *job) {
        position_[job->job_id] = next;
        for_each<job_record_t>(job->het_job_list, [&](job_record_t *component) { position_[component->job_id] = next; });
        ++next;
    });
}

std::pair<double, double> Departures::key(const job_record_t *job) const
{
    const auto candidate = position_.find(job->job_id);
    if (candidate != position_.end())
        return {0, candidate->second};
    return {1, others_end_ ? static_cast<double>(job->end_time) : 0};
}

void Departures::sort(std::vector<job_record_t *> *jobs) const
{
    std::stable_sort(jobs->begin(), jobs->end(), [this](auto *a, auto *b) { return key(a) < key(b); });
}

OneOwner::OneOwner(const Occupancy &occupancy, const std::vector<int> &nodes, const Departures &departures,
                   const Opens &opens)
{
    for (int node : nodes)
        if (occupancy.shared(node) || !truth_stands(occupancy, node))
            guard_node(occupancy, node, departures, opens);
}

OneOwner::~OneOwner()
{
    for (Edited &edited : edited_) {
        bit_clear_all(edited.live);
        bit_or(edited.live, edited.copy);
        FREE_NULL_BITMAP(edited.copy);
        if (edited.count)
            *edited.count = edited.old_count;
    }
}

void OneOwner::guard_node(const Occupancy &occupancy, int node, const Departures &departures, const Opens &opens)
{
    gres_node_state_t *record = node_gpus(node);
    const std::vector<bool> taken = occupancy.taken(node);
    if (!record || static_cast<std::size_t>(bit_size(record->gres_bit_alloc)) != taken.size())
        return;
    std::map<core::JobId, std::vector<bool>> keep;
    for (int gpu = 0; gpu < static_cast<int>(taken.size()); ++gpu) {
        if (!bit_test(record->gres_bit_alloc, gpu))
            continue; // looks free in the present view: nobody may free it again
        std::vector<job_record_t *> leaving;
        for (core::JobId id : occupancy.cluster().node(node).gpus[static_cast<std::size_t>(gpu)].residents)
            if (job_record_t *job = find_job_record(id))
                leaving.push_back(job);
        departures.sort(&leaving);
        auto &kept = keep[owner_of(leaving, node, gpu, opens)];
        kept.resize(taken.size());
        kept[static_cast<std::size_t>(gpu)] = true;
    }
    for (job_record_t *job : occupancy.residents_of(node)) {
        auto &kept = keep[job->job_id];
        kept.resize(taken.size());
        disown(job, node, kept);
    }
}

void OneOwner::disown(job_record_t *job, int node, const std::vector<bool> &keep)
{
    for (ListPtr list : simulated_gres_lists(job))
        for (const GpuEntry &entry : gpu_entries(job, list, node)) {
            edited_.push_back({entry.bits, bit_copy(entry.bits), entry.count, entry.count ? *entry.count : 0});
            for (int i = 0; i < bit_size(entry.bits); ++i)
                if (bit_test(entry.bits, i) && (static_cast<std::size_t>(i) >= keep.size() || !keep[static_cast<std::size_t>(i)]))
                    bit_clear(entry.bits, i);
            if (entry.count)
                *entry.count = static_cast<uint64_t>(bit_set_count(entry.bits)); // 24.11 and later count by this
        }
}

} // namespace jigsaw::select
