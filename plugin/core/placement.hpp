// SPDX-License-Identifier: Apache-2.0
// Which GPUs a job may join, best first. Pure: the caller passes time and occupancy, and asks Slurm whether an
// offer fits everything that is Slurm's (cores, memory, features, reservations). Rules: docs/protocol.md,
// docs/decisions.
#ifndef JIGSAW_CORE_PLACEMENT_HPP
#define JIGSAW_CORE_PLACEMENT_HPP

#include "plugin/core/cluster.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::core {

enum class SharingScope { user, account, any };

/// What the site allows for one job (merged from its partition, QOS and account).
struct SharingPolicy : SharingCosts {
    bool enabled = true;
    std::uint32_t max_jobs_per_gpu = 2;
    SharingScope scope = SharingScope::user;
    std::uint64_t context_bytes = 0;        ///< per resident and GPU: context, NCCL buffers
    double memory_headroom = 0.05;          ///< fraction of the GPU kept free
    std::uint64_t default_memory_bytes = 0; ///< claim of a job that states none and has no profile; 0: it does
                                            ///< not share where GPU memory is configured
    double pay = 0.5;                       ///< no resident's predicted finish beyond (1 + pay) of its isolated run
    double max_turn_ratio = 4;              ///< refuse pairs whose turns differ more
    std::uint32_t max_offers = 16;          ///< candidates handed back
    double least_gain = 0.3;   ///< capacity gate: what a join adds at least, of the newcomer's GPUs (study 7)
    double unknown_run_s = 0;  ///< taken for a newcomer without a time limit; 0: it stays for ever
    bool pack = false; ///< join even while idle GPUs fit: keeps them for jobs that do not share
};

struct PlacementRequest {
    JobId id = 0;
    std::uint32_t uid = 0;
    std::string account;
    SpbRequest spb;
    Profile profile;
    std::uint32_t gpus_per_node = 1; ///< least number on each node of an offer
    std::uint32_t nodes = 1;         ///< least number of nodes
    std::string gpu_type;            ///< "": any
    std::vector<bool> allowed_nodes; ///< [node]; empty: all
    std::int64_t now_s = 0;
    std::int64_t time_limit_s = 0;
    double run_s = 0;         ///< expected isolated run, from earlier runs; 0: not known, the time limit is taken
    double waited_s = 0;      ///< it has waited already
    double wait_s = -1;       ///< expected wait for GPUs of its own; negative: unknown, waiting is not weighed
    double queue_per_gpu = 0; ///< waiting jobs per GPU of the cluster: what a saved GPU-second is worth to others
};

/// GPUs that may look free to the job. `where` lists, per node, every GPU the job may take (idle ones and
/// joinable ones of this offer); Slurm picks among them.
struct Offer {
    enum class Kind { exact_gang, subset, mixed, idle } kind = Kind::idle;
    std::vector<NodeGpus> where;
    std::vector<JobId> joins; ///< residents it would share with
    double gain = 0;          ///< predicted gain in GPU rate; larger is better
    double score = 0;         ///< seconds won over waiting, all jobs together; only where a wait was given
};

/// Why nothing better was offered: names the GPU, the number and the remedy. One line, at most 200 characters.
struct Refusal {
    std::string text;
};

struct Offers {
    /// Best first: exact gangs, then subsets and mixed sets, by gain within a kind; where an expected wait was
    /// given, joins of known profile by score instead, whatever their kind. The idle offer (all idle
    /// GPUs that fit, at most one offer) stands before the first joining offer that gains less than it: a job
    /// is only sent to a GPU in use while idle ones fit when that costs nobody anything, or when the site
    /// packs.
    std::vector<Offer> offers;
    Refusal refusal;            ///< of the last candidate turned down, even when there are offers; may be empty
    std::uint32_t examined = 0; ///< candidates looked at: what the decision cost
};

/// Offers for a sharing job. A job that does not share needs none: only idle GPUs are its own.
Offers find_offers(const Cluster &cluster, const PlacementRequest &job, const SharingPolicy &policy);

/// May these two ever sit on one GPU (both agreed, scope, K)? Empty: yes; else why not.
std::string why_not_together(const PlacementRequest &job, const Resident &resident, const SharingPolicy &policy);

} // namespace jigsaw::core
#endif
