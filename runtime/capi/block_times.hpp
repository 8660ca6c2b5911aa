// SPDX-License-Identifier: Apache-2.0
// How long each block's backward takes, from the moments at which its gradients were complete. Not thread-safe: stamps
// come from the thread that runs backward, everything else after backward ended.
#ifndef JIGSAW_CAPI_BLOCK_TIMES_HPP
#define JIGSAW_CAPI_BLOCK_TIMES_HPP

#include <cstdint>
#include <vector>

namespace jigsaw::capi {

class BlockTimes {
  public:
    explicit BlockTimes(std::uint32_t num_blocks);

    /// Forward ended; backward starts now.
    void start(std::uint64_t now_ns);
    void stamp(std::uint32_t block, std::uint64_t now_ns);
    /// After backward. Only a full-depth iteration whose start is known is measured: a shallow one says nothing about
    /// the blocks it left out, and costs its last block a little more.
    void finish(std::uint32_t depth);

    /// [block], nanoseconds, smoothed; all zero until measured.
    const std::vector<std::uint64_t> &backward_ns() const { return smoothed_ns_; }
    std::uint32_t measured() const { return measured_; }
    /// Share of full backward time that the last `depth` blocks take; equal blocks until measured.
    double depth_fraction(std::uint32_t depth) const;

  private:
    std::uint64_t start_ns_ = 0;
    std::vector<std::uint64_t> stamp_ns_, smoothed_ns_;
    std::uint32_t measured_ = 0;
};

} // namespace jigsaw::capi
#endif
