// SPDX-License-Identifier: Apache-2.0
// Schedulers on recorded traces, as one JSON object per line; docs/evaluation.md reads them.
//
//     scripts/bench sim --data FOLDER [PART...]
//
// FOLDER holds traces/muri/trace1.csv and trace3.csv, traces/philly/*.csv and profiles/muri/muri_stage_profiles.csv.
// Parts: peers, interleave, depth, mix, headline, staying, trace1, philly, turns; without any: all of them.
#include "bench/bench.hpp"

#include "plugin/core/load.hpp"
#include "plugin/sim/joiner.hpp"
#include "plugin/sim/report.hpp"
#include "plugin/sim/text.hpp"
#include "plugin/sim/turns.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>

namespace {

using namespace jigsaw;
using namespace jigsaw::sim;

constexpr int kRuns = 8;              // where a schedule is chaotic
constexpr double kPerturb_s = 600;    // arrivals up to so much later
constexpr double kLimitFactor = 5;    // time limits over true run times
constexpr double kResNetCompute_ms = 30.429 + 63.333; // Orion: forward and backward, ResNet-50, batch 32, V100
const std::vector<double> kExtraIterations = {1, 1.05, 1.1, 1.2, 1.3, 1.5};
const std::vector<std::string> kGpuBound = {"bert", "gpt2", "vgg16", "vgg19"};

struct Case {
    std::string trace;
    int nodes = 8;
    std::string cycle = "turn";
    RestartRule restart = RestartRule::on_start;
    std::vector<std::string> models;
    std::uint64_t seed = 1; ///< of models drawn
    int runs = 1;
    double q = 1;
    bool force = false, baseline = false;
    std::array<double, kMaxSharing> slowdown = peer_slowdowns();
};

class Bench {
  public:
    Bench(std::string data, std::set<std::string> parts) : data_(std::move(data)), parts_(std::move(parts)) {}

    void run()
    {
        const std::pair<const char *, void (Bench::*)()> all[] = {
            {"peers", &Bench::peers},       {"interleave", &Bench::interleave}, {"depth", &Bench::depth},
            {"mix", &Bench::mix},           {"headline", &Bench::headline},     {"turns", &Bench::turns},
            {"staying", &Bench::staying},   {"trace1", &Bench::trace1},         {"philly", &Bench::philly},
        };
        for (const auto &[name, part] : all)
            if (parts_.empty() || parts_.count(name) > 0) {
                part_ = name;
                (this->*part)();
            }
    }

  private:
    std::string muri(const char *name) const { return data_ + "/traces/muri/" + name; }
    std::string profiles() const { return data_ + "/profiles/muri/muri_stage_profiles.csv"; }

    /// Batch 32 on a V100 (Orion's times), alone and with 20 ms of network for more workers.
    static void add_resnet50(ProfileBook *book)
    {
        for (const int gpus : {1, 2}) {
            JobType type;
            type.model = "resnet50";
            type.gpus = gpus;
            type.stages.gpu_ms = kResNetCompute_ms;
            type.stages.host_ms = 30;
            type.stages.network_ms = gpus > 1 ? 20 : 0;
            type.stages.iteration_ms = type.stages.gpu_ms + type.stages.network_ms;
            book->add(type);
        }
    }

    Experiment experiment(const Case &c) const
    {
        Experiment made;
        TraceOptions options;
        options.path = c.trace;
        options.profiles = read_profiles(profiles());
        add_resnet50(&options.profiles);
        options.models = c.models;
        options.seed = c.seed;
        made.workload = read_trace(options);
        made.settings.run.cluster = {c.nodes, 8};
        drop_too_large(&made.workload, made.settings.run.cluster);
        made.settings.costs.cycle = c.cycle;
        made.settings.costs.slowdown = c.slowdown;
        made.settings.costs.extra_iterations = c.q;
        made.settings.costs.force_depth = c.force;
        made.settings.restart = c.restart;
        made.runs = c.runs;
        made.perturb_s = c.runs > 1 ? kPerturb_s : 0;
        made.limit_factor = kLimitFactor;
        made.baseline = c.baseline;
        return made;
    }

