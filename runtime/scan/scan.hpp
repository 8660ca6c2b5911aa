// SPDX-License-Identifier: Apache-2.0
// Backpropagation as a scan (BPPSA, arXiv:1907.10134): all gradients g_0 ... g_n of a chain g_i = J_i g_{i-1} + b_i, where
// g_0 is the loss's gradient and J_i a transposed Jacobian. Composition of stages is associative but does not commute, so
// the chain may be cut anywhere and must keep its order.
//
// Three ways to the same numbers:
//     serial    n matrix-vector products, one after the other
//     chunked   one product matrix per chunk, the chunk borders in series, then all chunks side by side
//     tree      the paper's modified Blelloch scan: an up-sweep over L levels, a serial middle over what is left, a
//               down-sweep over L levels. Exclusive, and matrix-vector wherever one operand is a vector: column 0 of the
//               up-sweep, the middle, all of the down-sweep. The root of the last block is never needed nor computed.
#ifndef JIGSAW_SCAN_SCAN_HPP
#define JIGSAW_SCAN_SCAN_HPP

#include "runtime/scan/operator.hpp"
#include "runtime/scan/parallel.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace jigsaw::scan {

template <typename T> struct Stages {
    std::size_t batch = 1;
    std::vector<T> seed;                ///< g_0: batch x operators[0].cols
    std::vector<Operator<T>> operators; ///< J_1 ... J_n, first applied first
};

/// The products of one level: they depend on earlier levels only, not on each other.
struct Level {
    std::size_t matrix_products = 0, vector_products = 0;
};

/// What was really done; every number is counted while the products run.
struct Report {
    std::vector<Level> levels;                  ///< those with at least one product
    std::size_t critical_products = 0;          ///< longest chain of products that depend on each other
    std::uint64_t multiplications = 0;          ///< in all
    std::uint64_t critical_multiplications = 0; ///< along the costliest dependent chain
    bool fell_back = false; ///< a product matrix overflowed or was NaN, and the gradients are those of the serial way
};

/// g_0 ... g_n.
template <typename T> using Gradients = std::vector<std::vector<T>>;

/// All three throw std::invalid_argument naming stage and size where the chain does not fit together; n = 0 gives g_0.
/// A non-finite Jacobian makes exactly those gradients non-finite that the serial way makes non-finite.
template <typename T> Gradients<T> scan_serial(const Stages<T> &chain, Report *report = nullptr);

template <typename T>
Gradients<T> scan_chunked(const Stages<T> &chain, std::size_t chunks, const Parallel &parallel = {},
                          SymbolicCache *cache = nullptr, Report *report = nullptr);

/// up_levels: L above, 0 (all middle, that is serial) ... full_up_levels(n); more is the same as full.
template <typename T>
Gradients<T> scan_tree(const Stages<T> &chain, std::size_t up_levels, const Parallel &parallel = {},
                       SymbolicCache *cache = nullptr, Report *report = nullptr);

/// Levels of up-sweep that leave a middle without a product: ceil(log2(n + 2)) - 1.
std::size_t full_up_levels(std::size_t n);
/// Levels of dependent products of scan_tree: L up, max(0, ceil((n + 2) / 2^L) - 2) in the middle, L down, less one where the
/// first level down has a single pair and that needs no product. Never above the paper's 2 ceil(log2 n) + middle for n > 1.
std::size_t tree_levels(std::size_t n, std::size_t up_levels);
/// The products of the middle.
std::size_t tree_middle(std::size_t n, std::size_t up_levels);

} // namespace jigsaw::scan
#endif
