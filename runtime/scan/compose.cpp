// SPDX-License-Identifier: Apache-2.0
// Products of two operators. The result keeps the cheapest kind that holds it: diagonal times anything keeps the other's
// kind, equal blocks stay blocks, sparse times sparse stays sparse, the rest is dense.
#include "runtime/scan/operator.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace jigsaw::scan {

namespace {

template <typename T> const T *matrix_of(const Operator<T> &op, std::size_t sample)
{
    return op.values.data() + (op.matrices == 1 ? 0 : sample * op.values_per_matrix());
}

/// An operator of the product's size and kind without values yet.
template <typename T>
Operator<T> product_of(Kind kind, const Operator<T> &later, const Operator<T> &earlier, PatternPtr pattern = nullptr)
{
    Operator<T> out;
    out.kind = kind;
    out.rows = later.rows;
    out.cols = earlier.cols;
    out.matrices = std::max(later.matrices, earlier.matrices);
    out.block = kind == Kind::block_diagonal ? std::max(later.block, earlier.block) : 0;
    out.pattern = std::move(pattern);
    out.values.resize(out.matrices * out.values_per_matrix());
    return out;
}

/// `out` scaled by row: out = diag(scale) . matrix.
template <typename T> void scale_rows(const Operator<T> &op, const T *matrix, const T *scale, T *out)
{
    if (op.kind == Kind::csr) {
        for (std::size_t r = 0; r < op.rows; ++r)
            for (std::size_t e = op.pattern->row_start[r]; e < op.pattern->row_start[r + 1]; ++e)
                out[e] = scale[r] * matrix[e];
        return;
    }
    const std::size_t width = op.values_per_matrix() / op.rows;
    for (std::size_t r = 0; r < op.rows; ++r)
        for (std::size_t c = 0; c < width; ++c)
            out[r * width + c] = scale[r] * matrix[r * width + c];
}

/// out = matrix . diag(scale).
template <typename T> void scale_columns(const Operator<T> &op, const T *matrix, const T *scale, T *out)
{
    if (op.kind == Kind::csr) {
        for (std::size_t e = 0; e < op.pattern->entries(); ++e)
            out[e] = matrix[e] * scale[op.pattern->column[e]];
        return;
    }
    const std::size_t width = op.values_per_matrix() / op.rows;
    for (std::size_t r = 0; r < op.rows; ++r) {
        const std::size_t first = op.kind == Kind::block_diagonal ? r / op.block * op.block
                                  : op.kind == Kind::dense        ? 0
                                                                  : r;
        for (std::size_t c = 0; c < width; ++c)
            out[r * width + c] = matrix[r * width + c] * scale[first + c];
    }
}

/// out (rows x cols) = a (rows x inner) . b (inner x cols); out is zero before.
template <typename T>
void multiply_dense(const T *a, const T *b, T *out, std::size_t rows, std::size_t inner, std::size_t cols)
{
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t k = 0; k < inner; ++k) {
            const T factor = a[r * inner + k];
            for (std::size_t c = 0; c < cols; ++c)
                out[r * cols + c] += factor * b[k * cols + c];
        }
}

template <typename T>
Operator<T> compose_diagonal(const Operator<T> &later, const Operator<T> &earlier, std::uint64_t *count)
{
    const bool left = later.kind == Kind::diagonal;
    const Operator<T> &other = left ? earlier : later, &diagonal = left ? later : earlier;
    Operator<T> out = product_of(other.kind, later, earlier, other.pattern);
    for (std::size_t m = 0; m < out.matrices; ++m) {
        T *to = out.values.data() + m * out.values_per_matrix();
        if (left)
            scale_rows(other, matrix_of(other, m), matrix_of(diagonal, m), to);
        else
            scale_columns(other, matrix_of(other, m), matrix_of(diagonal, m), to);
    }
    *count += out.values.size();
    return out;
}

template <typename T>
Operator<T> compose_blocks(const Operator<T> &later, const Operator<T> &earlier, std::uint64_t *count)
{
    Operator<T> out = product_of(Kind::block_diagonal, later, earlier);
    const std::size_t side = out.block, area = side * side;
    for (std::size_t m = 0; m < out.matrices; ++m)
        for (std::size_t k = 0; k < out.rows / side; ++k)
            multiply_dense(matrix_of(later, m) + k * area, matrix_of(earlier, m) + k * area,
                           out.values.data() + m * out.values_per_matrix() + k * area, side, side, side);
    *count += out.values.size() * side;
    return out;
}

