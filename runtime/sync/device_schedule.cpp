// SPDX-License-Identifier: Apache-2.0
#include "runtime/sync/device_schedule.hpp"

#include "runtime/sync/schedule.hpp"

#include <algorithm>

namespace jigsaw::sync {
namespace {

/// Smaller chunks cost more in launches than another root gains.
constexpr std::size_t kLeastChunkBytes = 64 * 1024;
/// Chunks start where every type is aligned for the widest loads of a GPU.
constexpr std::size_t kAlign = 64;

std::vector<DeviceChunk> cut(const DeviceStep &step, const BlockBuffer &buffer)
{
    const std::size_t bytes = buffer.count * element_bytes(buffer.type);
    const std::size_t most = std::max<std::size_t>(bytes / kLeastChunkBytes, 1);
    const std::size_t chunks = step.all ? 1 : std::min(step.contributors.size(), most);
    std::vector<DeviceChunk> cuts;
    for (std::size_t i = 0; i < chunks; ++i) {
        const auto bound = [&](std::size_t n) {
            return n == chunks ? buffer.count : buffer.count * n / chunks / kAlign * kAlign;
        };
        const std::size_t place = (step.block + i) % step.contributors.size();
        if (bound(i + 1) > bound(i))
            cuts.push_back({bound(i), bound(i + 1) - bound(i), step.contributors[place],
                            static_cast<std::uint32_t>(place)});
    }
    return cuts;
}

} // namespace

std::vector<DeviceStep> make_device_schedule(const plan::IterationPlan &plan, const std::vector<BlockBuffer> &blocks)
{
    std::vector<DeviceStep> schedule;
    if (plan.depths.size() < 2)
        return schedule;
    for (std::size_t block = blocks.size(); block-- > 0;) {
        DeviceStep step;
        step.block = static_cast<std::uint32_t>(block);
        step.contributors = plan.contributors[block];
        step.all = step.contributors.size() == plan.depths.size();
        if (step.contributors.empty() || blocks[block].count == 0)
            continue;
        step.chunks = cut(step, blocks[block]);
        schedule.push_back(std::move(step));
    }
    return schedule;
}

std::uint64_t ring_bytes(const std::vector<DeviceStep> &schedule, const std::vector<BlockBuffer> &blocks,
                         std::uint32_t rank, std::uint32_t ranks)
{
    std::uint64_t sent = 0;
    for (const DeviceStep &step : schedule) {
        const auto &who = step.contributors;
        const bool contributes = std::binary_search(who.begin(), who.end(), rank);
        for (const DeviceChunk &chunk : step.chunks) {
            const std::uint64_t bytes = chunk.count * element_bytes(blocks[step.block].type);
            if (step.all) {
                sent += 2 * (ranks - 1) * bytes / ranks;
                continue;
            }
            sent += contributes && rank != chunk.root ? bytes : 0;
            sent += (rank + 1) % ranks != chunk.root ? bytes : 0; // the last of the ring hands nothing on
        }
    }
    return sent;
}

} // namespace jigsaw::sync
