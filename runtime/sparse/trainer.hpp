// SPDX-License-Identifier: Apache-2.0
// Mini-batch training of a partitioned network: feed-forward, backpropagation and the optimizer's step on the pattern, all
// on the rows that each rank owns (arXiv:2104.11805). Per pair of ranks and layer one message forward and, but for the
// first layer, one back; the outputs of the last layer are shared for the loss.
//
// The number of ranks changes only in which order sums run: losses agree to a relative 1e-6 at first, and drift apart as any
// two roundings of the same training do.
#ifndef JIGSAW_RUNTIME_SPARSE_TRAINER_HPP
#define JIGSAW_RUNTIME_SPARSE_TRAINER_HPP

#include "runtime/sparse/model.hpp"
#include "runtime/sparse/passes.hpp"
#include "runtime/sparse/samples.hpp"

#include <vector>

namespace jigsaw::sparse {

enum class Loss { softmax, squared }; ///< both against the label: its class, or a vector with a 1 there

struct TrainingOptions {
    Optimizer optimizer = Optimizer::adam;
    Loss loss = Loss::softmax;
    float rate = 1e-3F, momentum = .9F, second_momentum = .999F, epsilon = 1e-8F;
    float decay = 0; ///< weights, not biases, shrink by rate * decay in each step
    std::uint32_t widest = 64; ///< samples in a tile
    Instructions instructions = best_instructions();
};

/// Sums over samples.
struct Score {
    double loss = 0;
    std::uint64_t right = 0, samples = 0;
};

class Trainer {
public:
    /// `comm` and `workers` outlive this. What `from` remembers of another optimizer is not used.
    Trainer(const Checkpoint &from, const Partition &partition, Comm &comm, Workers &workers, TrainingOptions options);

    /// One step on these samples; the score is that of the weights before it, the same on every rank.
    Score step(const Samples &samples, const std::vector<std::uint32_t> &which);
    Score evaluate(const Samples &samples, const std::vector<std::uint32_t> &which);
    std::uint64_t steps() const { return steps_; }

    /// All of it at rank 0 (elsewhere the pattern with stale numbers). Collective.
    Checkpoint collect();

    const NetworkShare &share() const { return share_; }
    std::uint64_t multiplications() const { return passes_.multiplications(); }

private:
    /// Parameters with a gradient and what the optimizer remembers of them; for the tests' sake in one shape for all kinds.
    struct Parameters {
        std::vector<float> *value;
        std::vector<float> gradient;
        Moments moments;
    };
    struct Layer {
        TransposedBlock own_transposed, ghost_transposed;
        std::vector<float> bias;
        Parameters own, ghost, biases;
    };

    void forward(const Samples &samples, const std::vector<std::uint32_t> &which);
    Score score(const Samples &samples, const std::vector<std::uint32_t> &which, Tiles *delta);
    void backward(Tiles *delta);
    void update(Parameters *parameters, float decay);
    Parameters parameters_of(std::vector<float> *value) const;
    template <typename Get> std::vector<float> gather_weights(std::size_t k, const Get &get);

    Checkpoint whole_; ///< the pattern, and whatever collect() needs
    Partition partition_;
    Comm &comm_;
    Workers &workers_;
    TrainingOptions options_;
    NetworkShare share_;
    Passes passes_;
    std::vector<Layer> layers_;
    std::vector<Tiles> x_, ghost_; ///< x_[k] goes into layer k, ghost_[k] beside it; x_.back() is the output
    Tiles ghost_sums_, delta_, below_;
    std::vector<float> outputs_;
    std::uint64_t steps_ = 0;
};

} // namespace jigsaw::sparse

#endif
