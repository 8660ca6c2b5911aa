// SPDX-License-Identifier: Apache-2.0
// Counting words from the definition, apart from the partitioner's own bookkeeping.
#include "runtime/sparse/partition.hpp"
#include "runtime/sparse/random.hpp"

#include <algorithm>
#include <numeric>

namespace jigsaw::sparse {

Traffic measure_traffic(const Network &network, const Partition &partition)
{
    check(partition, network);
    const std::uint32_t parts = partition.parts;
    Traffic traffic;
    traffic.matrix.assign(std::size_t{parts} * parts, 0);
    for (std::size_t k = 0; k < network.layers.size(); ++k) {
        const CsrMatrix &layer = network.layers[k];
        const CsrMatrix by_column = transpose(layer);
        std::vector<std::uint64_t> pair(std::size_t{parts} * parts, 0), load(parts, 0);
        std::vector<std::uint64_t> seen(parts, 0);
        for (std::uint32_t j = 0; j < layer.columns; ++j) {
            const std::uint32_t from = partition.owner[k][j];
            for (std::uint64_t at = by_column.row_start[j]; at < by_column.row_start[j + 1]; ++at) {
                const std::uint32_t to = partition.owner[k + 1][by_column.column[at]];
                if (to != from && seen[to] != j + 1) {
                    seen[to] = j + 1;
                    ++pair[std::size_t{from} * parts + to];
                }
            }
        }
        for (std::uint32_t row = 0; row < layer.rows; ++row)
            load[partition.owner[k + 1][row]] += layer.row_nonzeros(row);
        LayerTraffic one;
        for (std::size_t at = 0; at < pair.size(); ++at) {
            one.words += pair[at];
            one.messages += pair[at] > 0;
            one.largest_message = std::max(one.largest_message, pair[at]);
            traffic.matrix[at] += pair[at];
        }
        if (layer.nonzeros() > 0)
            one.imbalance = static_cast<double>(*std::max_element(load.begin(), load.end())) * parts /
                                static_cast<double>(layer.nonzeros()) - 1;
        traffic.words += one.words;
        traffic.messages += one.messages;
        traffic.backward_words += k > 0 ? one.words : 0;
        traffic.largest_message = std::max(traffic.largest_message, one.largest_message);
        traffic.imbalance = std::max(traffic.imbalance, one.imbalance);
        traffic.layers.push_back(one);
    }
    return traffic;
}

namespace {

Partition even_partition(const Network &network, std::uint32_t parts, Random *random)
{
    check(network);
    if (parts == 0)
        throw Error("a partition needs a part");
    Partition partition;
    partition.parts = parts;
    for (std::size_t k = 0; k <= network.layers.size(); ++k) {
        const std::uint32_t neurons = k == 0 ? network.inputs() : network.layers[k - 1].rows;
        std::vector<std::uint32_t> owner(neurons);
        for (std::uint32_t i = 0; i < neurons; ++i)
            owner[i] = static_cast<std::uint32_t>(std::uint64_t{i} * parts / neurons);
        if (random != nullptr)
            random->shuffle(owner);
        partition.owner.push_back(std::move(owner));
    }
    return partition;
}

} // namespace

Partition random_partition(const Network &network, std::uint32_t parts, std::uint64_t seed)
{
    Random random(seed);
    return even_partition(network, parts, &random);
}

Partition contiguous_partition(const Network &network, std::uint32_t parts)
{
    return even_partition(network, parts, nullptr);
}

} // namespace jigsaw::sparse
