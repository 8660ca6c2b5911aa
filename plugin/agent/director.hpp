// SPDX-License-Identifier: Apache-2.0
// Depth directives of the jobs whose rank 0 is on this node, and the rivals that every process is told. What is wanted is
// decided by core::wanted_directive; here is what it is told, and when a new generation is worth publishing.
#ifndef JIGSAW_AGENT_DIRECTOR_HPP
#define JIGSAW_AGENT_DIRECTOR_HPP

#include "plugin/agent/process.hpp"
#include "plugin/agent/trace.hpp"
#include "plugin/core/depth.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace jigsaw::agent {

struct DirectorSettings {
    bool depth = true;              ///< false: never direct partial depth
    bool complement_phases = true;  ///< false: phase 0 for all (control runs)
    double extra_iterations = 1;    ///< q of core::depth_pays
    std::uint64_t cost_factor = 50; ///< deciding may take 1/50 of the time; 0 (tests): any
};

/// A job with its processes on this node, as the director sees it.
struct LocalJob {
    Job *job = nullptr;
    std::vector<Process *> processes; ///< by rank; of the job's newest step
    Process *rank0() const
    {
        return !processes.empty() && processes.front()->rank == 0 ? processes.front() : nullptr;
    }
};

class Director {
  public:
    static constexpr std::uint32_t kMaxWorld = 256;            ///< larger jobs run full depth
    static constexpr std::uint64_t kSettlePhaseNs = 1000000000; ///< another phase must look better for so long
    static constexpr std::size_t kSamples = 7;

    Director(const DirectorSettings &settings, Trace &trace) : settings_(settings), trace_(trace) {}

    void set_settings(const DirectorSettings &settings) { settings_ = settings; }
    /// Decide for all jobs, oldest first, and write every page. Call about every 100 ms.
    void direct(std::vector<LocalJob> &jobs, std::uint64_t now_ns);
    /// `younger` was granted a turn right after `older` used the GPU: how far are their iterations apart?
    void note_pairing(const Process &younger, const Process &older);
    void forget(const JobKey &key) { states_.erase(key); }
    /// What is wanted of the job now; generation 0: nothing.
    plan::Directive wanted(const JobKey &key) const;
    /// Mean depth fraction of what the job follows, by its measured backward times.
    static double depth_fraction(const LocalJob &job);
    /// Backward time in ms at each level the job would be asked for; empty where its blocks' times are not known.
    static std::vector<double> level_costs_ms(const LocalJob &job);

  private:
    struct State {
        plan::Directive wanted;                ///< published last
        std::uint64_t published_ns = 0;
        std::uint64_t agreed_generation = 0;   ///< seen last, for the log
        std::size_t rivals = 0;                ///< jobs that shared its GPUs at the last look, here and elsewhere
        std::uint64_t other_phase_since_ns = 0; ///< 0: the present phase is the best
        std::uint64_t not_before_ns = 0;       ///< the next decision, by the cost of the last
        std::map<JobKey, std::deque<std::int64_t>> offsets; ///< older job's iteration minus ours, last samples
    };
    void direct_job(LocalJob &job, const std::vector<LocalJob> &rivals, std::uint64_t now_ns);
    plan::Directive decide(const LocalJob &job, const std::vector<LocalJob> &rivals, const State &state,
                           std::uint64_t generation) const;
    /// The rivals here and, as far as rank 0 reported them, on other nodes; *mine gets the GPUs that it meets those on.
    std::vector<core::GroupJob> group_of(core::GroupJob *mine, const LocalJob &job, const std::vector<LocalJob> &rivals,
                                         const State &state) const;
    bool worth_publishing(State &state, const plan::Directive &current, const plan::Directive &next,
                          bool group_changed, std::uint64_t now_ns) const;
    core::GroupJob group_job(const LocalJob &job, const plan::Directive &directive) const;
    const plan::Directive &current(const State &state, const LocalJob &job) const;
    std::int32_t offset_to(const Process &process, const Job &other, std::uint64_t other_iteration) const;
    void write_page(Process &process, const std::vector<LocalJob> &jobs, bool is_rank0);
    void notice_agreed(State &state, const LocalJob &job, std::uint64_t now_ns);

    DirectorSettings settings_;
    Trace &trace_;
    std::map<JobKey, State> states_;
};

} // namespace jigsaw::agent
#endif
