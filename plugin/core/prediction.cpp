// SPDX-License-Identifier: Apache-2.0
// The turn model: whoever shares a GPU is slowed by the sum of loads of the busiest resource, all members
// alike, and a job by the worst of its GPUs. Constants and their source: docs/decisions/0001-placement.md.
#include "plugin/core/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace jigsaw::core {

namespace {

constexpr double kHostCapacity = 2;        // CPU and input are two resources (scheduling-study 1, "Muri-S sharing")
constexpr double kPartialNetwork = 0.75;   // sync bytes at partial depth (scheduling-study 3)
constexpr double kLeastRemaining_s = 60;   // nobody is about to end, whatever its limit says
constexpr double kProgressRemaining = 0.2; // at least this share of what it has done is still to come
constexpr double kUnknownRemaining_s = 1200; // of a job without a limit that has just begun
constexpr double kForever_s = 1e12;          // of a newcomer without a limit
constexpr double kShortVisit = 0.1;
constexpr double kDelayWeight = 2; // phi: a second lost by a resident counts twice (scheduling-study 6)

/// Mean backward time over workers and iterations at the depth that the request allows.
double mean_backward_ms(const SpbRequest &spb, const std::vector<double> &backward_ms, std::uint32_t workers)
{
    const double full_ms = backward_ms.back();
    const bool partial = spb.mode == SpbMode::automatic || spb.mode == SpbMode::levels;
    if (!partial || spb.policy == plan::Policy::full || workers < 2)
        return full_ms;
    double mean_ms =
        std::accumulate(backward_ms.begin(), backward_ms.end(), 0.0) / static_cast<double>(backward_ms.size());
    if (spb.policy == plan::Policy::two_level)
        mean_ms = (full_ms + (workers - 1) * backward_ms.front()) / workers;
    return std::min(full_ms, std::max(mean_ms, spb.min_depth_fraction * full_ms));
}

double gpus_of(const std::vector<NodeGpus> &where)
{
    std::size_t gpus = 0;
    for (const NodeGpus &one : where)
        gpus += one.gpus.size();
    return static_cast<double>(gpus);
}

const std::vector<JobId> &residents_of(const Cluster &cluster, int node, int gpu)
{
    return cluster.node(node).gpus.at(static_cast<std::size_t>(gpu)).residents;
}

} // namespace

Load load_of(const SpbRequest &spb, const Profile &profile, std::uint32_t workers)
{
    Load load;
    const double turn_ms = profile.full_turn_ms();
    const double alone_ms = turn_ms + profile.network_ms + profile.cpu_ms + profile.io_ms;
    if (!profile.known() || !(turn_ms > 0))
        return load;
    load.known = true;
    load.gpu = turn_ms / alone_ms;
    load.network = profile.network_ms / alone_ms;
    load.host = (profile.cpu_ms + profile.io_ms) / alone_ms;
    const double backward_ms = mean_backward_ms(spb, profile.backward_ms_of_level, workers);
    load.gpu_partial = (profile.forward_ms + backward_ms) / alone_ms;
    load.network_partial = load.gpu_partial < load.gpu ? load.network * kPartialNetwork : load.network;
    return load;
}

double slowdown_of(const std::vector<Load> &loads, const SharingPolicy &policy)
{
    if (loads.size() < 2)
        return 1;
    double gpu = 0, gpu_partial = 0, network = 0, network_partial = 0, host = 0;
    for (const Load &load : loads) {
        gpu += load.gpu;
        gpu_partial += load.gpu_partial;
        network += load.network;
        network_partial += load.network_partial;
        host += load.host / kHostCapacity;
    }
    const double q = gpu_partial < gpu ? std::max(1.0, policy.extra_iterations) : 1;
    const double full = std::max({1.0, gpu, network, host});
    const double partial = q * std::max({1.0, gpu_partial, network_partial, host});
    return std::max(1.0, policy.share_slowdown) * std::min(full, partial);
}

Predictor::Predictor(const Cluster &cluster, const PlacementRequest &job, const SharingPolicy &policy)
    : cluster_(cluster), job_(job), policy_(policy),
      own_(load_of(job.spb, job.profile, std::max(1u, job.nodes) * std::max(1u, job.gpus_per_node)))
{
}

const Load &Predictor::load(JobId id)
{
    const auto known = loads_.find(id);
    if (known != loads_.end())
        return known->second;
    const Resident *job = cluster_.find(id);
    const Load made =
        job ? load_of(job->spb, job->profile, static_cast<std::uint32_t>(gpus_of(job->where))) : Load{};
    return loads_.emplace(id, made).first->second;
}

double Predictor::slowdown_on(const std::vector<JobId> &residents, bool with_newcomer)
{
    std::vector<Load> loads;
    for (JobId id : residents)
        loads.push_back(load(id));
    if (with_newcomer)
        loads.push_back(own_);
    return slowdown_of(loads, policy_);
}

