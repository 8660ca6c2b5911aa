// SPDX-License-Identifier: Apache-2.0
// Directives of co-located jobs (docs/decisions/0003-phases.md): does partial depth pay, and how shallow may it be?
#include "plugin/core/depth.hpp"

#include "plugin/core/ground.hpp"

#include <algorithm>

namespace jigsaw::core {

namespace {

constexpr std::uint32_t kUniformFull = JIGSAW_UNIFORM_PERIOD / 2;

double largest_mean_load(const Ground &ground, const std::vector<GroupJob> &others, const GroupJob &job, bool full)
{
    Loads loads(ground, common_period(job, others));
    for (const GroupJob &other : others)
        loads.add(ground, other, runs_full(other));
    loads.add(ground, job, full);
    return loads.largest_mean_ms();
}

/// Levels chosen for a request. rotate: one level per worker, as its author did.
std::uint32_t levels_of(const SpbRequest &request, std::uint32_t world_size)
{
    if (request.levels > 0)
        return std::min(request.levels, JIGSAW_MAX_LEVELS);
    return plan::has_two_depths(request.policy) ? 2 : std::min(world_size, JIGSAW_MAX_LEVELS);
}

/// Share of full backward time of a level. By measured times where they are for these levels; two depths need
/// only the first and the last; else l/L, which a depth table never undercuts (plan::make_depth_table).
double fraction_of_level(const GroupJob &job, const plan::Directive &directive, std::uint32_t level)
{
    const std::vector<double> &table = job.backward_ms_of_level;
    const bool measured = !table.empty() && table.back() > 0;
    if (level == directive.levels)
        return 1;
    if (measured && table.size() == directive.levels)
        return table[level - 1] / table.back();
    if (measured && plan::has_two_depths(directive.policy) && table.size() > 1)
        return table.front() / table.back();
    return static_cast<double>(level) / directive.levels;
}

/// Is the directive deep enough for the floor and for the number of workers that must run full depth?
bool deep_enough(const GroupJob &job, const plan::Directive &directive, double min_fraction, std::uint32_t min_full)
{
    // Of uniform one rank's period, of all others one iteration of all ranks.
    const bool uniform = directive.policy == plan::Policy::uniform;
    const std::uint32_t all = uniform ? JIGSAW_UNIFORM_PERIOD : job.world_size;
    double sum = 0;
    std::uint32_t full = 0;
    for (std::uint32_t i = 0; i < all; ++i) {
        const std::uint32_t level = plan::level_of(directive, uniform ? 0 : i, job.world_size, uniform ? i : 0);
        sum += fraction_of_level(job, directive, level);
        full += level == directive.levels;
    }
    return full >= std::min(min_full, all) && sum / all >= min_fraction - kEqual;
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
    const bool counts_full = plan::has_two_depths(request.policy);
    const std::uint32_t all = counts_full ? plan::full_out_of(request.policy, job.world_size) : job.world_size;
    plan::Directive directive;
    directive.generation = generation;
    directive.policy = request.policy;
    directive.levels = levels_of(request, job.world_size);
    directive.full_workers = counts_full ? std::max(1u, min_full) : 1;
    directive.seed = request.policy == plan::Policy::shuffle ? job.id : 0;
    while (directive.levels > 1 && directive.full_workers < all &&
           !deep_enough(job, directive, request.min_depth_fraction, min_full))
        counts_full ? ++directive.full_workers : --directive.levels;
    if (directive.levels <= 1 || directive.full_workers >= all)
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
    const bool uniform = request.policy == plan::Policy::uniform;
    if (!partial_allowed || !warm || request.policy == plan::Policy::full || (job.world_size < 2 && !uniform))
        return full_depth(job, generation);
    // Ranks raise it by themselves as the learning rate asks: min_full_workers counts ranks, not iterations.
    const std::uint32_t least_full = uniform ? kUniformFull : min_full_workers;
    plan::Directive directive = shallowest(request, job, least_full, generation);
    if (directive.policy == plan::Policy::full)
        return directive;
    const GroupJob placed = under(job, directive);
    const PhaseChoice choice = choose_phase(placed, others);
    // uniform makes a job faster by itself, so it is no question of the group: whoever asks for it gets it.
    if (!uniform && !depth_pays(placed, others, choice, /*q=*/1))
        return full_depth(job, generation);
    directive.phase = choice.phase;
    directive.direction = choice.direction;
    return directive;
}

} // namespace jigsaw::core
