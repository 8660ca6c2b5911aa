// SPDX-License-Identifier: GPL-2.0-or-later
// From what slurmctld's records say of a job to core's values. None of Slurm's headers: requests.cpp reads the records,
// here is what is made of them, so that a test can hold it against core without a controller.
#ifndef JIGSAW_SELECT_FACTS_HPP
#define JIGSAW_SELECT_FACTS_HPP

#include "plugin/core/placement.hpp"
#include "plugin/select/profiles.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::select {

struct JobFacts {
    core::JobId id = 0;
    std::uint32_t uid = 0;
    std::string account, partition, qos;
    bool shares = false;                  ///< its policy lets it, and it asked for GPUs
    core::SpbRequest spb;
    std::string admin_comment;
    std::int64_t start_s = 0, eligible_s = 0; ///< since 1970; 0: not yet
    std::int64_t time_limit_s = 0;        ///< 0: none
};

/// What is known of the job's costs: measured in this run, else in earlier ones under its key.
core::Profile known_profile(const JobFacts &facts, const ProfileStore &store);
/// A running job on these GPUs.
core::Resident resident_of(const JobFacts &facts, const ProfileStore &store, std::vector<core::NodeGpus> where);
/// A pending job; which GPUs and nodes it wants is the caller's to add.
core::PlacementRequest request_of(const JobFacts &facts, const ProfileStore &store, std::int64_t now_s);

} // namespace jigsaw::select
#endif
