// SPDX-License-Identifier: Apache-2.0
// Recurrent cells, fused: a whole layer's time steps forward or backward in one call, without a graph of T steps. LibTorch's
// definitions and gate orders (RNN: one gate; GRU: r, z, n; LSTM: i, f, g, o), analytical gradients, float and double.
//
// Sequences of different lengths are packed as LibTorch packs them: step t holds rows[t] samples from row offset[t] on, and
// rows never grow with t. Without packing rows[t] is the batch. `reversed` walks from the last step to the first.
//
// Threads: samples do not depend on each other. A call does samples [first, last); calls with disjoint ranges may run at
// the same time on the same arguments.
#ifndef JIGSAW_SCAN_CELL_HPP
#define JIGSAW_SCAN_CELL_HPP

#include "runtime/scan/operator.hpp"

#include <cstddef>

namespace jigsaw::scan {

enum class Cell { rnn_tanh, rnn_relu, gru, lstm };
const char *name_of(Cell cell);

constexpr std::size_t gates_of(Cell cell) { return cell == Cell::gru ? 3 : cell == Cell::lstm ? 4 : 1; }
/// Values that backward needs, in units of the hidden size: GRU r, z, n and M = W_hn h + b_hn; LSTM i, f, g, o, c, tanh(c).
constexpr std::size_t saved_of(Cell cell) { return cell == Cell::gru ? 4 : cell == Cell::lstm ? 6 : 0; }

struct Layout {
    std::size_t steps = 0, batch = 0;
    const std::size_t *rows = nullptr;   ///< steps
    const std::size_t *offset = nullptr; ///< steps
    bool reversed = false;
};

/// G gates, hidden size H, N = all rows of all steps.
template <typename T> struct CellForward {
    Cell cell = Cell::rnn_tanh;
    Layout layout;
    std::size_t hidden = 0;
    const T *input_gates = nullptr; ///< N x G H: W_ih x + b_ih
    const T *weight = nullptr;      ///< W_hh, G H x H
    const T *bias = nullptr;        ///< b_hh, or null
    T *state = nullptr;             ///< batch x H; in: before the first step, out: after the last
    T *cell_state = nullptr;        ///< LSTM only
    T *output = nullptr;            ///< N x H
    T *saved = nullptr;             ///< N x saved_of H, or null
};

template <typename T> struct CellBackward {
    Cell cell = Cell::rnn_tanh;
    Layout layout;
    std::size_t hidden = 0;
    const T *weight = nullptr;
    const T *initial = nullptr, *initial_cell = nullptr; ///< states before the first step
    const T *output = nullptr, *saved = nullptr;
    const T *output_grad = nullptr; ///< N x H, or null
    T *state_grad = nullptr;        ///< batch x H; in: of the state after the last step, out: of that before the first
    T *cell_grad = nullptr;         ///< LSTM only
    T *gate_grad = nullptr;         ///< N x G H: of W_ih x + b_ih
    T *hidden_gate_grad = nullptr;  ///< GRU only: of W_hh h + b_hh (the other cells have one gradient for both)
};

template <typename T> void cell_forward(const CellForward<T> &args, std::size_t first, std::size_t last);
template <typename T> void cell_backward(const CellBackward<T> &args, std::size_t first, std::size_t last);

/// The step's transposed Jacobian W^T D (+ D'), one per sample, for all rows of the step: what cell_backward applies.
/// H x H, for the LSTM 2H x 2H over (gradient of h, gradient of c). The fused form of the paper's
/// two Jacobians (of tanh and of W), and its GRU formula.
template <typename T> Operator<T> cell_jacobian(const CellBackward<T> &args, std::size_t step);

/// out = left . right (+ bias in every row), or out += left . right: the products over all steps that a layer needs, on this
/// thread alone. A threaded BLAS is slower than one thread when other programs want the cores.
template <typename T> struct Product {
    T *out = nullptr; ///< rows x width
    std::size_t rows = 0, inner = 0, width = 0;
    const T *left = nullptr; ///< element (r, k) at r * left_row + k * left_inner
    std::size_t left_row = 0, left_inner = 1;
    const T *right = nullptr; ///< element (k, j) at k * right_row + j * right_column
    std::size_t right_row = 0, right_column = 1;
    const T *bias = nullptr; ///< width, or null
    bool add = false;
};
template <typename T> void multiply(const Product<T> &product);

/// Which vector instructions run here: "avx2" or "generic".
const char *kernel_name();

} // namespace jigsaw::scan
#endif
