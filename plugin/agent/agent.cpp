// SPDX-License-Identifier: Apache-2.0
// The parts of jigsawd, put together: life of a process, settings, periodic work. Messages: messages.cpp.
#include "plugin/agent/agent.hpp"

#include "plugin/agent/proc.hpp"
#include "plugin/agent/status.hpp"
#include "plugin/config/options.hpp"
#include "runtime/page/arbiter_side.hpp"

#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace jigsaw::agent {

namespace {

std::uint64_t wall_ns()
{
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000u + static_cast<std::uint64_t>(now.tv_nsec);
}

DirectorSettings director_settings(const config::Config &config)
{
    DirectorSettings settings;
    settings.depth = config.depth != "off";
    settings.complement_phases = config.phases != "same";
    settings.extra_iterations = config.extra_iterations;
    return settings;
}

char proc_state_of(const Process &process)
{
    ProcStat stat;
    const bool here = read_proc_stat(&stat, process.pid) && stat.start_ticks == process.start_ticks;
    return here ? stat.state : '?';
}

} // namespace

Agent::Agent(const AgentSettings &settings, std::shared_ptr<const config::Config> config, Log &log)
    : settings_(settings), config_(std::move(config)), log_(log),
      paths_(config::node_paths(settings.run_dir.empty() ? config_->run_dir : settings.run_dir, settings.node)),
      start_number_(wall_ns()), started_ns_(page::monotonic_ns()), trace_(log, config_->trace_events),
      registry_(loop_, log, paths_),
      context_{trace_, proc_state_of, nullptr, nullptr, nullptr}, uuid_indices_(nvidia_gpu_indices()),
      director_(director_settings(*config_), trace_)
{
    trace_.set_file(config_->trace_file);
    trace_.add(start_event(started_ns_));
    context_.granted = [this](Process &process) { pair(process); };
    context_.lease_outcome = [this](Process &process, bool expired) { lease_outcome(process, expired); };
    context_.rogue = [this](Process &process) { rogue(process); };
    registry_.scan(started_ns_);
    registry_.mark_all_known_at_start();
    start_publisher();
    server_ = std::make_unique<Server>(
        loop_, log_, paths_.socket, [this](const Peer &peer, const wire::Message &m) { return handle(peer, m); },
        [this](std::uint64_t connection) { connection_closed(connection); });
    log_.info("node " + settings_.node + ": " + std::to_string(registry_.jobs().size()) + " jobs, socket " +
              paths_.socket);
}

Agent::~Agent()
{
    end();
    for (const auto &[id, process] : processes_) {
        loop_.forget(process->pidfd.get());
        loop_.forget(process->bell.get());
    }
}

void Agent::end()
{
    if (ended_)
        return;
    ended_ = true;
    const std::uint64_t now = page::monotonic_ns();
    for (const auto &[gpu, arbiter] : arbiters_)
        arbiter->release_all(now);
    for (const auto &[id, process] : processes_) {
        Event event = event_of(EventKind::dead, *process, now);
        event.why = "jigsawd ended";
        trace_.add(event);
    }
    trace_.flush();
}

Publisher::Settings Agent::publisher_settings() const
{
    Publisher::Settings settings;
    settings.scontrol = config_->scontrol;
    settings.slurm_conf = config_->slurm_conf;
    return settings;
}

void Agent::start_publisher()
{
    publisher_ = std::make_unique<Publisher>(publisher_settings(), [this](const std::string &line) {
        const std::lock_guard<std::mutex> guard(publisher_lines_mutex_);
        publisher_lines_.push_back(line);
    });
}

ArbiterSettings Agent::arbiter_settings() const
{
    return {config_->turns != "off", config_->lease_min_ms * std::uint64_t{1000000}, config_->anticipation};
}

void Agent::reload(std::shared_ptr<const config::Config> config)
{
    config_ = std::move(config);
    const std::uint64_t now = page::monotonic_ns();
    for (const auto &[gpu, arbiter] : arbiters_)
        arbiter->set_settings(arbiter_settings(), now);
    director_.set_settings(director_settings(*config_));
    trace_.set_capacity(config_->trace_events);
    trace_.set_file(config_->trace_file);
    publisher_->set_settings(publisher_settings());
    publisher_->ask_private_data();
    log_.info("configuration read again; run_dir and node stay as they were at the start");
}

bool Agent::may_see(std::uint32_t uid, std::uint32_t owner) const
{
    return uid == 0 || uid == owner || publisher_->jobs_are_public();
}

std::string Agent::cores_of(int gpu) const
{
    for (const std::string &name : {settings_.node, std::string("*")}) {
        const auto node = config_->gpu_cores.find(name);
        if (node == config_->gpu_cores.end())
            continue;
        const auto core = node->second.find(gpu);
        if (core != node->second.end())
            return std::to_string(core->second);
    }
    return "";
}

Arbiter &Agent::arbiter_of(int gpu)
{
    std::unique_ptr<Arbiter> &arbiter = arbiters_[gpu];
    if (!arbiter)
        arbiter = std::make_unique<Arbiter>(gpu, arbiter_settings(), context_);
    return *arbiter;
}

