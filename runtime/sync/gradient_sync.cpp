// SPDX-License-Identifier: Apache-2.0
// The background thread and its pipeline; what is sent is decided in schedule.cpp, one piece's steps in piece_run.cpp.
//
// Order of the waiting steps, the same on every rank, with a lag of L pieces:
//     reduce 0 .. reduce L, forward 0, reduce L+1, forward 1, ...
// so that the way of one piece's mean overlaps with the sums of the next ones. A rank whose next block is not computed
// yet waits for that before the forwards that the order puts behind it: compute never waits for us, so this ends.
//
// mutex guards phase, stop, ready and failure. It is never held while communicating.
#include "runtime/sync/gradient_sync.hpp"

#include "runtime/sync/piece_run.hpp"
#include "runtime/sync/reduce.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace jigsaw::sync {
namespace {

/// How far the pipeline runs ahead. A chain is as long as the world; a star has two hops.
struct Pipeline {
    std::size_t lag, window;
};
Pipeline pipeline_of(Strategy strategy, int ranks)
{
    if (strategy != Strategy::chain)
        return {1, 4};
    const std::size_t hops = 2 * static_cast<std::size_t>(ranks);
    return {hops, hops + 2};
}

/// Waits that only an error or completion ends; abort() wakes them.
constexpr std::chrono::hours kNoLimit{24};

} // namespace

const char *strategy_name(Strategy strategy)
{
    switch (strategy) {
    case Strategy::automatic: return "default";
    case Strategy::scatter_gather: return "scatter-gather";
    case Strategy::chain: return "chain";
    case Strategy::full_all_reduce: return "full";
    }
    return "unknown";
}

struct GradientSync::State {
    State(collective::Collective &collective, std::vector<BlockBuffer> buffers, Strategy how)
        : world(collective), blocks(std::move(buffers)), strategy(how)
    {
    }

    void run();
    void run_iteration();
    void run_pipeline();
    bool is_ready(std::uint32_t block);
    void wait_ready(std::uint32_t block);
    void fail(const Error &error);
    std::string waits_for() const;
    void post(std::size_t index);
    bool contributes(std::uint32_t block) const;
    std::string where() const;
    [[noreturn]] void throw_failure() const { throw Error(failure->code(), failure->what()); }

    enum class Phase { idle, running };

    collective::Collective &world;
    const std::vector<BlockBuffer> blocks;
    const Strategy strategy;

    mutable std::mutex mutex;
    std::condition_variable changed;
    Phase phase = Phase::idle;
    bool stop = false;
    std::vector<bool> ready;      ///< [block] this rank computed it
    std::optional<Error> failure; ///< once set it stays

    // Written by begin() while idle, then only read.
    plan::IterationPlan plan;
    std::vector<Piece> schedule;

    // Of the background thread.
    std::vector<std::unique_ptr<PieceRun>> runs;
    PieceRun::Wait wait;

    // Written by it, read by others.
    std::atomic<std::uint64_t> bytes_sent{0};
    std::atomic<int> waits_peer{-1}; ///< -1: this rank's own backward
    std::atomic<std::uint32_t> waits_block{0};
    std::thread thread;
};

std::string GradientSync::State::where() const
{
    return "rank " + std::to_string(world.rank()) + ": gradients of iteration " + std::to_string(plan.iteration);
}

bool GradientSync::State::contributes(std::uint32_t block) const
{
    const auto &ranks = plan.contributors[block];
    return std::binary_search(ranks.begin(), ranks.end(), static_cast<std::uint32_t>(world.rank()));
}

/// What a time-out tells: the longest wait is the one that is on.
std::string GradientSync::State::waits_for() const
{
    const std::string block = "block " + std::to_string(waits_block);
    if (waits_peer < 0)
        return block + " was never ready on this rank";
    return "rank " + std::to_string(waits_peer) + " did not answer for " + block;
}

/// The world is of no use without this rank, and the others should know now rather than after their time-outs.
void GradientSync::State::fail(const Error &error)
{
    {
        const std::lock_guard lock(mutex);
        if (!failure)
            failure = error;
    }
    changed.notify_all();
    world.abort(error.what());
}

bool GradientSync::State::is_ready(std::uint32_t block)
{
    const std::lock_guard lock(mutex);
    return ready[block];
}

void GradientSync::State::wait_ready(std::uint32_t block)
{
    std::unique_lock lock(mutex);
    waits_peer = -1;
    waits_block = block;
    changed.wait(lock, [&] { return ready[block] || failure || stop; });
    if (failure || stop)
        throw Error(JIGSAW_INVALID_STATE, where() + ": ended before block " + std::to_string(block) + " was ready");
}

void GradientSync::State::post(std::size_t index)
{
    const Piece &piece = schedule[index];
    const BlockBuffer &buffer = blocks[piece.block];
    if (strategy == Strategy::full_all_reduce && !contributes(piece.block))
        fill_neutral(buffer.type,
                     static_cast<unsigned char *>(buffer.data) + piece.first * element_bytes(buffer.type), piece.count);
    runs[index] = std::make_unique<PieceRun>(world, piece, buffer, plan.hash, static_cast<std::uint32_t>(index), wait);
    runs[index]->post();
}

