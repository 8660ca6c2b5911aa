// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) of final parameters: equal on all ranks, or something is wrong.
#ifndef JIGSAW_EXAMPLES_DIGEST_HPP
#define JIGSAW_EXAMPLES_DIGEST_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace jigsaw::examples {

class Sha256 {
  public:
    void add(const void *data, std::size_t bytes);
    /// Lower-case hexadecimal; the object is used up.
    std::string hex();

  private:
    void block(const std::uint8_t *data);

    std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::uint8_t, 64> pending_{};
    std::size_t npending_ = 0;
    std::uint64_t bytes_ = 0;
};

} // namespace jigsaw::examples
#endif
