// SPDX-License-Identifier: GPL-2.0-or-later
// What a job's user asked of us and what the site allows it: the --spb options in spank_job_env, which a client wrote,
// and jigsaw.yaml.
#ifndef JIGSAW_SELECT_REQUESTS_HPP
#define JIGSAW_SELECT_REQUESTS_HPP

#include "plugin/select/facts.hpp"
#include "plugin/select/profiles.hpp"
#include "plugin/select/records.hpp"
#include "plugin/select/settings.hpp"

namespace jigsaw::select {

/// The job's request, validated anew. A bad value is no request at all (an exclusive job) and one log line per job.
core::SpbRequest spb_request(const job_record_t *job);

/// Profiles of earlier runs.
ProfileStore &profile_store();
/// What the records say of a job.
JobFacts facts_of(const job_record_t *job);
/// What jigsawd measured of a job that ends serves the next run under the same --spb-profile.
void learn_profile(const job_record_t *job);

/// The policy of the job's partition (the one being tried), QOS and account.
core::SharingPolicy sharing_policy(const job_record_t *job);

/// Does this job share: it asked to, asks for GPUs, not for whole nodes, and its policy is on?
bool job_shares(const job_record_t *job);

/// Remove from the job what a client forged in our name: everything called JIGSAW_* or SPANK_JIGSAW_*, and all options
/// when one of them is bad. For every job, sharing or not, before its prolog can see them.
void strip_forged(job_record_t *job);

/// A running job for core::Cluster.
core::Resident make_resident(job_record_t *job);

/// A pending job for core::find_offers().
core::PlacementRequest make_placement_request(const JobTest &test);

} // namespace jigsaw::select
#endif
