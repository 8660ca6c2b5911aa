// SPDX-License-Identifier: Apache-2.0
/** @file
 * A feed-forward stack whose backward pass may be a scan over its layers' Jacobians.
 *
 *     jigsaw::scan::Chain chain(torch::nn::Conv2d(...), torch::nn::ReLU(), ...);     // was torch::nn::Sequential
 *     chain->scan.way = "tree";
 *     loss(chain->forward(x)).backward();
 *
 * torch::nn::Sequential's constructors, parameter names and state dict. Layers: Linear, Conv2d, ReLU, Tanh, Sigmoid, MaxPool2d,
 * AvgPool2d, BatchNorm2d, Flatten. Weights that are exactly zero (pruned) cost nothing; patterns are worked out once.
 *
 * "automatic" and "serial" are ordinary backpropagation, which is quickest on a CPU: products of Jacobians pay where there are
 * about as many processors as they have columns. "tree" and "chunked" scan.
 */
#ifndef JIGSAW_SCAN_CHAIN_HPP
#define JIGSAW_SCAN_CHAIN_HPP

#include <jigsaw/scan_options.hpp>

#include <torch/nn/modules/container/sequential.h>

#include <memory>

namespace jigsaw {
namespace scan {

struct ChainCache;

class ChainImpl : public ::torch::nn::SequentialImpl {
  public:
    using ::torch::nn::SequentialImpl::SequentialImpl;
    at::Tensor forward(const at::Tensor &input);
    ScanOptions scan;
    /// Of the last backward pass by a scan.
    const ScanStatus &status() const { return *status_; }

  private:
    using Cache = std::shared_ptr<ChainCache>;
    static Cache make_cache();
    StatusPtr status_ = std::make_shared<ScanStatus>();
    Cache cache_ = make_cache();
};

class Chain : public ::torch::nn::ModuleHolder<ChainImpl> {
  public:
    using ::torch::nn::ModuleHolder<ChainImpl>::ModuleHolder;
};

} // namespace scan
} // namespace jigsaw
#endif
