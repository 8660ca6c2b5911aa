// SPDX-License-Identifier: Apache-2.0
// `jigsaw`: the same as `share`, and jobs on shared GPUs run at partial depth (SPB, arXiv:2111.10672) where that gains
// after its extra iterations.
#include "plugin/sim/policy.hpp"

namespace jigsaw::sim {

namespace {

Outcome run(const Workload &workload, const PolicySettings &settings)
{
    return run_share_staying(workload, settings, true);
}

Outcome run_preemptive(const Workload &workload, const PolicySettings &settings)
{
    return run_share_preemptive(workload, settings, true);
}

} // namespace

const Policy kJigsaw = {"jigsaw", false, "JigSaw: as share, with partial depth where it gains", run};
const Policy kJigsawPreempt = {"jigsaw", true, "JigSaw with preemption", run_preemptive};

} // namespace jigsaw::sim
