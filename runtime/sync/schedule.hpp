// SPDX-License-Identifier: Apache-2.0
// Who sends which bytes of an iteration to whom: a pure function of the plan, the same on every rank.
//
// A block is cut in pieces (the unit of pipelining), a piece in chunks. A chunk has one root, a contributor, where the
// sum is completed, and a tree along which the mean comes to all ranks:
//
//     contributions  straight to the root, or along the chain of contributors in ascending order, which adds in order
//     result         from the root down the tree `parent`
//
// Either way a chunk of b bytes costs (m - 1) b + (k - 1) b.
#ifndef JIGSAW_SYNC_SCHEDULE_HPP
#define JIGSAW_SYNC_SCHEDULE_HPP

#include "runtime/plan/contributors.hpp"
#include "runtime/sync/gradient_sync.hpp"

namespace jigsaw::sync {

struct Chunk {
    std::size_t first = 0; ///< element of the block
    std::size_t count = 0; ///< elements, at least 1
    int root = 0;
    std::vector<int> parent; ///< [rank] who sends it the mean; -1: the root
};

struct Piece {
    std::uint32_t block = 0;
    std::size_t first = 0, count = 0; ///< elements of the block
    bool chain = false;               ///< how contributions travel
    std::vector<int> contributors;    ///< whose values are added, ascending
    std::size_t divisor = 1;          ///< ranks that computed the block
    std::vector<Chunk> chunks;
};

/// Pieces in the order in which every rank works on them: blocks nearest the loss first. Blocks that nobody computed
/// have none; nor has anything when there is one rank.
std::vector<Piece> make_schedule(const plan::IterationPlan &plan, const std::vector<BlockBuffer> &blocks,
                                 Strategy strategy);

/// Payload that each rank sends in `schedule`, [rank].
std::vector<std::uint64_t> bytes_by_rank(const std::vector<Piece> &schedule, const std::vector<BlockBuffer> &blocks,
                                         int ranks);

std::size_t element_bytes(DataType type);

} // namespace jigsaw::sync
#endif
