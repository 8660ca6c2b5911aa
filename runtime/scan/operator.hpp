// SPDX-License-Identifier: Apache-2.0
// One stage of a chain: g -> J g + b, where J is a transposed Jacobian (one per sample of the batch, or one for all) and b,
// if any, is the gradient that enters at this stage (many-to-many). What the scan composes and applies.
//
// Shape: a vector is batch x n, row-major. A matrix holds `matrices` (1 or batch) times its values:
//     dense            rows x cols, row-major
//     diagonal         rows
//     block_diagonal   rows / block blocks of block x block, row-major
//     csr              one value per entry of the pattern, which all samples share
#ifndef JIGSAW_SCAN_OPERATOR_HPP
#define JIGSAW_SCAN_OPERATOR_HPP

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace jigsaw::scan {

enum class Kind { dense, diagonal, block_diagonal, csr };
const char *name_of(Kind kind);

/// Where a sparse matrix may be non-zero; columns ascend within a row. Immutable once made: operators share it.
struct Pattern {
    std::size_t rows = 0, cols = 0;
    std::vector<std::size_t> row_start; ///< rows + 1
    std::vector<std::uint32_t> column;
    std::size_t entries() const { return column.size(); }
};
using PatternPtr = std::shared_ptr<const Pattern>;

/// Throws std::invalid_argument unless the pattern is what Pattern promises.
void check_pattern(const Pattern &pattern);

template <typename T> struct Operator {
    Kind kind = Kind::dense;
    std::size_t rows = 0, cols = 0;
    std::size_t matrices = 1; ///< 1: the same for all samples
    std::size_t block = 0;    ///< block_diagonal: side of a block
    PatternPtr pattern;       ///< csr
    std::vector<T> values;
    std::vector<T> offset; ///< empty, or batch x rows

    std::size_t values_per_matrix() const;
};

template <typename T>
Operator<T> make_dense(std::size_t rows, std::size_t cols, std::size_t matrices, std::vector<T> values);
template <typename T> Operator<T> make_diagonal(std::size_t rows, std::size_t matrices, std::vector<T> values);
template <typename T>
Operator<T> make_block_diagonal(std::size_t rows, std::size_t block, std::size_t matrices, std::vector<T> values);
template <typename T> Operator<T> make_csr(PatternPtr pattern, std::size_t matrices, std::vector<T> values);

/// Patterns of products, worked out once per pair of patterns (the symbolic phase) and kept: in later iterations only the
/// numbers are computed. Thread-safe. Keeps the patterns it has seen alive.
class SymbolicCache {
  public:
    struct Product {
        PatternPtr later, earlier, pattern;
        std::uint64_t multiplications = 0;
    };
    const Product &product(const PatternPtr &later, const PatternPtr &earlier);
    /// The CSR pattern of a block-diagonal matrix.
    PatternPtr block_pattern(std::size_t rows, std::size_t block);
    /// The CSR pattern of a diagonal matrix is block_pattern(rows, 1).
    std::size_t symbolic_phases() const; ///< how many products were worked out so far

  private:
    mutable std::mutex mutex_;
    std::map<std::pair<const Pattern *, const Pattern *>, std::unique_ptr<Product>> products_;
    std::map<std::pair<std::size_t, std::size_t>, PatternPtr> blocks_;
};

/// later . earlier, which is earlier <> later in the paper's notation: (A2, b2) after (A1, b1) is (A2 A1, A2 b1 + b2).
/// Adds its multiplications to *count.
template <typename T>
Operator<T> compose(const Operator<T> &later, const Operator<T> &earlier, std::size_t batch, SymbolicCache *cache,
                    std::uint64_t *count);

/// J g + b for every sample. Adds its multiplications to *count.
template <typename T>
std::vector<T> apply(const Operator<T> &op, const std::vector<T> &gradient, std::size_t batch, std::uint64_t *count);

/// The same matrix, dense. For tests, and for what no sparse kind can hold.
template <typename T> Operator<T> to_dense(const Operator<T> &op);

} // namespace jigsaw::scan
#endif
