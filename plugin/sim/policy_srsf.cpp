// SPDX-License-Identifier: Apache-2.0
// Shortest remaining service first: time left times GPUs (Tiresias, NSDI 2019, section 3; Muri's baseline).
#include "plugin/sim/policy.hpp"

namespace jigsaw::sim {

namespace {

Outcome run(const Workload &workload, const PolicySettings &settings)
{
    return run_shortest_first(workload, settings, ShortestBy::gpu_time);
}

Outcome run_staying(const Workload &workload, const PolicySettings &settings)
{
    QueueOptions options;
    options.order = [&](const Job &job) { return job.isolated_s() * workload.gpus_of(job); };
    return run_queueing(workload, settings, options);
}

} // namespace

const Policy kSrsf = {"srsf", true, "shortest remaining GPU time first (known)", run};
const Policy kSrsfStay = {"srsf", false, "smallest GPU time first (known), with backfill", run_staying};

} // namespace jigsaw::sim
