// SPDX-License-Identifier: Apache-2.0
// Diagonal recurrences g_t = a_t * g_(t-1) + b_t, element by element: the recurrences that gain most from a scan, since a
// product of two Jacobians costs no more than a Jacobian times a vector.
#ifndef JIGSAW_SCAN_DIAGONAL_HPP
#define JIGSAW_SCAN_DIAGONAL_HPP

#include "runtime/scan/parallel.hpp"

#include <algorithm>
#include <vector>

namespace jigsaw::scan {

/// All g_t into `state` (steps x width), g_(-1) = 0. The steps are cut into `chunks`; every chunk works out its factor and
/// its end from zero, the ends are corrected one after the other, and the chunks run again from their true starts. One
/// chunk: the plain loop, at half the work.
template <typename T>
void diagonal_recurrence(std::size_t steps, std::size_t width, const T *factor, const T *add, T *state, std::size_t chunks,
                         const Parallel &parallel)
{
    chunks = std::clamp<std::size_t>(chunks, 1, std::max<std::size_t>(1, steps));
    std::vector<T> product(chunks * width, T(1)), end(chunks * width, T(0)), start(chunks * width, T(0));
    const auto from = [&](std::size_t chunk) { return chunk * steps / chunks; };
    // The last chunk's end is never needed.
    parallel.run(chunks - 1, [&](std::size_t chunk) {
        T *const p = product.data() + chunk * width, *const e = end.data() + chunk * width;
        for (std::size_t t = from(chunk); t < from(chunk + 1); ++t)
            for (std::size_t k = 0; k < width; ++k) {
                e[k] = factor[t * width + k] * e[k] + add[t * width + k];
                p[k] *= factor[t * width + k];
            }
    });
    for (std::size_t chunk = 1; chunk < chunks; ++chunk)
        for (std::size_t k = 0; k < width; ++k)
            start[chunk * width + k] = product[(chunk - 1) * width + k] * start[(chunk - 1) * width + k] + end[(chunk - 1) * width + k];
    parallel.run(chunks, [&](std::size_t chunk) {
        const T *before = start.data() + chunk * width;
        for (std::size_t t = from(chunk); t < from(chunk + 1); ++t, before = state + (t - 1) * width)
            for (std::size_t k = 0; k < width; ++k)
                state[t * width + k] = factor[t * width + k] * before[k] + add[t * width + k];
    });
}

} // namespace jigsaw::scan
#endif
