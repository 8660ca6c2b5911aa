// SPDX-License-Identifier: Apache-2.0
// The regime of Slurm and of the plugin: a queue whose order Slurm keeps, one reservation for its head, backfill behind
// it (EASY: Lifka 1995); a job stays where it was put. With sharing, plugin/core says whom a job may join.
#ifndef JIGSAW_SIM_QUEUEING_HPP
#define JIGSAW_SIM_QUEUEING_HPP

#include "plugin/sim/cycle.hpp"
#include "plugin/sim/outcome.hpp"

#include <functional>

namespace jigsaw::sim {

struct PolicySettings;

struct QueueOptions {
    bool backfill = true;
    bool share = false, partial_depth = false;
    /// Smaller first; empty: order of arrival.
    std::function<double(const Job &job)> order;
    int most_tested = 100; ///< waiting jobs looked at after an event, as Slurm's bf_max_job_test
    int most_joins = 30;   ///< of these, asked whether they may join
};

Outcome run_queueing(const Workload &workload, const PolicySettings &settings, const QueueOptions &options);

} // namespace jigsaw::sim
#endif
