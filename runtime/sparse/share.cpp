// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/share.hpp"

#include <algorithm>

namespace jigsaw::sparse {

namespace {

using Owners = std::vector<std::uint32_t>;

std::vector<std::uint32_t> owned_by(const Owners &owner, std::uint32_t rank)
{
    std::vector<std::uint32_t> mine;
    for (std::uint32_t i = 0; i < owner.size(); ++i)
        if (owner[i] == rank)
            mine.push_back(i);
    return mine;
}

/// Of each neuron: which of its owner's it is.
std::vector<std::uint32_t> places(const Owners &owner, std::uint32_t parts)
{
    std::vector<std::uint32_t> count(parts, 0), place;
    for (const std::uint32_t part : owner)
        place.push_back(count[part]++);
    return place;
}

/// Ghosts of `rank`, numbered by owner and then by column; kNone for what it does not need or has itself.
constexpr std::uint32_t kNone = ~0U;
std::vector<std::uint32_t> number_ghosts(const CsrMatrix &layer, const Owners &columns, const std::vector<std::uint32_t> &rows,
                                         std::uint32_t rank, std::uint32_t parts, LayerShare *share)
{
    std::vector<std::vector<std::uint32_t>> needed(parts);
    std::vector<bool> seen(layer.columns, false);
    for (const std::uint32_t row : rows)
        for (std::uint64_t k = layer.row_start[row]; k < layer.row_start[row + 1]; ++k) {
            const std::uint32_t column = layer.column[k];
            if (columns[column] != rank && !seen[column]) {
                seen[column] = true;
                needed[columns[column]].push_back(column);
            }
        }
    std::vector<std::uint32_t> number(layer.columns, kNone);
    std::uint32_t next = 0;
    for (std::uint32_t part = 0; part < parts; ++part) {
        if (needed[part].empty())
            continue;
        std::sort(needed[part].begin(), needed[part].end());
        const std::uint32_t first = next;
        for (const std::uint32_t column : needed[part])
            number[column] = next++;
        share->sources.push_back({static_cast<int>(part), first, next});
    }
    share->ghost.matrix.columns = next;
    return number;
}

void find_targets(const CsrMatrix &layer, const Owners &columns, const Owners &rows, const std::vector<std::uint32_t> &place,
                  std::uint32_t rank, std::uint32_t parts, LayerShare *share)
{
    const std::size_t inputs = share->own.matrix.columns;
    std::vector<bool> wants(parts * inputs, false);
    for (std::uint32_t row = 0; row < layer.rows; ++row) {
        if (rows[row] == rank)
            continue;
        for (std::uint64_t k = layer.row_start[row]; k < layer.row_start[row + 1]; ++k)
            if (columns[layer.column[k]] == rank)
                wants[rows[row] * inputs + place[layer.column[k]]] = true;
    }
    for (std::uint32_t part = 0; part < parts; ++part) {
        LayerShare::Target target{static_cast<int>(part), {}};
        for (std::uint32_t input = 0; input < inputs; ++input)
            if (wants[part * inputs + input])
                target.inputs.push_back(input);
        if (!target.inputs.empty())
            share->targets.push_back(std::move(target));
    }
}

/// Append the row's weights, columns rising.
void add_row(std::vector<std::pair<std::uint32_t, std::uint64_t>> *entries, const CsrMatrix &layer, Block *block)
{
    std::sort(entries->begin(), entries->end());
    for (const auto &[column, origin] : *entries) {
        block->matrix.column.push_back(column);
        block->matrix.value.push_back(layer.value[origin]);
        block->origin.push_back(origin);
    }
    ++block->matrix.rows;
    block->matrix.row_start.push_back(block->matrix.column.size());
    entries->clear();
}

LayerShare share_of_layer(const CsrMatrix &layer, const Owners &columns, const Owners &rows, std::uint32_t rank, std::uint32_t parts)
{
    LayerShare share;
    share.rows = owned_by(rows, rank);
    const std::vector<std::uint32_t> place = places(columns, parts);
    share.own.matrix.columns = static_cast<std::uint32_t>(std::count(columns.begin(), columns.end(), rank));
    const std::vector<std::uint32_t> ghost = number_ghosts(layer, columns, share.rows, rank, parts, &share);
    find_targets(layer, columns, rows, place, rank, parts, &share);
    std::vector<std::pair<std::uint32_t, std::uint64_t>> here, there;
    for (const std::uint32_t row : share.rows) {
        for (std::uint64_t k = layer.row_start[row]; k < layer.row_start[row + 1]; ++k) {
            const std::uint32_t column = layer.column[k];
            if (columns[column] == rank)
                here.emplace_back(place[column], k);
            else
                there.emplace_back(ghost[column], k);
        }
        add_row(&here, layer, &share.own);
        add_row(&there, layer, &share.ghost);
    }
    return share;
}

} // namespace

std::uint64_t NetworkShare::words_sent() const
{
    std::uint64_t words = 0;
    for (const LayerShare &layer : layers)
        for (const LayerShare::Target &target : layer.targets)
            words += target.inputs.size();
    return words;
}

NetworkShare share_of(const Network &network, const Partition &partition, int rank)
{
    check(partition, network);
    NetworkShare share;
    const auto part = static_cast<std::uint32_t>(rank);
    share.inputs = owned_by(partition.owner[0], part);
    for (std::size_t k = 0; k < network.layers.size(); ++k)
        share.layers.push_back(
            share_of_layer(network.layers[k], partition.owner[k], partition.owner[k + 1], part, partition.parts));
    return share;
}

} // namespace jigsaw::sparse
