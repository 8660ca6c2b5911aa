// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/matrix.hpp"

namespace jigsaw::sparse {

void check(const CsrMatrix &m, const std::string &name)
{
    if (m.row_start.size() != std::size_t{m.rows} + 1 || m.row_start.front() != 0)
        throw Error(name + ": row_start must have " + std::to_string(std::size_t{m.rows} + 1) + " entries and start at 0");
    for (std::uint32_t row = 0; row < m.rows; ++row)
        if (m.row_start[row + 1] < m.row_start[row])
            throw Error(name + ": row_start falls after row " + std::to_string(row));
    if (m.column.size() != m.nonzeros() || m.value.size() != m.nonzeros())
        throw Error(name + ": " + std::to_string(m.nonzeros()) + " non-zeros, but " + std::to_string(m.column.size()) +
                    " columns and " + std::to_string(m.value.size()) + " values");
    for (std::uint32_t row = 0; row < m.rows; ++row)
        for (std::uint64_t at = m.row_start[row]; at < m.row_start[row + 1]; ++at) {
            if (m.column[at] >= m.columns)
                throw Error(name + ": row " + std::to_string(row) + " has column " + std::to_string(m.column[at]) +
                            " of " + std::to_string(m.columns));
            if (at > m.row_start[row] && m.column[at] <= m.column[at - 1])
                throw Error(name + ": row " + std::to_string(row) + ": columns must rise, but " +
                            std::to_string(m.column[at]) + " follows " + std::to_string(m.column[at - 1]));
        }
}

void check(const Network &network)
{
    if (network.layers.empty())
        throw Error("a network needs a layer");
    for (std::size_t k = 0; k < network.layers.size(); ++k) {
        check(network.layers[k], "layer " + std::to_string(k + 1));
        if (k > 0 && network.layers[k].columns != network.layers[k - 1].rows)
            throw Error("layer " + std::to_string(k + 1) + " takes " + std::to_string(network.layers[k].columns) +
                        " inputs, layer " + std::to_string(k) + " has " + std::to_string(network.layers[k - 1].rows) +
                        " outputs");
    }
}

void check(const Partition &partition, const Network &network)
{
    if (partition.parts == 0)
        throw Error("a partition needs a part");
    if (partition.owner.size() != network.layers.size() + 1)
        throw Error("the partition is of " + std::to_string(partition.owner.size()) + " layers of neurons, the network has " +
                    std::to_string(network.layers.size() + 1));
    for (std::size_t k = 0; k < partition.owner.size(); ++k) {
        const std::uint32_t neurons = k == 0 ? network.inputs() : network.layers[k - 1].rows;
        if (partition.owner[k].size() != neurons)
            throw Error("the partition has " + std::to_string(partition.owner[k].size()) + " owners for the " +
                        std::to_string(neurons) + " neurons of layer " + std::to_string(k));
        for (std::uint32_t owner : partition.owner[k])
            if (owner >= partition.parts)
                throw Error("the partition names part " + std::to_string(owner) + " of " + std::to_string(partition.parts) +
                            " in layer " + std::to_string(k));
    }
}

CsrMatrix transpose(const CsrMatrix &m)
{
    CsrMatrix t;
    t.rows = m.columns;
    t.columns = m.rows;
    t.row_start.assign(std::size_t{t.rows} + 1, 0);
    for (std::uint32_t column : m.column)
        ++t.row_start[column + 1];
    for (std::uint32_t row = 0; row < t.rows; ++row)
        t.row_start[row + 1] += t.row_start[row];
    t.column.resize(m.column.size());
    t.value.resize(m.value.size());
    std::vector<std::uint64_t> next(t.row_start.begin(), t.row_start.end() - 1);
    for (std::uint32_t row = 0; row < m.rows; ++row)
        for (std::uint64_t at = m.row_start[row]; at < m.row_start[row + 1]; ++at) {
            const std::uint64_t to = next[m.column[at]]++;
            t.column[to] = row;
            t.value[to] = m.value[at];
        }
    return t;
}

} // namespace jigsaw::sparse
