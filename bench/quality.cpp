// SPDX-License-Identifier: Apache-2.0
// What partial depth does to the result of training: the two example programs' models, the product's own loop and sync, four
// workers as threads of this process, five paired seeds.
//
//   full        every worker at full depth
//   two-level   half of the workers at full depth, the others at the last block, after a warm-up of a tenth, as many iterations
//   fewer       full depth, fewer iterations: the GPU time of two-level
//   idle        full depth on three of four workers, as many iterations: the GPU time of two-level within a few percent
//   follow      two-level whose number of full workers follows the learning rate (not with --quick)
//
// gpu_share is forward plus backward over those of `full`, from the measured times of full-depth iterations and the mean depth
// fraction. usage: quality [--quick] [--seeds N] [--only digits|text] [--iterations N]
#include "bench/bench.hpp"
#include "runtime/examples/training.hpp"

#include <jigsaw/jigsaw.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using namespace jigsaw::examples;

constexpr int kWorkers = 4;

struct Variant {
    const char *name;
    const char *policy;
    int workers;
    bool fewer, follow;
};
constexpr Variant kVariants[] = {
    {"full", "", kWorkers, false, false},          {"two-level", "two-level", kWorkers, false, false},
    {"fewer", "", kWorkers, true, false},          {"idle", "", kWorkers - 1, false, false},
    {"follow", "two-level", kWorkers, false, true},
};
constexpr std::size_t kTwoLevel = 1;

struct Data {
    const char *name;
    const char *metric;
    MakeTask make_task;
    Options options;
    double scale;     ///< of a difference as it is printed
    const char *unit; ///< of that
};

struct Arguments {
    bool quick = false;
    int seeds = 5;
    std::string only;
    std::uint64_t iterations = 0;
};

struct Result {
    double quality = 0, depth = 1, forward_ms = 0, backward_ms = 0;
};