bool Agent::has_process(const JobKey &key) const
{
    return std::any_of(processes_.begin(), processes_.end(),
                       [&](const auto &entry) { return entry.second->job == key; });
}

/// A process leaves: its turn is free at once, whatever else is still to be cleaned up.
void Agent::leave(std::uint64_t id, const char *why)
{
    const auto found = processes_.find(id);
    if (found == processes_.end())
        return;
    Process &process = *found->second;
    const std::uint64_t now = page::monotonic_ns();
    Event event = event_of(EventKind::dead, process, now);
    event.why = why;
    trace_.add(event);
    arbiter_of(process.gpu).remove(process, now);
    if (process.rank == 0)
        publish_last(process);
    loop_.forget(process.pidfd.get());
    loop_.forget(process.bell.get());
    if (Job *job = registry_.find(process.job)) {
        process.read_report(now);
        job->held_ns +=
            std::max(process.seat.held_ns, std::min(process.report.turn_ns, now - process.attached_ns));
    }
    log_.info("job " + std::to_string(process.job.first) + " rank " + std::to_string(process.rank) + " pid " +
              std::to_string(process.pid) + " " + why);
    process_of_connection_.erase(process.connection);
    server_->close(process.connection);
    processes_.erase(found);
    next_direct_ns_ = 0; // the others' directives may change now
}

void Agent::connection_closed(std::uint64_t connection)
{
    const auto found = process_of_connection_.find(connection);
    if (found != process_of_connection_.end())
        leave(found->second, "detached");
}

void Agent::watch_process(Process &process)
{
    const std::uint64_t id = process.id;
    loop_.watch(process.pidfd.get(), EPOLLIN, Loop::Priority::turn,
                [this, id](std::uint32_t) { leave(id, "died"); });
    loop_.watch(process.bell.get(), EPOLLIN, Loop::Priority::turn, [this, id](std::uint32_t) {
        const auto found = processes_.find(id);
        if (found == processes_.end())
            return;
        arbiter_of(found->second->gpu).look(*found->second, page::monotonic_ns());
    });
}

/// The rivals on the GPU used it just before: tell the director how far the jobs' iterations are apart.
void Agent::pair(Process &process)
{
    const Job *job = registry_.find(process.job);
    for (const Process *other : arbiter_of(process.gpu).seats()) {
        const Job *rival = registry_.find(other->job);
        if (job != nullptr && rival != nullptr && rival->older_than(*job))
            director_.note_pairing(process, *other);
    }
}

void Agent::lease_outcome(Process &process, bool expired)
{
    Job *job = registry_.find(process.job);
    if (job == nullptr)
        return;
    Marks &marks = job->marks;
    if (expired) {
        ++marks.leases_expired;
        marks.turns_since_expiry = 0;
        if (!marks.never_gives_back) {
            next_publish_ns_ = 0; // so that nobody is put beside it
            log_.warning(
                "job " + std::to_string(process.job.first) + " rank " + std::to_string(process.rank) + " pid " +
                std::to_string(process.pid) + " on GPU " + std::to_string(process.gpu) +
                " never gives turns back: its lease ended, the next one goes on; is jigsaw_end_compute() called?");
        }
        marks.never_gives_back = true;
    } else if (++marks.turns_since_expiry >= kForgivenTurns) {
        marks.never_gives_back = false;
    }
}

void Agent::rogue(Process &process)
{
    Job *job = registry_.find(process.job);
    if (job == nullptr || job->marks.computes_without_turn)
        return;
    job->marks.computes_without_turn = true;
    next_publish_ns_ = 0;
    log_.warning("job " + std::to_string(process.job.first) + " rank " + std::to_string(process.rank) + " pid " +
                 std::to_string(process.pid) + " computes on GPU " + std::to_string(process.gpu) +
                 " without a turn");
}

void Agent::check_memory(Process &process)
{
    Job *job = registry_.find(process.job);
    if (job == nullptr || !process.report_valid)
        return;
    const std::uint64_t claim = job->record.spb.memory_bytes;
    const std::uint64_t used = std::max(process.report.memory_bytes, process.report.memory_peak_bytes);
    if (claim == 0 || used <= claim)
        return;
    if (job->marks.memory_beyond_claim == 0)
        log_.warning("job " + std::to_string(process.job.first) + " rank " + std::to_string(process.rank) +
                     " uses " + config::format_size(used) + " on GPU " + std::to_string(process.gpu) +
                     ", it claimed " + config::format_size(claim) + ": submit it with a larger --spb-mem");
    if (job->marks.memory_beyond_claim == 0)
        next_publish_ns_ = 0;
    job->marks.memory_beyond_claim = std::max(job->marks.memory_beyond_claim, used);
}

