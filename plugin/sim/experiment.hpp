// SPDX-License-Identifier: Apache-2.0
// One workload, several policies, several runs with shifted arrivals: means and standard deviations. What jigsaw sim and
// bench/sim both run.
#ifndef JIGSAW_SIM_EXPERIMENT_HPP
#define JIGSAW_SIM_EXPERIMENT_HPP

#include "plugin/sim/policy.hpp"
#include "plugin/sim/trace.hpp"

#include <functional>
#include <string>
#include <vector>

namespace jigsaw::sim {

struct Experiment {
    Workload workload;
    PolicySettings settings;
    int runs = 1;
    double perturb_s = 0; ///< every arrival later by up to this; with one run and 0 the trace is run as it is
    std::uint64_t seed = 1;
    double limit_factor = 5; ///< time limits over true run times
    double limit_sigma = 0;
    bool keep_limits = false; ///< those that the trace has
    bool baseline = true;     ///< compare every job with backfill that knows the true run times
};

struct Spread {
    double mean = 0, sd = 0; ///< of a sample; 0 with one run
};

struct Summary {
    std::string policy; ///< full name
    bool preempt = false;
    int runs = 0;
    Figures mean;
    Spread avg_jct_s, p99_jct_s, makespan_s;
    double worst_ratio = 0; ///< over all runs
    Outcome last;           ///< of the last run, with its workload
    Workload last_workload;
};

/// Called between runs and now and then during one.
using ExperimentProgress = std::function<void(int run, std::size_t done, std::size_t all)>;
Summary run_experiment(const Experiment &experiment, const Policy &policy, const ExperimentProgress &progress = {});

/// The workload of run `run` (0..): arrivals shifted, limits set.
Workload workload_of_run(const Experiment &experiment, int run);
Spread spread_of(const std::vector<double> &values);

} // namespace jigsaw::sim
#endif
