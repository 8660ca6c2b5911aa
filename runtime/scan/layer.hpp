// SPDX-License-Identifier: Apache-2.0
// One direction of one recurrent layer as a single node of LibTorch's autograd graph.
#ifndef JIGSAW_SCAN_LAYER_HPP
#define JIGSAW_SCAN_LAYER_HPP

#include "runtime/scan/cell_scan.hpp"

#include <jigsaw/scan_options.hpp>

#include <ATen/core/Tensor.h>

#include <vector>

namespace jigsaw::scan {

/// Steps of a batch, packed or not: LibTorch's batch_sizes and where each step's rows begin.
struct Steps {
    std::size_t batch = 0;
    std::vector<std::size_t> rows, offset;
    std::size_t count() const { return rows.size(); }
    std::size_t total() const { return rows.empty() ? 0 : offset.back() + rows.back(); }
};
Steps padded_steps(std::size_t steps, std::size_t batch);
Steps packed_steps(const at::Tensor &batch_sizes);

struct LayerWeights {
    at::Tensor input, hidden;           ///< W_ih, W_hh
    at::Tensor input_bias, hidden_bias; ///< undefined without bias
};

struct LayerInput {
    at::Tensor data;                       ///< N x input size, contiguous
    at::Tensor initial, initial_cell;      ///< batch x H; the second for LSTM only
};

struct LayerResult {
    at::Tensor output, last, last_cell; ///< N x H; batch x H
};

LayerResult run_layer(Cell cell, const std::shared_ptr<const Steps> &steps, bool reversed, const LayerInput &input,
                      const LayerWeights &weights, const ScanOptions &options, const StatusPtr &status);

/// LibTorch's intra-op threads.
Parallel torch_threads();

} // namespace jigsaw::scan
#endif
