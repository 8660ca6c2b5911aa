// SPDX-License-Identifier: Apache-2.0
// The products of sparse training: rows of a sparse matrix times a tile of samples, with what follows fused; the same with
// the transposed matrix; and the gradient where the matrix has weights. Written once over vectors of 16, 32 or 64 bytes and
// compiled for plain x86-64 (or any machine), AVX2 with FMA and AVX-512; the widest that the machine has is taken.
//
// Rounding: each sum runs over a row's weights in order, in float, alike for every sample and wherever a sample lies. With
// and without FMA results differ by what one rounding less gives; of the gradient, the order of summation over samples
// depends on the vector's length as well.
#ifndef JIGSAW_RUNTIME_SPARSE_KERNELS_HPP
#define JIGSAW_RUNTIME_SPARSE_KERNELS_HPP

#include "runtime/sparse/matrix.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::sparse {

enum class Instructions { plain, avx2, avx512 };
/// The best of this machine, or what JIGSAW_SPARSE_INSTRUCTIONS (plain, avx2, avx512) asks for where the machine has it.
Instructions best_instructions();
std::vector<Instructions> supported_instructions();
const char *name_of(Instructions instructions);

/// What becomes of a row's sum z.
struct Finish {
    enum Kind {
        sum,             ///< z
        linear,          ///< z + row_bias
        relu,            ///< max(0, z + row_bias), at most clip
        graph_challenge, ///< 0 where z is 0, else max(0, z + bias), at most clip
    };
    Kind kind = sum;
    float bias = 0;
    const float *row_bias = nullptr; ///< per row of the matrix; none: zeros
    float clip = 0;                  ///< 0: no limit
};

/// Rows [first, last) of `matrix` times the tile x into the tile y; row i is at y + i * width.
struct Product {
    const CsrMatrix *matrix = nullptr;
    std::uint32_t first = 0, last = 0, width = 16;
    const float *x = nullptr;
    float *y = nullptr;
    bool add = false;                   ///< to what y holds, before the finish
    Finish finish;
    const std::uint8_t *live = nullptr; ///< per column: 0 where its row of x is known to hold zeros only; none: unknown
    float *largest = nullptr;           ///< `width` floats: raised to the largest output of each sample; may be null
};
void multiply(const Product &product, Instructions instructions);

/// gradient[k] = sum over tiles and samples of delta[row of k] * x[column of k], for the weights k of rows [first, last).
/// Tile t of x starts at x + t * x_step, and delta's alike.
struct Gradient {
    const CsrMatrix *matrix = nullptr;
    std::uint32_t first = 0, last = 0, width = 16, tiles = 0;
    const float *x = nullptr, *delta = nullptr;
    std::size_t x_step = 0, delta_step = 0;
    float *gradient = nullptr;
};
void weight_gradient(const Gradient &gradient, Instructions instructions);

/// Per row of delta's [first, last): the sum over tiles and samples.
void row_sums(const float *delta, std::size_t step, std::uint32_t tiles, std::uint32_t width, std::uint32_t first, std::uint32_t last,
              float *sums);

/// s becomes 0 where the output x of a ReLU with that clip has no slope (0, or at the limit).
void mask_by_output(float *s, const float *x, std::size_t count, float clip);

/// live[row] = any of the row's `width` floats is not zero; returns how many.
std::uint32_t find_live_rows(const float *x, std::uint32_t rows, std::uint32_t width, std::uint8_t *live, Instructions instructions);

} // namespace jigsaw::sparse

#endif
