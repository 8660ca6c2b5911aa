// SPDX-License-Identifier: Apache-2.0
// A network to train: weights on a fixed pattern and a bias per neuron; ReLU between layers (at most `clip`, where that is
// not 0), none after the last. And the file that holds it with what an optimizer remembers, for any number of ranks.
#ifndef JIGSAW_RUNTIME_SPARSE_MODEL_HPP
#define JIGSAW_RUNTIME_SPARSE_MODEL_HPP

#include "runtime/sparse/matrix.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::sparse {

struct Model {
    Network network; ///< its own bias is not used
    std::vector<std::vector<float>> bias;
};

/// Biases of 0 and weights drawn evenly from +-sqrt(6 / a row's weights), the same for any number of ranks.
Model fresh_model(Network network, std::uint64_t seed);

/// The layer with all its weights, zeros.
CsrMatrix dense_layer(std::uint32_t rows, std::uint32_t columns);

/// A pattern, from text: sizes joined by `-` for dense layers (64-256-256-10), or `radix:NEURONSxLAYERS-OUTPUTS` for the
/// layers of a RadiX-Net and a dense one to the outputs.
Network parse_topology(const std::string &text, std::uint64_t seed);

/// The largest weights of each layer, by magnitude, with `keep` of them; the last layer keeps at least `keep_last`.
Model pruned(const Model &model, double keep, double keep_last);

enum class Optimizer : std::uint32_t { none = 0, sgd = 1, adam = 2 };

/// What an optimizer remembers of a set of parameters; empty where it does not.
struct Moments {
    std::vector<float> first, second;
};

struct Checkpoint {
    Model model;
    Optimizer optimizer = Optimizer::none;
    std::uint64_t epoch = 0, step = 0, seed = 0;
    std::vector<Moments> weights, biases; ///< per layer; none where the optimizer is none
};

/// Written beside its place and renamed: the file before stays whole until this one is.
void write_checkpoint(const std::string &path, const Checkpoint &checkpoint);
Checkpoint read_checkpoint(const std::string &path);
Checkpoint parse_checkpoint(const std::string &name, const unsigned char *data, std::size_t bytes);
/// By its first bytes.
bool is_checkpoint(const std::string &path);

} // namespace jigsaw::sparse

#endif
