// SPDX-License-Identifier: Apache-2.0
// Gradients made of numbers that show a wrong order of additions, and their mean computed the obvious way.
#ifndef JIGSAW_TESTS_LIB_GRADIENTS_HPP
#define JIGSAW_TESTS_LIB_GRADIENTS_HPP

#include "runtime/sync/gradient_sync.hpp"

#include <algorithm>
#include <numeric>

namespace jigsaw::tests {

constexpr sync::Strategy kStrategies[] = {sync::Strategy::automatic, sync::Strategy::scatter_gather,
                                          sync::Strategy::chain, sync::Strategy::full_all_reduce};

template <typename Number> using Blocks = std::vector<std::vector<Number>>;

inline plan::IterationPlan plan_of(const std::vector<std::uint32_t> &depths, std::uint32_t num_blocks,
                            std::uint64_t iteration = 5)
{
    plan::IterationPlan plan;
    plan.iteration = iteration;
    plan.depths = depths;
    plan.contributors.resize(num_blocks);
    for (std::uint32_t rank = 0; rank < depths.size(); ++rank)
        for (std::uint32_t block = num_blocks - depths[rank]; block < num_blocks; ++block)
            plan.contributors[block].push_back(rank);
    plan.hash = 1234567 + iteration;
    return plan;
}

/// Splitmix64: one multiplication chain per value, so that the reference does not take most of the time.
inline std::uint64_t scramble(std::uint64_t value)
{
    value = (value + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

/// A rank's gradients: values of many sizes and both signs, so that another order of additions gives other bits.
template <typename Number>
Blocks<Number> gradients_of(int rank, std::uint64_t iteration, const std::vector<std::size_t> &counts)
{
    std::uint64_t seed = scramble(static_cast<std::uint64_t>(rank) << 32 | iteration);
    Blocks<Number> blocks;
    for (const std::size_t count : counts) {
        std::vector<Number> block(count);
        for (Number &value : block) {
            const std::uint64_t bits = scramble(++seed);
            const double mantissa = static_cast<double>(static_cast<std::int64_t>(bits >> 11) - (std::int64_t{1} << 52));
            value = static_cast<Number>(mantissa / static_cast<double>(std::uint64_t{1} << (bits % 16 + 40)));
        }
        if (count > 2)
            block[1] = static_cast<Number>(-0.0); // of every rank: the mean is minus zero
        blocks.push_back(block);
    }
    return blocks;
}

/// The mean over the contributors, one after another in rank order. gradients[rank][block].
template <typename Number>
std::vector<Number> mean_of(const plan::IterationPlan &plan, std::uint32_t block,
                            const std::vector<Blocks<Number>> &gradients)
{
    std::vector<Number> sum;
    for (const std::uint32_t rank : plan.contributors[block]) {
        const std::vector<Number> &mine = gradients[rank][block];
        if (sum.empty())
            sum = mine;
        else
            for (std::size_t i = 0; i < sum.size(); ++i)
                sum[i] += mine[i];
    }
    for (Number &value : sum)
        value /= static_cast<Number>(plan.contributors[block].size());
    return sum;
}

template <typename Number>
Blocks<Number> reference(const plan::IterationPlan &plan, const std::vector<std::size_t> &counts)
{
    std::vector<Blocks<Number>> gradients;
    for (std::size_t rank = 0; rank < plan.depths.size(); ++rank)
        gradients.push_back(gradients_of<Number>(static_cast<int>(rank), plan.iteration, counts));
    Blocks<Number> means;
    for (std::uint32_t block = 0; block < counts.size(); ++block)
        means.push_back(mean_of(plan, block, gradients));
    return means;
}

template <typename Number> std::vector<sync::BlockBuffer> buffers_of(Blocks<Number> &blocks)
{
    std::vector<sync::BlockBuffer> buffers;
    for (auto &block : blocks)
        buffers.push_back({block.data(), block.size(), sizeof(Number) == 8 ? sync::DataType::float64 : sync::DataType::float32});
    return buffers;
}

/// One iteration of every rank: blocks become ready from the loss on, or, on odd ranks, all at the end and backwards.
template <typename Number>
void run_iteration(sync::GradientSync &sync, const collective::Collective &world, const plan::IterationPlan &plan,
                   Blocks<Number> &mine, const std::vector<std::size_t> &counts,
                   std::chrono::milliseconds timeout = std::chrono::seconds(60))
{
    const auto fresh = gradients_of<Number>(world.rank(), plan.iteration, counts);
    std::vector<std::uint32_t> order(plan.depths[static_cast<std::size_t>(world.rank())]);
    std::iota(order.begin(), order.end(), static_cast<std::uint32_t>(counts.size() - order.size()));
    if (world.rank() % 2 == 0)
        std::reverse(order.begin(), order.end());
    for (auto &block : mine)
        std::fill(block.begin(), block.end(), static_cast<Number>(77)); // nobody's leftovers may count
    sync.begin(plan);
    for (const std::uint32_t block : order) {
        std::copy(fresh[block].begin(), fresh[block].end(), mine[block].begin());
        sync.block_ready(block);
    }
    sync.wait(timeout);
}

} // namespace jigsaw::tests
#endif
