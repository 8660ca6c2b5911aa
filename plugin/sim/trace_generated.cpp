// SPDX-License-Identifier: Apache-2.0
// A trace from stated distributions, for questions that no recorded one asks.
#include "plugin/sim/text.hpp"
#include "plugin/sim/trace.hpp"

#include <algorithm>
#include <cmath>

namespace jigsaw::sim {

namespace {

double positive(const std::string &name, const std::string &text, double most)
{
    double number = 0;
    if (!parse_number(&number, text) || !(number > 0) || number > most)
        throw InputError("--generate: " + name + " '" + text + "' is no number above 0 up to " +
                         std::to_string(static_cast<long long>(most)));
    return number;
}

std::vector<std::pair<int, double>> parse_weights(const std::string &text)
{
    std::vector<std::pair<int, double>> weights;
    for (const std::string &part : split(text, '/')) {
        const std::vector<std::string> pair = split(part, ':');
        if (pair.size() != 2)
            throw InputError("--generate: gpus is NUMBER:WEIGHT/NUMBER:WEIGHT..., not '" + text + "'");
        weights.emplace_back(static_cast<int>(positive("gpus", pair[0], 1e6)), positive("gpus", pair[1], 1e6));
    }
    return weights;
}

int draw_gpus(const std::vector<std::pair<int, double>> &weights, Random *random)
{
    double sum = 0;
    for (const auto &[gpus, weight] : weights)
        sum += weight;
    double left = random->uniform(0, sum);
    for (const auto &[gpus, weight] : weights) {
        if (left < weight)
            return gpus;
        left -= weight;
    }
    return weights.back().first;
}

} // namespace

GeneratorOptions parse_generator(const std::string &text)
{
    GeneratorOptions options;
    for (const std::string &part : text.empty() ? std::vector<std::string>{} : split(text, ',')) {
        const auto equals = part.find('=');
        const std::string name = part.substr(0, equals);
        const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
        if (name == "jobs")
            options.jobs = static_cast<std::size_t>(positive(name, value, 1e7));
        else if (name == "interarrival")
            options.interarrival_s = positive(name, value, 1e9);
        else if (name == "median")
            options.median_s = positive(name, value, 1e9);
        else if (name == "sigma")
            options.sigma = positive(name, value, 10);
        else if (name == "least")
            options.least_s = positive(name, value, 1e9);
        else if (name == "most")
            options.most_s = positive(name, value, 1e9);
        else if (name == "gpus")
            options.gpu_weights = parse_weights(value);
        else
            throw InputError("--generate: '" + name +
                             "' is not jobs, interarrival, median, sigma, least, most or gpus");
    }
    if (options.least_s > options.most_s)
        throw InputError("--generate: least is above most");
    return options;
}

TraceRows generate(const GeneratorOptions &options)
{
    Random random(options.seed);
    TraceRows rows;
    double now_s = 0;
    for (std::size_t i = 0; i < options.jobs; ++i) {
        TraceRow row;
        row.name = std::to_string(i);
        row.submit_s = now_s;
        row.iteration_s = std::clamp(options.median_s * std::exp(options.sigma * random.normal()), options.least_s,
                                     options.most_s);
        row.gpus = draw_gpus(options.gpu_weights, &random);
        rows.push_back(row);
        now_s += random.exponential(options.interarrival_s);
    }
    return rows;
}

} // namespace jigsaw::sim
