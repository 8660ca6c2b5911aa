// SPDX-License-Identifier: Apache-2.0
// Inside DeviceSync: what the calling side (device_sync.cpp) and the background thread (device_worker.cpp) share.
//
// DeviceShared::mutex guards what both threads see; callbacks of CUDA's threads hold the DeviceShared alive and only set a flag.
#ifndef JIGSAW_SYNC_DEVICE_STATE_HPP
#define JIGSAW_SYNC_DEVICE_STATE_HPP

#include "runtime/collective/nccl/communicators.hpp"
#include "runtime/sync/device_schedule.hpp"
#include "runtime/sync/device_sync.hpp"
#include "runtime/sync/readiness.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace jigsaw::sync {

/// What callbacks may touch, whatever becomes of the object.
struct DeviceShared {
    std::mutex mutex;
    std::condition_variable changed;
    bool running = false, stop = false;
    std::vector<bool> ready;    ///< [block] queued on the framework's stream
    std::vector<bool> computed; ///< [block] complete on the GPU
    bool complete = false;      ///< all collectives are
    std::uint64_t run = 0;      ///< counts begin(): a late callback of an earlier one means nothing
    std::optional<Error> failure;
    std::optional<std::chrono::milliseconds> timed_out;
};

struct DeviceSync::State {
    State(collective::Collective &collective, std::vector<BlockBuffer> buffers, const Options &how);

    void check_buffers() const;
    void run();
    void run_iteration();
    void launch_all();
    void launch(const DeviceStep &step);
    void meet(const DeviceStep &step);
    void finish();
    void await(const std::function<bool()> &condition);
    void look_around();
    void fail(const Error &error);
    [[noreturn]] void fail_and_throw(const Error &error);
    Error explained(const Error &error);
    Error timeout_error(std::chrono::milliseconds after);
    std::string where() const;
    bool contributes(std::uint32_t block) const;
    const nccl::Event &event_of(std::uint32_t block) const { return contributes(block) ? *events[block] : begun; }
    void flag_behind(nccl::abi::Stream stream, const std::function<void(DeviceShared &)> &set);

    collective::Collective &world;
    const std::vector<BlockBuffer> blocks;
    const Options options;
    const nccl::Device device;
    const std::shared_ptr<DeviceShared> shared = std::make_shared<DeviceShared>();
    Readiness readiness;
    std::unique_ptr<nccl::Communicators> communicators; ///< null: one rank
    nccl::Stream stream;                                ///< collectives
    nccl::Stream watch; ///< so that a host function behind a block's event waits for nothing else
    nccl::Event begun, forward_end, compute_end;
    std::vector<std::unique_ptr<nccl::Event>> events; ///< [block]
    std::atomic<nccl::abi::Stream> compute{nullptr}; ///< the timer of capi/turns reads it, too

    // Written by begin() while nothing runs, then only read.
    plan::IterationPlan plan;
    std::vector<DeviceStep> schedule;
    bool lockstep = false, next_lockstep = false;

    std::atomic<std::uint64_t> bytes_sent{0};
    std::atomic<std::uint32_t> current{0}; ///< block that the thread is at; kWholeIteration: all were launched
    std::atomic<bool> waits_for_us{false};
    std::thread thread;
};

} // namespace jigsaw::sync
#endif
