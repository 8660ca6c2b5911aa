// SPDX-License-Identifier: Apache-2.0
// Measuring the costs that cost.cpp decides by. The least of a few tries: what the machine can do when nobody disturbs.
#include "runtime/scan/cost.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace jigsaw::scan {

namespace {

constexpr int kTries = 5;

template <typename Run> double best_ns(const Run &run)
{
    double best = std::numeric_limits<double>::max();
    for (int i = 0; i < kTries; ++i) {
        const auto start = std::chrono::steady_clock::now();
        run();
        best = std::min(best,
                        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

/// A vanilla RNN's backward over `steps` steps, arbitrary numbers.
struct Sample {
    Sample(std::size_t steps, std::size_t batch, std::size_t h)
        : rows(steps, batch), weight(h * h, 0.01f), initial(batch * h, 0.1f), output(steps * batch * h, 0.1f),
          grad(batch * h, 1), gates(steps * batch * h)
    {
        for (std::size_t step = 0; step < steps; ++step)
            offset.push_back(step * batch);
        args.layout = {steps, batch, rows.data(), offset.data(), false};
        args.hidden = h;
        args.weight = weight.data();
        args.initial = initial.data();
        args.output = output.data();
        args.state_grad = grad.data();
        args.gate_grad = gates.data();
    }
    std::vector<std::size_t> rows, offset;
    std::vector<float> weight, initial, output, grad, gates;
    CellBackward<float> args;
};

double step_ns(std::size_t batch, std::size_t h)
{
    constexpr std::size_t kSteps = 100;
    Sample sample(kSteps, batch, h);
    return best_ns([&] { cell_backward(sample.args, 0, batch); }) / kSteps;
}

std::string cache_file()
{
    const char *const cache = std::getenv("XDG_CACHE_HOME"), *const home = std::getenv("HOME");
    if (cache && *cache)
        return std::string(cache) + "/jigsaw/scan-costs";
    return home && *home ? std::string(home) + "/.cache/jigsaw/scan-costs" : "";
}

std::string content_of(const std::string &path)
{
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

/// Whole or not at all: another process may read at the same time.
void write_file(const std::string &path, const std::string &text)
{
    const std::string folder = path.substr(0, path.rfind('/'));
    mkdir(folder.substr(0, folder.rfind('/')).c_str(), 0700);
    mkdir(folder.c_str(), 0700);
    const std::string fresh = path + "." + std::to_string(getpid());
    const bool written = (std::ofstream(fresh) << text << std::flush).good();
    if (!written || std::rename(fresh.c_str(), path.c_str()) != 0)
        unlink(fresh.c_str());
}

Costs load_or_measure(const Parallel &parallel)
{
    const std::string path = cache_file();
    Costs costs;
    if (!path.empty() && from_text(content_of(path), parallel.workers, &costs))
        return costs;
    costs = measure_costs(parallel);
    if (!path.empty())
        write_file(path, to_text(costs, parallel.workers));
    return costs;
}

} // namespace

Costs measure_costs(const Parallel &parallel)
{
    constexpr std::size_t kHidden = 32, kBatch = 8;
    constexpr double kWork = static_cast<double>(kBatch * kHidden * kHidden);
    Costs costs;
    const double small = step_ns(1, 1), large = step_ns(kBatch, kHidden);
    costs.step = small;
    costs.fused = std::max(0.0, large - small) / kWork;
    Sample sample(2, kBatch, kHidden);
    costs.jacobian = best_ns([&] { cell_jacobian(sample.args, 1); }) / kWork;
    const Operator<float> jacobian = cell_jacobian(sample.args, 1);
    SymbolicCache cache;
    costs.matrix = best_ns([&] { compose(jacobian, jacobian, kBatch, &cache, nullptr); }) / (kWork * kHidden);
    costs.vector = best_ns([&] { apply(jacobian, sample.grad, kBatch, nullptr); }) / kWork;
    costs.fork = parallel.workers > 1 ? best_ns([&] { parallel.run(parallel.workers, [](std::size_t) {}); }) : 0;
    return costs;
}

const Costs &machine_costs(const Parallel &parallel)
{
    static const Costs costs = load_or_measure(parallel);
    return costs;
}

} // namespace jigsaw::scan
