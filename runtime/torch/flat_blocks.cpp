// SPDX-License-Identifier: Apache-2.0
#include "runtime/torch/flat_blocks.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

namespace jigsaw {
namespace torch {

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
        TORCH_CHECK(tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble, "jigsaw: parameter ", name,
                    " is ", tensor.scalar_type(), "; float and double can be synchronised");
        TORCH_CHECK(tensor.device().is_cpu(), "jigsaw: parameter ", name, " is on ", tensor.device(),
                    "; this build synchronises host memory");
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

void FlatBlocks::publish_gradients(std::uint64_t defined_blocks)
{
    for (Parameter &parameter : parameters_) {
        const bool defined = (defined_blocks >> parameter.block & 1) != 0;
        parameter.tensor.mutable_grad() = defined ? parameter.view : at::Tensor();
    }
}

} // namespace torch
} // namespace jigsaw
