// SPDX-License-Identifier: Apache-2.0
// Prometheus text (exposition format 0.0.4): one family after the other, so rows are collected by name first.
#include "plugin/agent/json.hpp"
#include "plugin/agent/status.hpp"
#include "plugin/agent/version.hpp"

#include <algorithm>

namespace jigsaw::agent {

namespace {

/// One family: its HELP and TYPE lines, then its samples.
class Family {
  public:
    Family(const char *name, const char *type, const char *help) : name_(name)
    {
        text_ = std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
    }
    void sample(const std::string &labels, double value)
    {
        text_ += name_ + (labels.empty() ? "" : "{" + labels + "}") + " " + json_number(value) + "\n";
    }
    const std::string &text() const { return text_; }

  private:
    std::string name_, text_;
};

std::string label(const std::string &key, std::uint64_t value)
{
    return key + "=\"" + std::to_string(value) + "\"";
}

std::string gpu_metrics(const Agent &agent)
{
    Family turns("jigsaw_gpu_turns_total", "counter", "Turns given back on the GPU.");
    Family held("jigsaw_gpu_turn_seconds_total", "counter", "Time in turns on the GPU.");
    Family expired("jigsaw_gpu_leases_expired_total", "counter", "Turns taken away because their lease ended.");
    Family closed("jigsaw_gpu_gate_closed", "gauge",
                  "1 while turns are given, 0 while the only process runs freely.");
    Family processes("jigsaw_gpu_processes", "gauge", "Attached processes.");
    Family waiting("jigsaw_gpu_waiting", "gauge", "Processes that wait for a turn.");
    for (const auto &[gpu, arbiter] : agent.arbiters()) {
        const std::string labels = label("gpu", static_cast<std::uint64_t>(gpu));
        turns.sample(labels, static_cast<double>(arbiter->turns()));
        held.sample(labels, static_cast<double>(arbiter->held_ns()) / 1e9);
        expired.sample(labels, static_cast<double>(arbiter->leases_expired()));
        closed.sample(labels, arbiter->closed() ? 1 : 0);
        processes.sample(labels, static_cast<double>(arbiter->seats().size()));
        waiting.sample(labels, static_cast<double>(arbiter->waiting()));
    }
    return turns.text() + held.text() + expired.text() + closed.text() + processes.text() + waiting.text();
}

std::string job_metrics(const Agent &agent)
{
    Family held("jigsaw_job_gpu_seconds_total", "counter", "GPU time that the job held on this node.");
    Family share("jigsaw_job_turn_share", "gauge", "Share of the turn time on the job's GPUs of this node.");
    Family depth("jigsaw_job_depth_fraction", "gauge",
                 "Mean depth fraction of the directive that the job follows.");
    Family expired("jigsaw_job_leases_expired_total", "counter",
                   "Turns of the job taken away because their lease ended.");
    Family bad("jigsaw_job_misbehaving", "gauge", "1 while the job is marked; `jigsaw status` says why.");
    Family memory("jigsaw_job_memory_peak_bytes", "gauge", "Largest GPU memory peak that its processes report.");
    for (const LocalJob &job : local_jobs(agent)) {
        const std::string labels = label("job", job.job->record.job_id);
        std::uint64_t peak = 0;
        for (const Process *process : job.processes)
            peak = std::max(peak, process->report.memory_peak_bytes);
        held.sample(labels, static_cast<double>(held_ns(job)) / 1e9);
        share.sample(labels, turn_share(agent, job));
        depth.sample(labels, Director::depth_fraction(job));
        expired.sample(labels, static_cast<double>(job.job->marks.leases_expired));
        bad.sample(labels, job.job->marks.any() ? 1 : 0);
        memory.sample(labels, static_cast<double>(peak));
    }
    return held.text() + share.text() + depth.text() + expired.text() + bad.text() + memory.text();
}

} // namespace

std::string metrics_text(const Agent &agent)
{
    Family info("jigsaw_agent_info", "gauge", "Always 1; the labels say what runs.");
    info.sample("version=\"" + std::string(kVersion) + "\"", 1);
    Family connections("jigsaw_agent_connections", "gauge", "Open connections to jigsawd.");
    connections.sample("", static_cast<double>(agent.server().connection_count()));
    Family updates("jigsaw_agent_controller_updates_total", "counter",
                   "AdminComment updates that the controller took.");
    Family failures("jigsaw_agent_controller_failures_total", "counter", "Runs of scontrol that failed.");
    if (const Publisher *publisher = agent.publisher()) {
        updates.sample("", static_cast<double>(publisher->updates()));
        failures.sample("", static_cast<double>(publisher->failures()));
    }
    return info.text() + connections.text() + updates.text() + failures.text() + gpu_metrics(agent) +
           job_metrics(agent);
}

} // namespace jigsaw::agent
