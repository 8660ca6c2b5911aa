// SPDX-License-Identifier: Apache-2.0
#include "runtime/examples/shard.hpp"

#include <numeric>
#include <utility>

namespace jigsaw::examples {

std::uint64_t mix(std::uint64_t a, std::uint64_t b)
{
    std::uint64_t x = a + 0x9e3779b97f4a7c15u * (b + 1);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

std::vector<std::int64_t> shuffled(std::size_t n, std::uint64_t seed)
{
    std::vector<std::int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    // Not std::shuffle: its order differs between standard libraries. The modulo's bias is below 1e-15 here.
    for (std::size_t i = n; i > 1; --i)
        std::swap(order[i - 1], order[mix(seed, i) % i]);
    return order;
}

std::vector<std::int64_t> Shards::batch(std::uint64_t iteration, int rank, int world_size, std::uint32_t size)
{
    // One long line of samples, epoch after epoch; batch number iteration * world_size + rank of it.
    const std::uint64_t first = (iteration * static_cast<std::uint64_t>(world_size) + static_cast<std::uint64_t>(rank)) * size;
    std::vector<std::int64_t> out;
    for (std::uint64_t at = first; at < first + size; ++at) {
        if (at / n_ != epoch_) {
            epoch_ = at / n_;
            order_ = shuffled(n_, mix(seed_, epoch_));
        }
        out.push_back(order_[at % n_]);
    }
    return out;
}

} // namespace jigsaw::examples