void Agent::step(int timeout_ms)
{
    std::uint64_t now = page::monotonic_ns();
    std::uint64_t next = next_tick_ns_;
    for (const auto &[gpu, arbiter] : arbiters_)
        next = std::min(next, arbiter->next_check_ns(now));
    const std::uint64_t wait_ms = next <= now ? 0 : (next - now + 999999) / 1000000;
    loop_.step(timeout_ms < 0 ? static_cast<int>(wait_ms) : std::min(timeout_ms, static_cast<int>(wait_ms)));
    now = page::monotonic_ns();
    for (const auto &[gpu, arbiter] : arbiters_) {
        if (now >= next_tick_ns_ || now >= next)
            arbiter->tick(now);
    }
    if (now >= next_tick_ns_)
        tick(now);
}

void Agent::tick(std::uint64_t now_ns)
{
    next_tick_ns_ = now_ns + kTickNs;
    beat(now_ns);
    server_->close_idle(now_ns);
    if (!settled_)
        settle(now_ns);
    if (now_ns >= next_direct_ns_) {
        direct(now_ns);
        if (config_->admin_comment_period_s > 0)
            publish(now_ns);
    }
    if (now_ns >= next_sweep_ns_)
        ask_about_idle_jobs(now_ns);
    registry_.forget_over([this](const JobKey &key) { return has_process(key); });
    trace_.flush();
    const std::lock_guard<std::mutex> guard(publisher_lines_mutex_);
    for (const std::string &line : std::exchange(publisher_lines_, {}))
        log_.warning(line);
}

void Agent::beat(std::uint64_t now_ns)
{
    for (const auto &[id, process] : processes_) {
        page::beat(process->pages, now_ns);
        const std::uint64_t iteration = process->report.iteration;
        process->read_report(now_ns);
        check_memory(*process);
        if (!arbiter_of(process->gpu).closed() && process->report_valid && process->report.iteration != iteration)
            trace_.add(event_of(EventKind::iteration, *process, now_ns));
    }
}

/// After a restart, ranks that ran under the jigsawd before may be out there, ungated: a GPU's gates are closed when all
/// jobs known at the start are back on it, or after kSettleNs.
void Agent::settle(std::uint64_t now_ns)
{
    settled_ = now_ns - started_ns_ >= kSettleNs;
    for (const auto &[gpu, arbiter] : arbiters_) {
        bool all_back = true;
        for (const auto &[key, job] : registry_.jobs()) {
            const auto &seats = arbiter->seats();
            if (job.known_at_start && job.listed && job.has_gpu(gpu))
                all_back = all_back && std::any_of(seats.begin(), seats.end(),
                                                   [k = key](const Process *p) { return p->job == k; });
        }
        if (settled_ || all_back)
            arbiter->set_settled(true, now_ns);
    }
}

void Agent::direct(std::uint64_t now_ns)
{
    next_direct_ns_ = now_ns + kDirectNs;
    std::vector<LocalJob> jobs = local_jobs(*this);
    jobs.erase(std::remove_if(jobs.begin(), jobs.end(), [](const LocalJob &job) { return job.processes.empty(); }),
               jobs.end());
    director_.direct(jobs, now_ns);
}

/// Every admin_comment_period_s, and for a job's first profile as soon as there is one: it decides who may join.
void Agent::publish(std::uint64_t now_ns)
{
    const bool due = now_ns >= next_publish_ns_;
    if (due)
        next_publish_ns_ = now_ns + config_->admin_comment_period_s * std::uint64_t{1000000000};
    for (const LocalJob &local : local_jobs(*this)) {
        Job &job = *local.job;
        if (local.rank0() == nullptr || !job.listed)
            continue;
        const bool first = !job.profile_told && local.rank0()->report.iteration >= kProfileIterations;
        job.profile_told = job.profile_told || first;
        if (due || first)
            publisher_->publish(job.record.job_id, comment_segment(local, now_ns, static_cast<std::int64_t>(wall_ns() / 1000000000)));
    }
}

/// A job may be over before its turn to be published comes: what it was like is known best at its end.
void Agent::publish_last(const Process &rank0)
{
    if (config_->admin_comment_period_s == 0 || ended_)
        return;
    for (const LocalJob &job : local_jobs(*this)) {
        if (job.rank0() == &rank0 && rank0.report.iteration > 0)
            publisher_->publish(job.job->record.job_id, comment_segment(job, page::monotonic_ns(), static_cast<std::int64_t>(wall_ns() / 1000000000)));
    }
}

/// A node that lost power, or an epilog that never ran, leaves records behind: ask Slurm about jobs without a process.
void Agent::ask_about_idle_jobs(std::uint64_t now_ns)
{
    next_sweep_ns_ = now_ns + kSweepNs;
    const std::set<core::JobId> unknown = publisher_->take_unknown();
    std::vector<JobKey> gone;
    for (const auto &[key, job] : registry_.jobs()) {
        if (!job.listed || has_process(key) || now_ns - job.listed_ns < kSweepNs)
            continue;
        if (unknown.count(key.first) > 0)
            gone.push_back(key);
        else
            publisher_->ask(key.first);
    }
    for (const JobKey &key : gone)
        registry_.sweep(key);
}

} // namespace jigsaw::agent
