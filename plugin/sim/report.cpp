// SPDX-License-Identifier: Apache-2.0
// Tables, JSON, CSV.
#include "plugin/sim/report.hpp"

#include "plugin/sim/text.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace jigsaw::sim {

namespace {

std::string format(const char *pattern, double value)
{
    char text[64];
    std::snprintf(text, sizeof text, pattern, value);
    return text;
}

std::string json_string(const std::string &text)
{
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            quoted += '\\';
        if (static_cast<unsigned char>(c) >= 0x20)
            quoted += c;
    }
    return quoted + '"';
}

class Object {
  public:
    Object &text(const char *key, const std::string &value) { return raw(key, json_string(value)); }
    Object &number(const char *key, double value)
    {
        return raw(key, std::isfinite(value) ? format("%.9g", value) : "null");
    }
    Object &raw(const char *key, const std::string &json)
    {
        body_ += (body_.empty() ? "" : ",") + json_string(key) + ":" + json;
        return *this;
    }
    std::string line() const { return "{" + body_ + "}"; }

  private:
    std::string body_;
};

std::string slowdown_json(const std::array<double, kMaxSharing> &slowdown)
{
    if (slowdown[1] == slowdown[2] && slowdown[2] == slowdown[3])
        return format("%.9g", slowdown[1]);
    return "[" + format("%.9g", slowdown[1]) + "," + format("%.9g", slowdown[2]) + "," + format("%.9g", slowdown[3]) +
           "]";
}

/// Fields of a CSV line: quoted where they need it.
std::string csv(const std::string &text)
{
    if (text.find_first_of(",\"\n") == std::string::npos)
        return text;
    std::string quoted = "\"";
    for (const char c : text)
        quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + '"';
}

std::string seconds(double value) { return format("%.3f", value); }

} // namespace

std::string json_line(const Experiment &experiment, const Summary &summary)
{
    const Figures &f = summary.mean;
    const PolicySettings &settings = experiment.settings;
    Object object;
    object.text("trace", experiment.workload.name).text("policy", summary.policy.substr(0, summary.policy.find('/')));
    object.text("cycle", settings.costs.cycle).raw("preempt", summary.preempt ? "true" : "false");
    object.number("q", settings.costs.extra_iterations).raw("slowdown", slowdown_json(settings.costs.slowdown));
    object.number("gpus", settings.run.cluster.gpus()).number("max_sharing", settings.max_sharing);
    object.number("jobs", static_cast<double>(f.jobs)).number("runs", summary.runs);
    object.number("avg_jct_s", summary.avg_jct_s.mean).number("avg_jct_s_sd", summary.avg_jct_s.sd);
    object.number("p50_jct_s", f.p50_jct_s);
    object.number("p99_jct_s", summary.p99_jct_s.mean).number("p99_jct_s_sd", summary.p99_jct_s.sd);
    object.number("makespan_s", summary.makespan_s.mean).number("makespan_s_sd", summary.makespan_s.sd);
    object.number("avg_wait_s", f.avg_wait_s).number("utilisation", f.utilisation);
    object.number("rho_worst", f.rho_worst).number("rho_mean", f.rho_mean);
    object.number("rho_above_1_1_fraction", f.rho_above_fraction).number("rho_bounded_mean", f.rho_bounded_mean);
    if (f.has_baseline)
        object.number("slower_than_backfill_fraction", f.slower_fraction)
            .number("worst_over_backfill", summary.worst_ratio);
    object.number("decision_ms_p50", f.decision_ms_p50).number("decision_ms_p99", f.decision_ms_p99);
    object.number("wall_s", f.wall_s);
    return object.line();
}

std::string text_table(const std::vector<Summary> &summaries)
{
    std::string text = "policy             avg JCT s     +-    p99 JCT s   makespan s  used %  rho(600)  slower %  worst x"
                       "   decision ms    wall s\n";
    for (const Summary &one : summaries) {
        const Figures &f = one.mean;
        char line[256];
        const std::string slower = f.has_baseline ? format("%.2f", 100 * f.slower_fraction) : "-";
        const std::string worst = f.has_baseline ? format("%.1f", one.worst_ratio) : "-";
        std::snprintf(line, sizeof line, "%-16s %11.0f %6.0f %12.0f %12.0f %7.1f %9.3f %9s %8s %6.3f/%-7.3f %8.2f\n",
                      one.policy.c_str(), one.avg_jct_s.mean, one.avg_jct_s.sd, one.p99_jct_s.mean,
                      one.makespan_s.mean, 100 * f.utilisation, f.rho_bounded_mean, slower.c_str(), worst.c_str(),
                      f.decision_ms_p50, f.decision_ms_p99, f.wall_s);
        text += line;
    }
    return text;
}

CsvFile::CsvFile(const std::string &path, const char *header) : path_(path), file_(std::fopen(path.c_str(), "w"))
{
    if (!file_)
        throw InputError(path + ": " + std::strerror(errno));
    line(header);
}

CsvFile::~CsvFile()
{
    if (file_)
        std::fclose(file_);
}

void CsvFile::line(const std::string &text)
{
    if (std::fprintf(file_, "%s\n", text.c_str()) < 0)
        throw InputError(path_ + ": " + std::strerror(errno));
}

void CsvFile::close()
{
    std::FILE *file = file_;
    file_ = nullptr;
    if (file && std::fclose(file) != 0)
        throw InputError(path_ + ": " + std::strerror(errno));
}

const char *const kJobsHeader = "policy,job,user,model,gpus,submit_s,start_s,end_s,isolated_s,limit_s,restarts,most_sharing";
const char *const kSamplesHeader = "policy,at_s,busy_gpus,running_jobs,waiting_jobs,work_rate";
const char *const kSpansHeader = "policy,node,gpu,begin_s,end_s,partial,jobs";

void write_jobs(CsvFile *file, const Summary &summary)
{
    for (std::size_t i = 0; i < summary.last.jobs.size(); ++i) {
        const Job &job = summary.last_workload.jobs[i];
        const JobType &type = summary.last_workload.types[static_cast<std::size_t>(job.type)];
        const JobOutcome &told = summary.last.jobs[i];
        file->line(summary.policy + "," + csv(job.name) + "," + csv(job.user) + "," + csv(type.model) + "," +
                   std::to_string(type.gpus) + "," + seconds(job.submit_s) + "," + seconds(told.start_s) + "," +
                   seconds(told.end_s) + "," + seconds(job.isolated_s()) + "," + seconds(job.limit_s) + "," +
                   std::to_string(told.restarts) + "," + std::to_string(told.most_sharing));
    }
}

void write_samples(CsvFile *file, const Summary &summary)
{
    for (const Sample &sample : summary.last.samples)
        file->line(summary.policy + "," + seconds(sample.at_s) + "," + std::to_string(sample.busy_gpus) + "," +
                   std::to_string(sample.running_jobs) + "," + std::to_string(sample.waiting_jobs) + "," +
                   seconds(sample.work_rate));
}

void write_spans(CsvFile *file, const Summary &summary)
{
    for (const GpuSpan &span : summary.last.spans) {
        std::string jobs;
        for (const int job : span.jobs)
            jobs += (jobs.empty() ? "" : "/") + csv(summary.last_workload.jobs[static_cast<std::size_t>(job)].name);
        file->line(summary.policy + "," + std::to_string(span.node) + "," + std::to_string(span.gpu) + "," +
                   seconds(span.begin_s) + "," + seconds(span.end_s) + "," + (span.partial ? "1" : "0") + "," + jobs);
    }
}

} // namespace jigsaw::sim
