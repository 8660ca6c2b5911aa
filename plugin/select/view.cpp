// SPDX-License-Identifier: GPL-2.0-or-later
// See view.hpp. The fields written here are those that _job_alloc() and _job_dealloc() of gres_ctld.c keep.
#include "plugin/select/view.hpp"

namespace jigsaw::select {
namespace {

struct Bitmap {
    bitstr_t *bits;
    explicit Bitmap(const std::vector<bool> &set) : bits(bit_alloc(static_cast<bitoff_t>(std::max<std::size_t>(set.size(), 1))))
    {
        for (std::size_t i = 0; i < set.size(); ++i)
            if (set[i])
                bit_set(bits, static_cast<bitoff_t>(i));
    }
    ~Bitmap() { FREE_NULL_BITMAP(bits); }
    Bitmap(const Bitmap &) = delete;
    Bitmap &operator=(const Bitmap &) = delete;
};

/// Counts per gres.conf line and per type follow the bits.
void count_by_topology(gres_node_state_t *gpus, bitstr_t *busy)
{
    for (int type = 0; type < gpus->type_cnt; ++type)
        gpus->type_cnt_alloc[type] = 0;
    for (int line = 0; line < gpus->topo_cnt; ++line) {
        if (!gpus->topo_gres_bitmap || !gpus->topo_gres_bitmap[line] || !gpus->topo_gres_cnt_alloc ||
            bit_size(gpus->topo_gres_bitmap[line]) != bit_size(busy))
            continue;
        const auto taken = static_cast<uint64_t>(bit_overlap(gpus->topo_gres_bitmap[line], busy));
        gpus->topo_gres_cnt_alloc[line] = taken;
        for (int type = 0; type < gpus->type_cnt; ++type)
            if (gpus->topo_type_id && gpus->topo_type_id[line] == gpus->type_id[type])
                gpus->type_cnt_alloc[type] += taken;
    }
}

/// Between a restart of slurmctld and the node's registration no line says which GPU is of which type: the residents'
/// own records do.
void count_by_residents(const Occupancy &occupancy, int node, gres_node_state_t *gpus, bitstr_t *busy)
{
    std::map<uint32_t, std::set<int>> by_type;
    for (job_record_t *job : occupancy.residents_of(node))
        for (const GpuEntry &entry : gpu_entries(job, job->gres_list_alloc, node))
            for (int i = 0; i < bit_size(entry.bits) && i < bit_size(busy); ++i)
                if (bit_test(entry.bits, i) && bit_test(busy, i))
                    by_type[entry.type_id].insert(i);
    for (int type = 0; type < gpus->type_cnt; ++type)
        gpus->type_cnt_alloc[type] = by_type[gpus->type_id[type]].size();
}

void write_record(const Occupancy &occupancy, int node, const std::vector<bool> &taken)
{
    gres_node_state_t *gpus = node_gpus(node);
    if (!gpus || static_cast<std::size_t>(bit_size(gpus->gres_bit_alloc)) != taken.size())
        return;
    const Bitmap busy(taken);
    bit_clear_all(gpus->gres_bit_alloc);
    bit_or(gpus->gres_bit_alloc, busy.bits);
    gpus->gres_cnt_alloc = static_cast<uint64_t>(bit_set_count(busy.bits));
    xfree(gpus->gres_used); // a text that Slurm caches
    if (gpus->topo_cnt)
        count_by_topology(gpus, busy.bits);
    else
        count_by_residents(occupancy, node, gpus, busy.bits);
}

} // namespace

void write_truth(const Occupancy &occupancy, int node)
{
    write_record(occupancy, node, occupancy.taken(node));
}

void write_truth(const Occupancy &occupancy, const std::vector<int> &nodes)
{
    for (int node : nodes)
        write_truth(occupancy, node);
}

bool truth_stands(const Occupancy &occupancy, int node)
{
    const gres_node_state_t *gpus = node_gpus(node);
    const std::vector<bool> taken = occupancy.taken(node);
    if (!gpus || static_cast<std::size_t>(bit_size(gpus->gres_bit_alloc)) != taken.size())
        return true; // not ours, or not yet looked at
    for (std::size_t i = 0; i < taken.size(); ++i)
        if (taken[i] != static_cast<bool>(bit_test(gpus->gres_bit_alloc, static_cast<bitoff_t>(i))))
            return false;
    return gpus->gres_cnt_alloc == static_cast<uint64_t>(std::count(taken.begin(), taken.end(), true));
}

View::~View()
{
    for (int node : touched_)
        write_truth(occupancy_, node);
}

void View::write(int node, const std::vector<bool> &busy)
{
    if (!node_gpus(node))
        return;
    touched_.insert(node);
    write_record(occupancy_, node, busy);
}

void View::show_free(int node, const std::vector<int> &gpus)
{
    std::vector<bool> busy(occupancy_.taken(node).size(), true);
    for (int gpu : gpus)
        if (gpu >= 0 && static_cast<std::size_t>(gpu) < busy.size())
            busy[static_cast<std::size_t>(gpu)] = false;
    write(node, busy);
}

void View::also_free(int node, const std::vector<int> &gpus)
{
    std::vector<bool> busy = occupancy_.taken(node);
    for (int gpu : gpus)
        if (gpu >= 0 && static_cast<std::size_t>(gpu) < busy.size())
            busy[static_cast<std::size_t>(gpu)] = false;
    write(node, busy);
}

void View::show_empty(int node)
{
    write(node, std::vector<bool>(occupancy_.taken(node).size(), false));
}

Inflation::Inflation(const Occupancy &occupancy)
{
    for (int node = 0; node < occupancy.cluster().node_count(); ++node) {
        gres_node_state_t *gpus = occupancy.shared(node) ? node_gpus(node) : nullptr;
        if (!gpus)
            continue;
        saved_.push_back({node, gpus->gres_cnt_avail, bit_size(gpus->gres_bit_alloc)});
        for (const core::Gpu &gpu : occupancy.cluster().node(node).gpus)
            gpus->gres_cnt_avail += gpu.residents.size();
    }
}

Inflation::~Inflation()
{
    for (const Saved &saved : saved_) {
        gres_node_state_t *gpus = node_gpus(saved.node);
        if (!gpus)
            continue;
        gpus->gres_cnt_avail = saved.available;
        if (bit_size(gpus->gres_bit_alloc) != saved.size) // _job_alloc() grows it for a job without a bitmap of its own
            bit_realloc(gpus->gres_bit_alloc, saved.size);
    }
}

} // namespace jigsaw::select