/// The worst of a resident's GPUs as they are. GPUs of a gang mostly hold the same jobs: those are computed
/// once.
double Predictor::slowdown_now(JobId id)
{
    const auto known = slow_now_.find(id);
    if (known != slow_now_.end())
        return known->second;
    double worst = 1;
    const std::vector<JobId> *last = nullptr;
    const Resident *job = cluster_.find(id);
    for (const NodeGpus &one : job ? job->where : std::vector<NodeGpus>{})
        for (int gpu : one.gpus) {
            const std::vector<JobId> &residents = residents_of(cluster_, one.node, gpu);
            if (!last || residents != *last)
                worst = std::max(worst, slowdown_on(residents, false));
            last = &residents;
        }
    return slow_now_[id] = worst;
}

Predictor::Member Predictor::member(JobId id)
{
    Member made;
    made.id = id;
    made.slow_now = made.slow_then = slowdown_now(id);
    const Resident *job = cluster_.find(id);
    if (!job)
        return made;
    made.gpus = gpus_of(job->where);
    made.elapsed_s = static_cast<double>(std::max<std::int64_t>(0, job_.now_s - job->start_s));
    made.progress_s = made.elapsed_s / made.slow_now;
    const double left_s = job->time_limit_s > 0 ? static_cast<double>(job->time_limit_s) - made.progress_s
                                                : std::max(made.progress_s, kUnknownRemaining_s);
    made.remaining_s = std::max({left_s, kProgressRemaining * made.progress_s, kLeastRemaining_s});
    return made;
}

std::vector<Predictor::Member> Predictor::members(const std::vector<NodeGpus> &where, double *ret_own_slowdown)
{
    std::vector<Member> found;
    double own = 1;
    for (const NodeGpus &one : where)
        for (int gpu : one.gpus) {
            const std::vector<JobId> &residents = residents_of(cluster_, one.node, gpu);
            const double slow = slowdown_on(residents, true);
            own = std::max(own, slow);
            for (JobId id : residents) {
                auto at = std::find_if(found.begin(), found.end(), [&](const Member &m) { return m.id == id; });
                if (at == found.end())
                    at = found.insert(found.end(), member(id));
                at->slow_then = std::max(at->slow_then, slow);
            }
        }
    *ret_own_slowdown = own;
    return found;
}

double Predictor::Member::together_s(double own_s) const { return std::min(own_s, remaining_s * slow_then); }

double Predictor::Member::delay_s(double own_s) const { return together_s(own_s) * (1 - slow_now / slow_then); }

Prediction Predictor::predict(const std::vector<NodeGpus> &where)
{
    Prediction made;
    const std::vector<Member> found = members(where, &made.own_slowdown);
    const double own_remaining_s = job_.time_limit_s > 0 ? static_cast<double>(job_.time_limit_s) : kForever_s;
    const double own_s = own_remaining_s * made.own_slowdown, own_gpus = gpus_of(where);
    made.known = own_.known;
    made.gain = own_gpus / made.own_slowdown;
    made.worst_finish = 0;
    for (const Member &m : found) {
        made.joins.push_back(m.id);
        made.known = made.known && load(m.id).known;
        made.gain += m.gpus * (1 / m.slow_then - 1 / m.slow_now);
        made.short_visit = made.short_visit && own_remaining_s <= kShortVisit * m.remaining_s;
        const double finish_s = m.elapsed_s + m.remaining_s * m.slow_now + m.delay_s(own_s);
        const double ratio = finish_s / (m.progress_s + m.remaining_s);
        if (ratio <= made.worst_finish)
            continue;
        made.worst_finish = ratio;
        made.worst_job = m.id;
    }
    made.score = score(found, own_gpus, made.own_slowdown);
    std::sort(made.joins.begin(), made.joins.end());
    return made;
}

/// scheduling-study 7: the newcomer's win over waiting, less what the residents lose, plus what is saved for
/// the queue.
double Predictor::score(const std::vector<Member> &members, double own_gpus, double own_slowdown) const
{
    if (job_.wait_s < 0 || job_.time_limit_s <= 0)
        return 0;
    const double remaining_s = static_cast<double>(job_.time_limit_s);
    double together_s = 0, delays_s = 0, lost_gpu_s = 0;
    for (const Member &m : members) {
        const double delay_s = m.delay_s(remaining_s * own_slowdown);
        together_s = std::max(together_s, m.together_s(remaining_s * own_slowdown));
        delays_s += delay_s;
        lost_gpu_s += m.gpus * delay_s;
    }
    const double alone_s = std::max(0.0, remaining_s - together_s / own_slowdown);
    const double saved_gpu_s = own_gpus * (remaining_s - alone_s) - lost_gpu_s;
    return job_.wait_s + remaining_s - (together_s + alone_s) - kDelayWeight * delays_s +
           job_.queue_per_gpu * saved_gpu_s;
}

} // namespace jigsaw::core