/// All ranks of one run, as threads.
Result run(const Data &data, Options options, int workers)
{
    void *world = jigsaw_thread_world_create(static_cast<std::uint32_t>(workers));
    static const std::atomic<bool> never{false};
    std::vector<EndLine> ends(static_cast<std::size_t>(workers));
    std::vector<std::exception_ptr> errors(ends.size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < workers; ++rank)
        threads.emplace_back([&, rank] {
            const auto i = static_cast<std::size_t>(rank);
            try {
                ends[i] = train(data.make_task, options, {rank, workers, world}, never);
            } catch (...) {
                errors[i] = std::current_exception();
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    jigsaw_thread_world_destroy(world);
    for (const std::exception_ptr &error : errors)
        if (error)
            std::rethrow_exception(error);
    Result result;
    result.quality = ends[0].quality;
    result.forward_ms = ends[0].forward_ms;
    result.backward_ms = ends[0].backward_ms;
    result.depth = 0;
    for (const EndLine &end : ends) {
        result.depth += end.mean_depth_fraction / workers;
        if (end.sha256 != ends[0].sha256)
            throw std::runtime_error("ranks ended with different parameters");
    }
    return result;
}

struct Interval {
    double mean = 0, half = 0; ///< 95 %: mean +- half
};

/// Student's t, two-sided 95 %, for n - 1 degrees of freedom.
Interval interval(const std::vector<double> &values)
{
    constexpr double kT[] = {0, 0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
    const std::size_t n = values.size();
    Interval out;
    for (const double value : values)
        out.mean += value / static_cast<double>(n);
    double squares = 0;
    for (const double value : values)
        squares += (value - out.mean) * (value - out.mean);
    if (n > 1)
        out.half = (n < 11 ? kT[n] : 2.2) * std::sqrt(squares / static_cast<double>(n - 1) / static_cast<double>(n));
    return out;
}

double gpu_share(const Variant &variant, const Result &result, double iterations_share)
{
    const double all = result.forward_ms + result.backward_ms;
    return (result.forward_ms + result.depth * result.backward_ms) / all * iterations_share * variant.workers / kWorkers;
}

class Study {
  public:
    Study(Data data, const Arguments &arguments) : data_(std::move(data)), arguments_(arguments)
    {
        if (arguments_.iterations != 0)
            data_.options.iterations = arguments_.iterations;
        data_.options.quiet = true;
        data_.options.warmup_fraction = 0.1;
    }

    void go()
    {
        const std::size_t variants = std::size(kVariants) - (arguments_.quick ? 1 : 0);
        for (int seed = 1; seed <= arguments_.seeds; ++seed)
            for (std::size_t v = 0; v < variants; ++v)
                one(v, static_cast<std::uint64_t>(seed));
        for (std::size_t v = 0; v < variants; ++v)
            print(v);
    }

  private:
    void one(std::size_t v, std::uint64_t seed)
    {
        const Variant &variant = kVariants[v];
        Options options = data_.options;
        options.seed = seed;
        options.policy = variant.policy;
        options.full_workers = variant.follow ? 1 : kWorkers / 2;
        options.follow_rate = variant.follow;
        double share = 1;
        if (variant.fewer) {
            share = shares_[kTwoLevel].back();
            options.iterations = static_cast<std::uint64_t>(std::lround(share * static_cast<double>(options.iterations)));
        }
        const Result result = run(data_, options, variant.workers);
        qualities_[v].push_back(result.quality);
        shares_[v].push_back(gpu_share(variant, result, share));
        depths_[v].push_back(result.depth);
        std::fprintf(stderr, "quality: %s seed %d %s: %.4f\n", data_.name, static_cast<int>(seed), variant.name, result.quality);
    }

    jigsaw::bench::Line &keys(jigsaw::bench::Line &line, std::size_t v) const
    {
        return line.with("variant", std::string(kVariants[v].name))
            .with("workers", kWorkers)
            .with("seeds", arguments_.seeds)
            .with("iterations", data_.options.iterations)
            .with("gpu_share", interval(shares_[v]).mean)
            .with("mean_depth_fraction", interval(depths_[v]).mean);
    }

    void print(std::size_t v) const
    {
        jigsaw::bench::Line line(std::string("quality"), std::string(data_.name) + "_" + data_.metric,
                                 interval(qualities_[v]).mean, "1");
        keys(line, v);
        if (v == 0)
            return;
        std::vector<double> differences;
        for (std::size_t seed = 0; seed < qualities_[v].size(); ++seed)
            differences.push_back((qualities_[v][seed] - qualities_[0][seed]) * data_.scale);
        const Interval difference = interval(differences);
        jigsaw::bench::Line paired("quality", std::string(data_.name) + "_" + data_.metric + "_difference", difference.mean,
                                   data_.unit);
        keys(paired, v)
            .with("baseline", std::string("full"))
            .with("ci95_low", difference.mean - difference.half)
            .with("ci95_high", difference.mean + difference.half);
        if (v == kTwoLevel && std::strcmp(data_.name, "digits") == 0)
            paired.headline();
    }

    Data data_;
    Arguments arguments_;
    std::vector<double> qualities_[std::size(kVariants)], shares_[std::size(kVariants)], depths_[std::size(kVariants)];
};

/// Smaller than the programs' defaults: twenty runs are to end within minutes.
Data digits(bool quick)
{
    Data data{"digits", "accuracy", make_digits, digits_defaults(), 100, "points"};
    data.options.width = 8;
    data.options.batch = 16;
    data.options.iterations = quick ? 200 : 400;
    return data;
}

Data text(bool quick)
{
    Data data{"text", "val_loss", make_text, text_defaults(), 1, "nats"};
    data.options.width = 32;
    data.options.batch = 4;
    data.options.iterations = quick ? 120 : 400;
    return data;
}

Arguments parse(int argc, char **argv)
{
    Arguments out;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : nullptr;
        if (word == "--quick")
            out.quick = true;
        else if (word == "--seeds" && value != nullptr && std::atoi(value) >= 1)
            out.seeds = std::atoi(argv[++i]);
        else if (word == "--iterations" && value != nullptr && std::atoi(value) >= 10)
            out.iterations = static_cast<std::uint64_t>(std::atoi(argv[++i]));
        else if (word == "--only" && value != nullptr) {
            jigsaw::bench::require_word(value, "quality: --only", {"digits", "text"});
            out.only = argv[++i];
        }
        else
            throw std::invalid_argument(word + ": usage: quality [--quick] [--seeds N] [--only digits|text] [--iterations N], N >= 10");
    }
    return out;
}

} // namespace

int main(int argc, char **argv)
{
    unsetenv("JIGSAW_SOCKET"); // the figures are for this process's own policies
    try {
        const Arguments arguments = parse(argc, argv);
        for (const Data &data : {digits(arguments.quick), text(arguments.quick)}) {
            if (!arguments.only.empty() && arguments.only != data.name)
                continue;
            try {
                Study(data, arguments).go();
            } catch (const NoData &missing) {
                std::fprintf(stderr, "quality: %s left out: %s\n", data.name, missing.text.c_str());
            }
        }
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "quality: %s\n", error.what());
        return 1;
    }
}
