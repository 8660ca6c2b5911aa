// SPDX-License-Identifier: Apache-2.0
// All ranks follow the same directive, two iterations after rank 0 announced it. docs/protocol.md "Agreement".
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
    bool leave = false; ///< this rank will not begin another iteration
    /// Rank 0 only: a directive to announce (validated and complete with depth_of_level), or generation 0 for none.
    /// Ignored while another one is pending. Agreement stamps first_iteration = t + 2.
    plan::Directive announce;
    /// Hint for rank 0 from this rank's node: the oldest co-resident, 0 for none.
    std::uint32_t rival_job = 0;
    std::uint64_t rival_generation = 0;
    std::uint64_t rival_iteration = 0;
    std::int32_t rival_phase = 0;
};

class Agreement {
  public:
    /// `first_iteration`: number of the first iteration of a resumed run; it and the next one run at full depth.
    Agreement(collective::Collective &world, std::uint32_t num_blocks, std::uint64_t first_iteration = 0);
    ~Agreement();
    Agreement(const Agreement &) = delete;

    /// Plan of iteration t: a pure function of the agreed directives. Iterations 0 and 1 are full depth.
    /// Throws jigsaw::Error {JIGSAW_DISAGREE} if the exchange of t-1 has not confirmed it.
    plan::IterationPlan plan(std::uint64_t iteration) const;
    /// The directive in force at `iteration`.
    const plan::Directive &directive(std::uint64_t iteration) const;
    bool announcement_pending() const;

    /// Start the exchange of iteration t (in the background; never blocks).
    void start(std::uint64_t iteration, const AgreementInput &input);
    /// Wait for the exchange of iteration t. Throws jigsaw::Error: JIGSAW_DISAGREE naming ranks, generations,
    /// iterations and depths; JIGSAW_PEER_LEFT "rank 2 left after iteration 120" when some but not all leave, or when
    /// a peer died. Returns true when all ranks leave: a clean end.
    bool finish(std::uint64_t iteration, std::chrono::milliseconds timeout);
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
