// SPDX-License-Identifier: Apache-2.0
// Sums through a small buffer that stays in the first-level cache, so that `out` may be one of the sources.
#include "runtime/sync/reduce.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace jigsaw::sync {
namespace {

constexpr std::size_t kRun = 1024;

/// Sixteen bits that hold the upper half of a float. Every operation rounds to nearest, ties to even, as a GPU's does, so
/// that sums in one order have the same bits on both.
class Bfloat16 {
  public:
    Bfloat16() = default;
    explicit Bfloat16(float value)
    {
        std::uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        bits_ = std::isnan(value) ? 0x7fc0 : static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    explicit Bfloat16(std::size_t value) : Bfloat16(static_cast<float>(value)) {}
    explicit operator float() const
    {
        const std::uint32_t bits = static_cast<std::uint32_t>(bits_) << 16;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
    Bfloat16 &operator+=(Bfloat16 other) { return *this = Bfloat16(float(*this) + float(other)); }
    Bfloat16 operator/(Bfloat16 other) const { return Bfloat16(float(*this) / float(other)); }

  private:
    std::uint16_t bits_ = 0;
};

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
    else if (type == DataType::bfloat16)
        reduce<Bfloat16>(out, sources, count, divisor);
    else
        reduce<float>(out, sources, count, divisor);
}

void fill_neutral(DataType type, void *out, std::size_t count)
{
    if (type == DataType::float64)
        std::fill_n(static_cast<double *>(out), count, -0.0);
    else if (type == DataType::bfloat16)
        std::fill_n(static_cast<Bfloat16 *>(out), count, Bfloat16(-0.0f));
    else
        std::fill_n(static_cast<float *>(out), count, -0.0f);
}

} // namespace jigsaw::sync
