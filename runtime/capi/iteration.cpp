// SPDX-License-Identifier: Apache-2.0
// One iteration. No hold and wait (docs/protocol.md "Gate"): from begin to end_compute nothing here waits for a peer, and
// from end_compute until the gradients are complete no turn is held.
#include "runtime/capi/session.hpp"
#include "runtime/collective/error.hpp"
#include "runtime/collective/ops.hpp"

#include <algorithm>

namespace jigsaw::capi {

using std::chrono::milliseconds;

void Session::refuse(const std::string &text) const
{
    throw Error(JIGSAW_INVALID_STATE, text);
}

void Session::expect(State wanted, const char *call) const
{
    if (state_ == wanted)
        return;
    const std::string it = "iteration " + std::to_string(next_);
    switch (state_) {
    case State::attached:
        refuse(std::string(call) + ": no iteration is open; call jigsaw_begin_iteration first");
    case State::open:
        refuse(std::string(call) + ": " + it + " is open; end it with jigsaw_end_compute and jigsaw_sync");
    case State::ended:
        refuse(std::string(call) + ": compute of " + it + " has ended; call jigsaw_sync");
    case State::broken:
        refuse(std::string(call) + ": an earlier error ended this context: " + broken_why_ + "; call jigsaw_detach");
    }
}

jigsaw_iteration_t Session::begin_iteration()
{
    expect(State::attached, "jigsaw_begin_iteration");
    if (left_)
        refuse("jigsaw_begin_iteration: all ranks left after iteration " + std::to_string(next_ - 1));
    turns_->take();
    bind_to_gpu();
    plan_ = agreement_->plan(next_);
    if (device_)
        device_->set_lockstep(lockstep());
    gradients_->begin(plan_);
    ready_ = 0;
    begun_ns_ = page::monotonic_ns();
    forward_end_ns_ = 0;
    state_ = State::open;
    report_.iteration = next_;
    report_.depth = plan_.depths[rank()];
    publish_report();
    jigsaw_iteration_t out{};
    out.iteration = next_;
    out.depth = report_.depth;
    out.num_blocks = settings_.num_blocks();
    out.generation = agreement_->directive(next_).generation;
    return out;
}

void Session::end_forward()
{
    expect(State::open, "jigsaw_end_forward");
    forward_end_ns_ = page::monotonic_ns();
    if (device_)
        device_->mark_forward_end();
    else
        block_times_.start(forward_end_ns_);
}

std::uint64_t Session::ready_mask_of_depth() const
{
    const std::uint32_t blocks = settings_.num_blocks(), depth = plan_.depths[settings_.rank];
    const std::uint64_t all = blocks == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << blocks) - 1;
    return depth == blocks ? all : all & ~((std::uint64_t{1} << (blocks - depth)) - 1);
}

void Session::block_ready(std::uint32_t block)
{
    expect(State::open, "jigsaw_block_ready");
    const std::string name = "jigsaw_block_ready: block " + std::to_string(block);
    if (block >= settings_.num_blocks())
        throw Error(JIGSAW_INVALID_ARGUMENT,
                    name + " does not exist; there are " + std::to_string(settings_.num_blocks()) + " blocks, from 0");
    const std::uint64_t bit = std::uint64_t{1} << block;
    if (!(ready_mask_of_depth() & bit))
        throw Error(JIGSAW_INVALID_ARGUMENT, name + " is beyond depth " + std::to_string(report_.depth) +
                                                 " of iteration " + std::to_string(next_));
    if (ready_ & bit)
        refuse(name + " was ready before in iteration " + std::to_string(next_));
    ready_ |= bit;
    if (!device_)
        block_times_.stamp(block, page::monotonic_ns());
    gradients_->block_ready(block);
}

void Session::check_all_ready() const
{
    const std::uint64_t missing = ready_mask_of_depth() & ~ready_;
    if (missing == 0)
        return;
    const int block = 63 - __builtin_clzll(missing);
    refuse("jigsaw_end_compute: block " + std::to_string(block) + " of iteration " + std::to_string(next_) +
           " is not ready and depth is " + std::to_string(report_.depth) + "; call jigsaw_block_ready for it");
}

