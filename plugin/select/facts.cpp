// SPDX-License-Identifier: GPL-2.0-or-later
// See facts.hpp.
#include "plugin/select/facts.hpp"

#include <algorithm>

namespace jigsaw::select {
namespace {

/// How far the run is, where jigsawd said so in this run and not before a requeue.
void take_progress(core::Resident *resident, const Measured &measured)
{
    if (measured.at_s < resident->start_s || measured.done_s < 0)
        return;
    resident->done_s = measured.done_s;
    resident->done_at_s = measured.at_s;
    const double earlier_s = resident->profile.run_s > measured.done_s ? resident->profile.run_s : 0;
    resident->total_s = measured.left_s >= 0 ? measured.done_s + measured.left_s : earlier_s;
}

} // namespace

core::Profile known_profile(const JobFacts &facts, const ProfileStore &store)
{
    const std::string &key = facts.spb.profile_key;
    const core::Profile earlier = key.empty() ? core::Profile() : store.find(facts.uid, key);
    return merge_profiles(earlier, parse_measured(facts.admin_comment).profile);
}

core::Resident resident_of(const JobFacts &facts, const ProfileStore &store, std::vector<core::NodeGpus> where)
{
    core::Resident resident;
    resident.id = facts.id;
    resident.uid = facts.uid;
    resident.account = facts.account;
    resident.partition = facts.partition;
    resident.qos = facts.qos;
    resident.start_s = facts.start_s;
    resident.time_limit_s = facts.time_limit_s;
    resident.where = std::move(where);
    if (!facts.shares)
        return resident;
    resident.spb = facts.spb;
    resident.profile = known_profile(facts, store);
    const Measured measured = parse_measured(facts.admin_comment);
    if (measured.misbehaving)
        resident.spb.max_share = 1;
    take_progress(&resident, measured);
    return resident;
}

core::PlacementRequest request_of(const JobFacts &facts, const ProfileStore &store, std::int64_t now_s)
{
    core::PlacementRequest request;
    request.id = facts.id;
    request.uid = facts.uid;
    request.account = facts.account;
    request.spb = facts.spb;
    request.profile = known_profile(facts, store);
    request.now_s = now_s;
    request.time_limit_s = facts.time_limit_s;
    request.run_s = request.profile.run_s;
    if (facts.eligible_s > 0)
        request.waited_s = static_cast<double>(std::max<std::int64_t>(0, now_s - facts.eligible_s));
    return request;
}

} // namespace jigsaw::select
