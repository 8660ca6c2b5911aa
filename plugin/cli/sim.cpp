// SPDX-License-Identifier: Apache-2.0
// jigsaw sim: what would schedulers, ours among them, have done with the jobs of this trace?
#include "plugin/cli/command.hpp"
#include "plugin/sim/report.hpp"
#include "plugin/sim/text.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

namespace jigsaw::cli {

namespace {

using namespace jigsaw::sim;
using Clock = std::chrono::steady_clock;

struct Words {
    std::string trace, format, generate, profiles, depth_costs, throughputs, models;
    std::string policies = "backfill,share,jigsaw", cycle = "turn", slowdown = "1.05", extra_iterations = "1";
    std::string nodes = "8", gpus_per_node = "8", max_sharing = "4", pay = "0.5", load = "1";
    std::string runs = "1", perturb = "", seed = "1", limit_factor, limit_sigma = "0", restart = "on-start";
    std::string jobs_file, samples_file, spans_file;
    bool json = false, skip_bad = false, unknown_remaining = false, uniform_single = false, quiet = false;
    bool force_depth = false, list = false;
};

bool read_words(Words *w, const Arguments &arguments, int *ret_status)
{
    OptionReader reader("sim", arguments, kSimUsage);
    reader.value("--trace", &w->trace).value("--format", &w->format).value("--generate", &w->generate);
    reader.value("--profiles", &w->profiles).value("--depth-costs", &w->depth_costs);
    reader.value("--throughputs", &w->throughputs).value("--models", &w->models);
    reader.value("--policies", &w->policies).value("--cycle", &w->cycle).value("--slowdown", &w->slowdown);
    reader.value("--extra-iterations", &w->extra_iterations).value("--nodes", &w->nodes);
    reader.value("--gpus-per-node", &w->gpus_per_node).value("--max-sharing", &w->max_sharing).value("--pay", &w->pay);
    reader.value("--load", &w->load).value("--runs", &w->runs).value("--perturb", &w->perturb);
    reader.value("--seed", &w->seed).value("--limit-factor", &w->limit_factor);
    reader.value("--limit-sigma", &w->limit_sigma).value("--restart", &w->restart);
    reader.value("--jobs", &w->jobs_file).value("--samples", &w->samples_file).value("--spans", &w->spans_file);
    reader.flag("--json", &w->json).flag("--skip-bad", &w->skip_bad).flag("--quiet", &w->quiet);
    reader.flag("--unknown-remaining", &w->unknown_remaining).flag("--uniform-single", &w->uniform_single);
    reader.flag("--force-depth", &w->force_depth).flag("--list", &w->list);
    return reader.read(ret_status);
}

double number(const char *option, const std::string &text, double least, double most)
{
    double value = 0;
    char limits[64];
    std::snprintf(limits, sizeof limits, "%g..%g", least, most);
    if (!parse_number(&value, text) || value < least || value > most)
        throw InputError(std::string(option) + " '" + text + "' is no number in " + limits);
    return value;
}

int whole(const char *option, const std::string &text, int least, int most)
{
    const double value = number(option, text, least, most);
    if (value != std::floor(value))
        throw InputError(std::string(option) + " '" + text + "' is no whole number");
    return static_cast<int>(value);
}

std::array<double, kMaxSharing> slowdowns(const std::string &text)
{
    if (text == "peer")
        return peer_slowdowns();
    const std::vector<std::string> parts = split(text, ',');
    if (parts.size() != 1 && parts.size() != kMaxSharing - 1)
        throw InputError("--slowdown is one number, three (for 2, 3, 4 jobs), or 'peer', not '" + text + "'");
    std::array<double, kMaxSharing> made{1, 1, 1, 1};
    for (std::size_t i = 1; i < made.size(); ++i)
        made[i] = number("--slowdown", parts[parts.size() == 1 ? 0 : i - 1], 1, 100);
    return made;
}

RestartRule restart_rule(const std::string &text)
{
    if (text == "on-start")
        return RestartRule::on_start;
    if (text == "every-event")
        return RestartRule::every_event;
    if (text == "never")
        return RestartRule::never;
    throw InputError("--restart '" + text + "' is none of on-start, every-event, never");
}

PolicySettings settings_of(const Words &w)
{
    PolicySettings settings;
    settings.run.cluster = {whole("--nodes", w.nodes, 1, 100000), whole("--gpus-per-node", w.gpus_per_node, 1, 64)};
    settings.run.keep_samples = !w.samples_file.empty();
    settings.run.keep_spans = !w.spans_file.empty();
    settings.costs.cycle = w.cycle;
    settings.costs.slowdown = slowdowns(w.slowdown);
    settings.costs.extra_iterations = number("--extra-iterations", w.extra_iterations, 1, 100);
    settings.costs.uniform_single = w.uniform_single;
    settings.costs.force_depth = w.force_depth;
    settings.restart = restart_rule(w.restart);
    settings.knows_remaining = !w.unknown_remaining;
    settings.max_sharing = whole("--max-sharing", w.max_sharing, 1, kMaxSharing);
    settings.pay = number("--pay", w.pay, 0, 1000);
    return settings;
}

DepthCurve curve_of(const std::string &text)
{
    if (text.empty())
        return {};
    const auto colon = text.rfind(':');
    if (colon == std::string::npos)
        throw InputError("--depth-costs is FILE:MODEL, not '" + text + "'");
    return read_depth_costs(text.substr(0, colon), text.substr(colon + 1));
}

Workload workload_of(const Words &w)
{
    TraceOptions options;
    options.path = w.trace;
    options.format = w.format;
    options.throughputs = w.throughputs;
    options.skip_bad = w.skip_bad;
    options.curve = curve_of(w.depth_costs);
    options.seed = static_cast<std::uint64_t>(number("--seed", w.seed, 0, 1e15));
    if (!w.profiles.empty())
        options.profiles = read_profiles(w.profiles);
    if (!w.models.empty())
        options.models = split(w.models, ',');
    if (w.trace.empty() == w.generate.empty())
        throw InputError("give either --trace FILE or --generate DISTRIBUTIONS");
    if (!w.trace.empty())
        return read_trace(options);
    GeneratorOptions generator = parse_generator(w.generate == "default" ? "" : w.generate);
    generator.seed = options.seed;
    for (const std::string &model : options.models)
        options.profiles.type(model, 1); // throws for a model without a profile
    Workload made = assemble(generate(generator), options);
    made.name = "generated";
    return made;
}

Experiment experiment_of(const Words &w)
{
    Experiment made;
    made.settings = settings_of(w);
    made.workload = workload_of(w);
    drop_too_large(&made.workload, made.settings.run.cluster);
    if (made.workload.jobs.empty())
        throw InputError("no job fits " + std::to_string(made.settings.run.cluster.gpus()) +
                         " GPUs: give more --nodes");
    scale_load(&made.workload, number("--load", w.load, 1e-3, 1e3));
    made.runs = whole("--runs", w.runs, 1, 10000);
    made.perturb_s = w.perturb.empty() ? (made.runs > 1 ? 600 : 0) : number("--perturb", w.perturb, 0, 1e9);
    made.seed = static_cast<std::uint64_t>(number("--seed", w.seed, 0, 1e15));
    made.keep_limits = w.limit_factor.empty();
    made.limit_factor = w.limit_factor.empty() ? made.limit_factor : number("--limit-factor", w.limit_factor, 0, 1e6);
    made.limit_sigma = number("--limit-sigma", w.limit_sigma, 0, 10);
    return made;
}

/// One line that is written over, on a terminal only.
class Progress {
  public:
    Progress(bool wanted, std::size_t policies, int runs)
        : wanted_(wanted && isatty(STDERR_FILENO) == 1), parts_(policies * static_cast<std::size_t>(runs)), runs_(runs)
    {
    }
    ~Progress() { clear(); }
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;