    Summary print(const Case &c, const char *policy) const
    {
        const Experiment experiment = this->experiment(c);
        Summary summary = run_experiment(experiment, find_policy(policy));
        const std::string line = json_line(experiment, summary);
        std::printf("{\"bench\":\"sim\",\"part\":\"%s\",\"models\":\"%s\",\"force_depth\":%s,%s\n", part_,
                    c.models.empty() ? "trace" : c.models.size() == 1 ? c.models[0].c_str() : "gpu-bound",
                    c.force ? "true" : "false", line.c_str() + 1);
        std::fflush(stdout);
        return summary;
    }

    /// Item 1: policies whose figures are known from the peer's own simulator.
    void peers()
    {
        for (const char *trace : {"trace3.csv", "trace1.csv"})
            for (const char *policy : {"srtf/preempt", "srsf/preempt", "las/preempt"}) {
                Case c;
                c.trace = muri(trace);
                c.restart = RestartRule::every_event;
                print(c, policy);
            }
    }

    /// Items 2 and 3: with the peer's rules for events and restarts.
    void interleave()
    {
        for (const char *trace : {"trace3.csv", "trace1.csv"})
            for (const char *cycle : {"lockstep", "turn"}) {
                Case c;
                c.trace = muri(trace);
                c.cycle = cycle;
                c.restart = RestartRule::every_event;
                const double share = print(c, "share/preempt").mean.avg_jct_s;
                const double partial = print(c, "jigsaw/preempt").mean.avg_jct_s;
                bench::Line("sim", "jigsaw_over_share", partial / share, "1")
                    .with("part", std::string(part_)).with("trace", std::string(trace))
                    .with("cycle", std::string(cycle)).headline();
                print(c, "muri/preempt");
                print(c, "packing/preempt");
            }
    }

    /// Item 3: what partial depth may cost in iterations.
    void depth()
    {
        for (const char *cycle : {"lockstep", "turn"}) {
            Case c;
            c.trace = muri("trace3.csv");
            c.cycle = cycle;
            c.restart = RestartRule::every_event;
            c.runs = kRuns;
            const double share = print(c, "share/preempt").mean.avg_jct_s;
            double last_q = 0, last = 0, break_even = 0;
            for (const double q : kExtraIterations) {
                c.q = q;
                c.force = false;
                print(c, "jigsaw/preempt");
                c.force = true;
                const double forced = print(c, "jigsaw/preempt").mean.avg_jct_s;
                if (last_q > 0 && last < share && forced >= share)
                    break_even = last_q + (q - last_q) * (share - last) / (forced - last);
                last_q = q;
                last = forced;
            }
            bench::Line("sim", "break_even_q", break_even, "1").with("part", std::string(part_))
                .with("trace", std::string("trace3.csv")).with("cycle", std::string(cycle))
                .with("meaning", std::string("partial depth on every shared GPU is as good as none")).headline();
        }
    }

    /// Item 3: models that keep the GPU busy; the mean over draws.
    void mix()
    {
        for (const char *cycle : {"lockstep", "turn"}) {
            std::vector<double> ratios;
            for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
                Case c;
                c.trace = muri("trace3.csv");
                c.cycle = cycle;
                c.restart = RestartRule::every_event;
                c.models = kGpuBound;
                c.seed = seed;
                const double share = print(c, "share/preempt").mean.avg_jct_s;
                ratios.push_back(print(c, "jigsaw/preempt").mean.avg_jct_s / share);
            }
            const Spread spread = spread_of(ratios);
            bench::Line("sim", "jigsaw_over_share", spread.mean, "1").with("part", std::string(part_))
                .with("cycle", std::string(cycle)).with("sd", spread.sd).with("draws", kRuns).headline();
        }
    }

    /// Item 4: four-worker ResNet-50 at batch 32 (Orion's V100 times), as many as the cluster can take.
    void headline()
    {
        for (const double exposed_ms : {0.0, 20.0})
            for (const double slowdown : {1.0, 1.05, 1.1, 1.2, 1.31})
                for (const plan::Policy policy : {plan::Policy::rotate, plan::Policy::two_level})
                    saturated(exposed_ms, slowdown, policy);
    }

