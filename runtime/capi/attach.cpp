// SPDX-License-Identifier: Apache-2.0
// Joining and leaving. docs/protocol.md "Registration", "Rendezvous" and, for leaving, "Agreement".
#include "runtime/capi/binding.hpp"
#include "runtime/capi/session.hpp"
#include "runtime/capi/world.hpp"
#include "runtime/collective/error.hpp"

#include <algorithm>
#include <cmath>

namespace jigsaw::capi {

namespace {

/// How long a rank that leaves waits for the others to hear of it.
constexpr std::chrono::milliseconds kFarewell{10000};

} // namespace

Session::Session(Settings settings)
    : settings_(std::move(settings)), world_(make_world(settings_)), block_times_(settings_.num_blocks()),
      next_(settings_.first_iteration), lr_over_peak_(NAN)
{
    if (settings_.rank == 0) {
        director_.emplace(settings_);
        if (!settings_.replay_log.empty())
            replay_.emplace(settings_.replay_log, world_size(), settings_.num_blocks());
        if (!settings_.directive_log.empty())
            log_.emplace(settings_.directive_log, world_size());
    }
    report_.num_blocks = settings_.num_blocks();
    report_.loss = report_.progress = NAN;
    attach_agent();
    turns_ = std::make_unique<Turns>(gate_, settings_.on_wake, settings_.agent_given, queue());
    make_agreement();
    make_gradients();
    turns_->take_spare(); // for model upload and first allocations
}

Session::~Session()
{
    if (turns_) {
        turns_->give();
        turns_->settle(kFarewell);
    }
    // Communication threads use world_: they end before it does.
    gradients_.reset();
    agreement_.reset();
    turns_.reset();
    gate_.detach();
}

void Session::make_agreement()
{
    agreement_ = std::make_unique<sync::Agreement>(*world_, settings_.num_blocks(), next_);
    if (log_)
        agreement_->on_agreed([this](const plan::Directive &directive) {
            if (!log_->append(directive))
                settings_.log("jigsaw: the directive log " + settings_.directive_log + " takes no more lines");
        });
}

/// Between iterations nothing is in flight, so all that depends on the number of blocks is simply made again.
void Session::set_blocks(std::vector<sync::BlockBuffer> blocks)
{
    expect(State::attached, "jigsaw_set_blocks");
    if (left_ || agreement_->announcement_pending() || agreement_->directive(next_).generation != 0)
        refuse("jigsaw_set_blocks: a directive for " + std::to_string(settings_.num_blocks()) +
               " blocks was announced before iteration " + std::to_string(next_) + "; attach with one block, which follows none");
    if (settings_.nccl || !settings_.replay_log.empty())
        throw Error(JIGSAW_INVALID_ARGUMENT, std::string("jigsaw_set_blocks: not with ") +
                                                 (settings_.nccl ? "backend \"nccl\"" : "replay_log") +
                                                 "; give the blocks to jigsaw_attach");
    gradients_.reset();
    agreement_.reset();
    settings_.blocks = std::move(blocks);
    choose_levels(&settings_);
    block_times_ = BlockTimes(settings_.num_blocks());
    report_.num_blocks = settings_.num_blocks();
    if (director_)
        director_.emplace(settings_);
    make_agreement();
    make_gradients();
}

void Session::attach_agent()
{
    if (!settings_.agent_given)
        return;
    std::string why;
    if (!gate_.attach(&why, settings_.agent, settings_.log)) {
        settings_.log("jigsaw: no turns: " + why + "; training goes on ungated");
        return;
    }
    bind_to_gpu();
}

/// Once, also when jigsawd came later than this process.
void Session::bind_to_gpu()
{
    if (bound_ || settings_.threads || !gate_.attached() || gate_.cores().empty())
        return;
    bound_ = true;
    std::string why;
    if (!bind_process(gate_.cores(), &why))
        settings_.log("jigsaw: cannot bind to the cores of GPU " + std::to_string(gate_.gpu_index()) + ": " + why);
}

void Session::leave()
{
    if (state_ == State::broken)
        refuse("jigsaw_leave: " + broken_why_);
    leaving_ = true;
}

void Session::detach()
{
    if (state_ == State::broken || left_)
        return;
    turns_->give();
    if (state_ != State::attached) {
        poison("rank " + std::to_string(rank()) + " left in the middle of iteration " + std::to_string(next_));
        return;
    }
    // Between iterations: the others hear of it in the exchange of the iteration that they are in, or say the same.
    leaving_ = true;
    try {
        agreement_->start(next_, exchange_input());
        agreement_->finish(next_, std::min(settings_.timeout, kFarewell));
    } catch (const Error &) {
        // Peers that go on report it on their side; to this rank the end is what it asked for.
    }
    left_ = true;
}

void Session::poison(const std::string &why)
{
    if (state_ == State::broken)
        return;
    state_ = State::broken;
    broken_why_ = why;
    if (turns_)
        turns_->give();
    world_->abort(why);
}

} // namespace jigsaw::capi
