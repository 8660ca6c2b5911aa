// SPDX-License-Identifier: Apache-2.0
// Numbers that are the same with every C++ library: the standard fixes mt19937_64, not its distributions.
#ifndef JIGSAW_SIM_RANDOM_HPP
#define JIGSAW_SIM_RANDOM_HPP

#include <cmath>
#include <cstdint>
#include <random>

namespace jigsaw::sim {

class Random {
  public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    /// In [0, 1).
    double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
    double uniform(double least, double most) { return least + (most - least) * uniform(); }
    /// In 0..count-1.
    std::size_t index(std::size_t count) { return static_cast<std::size_t>(uniform() * static_cast<double>(count)); }
    double exponential(double mean) { return -mean * std::log1p(-uniform()); }
    /// Box and Muller; the second number of a pair is not kept.
    double normal()
    {
        const double radius = std::sqrt(-2 * std::log1p(-uniform()));
        return radius * std::cos(2 * M_PI * uniform());
    }

  private:
    std::mt19937_64 engine_;
};

} // namespace jigsaw::sim
#endif
