// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same on every machine and with every library: xoshiro256** (Blackman and Vigna), seeded by
// splitmix64.
#ifndef JIGSAW_RUNTIME_SPARSE_RANDOM_HPP
#define JIGSAW_RUNTIME_SPARSE_RANDOM_HPP

#include <cstdint>
#include <utility>
#include <vector>

namespace jigsaw::sparse {

class Random {
public:
    explicit Random(std::uint64_t seed, std::uint64_t stream = 0)
    {
        std::uint64_t at = seed ^ (stream * 0xd1342543de82ef95u);
        for (std::uint64_t &word : state_) {
            at += 0x9e3779b97f4a7c15u;
            word = (at ^ (at >> 30)) * 0xbf58476d1ce4e5b9u;
            word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
            word ^= word >> 31;
        }
    }

    std::uint64_t next()
    {
        const std::uint64_t result = turned(state_[1] * 5, 7) * 9, shifted = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= shifted;
        state_[3] = turned(state_[3], 45);
        return result;
    }
    /// From 0 to limit - 1; the bias of 2^-32 * limit does no harm here.
    std::uint32_t below(std::uint32_t limit)
    {
        return static_cast<std::uint32_t>(((next() >> 32) * limit) >> 32);
    }
    template <typename T> void shuffle(std::vector<T> &values)
    {
        for (std::size_t left = values.size(); left > 1; --left)
            std::swap(values[left - 1], values[below(static_cast<std::uint32_t>(left))]);
    }

private:
    static std::uint64_t turned(std::uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }
    std::uint64_t state_[4];
};

} // namespace jigsaw::sparse

#endif
