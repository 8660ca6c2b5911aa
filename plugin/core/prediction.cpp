// SPDX-License-Identifier: Apache-2.0
// The turn model: whoever shares a GPU is slowed by the sum of loads of the busiest resource, all members
// alike, and a job by the worst of its GPUs. Constants and their source: docs/decisions/0001-placement.md.
#include "plugin/core/prediction.hpp"

#include <algorithm>

namespace jigsaw::core {

namespace {

constexpr double kLeastRemaining_s = 60;   // nobody is about to end, whatever its limit says
constexpr double kProgressRemaining = 0.2; // at least this share of what it has done is still to come
constexpr double kTotalRemaining = 0.02;   // the same where progress was measured
constexpr double kUnknownRemaining_s = 1200; // of a job without a limit that has just begun
constexpr double kForever_s = 1e12;          // of a newcomer without a limit
constexpr std::size_t kUsuallySeen = 256, kUsuallyBeside = 16; // residents, of a decision and of a candidate
constexpr double kShortVisit = 0.1;
constexpr double kDelayWeight = 2; // phi: a second lost by a resident counts twice (scheduling-study 6)

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

/// Isolated run of the newcomer: what earlier runs took, within its limit; else the limit.
double run_of(const PlacementRequest &job, const SharingPolicy &policy)
{
    const double limit_s = job.time_limit_s > 0 ? static_cast<double>(job.time_limit_s)
                           : policy.unknown_run_s > 0 ? policy.unknown_run_s
                                                      : kForever_s;
    return job.run_s > 0 ? std::min(job.run_s, limit_s) : limit_s;
}

} // namespace

double slowdown_of(const std::vector<Load> &loads, const SharingCosts &costs)
{
    LoadSum sum;
    for (const Load &load : loads)
        sum.add(load);
    return sum.slowdown(costs).factor;
}

Remaining remaining_of(const Resident &job, double slowdown_now, std::int64_t now_s)
{
    Remaining made;
    made.elapsed_s = static_cast<double>(std::max<std::int64_t>(0, now_s - job.start_s));
    made.progress_s = made.elapsed_s / slowdown_now;
    if (job.done_s >= 0) {
        const double since_s = static_cast<double>(std::max<std::int64_t>(0, now_s - job.done_at_s));
        made.progress_s = std::min(made.elapsed_s, job.done_s + since_s / slowdown_now);
    }
    const double limit_s = static_cast<double>(job.time_limit_s);
    if (job.total_s > 0) {
        const double left_s = std::max(job.total_s - made.progress_s, kTotalRemaining * job.total_s);
        made.remaining_s = limit_s > 0 ? std::min(left_s, std::max(1.0, limit_s - made.elapsed_s)) : left_s;
        return made;
    }
    const double left_s = limit_s > 0 ? limit_s - made.progress_s : std::max(made.progress_s, kUnknownRemaining_s);
    made.remaining_s = std::max({left_s, kProgressRemaining * made.progress_s, kLeastRemaining_s});
    return made;
}

Predictor::Predictor(const Cluster &cluster, const PlacementRequest &job, const SharingPolicy &policy)
    : cluster_(cluster), job_(job), policy_(policy),
      own_(load_of(job.spb, job.profile, std::max(1u, job.nodes) * std::max(1u, job.gpus_per_node))),
      own_run_s_(run_of(job, policy))
{
    seen_.reserve(kUsuallySeen);
    members_.reserve(kUsuallyBeside);
}

LoadSum Predictor::sum_on(const std::vector<JobId> &residents) const
{
    LoadSum sum;
    for (JobId id : residents)
        if (const Resident *job = cluster_.find(id))
            sum.add(job->load);
    return sum;
}

/// The worst of a resident's GPUs as they are. GPUs of a gang mostly hold the same jobs: those are computed
/// once.
double Predictor::slowdown_now(const Resident &job)
{
    double worst = 1;
    const std::vector<JobId> *last = nullptr;
    for (const NodeGpus &one : job.where)
        for (int gpu : one.gpus) {
            const std::vector<JobId> &residents = residents_of(cluster_, one.node, gpu);
            if (residents.size() > 1 && (!last || residents != *last))
                worst = std::max(worst, sum_on(residents).slowdown(policy_).factor);
            last = &residents;
        }
    return worst;
}

Predictor::Member Predictor::member(JobId id)
{
    const auto seen = seen_.find(id);
    if (seen != seen_.end())
        return seen->second;
    Member made;
    made.id = id;
    if (const Resident *job = cluster_.find(id)) {
        made.known = job->load.known;
        made.slow_now = made.slow_then = slowdown_now(*job);
        made.gpus = gpus_of(job->where);
        made.run = remaining_of(*job, made.slow_now, job_.now_s);
    }
    return seen_[id] = made;
}

void Predictor::raise(JobId id, double slow)
{
    auto at = std::find_if(members_.begin(), members_.end(), [&](const Member &m) { return m.id == id; });
    if (at == members_.end())
        at = members_.insert(members_.end(), member(id));
    at->slow_then = std::max(at->slow_then, slow);
}

/// Who sits there, and how slow they and the newcomer would be.
void Predictor::collect(const std::vector<NodeGpus> &where, Prediction *made)
{
    members_.clear();
    const std::vector<JobId> *last = nullptr;
    for (const NodeGpus &one : where)
        for (int gpu : one.gpus) {
            const std::vector<JobId> &residents = residents_of(cluster_, one.node, gpu);
            if (residents.empty() || (last && residents == *last))
                continue;
            last = &residents;
            LoadSum sum = sum_on(residents);
            sum.add(own_);
            const Slowdown slow = sum.slowdown(policy_);
            made->own_slowdown = std::max(made->own_slowdown, slow.factor);
            made->interlocked = made->interlocked && slow.interlocked;
            made->most_jobs = std::max(made->most_jobs, residents.size() + 1);
            for (JobId id : residents)
                raise(id, slow.factor);
        }
}

double Predictor::Member::together_s(double own_s) const { return std::min(own_s, run.remaining_s * slow_then); }

double Predictor::Member::delay_s(double own_s) const { return together_s(own_s) * (1 - slow_now / slow_then); }

Prediction Predictor::predict(const std::vector<NodeGpus> &where)
{
    Prediction made;
    collect(where, &made);
    const double own_s = own_run_s_ * made.own_slowdown, own_gpus = gpus_of(where);
    made.own_run_s = own_run_s_;
    made.known = own_.known;
    made.gain = own_gpus / made.own_slowdown;
    made.worst_finish = 0;
    for (const Member &m : members_) {
        made.joins.push_back(m.id);
        made.known = made.known && m.known;
        made.gain += m.gpus * (1 / m.slow_then - 1 / m.slow_now);
        made.short_visit = made.short_visit && own_run_s_ <= kShortVisit * m.run.remaining_s;
        made.free_in_s = std::max(made.free_in_s, m.run.remaining_s * m.slow_now);
        const double run_s = m.run.progress_s + m.run.remaining_s;
        const double ratio = (m.run.elapsed_s + m.run.remaining_s * m.slow_now + m.delay_s(own_s)) / run_s;
        made.worst_delay = std::max(made.worst_delay, m.delay_s(own_s) / run_s);
        if (ratio <= made.worst_finish)
            continue;
        made.worst_finish = ratio;
        made.worst_job = m.id;
    }
    made.own_finish_s = finish(own_s, made);
    made.score = score(own_gpus, made);
    std::sort(made.joins.begin(), made.joins.end());
    return made;
}

/// Beside the residents until they end, then alone.
double Predictor::finish(double own_s, const Prediction &made) const
{
    double together_s = 0;
    for (const Member &m : members_)
        together_s = std::max(together_s, m.together_s(own_s));
    return together_s + std::max(0.0, own_run_s_ - together_s / made.own_slowdown);
}

/// scheduling-study 7: the newcomer's win over waiting, less what the residents lose, plus what is saved for
/// the queue.
double Predictor::score(double own_gpus, const Prediction &made) const
{
    if (job_.wait_s < 0 || own_run_s_ >= kForever_s)
        return 0;
    const double own_s = own_run_s_ * made.own_slowdown;
    double delays_s = 0, lost_gpu_s = 0, together_s = 0;
    for (const Member &m : members_) {
        const double delay_s = m.delay_s(own_s);
        together_s = std::max(together_s, m.together_s(own_s));
        delays_s += delay_s;
        lost_gpu_s += m.gpus * delay_s;
    }
    const double alone_s = made.own_finish_s - together_s;
    const double saved_gpu_s = own_gpus * (own_run_s_ - alone_s) - lost_gpu_s;
    return job_.wait_s + own_run_s_ - made.own_finish_s - kDelayWeight * delays_s + job_.queue_per_gpu * saved_gpu_s;
}

} // namespace jigsaw::core
