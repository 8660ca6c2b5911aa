// SPDX-License-Identifier: Apache-2.0
// What a group of jobs does to the GPUs that one or several of them sit on, iteration by iteration. Part of depth.hpp's
// insides.
#ifndef JIGSAW_CORE_GROUND_HPP
#define JIGSAW_CORE_GROUND_HPP

#include "plugin/core/depth.hpp"

#include <cstddef>
#include <map>
#include <vector>

namespace jigsaw::core {

constexpr double kEqual = 1e-9; // relative: sums in another order are the same load

struct Score {
    double mean_ms = 0, worst_ms = 0;

    bool better_than(const Score &other) const;
};

/// Backward time of a level; a job without measurements is taken to spend twice its forward time (algorithms
/// A).
double backward_ms(const GroupJob &job, std::uint32_t level);
double full_turn_ms(const GroupJob &job);
/// Nobody directs it to partial depth.
bool runs_full(const GroupJob &job);
/// How many phases differ.
std::uint32_t phases_of(const GroupJob &job);
/// Has it a phase to choose?
bool may_move(const GroupJob &job);
/// Iterations after which all loads repeat, bounded.
std::uint64_t common_period(const GroupJob &job, const std::vector<GroupJob> &others);

/// GPUs, numbered 0..size-1.
class Ground {
  public:
    explicit Ground(const GroupJob &job) { add(job); }
    void add(const GroupJob &job);

    std::size_t size() const { return index_.size(); }
    bool shares_with(const GroupJob &job) const { return !seats_of(job).empty(); }

    struct Seat {
        std::uint32_t rank = 0;
        std::size_t gpu = 0;
    };
    /// The ranks of a job that sit here: few, however many ranks it has.
    std::vector<Seat> seats_of(const GroupJob &job) const;

  private:
    std::map<int, std::size_t> index_;
};

/// [step * GPUs + gpu]: milliseconds of turns, for so many iterations from now.
class Loads {
  public:
    Loads(const Ground &ground, std::uint64_t steps) : gpus_(ground.size()), steps_(steps), ms_(gpus_ * steps, 0) {}

    /// What `job` does; `full`: at full depth whatever its directive says.
    void add(const Ground &ground, const GroupJob &job, bool full);
    void add(const Loads &other);
    void take(const Loads &other); ///< undo add()
    /// The busiest GPU of each iteration.
    Score score() const;
    /// Of the GPU with the largest mean load.
    double largest_mean_ms() const;

  private:
    std::size_t gpus_;
    std::uint64_t steps_;
    std::vector<double> ms_;
};

} // namespace jigsaw::core
#endif
