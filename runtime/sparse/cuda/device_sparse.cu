// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/cuda/device_sparse.hpp"

#include "runtime/sparse/kernels.hpp"

#include <cuda_runtime_api.h>

namespace jigsaw::sparse::cuda {

namespace {

constexpr unsigned kWarp = 32, kRowsPerBlock = 8;

/// A thread per row and sample: a warp's lanes are 32 samples of a tile, so that a weight is read once for all of them and a
/// row of x as one line.
__global__ void multiply(DeviceProduct p)
{
    const unsigned tile = blockIdx.x, row = blockIdx.y * kRowsPerBlock + threadIdx.y, sample = blockIdx.z * kWarp + threadIdx.x;
    if (row >= p.matrix.rows || (p.live_in != nullptr && p.live_in[tile] == 0))
        return;
    const float *x = p.x + static_cast<std::size_t>(tile) * p.matrix.columns * p.width + sample;
    float *y = p.y + (static_cast<std::size_t>(tile) * p.matrix.rows + row) * p.width + sample;
    float z = p.add ? *y : 0.0F;
    const std::uint64_t end = p.matrix.row_start[row + 1];
    for (std::uint64_t k = p.matrix.row_start[row]; k < end; ++k)
        z += p.matrix.value[k] * x[static_cast<std::size_t>(p.matrix.column[k]) * p.width];
    if (p.finish == Finish::linear || p.finish == Finish::relu)
        z += p.row_bias != nullptr ? p.row_bias[row] : 0.0F;
    else if (p.finish == Finish::graph_challenge)
        z = z != 0.0F ? z + p.bias : 0.0F;
    if (p.finish == Finish::relu || p.finish == Finish::graph_challenge) {
        z = z > 0.0F ? z : 0.0F;
        z = p.clip > 0.0F && z > p.clip ? p.clip : z;
    }
    *y = z;
    if (p.live_out != nullptr && z > 0.0F)
        p.live_out[tile] = 1; // many may write it, all the same
}

/// A block per row, a warp per weight; lanes go over the samples.
__global__ void weight_gradient(DeviceGradient g)
{
    const unsigned row = blockIdx.x;
    const std::uint64_t end = g.matrix.row_start[row + 1];
    for (std::uint64_t k = g.matrix.row_start[row] + threadIdx.y; k < end; k += kRowsPerBlock) {
        float sum = 0.0F;
        for (unsigned tile = 0; tile < g.tiles; ++tile) {
            const float *delta = g.delta + (static_cast<std::size_t>(tile) * g.matrix.rows + row) * g.width;
            const float *x = g.x + (static_cast<std::size_t>(tile) * g.matrix.columns + g.matrix.column[k]) * g.width;
            for (unsigned sample = threadIdx.x; sample < g.width; sample += kWarp)
                sum += delta[sample] * x[sample];
        }
        for (unsigned away = kWarp / 2; away > 0; away /= 2)
            sum += __shfl_down_sync(~0U, sum, away);
        if (threadIdx.x == 0)
            g.gradient[k] = sum;
    }
}

std::string why_not(std::uint32_t width, std::uint32_t rows)
{
    if (width % kWarp != 0 || width == 0)
        return "a tile of " + std::to_string(width) + " samples; the GPU's have 32, 64 or 128";
    // The y of a grid ends at 65535.
    return rows / kRowsPerBlock >= 65535 ? std::to_string(rows) + " rows are too many for one launch" : "";
}

std::string launched()
{
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

} // namespace

std::string queue_product(const DeviceProduct &product, void *stream)
{
    const std::string trouble = why_not(product.width, product.matrix.rows);
    if (!trouble.empty() || product.tiles == 0 || product.matrix.rows == 0)
        return trouble;
    const dim3 grid(product.tiles, (product.matrix.rows + kRowsPerBlock - 1) / kRowsPerBlock, product.width / kWarp);
    multiply<<<grid, dim3(kWarp, kRowsPerBlock), 0, static_cast<cudaStream_t>(stream)>>>(product);
    return launched();
}

std::string queue_gradient(const DeviceGradient &gradient, void *stream)
{
    const std::string trouble = why_not(gradient.width, 0);
    if (!trouble.empty() || gradient.matrix.rows == 0)
        return trouble;
    weight_gradient<<<gradient.matrix.rows, dim3(kWarp, kRowsPerBlock), 0, static_cast<cudaStream_t>(stream)>>>(gradient);
    return launched();
}

} // namespace jigsaw::sparse::cuda