    void saturated(double exposed_ms, double slowdown, plan::Policy policy) const
    {
        JobType type;
        type.gpus = 4;
        type.stages.gpu_ms = kResNetCompute_ms;
        type.stages.iteration_ms = type.stages.gpu_ms + exposed_ms;
        type.stages.network_ms = exposed_ms;
        const DepthCurve curve;
        TurnOptions alone, shared;
        shared.switch_slowdown = slowdown;
        double off = 0, on = 0, busy = 0;
        for (int jobs = 1; jobs <= 2; ++jobs) {
            const auto rate = [&](bool partial) {
                const TurnResult got =
                    simulate_turns(gang_of(type, curve, jobs, partial, policy), 4, jobs > 1 ? shared : alone);
                double sum = 0;
                for (const double iterations : got.iterations)
                    sum += iterations;
                if (partial)
                    busy = *std::min_element(got.gpu_busy.begin(), got.gpu_busy.end());
                return sum / got.counted_ms * 3.6e6 / 4; // per GPU and hour
            };
            off = std::max(off, rate(false));
            on = jobs > 1 ? rate(true) : on;
        }
        bench::Line("sim", "iterations_per_gpu_hour_ratio", on / off, "1").with("part", std::string(part_))
            .with("slowdown", slowdown).with("exposed_network_ms", exposed_ms)
            .with("depth_policy", std::string(plan::policy_name(policy))).with("with_spb", on).with("best_without", off)
            .with("least_gpu_busy", busy).headline();
    }

    /// Item 6: every pair, triple and quad of the models on one GPU, against the formula.
    void turns()
    {
        const ProfileBook book = read_profiles(profiles());
        const std::vector<std::string> models = book.models();
        for (int count = 2; count <= kMaxSharing; ++count) {
            std::vector<double> rates, worst;
            std::vector<std::size_t> pick(static_cast<std::size_t>(count), 0);
            for (bool more = true; more; more = next_multiset(&pick, models.size()))
                compare_turns(book, models, pick, &rates, &worst);
            std::sort(rates.begin(), rates.end());
            std::sort(worst.begin(), worst.end());
            const auto line = [&](const char *metric, double value) {
                bench::Line("sim", metric, value, "1").with("part", std::string(part_)).with("jobs", count)
                    .with("groups", rates.size()).headline();
            };
            line("rate_over_model_mean", spread_of(rates).mean);
            line("rate_over_model_least", rates.front());
            line("worst_member_over_model_p90", worst[worst.size() * 9 / 10]);
            line("worst_member_over_model_worst", worst.back());
        }
        weights();
    }

    static bool next_multiset(std::vector<std::size_t> *pick, std::size_t kinds)
    {
        for (std::size_t at = pick->size(); at-- > 0;) {
            if ((*pick)[at] + 1 == kinds)
                continue;
            std::fill(pick->begin() + static_cast<std::ptrdiff_t>(at), pick->end(), (*pick)[at] + 1);
            return true;
        }
        return false;
    }

    void compare_turns(const ProfileBook &book, const std::vector<std::string> &models,
                       const std::vector<std::size_t> &pick, std::vector<double> *rates, std::vector<double> *worst)
    {
        std::vector<TurnJob> jobs;
        double load = 0, longest_ms = 0;
        for (const std::size_t model : pick) {
            const Stages stages = book.type(models[model], 8).stages;
            TurnJob job;
            job.gpu_of_rank = {0};
            job.forward_ms = stages.gpu_ms * stages.forward_share;
            job.backward_ms_of_level = {stages.gpu_ms - job.forward_ms};
            job.away_ms = std::max(0.0, stages.iteration_ms - stages.gpu_ms);
            const double alone_ms = stages.gpu_ms + job.away_ms;
            load += stages.gpu_ms / alone_ms;
            longest_ms = std::max(longest_ms, alone_ms);
            jobs.push_back(job);
        }
        TurnOptions options;
        options.by_isolated_time = true;
        options.patience = 0.25;
        options.warmup_ms = 50 * longest_ms;
        options.duration_ms = 550 * longest_ms;
        const TurnResult got = simulate_turns(jobs, 1, options);
        const double model = std::max(1.0, load);
        double sum = 0, slowest = 0;
        for (std::size_t j = 0; j < jobs.size(); ++j) {
            const double rate = got.relative_rate(j, jobs[j]);
            sum += rate;
            slowest = std::max(slowest, 1 / std::max(1e-9, rate));
        }
        rates->push_back(sum / (static_cast<double>(jobs.size()) / model));
        worst->push_back(slowest / model);
    }

