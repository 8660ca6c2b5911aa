// SPDX-License-Identifier: Apache-2.0
// What goes into a network: samples with few features that are not zero, and their labels.
#ifndef JIGSAW_RUNTIME_SPARSE_SAMPLES_HPP
#define JIGSAW_RUNTIME_SPARSE_SAMPLES_HPP

#include "runtime/sparse/matrix.hpp"
#include "runtime/sparse/tiles.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace jigsaw::sparse {

struct Samples {
    std::uint32_t features = 0;
    std::vector<std::uint64_t> start{0}; ///< of each sample in the two below
    std::vector<std::uint32_t> feature;
    std::vector<float> value;
    std::vector<std::uint32_t> label; ///< empty where there are none

    std::uint32_t count() const { return static_cast<std::uint32_t>(start.size() - 1); }
};

/// Lines `sample neuron value`, in any order, neurons counted from 1; samples from 0 if one is 0, else from 1. `most`: only
/// the samples before this number (0: all). A name that ends in .gz is read through gzip.
Samples parse_graph_challenge_inputs(const std::string &name, std::string_view text, std::uint32_t neurons, std::uint32_t most);
Samples read_graph_challenge_inputs(const std::string &path, std::uint32_t neurons, std::uint32_t most);
/// A category per line, counted from 1.
std::vector<std::uint32_t> read_categories(const std::string &path);

/// Lines of numbers separated by commas: features, then a label from 0. Values are divided by the largest of all.
Samples parse_labelled(const std::string &name, std::string_view text);
Samples read_labelled(const std::string &path);

/// Feature j of the result is feature j modulo the old number: a small image on a wide layer.
Samples repeat_features(const Samples &samples, std::uint32_t features);

/// Rows `inputs` (rising) of the samples listed go into tiles; slots beyond them become zero.
void fill_tiles(const Samples &samples, const std::vector<std::uint32_t> &which, const std::vector<std::uint32_t> &inputs,
                std::uint32_t width, Tiles *tiles);

} // namespace jigsaw::sparse

#endif
