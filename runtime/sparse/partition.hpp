// SPDX-License-Identifier: Apache-2.0
// Who owns which row, so that few words travel.
//
// Phase k of a forward pass sends output j of layer k - 1 from its owner to each other part that has a row of layer k
// with column j: lambda_j - 1 words, where lambda_j counts the parts among the owner of j and those rows. That is a
// hypergraph per phase (vertex = row, weight = non-zeros; net = column; fixed vertex = owner of the input), and a vertex
// of one phase is the fixed vertex of a net of the next. Partitioning goes as follows:
//   1. equal columns become one net that counts the owners of its inputs, and equal rows one vertex, a level above the
//      network's own;
//   2. the upper level starts at random and is annealed by exchanges and moves in sweeps over the phases, forth and back. A
//      vertex is judged by both phases that it belongs to, so that no phase is bound by the order of the sweep. Nets with
//      many pins are blurred at first: a part needs a net the more, the more of its pins it has. Now and then the parts of
//      each layer change names, by the best assignment of what they own to what they need;
//   3. the network's own level takes the owners and is annealed at a low heat.
// Balance per layer is a cap on what a part may weigh: as even as rows allow, or what the caller gives.
#ifndef JIGSAW_RUNTIME_SPARSE_PARTITION_HPP
#define JIGSAW_RUNTIME_SPARSE_PARTITION_HPP

#include "runtime/sparse/matrix.hpp"

#include <functional>

namespace jigsaw::sparse {

constexpr std::uint32_t kMostParts = 1U << 16;
constexpr double kMostImbalance = 10, kMostEffort = 1000;

struct PartitionOptions {
    std::uint32_t parts = 2;
    double imbalance = 0;       ///< a layer's largest part may exceed the mean by this share; 0: as even as rows allow
    std::uint64_t seed = 1;     ///< the same seed, the same answer
    double effort = 1;          ///< of the refinement: twice as much takes twice as long
    bool backward = false;      ///< count the backward pass too: all phases but the first twice
    bool merge_equal = true;    ///< step 1 for equal columns and rows
    bool look_ahead = true;     ///< false: one pass over the phases, each blind for the next
    std::function<void(const char *stage, double share)> progress{};
};

Partition partition_network(const Network &network, const PartitionOptions &options);
/// Even shares of rows in a random order, and in the order they have.
Partition random_partition(const Network &network, std::uint32_t parts, std::uint64_t seed);
Partition contiguous_partition(const Network &network, std::uint32_t parts);

/// What a partition costs per vector.
struct LayerTraffic {
    std::uint64_t words = 0, messages = 0, largest_message = 0;
    double imbalance = 0; ///< non-zeros of the fullest part over the mean, less 1
};
struct Traffic {
    std::vector<LayerTraffic> layers;
    std::uint64_t words = 0, messages = 0, largest_message = 0; ///< forward
    std::uint64_t backward_words = 0;                           ///< of a training step: all phases but the first
    double imbalance = 0;                                       ///< of the worst layer
    std::vector<std::uint64_t> matrix;                          ///< [from * parts + to], words forward
};
Traffic measure_traffic(const Network &network, const Partition &partition);

} // namespace jigsaw::sparse

#endif
