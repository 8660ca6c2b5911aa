// SPDX-License-Identifier: Apache-2.0
// Making and applying operators; compose.cpp has their products.
#include "runtime/scan/operator.hpp"

#include <stdexcept>
#include <string>

namespace jigsaw::scan {

namespace {

[[noreturn]] void refuse(const std::string &why) { throw std::invalid_argument("scan: " + why); }

std::string text(std::size_t value) { return std::to_string(value); }

template <typename T> Operator<T> checked(Operator<T> op)
{
    if (op.rows == 0 || op.cols == 0 || op.matrices == 0)
        refuse(std::string("a ") + name_of(op.kind) + " operator of " + text(op.rows) + " x " + text(op.cols) +
               " for " + text(op.matrices) + " samples; each must be at least 1");
    const std::size_t wanted = op.matrices * op.values_per_matrix();
    if (op.values.size() != wanted)
        refuse(std::string("a ") + name_of(op.kind) + " operator of " + text(op.rows) + " x " + text(op.cols) +
               " for " + text(op.matrices) + " samples needs " + text(wanted) + " values, got " +
               text(op.values.size()));
    return op;
}

template <typename T> void apply_dense(const Operator<T> &op, const T *matrix, const T *in, T *out)
{
    for (std::size_t r = 0; r < op.rows; ++r) {
        T sum = 0;
        for (std::size_t c = 0; c < op.cols; ++c)
            sum += matrix[r * op.cols + c] * in[c];
        out[r] += sum;
    }
}

template <typename T> void apply_blocks(const Operator<T> &op, const T *matrix, const T *in, T *out)
{
    for (std::size_t first = 0; first < op.rows; first += op.block)
        for (std::size_t r = 0; r < op.block; ++r)
            for (std::size_t c = 0; c < op.block; ++c)
                out[first + r] += matrix[(first + r) * op.block + c] * in[first + c];
}

template <typename T> void apply_csr(const Operator<T> &op, const T *matrix, const T *in, T *out)
{
    const Pattern &pattern = *op.pattern;
    for (std::size_t r = 0; r < op.rows; ++r) {
        T sum = 0;
        for (std::size_t e = pattern.row_start[r]; e < pattern.row_start[r + 1]; ++e)
            sum += matrix[e] * in[pattern.column[e]];
        out[r] += sum;
    }
}

template <typename T> void apply_one(const Operator<T> &op, const T *matrix, const T *in, T *out)
{
    switch (op.kind) {
    case Kind::dense: apply_dense(op, matrix, in, out); break;
    case Kind::block_diagonal: apply_blocks(op, matrix, in, out); break;
    case Kind::csr: apply_csr(op, matrix, in, out); break;
    case Kind::diagonal:
        for (std::size_t r = 0; r < op.rows; ++r)
            out[r] += matrix[r] * in[r];
        break;
    }
}

template <typename T> void dense_of(const Operator<T> &op, const T *matrix, T *out)
{
    if (op.kind == Kind::diagonal)
        for (std::size_t r = 0; r < op.rows; ++r)
            out[r * op.cols + r] = matrix[r];
    if (op.kind == Kind::block_diagonal)
        for (std::size_t r = 0; r < op.rows; ++r)
            for (std::size_t c = 0; c < op.block; ++c)
                out[r * op.cols + r / op.block * op.block + c] = matrix[r * op.block + c];
    if (op.kind == Kind::csr)
        for (std::size_t r = 0; r < op.rows; ++r)
            for (std::size_t e = op.pattern->row_start[r]; e < op.pattern->row_start[r + 1]; ++e)
                out[r * op.cols + op.pattern->column[e]] = matrix[e];
}

} // namespace

const char *name_of(Kind kind)
{
    switch (kind) {
    case Kind::dense: return "dense";
    case Kind::diagonal: return "diagonal";
    case Kind::block_diagonal: return "block-diagonal";
    case Kind::csr: return "CSR";
    }
    return "unknown";
}

void check_pattern(const Pattern &pattern)
{
    if (pattern.row_start.size() != pattern.rows + 1 || pattern.row_start.front() != 0 ||
        pattern.row_start.back() != pattern.column.size())
        refuse("a CSR pattern of " + text(pattern.rows) + " rows and " + text(pattern.column.size()) +
               " entries needs row starts from 0 to the number of entries, one per row and one more");
    for (std::size_t r = 0; r < pattern.rows; ++r) {
        if (pattern.row_start[r] > pattern.row_start[r + 1] || pattern.row_start[r + 1] > pattern.column.size())
            refuse("row " + text(r) + " of a CSR pattern ends before it starts");
        for (std::size_t e = pattern.row_start[r]; e < pattern.row_start[r + 1]; ++e)
            if (pattern.column[e] >= pattern.cols ||
                (e > pattern.row_start[r] && pattern.column[e] <= pattern.column[e - 1]))
                refuse("row " + text(r) + " of a CSR pattern names column " + text(pattern.column[e]) +
                       "; columns must ascend and stay below " + text(pattern.cols));
    }
}

template <typename T> std::size_t Operator<T>::values_per_matrix() const
{
    switch (kind) {
    case Kind::dense: return rows * cols;
    case Kind::diagonal: return rows;
    case Kind::block_diagonal: return rows * block;
    case Kind::csr: return pattern->entries();
    }
    return 0;
}

template <typename T>
Operator<T> make_dense(std::size_t rows, std::size_t cols, std::size_t matrices, std::vector<T> values)
{
    return checked(Operator<T>{Kind::dense, rows, cols, matrices, 0, nullptr, std::move(values), {}});
}

template <typename T> Operator<T> make_diagonal(std::size_t rows, std::size_t matrices, std::vector<T> values)
{
    return checked(Operator<T>{Kind::diagonal, rows, rows, matrices, 0, nullptr, std::move(values), {}});
}

template <typename T>
Operator<T> make_block_diagonal(std::size_t rows, std::size_t block, std::size_t matrices, std::vector<T> values)
{
    if (block == 0 || rows % block != 0)
        refuse(text(rows) + " rows cannot be cut into blocks of " + text(block) + "; the side must divide the rows");
    return checked(Operator<T>{Kind::block_diagonal, rows, rows, matrices, block, nullptr, std::move(values), {}});
}

template <typename T> Operator<T> make_csr(PatternPtr pattern, std::size_t matrices, std::vector<T> values)
{
    if (!pattern)
        refuse("a CSR operator needs a pattern");
    check_pattern(*pattern);
    const std::size_t rows = pattern->rows, cols = pattern->cols;
    return checked(Operator<T>{Kind::csr, rows, cols, matrices, 0, std::move(pattern), std::move(values), {}});
}

template <typename T>
std::vector<T> apply(const Operator<T> &op, const std::vector<T> &gradient, std::size_t batch, std::uint64_t *count)
{
    std::vector<T> out = op.offset.empty() ? std::vector<T>(batch * op.rows) : op.offset;
    const std::size_t per_matrix = op.values_per_matrix();
    for (std::size_t b = 0; b < batch; ++b)
        apply_one(op, op.values.data() + (op.matrices == 1 ? 0 : b * per_matrix), gradient.data() + b * op.cols,
                  out.data() + b * op.rows);
    if (count)
        *count += batch * per_matrix;
    return out;
}

template <typename T> Operator<T> to_dense(const Operator<T> &op)
{
    if (op.kind == Kind::dense)
        return op;
    Operator<T> out{Kind::dense, op.rows, op.cols, op.matrices, 0, nullptr, {}, op.offset};
    out.values.resize(op.matrices * op.rows * op.cols);
    for (std::size_t m = 0; m < op.matrices; ++m)
        dense_of(op, op.values.data() + m * op.values_per_matrix(), out.values.data() + m * op.rows * op.cols);
    return out;
}

#define JIGSAW_SCAN_INSTANTIATE(T)                                                                                     \
    template struct Operator<T>;                                                                                       \
    template Operator<T> make_dense(std::size_t, std::size_t, std::size_t, std::vector<T>);                            \
    template Operator<T> make_diagonal(std::size_t, std::size_t, std::vector<T>);                                      \
    template Operator<T> make_block_diagonal(std::size_t, std::size_t, std::size_t, std::vector<T>);                   \
    template Operator<T> make_csr(PatternPtr, std::size_t, std::vector<T>);                                            \
    template std::vector<T> apply(const Operator<T> &, const std::vector<T> &, std::size_t, std::uint64_t *);          \
    template Operator<T> to_dense(const Operator<T> &);
JIGSAW_SCAN_INSTANTIATE(float)
JIGSAW_SCAN_INSTANTIATE(double)
#undef JIGSAW_SCAN_INSTANTIATE

} // namespace jigsaw::scan
