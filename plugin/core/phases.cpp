// SPDX-License-Identifier: Apache-2.0
// Phases of co-located jobs (docs/decisions/0003-phases.md). Loads are looked at only where the job to be placed and
// those that follow it sit: its phase changes nothing elsewhere, and a heavier GPU elsewhere must not hide what it
// changes here.
#include "plugin/core/ground.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

namespace jigsaw::core {

namespace {

constexpr std::uint32_t kMaxPhases = 256; // candidates per direction; more workers than this are strided
constexpr double kHysteresis = 0.01;      // an agreed phase stays unless another is this much better
constexpr std::size_t kMaxJoint = 16384;  // placements of all jobs together that are tried; beyond: one job after another

bool runs_full_here(const GroupJob &job) { return job.directive.policy == plan::Policy::full; }

std::vector<plan::Directive> placements_of(const GroupJob &job)
{
    std::vector<plan::Directive> found;
    const std::uint32_t phases = phases_of(job), stride = (phases + kMaxPhases - 1) / kMaxPhases;
    for (std::uint32_t phase = 0; phase < phases; phase += stride)
        for (std::int32_t direction : {1, -1}) {
            if (direction < 0 && job.directive.policy == plan::Policy::uniform)
                continue; // all ranks are alike: both directions are one
            found.push_back(job.directive);
            found.back().phase = static_cast<std::int32_t>(phase);
            found.back().direction = direction;
        }
    return found;
}

/// Loads of a job under each of its placements.
std::vector<Loads> options_of(const Ground &ground, GroupJob job, std::uint64_t steps)
{
    std::vector<Loads> options;
    for (const plan::Directive &directive : placements_of(job)) {
        job.directive = directive;
        options.emplace_back(ground, steps);
        options.back().add(ground, job, /*full=*/false);
    }
    return options;
}

/// Those who will follow, the oldest first, each with all it may do; and the best that comes of it.
class Followers {
  public:
    Followers(const Ground &ground, const std::vector<GroupJob> &jobs, std::uint64_t steps, std::size_t own_placements)
    {
        std::size_t together = own_placements;
        for (const GroupJob &job : jobs) {
            options_.push_back(options_of(ground, job, steps));
            together *= std::min(kMaxJoint, options_.back().size());
            jointly_ = jointly_ && together <= kMaxJoint;
        }
    }

    /// The group's score when all of them choose their best beside `loads`.
    Score best(Loads loads) const { return jointly_ ? joint(&loads, 0) : in_turn(&loads); }

  private:
    Score joint(Loads *loads, std::size_t next) const
    {
        if (next == options_.size())
            return loads->score();
        std::optional<Score> best;
        for (const Loads &option : options_[next]) {
            loads->add(option);
            const Score score = joint(loads, next + 1);
            loads->take(option);
            if (!best || score.better_than(*best))
                best = score;
        }
        return *best;
    }

    Score in_turn(Loads *loads) const
    {
        for (const std::vector<Loads> &options : options_) {
            const Loads *chosen = nullptr;
            Score best;
            for (const Loads &option : options) {
                loads->add(option);
                const Score score = loads->score();
                loads->take(option);
                if (chosen && !score.better_than(best))
                    continue;
                chosen = &option;
                best = score;
            }
            loads->add(*chosen);
        }
        return loads->score();
    }

    std::vector<std::vector<Loads>> options_;
    bool jointly_ = true;
};

/// Whom the job has to fit, and who will fit it.
struct Group {
    Ground ground;
    std::vector<GroupJob> fixed, followers;

    Group(const GroupJob &job, const std::vector<GroupJob> &others) : ground(job)
    {
        const Ground own(job);
        for (const GroupJob &other : others)
            if (other.younger && own.shares_with(other) && !runs_full(other) && may_move(other)) {
                followers.push_back(other);
                ground.add(other);
            }
        std::copy_if(others.begin(), others.end(), std::back_inserter(fixed), [&](const GroupJob &other) {
            return ground.shares_with(other) && (!other.younger || (!followers.empty() && runs_full(other)));
        });
    }

    std::uint64_t period(const GroupJob &job) const
    {
        std::vector<GroupJob> all = fixed;
        all.insert(all.end(), followers.begin(), followers.end());
        return common_period(job, all);
    }
};

/// The best phase and direction, given that those who follow will choose their best; the present ones where nothing
/// is better.
GroupJob best_placed(const Group &group, const GroupJob &job)
{
    const std::uint64_t steps = group.period(job);
    Loads fixed(group.ground, steps);
    for (const GroupJob &other : group.fixed)
        fixed.add(group.ground, other, runs_full(other));
    const std::vector<plan::Directive> placements = placements_of(job);
    const Followers followers(group.ground, group.followers, steps, placements.size());
    GroupJob best = job, candidate = job;
    const auto score_of = [&](const GroupJob &placed) {
        Loads loads = fixed;
        loads.add(group.ground, placed, /*full=*/false);
        return followers.best(std::move(loads));
    };
    const Score present = score_of(job);
    Score best_score = present;
    for (const plan::Directive &directive : placements) {
        candidate.directive = directive;
        const Score score = score_of(candidate);
        if (!score.better_than(best_score))
            continue;
        best = candidate;
        best_score = score;
    }
    const bool near_best = present.mean_ms <= best_score.mean_ms * (1 + kHysteresis);
    return job.directive.generation > 0 && near_best ? job : best;
}

} // namespace

PhaseChoice choose_phase(const GroupJob &job, const std::vector<GroupJob> &others)
{
    const Group group(job, others);
    const bool alone = group.fixed.empty() && group.followers.size() < 2;
    const GroupJob placed = alone || !may_move(job) ? job : best_placed(group, job);
    const Ground own(job);
    Loads loads(own, common_period(placed, others));
    for (const GroupJob &other : others)
        loads.add(own, other, runs_full(other));
    loads.add(own, placed, runs_full_here(placed));
    const Score score = own.size() > 0 ? loads.score() : Score{full_turn_ms(job), full_turn_ms(job)};
    return {placed.directive.phase, placed.directive.direction, score.mean_ms, score.worst_ms};
}

} // namespace jigsaw::core
