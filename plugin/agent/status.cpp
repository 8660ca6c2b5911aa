// SPDX-License-Identifier: Apache-2.0
// The status document.
#include "plugin/agent/status.hpp"

#include "plugin/agent/json.hpp"
#include "plugin/agent/version.hpp"
#include "plugin/config/options.hpp"
#include "plugin/config/text.hpp"
#include "runtime/page/page.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace jigsaw::agent {

namespace {

double seconds(std::uint64_t ns)
{
    return static_cast<double>(ns) / 1e9;
}

double milliseconds(std::uint64_t ns)
{
    return static_cast<double>(ns) / 1e6;
}

const char *state_word(const Process &process)
{
    if (process.seat.stopped)
        return "stopped";
    if (process.seat.waiting)
        return "waiting";
    const std::uint32_t state = __atomic_load_n(&process.pages.report->state, __ATOMIC_SEQ_CST);
    return process.seat.counted || state == JIGSAW_STATE_RUNNING ? "running" : "idle";
}

void add_directive(Json &json, const std::string &key, const plan::Directive &directive)
{
    if (directive.generation == 0) {
        json.null(key);
        return;
    }
    json.object(key)
        .field("generation", directive.generation)
        .field("policy", plan::policy_name(directive.policy));
    json.field("phase", static_cast<std::int64_t>(directive.phase));
    json.field("direction", static_cast<std::int64_t>(directive.direction));
    json.field("levels", directive.levels).field("full_workers", directive.full_workers);
    json.field("first_iteration", directive.first_iteration).end();
}

void add_process(Json &json, const Process &process, bool own)
{
    const page::ReportView &report = process.report;
    json.object().field("rank", process.rank).field("world_size", process.world_size).field("step", process.step);
    json.field("pid", static_cast<std::int64_t>(process.pid)).field("gpu", process.gpu);
    json.field("state", state_word(process)).field("turns", process.seat.turns);
    json.field("turn_s", seconds(process.seat.held_ns)).field("wait_s", seconds(process.seat.waited_ns));
    json.field("leases_expired", process.seat.leases_expired);
    if (process.report_valid && report.num_blocks > 0) {
        json.field("iteration", report.iteration)
            .field("depth", report.depth)
            .field("num_blocks", report.num_blocks);
        json.field("forward_ms", milliseconds(report.forward_ns))
            .field("backward_ms", milliseconds(report.backward_ns));
        json.field("sync_ms", milliseconds(report.sync_ns))
            .field("iteration_ms", milliseconds(report.iteration_ns));
        json.field("memory_bytes", report.memory_bytes).field("memory_peak_bytes", report.memory_peak_bytes);
        if (own) // only the job's user and root: it says something about the work itself
            json.field("loss", report.loss).field("progress", report.progress);
    }
    json.end();
}

/// The group of each GPU of this node that has jobs: the lowest GPU of those that chains of common jobs connect. Jobs hidden
/// from the reader connect GPUs, too.
std::map<int, int> gpu_groups(const Agent &agent)
{
    std::map<int, int> groups;
    for (const auto &[key, job] : agent.registry().jobs()) {
        std::set<int> merged;
        for (const int gpu : job.record.gpus)
            merged.insert(groups.emplace(gpu, gpu).first->second);
        for (auto &[gpu, group] : groups) {
            if (merged.count(group) > 0)
                group = *merged.begin();
        }
    }
    return groups;
}

void add_job(Json &json, const Agent &agent, const LocalJob &local, const std::map<int, int> &groups, std::uint32_t uid)
{
    const Job &job = *local.job;
    const bool own = uid == 0 || uid == job.record.uid;
    json.object();
    json.array("gpus");
    for (const int gpu : job.record.gpus)
        json.value(static_cast<double>(gpu));
    json.end();
    if (job.record.gpus.empty())
        json.null("group");
    else
        json.field("group", groups.at(job.record.gpus.front()));
    if (!agent.may_see(uid, job.record.uid)) {
        json.field("masked", true).end();
        return;
    }
    json.field("job_id", job.record.job_id)
        .field("restart", job.record.restart_count)
        .field("uid", job.record.uid);
    json.field("options", config::format_request(job.record.spb)).field("start_s", job.record.start_s);
    json.field("weight", job.weight).field("attached", !local.processes.empty()).field("over", !job.listed);
    json.field("rank0_here", local.rank0() != nullptr);
    add_directive(json, "wanted", agent.director().wanted(job.key()));
    add_directive(json, "agreed",
                  local.processes.empty() ? plan::Directive{} : local.processes.front()->report.agreed);
    json.field("depth_fraction", Director::depth_fraction(local));
    json.field("turn_share", turn_share(agent, local)).field("gpu_seconds", seconds(held_ns(local)));
    json.field("leases_expired", job.marks.leases_expired);
    json.array("misbehaving");
    for (const std::string &sentence : job.marks.sentences(job.record.spb.memory_bytes))
        json.value(sentence);
    json.end();
    json.array("processes");
    for (const Process *process : local.processes)
        add_process(json, *process, own);
    json.end().end();
}

void add_gpu(Json &json, const Agent &agent, int gpu, const Arbiter *arbiter, std::uint32_t uid)
{
    json.object().field("index", gpu).field("cores", agent.cores_of(gpu));
    json.array("residents");
    for (const auto &[key, job] : agent.registry().jobs()) {
        if (job.has_gpu(gpu))
            agent.may_see(uid, job.record.uid) ? json.value(static_cast<double>(key.first)) : json.value("masked");
    }
    json.end();
    json.field("gate", arbiter != nullptr && arbiter->closed() ? "closed" : "open");
    json.field("processes", static_cast<std::uint64_t>(arbiter ? arbiter->seats().size() : 0));
    json.field("waiting", static_cast<std::uint64_t>(arbiter ? arbiter->waiting() : 0));
    json.field("turns", arbiter ? arbiter->turns() : std::uint64_t{0});
    json.field("turn_s", seconds(arbiter ? arbiter->held_ns() : 0));
    json.field("leases_expired", arbiter ? arbiter->leases_expired() : std::uint64_t{0});
    const Process *holder = arbiter ? arbiter->holder() : nullptr;
    if (holder == nullptr) {
        json.null("holder").end();
        return;
    }
    json.object("holder");
    if (agent.may_see(uid, holder->uid))
        json.field("job_id", holder->job.first)
            .field("rank", holder->rank)
            .field("pid", static_cast<std::int64_t>(holder->pid));
    json.field("held_ms", milliseconds(page::monotonic_ns() - holder->seat.since_ns));
    json.field("lease_ms", milliseconds(arbiter->lease_ns(*holder))).end().end();
}

} // namespace

