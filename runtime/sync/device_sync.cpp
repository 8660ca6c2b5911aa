// SPDX-License-Identifier: Apache-2.0
// The calling side of DeviceSync: records events, wakes the thread, waits for it.
#include "runtime/sync/device_state.hpp"

#include "runtime/collective/ops.hpp"

#include <utility>

namespace jigsaw::sync {
namespace {

/// How long wait() waits for the thread to abort NCCL.
constexpr std::chrono::milliseconds kAbort{5000};
/// No other operation of a session counts that far.
constexpr std::uint64_t kJoinedSequence = (std::uint64_t{1} << 59) + 2;

} // namespace

DeviceSync::DeviceSync(collective::Collective &host, std::vector<BlockBuffer> blocks, const Options &options)
{
    // Whoever fails below tells the others, who must be where they hear it: Gloo's making of connections is deaf.
    if (host.size() > 1)
        collective::barrier(host, kJoinedSequence, options.timeout);
    try {
        state_ = std::make_unique<State>(host, std::move(blocks), options);
    } catch (const Error &error) {
        host.abort("rank " + std::to_string(host.rank()) + ": " + error.what());
        throw;
    }
    if (host.size() > 1)
        state_->thread = std::thread([state = state_.get()] { state->run(); });
}

DeviceSync::~DeviceSync()
{
    State &state = *state_;
    bool unfinished;
    {
        const std::lock_guard lock(state.shared->mutex);
        state.shared->stop = true;
        unfinished = state.shared->running;
    }
    state.shared->changed.notify_all();
    if (unfinished)
        state.world.abort(state.where() + " were given up");
    if (state.thread.joinable())
        state.thread.join();
}

void DeviceSync::set_stream(nccl::abi::Stream stream) { state_->compute = stream; }

void DeviceSync::set_lockstep(bool on) { state_->next_lockstep = on; }

void DeviceSync::begin(const plan::IterationPlan &plan)
{
    State &state = *state_;
    DeviceShared &shared = *state.shared;
    if (plan.contributors.size() != state.blocks.size() ||
        plan.depths.size() != static_cast<std::size_t>(state.world.size()))
        throw Error(JIGSAW_INVALID_ARGUMENT, "plan of iteration " + std::to_string(plan.iteration) +
                                                 " is not for " + std::to_string(state.world.size()) + " ranks and " +
                                                 std::to_string(state.blocks.size()) + " blocks");
    {
        const std::lock_guard lock(shared.mutex);
        if (shared.failure)
            throw *shared.failure;
        if (shared.running)
            throw Error(JIGSAW_INVALID_STATE, state.where() + " are not complete; wait() before begin()");
        state.plan = plan;
        state.schedule = make_device_schedule(plan, state.blocks);
        state.lockstep = state.next_lockstep;
        ++shared.run;
        shared.complete = false;
        shared.ready.assign(state.blocks.size(), false);
        shared.computed.assign(state.blocks.size(), false);
        for (std::uint32_t block = 0; block < state.blocks.size(); ++block)
            shared.ready[block] = !state.contributes(block);
    }
    try {
        const nccl::OnDevice here(state.device);
        state.begun.record(state.compute); // the optimizer's last look at the buffers lies before it
    } catch (const Error &error) {
        state.fail_and_throw(Error(error.code(), state.where() + ": " + error.what()));
    }
    {
        const std::lock_guard lock(shared.mutex);
        shared.running = !state.schedule.empty();
    }
    shared.changed.notify_all();
}

void DeviceSync::block_ready(std::uint32_t block)
{
    State &state = *state_;
    DeviceShared &shared = *state.shared;
    {
        const std::lock_guard lock(shared.mutex);
        if (shared.failure)
            throw *shared.failure;
        if (block >= shared.ready.size() || shared.ready[block])
            throw Error(JIGSAW_INVALID_STATE,
                        state.where() + ": block " + std::to_string(block) +
                            (block >= shared.ready.size() ? " is not a block of the iteration"
                                                          : " is not to be computed by this rank, or was ready before"));
    }
    try {
        const nccl::OnDevice here(state.device);
        state.events[block]->record(state.compute);
    } catch (const Error &error) {
        state.fail_and_throw(
            Error(error.code(), state.where() + ": block " + std::to_string(block) + ": " + error.what()));
    }
    {
        const std::lock_guard lock(shared.mutex);
        shared.ready[block] = true;
    }
    shared.changed.notify_all();
}

void DeviceSync::mark_forward_end()
{
    const nccl::OnDevice here(state_->device);
    state_->forward_end.record(state_->compute);
}

void DeviceSync::mark_compute_end()
{
    const nccl::OnDevice here(state_->device);
    state_->compute_end.record(state_->compute);
}

bool DeviceSync::wait_for(std::chrono::milliseconds limit)
{
    DeviceShared &shared = *state_->shared;
    std::unique_lock lock(shared.mutex);
    shared.changed.wait_for(lock, limit, [&] { return shared.failure || !shared.running; });
    if (shared.failure)
        throw *shared.failure;
    return !shared.running;
}

void DeviceSync::wait(std::chrono::milliseconds timeout)
{
    if (wait_for(timeout))
        return;
    State &state = *state_;
    DeviceShared &shared = *state.shared;
    {
        const std::lock_guard lock(shared.mutex);
        shared.timed_out = timeout; // the thread knows whom it waits for, and aborts NCCL
    }
    shared.changed.notify_all();
    std::unique_lock lock(shared.mutex);
    const bool ended = shared.changed.wait_for(lock, kAbort, [&] { return !shared.running; });
    shared.timed_out.reset();
    if (ended && !shared.failure)
        return; // in the last moment
    lock.unlock();
    state.fail(Error(JIGSAW_TIMEOUT, state.where() + ": not complete after " + std::to_string(timeout.count()) +
                                         " ms, and NCCL does not return"));
    lock.lock();
    throw *shared.failure;
}

bool DeviceSync::idle() const
{
    const std::lock_guard lock(state_->shared->mutex);
    return !state_->shared->running;
}

std::uint64_t DeviceSync::payload_bytes_sent() const { return state_->bytes_sent; }

bool DeviceSync::excused() const { return state_->readiness.excused(); }

DeviceTimes DeviceSync::times() const
{
    const State &state = *state_;
    DeviceTimes times;
    times.ready_ns.resize(state.blocks.size());
    times.forward_end_ns = state.forward_end.ns_since(state.begun);
    times.compute_end_ns = state.compute_end.ns_since(state.begun);
    for (std::uint32_t block = 0; block < state.blocks.size(); ++block)
        if (state.contributes(block))
            times.ready_ns[block] = state.events[block]->ns_since(state.begun);
    return times;
}

void DeviceSync::run_behind(std::function<void()> function)
{
    const nccl::OnDevice here(state_->device);
    nccl::run_behind(state_->compute, std::move(function));
}

bool DeviceSync::device_failed() const
{
    try {
        const nccl::OnDevice here(state_->device);
        return nccl::failed(state_->compute);
    } catch (const Error &) {
        return true;
    }
}

} // namespace jigsaw::sync
