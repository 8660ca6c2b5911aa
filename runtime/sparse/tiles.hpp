// SPDX-License-Identifier: Apache-2.0
// Activations of a batch: tiles of `width` samples, each a dense matrix with a row per neuron and the samples side by side,
// so that a weight meets a whole line of samples at once and a tile stays in a core's cache.
#ifndef JIGSAW_RUNTIME_SPARSE_TILES_HPP
#define JIGSAW_RUNTIME_SPARSE_TILES_HPP

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace jigsaw::sparse {

/// Floats that start on a cache line. Growing loses what they held; shrinking keeps the room.
class Floats {
public:
    float *data() { return data_.get(); }
    const float *data() const { return data_.get(); }
    std::size_t size() const { return size_; }

    void resize(std::size_t size)
    {
        if (size > room_) {
            const std::size_t bytes = (size * sizeof(float) + 63) / 64 * 64;
            data_.reset(static_cast<float *>(std::aligned_alloc(64, bytes)));
            room_ = data_ == nullptr ? 0 : size;
            if (data_ == nullptr)
                throw std::bad_alloc();
        }
        size_ = size;
    }

private:
    struct Free {
        void operator()(float *data) const { std::free(data); }
    };
    std::unique_ptr<float, Free> data_;
    std::size_t size_ = 0, room_ = 0;
};

/// Tile t holds the samples t * width ... t * width + width - 1 of the batch; those beyond the batch's end are zero.
/// The width is 16, 32, 64 or 128: whole cache lines.
class Tiles {
public:
    void resize(std::uint32_t rows, std::uint32_t count, std::uint32_t width)
    {
        values_.resize(std::size_t{rows} * count * width);
        rows_ = rows;
        count_ = count;
        width_ = width;
    }
    std::uint32_t rows() const { return rows_; }
    std::uint32_t count() const { return count_; }
    std::uint32_t width() const { return width_; }
    std::size_t tile_floats() const { return std::size_t{rows_} * width_; }

    float *tile(std::uint32_t t) { return values_.data() + t * tile_floats(); }
    const float *tile(std::uint32_t t) const { return values_.data() + t * tile_floats(); }
    float &at(std::uint32_t row, std::uint32_t sample)
    {
        return tile(sample / width_)[std::size_t{row} * width_ + sample % width_];
    }
    float at(std::uint32_t row, std::uint32_t sample) const
    {
        return tile(sample / width_)[std::size_t{row} * width_ + sample % width_];
    }

private:
    Floats values_;
    std::uint32_t rows_ = 0, count_ = 0, width_ = 16;
};

/// The widest tile that a batch of this size fills: little is wasted on samples that are not there.
inline std::uint32_t tile_width(std::uint32_t samples, std::uint32_t widest = 64)
{
    std::uint32_t width = 16;
    while (width < widest && width < samples)
        width *= 2;
    return width;
}

} // namespace jigsaw::sparse

#endif
