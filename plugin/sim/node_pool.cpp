// SPDX-License-Identifier: Apache-2.0
// Bitmaps of nodes by free GPUs, so that the first node with room is found in a word or two.
#include "plugin/sim/node_pool.hpp"

#include <algorithm>

namespace jigsaw::sim {

NodePool::NodePool(const ClusterShape &shape) : shape_(shape) { clear(); }

void NodePool::clear()
{
    const auto words = static_cast<std::size_t>(shape_.nodes + 63) / 64;
    Bits every(words, ~0ull);
    if (shape_.nodes % 64 != 0)
        every.back() = (1ull << (shape_.nodes % 64)) - 1;
    free_.assign(static_cast<std::size_t>(shape_.nodes), shape_.gpus_per_node);
    with_at_least_.assign(static_cast<std::size_t>(shape_.gpus_per_node) + 1, every);
    free_gpus_ = shape_.gpus();
}

int NodePool::first_with(int gpus) const
{
    const Bits &bits = with_at_least_[static_cast<std::size_t>(gpus)];
    for (std::size_t word = 0; word < bits.size(); ++word)
        if (bits[word] != 0)
            return static_cast<int>(word) * 64 + __builtin_ctzll(bits[word]);
    return -1;
}

void NodePool::set_free(int node, int gpus)
{
    const auto at = static_cast<std::size_t>(node);
    free_gpus_ += gpus - free_[at];
    const std::uint64_t bit = 1ull << (node % 64);
    for (int count = 1; count <= shape_.gpus_per_node; ++count) {
        std::uint64_t &word = with_at_least_[static_cast<std::size_t>(count)][at / 64];
        word = gpus >= count ? word | bit : word & ~bit;
    }
    free_[at] = gpus;
}

bool NodePool::take(int gpus)
{
    if (gpus > free_gpus_)
        return false;
    if (gpus > shape_.gpus_per_node)
        return take_wide(gpus);
    const int node = first_with(gpus);
    if (node < 0)
        return false;
    set_free(node, free_[static_cast<std::size_t>(node)] - gpus);
    return true;
}

bool NodePool::take_wide(int gpus)
{
    const int whole = gpus / shape_.gpus_per_node, rest = gpus % shape_.gpus_per_node;
    std::vector<int> taken;
    for (int i = 0; i < whole; ++i) {
        const int node = first_with(shape_.gpus_per_node);
        if (node < 0)
            break;
        set_free(node, 0);
        taken.push_back(node);
    }
    const int last = static_cast<int>(taken.size()) == whole && rest > 0 ? first_with(rest) : -1;
    if (static_cast<int>(taken.size()) < whole || (rest > 0 && last < 0)) {
        for (const int node : taken)
            set_free(node, shape_.gpus_per_node);
        return false;
    }
    if (rest > 0)
        set_free(last, free_[static_cast<std::size_t>(last)] - rest);
    return true;
}

} // namespace jigsaw::sim
