// SPDX-License-Identifier: GPL-2.0-or-later
// See records.hpp.
#include "plugin/select/records.hpp"

namespace jigsaw::select {
namespace {

uint32_t gpu_plugin_id()
{
    static char name[] = "gpu";
    static const uint32_t id = gres_build_id(name);
    return id;
}

/// The place of a node in the arrays of a job's records: how many of the job's nodes come before it; -1: not its node.
int node_offset(const job_record_t *job, int node)
{
    const job_resources_t *resources = job->job_resrcs;
    if (!resources || !resources->node_bitmap || node >= bit_size(resources->node_bitmap) ||
        !bit_test(resources->node_bitmap, node))
        return -1;
    return node == 0 ? 0 : bit_set_count_range(resources->node_bitmap, 0, node);
}

/// Least GPUs of one record on each node, from whichever way the user asked.
std::uint64_t least_per_node(const gres_job_state_t &gpus, const job_record_t *job)
{
    if (gpus.gres_per_node)
        return gpus.gres_per_node;
    if (gpus.gres_per_task) {
        const bool stated = job->details && job->details->ntasks_per_node && job->details->ntasks_per_node != NO_VAL16;
        return gpus.gres_per_task * (stated ? job->details->ntasks_per_node : 1);
    }
    if (gpus.gres_per_socket)
        return gpus.gres_per_socket;
    const bool one_node = job->details && job->details->max_nodes == 1;
    return gpus.gres_per_job && one_node ? gpus.gres_per_job : 1;
}

/// 0,1,2,5 -> "0-2,5"
std::string format_indices(const std::vector<int> &indices)
{
    std::string text;
    for (std::size_t i = 0; i < indices.size();) {
        std::size_t last = i;
        while (last + 1 < indices.size() && indices[last + 1] == indices[last] + 1)
            ++last;
        text += (text.empty() ? "" : ",") + std::to_string(indices[i]);
        if (last > i)
            text += "-" + std::to_string(indices[last]);
        i = last + 1;
    }
    return text;
}

} // namespace

gres_node_state_t *node_gpus(int node)
{
    node_record_t *record = node_at(node);
    if (!record || !record->gres_list)
        return nullptr;
    uint32_t id = gpu_plugin_id();
    auto *state = static_cast<gres_state_t *>(list_find_first(record->gres_list, gres_find_id, &id));
    auto *gpus = state ? static_cast<gres_node_state_t *>(state->gres_data) : nullptr;
    if (!gpus || !gpus->gres_bit_alloc || gpus->no_consume || offered_otherwise(gpus))
        return nullptr;
    return gpus;
}

std::vector<GpuEntry> gpu_entries(job_record_t *job, ListPtr list, int node)
{
    std::vector<GpuEntry> entries;
    const int offset = node_offset(job, node);
    if (offset < 0)
        return entries;
    for_each<gres_state_t>(list, [&](gres_state_t *state) {
        auto *gpus = static_cast<gres_job_state_t *>(state->gres_data);
        if (state->plugin_id != gpu_plugin_id() || !gpus || !gpus->gres_bit_alloc ||
            offset >= static_cast<int>(gpus->node_cnt) || !gpus->gres_bit_alloc[offset])
            return;
        uint64_t *count = gpus->gres_cnt_node_alloc ? &gpus->gres_cnt_node_alloc[offset] : nullptr;
        entries.push_back({gpus->gres_bit_alloc[offset], count, gpus->type_id});
    });
    return entries;
}

std::vector<int> gpus_chosen(const job_record_t *job, int node)
{
    std::set<int> chosen;
    for_each<gres_state_t>(job->gres_list_req, [&](gres_state_t *state) {
        const auto *gpus = static_cast<gres_job_state_t *>(state->gres_data);
        if (state->plugin_id != gpu_plugin_id() || !gpus || !gpus->gres_bit_select ||
            node >= static_cast<int>(gpus->total_node_cnt) || !gpus->gres_bit_select[node])
            return;
        bitstr_t *bits = gpus->gres_bit_select[node];
        for (int i = 0; i < bit_size(bits); ++i)
            if (bit_test(bits, i))
                chosen.insert(i);
    });
    return {chosen.begin(), chosen.end()};
}

std::vector<core::NodeGpus> gpus_held(job_record_t *job)
{
    std::vector<core::NodeGpus> held;
    for (int node : nodes_held(job)) {
        const gres_node_state_t *gpus = node_gpus(node);
        if (!gpus)
            continue;
        std::set<int> indices;
        for (const GpuEntry &entry : gpu_entries(job, job->gres_list_alloc, node))
            for (int i = 0; i < bit_size(entry.bits) && i < bit_size(gpus->gres_bit_alloc); ++i)
                if (bit_test(entry.bits, i))
                    indices.insert(i);
        if (!indices.empty())
            held.push_back({node, {indices.begin(), indices.end()}});
    }
    return held;
}

std::vector<int> nodes_in(const bitstr_t *bitmap)
{
    std::vector<int> nodes;
    auto *bits = const_cast<bitstr_t *>(bitmap); // bitstring.h of 22.05 knows no const
    for (int i = 0; bits && i < bit_size(bits) && i < node_record_count; ++i)
        if (bit_test(bits, i))
            nodes.push_back(i);
    return nodes;
}

std::vector<int> nodes_held(const job_record_t *job)
{
    return job->job_resrcs ? nodes_in(job->job_resrcs->node_bitmap) : std::vector<int>();
}

GpuWish gpu_wish(const job_record_t *job)
{
    GpuWish wish;
    std::uint64_t sum = 0;
    std::set<std::string> types;
    for_each<gres_state_t>(job->gres_list_req, [&](gres_state_t *state) {
        auto *gpus = static_cast<gres_job_state_t *>(state->gres_data);
        if (state->plugin_id != gpu_plugin_id() || !gpus)
            return;
        wish.any = true;
        sum += least_per_node(*gpus, job);
        types.insert(gpus->type_name ? gpus->type_name : "");
    });
    wish.gpus_per_node = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(sum, 1, 1024));
    if (types.size() == 1)
        wish.type = *types.begin();
    return wish;
}

std::vector<std::string> spank_entries(const job_record_t *job)
{
    std::vector<std::string> entries;
    for (uint32_t i = 0; job->spank_job_env && i < job->spank_job_env_size; ++i)
        if (job->spank_job_env[i])
            entries.emplace_back(job->spank_job_env[i]);
    return entries;
}

std::string format_gpus(const std::vector<core::NodeGpus> &where)
{
    std::string text;
    for (const core::NodeGpus &part : where) {
        const node_record_t *node = node_at(part.node);
        text += (text.empty() ? "" : " ") + std::string(node && node->name ? node->name : "?") + ":" +
                format_indices(part.gpus);
    }
    return text;
}

} // namespace jigsaw::select
