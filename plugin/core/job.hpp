// SPDX-License-Identifier: Apache-2.0
// What the deciding code knows of a job: what its user asked for and what was measured. Plain values.
#ifndef JIGSAW_CORE_JOB_HPP
#define JIGSAW_CORE_JOB_HPP

#include "runtime/plan/roles.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::core {

using JobId = std::uint32_t;

/// --spb: how a job shares.
enum class SpbMode {
    off,       ///< as if the option were absent: its GPUs are its own
    automatic, ///< shares; levels chosen for it; full depth while alone
    full,      ///< shares, never partial depth
    levels     ///< shares; a stated number of levels
};

/// The user's request, validated (plugin/config/options). Defaults are those of a job that says only --spb.
struct SpbRequest {
    SpbMode mode = SpbMode::off;
    std::uint32_t levels = 0; ///< 0: chosen
    plan::Policy policy = plan::Policy::two_level;
    std::uint64_t warmup_iterations = 0;
    double min_depth_fraction = 0; ///< 0..1, floor of the mean depth fraction
    std::uint32_t max_share = 0;   ///< jobs per GPU this job accepts, itself counted; 0: the site's limit; 1: alone
    std::uint64_t memory_bytes = 0; ///< peak per GPU at full depth; 0: not stated
    double weight = 1;              ///< share of turns
    std::string profile_key;        ///< names earlier runs of the same training

    bool shares() const { return mode != SpbMode::off && max_share != 1; }
};

/// Measured costs of one iteration of one rank, in milliseconds, at full depth unless said.
struct Profile {
    double forward_ms = 0;
    std::vector<double> backward_ms_of_level; ///< [l-1], levels 1..L; the last is full depth; empty: unknown
    double network_ms = 0;                    ///< exposed after compute ends
    double cpu_ms = 0, io_ms = 0;             ///< stages that overlap with others' turns; capacity per node
    double iteration_ms = 0;                  ///< isolated iteration where stages overlap inside the job; 0: their sum
    std::vector<double> sync_share_of_level;  ///< [l-1]: share of the gradients' bytes up to level l; empty: equal parts
    std::uint64_t memory_peak_bytes = 0;      ///< per GPU; 0: unknown
    double run_s = 0; ///< isolated length of the last whole run, in seconds; 0: unknown

    bool known() const { return !backward_ms_of_level.empty(); }
    double full_turn_ms() const { return forward_ms + (known() ? backward_ms_of_level.back() : 0); }
};

/// GPU memory a job must be granted, at full depth: the larger of what it states and what was measured; 0:
/// unknown.
inline std::uint64_t claim_bytes(const SpbRequest &spb, const Profile &profile)
{
    return spb.memory_bytes > profile.memory_peak_bytes ? spb.memory_bytes : profile.memory_peak_bytes;
}

} // namespace jigsaw::core
#endif
