// SPDX-License-Identifier: Apache-2.0
#include "runtime/torch/flat_blocks.hpp"

#include "runtime/torch/cuda_stream.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace jigsaw {
namespace torch {

namespace {

/// In a fixed order with a fixed number of lanes: LibTorch's sums depend on how many threads a rank happens to have.
template <typename Number> double square_sum_of(const Number *data, std::int64_t count)
{
    std::array<double, 8> lanes{};
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (std::size_t lane = 0; lane < 8; ++lane) {
            const double value = static_cast<double>(data[i + static_cast<std::int64_t>(lane)]);
            lanes[lane] += value * value;
        }
    for (; i < count; ++i)
        lanes[0] += static_cast<double>(data[i]) * static_cast<double>(data[i]);
    double sum = 0;
    for (const double lane : lanes)
        sum += lane;
    return sum;
}

double square_sum_of(const at::Tensor &buffer)
{
    if (!buffer.device().is_cpu()) {
        const double norm = at::linalg_vector_norm(buffer, 2, c10::nullopt, false, at::kDouble).item<double>();
        return norm * norm;
    }
    switch (buffer.scalar_type()) {
    case at::kDouble: return square_sum_of(buffer.data_ptr<double>(), buffer.numel());
    case at::kBFloat16: return square_sum_of(buffer.data_ptr<at::BFloat16>(), buffer.numel());
    default: return square_sum_of(buffer.data_ptr<float>(), buffer.numel());
    }
}

bool is_set(std::uint64_t mask, std::size_t bit) { return (mask >> bit & 1) != 0; }

} // namespace

FlatBlocks::FlatBlocks(const std::vector<Block> &blocks)
{
    for (std::uint32_t b = 0; b < blocks.size(); ++b) {
        names_.push_back(blocks[b].name);
        count_.push_back(0);
        add_block(blocks[b], b);
        make_buffer(b);
    }
}

void FlatBlocks::add_block(const Block &block, std::uint32_t index)
{
    for (std::size_t i = 0; i < block.parameters.size(); ++i) {
        const at::Tensor &tensor = block.parameters[i];
        const std::string name = block.name + "." + std::to_string(i);
        TORCH_CHECK(tensor.defined(), "jigsaw: parameter ", name, " is undefined");
        if (!tensor.requires_grad())
            continue;
        TORCH_CHECK(tensor.is_leaf(), "jigsaw: parameter ", name, " is no leaf; give the parameters themselves");
        TORCH_CHECK(tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble ||
                        tensor.scalar_type() == at::kBFloat16,
                    "jigsaw: parameter ", name, " is ", tensor.scalar_type(), "; float and double can be synchronised, and bfloat16");
        TORCH_CHECK(tensor.device().is_cpu() || (tensor.device().is_cuda() && knows_cuda_streams()), "jigsaw: parameter ",
                    name, " is on ", tensor.device(), "; this build of libjigsaw_torch synchronises ",
                    knows_cuda_streams() ? "memory of hosts and NVIDIA GPUs" : "host memory; build it with a LibTorch that has CUDA");
        TORCH_CHECK(parameters_.empty() || tensor.device() == parameters_.front().tensor.device(), "jigsaw: parameter ", name,
                    " is on ", tensor.device(), " and the first one on ", parameters_.front().tensor.device(),
                    "; a rank's parameters lie on one device");
        // Tied weights: the block of the earliest use owns the parameter.
        const bool seen = std::any_of(parameters_.begin(), parameters_.end(),
                                      [&](const Parameter &other) { return other.tensor.is_same(tensor); });
        if (seen)
            continue;
        parameters_.push_back({name, tensor, at::Tensor(), index});
        ++count_[index];
    }
    TORCH_CHECK(count_[index] > 0, "jigsaw: block ", block.name,
                " has no parameter of its own that requires a gradient; merge it with a neighbour");
}

void FlatBlocks::make_buffer(std::uint32_t index)
{
    const auto first = parameters_.end() - count_[index];
    std::int64_t elements = 0;
    for (auto it = first; it != parameters_.end(); ++it) {
        TORCH_CHECK(it->tensor.scalar_type() == first->tensor.scalar_type(), "jigsaw: parameter ", it->name, " is ",
                    it->tensor.scalar_type(), " in a block of ", first->tensor.scalar_type(), "; split the block");
        elements += it->tensor.numel();
    }
    const at::Tensor buffer = at::zeros({elements}, first->tensor.options().requires_grad(false));
    std::int64_t offset = 0;
    // Below autograd, so that it does not know them as views: zero_grad() detaches in place, which a view refuses.
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (auto it = first; it != parameters_.end(); ++it) {
        it->view = buffer.narrow(0, offset, it->tensor.numel()).view(it->tensor.sizes());
        offset += it->tensor.numel();
    }
    buffers_.push_back(buffer);
}

void FlatBlocks::freeze_below(std::uint32_t first)
{
    if (first == frozen_below_)
        return;
    for (Parameter &parameter : parameters_)
        parameter.tensor.requires_grad_(parameter.block >= first);
    frozen_below_ = first;
}

void FlatBlocks::reset_gradients()
{
    for (Parameter &parameter : parameters_)
        parameter.tensor.mutable_grad() = at::Tensor();
}

void FlatBlocks::take_gradient(std::size_t index)
{
    const at::NoGradGuard no_grad;
    Parameter &parameter = parameters_[index];
    TORCH_CHECK(parameter.tensor.grad().defined(), "jigsaw: parameter ", parameter.name, " has no gradient after backward");
    TORCH_CHECK(!parameter.tensor.grad().is_sparse(), "jigsaw: parameter ", parameter.name, " has a sparse gradient");
    parameter.view.copy_(parameter.tensor.grad());
    parameter.tensor.mutable_grad() = parameter.view;
}

void FlatBlocks::zero_gradient(std::size_t index)
{
    parameters_[index].view.zero_();
    parameters_[index].tensor.mutable_grad() = parameters_[index].view;
}

bool FlatBlocks::finite(std::uint64_t defined_blocks) const
{
    // A sum of squares is finite only if every value is; that of huge values is infinite too, so look again.
    for (std::size_t block = 0; block < buffers_.size(); ++block)
        if (is_set(defined_blocks, block) && !std::isfinite(square_sum_of(buffers_[block])) &&
            !at::isfinite(buffers_[block]).all().item<bool>())
            return false;
    return true;
}

double FlatBlocks::square_sum(std::uint64_t defined_blocks) const
{
    double sum = 0;
    for (std::size_t block = 0; block < buffers_.size(); ++block)
        if (is_set(defined_blocks, block))
            sum += square_sum_of(buffers_[block]);
    return sum;
}

void FlatBlocks::scale(std::uint64_t defined_blocks, double factor)
{
    const at::NoGradGuard no_grad;
    for (std::size_t block = 0; block < buffers_.size(); ++block)
        if (is_set(defined_blocks, block))
            buffers_[block].mul_(factor);
}

void FlatBlocks::publish_gradients(std::uint64_t defined_blocks)
{
    for (Parameter &parameter : parameters_) {
        const bool defined = (defined_blocks >> parameter.block & 1) != 0;
        parameter.tensor.mutable_grad() = defined ? parameter.view : at::Tensor();
    }
}

} // namespace torch
} // namespace jigsaw
