// SPDX-License-Identifier: Apache-2.0
// Runs and their means.
#include "plugin/sim/experiment.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace jigsaw::sim {

namespace {

/// Fields of which the mean over runs is told.
double Figures::*const kMeans[] = {
    &Figures::avg_jct_s,        &Figures::p50_jct_s,        &Figures::p99_jct_s,   &Figures::makespan_s,
    &Figures::avg_wait_s,       &Figures::rho_worst,        &Figures::rho_mean,    &Figures::rho_above_fraction,
    &Figures::rho_bounded_mean, &Figures::utilisation,      &Figures::wall_s,      &Figures::decision_ms_p50,
    &Figures::decision_ms_p99,  &Figures::slower_fraction,  &Figures::worst_ratio,
};

Outcome backfill_knowing_all(const Workload &workload, PolicySettings settings)
{
    Workload exact = workload;
    set_limits(&exact, 1, 0, 0);
    settings.run.keep_samples = settings.run.keep_spans = false;
    settings.run.progress = {};
    return kBackfill.run(exact, settings);
}

} // namespace

Spread spread_of(const std::vector<double> &values)
{
    Spread made;
    const auto count = static_cast<double>(values.size());
    made.mean = values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / count;
    double squares = 0;
    for (const double value : values)
        squares += (value - made.mean) * (value - made.mean);
    made.sd = values.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
    return made;
}

Workload workload_of_run(const Experiment &experiment, int run)
{
    Workload made = experiment.workload;
    const std::uint64_t seed = experiment.seed + static_cast<std::uint64_t>(run);
    if (experiment.perturb_s > 0)
        perturb(&made, experiment.perturb_s, seed);
    set_limits(&made, experiment.limit_factor, experiment.limit_sigma, seed, experiment.keep_limits);
    return made;
}

Summary run_experiment(const Experiment &experiment, const Policy &policy, const ExperimentProgress &progress)
{
    Summary summary;
    summary.policy = full_name(policy);
    summary.preempt = policy.preempt;
    summary.runs = experiment.runs;
    std::vector<double> averages, p99s, makespans;
    for (int run = 0; run < experiment.runs; ++run) {
        PolicySettings settings = experiment.settings;
        if (progress)
            settings.run.progress = [&](std::size_t done, std::size_t all) { progress(run, done, all); };
        summary.last_workload = workload_of_run(experiment, run);
        Outcome baseline;
        if (experiment.baseline)
            baseline = backfill_knowing_all(summary.last_workload, settings);
        summary.last = policy.run(summary.last_workload, settings);
        const Figures figures = figures_of(summary.last_workload, settings.run.cluster, summary.last,
                                           experiment.baseline ? &baseline : nullptr);
        averages.push_back(figures.avg_jct_s);
        p99s.push_back(figures.p99_jct_s);
        makespans.push_back(figures.makespan_s);
        summary.worst_ratio = std::max(summary.worst_ratio, figures.worst_ratio);
        for (double Figures::*const field : kMeans)
            summary.mean.*field += figures.*field / experiment.runs;
        summary.mean.jobs = figures.jobs;
        summary.mean.has_baseline = figures.has_baseline;
    }
    summary.avg_jct_s = spread_of(averages);
    summary.p99_jct_s = spread_of(p99s);
    summary.makespan_s = spread_of(makespans);
    return summary;
}

} // namespace jigsaw::sim
