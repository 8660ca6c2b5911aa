// SPDX-License-Identifier: Apache-2.0
// A discrete-event simulation of turns on a few GPUs. Time is in nanoseconds, as jigsawd's.
#include "plugin/sim/turns.hpp"

#include "plugin/core/depth.hpp"
#include "plugin/core/load.hpp"
#include "plugin/core/timeslice.hpp"
#include "plugin/sim/joiner.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

namespace jigsaw::sim {

namespace {

constexpr std::uint64_t kRanks = 1u << 16; // process ids are job * kRanks + rank

std::uint64_t ns_of(double ms) { return static_cast<std::uint64_t>(std::llround(ms * 1e6)); }

class TurnRun {
  public:
    TurnRun(const std::vector<TurnJob> &jobs, int gpus, const TurnOptions &options)
        : jobs_(jobs), options_(options), queues_(static_cast<std::size_t>(gpus)), states_(jobs.size()),
          busy_ns_(static_cast<std::size_t>(gpus), 0)
    {
        for (std::size_t j = 0; j < jobs.size(); ++j)
            for (std::size_t rank = 0; rank < jobs[j].gpu_of_rank.size(); ++rank)
                queue_of(j, rank).add(process(j, rank));
        for (core::TurnQueue &queue : queues_)
            queue.set_patience(options.patience);
        for (std::size_t j = 0; j < jobs.size(); ++j)
            events_.emplace(0, Kind::begin, j, 0);
    }

    TurnResult run()
    {
        const std::uint64_t end_ns = ns_of(options_.duration_ms);
        while (!events_.empty() && std::get<0>(events_.top()) < end_ns) {
            now_ns_ = std::get<0>(events_.top());
            while (!events_.empty() && std::get<0>(events_.top()) == now_ns_) {
                const auto [at_ns, kind, job, rank] = events_.top();
                events_.pop();
                handle(kind, job, rank);
            }
            for (std::size_t gpu = 0; gpu < queues_.size(); ++gpu)
                grant(gpu);
        }
        TurnResult result;
        result.counted_ms = options_.duration_ms - options_.warmup_ms;
        for (const State &state : states_)
            result.iterations.push_back(static_cast<double>(state.counted));
        for (const std::uint64_t busy : busy_ns_)
            result.gpu_busy.push_back(static_cast<double>(busy) / 1e6 / result.counted_ms);
        return result;
    }

  private:
    enum class Kind { begin, release, wake };
    using Event = std::tuple<std::uint64_t, Kind, std::size_t, std::size_t>; // when, what, job, rank
    struct State {
        std::uint64_t iteration = 0, counted = 0;
        std::size_t computing = 0; ///< ranks of this iteration that are not done
    };

    core::TurnQueue &queue_of(std::size_t job, std::size_t rank)
    {
        return queues_[static_cast<std::size_t>(jobs_[job].gpu_of_rank[rank])];
    }

    core::TurnQueue::Process process(std::size_t job, std::size_t rank) const
    {
        const TurnJob &spec = jobs_[job];
        core::TurnQueue::Process made;
        made.id = job * kRanks + rank;
        made.job = static_cast<core::JobId>(job + 1);
        made.job_start_ns = job + 1;
        made.weight = spec.weight;
        if (options_.by_isolated_time)
            made.unit = spec.forward_ms + spec.backward_ms_of_level.back() + spec.away_ms;
        return made;
    }

    double turn_ms(std::size_t job, std::size_t rank) const
    {
        const TurnJob &spec = jobs_[job];
        double backward_ms = spec.backward_ms_of_level.back();
        if (spec.directive.generation > 0) {
            const auto level = plan::level_of(spec.directive, static_cast<std::uint32_t>(rank),
                                              static_cast<std::uint32_t>(spec.gpu_of_rank.size()),
                                              states_[job].iteration);
            backward_ms = spec.backward_ms_of_level.at(level - 1);
        }
        return (spec.forward_ms + backward_ms) * options_.switch_slowdown;
    }

    void handle(Kind kind, std::size_t job, std::size_t rank)
    {
        if (kind == Kind::begin) {
            states_[job].computing = jobs_[job].gpu_of_rank.size();
            for (std::size_t r = 0; r < jobs_[job].gpu_of_rank.size(); ++r)
                queue_of(job, r).want(job * kRanks + r, now_ns_);
        } else if (kind == Kind::release) {
            queue_of(job, rank).released(job * kRanks + rank, now_ns_, 1);
            if (--states_[job].computing > 0)
                return;
            ++states_[job].iteration;
            states_[job].counted += now_ns_ >= ns_of(options_.warmup_ms);
            events_.emplace(now_ns_ + ns_of(jobs_[job].away_ms), Kind::begin, job, 0);
        }
    }