std::vector<LocalJob> local_jobs(const Agent &agent)
{
    std::vector<LocalJob> jobs;
    for (const auto &[key, job] : agent.registry().jobs()) {
        LocalJob local;
        local.job = const_cast<Job *>(&job); // the registry is the agent's; LocalJob is shared with the director
        // Of several steps of a job the one that attached last is told of; processes_ is ordered by arrival.
        for (const auto &[id, process] : agent.processes()) {
            if (process->job != key)
                continue;
            if (!local.processes.empty() && local.processes.front()->step != process->step)
                local.processes.clear();
            local.processes.push_back(process.get());
        }
        std::sort(local.processes.begin(), local.processes.end(),
                  [](const Process *a, const Process *b) { return a->rank < b->rank; });
        jobs.push_back(std::move(local));
    }
    return jobs;
}

std::uint64_t held_ns(const LocalJob &job)
{
    std::uint64_t sum = job.job->held_ns;
    for (const Process *process : job.processes) {
        // While the gate is open only the process knows; it cannot have held longer than it is here.
        const std::uint64_t here_ns = page::monotonic_ns() - process->attached_ns;
        sum += std::max(process->seat.held_ns, std::min(process->report.turn_ns, here_ns));
    }
    return sum;
}

double turn_share(const Agent &agent, const LocalJob &job)
{
    std::uint64_t mine = 0, all = 0;
    for (const auto &[gpu, arbiter] : agent.arbiters()) {
        const auto &seats = arbiter->seats();
        if (std::none_of(seats.begin(), seats.end(), [&](const Process *p) { return p->job == job.job->key(); }))
            continue;
        for (const Process *process : seats) {
            all += process->seat.held_ns;
            mine += process->job == job.job->key() ? process->seat.held_ns : 0;
        }
    }
    return all == 0 ? (job.processes.empty() ? 0 : 1) : static_cast<double>(mine) / static_cast<double>(all);
}

