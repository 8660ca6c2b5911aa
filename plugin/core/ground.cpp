// SPDX-License-Identifier: Apache-2.0
// See ground.hpp.
#include "plugin/core/ground.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace jigsaw::core {

namespace {

constexpr std::uint64_t kMaxSteps = 1024;   // iterations looked at when the true period is longer
constexpr std::uint64_t kShuffleSteps = 64; // a shuffle has no period: a sample of it

std::uint64_t period_of(const GroupJob &job)
{
    switch (job.directive.policy) {
    case plan::Policy::full:
    case plan::Policy::fixed:
        return 1;
    case plan::Policy::shuffle:
        return kShuffleSteps;
    case plan::Policy::uniform:
        return JIGSAW_UNIFORM_PERIOD;
    case plan::Policy::two_level:
    case plan::Policy::rotate:
        break;
    }
    return std::max(1u, job.world_size);
}

} // namespace

bool Score::better_than(const Score &other) const
{
    if (mean_ms < other.mean_ms * (1 - kEqual))
        return true;
    return mean_ms <= other.mean_ms * (1 + kEqual) && worst_ms < other.worst_ms * (1 - kEqual);
}

double backward_ms(const GroupJob &job, std::uint32_t level)
{
    const std::vector<double> &table = job.backward_ms_of_level;
    if (!table.empty())
        return table[std::min<std::size_t>(level, table.size()) - 1];
    return 2 * job.forward_ms * level / std::max(1u, job.directive.levels);
}

double full_turn_ms(const GroupJob &job)
{
    return job.forward_ms + backward_ms(job, std::max(1u, job.directive.levels));
}

bool runs_full(const GroupJob &job)
{
    return job.directive.generation == 0 || job.directive.policy == plan::Policy::full;
}

std::uint32_t phases_of(const GroupJob &job)
{
    if (job.directive.policy == plan::Policy::full)
        return 1;
    return job.directive.policy == plan::Policy::uniform ? JIGSAW_UNIFORM_PERIOD : std::max(1u, job.world_size);
}

bool may_move(const GroupJob &job) { return phases_of(job) > 1; }

std::uint64_t common_period(const GroupJob &job, const std::vector<GroupJob> &others)
{
    std::uint64_t period = std::min(period_of(job), kMaxSteps);
    for (const GroupJob &other : others)
        period = std::min(std::lcm(period, std::min(period_of(other), kMaxSteps)), kMaxSteps);
    return period;
}

void Ground::add(const GroupJob &job)
{
    for (int gpu : job.gpu_of_rank)
        if (gpu >= 0)
            index_.emplace(gpu, index_.size());
}

std::vector<Ground::Seat> Ground::seats_of(const GroupJob &job) const
{
    std::vector<Seat> seats;
    const auto ranks = static_cast<std::uint32_t>(std::min<std::size_t>(job.gpu_of_rank.size(), job.world_size));
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
        if (const auto gpu = index_.find(job.gpu_of_rank[rank]); gpu != index_.end())
            seats.push_back({rank, gpu->second});
    return seats;
}

void Loads::add(const Ground &ground, const GroupJob &job, bool full)
{
    const double full_ms = full_turn_ms(job);
    const std::vector<Ground::Seat> seats = ground.seats_of(job);
    for (std::uint64_t step = 0; step < steps_; ++step)
        for (const Ground::Seat &seat : seats) {
            double &load = ms_[step * gpus_ + seat.gpu];
            load += full ? full_ms
                         : job.forward_ms + backward_ms(job, plan::level_of(job.directive, seat.rank, job.world_size,
                                                                            job.iteration + step));
        }
}

void Loads::add(const Loads &other)
{
    std::transform(ms_.begin(), ms_.end(), other.ms_.begin(), ms_.begin(), std::plus<double>());
}

void Loads::take(const Loads &other)
{
    std::transform(ms_.begin(), ms_.end(), other.ms_.begin(), ms_.begin(), std::minus<double>());
}

Score Loads::score() const
{
    Score score;
    for (std::uint64_t step = 0; step < steps_ && gpus_ > 0; ++step) {
        const auto first = ms_.begin() + static_cast<std::ptrdiff_t>(step * gpus_);
        const double busiest = *std::max_element(first, first + static_cast<std::ptrdiff_t>(gpus_));
        score.mean_ms += busiest / static_cast<double>(steps_);
        score.worst_ms = std::max(score.worst_ms, busiest);
    }
    return score;
}

double Loads::largest_mean_ms() const
{
    std::vector<double> sums(gpus_, 0);
    for (std::size_t i = 0; i < ms_.size(); ++i)
        sums[i % gpus_] += ms_[i];
    return sums.empty() ? 0 : *std::max_element(sums.begin(), sums.end()) / static_cast<double>(steps_);
}

} // namespace jigsaw::core