template <typename T>
Operator<T> compose_dense(const Operator<T> &later, const Operator<T> &earlier, std::uint64_t *count)
{
    Operator<T> out = product_of(Kind::dense, later, earlier);
    for (std::size_t m = 0; m < out.matrices; ++m)
        multiply_dense(matrix_of(later, m), matrix_of(earlier, m), out.values.data() + m * out.rows * out.cols,
                       later.rows, later.cols, earlier.cols);
    *count += static_cast<std::uint64_t>(out.values.size()) * later.cols;
    return out;
}

/// csr . dense and dense . csr: dense, at one multiplication per entry and column or row.
template <typename T>
Operator<T> compose_mixed(const Operator<T> &later, const Operator<T> &earlier, std::uint64_t *count)
{
    const bool left = later.kind == Kind::csr;
    const Pattern &pattern = left ? *later.pattern : *earlier.pattern;
    Operator<T> out = product_of(Kind::dense, later, earlier);
    for (std::size_t m = 0; m < out.matrices; ++m) {
        const T *a = matrix_of(later, m), *b = matrix_of(earlier, m);
        T *to = out.values.data() + m * out.rows * out.cols;
        for (std::size_t r = 0; r < pattern.rows; ++r)
            for (std::size_t e = pattern.row_start[r]; e < pattern.row_start[r + 1]; ++e) {
                const std::size_t c = pattern.column[e];
                if (left)
                    multiply_dense(a + e, b + c * out.cols, to + r * out.cols, 1, 1, out.cols);
                else
                    for (std::size_t row = 0; row < out.rows; ++row)
                        to[row * out.cols + c] += a[row * later.cols + r] * b[e];
            }
    }
    *count += static_cast<std::uint64_t>(out.matrices) * pattern.entries() * (left ? out.cols : out.rows);
    return out;
}

/// The numeric phase of Gustavson's product: a row is gathered in `row` (as wide as the result) and read out by pattern.
template <typename T>
void multiply_csr(const Pattern &a_at, const T *a, const Pattern &b_at, const T *b, const Pattern &out_at, T *out,
                  std::vector<T> *row)
{
    for (std::size_t r = 0; r < a_at.rows; ++r) {
        for (std::size_t e = a_at.row_start[r]; e < a_at.row_start[r + 1]; ++e)
            for (std::size_t f = b_at.row_start[a_at.column[e]]; f < b_at.row_start[a_at.column[e] + 1]; ++f)
                (*row)[b_at.column[f]] += a[e] * b[f];
        for (std::size_t e = out_at.row_start[r]; e < out_at.row_start[r + 1]; ++e) {
            out[e] = (*row)[out_at.column[e]];
            (*row)[out_at.column[e]] = 0;
        }
    }
}

template <typename T>
Operator<T> compose_csr(const Operator<T> &later, const Operator<T> &earlier, SymbolicCache *cache,
                        std::uint64_t *count)
{
    const SymbolicCache::Product &product = cache->product(later.pattern, earlier.pattern);
    Operator<T> out = product_of(Kind::csr, later, earlier, product.pattern);
    std::vector<T> row(out.cols);
    for (std::size_t m = 0; m < out.matrices; ++m)
        multiply_csr(*later.pattern, matrix_of(later, m), *earlier.pattern, matrix_of(earlier, m), *product.pattern,
                     out.values.data() + m * product.pattern->entries(), &row);
    *count += out.matrices * product.multiplications;
    return out;
}

template <typename T> Operator<T> blocks_as_csr(const Operator<T> &op, SymbolicCache *cache)
{
    return {Kind::csr, op.rows, op.cols, op.matrices, 0, cache->block_pattern(op.rows, op.block), op.values, {}};
}