    void show(const std::string &policy, std::size_t policy_index, int run, double share)
    {
        const double elapsed_s = std::chrono::duration<double>(Clock::now() - began_).count();
        if (!wanted_ || elapsed_s < shown_s_ + 0.2)
            return;
        shown_s_ = elapsed_s;
        const auto before = static_cast<double>(policy_index * static_cast<std::size_t>(runs_)) + run;
        const double done = (before + share) / static_cast<double>(parts_);
        const double left_s = done > 0 ? elapsed_s * (1 - done) / done : 0;
        std::fprintf(stderr, "\r%s, run %d of %d: %.0f %% of its jobs; all: %.0f %%, about %.0f s left   ",
                     policy.c_str(), run + 1, runs_, 100 * share, 100 * done, left_s);
        dirty_ = true;
    }

    void clear()
    {
        if (dirty_)
            std::fprintf(stderr, "\r%78s\r", "");
        dirty_ = false;
    }

  private:
    bool wanted_, dirty_ = false;
    std::size_t parts_;
    int runs_;
    Clock::time_point began_ = Clock::now();
    double shown_s_ = 0;
};

struct Files {
    std::unique_ptr<CsvFile> jobs, samples, spans;

    explicit Files(const Words &w)
    {
        if (!w.jobs_file.empty())
            jobs = std::make_unique<CsvFile>(w.jobs_file, kJobsHeader);
        if (!w.samples_file.empty())
            samples = std::make_unique<CsvFile>(w.samples_file, kSamplesHeader);
        if (!w.spans_file.empty())
            spans = std::make_unique<CsvFile>(w.spans_file, kSpansHeader);
    }

    void write(const Summary &summary)
    {
        if (jobs)
            write_jobs(jobs.get(), summary);
        if (samples)
            write_samples(samples.get(), summary);
        if (spans)
            write_spans(spans.get(), summary);
    }

