// SPDX-License-Identifier: Apache-2.0
// Samples through a network of the Graph Challenge's kind, layer by layer. A sample whose activations are all zero stays so
// (the bias goes to non-zeros only): it is dropped, and those that are left move together.
#ifndef JIGSAW_RUNTIME_SPARSE_INFERENCE_HPP
#define JIGSAW_RUNTIME_SPARSE_INFERENCE_HPP

#include "runtime/sparse/passes.hpp"
#include "runtime/sparse/samples.hpp"

#include <functional>
#include <vector>

namespace jigsaw::sparse {

struct InferenceOptions {
    std::uint32_t batch = 16384; ///< samples at a time; what one rank holds is twice batch * its neurons of a layer floats
    std::uint32_t widest = 0;    ///< samples in a tile; 0: as many as leave two tiles of a layer in 256 KiB
    bool drop_dead = true;
    Instructions instructions = best_instructions();
    std::function<void(std::size_t layer, std::uint32_t alive)> progress; ///< now and then
};

struct InferenceResult {
    std::vector<std::uint32_t> alive;  ///< samples (from 0) with a non-zero output, rising; on every rank
    std::uint64_t multiplications = 0; ///< of this rank, done: dead samples are not in it
    SentTraffic traffic;                   ///< of this rank
    double seconds = 0;
};

class Inference {
public:
    /// All but the options outlive this.
    Inference(const Network &network, const NetworkShare &share, Comm &comm, Workers &workers, InferenceOptions options);

    /// Every rank is given all samples and takes its inputs of them.
    InferenceResult run(const Samples &samples);

private:
    void run_batch(const Samples &samples, std::vector<std::uint32_t> slots);
    bool alone() const { return comm_.size() == 1; }
    std::size_t layers_at_once(std::size_t first) const;
    void run_layers_alone(std::size_t first, std::size_t count);
    std::uint32_t widest_tile() const;
    void note_alive();
    void drop_dead();

    const Network &network_;
    const NetworkShare &share_;
    Comm &comm_;
    Workers &workers_;
    InferenceOptions options_;
    Passes passes_;
    Tiles in_, out_, ghost_;
    std::vector<std::uint32_t> slots_;   ///< the sample in each slot of the tiles
    std::vector<float> largest_;         ///< output of each slot, on this rank
    std::vector<std::uint64_t> bits_;    ///< which slots are alive on any rank
    std::vector<std::uint32_t> result_;
    std::uint64_t multiplications_ = 0;
};

/// Slot i of the result is slot keep[i] (rising) of the tiles; fewer tiles are left.
void keep_slots(Tiles *tiles, const std::vector<std::uint32_t> &keep, Workers &workers);

} // namespace jigsaw::sparse

#endif
