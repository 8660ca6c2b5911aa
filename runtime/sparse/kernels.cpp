// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/kernels.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace jigsaw::sparse {

namespace {

#define JIGSAW_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__)
#define JIGSAW_SPARSE_X86 1
#define JIGSAW_AVX2 __attribute__((target("avx2,fma")))
#define JIGSAW_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma,prefer-vector-width=512")))
#endif

// A vector type each; wrapped, since a template's argument may not carry attributes.
struct V16 {
    typedef float type __attribute__((vector_size(16), may_alias));
    typedef std::uint64_t bits __attribute__((vector_size(16), may_alias));
};
struct V32 {
    typedef float type __attribute__((vector_size(32), may_alias));
    typedef std::uint64_t bits __attribute__((vector_size(32), may_alias));
};
struct V64 {
    typedef float type __attribute__((vector_size(64), may_alias));
    typedef std::uint64_t bits __attribute__((vector_size(64), may_alias));
};

template <typename V> constexpr std::uint32_t kLanes = sizeof(typename V::type) / sizeof(float);

/// `N` vectors' worth of samples, from sample `at` of the tile: their sums stay in registers while a row's weights pass by.
template <typename V, int N, bool kSkip> JIGSAW_INLINE void multiply_strip(const Product &p, std::uint32_t at)
{
    using Vector = typename V::type;
    const CsrMatrix &m = *p.matrix;
    const std::uint64_t *row_start = m.row_start.data();
    const std::uint32_t *column = m.column.data();
    const float *value = m.value.data();
    const std::size_t width = p.width;
    const float *x = p.x + at;
    const float clip = p.finish.clip > 0 ? p.finish.clip : __builtin_inff();
    Vector largest[N] = {};
    for (std::uint32_t row = p.first; row < p.last; ++row) {
        Vector sum[N];
        Vector *y = reinterpret_cast<Vector *>(p.y + row * width + at);
        for (int n = 0; n < N; ++n)
            sum[n] = p.add ? y[n] : Vector{};
        for (std::uint64_t k = row_start[row]; k < row_start[row + 1]; ++k) {
            if (kSkip && p.live[column[k]] == 0)
                continue;
            const Vector *in = reinterpret_cast<const Vector *>(x + column[k] * width);
            const float weight = value[k];
            for (int n = 0; n < N; ++n)
                sum[n] += weight * in[n];
        }
        const float row_bias = p.finish.row_bias != nullptr ? p.finish.row_bias[row] : 0.0F;
        switch (p.finish.kind) {
        case Finish::sum: break;
        case Finish::linear:
            for (int n = 0; n < N; ++n)
                sum[n] += row_bias;
            break;
        case Finish::relu:
            for (int n = 0; n < N; ++n) {
                const Vector z = sum[n] + row_bias;
                const Vector cut = z > 0.0F ? z : Vector{};
                sum[n] = cut < clip ? cut : Vector{} + clip;
            }
            break;
        case Finish::graph_challenge:
            for (int n = 0; n < N; ++n) {
                const Vector z = sum[n] + p.finish.bias;
                const Vector cut = z > 0.0F ? z : Vector{};
                const Vector low = cut < clip ? cut : Vector{} + clip;
                sum[n] = sum[n] != 0.0F ? low : Vector{};
            }
            break;
        }
        for (int n = 0; n < N; ++n) {
            y[n] = sum[n];
            largest[n] = sum[n] > largest[n] ? sum[n] : largest[n];
        }
    }
    if (p.largest != nullptr)
        for (int n = 0; n < N; ++n)
            for (std::uint32_t lane = 0; lane < kLanes<V>; ++lane) {
                float &seen = p.largest[at + static_cast<std::uint32_t>(n) * kLanes<V> + lane];
                seen = std::max(seen, largest[n][lane]);
            }
}

template <typename V, int N> JIGSAW_INLINE void multiply_strips(const Product &p, std::uint32_t *at)
{
    constexpr std::uint32_t step = N * kLanes<V>;
    for (; *at + step <= p.width; *at += step) {
        if (p.live != nullptr)
            multiply_strip<V, N, true>(p, *at);
        else
            multiply_strip<V, N, false>(p, *at);
    }
}

/// Dot products of a row of delta with the rows of x that the row's weights take. N sums, so that additions overlap.
template <typename V, int N> JIGSAW_INLINE void gradient_rows(const Gradient &g)
{
    using Vector = typename V::type;
    const CsrMatrix &m = *g.matrix;
    const std::size_t width = g.width;
    for (std::uint32_t row = g.first; row < g.last; ++row) {
        const float *delta = g.delta + row * width;
        Vector any = {};
        for (std::uint32_t t = 0; t < g.tiles; ++t) {
            const Vector *d = reinterpret_cast<const Vector *>(delta + t * g.delta_step);
            for (std::uint32_t n = 0; n < width / kLanes<V>; ++n)
                any = d[n] != 0.0F ? Vector{} + 1.0F : any; // not the squares: they would underflow
        }
        float size = 0;
        for (std::uint32_t lane = 0; lane < kLanes<V>; ++lane)
            size += any[lane];
        const bool dead = size == 0.0F; // a neuron that was off for the whole batch
        for (std::uint64_t k = m.row_start[row]; k < m.row_start[row + 1]; ++k) {
            if (dead) {
                g.gradient[k] = 0;
                continue;
            }
            Vector sum[N] = {};
            for (std::uint32_t t = 0; t < g.tiles; ++t) {
                const Vector *d = reinterpret_cast<const Vector *>(delta + t * g.delta_step);
                const Vector *x = reinterpret_cast<const Vector *>(g.x + t * g.x_step + m.column[k] * width);
                for (std::uint32_t strip = 0; strip < width / (N * kLanes<V>); ++strip)
                    for (int n = 0; n < N; ++n)
                        sum[n] += d[strip * N + n] * x[strip * N + n];
            }
            for (int n = 1; n < N; ++n)
                sum[0] += sum[n];
            float lanes[kLanes<V>];
            std::memcpy(lanes, &sum[0], sizeof lanes);
            for (std::uint32_t half = kLanes<V> / 2; half > 0; half /= 2)
                for (std::uint32_t lane = 0; lane < half; ++lane)
                    lanes[lane] += lanes[lane + half];
            g.gradient[k] = lanes[0];
        }
    }
}

template <typename V> JIGSAW_INLINE std::uint32_t live_rows(const float *x, std::uint32_t rows, std::uint32_t width, std::uint8_t *live)
{
    using Bits = typename V::bits;
    std::uint32_t count = 0;
    for (std::uint32_t row = 0; row < rows; ++row) {
        const Bits *in = reinterpret_cast<const Bits *>(x + std::size_t{row} * width);
        Bits any = {};
        for (std::uint32_t n = 0; n < width / kLanes<V>; ++n)
            any |= in[n];
        std::uint64_t together = 0;
        for (std::uint32_t lane = 0; lane < kLanes<V> / 2; ++lane)
            together |= any[lane];
        live[row] = together != 0;
        count += together != 0;
    }
    return count;
}

// 16 registers of 16 bytes: sums of 32 samples take 8 of them. With 32-byte vectors 64 samples; with 64-byte ones and 32
// registers 128.
void multiply_plain(const Product &p)
{
    std::uint32_t at = 0;
    multiply_strips<V16, 8>(p, &at);
    multiply_strips<V16, 4>(p, &at);
}
void gradient_plain(const Gradient &g) { gradient_rows<V16, 4>(g); }

#ifdef JIGSAW_SPARSE_X86
JIGSAW_AVX2 void multiply_avx2(const Product &p)
{
    std::uint32_t at = 0;
    multiply_strips<V32, 8>(p, &at);
    multiply_strips<V32, 4>(p, &at);
    multiply_strips<V32, 2>(p, &at);
}
JIGSAW_AVX2 void gradient_avx2(const Gradient &g)
{
    if (g.width % 32 == 0)
        gradient_rows<V32, 4>(g);
    else
        gradient_rows<V32, 2>(g);
}
JIGSAW_AVX512 void multiply_avx512(const Product &p)
{
    std::uint32_t at = 0;
    multiply_strips<V64, 8>(p, &at);
    multiply_strips<V64, 4>(p, &at);
    multiply_strips<V64, 2>(p, &at);
    multiply_strips<V64, 1>(p, &at);
}
JIGSAW_AVX512 void gradient_avx512(const Gradient &g)
{
    if (g.width % 64 == 0)
        gradient_rows<V64, 4>(g);
    else if (g.width % 32 == 0)
        gradient_rows<V64, 2>(g);
    else
        gradient_rows<V64, 1>(g);
}
JIGSAW_AVX2 std::uint32_t live_avx2(const float *x, std::uint32_t rows, std::uint32_t width, std::uint8_t *live)
{
    return live_rows<V32>(x, rows, width, live);
}
JIGSAW_AVX512 std::uint32_t live_avx512(const float *x, std::uint32_t rows, std::uint32_t width, std::uint8_t *live)
{
    return live_rows<V64>(x, rows, width, live);
}
#endif

Instructions choose()
{
    const std::vector<Instructions> there = supported_instructions();
    if (const char *wanted = std::getenv("JIGSAW_SPARSE_INSTRUCTIONS"))
        for (const Instructions one : there)
            if (std::strcmp(name_of(one), wanted) == 0)
                return one;
    return there.back();
}

} // namespace

