// SPDX-License-Identifier: Apache-2.0
// The training loop of both programs, and of bench/quality, which runs ranks as threads. No LibTorch in this header.
#ifndef JIGSAW_EXAMPLES_TRAINING_HPP
#define JIGSAW_EXAMPLES_TRAINING_HPP

#include "runtime/examples/metrics.hpp"
#include "runtime/examples/options.hpp"

#include <atomic>
#include <memory>
#include <string>

namespace jigsaw::examples {

struct Task; // task.hpp

/// A model, its data and its score. Called with the seed of Options already in LibTorch's default generator.
using MakeTask = std::unique_ptr<Task> (*)(const Options &options);
std::unique_ptr<Task> make_digits(const Options &options);
std::unique_ptr<Task> make_text(const Options &options);

Options digits_defaults();
Options text_defaults();

/// Where a rank stands; the default is a process of its own, told by its environment.
struct Place {
    int rank = -1, world_size = -1;
    void *thread_world = nullptr; ///< from jigsaw_thread_world_create()
};

/// Trains; throws std::exception. `stop` set means: save and end, all ranks together.
EndLine train(MakeTask make_task, Options options, const Place &place, const std::atomic<bool> &stop);

/// main() of a program.
int train_main(Options defaults, MakeTask make_task, const char *what_it_does, int argc, char **argv);

/// Thrown where there is no data to train on: the programs say so and exit with status 77.
struct NoData {
    std::string text;
};

} // namespace jigsaw::examples
#endif
