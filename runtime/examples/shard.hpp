// SPDX-License-Identifier: Apache-2.0
// Who trains on which sample: pure functions of (seed, iteration, rank), the same on every machine.
#ifndef JIGSAW_EXAMPLES_SHARD_HPP
#define JIGSAW_EXAMPLES_SHARD_HPP

#include <cstddef>
#include <cstdint>
#include <vector>

namespace jigsaw::examples {

/// splitmix64 of two numbers: seeds of independent streams.
std::uint64_t mix(std::uint64_t a, std::uint64_t b);

/// 0..n-1 in an order that depends on `seed` alone.
std::vector<std::int64_t> shuffled(std::size_t n, std::uint64_t seed);

/// Epochs over n samples, each in a new order, cut into batches, the batches dealt to the ranks in turn.
class Shards {
  public:
    Shards(std::uint64_t seed, std::size_t n) : seed_(seed), n_(n) {}
    std::vector<std::int64_t> batch(std::uint64_t iteration, int rank, int world_size, std::uint32_t size);

  private:
    std::uint64_t seed_;
    std::size_t n_;
    std::uint64_t epoch_ = UINT64_MAX;
    std::vector<std::int64_t> order_;
};

} // namespace jigsaw::examples
#endif
