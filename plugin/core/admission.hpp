// SPDX-License-Identifier: Apache-2.0
// May a job sit on a GPU, whatever it would gain? Who agreed, how many, how much memory, how long the turns.
// Every refusal is a sentence with GPU, number and remedy.
#ifndef JIGSAW_CORE_ADMISSION_HPP
#define JIGSAW_CORE_ADMISSION_HPP

#include "plugin/core/placement.hpp"

#include <string>
#include <vector>

namespace jigsaw::core {

class Admission {
  public:
    Admission(const Cluster &cluster, const PlacementRequest &job, const SharingPolicy &policy)
        : cluster_(cluster), job_(job), policy_(policy)
    {
    }

    /// May the job take this GPU, idle or not?
    bool admits(int node, int gpu) const { return judge(node, gpu).reason == Reason::none; }
    /// All of these? GPUs that look like the one before are judged once.
    bool admits(const NodeGpus &place) const;
    /// Those of `gpus` that it may take.
    std::vector<int> admitted(int node, const std::vector<int> &gpus) const;
    /// Empty when it may take all of them; else why not, for the first that it may not take and those like it.
    std::string why_not(const NodeGpus &place) const;
    /// Room for `node` in the job's list of nodes.
    bool node_allowed(int node) const;

  private:
    enum class Reason { none, other_type, own, stranger, full, no_claim, memory, turns };
    struct Verdict {
        Reason reason = Reason::none;
        JobId job = 0; ///< the resident in the way

        bool operator==(const Verdict &other) const { return reason == other.reason && job == other.job; }
    };

    const Gpu &gpu(int node, int index) const
    {
        return cluster_.node(node).gpus.at(static_cast<std::size_t>(index));
    }
    Verdict judge(int node, int index) const;
    Verdict judge_memory(const Gpu &gpu) const;
    bool turns_fit(const Resident &resident) const;
    std::uint32_t limit_of(const Gpu &gpu) const;
    std::uint32_t agreed_limit(const Gpu &gpu) const;
    std::string explain_full(const Gpu &gpu, const std::string &place) const;
    const Resident *without_profile(const Gpu &gpu) const;
    std::uint64_t claim_of(const SpbRequest &spb, const Profile &profile) const;
    std::uint64_t taken_bytes(const Gpu &gpu) const;
    std::string explain(const Verdict &verdict, const Gpu &gpu, const std::string &place) const;
    std::string explain_memory(const Gpu &gpu, const std::string &place) const;

    const Cluster &cluster_;
    const PlacementRequest &job_;
    const SharingPolicy &policy_;
};

/// "n1 gpu 0-3,6".
std::string name_of(const Cluster &cluster, const NodeGpus &place);
/// "job 42", "jobs 42, 57 and 3 more".
std::string name_of(const std::vector<JobId> &jobs);
/// A number with `digits` after the point.
std::string decimal(double value, int digits);

} // namespace jigsaw::core
#endif
