// SPDX-License-Identifier: Apache-2.0
#include "bench/sparse_machine.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/sparse/tiles.hpp"

namespace jigsaw::bench {

namespace {

using sparse::Floats;
using sparse::Instructions;

#define JIGSAW_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__)
#define JIGSAW_AVX2 __attribute__((target("avx2,fma")))
#define JIGSAW_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma,prefer-vector-width=512")))
#endif

struct V16 {
    typedef float type __attribute__((vector_size(16), may_alias));
};
struct V32 {
    typedef float type __attribute__((vector_size(32), may_alias));
};
struct V64 {
    typedef float type __attribute__((vector_size(64), may_alias));
};

volatile float sink; ///< so that what is computed is needed

double seconds_since(std::chrono::steady_clock::time_point start)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// N independent chains: enough to hide the latency of 4 cycles at two instructions a cycle.
template <typename V, int N> JIGSAW_INLINE double multiply_registers(long rounds)
{
    using Vector = typename V::type;
    Vector sum[N];
    for (int n = 0; n < N; ++n)
        sum[n] = Vector{} + static_cast<float>(n);
    const Vector factor = Vector{} + (1 - 1e-7F * static_cast<float>(rounds % 2)), more = Vector{} + 1e-9F;
    for (long i = 0; i < rounds; ++i)
        for (int n = 0; n < N; ++n)
            sum[n] = sum[n] * factor + more;
    for (int n = 1; n < N; ++n)
        sum[0] += sum[n];
    sink = sum[0][0];
    return static_cast<double>(rounds) * N * (sizeof(Vector) / sizeof(float));
}

template <typename V> JIGSAW_INLINE void read_all(const float *data, std::size_t floats, long rounds)
{
    using Vector = typename V::type;
    constexpr std::size_t lanes = sizeof(Vector) / sizeof(float);
    Vector sum[8] = {};
    for (long i = 0; i < rounds; ++i) {
        for (std::size_t at = 0; at + 8 * lanes <= floats; at += 8 * lanes)
            for (std::size_t n = 0; n < 8; ++n)
                sum[n] += *reinterpret_cast<const Vector *>(data + at + n * lanes);
        __asm__ volatile("" ::: "memory"); // each round reads anew
    }
    for (int n = 1; n < 8; ++n)
        sum[0] += sum[n];
    sink = sum[0][0];
}

double peak_plain(long rounds) { return multiply_registers<V16, 10>(rounds); }
void read_plain(const float *data, std::size_t floats, long rounds) { read_all<V16>(data, floats, rounds); }
#if defined(__x86_64__)
JIGSAW_AVX2 double peak_avx2(long rounds) { return multiply_registers<V32, 10>(rounds); }
JIGSAW_AVX512 double peak_avx512(long rounds) { return multiply_registers<V64, 10>(rounds); }
JIGSAW_AVX2 void read_avx2(const float *data, std::size_t floats, long rounds) { read_all<V32>(data, floats, rounds); }
JIGSAW_AVX512 void read_avx512(const float *data, std::size_t floats, long rounds) { read_all<V64>(data, floats, rounds); }
#endif

double peak_once(Instructions instructions, long rounds)
{
#if defined(__x86_64__)
    if (instructions == Instructions::avx512)
        return peak_avx512(rounds);
    if (instructions == Instructions::avx2)
        return peak_avx2(rounds);
#endif
    (void)instructions;
    return peak_plain(rounds);
}

void read_once(Instructions instructions, const float *data, std::size_t floats, long rounds)
{
#if defined(__x86_64__)
    if (instructions == Instructions::avx512)
        return read_avx512(data, floats, rounds);
    if (instructions == Instructions::avx2)
        return read_avx2(data, floats, rounds);
#endif
    (void)instructions;
    read_plain(data, floats, rounds);
}

} // namespace

double peak_multiplications(Instructions instructions)
{
    double best = 0;
    for (int tries = 0; tries < 7; ++tries) {
        const auto start = std::chrono::steady_clock::now();
        const double done = peak_once(instructions, 3'000'000 + tries);
        best = std::max(best, done / seconds_since(start));
    }
    return best;
}

double read_bandwidth(std::size_t bytes, Instructions instructions)
{
    Floats array;
    array.resize(bytes / sizeof(float));
    std::fill_n(array.data(), array.size(), 1.0F);
    const long rounds = static_cast<long>(1 + (std::size_t{1} << 30) / bytes);
    double best = 0;
    for (int tries = 0; tries < 7; ++tries) {
        const auto start = std::chrono::steady_clock::now();
        read_once(instructions, array.data(), array.size(), rounds);
        best = std::max(best, static_cast<double>(bytes) * static_cast<double>(rounds) / seconds_since(start));
    }
    return best;
}

double memory_bandwidth(unsigned threads)
{
    constexpr std::size_t floats = std::size_t{1} << 27; // three arrays of half a gigabyte: this machine's last cache has 480 MiB
    Floats a, b, c;
    a.resize(floats);
    b.resize(floats);
    c.resize(floats);
    const auto on_all = [&](auto body) {
        std::vector<std::thread> others;
        for (unsigned t = 0; t < threads; ++t)
            others.emplace_back([&, t] { body(floats / threads * t, floats / threads * (t + 1)); });
        for (std::thread &other : others)
            other.join();
    };
    on_all([&](std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < to; ++i)
            a.data()[i] = b.data()[i] = c.data()[i] = 1;
    });
    double best = 0;
    for (int tries = 0; tries < 3; ++tries) {
        const auto start = std::chrono::steady_clock::now();
        on_all([&](std::size_t from, std::size_t to) {
            float *x = a.data();
            const float *y = b.data(), *z = c.data();
            for (std::size_t i = from; i < to; ++i)
                x[i] = y[i] + 3 * z[i];
        });
        best = std::max(best, 3.0 * sizeof(float) * static_cast<double>(floats) / seconds_since(start));
    }
    sink = a.data()[floats / 2];
    return best;
}

} // namespace jigsaw::bench