    void close()
    {
        for (CsvFile *file : {jobs.get(), samples.get(), spans.get()})
            if (file)
                file->close();
    }
};

void describe(const Experiment &experiment)
{
    const Workload &workload = experiment.workload;
    double work_gpu_s = 0, isolated_s = 0;
    for (const Job &job : workload.jobs) {
        work_gpu_s += job.isolated_s() * workload.gpus_of(job);
        isolated_s += job.isolated_s() / static_cast<double>(workload.jobs.size());
    }
    const double last_s = workload.jobs.back().submit_s;
    const int gpus = experiment.settings.run.cluster.gpus();
    std::printf("%s: %zu jobs on %d GPUs; isolated runs %.0f s in the mean", workload.name.c_str(),
                workload.jobs.size(), gpus, isolated_s);
    if (last_s > 0)
        std::printf("; load %.3f", work_gpu_s / (last_s * gpus));
    if (workload.bad_lines > 0)
        std::printf("; %zu bad lines left out", workload.bad_lines);
    if (workload.too_large > 0)
        std::printf("; %zu jobs too large left out", workload.too_large);
    std::printf("\n");
}

int simulate(const Words &w)
{
    std::vector<const Policy *> policies;
    for (const std::string &name : split(w.policies, ','))
        policies.push_back(&find_policy(trim(name)));
    const Experiment experiment = experiment_of(w);
    Files files(w);
    if (!w.json)
        describe(experiment);
    Progress progress(!w.quiet, policies.size(), experiment.runs);
    std::vector<Summary> summaries;
    for (std::size_t i = 0; i < policies.size(); ++i) {
        const std::string name = full_name(*policies[i]);
        Summary summary =
            run_experiment(experiment, *policies[i], [&](int run, std::size_t done, std::size_t all) {
                progress.show(name, i, run, static_cast<double>(done) / static_cast<double>(all));
            });
        progress.clear();
        files.write(summary);
        summary.last = {};
        summary.last_workload = {};
        if (w.json) {
            std::printf("%s\n", json_line(experiment, summary).c_str());
            std::fflush(stdout);
        }
        summaries.push_back(std::move(summary));
    }
    files.close();
    if (!w.json)
        std::fputs(text_table(summaries).c_str(), stdout);
    return kOk;
}

} // namespace

const char *const kSimUsage =
    "usage: jigsaw sim --trace FILE | --generate DISTRIBUTIONS|default [OPTIONS]\n"
    "\n"
    "  --trace FILE             Philly's or Muri's CSV, Gavel's trace, or what sacct --parsable2 prints\n"
    "  --format NAME            philly, muri, gavel, sacct (default: by the file)\n"
    "  --generate WHAT          jobs=1000,interarrival=60,median=3600,sigma=1.5,least=30,most=864000,gpus=1:0.5/4:0.5\n"
    "  --profiles FILE          costs of models, CSV or JSON\n"
    "  --models A,B             draw every job's model from these\n"
    "  --depth-costs FILE:MODEL backward time by depth (default: ResNet-50 on a V100)\n"
    "  --throughputs FILE[:GPU] of a Gavel trace: steps per second\n"
    "  --nodes N, --gpus-per-node N   the cluster (8 and 8)\n"
    "  --load F                 arrivals F times as dense\n"
    "  --policies A,B           of --list; NAME/stay or NAME/preempt (backfill,share,jigsaw)\n"
    "  --cycle MODEL            turn or lockstep\n"
    "  --slowdown S | S,S,S | peer    of 2, 3, 4 jobs on a GPU beyond the cycle (1.05)\n"
    "  --extra-iterations Q     that partial depth needs (1)\n"
    "  --max-sharing K          jobs on a GPU, up to 4\n"
    "  --pay P                  no resident ends later than 1 + P of its isolated run (0.5)\n"
    "  --uniform-single         single-GPU jobs at uniform partial depth\n"
    "  --force-depth            partial depth wherever a GPU is shared, gain or not\n"
    "  --unknown-remaining      preemptive policies know the attained service only\n"
    "  --limit-factor F         time limits over true run times (5; a trace's own limits are kept without it; 0: none)\n"
    "  --limit-sigma S          log-normal error of that factor\n"
    "  --restart RULE           preempted jobs pay on-start, every-event (the peer's) or never\n"
    "  --runs N, --perturb S, --seed N   means over N runs with arrivals up to S seconds later (600 with several runs)\n"
    "  --json                   one object per policy and line\n"
    "  --jobs FILE, --samples FILE, --spans FILE   CSV of every job, of the cluster and of GPUs over time\n"
    "  --skip-bad               count bad lines and leave them out\n"
    "  --quiet                  no progress on a terminal\n"
    "  --list                   the policies and where they come from\n";

int run_sim(const Arguments &arguments)
{
    Words words;
    int status = kOk;
    if (!read_words(&words, arguments, &status))
        return status;
    if (words.list) {
        for (const Policy *policy : all_policies())
            std::printf("%-16s %s\n", full_name(*policy).c_str(), policy->summary);
        return kOk;
    }
    try {
        return simulate(words);
    } catch (const InputError &error) {
        complain(error.what());
        return kFailed;
    }
}

} // namespace jigsaw::cli
