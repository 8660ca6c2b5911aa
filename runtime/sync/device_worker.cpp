// SPDX-License-Identifier: Apache-2.0
// The background thread that launches collectives, and what it waits for: our own backward (events), the other ranks
// (Readiness), the GPU (host functions). Every wait looks at failures, time-outs and peers that are gone every 20 ms.
#include "runtime/sync/device_state.hpp"

#include "runtime/collective/ops.hpp"
#include "runtime/sync/schedule.hpp"

#include <algorithm>

namespace jigsaw::sync {
namespace {

using namespace std::chrono_literals;

constexpr auto kGlance = 20ms;
/// How long a failed collective waits for the host side to say who is gone.
constexpr auto kBlame = 1000ms;
/// No other operation of a session counts that far.
constexpr std::uint64_t kMeetSequence = (std::uint64_t{1} << 59) + 1;

int nccl_type(DataType type)
{
    switch (type) {
    case DataType::float64: return nccl::abi::kNcclFloat64;
    case DataType::bfloat16: return nccl::abi::kNcclBfloat16;
    default: return nccl::abi::kNcclFloat32;
    }
}

} // namespace

DeviceSync::State::State(collective::Collective &collective, std::vector<BlockBuffer> buffers, const Options &how)
    : world(collective), blocks(std::move(buffers)), options(how), device(how.device), readiness(collective)
{
    check_buffers();
    for (std::size_t block = 0; block < blocks.size(); ++block)
        events.push_back(std::make_unique<nccl::Event>());
    if (world.size() == 1)
        return;
    // All ranks have what they need: nobody waits inside NCCL for one that has no library.
    collective::barrier(world, kMeetSequence, options.timeout);
    const auto deadline = std::chrono::steady_clock::now() + options.timeout;
    communicators = std::make_unique<nccl::Communicators>(world, options.timeout, [this, deadline] {
        readiness.check();
        if (std::chrono::steady_clock::now() >= deadline)
            throw Error(JIGSAW_TIMEOUT, "ncclCommInitRankConfig: not all ranks came within " +
                                            std::to_string(options.timeout.count()) + " ms");
    });
}

void DeviceSync::State::check_buffers() const
{
    for (std::size_t block = 0; block < blocks.size(); ++block)
        if (blocks[block].count > 0)
            device.require_here(blocks[block].data, "block " + std::to_string(block));
}

std::string DeviceSync::State::where() const
{
    return "rank " + std::to_string(world.rank()) + ": gradients of iteration " + std::to_string(plan.iteration);
}

bool DeviceSync::State::contributes(std::uint32_t block) const
{
    const auto &ranks = plan.contributors[block];
    return std::binary_search(ranks.begin(), ranks.end(), static_cast<std::uint32_t>(world.rank()));
}

/// The job is of no use without this rank, and the others should know now rather than after their time-outs.
void DeviceSync::State::fail(const Error &error)
{
    {
        const std::lock_guard lock(shared->mutex);
        if (!shared->failure)
            shared->failure = error;
    }
    shared->changed.notify_all();
    world.abort(error.what());
}

void DeviceSync::State::fail_and_throw(const Error &error)
{
    fail(error);
    throw error;
}

/// `set` under the mutex when everything queued on `on` has run, if this iteration is still on.
void DeviceSync::State::flag_behind(nccl::abi::Stream on, const std::function<void(DeviceShared &)> &set)
{
    nccl::run_behind(on, [all = shared, run = shared->run, set] {
        {
            const std::lock_guard lock(all->mutex);
            if (all->run == run)
                set(*all);
        }
        all->changed.notify_all();
    });
}

/// Throws when this iteration cannot go on.
void DeviceSync::State::look_around()
{
    std::optional<std::chrono::milliseconds> timed_out;
    {
        const std::lock_guard lock(shared->mutex);
        if (shared->failure)
            throw *shared->failure;
        if (shared->stop)
            throw Error(JIGSAW_INVALID_STATE, "given up");
        timed_out = shared->timed_out;
    }
    if (timed_out)
        throw timeout_error(*timed_out);
    if (options.waits_for_turn && options.waits_for_turn())
        readiness.tell_waiting_for_turn();
    nccl::check(stream.handle()); // a device that failed calls no host function, and NCCL need not notice
    communicators->check();
    readiness.check();
}

/// Until `condition` holds, which is read under the mutex.
void DeviceSync::State::await(const std::function<bool()> &condition)
{
    for (;;) {
        {
            std::unique_lock lock(shared->mutex);
            const auto done = [&] { return condition() || shared->failure || shared->stop || shared->timed_out; };
            shared->changed.wait_for(lock, kGlance, done);
            if (condition())
                return;
        }
        look_around();
    }
}

Error DeviceSync::State::timeout_error(std::chrono::milliseconds after)
{
    const std::uint32_t block = current;
    std::string text = "not complete after " + std::to_string(after.count()) + " ms: ";
    if (waits_for_us) {
        text += "block " + std::to_string(block) + " was never ready on this rank";
        return Error(JIGSAW_TIMEOUT, text);
    }
    const std::uint32_t asked = lockstep ? block : kWholeIteration;
    std::string late;
    for (const int rank : readiness.missing(plan.iteration, asked))
        late += (late.empty() ? "rank " : ", ") + std::to_string(rank);
    if (late.empty())
        text += "every rank launched, and NCCL moves nothing; look at NCCL_DEBUG=INFO and at the network";
    else if (block == kWholeIteration)
        text += late + " has not launched all blocks";
    else
        text += late + " was not ready for block " + std::to_string(block);
    return Error(JIGSAW_TIMEOUT, text);
}

/// NCCL often notices a peer's end before the host side does, and cannot say whose: the host side can.
Error DeviceSync::State::explained(const Error &error)
{
    const bool remote = std::string(error.what()).rfind(nccl::kRunningCollective, 0) == 0;
    const auto deadline = std::chrono::steady_clock::now() + kBlame;
    while (remote && std::chrono::steady_clock::now() < deadline) {
        try {
            readiness.check();
            std::this_thread::sleep_for(5ms);
        } catch (const Error &gone) {
            return gone;
        }
    }
    return error;
}

/// With a rival: our own gradients are complete on the GPU, and so are everybody else's.
void DeviceSync::State::meet(const DeviceStep &step)
{
    watch.wait(event_of(step.block));
    flag_behind(watch.handle(), [block = step.block](DeviceShared &all) { all.computed[block] = true; });
    await([&] { return shared->computed[step.block]; });
    readiness.tell(plan.iteration, step.block);
    waits_for_us = false;
    readiness.await(plan.iteration, step.block, [this] { look_around(); });
}

void DeviceSync::State::launch(const DeviceStep &step)
{
    const nccl::abi::NcclFunctions &call = nccl::libraries().nccl;
    const BlockBuffer &buffer = blocks[step.block];
    const int type = nccl_type(buffer.type);
    const auto alive = [this] { look_around(); };
    const auto at = [&](const DeviceChunk &chunk) -> void * {
        return static_cast<unsigned char *>(buffer.data) + chunk.first * element_bytes(buffer.type);
    };
    if (step.all) {
        communicators->group(communicators->world(), "ncclAllReduce", [&] {
            nccl::check_nccl(call.ncclAllReduce(buffer.data, buffer.data, buffer.count, type, nccl::abi::kNcclAvg,
                                                communicators->world(), stream.handle()), "ncclAllReduce");
        }, alive);
        return;
    }
    const nccl::abi::Comm some = step.contributors.size() > 1 ? communicators->of(step.contributors, alive) : nullptr;
    if (some != nullptr)
        communicators->group(some, "ncclReduce", [&] {
            for (const DeviceChunk &chunk : step.chunks)
                nccl::check_nccl(call.ncclReduce(at(chunk), at(chunk), chunk.count, type, nccl::abi::kNcclAvg,
                                                 static_cast<int>(chunk.root_place), some, stream.handle()),
                                 "ncclReduce");
        }, alive);
    // A group of its own: operations of one group run in no order, and this one needs the sums.
    communicators->group(communicators->world(), "ncclBroadcast", [&] {
        for (const DeviceChunk &chunk : step.chunks)
            nccl::check_nccl(call.ncclBroadcast(at(chunk), at(chunk), chunk.count, type, static_cast<int>(chunk.root),
                                                communicators->world(), stream.handle()), "ncclBroadcast");
    }, alive);
}

void DeviceSync::State::launch_all()
{
    const auto alive = [this] { look_around(); };
    // Splitting waits for all ranks, and none of them waits in a kernel meanwhile.
    for (const DeviceStep &step : schedule)
        if (!step.all && step.contributors.size() > 1)
            communicators->of(step.contributors, alive);
    for (const DeviceStep &step : schedule) {
        current = step.block;
        waits_for_us = true;
        await([&] { return shared->ready[step.block]; });
        stream.wait(event_of(step.block));
        if (lockstep)
            meet(step);
        waits_for_us = false;
        launch(step);
    }
    if (!lockstep) {
        current = kWholeIteration;
        readiness.tell(plan.iteration, kWholeIteration);
    }
}

void DeviceSync::State::finish()
{
    flag_behind(stream.handle(), [](DeviceShared &all) { all.complete = true; });
    await([&] { return shared->complete; });
    if (!lockstep)
        readiness.await(plan.iteration, kWholeIteration, [this] { look_around(); });
    bytes_sent += ring_bytes(schedule, blocks, static_cast<std::uint32_t>(world.rank()),
                             static_cast<std::uint32_t>(world.size()));
}

void DeviceSync::State::run_iteration()
{
    try {
        launch_all();
        finish();
    } catch (const Error &error) {
        const Error why = explained(error);
        const std::string block = current == kWholeIteration ? "" : "block " + std::to_string(current) + ": ";
        const bool told = std::string(why.what()).find(where()) != std::string::npos;
        communicators->abort();
        fail(told ? why : Error(why.code(), where() + ": " + block + why.what()));
    } catch (const std::exception &error) {
        communicators->abort();
        fail(Error(JIGSAW_INTERNAL_ERROR, where() + ": " + error.what()));
    }
    {
        const std::lock_guard lock(shared->mutex);
        shared->running = false;
    }
    shared->changed.notify_all();
}

void DeviceSync::State::run()
{
    try {
        device.use();
        for (;;) {
            {
                std::unique_lock lock(shared->mutex);
                shared->changed.wait_for(lock, 250ms, [&] { return shared->stop || shared->running; });
                if (shared->stop)
                    return;
                if (shared->running) {
                    lock.unlock();
                    run_iteration();
                    continue;
                }
                if (shared->failure)
                    continue;
            }
            if (options.waits_for_turn && options.waits_for_turn())
                readiness.tell_waiting_for_turn();
        }
    } catch (const Error &error) {
        fail(Error(error.code(), where() + ": " + error.what()));
    }
}

} // namespace jigsaw::sync
