// SPDX-License-Identifier: Apache-2.0
// Events are arrivals, ends and what the policy asks for. The arithmetic is the peer's to the last bit (iterations left,
// not seconds), so that its results come out to the second: docs/evaluation.md.
#include "plugin/sim/replan.hpp"

#include "plugin/sim/text.hpp"

#include <algorithm>
#include <chrono>

namespace jigsaw::sim {

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kProgressEvery = 256; // events

class Replanner {
  public:
    Replanner(const Slowdowns &slowdowns, const RunOptions &options, RestartRule restart)
        : options_(options), restart_(restart), workload_(slowdowns.workload()),
          view_{workload_, slowdowns, options.cluster, {}}
    {
        view_.states.resize(workload_.jobs.size());
        for (std::size_t i = 0; i < view_.states.size(); ++i)
            view_.states[i].remaining = workload_.jobs[i].iterations;
        outcome_.jobs.resize(workload_.jobs.size());
    }

    Outcome run(const PolicyMaker &make)
    {
        const auto began = Clock::now();
        policy_ = make(view_);
        while (done_ < workload_.jobs.size())
            step();
        outcome_.wall_s = std::chrono::duration<double>(Clock::now() - began).count();
        return std::move(outcome_);
    }

  private:
    JobState &state(int job) { return view_.states[static_cast<std::size_t>(job)]; }
    const Job &job_of(int job) const { return workload_.jobs[static_cast<std::size_t>(job)]; }

    void step()
    {
        const double arrival_s = arrived_ < workload_.jobs.size() ? workload_.jobs[arrived_].submit_s : kNever;
        double end_s = kNever;
        for (const int job : running_)
            end_s = std::min(end_s, state(job).end_s);
        double event_s = std::min(arrival_s, end_s);
        const double wanted_s = policy_->next_event_s();
        const bool only_policy = wanted_s < event_s;
        event_s = only_policy ? wanted_s : event_s;
        if (event_s == kNever)
            throw InputError("no job runs and none arrives, but " + std::to_string(workload_.jobs.size() - done_) +
                             " wait: the cluster is too small for them");
        if (!only_policy && end_s == event_s)
            end_jobs(event_s);
        advance(event_s);
        while (!only_policy && arrived_ < workload_.jobs.size() && workload_.jobs[arrived_].submit_s <= event_s)
            policy_->arrive(static_cast<int>(arrived_++));
        policy_->advanced();
        plan();
        sample();
        ++outcome_.events;
        if (options_.progress && outcome_.events % kProgressEvery == 0)
            options_.progress(done_, workload_.jobs.size());
    }

    void end_jobs(double event_s)
    {
        const auto ended = [&](int job) {
            if (state(job).end_s != event_s)
                return false;
            state(job).running = false;
            outcome_.jobs[static_cast<std::size_t>(job)].end_s = event_s;
            policy_->leave(job);
            ++done_;
            return true;
        };
        running_.erase(std::remove_if(running_.begin(), running_.end(), ended), running_.end());
    }

    void advance(double event_s)
    {
        const double passed_s = event_s - now_s_;
        now_s_ = event_s;
        for (const int job : running_) {
            JobState &at = state(job);
            const double worked_s = std::max(passed_s - at.overhead_s, 0.0);
            at.remaining -= worked_s / (job_of(job).iteration_s * at.slowdown);
            at.attained_s += passed_s;
            at.overhead_s = std::max(0.0, at.overhead_s - passed_s);
        }
    }

    void plan()
    {
        const auto before = Clock::now();
        groups_.clear();
        policy_->plan(now_s_, &groups_);
        outcome_.decision_ms.push_back(
            std::chrono::duration<float, std::milli>(Clock::now() - before).count());
        was_running_.assign(workload_.jobs.size(), false);
        for (const int job : running_) {
            was_running_[static_cast<std::size_t>(job)] = true;
            state(job).running = false;
            state(job).end_s = kNever;
        }
        running_.clear();
        for (const PlannedGroup &group : groups_)
            start(group);
    }

    void start(const PlannedGroup &group)
    {
        std::array<TypeId, kMaxSharing> types{};
        double restart_s = 0;
        for (int i = 0; i < group.count; ++i) {
            const int job = group.jobs[static_cast<std::size_t>(i)];
            types[static_cast<std::size_t>(i)] = view_.type(job);
            restart_s += workload_.types[view_.type(job)].restart_s;
        }
        const Slowdowns::Group &priced = view_.slowdowns.group(types.data(), group.count);
        for (int i = 0; i < group.count; ++i)
            start(group.jobs[static_cast<std::size_t>(i)], group.count, priced, restart_s);
    }

    /// `group_restart_s`: the peer charges every member for all members.
    void start(int job, int sharing, const Slowdowns::Group &priced, double group_restart_s)
    {
        JobState &at = state(job);
        JobOutcome &told = outcome_.jobs[static_cast<std::size_t>(job)];
        const bool fresh = !was_running_[static_cast<std::size_t>(job)];
        at.running = true;
        at.slowdown = priced.of(view_.type(job));
        if (restart_ == RestartRule::every_event)
            at.overhead_s = group_restart_s;
        else if (restart_ == RestartRule::on_start && fresh)
            at.overhead_s = workload_.types[view_.type(job)].restart_s;
        at.end_s = now_s_ + at.remaining * (job_of(job).iteration_s * at.slowdown);
        if (restart_ == RestartRule::on_start)
            at.end_s += at.overhead_s;
        at.end_s = std::max(at.end_s, now_s_);
        told.restarts += fresh && told.start_s >= 0;
        if (told.start_s < 0)
            told.start_s = now_s_;
        told.most_sharing = std::max(told.most_sharing, static_cast<std::uint32_t>(sharing));
        running_.push_back(job);
    }

    void sample()
    {
        if (!options_.keep_samples)
            return;
        Sample sample;
        sample.at_s = now_s_;
        for (const PlannedGroup &group : groups_)
            sample.busy_gpus += view_.gpus(group.jobs[0]);
        for (const int job : running_)
            sample.work_rate += view_.gpus(job) / state(job).slowdown;
        sample.running_jobs = static_cast<int>(running_.size());
        sample.waiting_jobs = static_cast<int>(arrived_ - done_) - sample.running_jobs;
        outcome_.samples.push_back(sample);
    }

    const RunOptions &options_;
    RestartRule restart_;
    const Workload &workload_;
    ReplanView view_;
    std::unique_ptr<ReplanPolicy> policy_;
    Outcome outcome_;
    std::vector<PlannedGroup> groups_;
    std::vector<int> running_;
    std::vector<bool> was_running_;
    std::size_t arrived_ = 0, done_ = 0;
    double now_s_ = 0;
};

} // namespace

Outcome run_replanning(const Slowdowns &slowdowns, const RunOptions &options, RestartRule restart,
                       const PolicyMaker &make)
{
    return Replanner(slowdowns, options, restart).run(make);
}

} // namespace jigsaw::sim
