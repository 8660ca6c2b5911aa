// SPDX-License-Identifier: Apache-2.0
// Figures of a run. p99 is sorted[int(0.99 n)], as the peer counts it.
#include "plugin/sim/outcome.hpp"

#include <algorithm>
#include <numeric>

namespace jigsaw::sim {

namespace {

constexpr double kFairEnough = 1.1, kShortRun_s = 600; // Themis' line; runs shorter than 10 minutes wait at no cost
constexpr double kSlower = 1.1, kSlower_s = 60;

template <typename Number> double quantile(std::vector<Number> values, double share)
{
    if (values.empty())
        return 0;
    const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size()));
    const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::min(at, values.size() - 1));
    std::nth_element(values.begin(), nth, values.end());
    return *nth;
}

/// Integral of the number of unfinished jobs over time.
class Crowd {
  public:
    Crowd(const Workload &workload, const Outcome &outcome)
    {
        std::vector<std::pair<double, int>> steps;
        for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
            steps.emplace_back(workload.jobs[i].submit_s, 1);
            steps.emplace_back(outcome.jobs[i].end_s, -1);
        }
        std::sort(steps.begin(), steps.end());
        double area = 0, last_s = steps.empty() ? 0 : steps.front().first;
        int present = 0;
        for (const auto &[at_s, change] : steps) {
            area += present * (at_s - last_s);
            last_s = at_s;
            present += change;
            times_.push_back(at_s);
            areas_.push_back(area);
        }
    }

    double mean(double from_s, double to_s) const
    {
        return to_s > from_s ? (area(to_s) - area(from_s)) / (to_s - from_s) : 1;
    }

  private:
    double area(double at_s) const
    {
        const auto next = std::upper_bound(times_.begin(), times_.end(), at_s);
        return next == times_.begin() ? 0 : areas_[static_cast<std::size_t>(next - times_.begin()) - 1];
    }

    std::vector<double> times_, areas_;
};

void add_fairness(Figures *figures, const Workload &workload, const ClusterShape &cluster, const Outcome &outcome)
{
    const Crowd crowd(workload, outcome);
    const auto count = static_cast<double>(workload.jobs.size());
    for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
        const Job &job = workload.jobs[i];
        const double jct_s = outcome.jobs[i].end_s - job.submit_s;
        const double rivals = crowd.mean(job.submit_s, outcome.jobs[i].end_s) * workload.gpus_of(job) / cluster.gpus();
        const double fair_s = job.isolated_s() * std::max(1.0, rivals), rho = jct_s / fair_s;
        figures->rho_worst = std::max(figures->rho_worst, rho);
        figures->rho_mean += rho / count;
        figures->rho_above_fraction += (rho > kFairEnough ? 1 : 0) / count;
        figures->rho_bounded_mean += std::max(1.0, jct_s / std::max(kShortRun_s, fair_s)) / count;
    }
}

void add_comparison(Figures *figures, const Workload &workload, const Outcome &outcome, const Outcome &baseline)
{
    std::size_t slower = 0;
    figures->has_baseline = true;
    for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
        const double jct_s = outcome.jobs[i].end_s - workload.jobs[i].submit_s;
        const double base_s = baseline.jobs[i].end_s - workload.jobs[i].submit_s;
        slower += jct_s > base_s * kSlower && jct_s > base_s + kSlower_s;
        figures->worst_ratio = std::max(figures->worst_ratio, jct_s / base_s);
    }
    figures->slower_fraction = static_cast<double>(slower) / static_cast<double>(workload.jobs.size());
}

} // namespace

Figures figures_of(const Workload &workload, const ClusterShape &cluster, const Outcome &outcome,
                   const Outcome *baseline)
{
    Figures figures;
    figures.jobs = workload.jobs.size();
    if (workload.jobs.empty())
        return figures;
    std::vector<double> jcts;
    double work_gpu_s = 0, wait_s = 0;
    for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
        const Job &job = workload.jobs[i];
        jcts.push_back(outcome.jobs[i].end_s - job.submit_s);
        wait_s += outcome.jobs[i].start_s - job.submit_s;
        figures.makespan_s = std::max(figures.makespan_s, outcome.jobs[i].end_s - workload.jobs.front().submit_s);
        work_gpu_s += job.isolated_s() * workload.gpus_of(job);
    }
    const auto count = static_cast<double>(jcts.size());
    figures.avg_jct_s = std::accumulate(jcts.begin(), jcts.end(), 0.0) / count;
    figures.avg_wait_s = wait_s / count;
    figures.p50_jct_s = quantile(jcts, 0.5);
    figures.p99_jct_s = quantile(jcts, 0.99);
    figures.utilisation = figures.makespan_s > 0 ? work_gpu_s / (figures.makespan_s * cluster.gpus()) : 0;
    add_fairness(&figures, workload, cluster, outcome);
    figures.decision_ms_p50 = quantile(outcome.decision_ms, 0.5);
    figures.decision_ms_p99 = quantile(outcome.decision_ms, 0.99);
    figures.wall_s = outcome.wall_s;
    if (baseline)
        add_comparison(&figures, workload, outcome, *baseline);
    return figures;
}

} // namespace jigsaw::sim