void Session::end_compute()
{
    expect(State::open, "jigsaw_end_compute");
    check_all_ready();
    if (device_)
        device_->mark_compute_end();
    turns_->give();
    compute_end_ns_ = page::monotonic_ns();
    if (!device_)
        note_compute_end();
    state_ = State::ended;
    exchanged_ = false;
    agreement_->start(next_, exchange_input());
}

/// What this iteration's compute took, once that is known.
void Session::note_compute_end()
{
    const std::uint32_t depth = plan_.depths[rank()];
    block_times_.finish(depth);
    depth_fraction_sum_ += block_times_.depth_fraction(depth);
    ++iterations_;
    report_.forward_ns = forward_end_ns_ ? forward_end_ns_ - begun_ns_ : 0;
    report_.backward_ns = compute_end_ns_ - (forward_end_ns_ ? forward_end_ns_ : begun_ns_);
    report_.last_depth = depth;
}

/// Polls every 100 ms, so that a callback may end the wait (a signal in Python); true: done before the time-out.
bool Session::wait_awake(const std::function<bool(milliseconds)> &wait_for, Clock::time_point deadline) const
{
    constexpr milliseconds kWake{100};
    for (;;) {
        const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
        if (wait_for(std::max(milliseconds(0), std::min(left, kWake))))
            return true;
        if (settings_.on_wake && !settings_.on_wake())
            throw Error(JIGSAW_INTERRUPTED, "jigsaw_sync: the wake callback ended the wait; it may be called again");
        // A peer that waits for its turn is late because of a rival: no time-out counts that.
        if (Clock::now() >= deadline && !(device_ && device_->excused()))
            return false;
    }
}

/// Every rank comes to the same verdict by itself once it has all records. A rank that failed first would tear the world
/// down and the others would hear that it is gone instead of who disagrees: so they wait for each other here.
void Session::finish_exchange()
{
    constexpr milliseconds kVerdict{5000};
    constexpr std::uint64_t kVerdictSequence = std::uint64_t{1} << 60; // no other operation counts that far
    try {
        left_ = agreement_->finish(next_, milliseconds(0));
        exchanged_ = true;
    } catch (const Error &verdict) {
        if (verdict.code() == JIGSAW_DISAGREE)
            try {
                collective::barrier(*world_, kVerdictSequence, kVerdict);
            } catch (const Error &) {
                // A rank that could not come changes nothing about the verdict.
            }
        throw;
    }
}

jigsaw_sync_result_t Session::sync(milliseconds timeout)
{
    expect(State::ended, "jigsaw_sync");
    const auto deadline = Clock::now() + timeout;
    // The exchange first: a rank that left or disagrees is named at once, before a gradient is used.
    if (!exchanged_) {
        wait_awake([this](milliseconds limit) { return agreement_->wait_for(next_, limit); }, deadline);
        finish_exchange();
    }
    wait_awake([this](milliseconds limit) { return gradients_->wait_for(limit); }, deadline);
    gradients_->wait(milliseconds(0));
    report_.sync_ns = page::monotonic_ns() - compute_end_ns_;
    return next_turn();
}

jigsaw_sync_result_t Session::next_turn()
{
    jigsaw_sync_result_t out{};
    out.turn_wait_ns = turns_->take_spare();
    if (device_)
        take_device_times();
    state_ = State::attached;
    out.iteration = next_++;
    for (std::uint32_t b = 0; b < settings_.num_blocks(); ++b)
        out.defined_blocks |= plan_.contributors[b].empty() ? 0 : std::uint64_t{1} << b;
    out.last = left_ ? 1 : 0;
    out.sync_ns = report_.sync_ns;
    report_.iteration_ns = page::monotonic_ns() - begun_ns_;
    return out;
}

void Session::skip_step()
{
    expect(State::attached, "jigsaw_skip_step");
    skipped_ = true;
}

void Session::turn_begin()
{
    if (state_ == State::broken)
        expect(State::attached, "jigsaw_turn_begin");
    if (turns_->holds())
        refuse("jigsaw_turn_begin: a turn is held already; give it back with jigsaw_turn_end or jigsaw_yield_turn");
    if (state_ == State::ended)
        expect(State::attached, "jigsaw_turn_begin");
    turns_->take();
}

void Session::turn_end()
{
    if (!turns_->adopt())
        refuse("jigsaw_turn_end: no turn is held");
    turns_->give();
}

void Session::yield_turn()
{
    turns_->give();
}

} // namespace jigsaw::capi
