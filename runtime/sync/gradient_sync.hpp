// SPDX-License-Identifier: Apache-2.0
// Partial gradient sync: each block's mean over the ranks that computed it, delivered to all ranks, overlapped with
// backward.
//
// The mean is ((x_a + x_b) + x_c + ...) / m over the m contributors a < b < c < ... in ascending rank order: one
// division of the finished sum. Every strategy computes exactly this, so results do not depend on it.
//
// Costs for a block of B bytes, m contributors, k ranks (payload, all ranks together):
//     default, scatter-gather, chain   (m + k - 2) B   the least of any exact scheme
//     full                             2 (k - 1) B     what a ring all-reduce moves
// Busiest rank, depths i/k of a model of N bytes, k = 4: default 1.13 N, chain 1.5 N, scatter-gather 2.05 N, full 1.5 N.
#ifndef JIGSAW_SYNC_GRADIENT_SYNC_HPP
#define JIGSAW_SYNC_GRADIENT_SYNC_HPP

#include "runtime/collective/collective.hpp"
#include "runtime/plan/contributors.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace jigsaw::sync {

enum class DataType : std::uint32_t { float32 = 0, float64 = 1, bfloat16 = 2 };

/// One flat, contiguous gradient buffer per block; .grad of its parameters are views into it. Borrowed.
struct BlockBuffer {
    void *data = nullptr;
    std::size_t count = 0; ///< elements
    DataType type = DataType::float32;
};

/// How a block is reduced and delivered; every one is exact and sums contributors in ascending rank order, so that
/// results do not depend on the strategy, and full depth equals a serial sum in rank order bit for bit.
enum class Strategy : std::uint32_t {
    automatic = 0,      ///< scatter-gather, owners and forwarders chosen so that the busiest rank sends least
    scatter_gather = 1, ///< contributor i sums chunk i and sends it to all: (m + k - 2) B in total
    chain = 2,          ///< pipelined chain: along the contributors, then along the others
    full_all_reduce = 3 ///< zero-filled all-reduce over all ranks: 2 (k - 1) B; the baseline
};
const char *strategy_name(Strategy strategy); ///< "default", "scatter-gather", "chain", "full"

/// What a session asks of a gradient sync, on the host or on a GPU.
class GradientExchange {
  public:
    virtual ~GradientExchange() = default;
    virtual void begin(const plan::IterationPlan &plan) = 0;
    virtual void block_ready(std::uint32_t block) = 0;
    virtual void wait(std::chrono::milliseconds timeout) = 0;
    virtual bool wait_for(std::chrono::milliseconds limit) = 0;
    virtual bool idle() const = 0;
    virtual std::uint64_t payload_bytes_sent() const = 0;
};

/// Order of calls per iteration: begin(plan), block_ready(b) for each block this rank computed (any order, any thread,
/// never blocks), wait(). One background thread does the communication, blocks nearest the loss first on all ranks.
class GradientSync final : public GradientExchange {
  public:
    GradientSync(collective::Collective &world, std::vector<BlockBuffer> blocks, Strategy strategy);
    ~GradientSync() override;
    GradientSync(const GradientSync &) = delete;

    /// Buffers of blocks this rank does not contribute to are received into as soon as peers send.
    void begin(const plan::IterationPlan &plan) override;
    void block_ready(std::uint32_t block) override;
    /// Blocks until every block with a contributor holds the mean. Throws jigsaw::Error naming rank, peer, block and
    /// iteration. An error, a time-out too, aborts the world: the others learn why. Afterwards the object only throws.
    void wait(std::chrono::milliseconds timeout) override;
    /// True when wait() would return now; false when `limit` passed first, which costs nothing: wait again.
    bool wait_for(std::chrono::milliseconds limit) override;
    /// True once nothing is in flight (never blocks).
    bool idle() const override;
    std::uint64_t payload_bytes_sent() const override;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace jigsaw::sync
#endif
