// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/inference.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace jigsaw::sparse {

namespace {

/// Layers that a tile goes through before the next tile: its activations stay in the core's cache meanwhile. Dead samples
/// are dropped only between such runs.
constexpr std::size_t kLayersAtOnce = 4;

Finish finish_of(const Network &network)
{
    Finish finish;
    finish.kind = Finish::graph_challenge;
    finish.bias = network.bias;
    finish.clip = network.clip;
    return finish;
}

} // namespace

void keep_slots(Tiles *tiles, const std::vector<std::uint32_t> &keep, Workers &workers)
{
    const std::uint32_t width = tiles->width(), rows = tiles->rows();
    const auto kept = static_cast<std::uint32_t>(keep.size());
    const std::uint32_t count = (kept + width - 1) / width;
    // In place: within a row, slot i is written after slot keep[i] >= i was read, and no later slot was. Rows are independent.
    constexpr std::uint32_t rows_at_once = 32;
    workers.run((rows + rows_at_once - 1) / rows_at_once, [&](std::uint32_t chunk) {
        const std::uint32_t first = chunk * rows_at_once, last = std::min(first + rows_at_once, rows);
        for (std::uint32_t t = 0; t < count; ++t)
            for (std::uint32_t row = first; row < last; ++row) {
                float *to = tiles->tile(t) + std::size_t{row} * width;
                for (std::uint32_t lane = 0; lane < width; ++lane) {
                    const std::uint32_t slot = t * width + lane;
                    to[lane] = slot < kept ? tiles->at(row, keep[slot]) : 0.0F;
                }
            }
    });
    tiles->resize(rows, count, width);
}

Inference::Inference(const Network &network, const NetworkShare &share, Comm &comm, Workers &workers, InferenceOptions options)
    : network_(network), share_(share), comm_(comm), workers_(workers), options_(std::move(options)),
      passes_(share, comm, workers, options_.instructions)
{
}

InferenceResult Inference::run(const Samples &samples)
{
    if (samples.features != network_.inputs())
        throw Error("the samples have " + std::to_string(samples.features) + " features, the network takes " +
                    std::to_string(network_.inputs()));
    const auto start = std::chrono::steady_clock::now();
    const SentTraffic before = comm_.traffic();
    const std::uint64_t done_before = passes_.multiplications() + multiplications_;
    result_.clear();
    for (std::uint32_t first = 0; first < samples.count(); first += options_.batch) {
        std::vector<std::uint32_t> slots;
        for (std::uint32_t s = first; s < std::min(samples.count() - first, options_.batch) + first; ++s)
            if (!options_.drop_dead || samples.start[s] < samples.start[s + 1])
                slots.push_back(s);
        run_batch(samples, std::move(slots));
    }
    InferenceResult result;
    result.alive = result_;
    result.multiplications = passes_.multiplications() + multiplications_ - done_before;
    result.traffic = {comm_.traffic().messages - before.messages, comm_.traffic().bytes - before.bytes};
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
}

/// How many layers from `first` on keep the number of neurons, so that a tile may go through them in place.
std::size_t Inference::layers_at_once(std::size_t first) const
{
    std::size_t last = first;
    const auto keeps_size = [&](const CsrMatrix &layer) { return layer.rows == in_.rows() && layer.columns == in_.rows(); };
    while (last < network_.layers.size() && last < first + kLayersAtOnce && keeps_size(network_.layers[last]))
        ++last;
    return std::max<std::size_t>(last - first, 1);
}

