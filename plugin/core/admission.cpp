// SPDX-License-Identifier: Apache-2.0
// Admission to a GPU; see admission.hpp. Memory is counted at full depth: partial depth needs less only in some
// iterations.
#include "plugin/core/admission.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace jigsaw::core {

namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr std::uint32_t kUnknownLimit = 2; // jobs per GPU while one of them has no profile

std::uint32_t stricter(std::uint32_t limit, std::uint32_t stated)
{
    return stated > 0 ? std::min(limit, stated) : limit;
}

/// Whatever holds of one holds of the other.
bool alike(const Gpu &a, const Gpu &b)
{
    return a.memory_bytes == b.memory_bytes && a.residents == b.residents && a.type == b.type;
}

/// why_not_together() without the words.
bool together(const PlacementRequest &job, const Resident &resident, const SharingPolicy &policy)
{
    if (!policy.enabled || policy.max_jobs_per_gpu < 2 || !job.spb.shares() || !resident.spb.shares())
        return false;
    if (policy.scope == SharingScope::user)
        return resident.uid == job.uid;
    return policy.scope == SharingScope::any || resident.account == job.account;
}

std::string gib(std::uint64_t bytes) { return decimal(static_cast<double>(bytes) / kGiB, 1); }

} // namespace

std::string decimal(double value, int digits)
{
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

std::string name_of(const Cluster &cluster, const NodeGpus &place)
{
    std::string text = cluster.node(place.node).name + " gpu ";
    for (std::size_t i = 0; i < place.gpus.size();) {
        std::size_t last = i;
        while (last + 1 < place.gpus.size() && place.gpus[last + 1] == place.gpus[last] + 1)
            ++last;
        text += (i > 0 ? "," : "") + std::to_string(place.gpus[i]);
        if (last > i)
            text += "-" + std::to_string(place.gpus[last]);
        i = last + 1;
    }
    return text;
}

std::string name_of(const std::vector<JobId> &jobs)
{
    constexpr std::size_t kNamed = 3;
    std::string text = jobs.size() == 1 ? "job " : "jobs ";
    for (std::size_t i = 0; i < std::min(jobs.size(), kNamed); ++i)
        text += (i > 0 ? ", " : "") + std::to_string(jobs[i]);
    return jobs.size() > kNamed ? text + " and " + std::to_string(jobs.size() - kNamed) + " more" : text;
}

std::string why_not_together(const PlacementRequest &job, const Resident &resident, const SharingPolicy &policy)
{
    const std::string other = "job " + std::to_string(resident.id);
    if (!policy.enabled)
        return "sharing is off for this job's partition, QOS or account: wait for idle GPUs";
    if (!job.spb.shares())
        return "this job does not share its GPUs: add --spb or wait for idle GPUs";
    if (!resident.spb.shares())
        return other + " does not share its GPUs: wait for it";
    if (policy.scope == SharingScope::user && resident.uid != job.uid)
        return other + " is another user's, jobs share only with their own user's (sharing_scope): wait for it";
    if (policy.scope == SharingScope::account && resident.account != job.account)
        return other + " is of account " + (resident.account.empty() ? "(none)" : resident.account) +
               ", jobs share only within their account (sharing_scope): wait for it";
    if (policy.max_jobs_per_gpu < 2)
        return "max_jobs_per_gpu is " + std::to_string(policy.max_jobs_per_gpu) + ", 2 needed: wait for idle GPUs";
    return {};
}

bool Admission::node_allowed(int node) const
{
    const std::vector<bool> &allowed = job_.allowed_nodes;
    return allowed.empty() ||
           (static_cast<std::size_t>(node) < allowed.size() && allowed[static_cast<std::size_t>(node)]);
}

std::uint64_t Admission::claim_of(const SpbRequest &spb, const Profile &profile) const
{
    const std::uint64_t claim = claim_bytes(spb, profile);
    return claim > 0 ? claim : policy_.default_memory_bytes;
}

/// What residents, their contexts and the headroom leave nothing of.
std::uint64_t Admission::taken_bytes(const Gpu &gpu) const
{
    const double headroom = std::min(1.0, std::max(0.0, policy_.memory_headroom));
    auto taken = static_cast<std::uint64_t>(headroom * static_cast<double>(gpu.memory_bytes));
    for (JobId id : gpu.residents) {
        const Resident *resident = cluster_.find(id);
        taken += policy_.context_bytes + (resident ? claim_of(resident->spb, resident->profile) : 0);
    }
    return taken;
}

/// Jobs per GPU that site, newcomer and residents allow.
std::uint32_t Admission::agreed_limit(const Gpu &gpu) const
{
    std::uint32_t limit = stricter(policy_.max_jobs_per_gpu, job_.spb.max_share);
    for (JobId id : gpu.residents) {
        const Resident *resident = cluster_.find(id);
        limit = stricter(limit, resident ? resident->spb.max_share : 1);
    }
    return limit;
}

const Resident *Admission::without_profile(const Gpu &gpu) const
{
    for (JobId id : gpu.residents)
        if (const Resident *resident = cluster_.find(id); resident && !resident->profile.known())
            return resident;
    return nullptr;
}

std::uint32_t Admission::limit_of(const Gpu &gpu) const
{
    const std::uint32_t limit = agreed_limit(gpu);
    return job_.profile.known() && !without_profile(gpu) ? limit : std::min(limit, kUnknownLimit);
}

bool Admission::turns_fit(const Resident &resident) const
{
    if (std::isinf(policy_.max_turn_ratio) || !job_.profile.known() || !resident.profile.known())
        return true;
    const double own_ms = job_.profile.full_turn_ms(), other_ms = resident.profile.full_turn_ms();
    return std::max(own_ms, other_ms) <= policy_.max_turn_ratio * std::min(own_ms, other_ms);
}

Admission::Verdict Admission::judge_memory(const Gpu &gpu) const
{
    if (gpu.memory_bytes == 0)
        return {};
    const std::uint64_t claim = claim_of(job_.spb, job_.profile);
    if (claim == 0 && gpu.residents.empty())
        return {}; // alone it may try
    if (claim == 0)
        return {Reason::no_claim, 0};
    for (JobId id : gpu.residents)
        if (const Resident *resident = cluster_.find(id);
            resident && claim_of(resident->spb, resident->profile) == 0)
            return {Reason::no_claim, id};
    const std::uint64_t taken = taken_bytes(gpu);
    const bool fits = taken <= gpu.memory_bytes && claim + policy_.context_bytes <= gpu.memory_bytes - taken;
    return fits ? Verdict{} : Verdict{Reason::memory, gpu.residents.empty() ? 0 : gpu.residents.front()};
}

Admission::Verdict Admission::judge(int node, int index) const
{
    const Gpu &place = gpu(node, index);
    if (!job_.gpu_type.empty() && place.type != job_.gpu_type)
        return {Reason::other_type, 0};
    for (JobId id : place.residents) {
        const Resident *resident = cluster_.find(id);
        if (id == job_.id)
            return {Reason::own, id}; // never two ranks of a job on a GPU
        if (!resident || !together(job_, *resident, policy_))
            return {Reason::stranger, id};
    }
    if (!place.residents.empty() && place.residents.size() + 1 > limit_of(place))
        return {Reason::full, place.residents.front()};
    for (JobId id : place.residents)
        if (!turns_fit(*cluster_.find(id)))
            return {Reason::turns, id};
    return judge_memory(place);
}

bool Admission::admits(const NodeGpus &place) const
{
    return admitted(place.node, place.gpus).size() == place.gpus.size();
}

std::vector<int> Admission::admitted(int node, const std::vector<int> &gpus) const
{
    std::vector<int> open;
    open.reserve(gpus.size());
    const Gpu *last = nullptr;
    bool last_open = false;
    for (int index : gpus) {
        const Gpu &place = gpu(node, index);
        if (!last || !alike(*last, place))
            last_open = admits(node, index);
        last = &place;
        if (last_open)
            open.push_back(index);
    }
    return open;
}

std::string Admission::why_not(const NodeGpus &place) const
{
    for (int index : place.gpus) {
        const Verdict verdict = judge(place.node, index);
        if (verdict.reason == Reason::none)
            continue;
        NodeGpus alike{place.node, {}};
        std::copy_if(place.gpus.begin(), place.gpus.end(), std::back_inserter(alike.gpus),
                     [&](int other) { return judge(place.node, other) == verdict; });
        return explain(verdict, gpu(place.node, index), name_of(cluster_, alike));
    }
    return {};
}

std::string Admission::explain(const Verdict &verdict, const Gpu &gpu, const std::string &place) const
{
    const Resident *resident = cluster_.find(verdict.job);
    const std::string other = "job " + std::to_string(verdict.job);
    switch (verdict.reason) {
    case Reason::none:
        break;
    case Reason::other_type:
        return place + " is of type " + (gpu.type.empty() ? "(none)" : gpu.type) + ", " + job_.gpu_type + " asked";
    case Reason::own:
        return place + " already holds a rank of this job";
    case Reason::stranger:
        return place + ": " +
               (resident ? why_not_together(job_, *resident, policy_) : other + " is not known: wait for it");
    case Reason::full:
        return explain_full(gpu, place);
    case Reason::no_claim:
        return "GPU memory of " + place + " is " + gib(gpu.memory_bytes) + " GiB and " +
               (verdict.job ? other + " states no peak: wait for it" : "this job states no peak: add --spb-mem");
    case Reason::memory:
        return explain_memory(gpu, place);
    case Reason::turns:
        return place + ": turns of " + decimal(job_.profile.full_turn_ms(), 1) + " ms beside " +
               decimal(resident->profile.full_turn_ms(), 1) + " ms differ more than " +
               decimal(policy_.max_turn_ratio, 1) + " times: wait for " + other;
    }
    return {};
}

std::string Admission::explain_full(const Gpu &gpu, const std::string &place) const
{
    const std::string there = place + ": " + std::to_string(gpu.residents.size()) + " jobs there, at most " +
                              std::to_string(limit_of(gpu)) + " may share a GPU";
    if (limit_of(gpu) == agreed_limit(gpu))
        return there + ": wait for " + name_of(gpu.residents);
    if (const Resident *slow = without_profile(gpu))
        return there + " until job " + std::to_string(slow->id) + " has been measured: wait";
    return there + " while this job's speed is not known: wait, or name an earlier run with --spb-profile";
}

std::string Admission::explain_memory(const Gpu &gpu, const std::string &place) const
{
    const std::uint64_t asked = claim_of(job_.spb, job_.profile) + policy_.context_bytes;
    return "GPU memory " + gib(taken_bytes(gpu)) + " of " + gib(gpu.memory_bytes) + " GiB taken on " + place +
           ", " + gib(asked) + " GiB asked: lower --spb-mem" +
           (gpu.residents.empty() ? "" : " or wait for " + name_of(gpu.residents));
}

} // namespace jigsaw::core
