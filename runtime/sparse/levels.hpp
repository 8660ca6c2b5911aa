// SPDX-License-Identifier: Apache-2.0
// The hypergraphs of all phases at one level of coarseness, and the step to the next coarser one.
#ifndef JIGSAW_RUNTIME_SPARSE_LEVELS_HPP
#define JIGSAW_RUNTIME_SPARSE_LEVELS_HPP

#include "runtime/sparse/matrix.hpp"

namespace jigsaw::sparse {

/// Lists of numbers, one per index, end to end.
struct Lists {
    std::vector<std::uint64_t> start{0};
    std::vector<std::uint32_t> item;

    std::uint32_t size() const { return static_cast<std::uint32_t>(start.size() - 1); }
    const std::uint32_t *begin(std::uint32_t i) const { return item.data() + start[i]; }
    const std::uint32_t *end(std::uint32_t i) const { return item.data() + start[i + 1]; }
    std::uint32_t length(std::uint32_t i) const { return static_cast<std::uint32_t>(start[i + 1] - start[i]); }
};
Lists turned(const Lists &lists, std::uint32_t targets);

/// Phase k joins the vertices of layer k - 1 (sources) to those of layer k (pins) by nets. A net stands for all columns
/// with the same pins; `times` is how many of them come from each source.
struct Phase {
    Lists pins_of_net, nets_of_pin;
    Lists nets_of_source, times_of_source; ///< the same shape
    Lists sources_of_net;
    std::vector<std::uint32_t> net_weight; ///< columns in it

    std::uint32_t nets() const { return pins_of_net.size(); }
};

struct Level {
    std::vector<std::vector<std::uint64_t>> weight; ///< [layer 0..L][vertex]; of the inputs: 1 each
    std::vector<Phase> phases;                      ///< phases[k - 1] joins layers k - 1 and k

    std::uint64_t vertices() const
    {
        std::uint64_t sum = 0;
        for (const auto &layer : weight)
            sum += layer.size();
        return sum;
    }
};

using Maps = std::vector<std::vector<std::uint32_t>>; ///< [layer][vertex]: its vertex in the coarser level

Level finest_level(const Network &network, bool merge_equal);
Level coarser(const Level &fine, const Maps &maps, bool merge_equal);
/// Equal rows (for inputs: those that feed the same nets alike) become one: all of them where they are few beside what a
/// part holds, else bundles that divide it.
Maps merge_equal_vertices(const Level &level, std::uint32_t parts);

} // namespace jigsaw::sparse

#endif