    void grant(std::size_t gpu)
    {
        core::TurnQueue &queue = queues_[gpu];
        if (const auto id = queue.next(now_ns_)) {
            queue.granted(*id, now_ns_);
            const std::size_t job = *id / kRanks, rank = *id % kRanks;
            const std::uint64_t until_ns = now_ns_ + ns_of(turn_ms(job, rank));
            const std::uint64_t from_ns = std::max(now_ns_, ns_of(options_.warmup_ms));
            const std::uint64_t last_ns = std::min(until_ns, ns_of(options_.duration_ms));
            busy_ns_[gpu] += last_ns > from_ns ? last_ns - from_ns : 0;
            events_.emplace(until_ns, Kind::release, job, rank);
        } else if (const auto until_ns = queue.idle_until(now_ns_)) {
            events_.emplace(std::max(*until_ns, now_ns_ + 1), Kind::wake, 0, 0);
        }
    }

    const std::vector<TurnJob> &jobs_;
    const TurnOptions &options_;
    std::vector<core::TurnQueue> queues_;
    std::vector<State> states_;
    std::vector<std::uint64_t> busy_ns_;
    std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
    std::uint64_t now_ns_ = 0;
};

core::GroupJob group_job(const TurnJob &job, core::JobId id)
{
    core::GroupJob made;
    made.id = id;
    made.world_size = static_cast<std::uint32_t>(job.gpu_of_rank.size());
    made.gpu_of_rank = job.gpu_of_rank;
    made.directive = job.directive;
    made.forward_ms = job.forward_ms;
    made.backward_ms_of_level = job.backward_ms_of_level;
    return made;
}

/// One job's directive against the others', as jigsawd asks for it again and again.
plan::Directive directed(const std::vector<TurnJob> &jobs, std::size_t which, const core::SpbRequest &request)
{
    core::GroupJob own = group_job(jobs[which], static_cast<core::JobId>(which + 1));
    own.directive.levels = static_cast<std::uint32_t>(own.backward_ms_of_level.size());
    std::vector<core::GroupJob> others;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
        if (j == which)
            continue;
        others.push_back(group_job(jobs[j], static_cast<core::JobId>(j + 1)));
        others.back().younger = j > which;
        others.back().directive.levels = static_cast<std::uint32_t>(others.back().backward_ms_of_level.size());
    }
    const std::uint64_t generation = jobs[which].directive.generation + 1;
    return core::wanted_directive(request, own, others, 1, generation);
}

} // namespace

double TurnResult::relative_rate(std::size_t job, const TurnJob &spec) const
{
    return iterations[job] * (spec.forward_ms + spec.backward_ms_of_level.back() + spec.away_ms) / counted_ms;
}

TurnResult simulate_turns(const std::vector<TurnJob> &jobs, int gpus, const TurnOptions &options)
{
    return TurnRun(jobs, gpus, options).run();
}

std::vector<TurnJob> gang_of(const JobType &type, const DepthCurve &curve, int jobs, bool partial_depth,
                             plan::Policy policy)
{
    const core::Profile profile = profile_of(type, curve);
    core::SpbRequest request = spb_request(type.gpus, true);
    request.policy = policy;
    TurnJob spec;
    for (int gpu = 0; gpu < type.gpus; ++gpu)
        spec.gpu_of_rank.push_back(gpu);
    spec.forward_ms = profile.forward_ms;
    spec.backward_ms_of_level = profile.backward_ms_of_level;
    if (policy == plan::Policy::two_level) {
        request.levels = 2;
        spec.backward_ms_of_level = {profile.backward_ms_of_level.front(), profile.backward_ms_of_level.back()};
    }
    spec.away_ms = std::max(0.0, type.stages.iteration_ms - type.stages.gpu_ms);
    if (partial_depth && jobs > 1)
        spec.away_ms *= core::partial_sync_share(request, profile, static_cast<std::uint32_t>(type.gpus));
    std::vector<TurnJob> made(static_cast<std::size_t>(jobs), spec);
    constexpr int kRounds = 3; // the first to ask finds the others undirected
    for (int round = 0; partial_depth && round < kRounds; ++round)
        for (std::size_t j = 0; j < made.size(); ++j) {
            const plan::Directive wanted = directed(made, j, request);
            if (wanted.policy != plan::Policy::full)
                made[j].directive = wanted;
        }
    return made;
}

} // namespace jigsaw::sim