std::string status_json(const Agent &agent, std::uint32_t uid)
{
    const config::Config &config = agent.configuration();
    Json json;
    json.object()
        .field("node", agent.node())
        .field("version", kVersion)
        .field("agent_start", agent.start_number());
    json.field("now_ns", page::monotonic_ns());
    json.field("turns", config.turns).field("depth", config.depth).field("phases", config.phases);
    json.field("masked", uid != 0 && !agent.may_see(uid, uid + 1));
    json.field("connections", static_cast<std::uint64_t>(agent.server().connection_count()));
    std::map<int, const Arbiter *> gpus;
    for (const auto &[key, job] : agent.registry().jobs()) {
        for (const int gpu : job.record.gpus)
            gpus[gpu] = nullptr;
    }
    for (const auto &[gpu, arbiter] : agent.arbiters())
        gpus[gpu] = arbiter.get();
    json.array("gpus");
    for (const auto &[gpu, arbiter] : gpus)
        add_gpu(json, agent, gpu, arbiter, uid);
    json.end().array("jobs");
    const std::map<int, int> groups = gpu_groups(agent);
    for (const LocalJob &job : local_jobs(agent))
        add_job(json, agent, job, groups, uid);
    return json.end().end().text() + "\n";
}

namespace {

/// Backward time of full depth, which is what a profile is of: by blocks where they were measured; 0: not known now.
std::uint64_t full_backward_ns(const page::ReportView &report)
{
    const std::vector<std::uint64_t> &blocks = report.block_backward_ns;
    if (!blocks.empty() && std::all_of(blocks.begin(), blocks.end(), [](std::uint64_t ns) { return ns > 0; }))
        return std::accumulate(blocks.begin(), blocks.end(), std::uint64_t{0});
    return report.last_depth == report.num_blocks ? report.backward_ns : 0;
}

/// "lvl_ms":"4.1 30": backward time at each level, where there are few enough of them to say.
void add_level_costs(Json &json, const LocalJob &job)
{
    constexpr std::size_t kMostLevels = 8;
    const std::vector<double> costs = Director::level_costs_ms(job);
    if (costs.size() < 2 || costs.size() > kMostLevels)
        return;
    std::string text;
    for (const double ms : costs)
        text += (text.empty() ? "" : " ") + config::format_fraction(std::round(100 * ms) / 100);
    json.field("lvl_ms", text);
}

/// Isolated seconds done since it attached, which is without its waits for turns, and those left of the run by the
/// progress it reports; `at`: when that was so.
void add_progress(Json &json, const Process &rank0, std::uint64_t now_ns, std::int64_t wall_s)
{
    constexpr double kLeastAdvance = 0.01; // of the run: less tells too little of its speed
    const auto without_waits = [&](std::uint64_t since_ns, std::uint64_t waited_ns) {
        const std::uint64_t wall_ns = now_ns - std::min(now_ns, since_ns);
        return seconds(wall_ns - std::min(wall_ns, rank0.seat.waited_ns - waited_ns));
    };
    const Process::Progress &first = rank0.first_progress;
    json.field("at", wall_s).field("done_s", std::round(without_waits(rank0.attached_ns, 0)));
    const double advanced = first.known ? rank0.report.progress - first.share : 0;
    if (advanced >= kLeastAdvance)
        json.field("left_s", std::round(without_waits(first.at_ns, first.waited_ns) * (1 - rank0.report.progress) / advanced));
}

} // namespace

std::string comment_segment(const LocalJob &job, std::uint64_t now_ns, std::int64_t wall_s)
{
    const Job &record = *job.job;
    const Process *rank0 = job.rank0();
    Json json;
    json.object()
        .field("spb", config::format_request(record.record.spb))
        .field("attached", !job.processes.empty());
    json.field("gpu_s", std::round(10 * seconds(held_ns(job))) / 10);
    if (rank0 != nullptr && rank0->report_valid) {
        const page::ReportView &report = rank0->report;
        std::uint64_t peak = 0;
        for (const Process *process : job.processes)
            peak = std::max(peak, process->report.memory_peak_bytes);
        json.field("mem", peak).field("world", rank0->world_size);
        json.field("depth", std::round(1000 * Director::depth_fraction(job)) / 1000);
        json.field("fwd_ms", std::round(100 * milliseconds(report.forward_ns)) / 100);
        if (const std::uint64_t full_ns = full_backward_ns(report); full_ns > 0)
            json.field("bwd_ms", std::round(100 * milliseconds(full_ns)) / 100);
        json.field("sync_ms", std::round(100 * milliseconds(report.sync_ns)) / 100);
        add_level_costs(json, job);
        add_progress(json, *rank0, now_ns, wall_s);
    }
    const std::vector<std::string> sentences = record.marks.sentences(record.record.spb.memory_bytes);
    if (!sentences.empty())
        json.field("misbehaving", sentences.front());
    const std::string segment = "jigsaw:" + json.end().text();
    return segment.size() <= kSegmentBytes ? segment : "jigsaw:{}";
}

} // namespace jigsaw::agent