std::vector<Instructions> supported_instructions()
{
    std::vector<Instructions> there{Instructions::plain};
#ifdef JIGSAW_SPARSE_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        there.push_back(Instructions::avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma"))
        there.push_back(Instructions::avx512);
#endif
    return there;
}

Instructions best_instructions()
{
    static const Instructions chosen = choose();
    return chosen;
}

const char *name_of(Instructions instructions)
{
    switch (instructions) {
    case Instructions::avx2: return "avx2";
    case Instructions::avx512: return "avx512";
    default: return "plain";
    }
}

void multiply(const Product &product, Instructions instructions)
{
#ifdef JIGSAW_SPARSE_X86
    if (instructions == Instructions::avx512)
        return multiply_avx512(product);
    if (instructions == Instructions::avx2)
        return multiply_avx2(product);
#endif
    (void)instructions;
    multiply_plain(product);
}

void weight_gradient(const Gradient &gradient, Instructions instructions)
{
#ifdef JIGSAW_SPARSE_X86
    if (instructions == Instructions::avx512)
        return gradient_avx512(gradient);
    if (instructions == Instructions::avx2)
        return gradient_avx2(gradient);
#endif
    (void)instructions;
    gradient_plain(gradient);
}

void row_sums(const float *delta, std::size_t step, std::uint32_t tiles, std::uint32_t width, std::uint32_t first, std::uint32_t last,
              float *sums)
{
    for (std::uint32_t row = first; row < last; ++row) {
        double sum = 0; // few additions: no need to save on them
        for (std::uint32_t t = 0; t < tiles; ++t)
            for (std::uint32_t s = 0; s < width; ++s)
                sum += delta[t * step + std::size_t{row} * width + s];
        sums[row] = static_cast<float>(sum);
    }
}

void mask_by_output(float *s, const float *x, std::size_t count, float clip)
{
    const float limit = clip > 0 ? clip : __builtin_inff();
    for (std::size_t at = 0; at < count; ++at)
        s[at] = x[at] > 0 && x[at] < limit ? s[at] : 0;
}

std::uint32_t find_live_rows(const float *x, std::uint32_t rows, std::uint32_t width, std::uint8_t *live, Instructions instructions)
{
#ifdef JIGSAW_SPARSE_X86
    if (instructions == Instructions::avx512)
        return live_avx512(x, rows, width, live);
    if (instructions == Instructions::avx2)
        return live_avx2(x, rows, width, live);
#endif
    (void)instructions;
    return live_rows<V16>(x, rows, width, live);
}

} // namespace jigsaw::sparse
