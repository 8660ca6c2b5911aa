// SPDX-License-Identifier: Apache-2.0
// All ranks follow the same directive, two iterations after rank 0 announced it. docs/protocol.md "Agreement".
//
// One exchange per iteration: every rank sends its record of 128 bytes to every other rank, one step, host side:
// 128 (k - 1) bytes per rank. All ranks see the same k records and come to the same verdict by themselves, so a
// disagreement needs no second message and no rank is special but in announcing.
//
//     iteration t     finish(t-1)  plan(t)  gradients of t may move  start(t) as compute ends  ...
//     announced in the exchange of t: in force from t+2, its plan confirmed by the exchange of t+1
#ifndef JIGSAW_SYNC_AGREEMENT_HPP
#define JIGSAW_SYNC_AGREEMENT_HPP

#include "runtime/collective/collective.hpp"
#include "runtime/plan/contributors.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace jigsaw::sync {

/// What a rank brings into the exchange of iteration t. Fits 128 bytes on the wire, with the hashes beside it.
struct AgreementInput {
    bool leave = false;   ///< this rank will not begin another iteration
    bool shares = false;  ///< another job is on this rank's GPU
    bool skipped = false; ///< the optimizer step before this iteration was skipped: all ranks did or none
    /// Rank 0 only: a directive to announce (validated and complete with depth_of_level), or generation 0 for none.
    /// Ignored while another one is pending, and when it is the one in force. Agreement stamps first_iteration = t + 2.
    plan::Directive announce;
    /// Hint for rank 0 from this rank's node: an older co-resident where there is one, job 0 for none. What its agreed
    /// directive says, and which of its ranks is here (<jigsaw/page.h>, jigsaw_rival_t and jigsaw_rival_role_t).
    std::uint32_t rival_job = 0;
    std::uint64_t rival_generation = 0;
    std::uint64_t rival_iteration = 0;
    std::int32_t rival_phase = 0;
    std::int32_t rival_offset = 0; ///< iteration of the rival beside this rank's, minus this rank's
    std::uint16_t rival_rank = 0, rival_world = 1, rival_full_workers = 1;
    std::uint8_t rival_policy = 0, rival_levels = 0;
    std::int8_t rival_direction = 1;
    bool rival_older = false;
};

class Agreement {
  public:
    /// `first_iteration`: number of the first iteration of a resumed run; it and the next one run at full depth.
    Agreement(collective::Collective &world, std::uint32_t num_blocks, std::uint64_t first_iteration = 0);
    ~Agreement();
    Agreement(const Agreement &) = delete;

    /// Plan of iteration t: a pure function of the agreed directives. The first two iterations are full depth.
    /// Throws jigsaw::Error {JIGSAW_DISAGREE} if the exchange of t-1 has not confirmed it.
    plan::IterationPlan plan(std::uint64_t iteration) const;
    /// The directive in force at `iteration`; generation 0: none. Stays valid for the next three announcements.
    const plan::Directive &directive(std::uint64_t iteration) const;
    bool announcement_pending() const;

    /// Start the exchange of iteration t, the one after the last finished (in the background; never blocks). Throws
    /// JIGSAW_INVALID_ARGUMENT naming the field of an announcement that cannot be followed.
    void start(std::uint64_t iteration, const AgreementInput &input);
    /// Wait for the exchange of iteration t. Throws jigsaw::Error: JIGSAW_DISAGREE naming ranks, generations,
    /// iterations and depths; JIGSAW_PEER_LEFT "rank 2 left after iteration 120" when some but not all leave, or when
    /// a peer died; JIGSAW_TIMEOUT naming the ranks that are missing (finish() may then be called again).
    /// Returns true when all ranks leave: a clean end; false otherwise, to ranks that leave alone as well.
    bool finish(std::uint64_t iteration, std::chrono::milliseconds timeout);
    /// True when finish(iteration) would not wait; false when `limit` passed first, which costs nothing.
    bool wait_for(std::uint64_t iteration, std::chrono::milliseconds limit);
    /// Hints that came with the last finished exchange, [rank].
    const std::vector<AgreementInput> &inputs() const;

    /// Called for every directive agreed on, with first_iteration stamped (the replay log).
    void on_agreed(std::function<void(const plan::Directive &)> callback);

    /// Tests only: make this rank believe another depth for itself at `iteration`.
    void corrupt_for_test(std::uint64_t iteration, std::uint32_t depth);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace jigsaw::sync
#endif
