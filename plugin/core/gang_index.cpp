// SPDX-License-Identifier: Apache-2.0
// Sharing jobs by class; see gang_index.hpp.
#include "plugin/core/gang_index.hpp"

#include <cmath>

namespace jigsaw::core {

namespace {

const GangIndex::Classes kNobody;

void drop(GangIndex::Classes &classes, const GangClass &where, const std::pair<std::int64_t, JobId> &member)
{
    const auto at = classes.find(where);
    if (at == classes.end())
        return;
    at->second.erase(member);
    if (at->second.empty())
        classes.erase(at);
}

/// Drops a member from one owner's table, and the table when it was the last.
template <typename Tables, typename Owner> void drop_owned(Tables &tables, const Owner &owner,
                                                           const GangClass &where,
                                                           const std::pair<std::int64_t, JobId> &member)
{
    const auto at = tables.find(owner);
    if (at == tables.end())
        return;
    drop(at->second, where, member);
    if (at->second.empty())
        tables.erase(at);
}

} // namespace

int turn_class_of(const Profile &profile)
{
    const double turn_ms = profile.full_turn_ms();
    return profile.known() && turn_ms > 0 ? static_cast<int>(std::floor(std::log2(turn_ms))) : kUnknownTurn;
}

void GangIndex::put(const Resident &job, const GangClass &where, std::uint64_t free_bytes)
{
    erase(job.id);
    if (!job.spb.shares())
        return;
    const std::pair<std::int64_t, JobId> member{-static_cast<std::int64_t>(free_bytes), job.id};
    anyone_[where].insert(member);
    users_[job.uid][where].insert(member);
    accounts_[job.account][where].insert(member);
    entries_[job.id] = Entry{where, member, job.uid, job.account};
}

void GangIndex::erase(JobId id)
{
    const auto at = entries_.find(id);
    if (at == entries_.end())
        return;
    const Entry &entry = at->second;
    drop(anyone_, entry.where, entry.member);
    drop_owned(users_, entry.uid, entry.where, entry.member);
    drop_owned(accounts_, entry.account, entry.where, entry.member);
    entries_.erase(at);
}

void GangIndex::clear()
{
    anyone_.clear();
    users_.clear();
    accounts_.clear();
    entries_.clear();
}

const GangClass *GangIndex::find(JobId id) const
{
    const auto at = entries_.find(id);
    return at == entries_.end() ? nullptr : &at->second.where;
}

const GangIndex::Classes &GangIndex::of_user(std::uint32_t uid) const
{
    const auto at = users_.find(uid);
    return at == users_.end() ? kNobody : at->second;
}

const GangIndex::Classes &GangIndex::of_account(const std::string &account) const
{
    const auto at = accounts_.find(account);
    return at == accounts_.end() ? kNobody : at->second;
}

} // namespace jigsaw::core