template <typename T>
Operator<T> compose_matrices(const Operator<T> &later, const Operator<T> &earlier, SymbolicCache *cache,
                             std::uint64_t *count)
{
    if (later.kind == Kind::diagonal || earlier.kind == Kind::diagonal)
        return compose_diagonal(later, earlier, count);
    const bool blocks = later.kind == Kind::block_diagonal && earlier.kind == Kind::block_diagonal;
    if (blocks && later.block == earlier.block)
        return compose_blocks(later, earlier, count);
    if (later.kind == Kind::block_diagonal)
        return compose_matrices(blocks_as_csr(later, cache), earlier, cache, count);
    if (earlier.kind == Kind::block_diagonal)
        return compose_matrices(later, blocks_as_csr(earlier, cache), cache, count);
    if (later.kind == Kind::csr && earlier.kind == Kind::csr)
        return compose_csr(later, earlier, cache, count);
    if (later.kind == Kind::csr || earlier.kind == Kind::csr)
        return compose_mixed(later, earlier, count);
    return compose_dense(later, earlier, count);
}

} // namespace

template <typename T>
Operator<T> compose(const Operator<T> &later, const Operator<T> &earlier, std::size_t batch, SymbolicCache *cache,
                    std::uint64_t *count)
{
    if (later.cols != earlier.rows)
        throw std::invalid_argument("scan: a stage of " + std::to_string(later.rows) + " x " +
                                    std::to_string(later.cols) + " cannot follow one of " +
                                    std::to_string(earlier.rows) + " x " + std::to_string(earlier.cols));
    std::uint64_t multiplications = 0;
    Operator<T> out = compose_matrices(later, earlier, cache, &multiplications);
    if (!earlier.offset.empty())
        out.offset = apply(later, earlier.offset, batch, &multiplications);
    else
        out.offset = later.offset;
    if (count)
        *count += multiplications;
    return out;
}

const SymbolicCache::Product &SymbolicCache::product(const PatternPtr &later, const PatternPtr &earlier)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    auto &slot = products_[{later.get(), earlier.get()}];
    if (slot)
        return *slot;
    auto pattern = std::make_shared<Pattern>();
    pattern->rows = later->rows;
    pattern->cols = earlier->cols;
    pattern->row_start.push_back(0);
    slot = std::make_unique<Product>(Product{later, earlier, nullptr, 0});
    std::vector<bool> seen(earlier->cols);
    for (std::size_t r = 0; r < later->rows; ++r) {
        const std::size_t first = pattern->column.size();
        for (std::size_t e = later->row_start[r]; e < later->row_start[r + 1]; ++e) {
            const std::size_t k = later->column[e];
            slot->multiplications += earlier->row_start[k + 1] - earlier->row_start[k];
            for (std::size_t f = earlier->row_start[k]; f < earlier->row_start[k + 1]; ++f)
                if (!seen[earlier->column[f]]) {
                    seen[earlier->column[f]] = true;
                    pattern->column.push_back(earlier->column[f]);
                }
        }
        std::sort(pattern->column.begin() + static_cast<std::ptrdiff_t>(first), pattern->column.end());
        for (std::size_t e = first; e < pattern->column.size(); ++e)
            seen[pattern->column[e]] = false;
        pattern->row_start.push_back(pattern->column.size());
    }
    slot->pattern = std::move(pattern);
    return *slot;
}

PatternPtr SymbolicCache::block_pattern(std::size_t rows, std::size_t block)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    PatternPtr &slot = blocks_[{rows, block}];
    if (slot)
        return slot;
    auto pattern = std::make_shared<Pattern>();
    pattern->rows = pattern->cols = rows;
    pattern->row_start.push_back(0);
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < block; ++c)
            pattern->column.push_back(static_cast<std::uint32_t>(r / block * block + c));
        pattern->row_start.push_back(pattern->column.size());
    }
    return slot = pattern;
}

std::size_t SymbolicCache::symbolic_phases() const
{
    const std::lock_guard<std::mutex> lock(mutex_);
    return products_.size();
}

template Operator<float> compose(const Operator<float> &, const Operator<float> &, std::size_t, SymbolicCache *,
                                 std::uint64_t *);
template Operator<double> compose(const Operator<double> &, const Operator<double> &, std::size_t, SymbolicCache *,
                                  std::uint64_t *);

} // namespace jigsaw::scan
