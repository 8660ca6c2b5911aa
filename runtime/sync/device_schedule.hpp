// SPDX-License-Identifier: Apache-2.0
// What a GPU's collectives do for each block of an iteration: a pure function of the plan, the same on every rank.
//
//     all ranks computed the block     one all-reduce over the world
//     some did                         reduce over them, each chunk to another root; then broadcast to all from that root
//     one did                          broadcast from it
//     nobody did                       nothing
//
// Reduce and broadcast move (m - 1) B + (k - 1) B, the least of any exact scheme. The root changes from chunk to chunk and
// from block to block, so that no rank reduces more than its share.
#ifndef JIGSAW_SYNC_DEVICE_SCHEDULE_HPP
#define JIGSAW_SYNC_DEVICE_SCHEDULE_HPP

#include "runtime/sync/gradient_sync.hpp"

namespace jigsaw::sync {

struct DeviceChunk {
    std::size_t first = 0, count = 0; ///< elements of the block
    std::uint32_t root = 0;           ///< rank in the world
    std::uint32_t root_place = 0;     ///< and among the contributors
};

struct DeviceStep {
    std::uint32_t block = 0;
    std::vector<std::uint32_t> contributors;
    bool all = false;                ///< every rank computed it
    std::vector<DeviceChunk> chunks; ///< of reduce and broadcast; one, without a root's meaning, for an all-reduce
};

/// Blocks nearest the loss first. Empty for a world of one rank.
std::vector<DeviceStep> make_device_schedule(const plan::IterationPlan &plan, const std::vector<BlockBuffer> &blocks);

/// Payload that `rank` sends in `schedule` when every collective runs as a ring: what NCCL chooses we cannot know.
std::uint64_t ring_bytes(const std::vector<DeviceStep> &schedule, const std::vector<BlockBuffer> &blocks,
                         std::uint32_t rank, std::uint32_t ranks);

} // namespace jigsaw::sync
#endif
