// SPDX-License-Identifier: Apache-2.0
// Partial gradient sync on GPUs, over NCCL: the same contract as GradientSync, for buffers in a GPU's memory.
//
// A block's collectives (device_schedule.hpp) run on a stream of our own as soon as its gradients are complete on the GPU,
// beside the rest of backward. One background thread launches them, blocks nearest the loss first on every rank.
//
// Lockstep, when any rank of the job shares its GPU: a block's collectives are launched only when every rank has it ready,
// by an exchange on the host. A collective's kernel that spins for a peer would hold the GPU that the rival paid for with
// its turn. Without a rival they are launched at once, and a peer that is late costs nobody anything.
//
// Exactness: NCCL multiplies by 1/m and adds in an order of its own. The result is that of GradientSync, bit for bit, where
// m is a power of two and the order of additions is the same; else it differs by rounding, at most (m + 1) eps sum|x| / m.
#ifndef JIGSAW_SYNC_DEVICE_SYNC_HPP
#define JIGSAW_SYNC_DEVICE_SYNC_HPP

#include "runtime/collective/nccl/abi.hpp"
#include "runtime/sync/gradient_sync.hpp"

#include <functional>

namespace jigsaw::sync {

/// GPU time of an iteration, nanoseconds since its first work was queued. 0: not computed or not known.
struct DeviceTimes {
    std::uint64_t forward_end_ns = 0, compute_end_ns = 0;
    std::vector<std::uint64_t> ready_ns; ///< [block]
};

class DeviceSync final : public GradientExchange {
  public:
    struct Options {
        int device = -1; ///< -1: the calling thread's current one
        std::chrono::milliseconds timeout{60000}; ///< of making communicators
        /// Asked by the background thread: does this process wait for its turn? Empty: never.
        std::function<bool()> waits_for_turn;
    };

    /// Ranks leave together (by a barrier, or the agreement's last exchange): a peer that is gone ends an iteration that is
    /// not complete here.
    ///
    /// Collective on all ranks of `host`, which carries ids and readiness and is borrowed. Throws jigsaw::Error:
    /// JIGSAW_NO_BACKEND saying which library, driver or device is missing (the other ranks learn it).
    DeviceSync(collective::Collective &host, std::vector<BlockBuffer> blocks, const Options &options);
    ~DeviceSync() override;
    DeviceSync(const DeviceSync &) = delete;

    /// The framework's stream (cudaStream_t) that gradients are computed on from now on.
    void set_stream(nccl::abi::Stream stream);
    /// For iterations begun from now on; the same on all ranks.
    void set_lockstep(bool on);

    void begin(const plan::IterationPlan &plan) override;
    /// What computes the block's gradients is queued on the stream.
    void block_ready(std::uint32_t block) override;
    void mark_forward_end();
    void mark_compute_end();
    /// Returns when the means are in place on the GPU: work queued from then on sees them, on any stream. A single rank
    /// waits for nothing: its gradients are there in the order of its own stream.
    void wait(std::chrono::milliseconds timeout) override;
    bool wait_for(std::chrono::milliseconds limit) override;
    bool idle() const override;
    std::uint64_t payload_bytes_sent() const override; ///< as rings would send it

    /// A peer waits for its turn: being late is no fault of its own, and a time-out would be wrong.
    bool excused() const;
    /// After wait(). Zeros where the GPU is not done yet.
    DeviceTimes times() const;
    /// Runs `function` behind what the stream holds now (see nccl::run_behind).
    void run_behind(std::function<void()> function);
    /// The device failed: what was given to run_behind() may never run.
    bool device_failed() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace jigsaw::sync
#endif
