// SPDX-License-Identifier: Apache-2.0
// One table makes parser, checks and help.
#include "runtime/examples/options.hpp"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <vector>

namespace jigsaw::examples {

namespace {

struct Row {
    const char *name;
    const char *value; ///< nullptr: a switch
    std::string help;
    std::function<void(const std::string &)> set;
};

[[noreturn]] void refuse(const std::string &text, const char *allowed)
{
    throw std::invalid_argument(text + ": allowed is " + allowed);
}

double real(const std::string &text, double lowest, double highest, const char *allowed)
{
    char *end = nullptr;
    errno = 0;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || errno != 0 || !(value >= lowest && value <= highest))
        refuse(text, allowed);
    return value;
}

template <typename T>
std::function<void(const std::string &)> whole(T *out, double lowest, double highest, const char *allowed)
{
    return [=](const std::string &text) {
        if (text.find_first_not_of("0123456789") != std::string::npos)
            refuse(text, allowed);
        *out = static_cast<T>(real(text, lowest, highest, allowed));
    };
}

std::function<void(const std::string &)> number(double *out, double lowest, double highest, const char *allowed)
{
    return [=](const std::string &text) { *out = real(text, lowest, highest, allowed); };
}

std::function<void(const std::string &)> one_of(std::string *out, std::vector<std::string> words, const char *allowed)
{
    return [=](const std::string &text) {
        for (const std::string &word : words)
            if (text == word) {
                *out = text;
                return;
            }
        refuse(text, allowed);
    };
}

std::function<void(const std::string &)> word(std::string *out)
{
    return [=](const std::string &text) { *out = text; };
}

std::string brief(double value)
{
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
}

std::vector<Row> training_rows(Options &o)
{
    return {
        {"--data", "FILE", "the data (default: " + o.data + ")", word(&o.data)},
        {"--iterations", "N", "optimizer steps (default: " + std::to_string(o.iterations) + ")",
         whole(&o.iterations, 1, 1e9, "a whole number from 1")},
        {"--epochs", "E", "passes over the data, in place of --iterations",
         [&o](const std::string &text) {
             o.epochs = real(text, 1e-3, 1e6, "a number above 0");
             o.iterations = 0;
         }},
        {"--batch", "N", "samples per worker and iteration (default: " + std::to_string(o.batch) + ")",
         whole(&o.batch, 1, 4096, "1 to 4096")},
        {"--width", "N", "width of the model: scales the work of an iteration (default: " + std::to_string(o.width) + ")",
         whole(&o.width, 4, 1024, "4 to 1024")},
        {"--lr", "X", "peak learning rate (default: " + brief(o.lr) + ")", number(&o.lr, 0, 10, "0 to 10")},
        {"--schedule", "S", "constant or cosine (default: " + o.schedule + ")",
         one_of(&o.schedule, {"constant", "cosine"}, "constant or cosine")},
        {"--lr-warmup", "F", "share of the run in which the rate rises (default: " + brief(o.lr_warmup) + ")",
         number(&o.lr_warmup, 0, 0.9, "0 to 0.9")},
        {"--optimizer", "O", "sgd or adam (default: " + o.optimizer + ")",
         one_of(&o.optimizer, {"sgd", "adam"}, "sgd or adam")},
        {"--weight-decay", "X", "of the optimizer (default: 0)", number(&o.weight_decay, 0, 1, "0 to 1")},
        {"--seed", "N", "of initial parameters and batches (default: 1)", whole(&o.seed, 0, 1e15, "a whole number")},
    };
}

std::vector<Row> depth_rows(Options &o)
{
    return {
        {"--policy", "P", "depth policy while no jigsawd directs: full, two-level, rotate, shuffle, fixed, uniform (default: full)",
         one_of(&o.policy, {"full", "two-level", "rotate", "shuffle", "fixed", "uniform"},
                "full, two-level, rotate, shuffle, fixed or uniform")},
        {"--levels", "N", "levels of depth (default: 2 for two-level and uniform, else as many as ranks)",
         whole(&o.levels, 1, 16, "1 to 16")},
        {"--full-workers", "N", "two-level: how many workers run full depth; uniform: in how many of 8 iterations (default: half)",
         whole(&o.full_workers, 1, 65536, "1 to the number of ranks")},
        {"--warmup-fraction", "F", "share of the run at full depth first (default: " + brief(o.warmup_fraction) + ")",
         number(&o.warmup_fraction, 0, 1, "0 to 1")},
        {"--min-depth", "F", "floor of the mean depth fraction, by backward time (default: 0)",
         number(&o.min_depth, 0, 1, "0 to 1")},
        {"--follow-rate", nullptr, "the least number of full workers follows the learning rate",
         [&o](const std::string &) { o.follow_rate = true; }},
        {"--sync", "S", "default, scatter-gather, chain or full", word(&o.strategy)},
        {"--directive-log", "FILE", "append every agreed directive (rank 0)", word(&o.directive_log)},
        {"--replay", "FILE", "follow such a file instead of jigsawd or --policy", word(&o.replay_log)},
    };
}

std::vector<Row> run_rows(Options &o)
{
    return {
        {"--metrics", "FILE", "JSON lines, one per iteration; {rank} becomes the rank", word(&o.metrics)},
        {"--save", "FILE", "checkpoint, written at the end and on SIGTERM by rank 0", word(&o.save)},
        {"--resume", "FILE", "go on from a checkpoint", word(&o.resume)},
        {"--timeout-ms", "N", "how long to wait for another rank (default: 60000)",
         whole(&o.timeout_ms, 1, 3.6e6, "1 to 3600000")},
        {"--beat", "N", "iterations between progress lines (default: 10)", whole(&o.beat, 1, 1e6, "1 to 1000000")},
        {"--quiet", nullptr, "no progress", [&o](const std::string &) { o.quiet = true; }},
    };
}

void print_rows(const char *title, const std::vector<Row> &rows)
{
    std::printf("\n%s\n", title);
    for (const Row &row : rows) {
        const std::string left = std::string(row.name) + (row.value != nullptr ? std::string(" ") + row.value : "");
        std::printf("  %-22s %s\n", left.c_str(), row.help.c_str());
    }
}

void print_help(Options &o, const char *what_it_does)
{
    std::printf("usage: %s [OPTIONS]\n\n%s\n\n"
                "One process is one rank: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which, or Slurm does. Alone it is\n"
                "rank 0 of 1. SIGTERM ends the run on all ranks together, after a checkpoint if --save is given.\n",
                o.program.c_str(), what_it_does);
    print_rows("Training", training_rows(o));
    print_rows("Depth (Structured Partial Backpropagation)", depth_rows(o));
    print_rows("Run", run_rows(o));
}

const Row *find(const std::vector<Row> &rows, const std::string &name)
{
    for (const Row &row : rows)
        if (name == row.name)
            return &row;
    return nullptr;
}

} // namespace

