// SPDX-License-Identifier: Apache-2.0
// EASY backfill (Lifka, JSSPP 1995; Slurm's sched/backfill with one reservation): the head of the queue gets a
// reservation by the time limits of what runs, and others start before it where they do not delay it.
#include "plugin/sim/policy.hpp"

namespace jigsaw::sim {

namespace {

Outcome run(const Workload &workload, const PolicySettings &settings)
{
    return run_queueing(workload, settings, QueueOptions{});
}

} // namespace

const Policy kBackfill = {"backfill", false, "EASY backfill by time limits (Slurm's sched/backfill)", run};

} // namespace jigsaw::sim
