// SPDX-License-Identifier: Apache-2.0
// First come, first served: nobody overtakes (Slurm's sched/builtin).
#include "plugin/sim/policy.hpp"

namespace jigsaw::sim {

namespace {

Outcome run(const Workload &workload, const PolicySettings &settings)
{
    QueueOptions options;
    options.backfill = false;
    return run_queueing(workload, settings, options);
}

} // namespace

const Policy kFifo = {"fifo", false, "first come, first served (Slurm's sched/builtin)", run};

} // namespace jigsaw::sim
