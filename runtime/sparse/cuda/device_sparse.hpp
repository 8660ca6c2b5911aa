// SPDX-License-Identifier: Apache-2.0
// The kernels of kernels.hpp on a GPU: rows times tiles with bias, ReLU and clip fused, which with a transposed matrix is the
// backward product, and the gradient on the pattern. Tiles as on the host (tiles.hpp), of 32, 64 or 128 samples. A tile whose samples
// are all dead is left out.
//
// All pointers are device memory; work is queued on `stream` (a cudaStream_t) and nothing is waited for. Sums run in the
// order of the host's kernels but with fused multiply-add, those of the gradient in the order of a warp.
#ifndef JIGSAW_RUNTIME_SPARSE_CUDA_DEVICE_SPARSE_HPP
#define JIGSAW_RUNTIME_SPARSE_CUDA_DEVICE_SPARSE_HPP

#include <cstdint>
#include <string>

namespace jigsaw::sparse::cuda {

/// The arrays of a CsrMatrix.
struct DeviceMatrix {
    std::uint32_t rows = 0, columns = 0;
    const std::uint64_t *row_start = nullptr;
    const std::uint32_t *column = nullptr;
    const float *value = nullptr;
};

struct DeviceProduct {
    DeviceMatrix matrix;
    std::uint32_t tiles = 0, width = 32;
    const float *x = nullptr; ///< tiles of matrix.columns rows
    float *y = nullptr;       ///< tiles of matrix.rows rows
    bool add = false;         ///< to what y holds, before the finish
    int finish = 0;           ///< a Finish::Kind
    float bias = 0, clip = 0;
    const float *row_bias = nullptr;
    /// Per tile: 0 where all of x is zero; such a tile's y is not written. May be null: none is.
    const std::uint32_t *live_in = nullptr;
    /// Set to 1 for each tile with an output above 0; cleared by the caller. May be null.
    std::uint32_t *live_out = nullptr;
};

struct DeviceGradient {
    DeviceMatrix matrix; ///< its values are not read
    std::uint32_t tiles = 0, width = 32;
    const float *x = nullptr, *delta = nullptr;
    float *gradient = nullptr; ///< per weight
};

/// "" when everything was queued, else what is wrong.
std::string queue_product(const DeviceProduct &product, void *stream);
std::string queue_gradient(const DeviceGradient &gradient, void *stream);

} // namespace jigsaw::sparse::cuda

#endif
