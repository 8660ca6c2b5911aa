// SPDX-License-Identifier: Apache-2.0
// Phases and directives of co-located jobs (docs/decisions/0003-phases.md). Loads are looked at only where the
// job to be placed sits: its phase changes nothing elsewhere, and a heavier GPU elsewhere must not hide what it
// changes here.
#include "plugin/core/depth.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>

namespace jigsaw::core {

namespace {

constexpr std::uint64_t kMaxSteps = 1024;   // iterations looked at when the true period is longer
constexpr std::uint64_t kShuffleSteps = 64; // a shuffle has no period: a sample of it
constexpr std::uint32_t kMaxPhases = 256;   // candidates per direction; more workers than this are strided
constexpr double kEqual = 1e-9;             // relative: sums in another order are the same load
constexpr double kHysteresis = 0.01;        // an agreed phase stays unless another is this much better

struct Score {
    double mean_ms = 0, worst_ms = 0;

    bool better_than(const Score &other) const
    {
        if (mean_ms < other.mean_ms * (1 - kEqual))
            return true;
        return mean_ms <= other.mean_ms * (1 + kEqual) && worst_ms < other.worst_ms * (1 - kEqual);
    }
};

/// Backward time of a level; a job without measurements is taken to spend twice its forward time (algorithms
/// A).
double backward_ms(const GroupJob &job, std::uint32_t level)
{
    const std::vector<double> &table = job.backward_ms_of_level;
    if (!table.empty())
        return table[std::min<std::size_t>(level, table.size()) - 1];
    return 2 * job.forward_ms * level / std::max(1u, job.directive.levels);
}

bool runs_full(const GroupJob &job)
{
    return job.directive.generation == 0 || job.directive.policy == plan::Policy::full;
}

double full_turn_ms(const GroupJob &job)
{
    return job.forward_ms + backward_ms(job, std::max(1u, job.directive.levels));
}

std::uint64_t period_of(const GroupJob &job)
{
    switch (job.directive.policy) {
    case plan::Policy::full:
    case plan::Policy::fixed:
        return 1;
    case plan::Policy::shuffle:
        return kShuffleSteps;
    case plan::Policy::two_level:
    case plan::Policy::rotate:
        break;
    }
    return std::max(1u, job.world_size);
}

std::uint64_t common_period(const GroupJob &job, const std::vector<GroupJob> &others)
{
    std::uint64_t period = std::min(period_of(job), kMaxSteps);
    for (const GroupJob &other : others)
        period = std::min(std::lcm(period, std::min(period_of(other), kMaxSteps)), kMaxSteps);
    return period;
}

/// The GPUs of the job to be placed, numbered 0..size-1.
class Ground {
  public:
    explicit Ground(const GroupJob &job)
    {
        for (int gpu : job.gpu_of_rank)
            if (gpu >= 0)
                index_.emplace(gpu, index_.size());
    }

    std::size_t size() const { return index_.size(); }
    bool shares_with(const GroupJob &job) const { return !seats_of(job).empty(); }

    struct Seat {
        std::uint32_t rank = 0;
        std::size_t gpu = 0;
    };
    /// The ranks of a job that sit here: few, however many ranks it has.
    std::vector<Seat> seats_of(const GroupJob &job) const
    {
        std::vector<Seat> seats;
        const auto ranks =
            static_cast<std::uint32_t>(std::min<std::size_t>(job.gpu_of_rank.size(), job.world_size));
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
            if (const auto gpu = index_.find(job.gpu_of_rank[rank]); gpu != index_.end())
                seats.push_back({rank, gpu->second});
        return seats;
    }

