// SPDX-License-Identifier: Apache-2.0
// What one rank holds of a network, and whom it tells what. Row-wise: a rank owns rows of each layer with their outputs;
// the inputs of its rows that others own, its ghosts, come in one message per owner and layer (arXiv:2104.11805).
#ifndef JIGSAW_RUNTIME_SPARSE_SHARE_HPP
#define JIGSAW_RUNTIME_SPARSE_SHARE_HPP

#include "runtime/sparse/matrix.hpp"

#include <cstdint>
#include <vector>

namespace jigsaw::sparse {

/// The weights whose inputs lie in one place. Row i is the rank's i-th row.
struct Block {
    CsrMatrix matrix;
    std::vector<std::uint64_t> origin; ///< of each weight: its number in the whole layer
};

struct LayerShare {
    std::vector<std::uint32_t> rows; ///< of the whole layer, rising
    Block own;                       ///< columns count this rank's inputs
    Block ghost;                     ///< columns count the ghosts

    /// Ghosts [first, last) come from `rank`; and the same range of partial sums goes back there.
    struct Source {
        int rank;
        std::uint32_t first, last;
    };
    std::vector<Source> sources;
    /// These of this rank's inputs go to `rank`, in the order of its ghosts.
    struct Target {
        int rank;
        std::vector<std::uint32_t> inputs;
    };
    std::vector<Target> targets;

    std::uint32_t row_count() const { return static_cast<std::uint32_t>(rows.size()); }
    std::uint32_t ghosts() const { return ghost.matrix.columns; }
};

struct NetworkShare {
    std::vector<std::uint32_t> inputs; ///< this rank's entries of the input vector, rising
    std::vector<LayerShare> layers;

    /// Floats that this rank sends per sample in a forward pass; backward sends as many as forward receives, but for the
    /// first layer, whose inputs need no gradient.
    std::uint64_t words_sent() const;
};

NetworkShare share_of(const Network &network, const Partition &partition, int rank);

} // namespace jigsaw::sparse

#endif
