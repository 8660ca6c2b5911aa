// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/generate.hpp"

#include "runtime/sparse/random.hpp"
#include "runtime/sparse/text.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

namespace jigsaw::sparse {

namespace {

constexpr std::uint32_t kCopies = 16; ///< of each class in a layer: 2 * 16 weights per row

float graph_challenge_bias(std::uint32_t neurons)
{
    switch (neurons) {
    case 4096: return -.35F;
    case 16384: return -.40F;
    case 65536: return -.45F;
    default: return -.30F;
    }
}

/// m of neurons = 16 * 2^m; 0 where there is none.
std::uint32_t radix_digits(std::uint32_t neurons)
{
    for (std::uint32_t m = 1; m < 28; ++m)
        if (neurons == kCopies << m)
            return m;
    return 0;
}

CsrMatrix radix_layer(const std::vector<std::uint32_t> &classes, std::uint32_t base, std::uint32_t shift)
{
    const auto neurons = static_cast<std::uint32_t>(classes.size());
    std::vector<std::vector<std::uint32_t>> inputs_of(base); // by class, rising
    for (std::uint32_t input = 0; input < neurons; ++input)
        inputs_of[classes[input]].push_back(input);
    CsrMatrix layer;
    layer.rows = layer.columns = neurons;
    layer.row_start.reserve(std::size_t{neurons} + 1);
    layer.column.reserve(std::size_t{2} * neurons / base * neurons);
    for (std::uint32_t row = 0; row < neurons; ++row) {
        const std::vector<std::uint32_t> &one = inputs_of[row % base], &other = inputs_of[(row + shift) % base];
        std::merge(one.begin(), one.end(), other.begin(), other.end(), std::back_inserter(layer.column));
        layer.row_start.push_back(layer.column.size());
    }
    layer.value.assign(layer.column.size(), 1.0F / 16);
    return layer;
}

} // namespace

Network radix_net(const RowClasses &classes, std::uint32_t layers)
{
    const std::uint32_t neurons = classes.empty() ? 0 : static_cast<std::uint32_t>(classes.front().size());
    const std::uint32_t digits = radix_digits(neurons), base = neurons / kCopies;
    if (digits == 0)
        throw Error("a RadiX-Net of the Graph Challenge has 16 times a power of two neurons (32 to 2^31), not " +
                    std::to_string(neurons));
    if (layers > classes.size() * digits)
        throw Error(std::to_string(layers) + " layers wanted, but the classes give " + std::to_string(classes.size() * digits));
    Network network;
    network.bias = graph_challenge_bias(neurons);
    for (const std::vector<std::uint32_t> &block : classes) {
        if (block.size() != neurons)
            throw Error("blocks of " + std::to_string(neurons) + " and " + std::to_string(block.size()) + " neurons");
        if (*std::max_element(block.begin(), block.end()) >= base)
            throw Error("a row class is " + std::to_string(*std::max_element(block.begin(), block.end())) + ", the largest may be " +
                        std::to_string(base - 1));
        for (std::uint32_t k = 0; k < digits && (layers == 0 || network.layers.size() < layers); ++k)
            network.layers.push_back(radix_layer(block, base, 1U << k));
    }
    return network;
}

Network radix_net(std::uint32_t neurons, std::uint32_t layers, std::uint64_t seed)
{
    const std::uint32_t digits = radix_digits(neurons);
    if (digits == 0 || layers == 0)
        throw Error("a RadiX-Net of the Graph Challenge has 16 times a power of two neurons and at least a layer, not " +
                    std::to_string(neurons) + " x " + std::to_string(layers));
    Random random(seed);
    RowClasses classes;
    for (std::uint32_t done = 0; done < layers; done += digits) {
        std::vector<std::uint32_t> block(neurons);
        for (std::uint32_t row = 0; row < neurons; ++row)
            block[row] = row % (neurons / kCopies);
        if (done > 0)
            random.shuffle(block);
        classes.push_back(std::move(block));
    }
    return radix_net(classes, layers);
}

RowClasses read_row_classes(const std::string &path)
{
    const MappedFile file(path);
    TextLines lines(path, file.text());
    RowClasses classes;
    while (lines.next()) {
        std::vector<std::uint32_t> block;
        while (!lines.at_end())
            block.push_back(static_cast<std::uint32_t>(lines.unsigned_number("row class", 0, (1U << 28) - 1)));
        if (block.empty())
            lines.fail("no row classes in this line");
        if (!classes.empty() && block.size() != classes.front().size())
            lines.fail(std::to_string(block.size()) + " row classes, but " + std::to_string(classes.front().size()) +
                       " in the first line");
        classes.push_back(std::move(block));
    }
    if (classes.empty())
        throw Error(path + ":1: no row classes");
    return classes;
}

Network random_regular(std::uint32_t neurons, std::uint32_t layers, std::uint32_t degree, std::uint64_t seed)
{
    if (degree == 0 || degree > neurons || layers == 0)
        throw Error("a random regular network needs a layer, and a degree from 1 to its neurons, not " +
                    std::to_string(degree) + " of " + std::to_string(neurons) + " x " + std::to_string(layers));
    Network network;
    for (std::uint32_t k = 0; k < layers; ++k) {
        Random random(seed, k + 1);
        // `degree` permutations, one after the other; where a row has its column already, the permutation is mended by an
        // exchange with another row that harms neither.
        std::vector<std::vector<std::uint32_t>> rows(neurons);
        std::vector<std::uint32_t> order(neurons);
        std::iota(order.begin(), order.end(), 0);
        const auto holds = [&](std::uint32_t row, std::uint32_t column) {
            return std::find(rows[row].begin(), rows[row].end(), column) != rows[row].end();
        };
        for (std::uint32_t d = 0; d < degree; ++d) {
            random.shuffle(order);
            for (std::uint32_t row = 0; row < neurons; ++row)
                for (int tries = 0; tries < 1000 && holds(row, order[row]); ++tries) {
                    const std::uint32_t other = random.below(neurons);
                    if (!holds(row, order[other]) && !holds(other, order[row]))
                        std::swap(order[row], order[other]);
                }
            for (std::uint32_t row = 0; row < neurons; ++row)
                if (!holds(row, order[row])) // else, in a nearly dense layer, the row gets one weight less
                    rows[row].push_back(order[row]);
        }
        CsrMatrix layer;
        layer.rows = layer.columns = neurons;
        for (std::vector<std::uint32_t> &row : rows) {
            std::sort(row.begin(), row.end());
            layer.column.insert(layer.column.end(), row.begin(), row.end());
            layer.row_start.push_back(layer.column.size());
        }
        layer.value.assign(layer.column.size(), 2.0F / static_cast<float>(degree));
        network.layers.push_back(std::move(layer));
    }
    return network;
}

CsrMatrix prune(const std::vector<float> &dense, std::uint32_t rows, std::uint32_t columns, double keep)
{
    if (dense.size() != std::size_t{rows} * columns || !(keep > 0 && keep <= 1))
        throw Error("prune: " + std::to_string(rows) + " x " + std::to_string(columns) + " weights and a share from above 0 to 1");
    std::vector<std::size_t> order(dense.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto kept = static_cast<std::size_t>(std::ceil(keep * static_cast<double>(dense.size())));
    // The lower index wins a tie: the same answer everywhere.
    const auto larger = [&](std::size_t a, std::size_t b) {
        const float x = std::abs(dense[a]), y = std::abs(dense[b]);
        return x != y ? x > y : a < b;
    };
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept) - 1, order.end(), larger);
    order.resize(kept);
    std::sort(order.begin(), order.end());
    CsrMatrix matrix;
    matrix.rows = rows;
    matrix.columns = columns;
    std::size_t at = 0;
    for (std::uint32_t row = 0; row < rows; ++row) {
        for (; at < kept && order[at] < std::size_t{row + 1} * columns; ++at) {
            matrix.column.push_back(static_cast<std::uint32_t>(order[at] - std::size_t{row} * columns));
            matrix.value.push_back(dense[order[at]]);
        }
        matrix.row_start.push_back(matrix.column.size());
    }
    return matrix;
}

} // namespace jigsaw::sparse
