// SPDX-License-Identifier: Apache-2.0
// What a training program brings to the loop.
#ifndef JIGSAW_EXAMPLES_TASK_HPP
#define JIGSAW_EXAMPLES_TASK_HPP

#include "runtime/examples/training.hpp"

#include <torch/nn/module.h>

#include <memory>
#include <vector>

namespace jigsaw::examples {

struct Task {
    virtual ~Task() = default;
    virtual ::torch::nn::Module &module() = 0;
    /// From the input to the loss.
    virtual std::vector<std::shared_ptr<::torch::nn::Module>> blocks() = 0;
    /// Forward on this rank's batch of an iteration: a pure function of (seed, iteration, rank), so that a resumed run sees
    /// the same samples.
    virtual ::at::Tensor loss(std::uint64_t iteration, int rank, int world_size) = 0;
    virtual double samples_per_epoch() const = 0;
    virtual double evaluate() = 0;
    virtual const char *quality_name() const = 0; ///< "accuracy", "val_loss"
};

} // namespace jigsaw::examples
#endif
