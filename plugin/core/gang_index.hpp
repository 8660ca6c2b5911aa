// SPDX-License-Identifier: Apache-2.0
// Sharing jobs sorted by what a newcomer looks for: few residents first, then shape, length of turns, free
// memory. Kept by Cluster; for every scope of sharing (anyone, one user, one account) its own table, so that no
// scope is scanned.
#ifndef JIGSAW_CORE_GANG_INDEX_HPP
#define JIGSAW_CORE_GANG_INDEX_HPP

#include "plugin/core/load.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace jigsaw::core {

/// GPU indices on one node.
struct NodeGpus {
    int node = -1;
    std::vector<int> gpus; ///< ascending

    bool operator==(const NodeGpus &other) const { return node == other.node && gpus == other.gpus; }
};

/// A job that holds GPUs.
struct Resident {
    JobId id = 0;
    std::uint32_t uid = 0;
    std::string account, partition, qos;
    SpbRequest spb;
    Profile profile;
    std::int64_t start_s = 0;      ///< wall clock of the start
    std::int64_t time_limit_s = 0; ///< 0: none
    std::vector<NodeGpus> where;   ///< ascending by node
    double done_s = -1;            ///< isolated seconds of work measured at done_at_s; negative: not measured
    std::int64_t done_at_s = 0;
    double total_s = 0; ///< isolated seconds of the whole run, from measured progress; 0: unknown
    Load load;          ///< Cluster fills it in
};

/// Jobs that look alike to a newcomer.
struct GangClass {
    std::uint32_t residents = 0; ///< most on any of its GPUs, itself counted
    std::uint32_t nodes = 0;
    std::uint32_t gpus_per_node = 0; ///< the least on any of its nodes
    int turn_class = 0;              ///< turn_class_of() its full turn

    bool operator<(const GangClass &other) const { return tie() < other.tie(); }
    bool operator==(const GangClass &other) const { return tie() == other.tie(); }

  private:
    std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, int> tie() const
    {
        return {residents, nodes, gpus_per_node, turn_class};
    }
};

constexpr int kUnknownTurn = -1000; ///< turn class of a job without a profile

/// floor(log2(full turn in ms)); two classes that are d apart hold turns that differ by more than 2^(d-1).
int turn_class_of(const Profile &profile);

class GangIndex {
  public:
    /// Most free memory first (negated: sets ascend), then the lower job id.
    using Members = std::set<std::pair<std::int64_t, JobId>>;
    using Classes = std::map<GangClass, Members>;

    /// Files the job under its class, in place of an older entry. Jobs that do not share are not filed.
    void put(const Resident &job, const GangClass &where, std::uint64_t free_bytes);
    void erase(JobId id);
    void clear();
    /// The class a job is filed under; nullptr: none.
    const GangClass *find(JobId id) const;
    std::size_t size() const { return entries_.size(); }

    const Classes &of_anyone() const { return anyone_; }
    const Classes &of_user(std::uint32_t uid) const;
    const Classes &of_account(const std::string &account) const;

  private:
    struct Entry {
        GangClass where;
        std::pair<std::int64_t, JobId> member;
        std::uint32_t uid = 0;
        std::string account;
    };

    Classes anyone_;
    std::unordered_map<std::uint32_t, Classes> users_;
    std::unordered_map<std::string, Classes> accounts_;
    std::unordered_map<JobId, Entry> entries_;
};

} // namespace jigsaw::core
#endif
