// SPDX-License-Identifier: Apache-2.0
// Rank 0's judgement: which directive to announce. Pure: no page, no clock, no environment. jigsawd (or, without one,
// the policy given in code) says what is wanted; the job has the last word on quality and only ever goes deeper.
#ifndef JIGSAW_CAPI_DIRECTOR_HPP
#define JIGSAW_CAPI_DIRECTOR_HPP

#include "runtime/capi/settings.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::capi {

/// What rank 0 knows as it decides.
struct Outlook {
    std::uint64_t iteration = 0;    ///< the exchange in which it would be announced; in force two later
    bool agent = false;             ///< jigsawd's page is there and fresh
    plan::Directive wanted;         ///< of that page; generation 0: run full depth
    double lr_over_peak = NAN;      ///< NaN: not reported
    std::uint32_t measured = 0;     ///< full-depth iterations measured so far
    std::vector<std::uint64_t> backward_ns; ///< [block]; all zero: not measured
};

class Director {
  public:
    explicit Director(const Settings &settings);

    /// The directive to announce now, whole and valid; generation 0 when what was announced last still stands.
    plan::Directive next(const Outlook &outlook);
    /// One line when next() had something to say (agent lost or back, a directive refused); empty otherwise.
    std::string take_message();

    /// The least number of full-depth workers that the job allows at `iteration`.
    std::uint32_t min_full_workers(std::uint64_t iteration, double lr_over_peak) const;
    std::uint32_t warmup_left(std::uint64_t iteration) const;

  private:
    plan::Directive source(const Outlook &outlook);
    plan::Directive of_code() const;
    void complete(plan::Directive *directive, const Outlook &outlook) const;
    void raise_to_floor(plan::Directive *directive, const Outlook &outlook) const;
    void note_agent(bool agent);
    bool usable(const plan::Directive &directive);
    /// The same of `all` that full_workers counts out of.
    std::uint32_t least_full_of(std::uint32_t all, std::uint64_t iteration, double lr_over_peak) const;

    std::uint32_t world_size_, num_blocks_;
    Settings settings_;
    bool agent_seen_ = false, agent_lost_ = false;
    plan::Directive announced_; ///< last one returned
    std::uint64_t refused_generation_ = 0;
    std::string message_;
};

} // namespace jigsaw::capi
#endif
