// SPDX-License-Identifier: Apache-2.0
// The scan over the devices of a model-parallel chain, which is what the paper counts n in: every rank holds a stretch of
// the chain, and the tree goes over ranks. Rank 0 holds the seed and the stages next to the loss.
//
//     1. every rank composes its stretch (rank 0 walks it, since it has a vector; the last rank need not)
//     2. up-sweep over ranks, ceil(log2 k) levels: one product, or a vector from rank 0's side, goes to the right
//     3. down-sweep: one vector per pair goes to the left; the right applies what it kept from the way up
//     4. every rank walks its stretch from the gradient in front of it
//
// A product is a matrix per sample (b h^2 values) unless it is diagonal or block-diagonal, a vector b h.
#ifndef JIGSAW_SCAN_DISTRIBUTED_HPP
#define JIGSAW_SCAN_DISTRIBUTED_HPP

#include "runtime/collective/collective.hpp"
#include "runtime/scan/scan.hpp"

#include <chrono>

namespace jigsaw::scan {

struct LevelTraffic {
    bool up = false;
    std::size_t level = 0;
    std::uint64_t bytes_sent = 0; ///< by this rank
};

struct DistributedReport {
    std::vector<LevelTraffic> levels; ///< every level, also those in which this rank had nothing to send
    std::uint64_t multiplications = 0;
};

/// Gradients g in front of this rank's stretch and after each of its stages: for all ranks together one rank's g_0 ... g_n,
/// the borders twice. `stages.seed` counts on rank 0 only; every rank needs at least one stage.
/// Every rank calls it. Throws jigsaw::Error as `world` does, std::invalid_argument as scan_serial does.
template <typename T>
Gradients<T> scan_over_ranks(collective::Collective &world, const Stages<T> &stages, std::chrono::milliseconds timeout,
                             DistributedReport *report = nullptr);

/// ceil(log2 ranks): levels of each sweep.
std::size_t rank_levels(std::size_t ranks);

} // namespace jigsaw::scan
#endif
