// SPDX-License-Identifier: Apache-2.0
// docs/protocol.md "Agreement"; the learning-rate rule and why two levels are the default: docs/paper-map.md.
#include "runtime/capi/director.hpp"

#include <algorithm>

namespace jigsaw::capi {

namespace {

using plan::Directive;
using plan::Policy;

/// Measured iterations that a table of depths needs: the first one is taken cold.
constexpr std::uint32_t kMeasuredBeforeTable = 2;

Directive full_depth()
{
    Directive directive;
    directive.policy = Policy::full;
    directive.levels = 1;
    return directive;
}

/// The same work for every rank at every iteration: generation, stamp and the rounding of depths aside.
bool same_roles(const Directive &a, const Directive &b)
{
    if (a.policy == Policy::full && b.policy == Policy::full)
        return true;
    return a.policy == b.policy && a.phase == b.phase && a.direction == b.direction && a.levels == b.levels &&
           a.seed == b.seed && (!plan::has_two_depths(a.policy) || a.full_workers == b.full_workers);
}

/// Deepen the shallowest levels by one block.
void deepen(Directive *directive)
{
    const std::uint32_t shallowest = directive->depth_of_level.front();
    for (std::uint32_t &depth : directive->depth_of_level)
        if (depth == shallowest)
            ++depth;
}

} // namespace

Director::Director(const Settings &settings)
    : world_size_(settings.world_size), num_blocks_(settings.num_blocks()), settings_(settings)
{
    announced_ = full_depth(); // nothing announced means full depth
}

std::string Director::take_message()
{
    return std::exchange(message_, std::string());
}

std::uint32_t Director::warmup_left(std::uint64_t iteration) const
{
    const std::uint64_t warmup = settings_.warmup_iterations;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(warmup > iteration ? warmup - iteration : 0, UINT32_MAX));
}

std::uint32_t Director::min_full_workers(std::uint64_t iteration, double lr_over_peak) const
{
    return least_full_of(world_size_, iteration, lr_over_peak);
}

std::uint32_t Director::least_full_of(std::uint32_t all, std::uint64_t iteration, double lr_over_peak) const
{
    if (warmup_left(iteration) > 0)
        return all;
    return std::isnan(lr_over_peak) ? 1 : plan::full_workers_for_rate(lr_over_peak, all);
}

Directive Director::of_code() const
{
    Directive directive = full_depth();
    directive.policy = settings_.policy;
    directive.levels = settings_.levels;
    directive.full_workers = settings_.full_workers;
    directive.seed = settings_.seed;
    return directive;
}

void Director::note_agent(bool agent)
{
    if (agent && agent_lost_)
        message_ = "jigsaw: jigsawd is back; following its directives again";
    if (!agent && agent_seen_ && !agent_lost_)
        message_ = std::string("jigsaw: jigsawd is gone or silent for more than 500 ms; announcing ") +
                   (settings_.policy_given ? "the policy given in code" : "full depth");
    agent_seen_ = agent_seen_ || agent;
    agent_lost_ = agent_seen_ && !agent;
}

bool Director::usable(const Directive &directive)
{
    const std::string why = plan::validate(directive, world_size_, num_blocks_);
    if (why.empty())
        return true;
    if (refused_generation_ != directive.generation)
        message_ = "jigsaw: directive " + std::to_string(directive.generation) + " refused: " + why +
                   "; announcing full depth";
    refused_generation_ = directive.generation;
    return false;
}

Directive Director::source(const Outlook &outlook)
{
    note_agent(outlook.agent);
    if (warmup_left(outlook.iteration + 2) > 0)
        return full_depth();
    if (!outlook.agent)
        return of_code();
    return outlook.wanted.generation == 0 ? full_depth() : outlook.wanted;
}

void Director::raise_to_floor(Directive *directive, const Outlook &outlook) const
{
    const auto below = [&] {
        return plan::mean_depth_fraction(*directive, world_size_, outlook.backward_ns) < settings_.min_depth_fraction - 1e-9;
    };
    if (const std::uint32_t most = plan::full_out_of(directive->policy, world_size_); most > 0) {
        const std::uint32_t least = least_full_of(most, outlook.iteration + 2, outlook.lr_over_peak);
        directive->full_workers = std::min(most, std::max(directive->full_workers, least));
        while (directive->full_workers < most && below())
            ++directive->full_workers;
        return;
    }
    while (directive->depth_of_level.front() < num_blocks_ && below())
        deepen(directive);
}

void Director::complete(Directive *directive, const Outlook &outlook) const
{
    directive->depth_of_level = plan::make_depth_table(directive->policy, directive->levels, outlook.backward_ns);
    raise_to_floor(directive, outlook);
}

Directive Director::next(const Outlook &outlook)
{
    Directive wanted = source(outlook);
    const bool of_agent = outlook.agent && wanted.generation != 0;
    // Range first, so that a bad value from the page reaches no arithmetic.
    Directive probe = wanted;
    probe.generation = std::max<std::uint64_t>(1, wanted.generation);
    probe.depth_of_level.assign(std::min<std::uint32_t>(std::max(1u, probe.levels), JIGSAW_MAX_LEVELS), num_blocks_);
    if (!usable(probe))
        wanted = full_depth();
    if (wanted.policy != Policy::full && !plan::has_two_depths(wanted.policy) && outlook.measured < kMeasuredBeforeTable)
        return {};
    const std::uint64_t wanted_generation = of_agent ? wanted.generation : 0;
    wanted.generation = std::max(announced_.generation + 1, wanted_generation);
    complete(&wanted, outlook);
    const bool renumbered = of_agent && wanted_generation > announced_.generation;
    if (same_roles(wanted, announced_) && !renumbered)
        return {};
    if (!usable(wanted))
        return {};
    announced_ = wanted;
    return wanted;
}

} // namespace jigsaw::capi
