// SPDX-License-Identifier: Apache-2.0
// The policies by name. Each stands in a file of its own, policy_X.cpp, which says where its rule comes from.
#ifndef JIGSAW_SIM_POLICY_HPP
#define JIGSAW_SIM_POLICY_HPP

#include "plugin/core/placement.hpp"
#include "plugin/sim/queueing.hpp"
#include "plugin/sim/replan.hpp"

#include <string>
#include <vector>

namespace jigsaw::sim {

/// What every policy of a run is told.
struct PolicySettings {
    RunOptions run;
    SharingCosts costs;
    RestartRule restart = RestartRule::on_start;
    bool knows_remaining = true; ///< preemptive policies: the remaining time is known, not only the attained service
    int max_sharing = kMaxSharing; ///< jobs on a GPU
    double pay = 0.5;
    int join_tests = 30; ///< waiting jobs asked after an event whether they may join, at most
};

struct Policy {
    const char *name;
    bool preempt;
    const char *summary; ///< one line, with its source
    Outcome (*run)(const Workload &workload, const PolicySettings &settings);
};

extern const Policy kFifo, kBackfill, kSrtf, kSrtfStay, kSrsf, kSrsfStay, kLas, kPacking, kMuri, kShare, kSharePreempt,
    kJigsaw, kJigsawPreempt;

/// All of them: those where jobs stay first.
const std::vector<const Policy *> &all_policies();
/// "share" is where jobs stay, "share/preempt" where they do not; of policies with one regime the suffix is optional.
/// Throws InputError with the names there are.
const Policy &find_policy(const std::string &name);
/// "name/preempt" or "name/stay".
std::string full_name(const Policy &policy);

/// Shared by policy_srtf.cpp and policy_srsf.cpp: the shortest first, whoever fits runs.
enum class ShortestBy { time, gpu_time };
Outcome run_shortest_first(const Workload &workload, const PolicySettings &settings, ShortestBy by);
/// Shared by policy_share.cpp and policy_jigsaw.cpp.
Outcome run_share_preemptive(const Workload &workload, const PolicySettings &settings, bool partial_depth);
Outcome run_share_staying(const Workload &workload, const PolicySettings &settings, bool partial_depth);

} // namespace jigsaw::sim
#endif
