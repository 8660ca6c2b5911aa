// SPDX-License-Identifier: Apache-2.0
// Transposed Jacobians of feed-forward layers, made from weights and activations by formula, never by autograd. Vectors are a
// sample's activations in LibTorch's order (channel, row, column). Patterns depend on shapes (and on which weights are kept)
// only: make them once; `values` fills an operator in each iteration.
#ifndef JIGSAW_SCAN_JACOBIANS_HPP
#define JIGSAW_SCAN_JACOBIANS_HPP

#include "runtime/scan/operator.hpp"

#include <cstddef>
#include <vector>

namespace jigsaw::scan {

/// W^T of a linear layer's weight [out x in]; dense, or CSR over the non-zero weights.
template <typename T> Operator<T> linear_jacobian(const T *weight, std::size_t out, std::size_t in);
template <typename T> Operator<T> sparse_linear_jacobian(const T *weight, std::size_t out, std::size_t in);

/// What a window looks at: convolution and pooling.
struct Window {
    std::size_t height = 0, width = 0; ///< of the input
    std::size_t kernel_height = 1, kernel_width = 1;
    std::size_t stride_height = 1, stride_width = 1;
    std::size_t padding_height = 0, padding_width = 0;
    std::size_t dilation_height = 1, dilation_width = 1;
    std::size_t out_height() const;
    std::size_t out_width() const;
};

/// Convolution of in_channels to out_channels in `groups`, weight [out x in / groups x kernel_height x kernel_width].
/// keep: which weights count (pruning), in the weight's order; empty: all.
class ConvJacobian {
  public:
    ConvJacobian(const Window &window, std::size_t in_channels, std::size_t out_channels, std::size_t groups,
                 const std::vector<bool> &keep = {});
    template <typename T> Operator<T> values(const T *weight) const;
    const PatternPtr &pattern() const { return pattern_; }

  private:
    PatternPtr pattern_;
    std::vector<std::size_t> source_; ///< of each entry: which weight
};

/// Max pooling: every window's entries are in the pattern, the largest input's is 1 (the first of equals, as in LibTorch).
class MaxPoolJacobian {
  public:
    MaxPoolJacobian(const Window &window, std::size_t channels);
    /// input [batch x channels x height x width].
    template <typename T> Operator<T> values(const T *input, std::size_t batch) const;

  private:
    PatternPtr pattern_;
    std::vector<std::size_t> first_, entry_; ///< entries of each output, in window order
    std::vector<std::size_t> row_;           ///< of each entry: its input
};

/// Average pooling; padded zeros count as LibTorch's default (count_include_pad) or not.
template <typename T>
Operator<T> average_pool_jacobian(const Window &window, std::size_t channels, bool count_padding = true);

/// Element-wise functions by their derivative at each element [batch x n].
template <typename T> Operator<T> elementwise_jacobian(std::vector<T> derivative, std::size_t batch);
/// From the function's output.
template <typename T> Operator<T> relu_jacobian(const T *output, std::size_t n, std::size_t batch);
template <typename T> Operator<T> tanh_jacobian(const T *output, std::size_t n, std::size_t batch);
template <typename T> Operator<T> sigmoid_jacobian(const T *output, std::size_t n, std::size_t batch);

/// Batch normalization with fixed statistics: diagonal, the same for all samples. weight may be null (no affine).
template <typename T>
Operator<T> batch_norm_jacobian(const T *weight, const T *variance, T epsilon, std::size_t channels, std::size_t area);

/// Batch normalization in training couples the samples: one operator over the whole batch [batch x channels x area] as a
/// single sample. (batch area)^2 channels entries: for small layers and for checks; a Chain cuts the scan here instead.
template <typename T>
Operator<T> batch_norm_training_jacobian(const T *input, const T *weight, T epsilon, std::size_t batch,
                                         std::size_t channels, std::size_t area);

} // namespace jigsaw::scan
#endif
