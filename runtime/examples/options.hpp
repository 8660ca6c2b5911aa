// SPDX-License-Identifier: Apache-2.0
// Command line of the two example programs. No LibTorch here.
#ifndef JIGSAW_EXAMPLES_OPTIONS_HPP
#define JIGSAW_EXAMPLES_OPTIONS_HPP

#include <cstdint>
#include <string>

namespace jigsaw::examples {

struct Options {
    std::string program;      ///< "train_digits"
    std::string data;
    std::uint64_t iterations = 0; ///< 0: from epochs
    double epochs = 0;
    std::uint32_t batch = 32; ///< per worker
    double lr = 0.05;
    std::string schedule = "cosine";
    double lr_warmup = 0; ///< share of the iterations in which the rate rises from 0
    std::string optimizer = "sgd";
    double momentum = 0.9, weight_decay = 0;
    std::uint64_t seed = 1;
    std::uint32_t width = 32;
    std::string policy;
    std::uint32_t levels = 0, full_workers = 0;
    double warmup_fraction = 0;
    double min_depth = 0;
    bool follow_rate = false;
    std::string strategy, directive_log, replay_log;
    std::string metrics, save, resume;
    std::uint32_t timeout_ms = 0;
    std::uint32_t beat = 10; ///< iterations between looks at the others: mean loss, progress line, stopping together
    bool quiet = false;
};

enum class Parsed { run, help, error };

/// Reads argv over what *options holds; prints help to stdout, an error to stderr.
Parsed parse_options(Options *options, int argc, char **argv, const char *what_it_does);

/// "{rank}" in a file name becomes the rank.
std::string with_rank(const std::string &name, int rank);

/// Learning rate of an iteration, and its share of the peak as the learning-rate rule wants it (1 while it rises).
struct Rate {
    double lr, over_peak;
};
Rate rate_at(const Options &options, std::uint64_t iteration);

} // namespace jigsaw::examples
#endif
