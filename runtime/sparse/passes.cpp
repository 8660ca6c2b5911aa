// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/passes.hpp"

#include <algorithm>
#include <cstring>

namespace jigsaw::sparse {

namespace {

constexpr std::size_t kMostExchanges = 1U << 14; ///< then all are dropped: shapes changed too often to be worth keeping

std::size_t target_rows(const LayerShare &layer)
{
    std::size_t rows = 0;
    for (const LayerShare::Target &target : layer.targets)
        rows += target.inputs.size();
    return rows;
}

} // namespace

void multiply_tile(const CsrMatrix &matrix, const float *x, float *y, std::uint32_t width, bool add, const Finish &finish,
                   float *largest, Instructions instructions)
{
    static thread_local std::vector<std::uint8_t> live;
    Product product{&matrix, 0, matrix.rows, width, x, y, add, finish, nullptr, largest};
    if (matrix.nonzeros() > 8 * std::uint64_t{matrix.columns}) { // else looking costs more than it may save
        live.resize(matrix.columns);
        if (find_live_rows(x, matrix.columns, width, live.data(), instructions) * 10ULL < matrix.columns * 9ULL)
            product.live = live.data();
    }
    multiply(product, instructions);
}

TransposedBlock::TransposedBlock(const CsrMatrix &block)
{
    matrix.rows = block.columns;
    matrix.columns = block.rows;
    matrix.row_start.assign(std::size_t{block.columns} + 1, 0);
    for (const std::uint32_t column : block.column)
        ++matrix.row_start[column + 1];
    for (std::uint32_t row = 0; row < matrix.rows; ++row)
        matrix.row_start[row + 1] += matrix.row_start[row];
    std::vector<std::uint64_t> next(matrix.row_start.begin(), matrix.row_start.end() - 1);
    matrix.column.resize(block.column.size());
    matrix.value.resize(block.column.size());
    place.resize(block.column.size());
    for (std::uint32_t row = 0; row < block.rows; ++row)
        for (std::uint64_t k = block.row_start[row]; k < block.row_start[row + 1]; ++k) {
            const std::uint64_t at = next[block.column[k]]++;
            matrix.column[at] = row;
            place[at] = k;
        }
}

void TransposedBlock::take_values(const CsrMatrix &block)
{
    for (std::size_t at = 0; at < place.size(); ++at)
        matrix.value[at] = block.value[place[at]];
}

Passes::Split Passes::split(std::uint32_t tiles, std::uint32_t rows) const
{
    const std::uint32_t threads = workers_.threads();
    std::uint32_t chunks = threads == 1 || tiles >= 4 * threads ? 1 : (4 * threads + tiles - 1) / std::max(tiles, 1U);
    chunks = std::max(1U, std::min(chunks, rows / 16));
    return {tiles, chunks, (rows + chunks - 1) / chunks};
}

void Passes::product(const CsrMatrix &matrix, const Tiles &x, Tiles *y, bool add, const Finish &finish, std::vector<float> *largest,
                     Exchange *exchange)
{
    const std::uint32_t width = x.width(), rows = matrix.rows;
    const Split parts = split(x.count(), rows);
    const std::size_t slots = std::size_t{x.count()} * width;
    if (largest != nullptr)
        largest_of_chunks_.assign(slots * parts.chunks, 0.0F);
    const auto task = [&](std::uint32_t i) {
        const std::uint32_t t = i / parts.chunks, chunk = i % parts.chunks;
        float *seen = largest == nullptr ? nullptr : largest_of_chunks_.data() + chunk * slots + std::size_t{t} * width;
        if (parts.chunks == 1)
            return multiply_tile(matrix, x.tile(t), y->tile(t), width, add, finish, seen, instructions_);
        const std::uint32_t first = std::min(chunk * parts.rows, rows);
        multiply({&matrix, first, std::min(first + parts.rows, rows), width, x.tile(t), y->tile(t), add, finish, nullptr, seen},
                 instructions_);
    };
    workers_.run(parts.tiles * parts.chunks, task, exchange == nullptr ? std::function<void()>() : [exchange] { exchange->poll(); });
    multiplications_ += matrix.nonzeros() * slots;
    if (largest == nullptr)
        return;
    largest->assign(slots, 0.0F);
    for (std::size_t i = 0; i < largest_of_chunks_.size(); ++i)
        (*largest)[i % slots] = std::max((*largest)[i % slots], largest_of_chunks_[i]);
}

float *Passes::packed(std::size_t floats)
{
    if (floats > packed_.size()) {
        exchanges_.clear(); // they know the old place
        packed_.resize(floats);
    }
    if (exchanges_.size() > kMostExchanges)
        exchanges_.clear();
    return packed_.data();
}

Exchange *Passes::forward_exchange(std::size_t k, std::uint32_t count, std::uint32_t width, Tiles *ghost)
{
    const LayerShare &layer = share_.layers[k];
    if (layer.sources.empty() && layer.targets.empty())
        return nullptr;
    float *at = packed(target_rows(layer) * count * width);
    auto &kept = exchanges_[{k, 0, count, width, ghost->tile(0)}];
    if (kept == nullptr) {
        std::vector<Channel> sends, receives;
        for (const LayerShare::Target &target : layer.targets) {
            const std::size_t floats = target.inputs.size() * count * width;
            sends.push_back({target.rank, at, floats, floats, 1});
            at += floats;
        }
        for (const LayerShare::Source &source : layer.sources)
            receives.push_back({source.rank, ghost->tile(0) + std::size_t{source.first} * width,
                                std::size_t{source.last - source.first} * width, ghost->tile_floats(), count});
        kept = comm_.exchange(std::move(sends), std::move(receives), static_cast<int>(2 * k));
    }
    return kept.get();
}

Exchange *Passes::backward_exchange(std::size_t k, std::uint32_t count, std::uint32_t width, Tiles *ghost_sums)
{
    const LayerShare &layer = share_.layers[k];
    if (layer.sources.empty() && layer.targets.empty())
        return nullptr;
    float *at = packed(target_rows(layer) * count * width);
    auto &kept = exchanges_[{k, 1, count, width, ghost_sums->tile(0)}];
    if (kept == nullptr) {
        std::vector<Channel> sends, receives;
        for (const LayerShare::Source &source : layer.sources)
            sends.push_back({source.rank, ghost_sums->tile(0) + std::size_t{source.first} * width,
                             std::size_t{source.last - source.first} * width, ghost_sums->tile_floats(), count});
        for (const LayerShare::Target &target : layer.targets) {
            const std::size_t floats = target.inputs.size() * count * width;
            receives.push_back({target.rank, at, floats, floats, 1});
            at += floats;
        }
        kept = comm_.exchange(std::move(sends), std::move(receives), static_cast<int>(2 * k + 1));
    }
    return kept.get();
}

void Passes::pack(const LayerShare &layer, const Tiles &in)
{
    const std::size_t width = in.width();
    float *to = packed_.data();
    for (const LayerShare::Target &target : layer.targets)
        for (std::uint32_t t = 0; t < in.count(); ++t) {
            const float *tile = in.tile(t);
            for (const std::uint32_t input : target.inputs) {
                std::memcpy(to, tile + input * width, width * sizeof(float));
                to += width;
            }
        }
}

void Passes::forward(std::size_t k, const Tiles &in, Tiles *ghost, Tiles *out, const Finish &finish, std::vector<float> *largest)
{
    const LayerShare &layer = share_.layers[k];
    out->resize(layer.row_count(), in.count(), in.width());
    ghost->resize(layer.ghosts(), in.count(), in.width());
    Exchange *exchange = forward_exchange(k, in.count(), in.width(), ghost);
    if (exchange != nullptr) {
        exchange->receive();
        pack(layer, in);
        exchange->send();
    }
    const bool more = layer.ghosts() > 0;
    product(layer.own.matrix, in, out, false, more ? Finish{} : finish, more ? nullptr : largest, exchange);
    if (exchange != nullptr)
        exchange->finish();
    if (more)
        product(layer.ghost.matrix, *ghost, out, true, finish, largest, nullptr);
}

void Passes::backward(std::size_t k, const Tiles &delta, const TransposedBlock &own, const TransposedBlock &ghost, Tiles *ghost_sums,
                      const Tiles &x, float clip, Tiles *below, const std::function<void()> &meanwhile)
{
    const LayerShare &layer = share_.layers[k];
    const std::uint32_t count = delta.count(), width = delta.width();
    below->resize(own.matrix.rows, count, width);
    ghost_sums->resize(layer.ghosts(), count, width);
    Exchange *exchange = backward_exchange(k, count, width, ghost_sums);
    if (exchange != nullptr) {
        exchange->receive();
        if (layer.ghosts() > 0)
            product(ghost.matrix, delta, ghost_sums, false, Finish{}, nullptr, exchange);
        exchange->send();
    }
    product(own.matrix, delta, below, false, Finish{}, nullptr, exchange);
    meanwhile();
    if (exchange != nullptr) {
        exchange->finish();
        const float *from = packed_.data();
        for (const LayerShare::Target &target : layer.targets)
            for (std::uint32_t t = 0; t < count; ++t)
                for (const std::uint32_t input : target.inputs) {
                    float *sums = below->tile(t) + std::size_t{input} * width;
                    for (std::uint32_t s = 0; s < width; ++s)
                        sums[s] += from[s];
                    from += width;
                }
    }
    for (std::uint32_t t = 0; t < count; ++t)
        mask_by_output(below->tile(t), x.tile(t), below->tile_floats(), clip);
}

void Passes::gradient(const CsrMatrix &block, const Tiles &x, const Tiles &delta, float *gradient)
{
    const Split parts = split(1, block.rows);
    workers_.run(parts.chunks, [&](std::uint32_t chunk) {
        Gradient one;
        one.matrix = &block;
        one.first = std::min(chunk * parts.rows, block.rows);
        one.last = std::min(one.first + parts.rows, block.rows);
        one.width = x.width();
        one.tiles = x.count();
        one.x = x.tile(0);
        one.delta = delta.tile(0);
        one.x_step = x.tile_floats();
        one.delta_step = delta.tile_floats();
        one.gradient = gradient;
        weight_gradient(one, instructions_);
    });
    multiplications_ += block.nonzeros() * x.count() * x.width();
}

} // namespace jigsaw::sparse
