// SPDX-License-Identifier: Apache-2.0
// Shortest remaining time first: the classic that knows everything (Schrage 1968), as Tiresias (NSDI 2019) and Muri
// (SIGCOMM 2022) compare with it.
#include "plugin/sim/policy.hpp"

namespace jigsaw::sim {

namespace {

Outcome run(const Workload &workload, const PolicySettings &settings)
{
    return run_shortest_first(workload, settings, ShortestBy::time);
}

Outcome run_staying(const Workload &workload, const PolicySettings &settings)
{
    QueueOptions options;
    options.order = [&](const Job &job) { return job.isolated_s(); };
    return run_queueing(workload, settings, options);
}

} // namespace

const Policy kSrtf = {"srtf", true, "shortest remaining time first (known)", run};
const Policy kSrtfStay = {"srtf", false, "shortest job first (known), with backfill", run_staying};

} // namespace jigsaw::sim
