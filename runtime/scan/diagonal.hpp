// SPDX-License-Identifier: Apache-2.0
// Diagonal recurrences g_t = a_t * g_(t-1) + b_t, element by element: the recurrences that gain most from a scan, since a
// product of two Jacobians costs no more than a Jacobian times a vector.
#ifndef JIGSAW_SCAN_DIAGONAL_HPP
#define JIGSAW_SCAN_DIAGONAL_HPP

#include "runtime/scan/parallel.hpp"

#include <algorithm>
#include <vector>

namespace jigsaw::scan {

/// g_t of columns [first, last) in steps [from, to); `before` is g_(from - 1) of those columns.
template <typename T>
void diagonal_steps(std::size_t width, std::size_t from, std::size_t to, std::size_t first, std::size_t last,
                    const T *factor, const T *add, const T *before, T *state)
{
    for (std::size_t t = from; t < to; ++t) {
        T *const now = state + t * width + first;
        for (std::size_t k = 0; k < last - first; ++k)
            now[k] = factor[t * width + first + k] * before[k] + add[t * width + first + k];
        before = now;
    }
}

/// Columns that one worker should have at least: below this two workers would write to one cache line.
constexpr std::size_t kColumnsPerWorker = 8;

/// Time cut into chunks: each works out its factor and its end from zero, the ends are corrected one after the other, and
/// the chunks run again from their true starts. Twice the work, for recurrences too narrow to be split by columns.
template <typename T>
void diagonal_chunks(std::size_t steps, std::size_t width, const T *factor, const T *add, T *state, std::size_t chunks,
                     const Parallel &parallel)
{
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
    for (std::size_t i = width; i < chunks * width; ++i)
        start[i] = product[i - width] * start[i - width] + end[i - width];
    parallel.run(chunks, [&](std::size_t chunk) {
        diagonal_steps(width, from(chunk), from(chunk + 1), 0, width, factor, add, start.data() + chunk * width, state);
    });
}

/// All g_t into `state` (steps x width), with g = 0 before the first: split by columns where there are enough of them, else
/// in chunks of time where there are more than two workers, else by the plain loop.
template <typename T>
void diagonal_recurrence(std::size_t steps, std::size_t width, const T *factor, const T *add, T *state,
                         const Parallel &parallel)
{
    const std::size_t shares = std::min(parallel.workers, width / kColumnsPerWorker);
    const std::vector<T> zero(width, T(0));
    if (shares >= parallel.workers || parallel.workers <= 2) {
        const std::size_t tasks = std::max<std::size_t>(1, shares);
        parallel.run(tasks, [&](std::size_t task) {
            const std::size_t first = task * width / tasks, last = (task + 1) * width / tasks;
            diagonal_steps(width, 0, steps, first, last, factor, add, zero.data(), state);
        });
    } else {
        diagonal_chunks(steps, width, factor, add, state, std::min(parallel.workers, std::max<std::size_t>(1, steps)),
                        parallel);
    }
}

} // namespace jigsaw::scan
#endif
