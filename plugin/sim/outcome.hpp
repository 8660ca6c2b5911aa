// SPDX-License-Identifier: Apache-2.0
// What a run leaves behind, and the figures made of it.
#ifndef JIGSAW_SIM_OUTCOME_HPP
#define JIGSAW_SIM_OUTCOME_HPP

#include "plugin/sim/workload.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace jigsaw::sim {

struct JobOutcome {
    double start_s = -1; ///< first start; -1: never
    double end_s = -1;
    std::uint32_t restarts = 0;
    std::uint32_t most_sharing = 1; ///< jobs on a GPU of it, itself counted
};

/// A stretch of time in which a GPU held the same jobs; for pictures.
struct GpuSpan {
    double begin_s = 0, end_s = 0;
    int node = 0, gpu = 0;
    std::vector<int> jobs;
    bool partial = false;
};

/// Cluster as a whole, from `at_s` until the next sample.
struct Sample {
    double at_s = 0;
    int busy_gpus = 0, waiting_jobs = 0, running_jobs = 0;
    double work_rate = 0; ///< GPU-seconds of isolated work done in a second
};

struct Outcome {
    std::vector<JobOutcome> jobs; ///< as in the workload
    std::vector<float> decision_ms;
    std::vector<Sample> samples;  ///< where asked for
    std::vector<GpuSpan> spans;   ///< where asked for, and jobs stay on their GPUs
    double wall_s = 0;
    std::uint64_t events = 0, joins = 0;
};

/// What a run tells while it goes on: jobs done of all.
using ProgressHook = std::function<void(std::size_t done, std::size_t all)>;

struct RunOptions {
    ClusterShape cluster;
    bool keep_samples = false, keep_spans = false;
    ProgressHook progress;
};

struct Figures {
    std::size_t jobs = 0;
    double avg_jct_s = 0, p50_jct_s = 0, p99_jct_s = 0, makespan_s = 0;
    double avg_wait_s = 0;
    /// Finish-time fairness: run time over isolated time times the number of jobs that wanted each GPU meanwhile.
    double rho_worst = 0, rho_mean = 0, rho_above_fraction = 0; ///< above 1.1
    double rho_bounded_mean = 0;                                ///< at least 600 s below the line, at least 1
    double utilisation = 0; ///< isolated work done over GPU-seconds until the last end
    double decision_ms_p50 = 0, decision_ms_p99 = 0, wall_s = 0;
    bool has_baseline = false;
    double slower_fraction = 0; ///< more than 10 % and a minute slower than in the baseline
    double worst_ratio = 0;     ///< of a job's time to its time in the baseline
};

/// `baseline`: the same jobs under backfill; nullptr: not compared.
Figures figures_of(const Workload &workload, const ClusterShape &cluster, const Outcome &outcome,
                   const Outcome *baseline);

} // namespace jigsaw::sim
#endif
