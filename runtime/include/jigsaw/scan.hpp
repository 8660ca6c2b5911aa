// SPDX-License-Identifier: Apache-2.0
/** @file
 * Backpropagation as a scan (BPPSA, arXiv:1907.10134) for LibTorch: recurrent layers in place of torch::nn's.
 *
 *     jigsaw::scan::GRU gru(torch::nn::GRUOptions(input, 20).num_layers(2));   // was torch::nn::GRU
 *     auto [output, state] = gru->forward(x);                                  // as ever
 *     loss(output).backward();
 *
 * Same options, parameters (names, shapes, initial values from the same seed), state dict, inputs and outputs: several
 * layers, both directions, batch_first, dropout between layers, padded or packed sequences. The whole layer is one node of
 * the autograd graph; its backward is analytical and takes the way that a model of this machine's costs says is quickest
 * (docs/scan.md): serial and fused, the same with the samples split over the threads, or a scan over time.
 *
 * What the fused code does not do (anything but float and double on the CPU; LSTM with proj_size) goes to torch::nn's own
 * forward. Gradients of gradients are refused with an error.
 */
#ifndef JIGSAW_SCAN_HPP
#define JIGSAW_SCAN_HPP

#include <jigsaw/scan_options.hpp>

#include <torch/nn/modules/rnn.h>

#include <memory>
#include <tuple>

namespace jigsaw {
namespace scan {

#define JIGSAW_SCAN_MODULE_COMMON(NAME)                                                                                \
    using ::torch::nn::NAME::NAME;                                                                                     \
    /** A deep copy, as torch::nn's, of this class. */                                                                 \
    std::shared_ptr<::torch::nn::Module> clone(const ::torch::optional<::torch::Device> &device = {}) const override;  \
    ScanOptions scan;                                                                                                  \
    /** Of the last backward pass. */                                                                                  \
    const ScanStatus &status() const { return *status_; }                                                              \
                                                                                                                       \
  private:                                                                                                             \
    StatusPtr status_ = std::make_shared<ScanStatus>();

class RNNImpl : public ::torch::nn::RNNImpl {
  public:
    std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor &input, at::Tensor hx = {});
    std::tuple<::torch::nn::utils::rnn::PackedSequence, at::Tensor>
    forward_with_packed_input(const ::torch::nn::utils::rnn::PackedSequence &packed_input, at::Tensor hx = {});

    JIGSAW_SCAN_MODULE_COMMON(RNNImpl)
};

class GRUImpl : public ::torch::nn::GRUImpl {
  public:
    std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor &input, at::Tensor hx = {});
    std::tuple<::torch::nn::utils::rnn::PackedSequence, at::Tensor>
    forward_with_packed_input(const ::torch::nn::utils::rnn::PackedSequence &packed_input, at::Tensor hx = {});

    JIGSAW_SCAN_MODULE_COMMON(GRUImpl)
};

class LSTMImpl : public ::torch::nn::LSTMImpl {
  public:
    using Pair = std::tuple<at::Tensor, at::Tensor>;
    std::tuple<at::Tensor, Pair> forward(const at::Tensor &input, ::torch::optional<Pair> hx_opt = {});
    std::tuple<::torch::nn::utils::rnn::PackedSequence, Pair>
    forward_with_packed_input(const ::torch::nn::utils::rnn::PackedSequence &packed_input,
                              ::torch::optional<Pair> hx_opt = {});

    JIGSAW_SCAN_MODULE_COMMON(LSTMImpl)
};
#undef JIGSAW_SCAN_MODULE_COMMON

#define JIGSAW_SCAN_HOLDER(NAME)                                                                                       \
    class NAME : public ::torch::nn::ModuleHolder<NAME##Impl> {                                                        \
      public:                                                                                                          \
        using ::torch::nn::ModuleHolder<NAME##Impl>::ModuleHolder;                                                     \
    };
JIGSAW_SCAN_HOLDER(RNN)
JIGSAW_SCAN_HOLDER(GRU)
JIGSAW_SCAN_HOLDER(LSTM)
#undef JIGSAW_SCAN_HOLDER

} // namespace scan
} // namespace jigsaw
#endif