Parsed parse_options(Options *options, int argc, char **argv, const char *what_it_does)
{
    std::vector<Row> rows;
    for (const auto &group : {training_rows(*options), depth_rows(*options), run_rows(*options)})
        rows.insert(rows.end(), group.begin(), group.end());
    for (int i = 1; i < argc; ++i) {
        std::string name = argv[i], value;
        if (name == "--help" || name == "-h")
            return print_help(*options, what_it_does), Parsed::help;
        const std::size_t equals = name.find('=');
        const Row *row = find(rows, name.substr(0, equals));
        const bool attached = equals != std::string::npos;
        if (row == nullptr || (row->value == nullptr && attached) || (row->value != nullptr && !attached && i + 1 >= argc)) {
            std::fprintf(stderr, "%s: %s: %s; see --help\n", options->program.c_str(), argv[i],
                         row == nullptr ? "unknown option" : row->value == nullptr ? "takes no value" : "needs a value");
            return Parsed::error;
        }
        if (row->value != nullptr)
            value = attached ? name.substr(equals + 1) : argv[++i];
        try {
            row->set(value);
        } catch (const std::invalid_argument &problem) {
            std::fprintf(stderr, "%s: %s %s\n", options->program.c_str(), row->name, problem.what());
            return Parsed::error;
        }
    }
    return Parsed::run;
}

std::string with_rank(const std::string &name, int rank)
{
    std::string out = name;
    const std::size_t at = out.find("{rank}");
    return at == std::string::npos ? out : out.replace(at, std::strlen("{rank}"), std::to_string(rank));
}

Rate rate_at(const Options &options, std::uint64_t iteration)
{
    const double rise = options.lr_warmup * static_cast<double>(options.iterations);
    const double t = static_cast<double>(iteration);
    if (t < rise)
        return {options.lr * (t + 1) / (rise + 1), 1.0};
    if (options.schedule == "constant")
        return {options.lr, 1.0};
    const double over_peak = 0.5 * (1 + std::cos(M_PI * (t - rise) / (static_cast<double>(options.iterations) - rise)));
    return {options.lr * over_peak, over_peak};
}

} // namespace jigsaw::examples
