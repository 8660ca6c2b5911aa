// SPDX-License-Identifier: Apache-2.0
// Jobs and GPUs in plugin/core's terms. Job i of the workload is job i + 1 there: Slurm's ids begin at 1.
#include "plugin/sim/joiner.hpp"

#include <algorithm>
#include <cmath>

namespace jigsaw::sim {

namespace {

constexpr double kUnknownRun_s = 1200; // of a newcomer without a time limit

core::JobId id_of(int job) { return static_cast<core::JobId>(job) + 1; }
std::int64_t whole_seconds(double seconds) { return static_cast<std::int64_t>(std::floor(seconds)); }
std::int64_t limit_seconds(double limit_s) { return static_cast<std::int64_t>(std::ceil(limit_s)); }

} // namespace

core::SharingPolicy site_policy(const SharingCosts &costs, int max_sharing, double pay)
{
    core::SharingPolicy policy;
    policy.max_jobs_per_gpu = static_cast<std::uint32_t>(max_sharing);
    policy.scope = core::SharingScope::any;
    policy.pay = pay;
    policy.max_turn_ratio = std::numeric_limits<double>::infinity(); // traces mix iterations of any length
    policy.share_slowdown = costs.slowdown[1];
    policy.share_slowdown_of.assign(costs.slowdown.begin(), costs.slowdown.end());
    policy.unknown_run_s = kUnknownRun_s;
    policy.extra_iterations = costs.extra_iterations;
    return policy;
}

core::SpbRequest spb_request(int gpus, bool partial_depth)
{
    core::SpbRequest spb;
    spb.mode = partial_depth ? core::SpbMode::automatic : core::SpbMode::full;
    spb.policy = plan::Policy::rotate;
    spb.levels = static_cast<std::uint32_t>(levels_of(gpus));
    return spb;
}

Joiner::Joiner(const Workload &workload, const ClusterShape &shape, const core::SharingPolicy &policy,
               bool partial_depth)
    : workload_(workload), shape_(shape), policy_(policy), partial_depth_(partial_depth)
{
    const std::vector<core::Gpu> gpus(static_cast<std::size_t>(shape.gpus_per_node));
    for (int node = 0; node < shape.nodes; ++node)
        cluster_.set_node(node, "n" + std::to_string(node + 1), gpus);
    for (const JobType &type : workload.types)
        profiles_.push_back(profile_of(type, workload.curve));
}

void Joiner::add(int job, const std::vector<int> &gpus, double now_s)
{
    const Job &row = workload_.jobs[static_cast<std::size_t>(job)];
    core::Resident resident;
    resident.id = id_of(job);
    resident.spb = spb_request(workload_.gpus_of(row), partial_depth_);
    resident.profile = profiles_[static_cast<std::size_t>(row.type)];
    resident.start_s = whole_seconds(now_s);
    resident.time_limit_s = limit_seconds(row.limit_s);
    std::vector<int> sorted = gpus;
    std::sort(sorted.begin(), sorted.end());
    for (const int gpu : sorted) {
        const int node = gpu / shape_.gpus_per_node;
        if (resident.where.empty() || resident.where.back().node != node)
            resident.where.push_back({node, {}});
        resident.where.back().gpus.push_back(gpu % shape_.gpus_per_node);
    }
    cluster_.add(resident);
}

void Joiner::remove(int job) { cluster_.remove(id_of(job)); }

void Joiner::progress(int job, double done_s, double now_s)
{
    cluster_.set_progress(id_of(job), std::max(0.0, done_s), whole_seconds(now_s));
}

core::PlacementRequest Joiner::request(int job, const Wait &wait, const std::vector<bool> *closed,
                                       double now_s) const
{
    const Job &row = workload_.jobs[static_cast<std::size_t>(job)];
    const int gpus = workload_.gpus_of(row);
    core::PlacementRequest request;
    request.id = id_of(job);
    request.spb = spb_request(gpus, partial_depth_);
    request.profile = profiles_[static_cast<std::size_t>(row.type)];
    request.nodes = static_cast<std::uint32_t>((gpus + shape_.gpus_per_node - 1) / shape_.gpus_per_node);
    request.gpus_per_node = (static_cast<std::uint32_t>(gpus) + request.nodes - 1) / request.nodes;
    if (closed) {
        request.allowed_nodes = *closed;
        request.allowed_nodes.flip();
    }
    request.now_s = whole_seconds(now_s);
    request.time_limit_s = limit_seconds(row.limit_s);
    request.waited_s = wait.waited_s;
    request.wait_s = wait.wait_s;
    request.queue_per_gpu = wait.queue_per_gpu;
    return request;
}

std::vector<int> Joiner::place(int job, const Wait &wait, const std::vector<bool> *closed, double now_s) const
{
    const core::Offers found = core::find_offers(cluster_, request(job, wait, closed, now_s), policy_);
    const auto joins = std::find_if(found.offers.begin(), found.offers.end(), [](const core::Offer &offer) {
        return offer.kind != core::Offer::Kind::idle;
    });
    std::vector<int> gpus;
    if (joins == found.offers.end())
        return gpus;
    const auto wanted = static_cast<std::size_t>(workload_.gpus_of(workload_.jobs[static_cast<std::size_t>(job)]));
    for (const core::NodeGpus &one : joins->where)
        for (const int gpu : one.gpus)
            if (gpus.size() < wanted)
                gpus.push_back(one.node * shape_.gpus_per_node + gpu);
    return gpus.size() == wanted ? gpus : std::vector<int>{};
}

} // namespace jigsaw::sim
