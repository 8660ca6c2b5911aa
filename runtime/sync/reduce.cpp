// SPDX-License-Identifier: Apache-2.0
// Sums through a small buffer that stays in the first-level cache, so that `out` may be one of the sources.
#include "runtime/sync/reduce.hpp"

#include <algorithm>

namespace jigsaw::sync {
namespace {

constexpr std::size_t kRun = 1024;

template <typename Number>
void reduce_run(Number *out, const std::vector<const void *> &sources, std::size_t first, std::size_t count,
                Number divisor)
{
    Number sum[kRun];
    std::copy_n(static_cast<const Number *>(sources[0]) + first, count, sum);
    for (std::size_t s = 1; s < sources.size(); ++s) {
        const Number *const source = static_cast<const Number *>(sources[s]) + first;
        for (std::size_t i = 0; i < count; ++i)
            sum[i] += source[i];
    }
    for (std::size_t i = 0; i < count; ++i)
        out[first + i] = sum[i] / divisor;
}

template <typename Number>
void reduce(void *out, const std::vector<const void *> &sources, std::size_t count, std::size_t divisor)
{
    for (std::size_t first = 0; first < count; first += kRun)
        reduce_run(static_cast<Number *>(out), sources, first, std::min(kRun, count - first),
                   static_cast<Number>(divisor));
}

} // namespace

void reduce_in_order(DataType type, void *out, const std::vector<const void *> &sources, std::size_t count,
                     std::size_t divisor)
{
    if (type == DataType::float64)
        reduce<double>(out, sources, count, divisor);
    else
        reduce<float>(out, sources, count, divisor);
}

void fill_neutral(DataType type, void *out, std::size_t count)
{
    if (type == DataType::float64)
        std::fill_n(static_cast<double *>(out), count, -0.0);
    else
        std::fill_n(static_cast<float *>(out), count, -0.0f);
}

} // namespace jigsaw::sync
