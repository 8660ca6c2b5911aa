// SPDX-License-Identifier: Apache-2.0
// One flat gradient buffer per block, and each parameter's view into it. Internal to libjigsaw_torch.
#ifndef JIGSAW_TORCH_FLAT_BLOCKS_HPP
#define JIGSAW_TORCH_FLAT_BLOCKS_HPP

#include <jigsaw/torch.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw {
namespace torch {

struct Parameter {
    std::string name; ///< "block.index"
    at::Tensor tensor;
    at::Tensor view; ///< of the block's buffer, shaped like the parameter
    std::uint32_t block = 0;
};

class FlatBlocks {
  public:
    /// Throws c10::Error naming block and parameter when one is no leaf, of a type or on a device that a block cannot
    /// mix, or when a block has nothing to train.
    explicit FlatBlocks(const std::vector<Block> &blocks);

    const std::vector<Parameter> &parameters() const { return parameters_; }
    const std::vector<at::Tensor> &buffers() const { return buffers_; }
    const std::vector<std::uint32_t> &parameters_of_block() const { return count_; }
    const std::string &name(std::uint32_t block) const { return names_[block]; }

    /// Blocks below `first` do not require gradients, all others do. Before forward only: toggling between forward and
    /// backward drops gradients silently.
    void freeze_below(std::uint32_t first);
    void reset_gradients();
    /// The gradient that autograd just stored moves into the buffer.
    void take_gradient(std::size_t parameter);
    void zero_gradient(std::size_t parameter);
    /// .grad of every parameter: its view where the block is defined, else undefined, so that an optimizer skips it.
    void publish_gradients(std::uint64_t defined_blocks);

    /// Of the gradients in the blocks of the mask: the same bits on every rank give the same answer on every rank.
    bool finite(std::uint64_t defined_blocks) const;
    double square_sum(std::uint64_t defined_blocks) const;
    void scale(std::uint64_t defined_blocks, double factor);

  private:
    void add_block(const Block &block, std::uint32_t index);
    void make_buffer(std::uint32_t index);

    std::vector<std::string> names_;
    std::vector<Parameter> parameters_; ///< ordered by block
    std::vector<at::Tensor> buffers_;
    std::vector<std::uint32_t> count_;
    std::uint32_t frozen_below_ = 0;
};

} // namespace torch
} // namespace jigsaw
#endif
