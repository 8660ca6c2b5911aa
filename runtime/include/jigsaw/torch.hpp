// SPDX-License-Identifier: Apache-2.0
/** @file
 * JigSaw for a LibTorch training loop.
 *
 *     auto trainer = jigsaw::torch::attach({first, second, third, last}, options);   // nn modules, input to loss
 *     auto optimizer = torch::optim::SGD(model->parameters(), 0.05);                 // as ever
 *     for (...) {
 *         trainer.begin();                      // turn held; blocks beyond this rank's depth are frozen
 *         auto loss = model->forward(...);      // any code; gradients were reset
 *         trainer.backward(loss);               // gradients of the depth; the turn goes back
 *         trainer.sync();                       // mean gradients on every rank; the next turn is held
 *         optimizer.step();                     // the same step everywhere
 *     }
 *
 * In place of DistributedDataParallel, not beside it. What it takes care of (docs/architecture.md says how):
 *   - a block's parameters get their gradients as views into one flat buffer, at every iteration anew: no zero_grad();
 *   - a block that nobody computed has undefined gradients, so momentum and weight decay leave it alone;
 *   - a parameter listed in several blocks (tied weights) belongs to the first of them: depth counts its earliest use;
 *   - frozen blocks stay in train mode: BatchNorm statistics and dropout are those of full training;
 *   - parameters that do not require a gradient at attach are left out for good;
 *   - parameters on a GPU are reduced by NCCL, on a stream beside that of the framework; the turn ends on the GPU.
 *
 * Errors: c10::Error (TORCH_CHECK) for wrong use, jigsaw::torch::Error for what libjigsaw reports.
 * Threads: the thread that attached.
 */
#ifndef JIGSAW_TORCH_HPP
#define JIGSAW_TORCH_HPP

#include <jigsaw/jigsaw.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace torch {
namespace nn {
class Module;
}
namespace optim {
class Optimizer;
}
} // namespace torch

namespace jigsaw {
namespace torch {

class Error : public std::runtime_error {
  public:
    Error(jigsaw_result_t code, const std::string &text) : std::runtime_error(text), code_(code) {}
    jigsaw_result_t code() const { return code_; }

  private:
    jigsaw_result_t code_;
};

/// Fields as in jigsaw_config_t; empty strings and zeros are the defaults there.
struct Options {
    std::string policy; ///< while no jigsawd directs: full, two-level, rotate, shuffle, fixed, uniform
    std::uint32_t levels = 0;
    std::uint32_t full_workers = 0;
    std::uint64_t warmup_iterations = 0;
    std::uint64_t seed = 0;
    std::uint64_t first_iteration = 0; ///< of a resumed run
    double min_depth_fraction = 0;
    std::string sync_strategy;
    std::string directive_log;
    std::string replay_log;
    std::uint32_t timeout_ms = 0;
    std::int32_t rank = -1, world_size = -1, local_rank = -1;
    void *thread_world = nullptr; ///< ranks are threads of this process
    std::function<void(const std::string &)> log;
    bool broadcast_parameters = true; ///< all ranks start from rank 0's parameters and buffers
    std::string backend; ///< "gloo" or "nccl"; empty: by where the parameters are
};

/// A block by its tensors, for models whose blocks are no modules.
struct Block {
    std::string name;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> buffers;
};

struct Iteration {
    std::uint64_t iteration = 0;
    std::uint32_t depth = 0, num_blocks = 0;
    std::uint64_t generation = 0;
    bool full() const { return depth == num_blocks; }
};

struct SyncResult {
    std::uint64_t iteration = 0;
    std::uint64_t defined_blocks = 0; ///< bit b: block b has a gradient
    bool last = false;                ///< all ranks leave
    double sync_ms = 0;               ///< from the end of compute to the last gradient
    double turn_wait_ms = 0;          ///< for the next turn after that
};

class Trainer {
  public:
    Trainer(std::vector<Block> blocks, const Options &options);
    Trainer(Trainer &&) noexcept;
    Trainer &operator=(Trainer &&) noexcept;
    ~Trainer(); ///< detaches

    /// Open the next iteration: resets all gradients, freezes the blocks beyond the depth. Before forward.
    Iteration begin();
    /// loss.backward(), with the time of forward and backward told apart, and the turn given back. Several micro-batches:
    /// last = false for all but the last one; they share one depth, and each has a turn of its own.
    void backward(const at::Tensor &loss, bool last = true);
    /// Every block's mean gradient is in place, the next turn held. timeout_ms 0: as in Options.
    SyncResult sync(std::uint32_t timeout_ms = 0);

    /// The following three belong between sync() and the optimizer step. All ranks hold the same gradients then and get the
    /// same answer without a message.
    ///
    /// False when any gradient is infinite or not a number. The step is then to be skipped, and this has said so: ranks
    /// that go on all the same are found in the next exchange.
    bool finite();
    /// Multiplies all gradients: 1 / loss scale, 1 / micro-batches.
    void scale_gradients(double factor);
    /// Scales gradients so that their global norm is at most max_norm; returns what it was. The norm is over the means of
    /// all blocks that somebody computed, which every rank has, whatever it computed itself: clipping before sync() would
    /// measure another model on every rank.
    double clip_grad_norm(double max_norm);

    /// A turn outside iterations (evaluation), given back by the destructor.
    class Turn {
      public:
        explicit Turn(jigsaw_context_t *ctx);
        Turn(Turn &&other) noexcept;
        Turn &operator=(Turn &&) = delete;
        ~Turn();

      private:
        jigsaw_context_t *ctx_;
    };
    Turn turn();

    /// NaN: not known.
    void report(double loss, double progress, double lr_over_peak);
    /// Call before the last iteration's backward(); then detach() is clean when all ranks do.
    void leave();
    void detach();

    /// Mean over ranks, the same bits on all of them. Gives the turn back.
    void mean(std::vector<double> *values);
    /// Rank 0's buffers (BatchNorm statistics) on every rank: before evaluation or saving. Gives the turn back.
    void broadcast_buffers();

    int rank() const;
    int world_size() const;
    std::uint32_t num_blocks() const;
    jigsaw_stats_t stats() const;
    jigsaw_context_t *context(); ///< borrowed, for the C functions

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// Blocks as modules, from the input to the loss.
Trainer attach(const std::vector<std::shared_ptr<::torch::nn::Module>> &blocks, const Options &options = {});
/// Blocks as lists of parameters.
Trainer attach(const std::vector<std::vector<at::Tensor>> &blocks, const Options &options = {});

/// Module, optimizer and the number of the next iteration in one file, which replaces an older one whole or not at all.
/// All ranks hold the same parameters: one of them saves. Both throw Error, naming the file, when it cannot be written or
/// read, or is of another model.
void save_checkpoint(const std::string &path, const ::torch::nn::Module &module,
                     const ::torch::optim::Optimizer &optimizer, std::uint64_t next_iteration);
/// Returns the number of the next iteration: Options::first_iteration of the run that goes on.
std::uint64_t load_checkpoint(const std::string &path, ::torch::nn::Module *module,
                              ::torch::optim::Optimizer *optimizer);

} // namespace torch
} // namespace jigsaw
#endif
