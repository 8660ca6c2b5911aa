// SPDX-License-Identifier: Apache-2.0
// The few operations over all ranks that a training program needs beside its gradients. Every rank calls them in the
// same order with the same sizes; `sequence` counts those calls (its number must be equal on all ranks).
// Cost: broadcast sends (k-1) B from the root; mean sends (k-1) B from every rank, one step.
#ifndef JIGSAW_COLLECTIVE_OPS_HPP
#define JIGSAW_COLLECTIVE_OPS_HPP

#include "runtime/collective/collective.hpp"

namespace jigsaw::collective {

/// Copies data[bytes] of `root` to all ranks.
void broadcast(Collective &world, void *data, std::size_t bytes, int root, std::uint64_t sequence,
               std::chrono::milliseconds timeout);

/// Mean of data[count] over all ranks, summed in rank order and divided by their number: same bits on every rank.
void mean(Collective &world, double *data, std::size_t count, std::uint64_t sequence,
          std::chrono::milliseconds timeout);

/// Returns when every rank has called it.
void barrier(Collective &world, std::uint64_t sequence, std::chrono::milliseconds timeout);

} // namespace jigsaw::collective
#endif
