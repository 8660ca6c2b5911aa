// SPDX-License-Identifier: Apache-2.0
// Picks the kernels of this processor, and builds a step's Jacobian.
#include "runtime/scan/cell.hpp"
#include "runtime/scan/cell_table.hpp"

#include <vector>

namespace jigsaw::scan {

namespace {

CellTables pick()
{
#if defined(__x86_64__) && defined(__GNUC__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && avx2_cells().name)
        return avx2_cells();
#endif
    return generic_cells();
}

const CellTables &tables()
{
    static const CellTables chosen = pick();
    return chosen;
}

const CellTable<float> &table_of(float) { return tables().single; }
const CellTable<double> &table_of(double) { return tables().twice; }

/// What reaches one sample's gates, and the state before, from a unit of gradient at element k.
template <typename T> struct Unit {
    T gate[4] = {};          ///< of W_hh h + b_hh, per gate, for a unit at h's element k
    T gate_by_cell[4] = {};  ///< LSTM: for a unit at c's element k
    T direct = 0;            ///< GRU: h to h; LSTM: h to c
    T cell_direct = 0;       ///< LSTM: c to c
};

template <typename T> struct Sample {
    const T *previous, *previous_cell, *output, *saved;
};

template <typename T> Unit<T> unit_of(Cell cell, const Sample<T> &s, std::size_t h, std::size_t k)
{
    Unit<T> u;
    const auto kept = [&](std::size_t slot) { return s.saved[slot * h + k]; };
    if (cell == Cell::rnn_tanh)
        u.gate[0] = 1 - s.output[k] * s.output[k];
    if (cell == Cell::rnn_relu)
        u.gate[0] = s.output[k] > 0 ? T(1) : T(0);
    if (cell == Cell::gru) {
        const T r = kept(0), z = kept(1), n = kept(2), m = kept(3), dn = (1 - z) * (1 - n * n);
        u.gate[0] = dn * m * r * (1 - r);
        u.gate[1] = (s.previous[k] - n) * z * (1 - z);
        u.gate[2] = dn * r;
        u.direct = z;
    }
    if (cell == Cell::lstm) {
        const T i = kept(0), f = kept(1), g = kept(2), o = kept(3), squashed = kept(5);
        const T by_cell[4] = {g * i * (1 - i), s.previous_cell[k] * f * (1 - f), i * (1 - g * g), 0};
        const T dc = o * (1 - squashed * squashed);
        for (int gate = 0; gate < 4; ++gate) {
            u.gate_by_cell[gate] = by_cell[gate];
            u.gate[gate] = by_cell[gate] * dc;
        }
        u.gate[3] = squashed * o * (1 - o);
        u.direct = dc * f;
        u.cell_direct = f;
    }
    return u;
}

template <typename T> void fill(Cell cell, const T *weight, const Sample<T> &s, std::size_t h, T *out)
{
    const std::size_t width = cell == Cell::lstm ? 2 * h : h, gates = gates_of(cell);
    for (std::size_t k = 0; k < h; ++k) {
        const Unit<T> u = unit_of(cell, s, h, k);
        for (std::size_t gate = 0; gate < gates; ++gate)
            for (std::size_t row = 0; row < h; ++row) {
                const T w = weight[(gate * h + k) * h + row];
                out[row * width + k] += w * u.gate[gate];
                if (cell == Cell::lstm)
                    out[row * width + h + k] += w * u.gate_by_cell[gate];
            }
        if (cell == Cell::gru)
            out[k * width + k] += u.direct;
        if (cell == Cell::lstm) {
            out[(h + k) * width + k] = u.direct;
            out[(h + k) * width + h + k] = u.cell_direct;
        }
    }
}

} // namespace

const char *name_of(Cell cell)
{
    switch (cell) {
    case Cell::rnn_tanh: return "rnn";
    case Cell::rnn_relu: return "rnn-relu";
    case Cell::gru: return "gru";
    case Cell::lstm: return "lstm";
    }
    return "unknown";
}

const char *kernel_name() { return tables().name; }

template <typename T> void cell_forward(const CellForward<T> &args, std::size_t first, std::size_t last)
{
    if (first >= last)
        return;
    const CellTable<T> &table = table_of(T());
    std::vector<T> scratch(table.scratch_size(gates_of(args.cell), args.hidden, last - first));
    table.forward[static_cast<int>(args.cell)](args, first, last, scratch.data());
}

template <typename T> void cell_backward(const CellBackward<T> &args, std::size_t first, std::size_t last)
{
    if (first >= last)
        return;
    const CellTable<T> &table = table_of(T());
    std::vector<T> scratch(table.scratch_size(gates_of(args.cell), args.hidden, last - first));
    table.backward[static_cast<int>(args.cell)](args, first, last, scratch.data());
}

template <typename T> void multiply(const Product<T> &product)
{
    const CellTable<T> &table = table_of(T());
    std::vector<T> scratch(table.product_scratch(product.width));
    table.product(product, scratch.data());
}

template <typename T> Operator<T> cell_jacobian(const CellBackward<T> &args, std::size_t step)
{
    const std::size_t h = args.hidden, width = args.cell == Cell::lstm ? 2 * h : h;
    const std::size_t batch = args.layout.rows[step], saved = saved_of(args.cell) * h;
    const bool reversed = args.layout.reversed;
    const bool is_first = reversed ? step + 1 == args.layout.steps : step == 0;
    const std::size_t other = is_first ? 0 : args.layout.offset[reversed ? step + 1 : step - 1];
    Operator<T> out = make_dense<T>(width, width, batch, std::vector<T>(batch * width * width));
    for (std::size_t b = 0; b < batch; ++b) {
        const std::size_t at = args.layout.offset[step] + b;
        Sample<T> s{nullptr, nullptr, args.output + at * h, args.saved + at * saved};
        s.previous = is_first ? args.initial + b * h : args.output + (other + b) * h;
        if (args.cell == Cell::lstm)
            s.previous_cell = is_first ? args.initial_cell + b * h : args.saved + (other + b) * saved + 4 * h;
        fill(args.cell, args.weight, s, h, out.values.data() + b * width * width);
    }
    return out;
}

#define JIGSAW_SCAN_INSTANTIATE(T)                                                                                     \
    template void cell_forward(const CellForward<T> &, std::size_t, std::size_t);                                      \
    template void cell_backward(const CellBackward<T> &, std::size_t, std::size_t);                                    \
    template void multiply(const Product<T> &);                                                                        \
    template Operator<T> cell_jacobian(const CellBackward<T> &, std::size_t);
JIGSAW_SCAN_INSTANTIATE(float)
JIGSAW_SCAN_INSTANTIATE(double)
#undef JIGSAW_SCAN_INSTANTIATE

} // namespace jigsaw::scan
