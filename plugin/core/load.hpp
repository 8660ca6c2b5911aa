// SPDX-License-Identifier: Apache-2.0
// What a job asks of the resources around a GPU, and by how much jobs that share one slow each other: the turn
// model of the scheduling study (sections 2 and 7).
#ifndef JIGSAW_CORE_LOAD_HPP
#define JIGSAW_CORE_LOAD_HPP

#include "plugin/core/job.hpp"

#include <cstdint>
#include <vector>

namespace jigsaw::core {

/// Shares of the job's isolated iteration.
struct Load {
    bool known = false;
    bool partial = false;                        ///< it may run at partial depth, and that frees GPU time
    double gpu = 1, network = 0;                 ///< at full depth; without a profile: busy all the time
    double gpu_partial = 1, network_partial = 0; ///< mean over iterations at the depth it may run at
    double host = 0;                             ///< CPU and input: both overlap with others' turns
};

/// `workers`: GPUs of the job, one rank on each.
Load load_of(const SpbRequest &spb, const Profile &profile, std::uint32_t workers);

/// Share of the full synchronisation's bytes that is sent at the depth the request allows: a block that m of
/// `workers` ranks computed costs (m + workers - 2) instead of 2 (workers - 1) (docs/architecture.md, "Costs").
double partial_sync_share(const SpbRequest &spb, const Profile &profile, std::uint32_t workers);

/// What the site knows of shared GPUs.
struct SharingCosts {
    double share_slowdown = 1.05;           ///< of a shared GPU beyond the sum of its loads
    std::vector<double> share_slowdown_of;  ///< the same by number of jobs, [k-1]; empty or short: the one above
    double extra_iterations = 1;            ///< q: what partial depth costs in iterations, >= 1

    double of(std::size_t jobs) const;
};

struct Slowdown {
    double factor = 1;        ///< of everybody on the GPU
    bool interlocked = false; ///< partial depth is the better choice, and everybody there may use it
};

/// The jobs of one GPU, added one by one.
class LoadSum {
  public:
    void add(const Load &load);
    Slowdown slowdown(const SharingCosts &costs) const;

  private:
    std::size_t jobs_ = 0;
    bool all_partial_ = true;
    double gpu_ = 0, gpu_partial_ = 0, network_ = 0, network_partial_ = 0, host_ = 0;
};

} // namespace jigsaw::core
#endif