    /// Jobs that are always ready, weights 1, 2 and 5: the largest error of a share.
    void weights() const
    {
        const std::vector<double> weights = {1, 2, 5};
        std::vector<TurnJob> jobs;
        for (const double weight : weights) {
            TurnJob job;
            job.gpu_of_rank = {0};
            job.forward_ms = 30;
            job.backward_ms_of_level = {60};
            job.weight = weight;
            jobs.push_back(job);
        }
        TurnOptions options;
        options.duration_ms = 1e6;
        const TurnResult got = simulate_turns(jobs, 1, options);
        double sum = 0, error = 0;
        for (const double iterations : got.iterations)
            sum += iterations;
        for (std::size_t j = 0; j < jobs.size(); ++j)
            error = std::max(error, std::fabs(got.iterations[j] / sum * 8 / weights[j] - 1));
        bench::Line("sim", "weighted_share_error", error, "1").with("part", std::string(part_)).headline();
    }

    /// Item 5 on trace3: the plugin's regime.
    void staying()
    {
        Case c;
        c.trace = muri("trace3.csv");
        c.runs = kRuns;
        c.baseline = true;
        for (const char *policy : {"fifo", "backfill", "srtf/stay", "srsf/stay", "share", "jigsaw"})
            print(c, policy);
        c.models = kGpuBound;
        for (const char *policy : {"share", "jigsaw"})
            print(c, policy);
        c.models = {"resnet50"};
        for (const char *policy : {"backfill", "share"})
            print(c, policy);
    }

    void trace1()
    {
        Case c;
        c.trace = muri("trace1.csv");
        c.runs = kRuns;
        c.baseline = true;
        for (const char *policy : {"backfill", "share", "jigsaw"})
            print(c, policy);
    }

    /// Items 5 and 7: the whole of Philly on 640 and 480 GPUs.
    void philly()
    {
        for (const int nodes : {80, 60}) {
            Case c;
            c.trace = data_ + "/traces/philly/philly_82248_jobs.csv";
            c.nodes = nodes;
            c.baseline = true;
            double stay_s = 0, preempt_s = 0;
            for (const char *policy : {"fifo", "backfill", "share", "jigsaw"})
                stay_s += print(c, policy).mean.wall_s;
            bench::Line("sim", "philly_staying_wall_s", stay_s, "s").with("gpus", nodes * 8).headline();
            c.baseline = false;
            if (nodes != 80)
                continue;
            for (const char *policy : {"srtf/preempt", "srsf/preempt", "las/preempt", "packing/preempt",
                                       "muri/preempt", "share/preempt", "jigsaw/preempt"})
                preempt_s += print(c, policy).mean.wall_s;
            bench::Line("sim", "philly_preemptive_wall_s", preempt_s, "s").with("gpus", nodes * 8).headline();
        }
    }

    std::string data_;
    std::set<std::string> parts_;
    const char *part_ = "";
};

} // namespace

int main(int argc, char **argv)
{
    std::string data;
    std::set<std::string> parts;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--data") == 0 && i + 1 < argc) {
            data = argv[++i];
            continue;
        }
        bench::require_word(argv[i], "sim: PART",
                            {"peers", "interleave", "depth", "mix", "headline", "turns", "staying", "trace1", "philly"});
        parts.insert(argv[i]);
    }
    if (data.empty()) {
        std::fprintf(stderr, "bench/sim: skipped: it replays recorded traces; say where they are: --data FOLDER\n");
        return 77; // Automake's number for skipped
    }
    try {
        Bench(data, parts).run();
    } catch (const InputError &error) {
        std::fprintf(stderr, "bench/sim: %s\n", error.what());
        return 1;
    }
    return 0;
}