void GradientSync::State::run_pipeline()
{
    const std::size_t pieces = schedule.size();
    const Pipeline pipeline = pipeline_of(strategy, world.size());
    std::size_t posted = 0, reduced = 0, forwarded = 0, finished = 0, current = 0;
    wait = [&](collective::Request &request, int peer) {
        waits_peer = peer;
        waits_block = schedule[current].block;
        while (!request.wait_for(kNoLimit)) {
        }
    };
    runs.resize(pieces);
    while (finished < pieces) {
        if (posted < pieces && posted - finished < pipeline.window && is_ready(schedule[posted].block)) {
            post(posted++);
        } else if (forwarded < reduced && reduced >= std::min(forwarded + pipeline.lag + 1, pieces)) {
            current = forwarded++;
            runs[current]->forward();
        } else if (reduced < posted) {
            current = reduced++;
            runs[current]->reduce();
        } else if (finished < forwarded) {
            current = finished++;
            runs[current]->finish();
            bytes_sent += runs[current]->bytes_sent();
            runs[current].reset();
        } else {
            wait_ready(schedule[posted].block);
        }
    }
}

void GradientSync::State::run_iteration()
{
    try {
        run_pipeline();
    } catch (const Error &error) {
        fail(Error(error.code(), where() + ": " + error.what()));
    } catch (const std::exception &error) {
        fail(Error(JIGSAW_INTERNAL_ERROR, where() + ": " + error.what()));
    }
    runs.clear(); // from here on nothing touches the caller's buffers
    {
        const std::lock_guard lock(mutex);
        phase = Phase::idle;
    }
    changed.notify_all();
}

void GradientSync::State::run()
{
    for (;;) {
        {
            std::unique_lock lock(mutex);
            changed.wait(lock, [&] { return stop || phase == Phase::running; });
            if (stop)
                return;
        }
        run_iteration();
    }
}

GradientSync::GradientSync(collective::Collective &world, std::vector<BlockBuffer> blocks, Strategy strategy)
    : state_(new State(world, std::move(blocks), strategy))
{
    state_->thread = std::thread([state = state_.get()] { state->run(); });
}

GradientSync::~GradientSync()
{
    State &state = *state_;
    bool unfinished;
    {
        const std::lock_guard lock(state.mutex);
        state.stop = true;
        unfinished = state.phase == State::Phase::running;
    }
    state.changed.notify_all();
    if (unfinished)
        state.world.abort(state.where() + " were given up");
    state.thread.join();
}

void GradientSync::begin(const plan::IterationPlan &plan)
{
    State &state = *state_;
    if (plan.contributors.size() != state.blocks.size() ||
        plan.depths.size() != static_cast<std::size_t>(state.world.size()))
        throw Error(JIGSAW_INVALID_ARGUMENT,
                    "plan of iteration " + std::to_string(plan.iteration) + " is for " +
                        std::to_string(plan.depths.size()) + " ranks and " + std::to_string(plan.contributors.size()) +
                        " blocks; here are " + std::to_string(state.world.size()) + " and " +
                        std::to_string(state.blocks.size()));
    {
        const std::lock_guard lock(state.mutex);
        if (state.failure)
            state.throw_failure();
        if (state.phase != State::Phase::idle)
            throw Error(JIGSAW_INVALID_STATE, state.where() + " are not complete; wait() before begin()");
        state.plan = plan;
        state.schedule = make_schedule(plan, state.blocks, state.strategy);
        state.ready.assign(state.blocks.size(), false);
        for (std::uint32_t block = 0; block < state.blocks.size(); ++block)
            state.ready[block] = !state.contributes(block);
        // A rank that is alone holds the means already, and its thread need not wake.
        if (state.schedule.empty() || state.world.size() == 1)
            return;
        state.phase = State::Phase::running;
    }
    state.changed.notify_all();
}

void GradientSync::block_ready(std::uint32_t block)
{
    State &state = *state_;
    {
        const std::lock_guard lock(state.mutex);
        if (state.failure)
            state.throw_failure();
        if (block >= state.ready.size() || state.ready[block])
            throw Error(JIGSAW_INVALID_STATE,
                        state.where() + ": block " + std::to_string(block) +
                            (block >= state.ready.size() ? " is not a block of the iteration"
                                                         : " is not to be computed by this rank, or was ready before"));
        state.ready[block] = true;
        if (state.phase == State::Phase::idle) // alone
            return;
    }
    state.changed.notify_all();
}

bool GradientSync::wait_for(std::chrono::milliseconds limit)
{
    State &state = *state_;
    std::unique_lock lock(state.mutex);
    state.changed.wait_for(lock, limit, [&] { return state.failure || state.phase == State::Phase::idle; });
    if (state.failure)
        state.throw_failure();
    return state.phase == State::Phase::idle;
}

void GradientSync::wait(std::chrono::milliseconds timeout)
{
    if (wait_for(timeout))
        return;
    State &state = *state_;
    state.fail(Error(JIGSAW_TIMEOUT, state.where() + ": not complete after " + std::to_string(timeout.count()) +
                                         " ms: " + state.waits_for()));
    const std::lock_guard lock(state.mutex);
    state.throw_failure();
}

bool GradientSync::idle() const
{
    const std::lock_guard lock(state_->mutex);
    return state_->phase == State::Phase::idle;
}

std::uint64_t GradientSync::payload_bytes_sent() const { return state_->bytes_sent; }

} // namespace jigsaw::sync
