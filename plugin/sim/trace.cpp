// SPDX-License-Identifier: Apache-2.0
// From the rows of any trace to a workload: formats told apart, models drawn, times shifted.
#include "plugin/sim/trace.hpp"

#include "plugin/sim/text.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

namespace jigsaw::sim {

namespace {

constexpr double kLeastLimit_s = 1;

std::string first_line(const std::string &path)
{
    std::ifstream file(path);
    std::string line;
    if (!file)
        throw InputError(path + ": " + std::strerror(errno));
    if (!std::getline(file, line))
        throw InputError(path + ": empty");
    return line;
}

std::string format_of(const TraceOptions &options)
{
    if (!options.format.empty())
        return options.format;
    const std::string line = first_line(options.path);
    const auto has = [&](const char *text) { return line.find(text) != std::string::npos; };
    if (has("resource_time_0") && has("iteration_time"))
        return "muri";
    if (has("timestamp") && has("num_gpus"))
        return "philly";
    if (has("JobID") && has("|"))
        return "sacct";
    if (std::count(line.begin(), line.end(), '\t') >= 9)
        return "gavel";
    throw InputError(options.path + ":1: no trace that I know; --format is philly, muri, gavel or sacct");
}

/// What a job costs: as its trace says, by its model's profile, or busy on the GPU all the time.
JobType type_for(const TraceRow &row, const std::string &model, const ProfileBook &profiles)
{
    const std::vector<std::string> known = profiles.models();
    const bool profiled = std::find(known.begin(), known.end(), model) != known.end();
    JobType type;
    if (profiled && !(row.has_stages && model == row.model)) {
        type = profiles.type(model, row.gpus);
    } else if (row.has_stages && model == row.model) {
        type.stages = row.stages;
        type.restart_s = restart_seconds(model, row.gpus);
    } else {
        type.stages.iteration_ms = type.stages.gpu_ms = row.iteration_s * 1000;
        if (!(row.iteration_s > 0) || row.iterations <= 1)
            type.stages.iteration_ms = type.stages.gpu_ms = 1000;
    }
    type.model = model;
    type.gpus = row.gpus;
    return type;
}

void sort_jobs(std::vector<Job> *jobs)
{
    std::stable_sort(jobs->begin(), jobs->end(),
                     [](const Job &a, const Job &b) { return a.submit_s < b.submit_s; });
}

} // namespace

Workload assemble(const TraceRows &rows, const TraceOptions &options)
{
    Workload made;
    made.curve = options.curve;
    Random random(options.seed);
    const std::vector<std::string> profiled = options.profiles.models();
    double first_s = rows.empty() ? 0 : rows.front().submit_s;
    for (const TraceRow &row : rows)
        first_s = std::min(first_s, row.submit_s);
    for (const TraceRow &row : rows) {
        std::string model = row.model;
        if (!options.models.empty())
            model = options.models[random.index(options.models.size())];
        else if (model.empty() && !profiled.empty())
            model = profiled[random.index(profiled.size())];
        Job job;
        job.type = made.type_of(type_for(row, model, options.profiles));
        job.name = row.name;
        job.user = row.user;
        job.submit_s = row.submit_s - first_s;
        job.iterations = row.iterations;
        job.iteration_s = row.iteration_s;
        job.limit_s = row.limit_s;
        made.jobs.push_back(job);
    }
    sort_jobs(&made.jobs);
    return made;
}

Workload read_trace(const TraceOptions &options)
{
    for (const std::string &model : options.models)
        options.profiles.type(model, 1); // throws for a model without a profile
    const std::string format = format_of(options);
    std::size_t bad = 0;
    TraceRows rows;
    if (format == "philly")
        rows = read_philly(options, &bad);
    else if (format == "muri")
        rows = read_muri(options, &bad);
    else if (format == "gavel")
        rows = read_gavel(options, &bad);
    else if (format == "sacct")
        rows = read_sacct(options, &bad);
    else
        throw InputError("'" + format + "' is no format; --format is philly, muri, gavel or sacct");
    if (rows.empty())
        throw InputError(options.path + ": no job in it (" + std::to_string(bad) + " bad lines left out)");
    Workload made = assemble(rows, options);
    const auto slash = options.path.find_last_of('/');
    made.name = options.path.substr(slash == std::string::npos ? 0 : slash + 1);
    made.bad_lines = bad;
    return made;
}

void drop_too_large(Workload *workload, const ClusterShape &cluster)
{
    // More than a node holds: whole nodes and the rest on one more; less than the cluster has always fits.
    std::vector<Job> kept;
    for (const Job &job : workload->jobs)
        if (workload->gpus_of(job) <= cluster.gpus())
            kept.push_back(job);
    workload->too_large += workload->jobs.size() - kept.size();
    workload->jobs = std::move(kept);
}

void perturb(Workload *workload, double most_s, std::uint64_t seed)
{
    Random random(seed);
    for (Job &job : workload->jobs)
        job.submit_s += random.uniform(0, most_s);
    sort_jobs(&workload->jobs);
}

void set_limits(Workload *workload, double factor, double sigma, std::uint64_t seed, bool keep_own)
{
    Random random(seed);
    for (Job &job : workload->jobs) {
        const double noise = sigma > 0 ? std::exp(sigma * random.normal()) : 1;
        if (keep_own && job.limit_s > 0)
            continue;
        job.limit_s = factor > 0 ? std::max(kLeastLimit_s, factor * noise * job.isolated_s()) : 0;
    }
}

void scale_load(Workload *workload, double factor)
{
    for (Job &job : workload->jobs)
        job.submit_s /= factor;
}

} // namespace jigsaw::sim
