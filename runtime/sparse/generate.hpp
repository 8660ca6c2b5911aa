// SPDX-License-Identifier: Apache-2.0
// Networks to try things on: RadiX-Net as the Graph Challenge's, random regular ones.
#ifndef JIGSAW_RUNTIME_SPARSE_GENERATE_HPP
#define JIGSAW_RUNTIME_SPARSE_GENERATE_HPP

#include "runtime/sparse/matrix.hpp"

#include <string>
#include <vector>

namespace jigsaw::sparse {

/// A block of a RadiX-Net: c[i] is the class of input i, in each layer of the block. With `base` = classes = neurons / 16
/// = 2^m the block has m layers, and output j of its layer k takes the inputs i with c[i] = j or j + 2^k modulo base.
using RowClasses = std::vector<std::vector<std::uint32_t>>;

/// The Graph Challenge's structure: `neurons` is 16 times a power of two (1024, 4096, 16384, 65536: 32 weights of 1/16
/// in each row and column); the first block has c[r] = r mod base, each other one a random balanced permutation of it.
/// The bias is the Graph Challenge's where it defines one.
Network radix_net(std::uint32_t neurons, std::uint32_t layers, std::uint64_t seed);
/// The same from given classes (one line per block), as many layers as they give, or the first `layers` (0: all).
Network radix_net(const RowClasses &classes, std::uint32_t layers);
/// A file of row classes: a line per block, numbers separated by blanks. The name of the file and the line in errors.
RowClasses read_row_classes(const std::string &path);

/// Each row and each column of each layer has `degree` weights of 2/degree at random places (one less now and then where
/// the layer is nearly dense).
Network random_regular(std::uint32_t neurons, std::uint32_t layers, std::uint32_t degree, std::uint64_t seed);

/// What is left of a dense layer when all but `keep` of its weights with the largest magnitudes are cut.
CsrMatrix prune(const std::vector<float> &dense, std::uint32_t rows, std::uint32_t columns, double keep);

} // namespace jigsaw::sparse

#endif
