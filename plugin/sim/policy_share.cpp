// SPDX-License-Identifier: Apache-2.0
// `share`: JigSaw with depth fixed at full, so that only its interleaving counts. Where jobs stay: the queue's order is
// Slurm's, and plugin/core says whom a job may join. With preemption (in the simulator only; Slurm moves no job): our
// algorithm of scheduling-study 2 and 7 - shortest remaining service first, up to K jobs admitted per place, merged in
// rounds by the sum of their rates while the demand exceeds the GPUs, members swapped while that serves short jobs.
#include "plugin/sim/grouping.hpp"
#include "plugin/sim/policy.hpp"

#include <algorithm>
#include <cmath>

namespace jigsaw::sim {

namespace {

constexpr int kRounds = 4, kSweeps = 3;
constexpr int kLook = 32;            // bundles a bundle is tried with
constexpr int kSwapPairs = 4096;     // pairs tried per sweep at most: keeps a decision short on large clusters
constexpr double kWeightPower = 0.1; // weights of jobs are almost equal: groups that drain the queue count most
constexpr double kGainNeeded = 0.25; // beta: of the way from "no gain" to the gain of k jobs that hide each other
constexpr double kNewJob_s = 3600;   // service a job is thought to need that has just begun, when nothing is known

class SharePreemptive : public ReplanPolicy {
  public:
    SharePreemptive(const ReplanView &view, const PolicySettings &settings)
        : view_(view), settings_(settings), grouping_(view, settings.max_sharing), rank_(view.workload.jobs.size()),
          weight_(view.workload.jobs.size())
    {
    }

    void arrive(int job) override { order_.push_back(job); }
    void leave(int job) override { order_.erase(std::find(order_.begin(), order_.end(), job)); }

    void plan(double, std::vector<PlannedGroup> *ret_groups) override
    {
        sort_jobs();
        grouping_.admit(order_, settings_.max_sharing);
        if (grouping_.crowded())
            group();
        grouping_.place(order_, rank_, ret_groups);
    }

  private:
    double expected_s(int job) const
    {
        return settings_.knows_remaining ? std::max(view_.remaining_s(job), 1.0)
                                         : std::max(view_.state(job).attained_s, kNewJob_s);
    }

    void sort_jobs()
    {
        for (const int job : order_) {
            const double expected = expected_s(job);
            rank_[static_cast<std::size_t>(job)] = expected * view_.gpus(job);
            weight_[static_cast<std::size_t>(job)] = std::pow(expected, -kWeightPower);
        }
        std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) {
            return rank_[static_cast<std::size_t>(a)] < rank_[static_cast<std::size_t>(b)];
        });
    }

    void group()
    {
        grouping_.merge(kRounds, kLook, [](const Slowdowns::Group &priced) {
            const double k = priced.count;
            const double needed = 1 + kGainNeeded * (2 * k / (k + 1) - 1);
            return priced.rate_sum > needed ? priced.rate_sum : 0;
        });
        const int look = kSwapPairs / std::max(1, static_cast<int>(grouping_.bundles()));
        grouping_.improve(kSweeps, std::clamp(look, 1, kLook), weight_);
    }

    const ReplanView &view_;
    const PolicySettings &settings_;
    Grouping grouping_;
    std::vector<int> order_;
    std::vector<double> rank_, weight_; ///< [job]
};

Outcome run(const Workload &workload, const PolicySettings &settings)
{
    return run_share_staying(workload, settings, false);
}

Outcome run_preemptive(const Workload &workload, const PolicySettings &settings)
{
    return run_share_preemptive(workload, settings, false);
}

} // namespace

Outcome run_share_preemptive(const Workload &workload, const PolicySettings &settings, bool partial_depth)
{
    const Slowdowns slowdowns(workload, settings.costs, partial_depth);
    return run_replanning(slowdowns, settings.run, settings.restart, [&](const ReplanView &view) {
        return std::make_unique<SharePreemptive>(view, settings);
    });
}

Outcome run_share_staying(const Workload &workload, const PolicySettings &settings, bool partial_depth)
{
    QueueOptions options;
    options.share = true;
    options.partial_depth = partial_depth;
    options.most_joins = settings.join_tests;
    return run_queueing(workload, settings, options);
}

const Policy kShare = {"share", false, "JigSaw at full depth: joining by plugin/core, jobs stay", run};
const Policy kSharePreempt = {"share", true, "JigSaw at full depth, with preemption", run_preemptive};

} // namespace jigsaw::sim