  private:
    std::map<int, std::size_t> index_;
};

using Seats = std::vector<Ground::Seat>;
using Load = std::vector<double>; // [gpu]

/// Add what `job` does in the iteration `step` from now.
void add_load(Load *load, const GroupJob &job, const Seats &seats, bool full, std::uint64_t step)
{
    const double full_ms = full_turn_ms(job);
    for (const Ground::Seat &seat : seats) {
        if (full) {
            (*load)[seat.gpu] += full_ms;
            continue;
        }
        const std::uint32_t level = plan::level_of(job.directive, seat.rank, job.world_size, job.iteration + step);
        (*load)[seat.gpu] += job.forward_ms + backward_ms(job, level);
    }
}

std::vector<Load> loads_of(const Ground &ground, const std::vector<GroupJob> &jobs, std::uint64_t steps)
{
    std::vector<Load> loads(steps, Load(ground.size(), 0));
    for (const GroupJob &job : jobs) {
        const Seats seats = ground.seats_of(job);
        for (std::uint64_t step = 0; step < steps; ++step)
            add_load(&loads[step], job, seats, runs_full(job), step);
    }
    return loads;
}

Score score_of(const Ground &ground, const std::vector<Load> &others, const GroupJob &job)
{
    const Seats seats = ground.seats_of(job);
    Score score;
    Load load;
    for (std::uint64_t step = 0; step < others.size(); ++step) {
        load = others[step];
        add_load(&load, job, seats, job.directive.policy == plan::Policy::full, step);
        const double busiest = load.empty() ? full_turn_ms(job) : *std::max_element(load.begin(), load.end());
        score.mean_ms += busiest / static_cast<double>(others.size());
        score.worst_ms = std::max(score.worst_ms, busiest);
    }
    return score;
}

std::vector<GroupJob> older_neighbours(const Ground &ground, const std::vector<GroupJob> &others)
{
    std::vector<GroupJob> older;
    std::copy_if(others.begin(), others.end(), std::back_inserter(older),
                 [&](const GroupJob &other) { return !other.younger && ground.shares_with(other); });
    return older;
}

bool may_move(const GroupJob &job) { return job.directive.policy != plan::Policy::full && job.world_size > 1; }

/// The best phase and direction; the present ones where nothing is better.
GroupJob best_placed(const Ground &ground, const GroupJob &job, const std::vector<GroupJob> &older)
{
    const std::vector<Load> loads = loads_of(ground, older, common_period(job, older));
    const Score present = score_of(ground, loads, job);
    GroupJob best = job, candidate = job;
    Score best_score = present;
    const std::uint32_t stride = (job.world_size + kMaxPhases - 1) / kMaxPhases;
    for (std::uint32_t phase = 0; phase < job.world_size; phase += stride)
        for (std::int32_t direction : {1, -1}) {
            candidate.directive.phase = static_cast<std::int32_t>(phase);
            candidate.directive.direction = direction;
            const Score score = score_of(ground, loads, candidate);
            if (!score.better_than(best_score))
                continue;
            best = candidate;
            best_score = score;
        }
    const bool near_best = present.mean_ms <= best_score.mean_ms * (1 + kHysteresis);
    return job.directive.generation > 0 && near_best ? job : best;
}

double largest_mean_load(const Ground &ground, const std::vector<GroupJob> &others, const GroupJob &job, bool full)
{
    const std::uint64_t steps = common_period(job, others);
    const std::vector<Load> loads = loads_of(ground, others, steps);
    const Seats seats = ground.seats_of(job);
    Load sum(ground.size(), 0);
    for (std::uint64_t step = 0; step < steps; ++step) {
        add_load(&sum, job, seats, full, step);
        std::transform(sum.begin(), sum.end(), loads[step].begin(), sum.begin(), std::plus<double>());
    }
    return *std::max_element(sum.begin(), sum.end()) / static_cast<double>(steps);
}

/// Levels chosen for a request. rotate: one level per worker, as its author did.
std::uint32_t levels_of(const SpbRequest &request, std::uint32_t world_size)
{
    if (request.levels > 0)
        return std::min(request.levels, JIGSAW_MAX_LEVELS);
    return request.policy == plan::Policy::two_level ? 2 : std::min(world_size, JIGSAW_MAX_LEVELS);
}

/// Share of full backward time of a level. By measured times where they are for these levels; two-level needs
/// only the first and the last; else l/L, which a depth table never undercuts (plan::make_depth_table).
double fraction_of_level(const GroupJob &job, const plan::Directive &directive, std::uint32_t level)
{
    const std::vector<double> &table = job.backward_ms_of_level;
    const bool measured = !table.empty() && table.back() > 0;
    if (level == directive.levels)
        return 1;
    if (measured && table.size() == directive.levels)
        return table[level - 1] / table.back();
    if (measured && directive.policy == plan::Policy::two_level && table.size() > 1)
        return table.front() / table.back();
    return static_cast<double>(level) / directive.levels;
}

/// Is the directive deep enough for the floor and for the number of workers that must run full depth?
bool deep_enough(const GroupJob &job, const plan::Directive &directive, double min_fraction, std::uint32_t min_full)
{
    double sum = 0;
    std::uint32_t full = 0;
    for (std::uint32_t rank = 0; rank < job.world_size; ++rank) {
        const std::uint32_t level = plan::level_of(directive, rank, job.world_size, 0);
        sum += fraction_of_level(job, directive, level);
        full += level == directive.levels;
    }
    return full >= std::min(min_full, job.world_size) && sum / job.world_size >= min_fraction - kEqual;
}

plan::Directive full_depth(const GroupJob &job, std::uint64_t generation)
{
    plan::Directive directive;
    directive.generation = generation;
    directive.full_workers = std::max(1u, job.world_size);
    return directive;
}

/// The shallowest directive of the request that keeps the floors; policy full where only full depth does.
plan::Directive shallowest(const SpbRequest &request, const GroupJob &job, std::uint32_t min_full,
                           std::uint64_t generation)
{
    const bool two_level = request.policy == plan::Policy::two_level;
    plan::Directive directive;
    directive.generation = generation;
    directive.policy = request.policy;
    directive.levels = levels_of(request, job.world_size);
    directive.full_workers = two_level ? std::max(1u, min_full) : 1;
    directive.seed = request.policy == plan::Policy::shuffle ? job.id : 0;
    while (directive.levels > 1 && directive.full_workers < job.world_size &&
           !deep_enough(job, directive, request.min_depth_fraction, min_full))
        two_level ? ++directive.full_workers : --directive.levels;
    if (directive.levels <= 1 || directive.full_workers >= job.world_size)
        return full_depth(job, generation);
    return directive;
}

/// `job` under `directive`, with a backward time for each of its levels.
GroupJob under(const GroupJob &job, const plan::Directive &directive)
{
    GroupJob placed = job;
    const plan::Directive &agreed = job.directive;
    const bool same = agreed.policy == directive.policy && agreed.levels == directive.levels &&
                      agreed.full_workers == directive.full_workers;
    placed.directive = directive;
    placed.directive.generation = same ? agreed.generation : 0;
    placed.directive.phase = same ? agreed.phase : 0;
    placed.directive.direction = same && agreed.direction == -1 ? -1 : 1;
    const double full_ms = backward_ms(job, std::max(1u, agreed.levels));
    placed.backward_ms_of_level.clear();
    for (std::uint32_t level = 1; level <= directive.levels; ++level)
        placed.backward_ms_of_level.push_back(full_ms * fraction_of_level(job, directive, level));
    return placed;
}

} // namespace

PhaseChoice choose_phase(const GroupJob &job, const std::vector<GroupJob> &others)
{
    const Ground ground(job);
    const std::vector<GroupJob> older = older_neighbours(ground, others);
    const GroupJob placed = older.empty() || !may_move(job) ? job : best_placed(ground, job, older);
    const Score score = score_of(ground, loads_of(ground, others, common_period(placed, others)), placed);
    return {placed.directive.phase, placed.directive.direction, score.mean_ms, score.worst_ms};
}

bool depth_pays(const GroupJob &job, const std::vector<GroupJob> &others, const PhaseChoice &choice, double q)
{
    const Ground ground(job);
    const bool alone = std::none_of(others.begin(), others.end(),
                                    [&](const GroupJob &other) { return ground.shares_with(other); });
    if (alone || job.directive.policy == plan::Policy::full)
        return false;
    GroupJob placed = job;
    placed.directive.phase = choice.phase;
    placed.directive.direction = choice.direction;
    const double with_ms = largest_mean_load(ground, others, placed, /*full=*/false);
    const double without_ms = largest_mean_load(ground, others, placed, /*full=*/true);
    return with_ms * std::max(1.0, q) < without_ms * (1 - kEqual);
}

plan::Directive wanted_directive(const SpbRequest &request, const GroupJob &job,
                                 const std::vector<GroupJob> &others, std::uint32_t min_full_workers,
                                 std::uint64_t generation)
{
    const bool partial_allowed = request.mode == SpbMode::automatic || request.mode == SpbMode::levels;
    const bool warm = job.iteration >= request.warmup_iterations;
    if (!partial_allowed || !warm || request.policy == plan::Policy::full || job.world_size < 2)
        return full_depth(job, generation);
    plan::Directive directive = shallowest(request, job, min_full_workers, generation);
    const GroupJob placed = under(job, directive);
    const PhaseChoice choice = choose_phase(placed, others);
    if (!depth_pays(placed, others, choice, /*q=*/1))
        return full_depth(job, generation);
    directive.phase = choice.phase;
    directive.direction = choice.direction;
    return directive;
}

} // namespace jigsaw::core
