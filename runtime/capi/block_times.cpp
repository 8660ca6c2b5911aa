// SPDX-License-Identifier: Apache-2.0
#include "runtime/capi/block_times.hpp"

#include <algorithm>
#include <numeric>

namespace jigsaw::capi {

BlockTimes::BlockTimes(std::uint32_t num_blocks) : stamp_ns_(num_blocks, 0), smoothed_ns_(num_blocks, 0) {}

void BlockTimes::start(std::uint64_t now_ns)
{
    start_ns_ = now_ns;
    std::fill(stamp_ns_.begin(), stamp_ns_.end(), 0);
}

void BlockTimes::stamp(std::uint32_t block, std::uint64_t now_ns)
{
    stamp_ns_[block] = now_ns;
}

void BlockTimes::finish(std::uint32_t depth)
{
    const std::uint64_t started_ns = start_ns_;
    start_ns_ = 0;
    if (depth < stamp_ns_.size() || started_ns == 0)
        return;
    // The first measurement is taken cold (first allocations, lazy loading) and gives way to the second.
    const bool replace = measured_ < 2;
    std::uint64_t previous_ns = started_ns;
    for (std::size_t block = stamp_ns_.size(); block-- > 0;) {
        const std::uint64_t now_ns = std::max(stamp_ns_[block], previous_ns);
        const std::uint64_t took_ns = std::max<std::uint64_t>(1, now_ns - previous_ns);
        smoothed_ns_[block] = replace ? took_ns : (4 * smoothed_ns_[block] + took_ns) / 5;
        previous_ns = now_ns;
    }
    ++measured_;
}

double BlockTimes::depth_fraction(std::uint32_t depth) const
{
    const std::size_t blocks = smoothed_ns_.size();
    if (measured_ == 0)
        return static_cast<double>(depth) / static_cast<double>(blocks);
    const double all = std::accumulate(smoothed_ns_.begin(), smoothed_ns_.end(), 0.0);
    return std::accumulate(smoothed_ns_.end() - std::min<std::size_t>(depth, blocks), smoothed_ns_.end(), 0.0) / all;
}

} // namespace jigsaw::capi
