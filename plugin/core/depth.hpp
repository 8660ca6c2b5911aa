// SPDX-License-Identifier: Apache-2.0
// Phases of co-located jobs, so that their loads complement each other on every GPU. Pure; docs/protocol.md
// "Agreement".
#ifndef JIGSAW_CORE_DEPTH_HPP
#define JIGSAW_CORE_DEPTH_HPP

#include "plugin/core/job.hpp"

#include <cstdint>
#include <vector>

namespace jigsaw::core {

/// A job of a group as one node's jigsawd knows it. Jobs advance iteration by iteration with their rivals
/// (least normalised progress), so the difference of their iteration counters is what phases must meet.
struct GroupJob {
    JobId id = 0;
    std::uint32_t world_size = 1;
    std::vector<int> gpu_of_rank; ///< numbered alike for all jobs of the group; -1: elsewhere or unknown
    std::uint64_t iteration = 0; ///< it is in
    plan::Directive directive;   ///< agreed; of the job to be placed: policy, levels, full_workers wanted
    bool younger = false; ///< than the job to be placed: it follows that job's phase, never the other way round
    double forward_ms = 1;
    std::vector<double> backward_ms_of_level; ///< [l-1]; same length as directive.levels
};

struct PhaseChoice {
    std::int32_t phase = 0;
    std::int32_t direction = 1;
    double cycle_ms = 0; ///< predicted long-run mean time of one iteration of all jobs of the group
    double worst_ms = 0; ///< worst single iteration
};

/// Phase and direction of `job` against the older of `others`, whose directives stay, reckoning with the younger ones that
/// will choose theirs after it: least mean over
/// iterations of the busiest GPU's load, ties by the worst iteration, then the present phase, then the smaller
/// phase. An agreed directive (generation > 0) keeps its phase while that is within 1 % of the best, so that
/// noise in measured times moves nobody. Work-conserving turns average unequal pairs (scheduling-study 3), but
/// a sync barrier every iteration makes the busiest GPU of an iteration count.
PhaseChoice choose_phase(const GroupJob &job, const std::vector<GroupJob> &others);

/// Does partial depth pay for this group? (rate with SPB)/q > rate without. q: extra iterations to equal
/// quality, >= 1. The rate is that of the GPU with the largest mean load, not of the busiest GPU of each
/// iteration: else two jobs at full depth would each wait for the other to begin.
bool depth_pays(const GroupJob &job, const std::vector<GroupJob> &others, const PhaseChoice &choice, double q);

/// The wanted directive for a job: full depth while it is alone, in warm-up, in mode full or where partial
/// depth frees nothing; else policy, levels, full_workers not below `min_full_workers` and not below the floor
/// min_depth_fraction (rotating roles go deeper by fewer levels). A request of uniform is followed alone too. `others`: every job of the group, the younger
/// ones marked.
plan::Directive wanted_directive(const SpbRequest &request, const GroupJob &job,
                                 const std::vector<GroupJob> &others, std::uint32_t min_full_workers,
                                 std::uint64_t generation);

} // namespace jigsaw::core
#endif