void Inference::run_layers_alone(std::size_t first, std::size_t count)
{
    const std::uint32_t width = in_.width();
    const Finish finish = finish_of(network_);
    largest_.assign(std::size_t{in_.count()} * width, 0.0F);
    out_.resize(in_.rows(), in_.count(), width);
    workers_.run(in_.count(), [&](std::uint32_t t) {
        float *from = in_.tile(t), *to = out_.tile(t);
        for (std::size_t k = first; k < first + count; ++k) {
            float *largest = k + 1 < first + count ? nullptr : largest_.data() + std::size_t{t} * width;
            multiply_tile(share_.layers[k].own.matrix, from, to, width, false, finish, largest, options_.instructions);
            std::swap(from, to);
        }
    });
    for (std::size_t k = first; k < first + count; ++k)
        multiplications_ += network_.layers[k].nonzeros() * in_.count() * width;
    if (count % 2 == 1)
        std::swap(in_, out_);
}

/// Measured with 1024 neurons on a core with 2 MiB of second-level cache: 32 samples are 1.4 times as quick as 64 or 16.
std::uint32_t Inference::widest_tile() const
{
    if (options_.widest != 0)
        return options_.widest;
    std::uint32_t neurons = static_cast<std::uint32_t>(share_.inputs.size());
    for (const LayerShare &layer : share_.layers)
        neurons = std::max(neurons, layer.row_count() + layer.ghosts());
    std::uint32_t width = 64;
    while (width > 16 && 2 * sizeof(float) * width * neurons > (1U << 18))
        width /= 2;
    return width;
}

void Inference::run_batch(const Samples &samples, std::vector<std::uint32_t> slots)
{
    slots_ = std::move(slots);
    const std::uint32_t width = tile_width(static_cast<std::uint32_t>(slots_.size()), widest_tile());
    fill_tiles(samples, slots_, share_.inputs, width, &in_);
    std::uint32_t most_ghosts = 0;
    for (const LayerShare &layer : share_.layers)
        most_ghosts = std::max(most_ghosts, layer.ghosts());
    ghost_.resize(most_ghosts, in_.count(), width); // its room must not move between layers
    bool noted = false;
    const std::size_t layers = network_.layers.size();
    for (std::size_t k = 0; k < layers && !slots_.empty();) {
        const std::size_t count = alone() ? layers_at_once(k) : 1;
        if (count > 1) {
            run_layers_alone(k, count);
        } else {
            passes_.forward(k, in_, &ghost_, &out_, finish_of(network_), &largest_);
            std::swap(in_, out_);
        }
        k += count;
        // With other ranks, who is alive after a layer is told while the next one runs.
        if (noted && !alone())
            drop_dead();
        if (slots_.empty())
            break;
        if (options_.drop_dead || k == layers) {
            note_alive();
            noted = true;
            if (alone() && k < layers)
                drop_dead();
        }
        if (options_.progress)
            options_.progress(k, static_cast<std::uint32_t>(slots_.size()));
    }
    if (slots_.empty())
        return;
    comm_.finish_any();
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
        if ((bits_[slot / 64] >> (slot % 64) & 1) != 0)
            result_.push_back(slots_[slot]);
}

void Inference::note_alive()
{
    bits_.assign((largest_.size() + 63) / 64, 0);
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
        if (largest_[slot] > 0)
            bits_[slot / 64] |= std::uint64_t{1} << (slot % 64);
    comm_.begin_any(bits_.data(), bits_.size());
}

void Inference::drop_dead()
{
    comm_.finish_any();
    std::vector<std::uint32_t> keep;
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot)
        if ((bits_[slot / 64] >> (slot % 64) & 1) != 0)
            keep.push_back(slot);
    const std::size_t width = in_.width(), tiles = in_.count(), needed = (keep.size() + width - 1) / width;
    // Moving costs about a third of a layer.
    if (needed * 8 > tiles * 7)
        return;
    keep_slots(&in_, keep, workers_);
    std::vector<float> largest(needed * width, 0.0F);
    for (std::size_t i = 0; i < keep.size(); ++i) {
        slots_[i] = slots_[keep[i]];
        largest[i] = largest_[keep[i]];
    }
    slots_.resize(keep.size());
    largest_ = std::move(largest);
}

} // namespace jigsaw::sparse
