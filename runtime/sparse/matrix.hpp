// SPDX-License-Identifier: Apache-2.0
// Sparse networks and who owns what of them: the words that formats, partitioner and engine share.
//
// A layer is a matrix with a row per output neuron and a column per input neuron, x' = f(W x). The Graph Challenge
// writes Z = Y W with samples as rows, so that its files list a layer as (input, output, weight); readers turn it round.
#ifndef JIGSAW_RUNTIME_SPARSE_MATRIX_HPP
#define JIGSAW_RUNTIME_SPARSE_MATRIX_HPP

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace jigsaw::sparse {

/// What is wrong with a file, a network or a request, in one line that names it.
class Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Compressed rows. Invariants (check() tells which is broken): row_start has rows + 1 entries, starts at 0 and never
/// falls; the columns of a row rise strictly; column and value have row_start.back() entries.
struct CsrMatrix {
    std::uint32_t rows = 0, columns = 0;
    std::vector<std::uint64_t> row_start{0};
    std::vector<std::uint32_t> column;
    std::vector<float> value;

    std::uint64_t nonzeros() const { return row_start.back(); }
    std::uint32_t row_nonzeros(std::uint32_t row) const
    {
        return static_cast<std::uint32_t>(row_start[row + 1] - row_start[row]);
    }
};

/// Layer k (from 0) maps layers[k].columns inputs to layers[k].rows outputs, and these feed layer k + 1.
struct Network {
    std::vector<CsrMatrix> layers;
    float bias = 0;  ///< added to the outputs that are not zero (Graph Challenge)
    float clip = 32; ///< outputs end here, after ReLU; 0: no limit

    std::uint32_t inputs() const { return layers.empty() ? 0 : layers.front().columns; }
    std::uint32_t outputs() const { return layers.empty() ? 0 : layers.back().rows; }
    std::uint64_t nonzeros() const
    {
        std::uint64_t sum = 0;
        for (const CsrMatrix &layer : layers)
            sum += layer.nonzeros();
        return sum;
    }
};

/// owner[0][j] is the part that holds input j, owner[k][i] the one that owns row i of layer k - 1 (counted from 0) and
/// its output: layers + 1 vectors, each entry below `parts`.
struct Partition {
    std::uint32_t parts = 1;
    std::vector<std::vector<std::uint32_t>> owner;
};

/// Throw an Error that names the layer and what is wrong with it.
void check(const CsrMatrix &matrix, const std::string &name);
void check(const Network &network);
/// The partition fits the network: right sizes, owners below parts.
void check(const Partition &partition, const Network &network);

/// Columns become rows.
CsrMatrix transpose(const CsrMatrix &matrix);

} // namespace jigsaw::sparse

#endif
