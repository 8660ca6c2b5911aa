// SPDX-License-Identifier: Apache-2.0
#include "runtime/examples/digest.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace jigsaw::examples {

namespace {

/// First 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2).
std::array<std::uint32_t, 64> round_constants()
{
    std::array<std::uint32_t, 64> out{};
    std::size_t found = 0;
    for (unsigned n = 2; found < out.size(); ++n) {
        bool prime = true;
        for (unsigned d = 2; d * d <= n; ++d)
            prime = prime && n % d != 0;
        if (!prime)
            continue;
        const long double root = std::cbrt(static_cast<long double>(n));
        out[found++] = static_cast<std::uint32_t>((root - std::floor(root)) * 4294967296.0L);
    }
    return out;
}

std::uint32_t rotate(std::uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

} // namespace

void Sha256::block(const std::uint8_t *data)
{
    static const std::array<std::uint32_t, 64> k = round_constants();
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i)
        w[i] = std::uint32_t{data[4 * i]} << 24 | std::uint32_t{data[4 * i + 1]} << 16 | std::uint32_t{data[4 * i + 2]} << 8 | data[4 * i + 3];
    for (std::size_t i = 16; i < 64; ++i) {
        const std::uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        const std::uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    std::array<std::uint32_t, 8> v = state_;
    for (std::size_t i = 0; i < 64; ++i) {
        const std::uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
        const std::uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
        const std::uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
        const std::uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
    }
    for (std::size_t i = 0; i < 8; ++i)
        state_[i] += v[i];
}

void Sha256::add(const void *data, std::size_t bytes)
{
    const auto *from = static_cast<const std::uint8_t *>(data);
    bytes_ += bytes;
    while (bytes > 0) {
        const std::size_t take = std::min(bytes, pending_.size() - npending_);
        std::memcpy(pending_.data() + npending_, from, take);
        npending_ += take;
        from += take;
        bytes -= take;
        if (npending_ == pending_.size()) {
            block(pending_.data());
            npending_ = 0;
        }
    }
}

std::string Sha256::hex()
{
    const std::uint64_t bits = bytes_ * 8;
    const std::uint8_t one = 0x80, zero = 0;
    add(&one, 1);
    while (npending_ != 56)
        add(&zero, 1);
    std::array<std::uint8_t, 8> length{};
    for (std::size_t i = 0; i < 8; ++i)
        length[i] = static_cast<std::uint8_t>(bits >> (56 - 8 * i));
    add(length.data(), length.size());
    std::string out;
    char word[9];
    for (const std::uint32_t value : state_) {
        std::snprintf(word, sizeof word, "%08x", value);
        out += word;
    }
    return out;
}

} // namespace jigsaw::examples
