// SPDX-License-Identifier: Apache-2.0
// The kernels behind cell.hpp, compiled once for each set of vector instructions (cell_generic.cpp, cell_avx2.cpp, ...). All
// of it has internal linkage and it includes no library code: nothing compiled for one processor may be linked into the
// code for another. JIGSAW_SCAN_LANE_BYTES is the width of a vector.
#include "runtime/scan/cell.hpp"
#include "runtime/scan/cell_table.hpp"

namespace jigsaw::scan {
namespace {

template <typename T> struct Lanes;
template <> struct Lanes<float> {
    typedef float V __attribute__((vector_size(JIGSAW_SCAN_LANE_BYTES)));
    typedef std::int32_t I __attribute__((vector_size(JIGSAW_SCAN_LANE_BYTES)));
    static constexpr int kMantissa = 23, kTerms = 8;
    static constexpr std::int32_t kOne = 0x3f800000;
    static constexpr float kMagic = 12582912.0f, kLn2High = 0.693145751953125f, kLn2Low = 1.42860682e-6f, kLimit = 87;
};
template <> struct Lanes<double> {
    typedef double V __attribute__((vector_size(JIGSAW_SCAN_LANE_BYTES)));
    typedef std::int64_t I __attribute__((vector_size(JIGSAW_SCAN_LANE_BYTES)));
    static constexpr int kMantissa = 52, kTerms = 14;
    static constexpr std::int64_t kOne = 0x3ff0000000000000;
    static constexpr double kMagic = 6755399441055744.0, kLn2High = 0.693147180369123816490,
                            kLn2Low = 1.90821492927058770e-10, kLimit = 708;
};

template <typename T> constexpr std::size_t kLanes = JIGSAW_SCAN_LANE_BYTES / sizeof(T);
template <typename T> using V = typename Lanes<T>::V;

#define JIGSAW_SCAN_INLINE inline __attribute__((always_inline))

template <typename T> JIGSAW_SCAN_INLINE V<T> splat(T value) { return V<T>{} + value; }

template <typename T> JIGSAW_SCAN_INLINE V<T> load(const T *from, std::size_t count = kLanes<T>)
{
    V<T> out{};
    if (count >= kLanes<T>)
        __builtin_memcpy(&out, from, sizeof out);
    else
        for (std::size_t i = 0; i < count; ++i)
            out[i] = from[i];
    return out;
}

template <typename T> JIGSAW_SCAN_INLINE void store(T *to, V<T> value, std::size_t count = kLanes<T>)
{
    if (count >= kLanes<T>)
        __builtin_memcpy(to, &value, sizeof value);
    else
        for (std::size_t i = 0; i < count; ++i)
            to[i] = value[i];
}

/// e^x - 1, to a few units in the last place also near 0: x = k ln 2 + r, then 2^k (e^r - 1) + (2^k - 1). NaN stays NaN.
template <typename T> JIGSAW_SCAN_INLINE V<T> expm1(V<T> x)
{
    using L = Lanes<T>;
    constexpr T kInverse[] = {1,       1.0 / 2, 1.0 / 3,  1.0 / 4,  1.0 / 5,  1.0 / 6,  1.0 / 7,
                              1.0 / 8, 1.0 / 9, 1.0 / 10, 1.0 / 11, 1.0 / 12, 1.0 / 13, 1.0 / 14};
    x = x > L::kLimit ? splat<T>(L::kLimit) : x;
    x = x < -L::kLimit ? splat<T>(-L::kLimit) : x;
    const V<T> shifted = x * static_cast<T>(1.4426950408889634) + L::kMagic;
    const V<T> k = shifted - L::kMagic;
    const V<T> r = x - k * L::kLn2High - k * L::kLn2Low;
    typename L::I bits;
    __builtin_memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << L::kMantissa) + L::kOne;
    V<T> scale;
    __builtin_memcpy(&scale, &bits, sizeof scale);
    V<T> sum = splat<T>(1);
    for (int term = L::kTerms - 1; term > 0; --term) // Horner: 1 + r/2 (1 + r/3 (...))
        sum = 1 + r * kInverse[term] * sum;
    return scale * (r * sum) + (scale - 1);
}

template <typename T> JIGSAW_SCAN_INLINE V<T> sigmoid(V<T> x) { return 1 / (2 + expm1<T>(-x)); }

template <typename T> JIGSAW_SCAN_INLINE V<T> tanh(V<T> x)
{
    x = x > 22 ? splat<T>(22) : x;
    x = x < -22 ? splat<T>(-22) : x;
    const V<T> e = expm1<T>(2 * x);
    return e / (e + 2);
}

// ---- small matrix products: out (rows x padded) += a (rows x inner) . b, b in panels of two vectors ----

template <typename T> constexpr std::size_t kPanel = 2 * kLanes<T>;

template <typename T> JIGSAW_SCAN_INLINE std::size_t padded(std::size_t width)
{
    return (width + kPanel<T> - 1) / kPanel<T> * kPanel<T>;
}

/// b(k, j) = from[k * row_stride + j * column_stride], zero beyond `width`.
template <typename T>
void pack(const T *from, std::size_t inner, std::size_t width, std::size_t row_stride, std::size_t column_stride,
          T *panels)
{
    for (std::size_t first = 0; first < padded<T>(width); first += kPanel<T>)
        for (std::size_t k = 0; k < inner; ++k)
            for (std::size_t j = first; j < first + kPanel<T>; ++j)
                *panels++ = j < width ? from[k * row_stride + j * column_stride] : T(0);
}

/// Element (r, k) of the left operand stands at r * row + k * inner.
struct Strides {
    std::size_t row, inner;
};

template <typename T, int Rows, int Vectors>
JIGSAW_SCAN_INLINE void tile(const T *a, Strides by, const T *panel, std::size_t inner, T *out, std::size_t stride)
{
    V<T> sum[Rows][Vectors] = {};
    for (std::size_t k = 0; k < inner; ++k) {
        const T *const b = panel + k * kPanel<T>;
        for (int r = 0; r < Rows; ++r)
            for (int v = 0; v < Vectors; ++v)
                sum[r][v] += a[r * by.row + k * by.inner] * load(b + v * kLanes<T>);
    }
    for (int r = 0; r < Rows; ++r)
        for (int v = 0; v < Vectors; ++v)
            store(out + r * stride + v * kLanes<T>, V<T>(load(out + r * stride + v * kLanes<T>) + sum[r][v]));
}

template <typename T, int Vectors>
JIGSAW_SCAN_INLINE void panel_rows(const T *a, Strides by, const T *panel, std::size_t inner, T *out,
                                   std::size_t stride, std::size_t rows)
{
    std::size_t r = 0;
    for (; r + 4 <= rows; r += 4)
        tile<T, 4, Vectors>(a + r * by.row, by, panel, inner, out + r * stride, stride);
    for (; r < rows; ++r)
        tile<T, 1, Vectors>(a + r * by.row, by, panel, inner, out + r * stride, stride);
}

template <typename T>
void multiply_add(const T *a, Strides by, const T *panels, std::size_t inner, std::size_t width, T *out,
                  std::size_t stride, std::size_t rows)
{
    for (std::size_t first = 0; first < width; first += kPanel<T>, panels += inner * kPanel<T>)
        if (width - first > kLanes<T>)
            panel_rows<T, 2>(a, by, panels, inner, out + first, stride, rows);
        else
            panel_rows<T, 1>(a, by, panels, inner, out + first, stride, rows);
}

/// Rows of the result and values of the inner index at a time: what stays in the cache.
constexpr std::size_t kRowBlock = 128, kInnerBlock = 256;

template <typename T> std::size_t product_scratch(std::size_t width)
{
    return (kRowBlock + kInnerBlock) * padded<T>(width);
}

template <typename T> void product(const Product<T> &p, T *scratch)
{
    const std::size_t stride = padded<T>(p.width);
    T *const panels = scratch, *const block = scratch + kInnerBlock * stride;
    for (std::size_t row = 0; row < p.rows; row += kRowBlock) {
        const std::size_t rows = p.rows - row < kRowBlock ? p.rows - row : kRowBlock;
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t j = 0; j < stride; ++j)
                block[r * stride + j] = j >= p.width ? T(0)
                                        : p.add      ? p.out[(row + r) * p.width + j]
                                        : p.bias     ? p.bias[j]
                                                     : T(0);
        for (std::size_t k = 0; k < p.inner; k += kInnerBlock) {
            const std::size_t inner = p.inner - k < kInnerBlock ? p.inner - k : kInnerBlock;
            if (row == 0 || p.inner > kInnerBlock)
                pack<T>(p.right + k * p.right_row, inner, p.width, p.right_row, p.right_column, panels);
            multiply_add<T>(p.left + row * p.left_row + k * p.left_inner, {p.left_row, p.left_inner}, panels, inner,
                            p.width, block, stride, rows);
        }
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t j = 0; j < p.width; ++j)
                p.out[(row + r) * p.width + j] = block[r * stride + j];
    }
}

// ---- a step of one sample: `n` lanes of the hidden size at k ----

template <typename T> struct ForwardRow {
    const T *input;  ///< G H: W_ih x + b_ih
    const T *hidden; ///< G H: W_hh h + b_hh
    T *state, *cell; ///< H
    T *output, *saved;
};

template <typename T, Cell C>
JIGSAW_SCAN_INLINE void forward_lanes(const ForwardRow<T> &row, std::size_t h, std::size_t k, std::size_t n)
{
    const auto in = [&](std::size_t gate) { return load(row.input + gate * h + k, n); };
    const auto hid = [&](std::size_t gate) { return load(row.hidden + gate * h + k, n); };
    const auto keep = [&](std::size_t slot, V<T> value) {
        if (row.saved)
            store(row.saved + slot * h + k, value, n);
    };
    V<T> next;
    if constexpr (C == Cell::rnn_tanh) {
        next = tanh<T>(in(0) + hid(0));
    } else if constexpr (C == Cell::rnn_relu) {
        next = in(0) + hid(0);
        next = next < 0 ? V<T>{} : next;
    } else if constexpr (C == Cell::gru) {
        const V<T> r = sigmoid<T>(in(0) + hid(0)), z = sigmoid<T>(in(1) + hid(1)), m = hid(2);
        const V<T> candidate = tanh<T>(in(2) + r * m);
        next = candidate + z * (load(row.state + k, n) - candidate);
        keep(0, r), keep(1, z), keep(2, candidate), keep(3, m);
    } else {
        const V<T> i = sigmoid<T>(in(0) + hid(0)), f = sigmoid<T>(in(1) + hid(1));
        const V<T> g = tanh<T>(in(2) + hid(2)), o = sigmoid<T>(in(3) + hid(3));
        const V<T> c = f * load(row.cell + k, n) + i * g, squashed = tanh<T>(c);
        next = o * squashed;
        store(row.cell + k, c, n);
        keep(0, i), keep(1, f), keep(2, g), keep(3, o), keep(4, c), keep(5, squashed);
    }
    store(row.state + k, next, n);
    store(row.output + k, next, n);
}

template <typename T> struct BackwardRow {
    const T *previous, *previous_cell, *output, *saved, *output_grad;
    T *carry,
        *cell_carry; ///< in: gradient of this state; out: what reaches the state before past the product with W_hh
    T *gate, *hidden_gate; ///< G H
};

template <typename T, Cell C>
JIGSAW_SCAN_INLINE void backward_lanes(const BackwardRow<T> &row, std::size_t h, std::size_t k, std::size_t n)
{
    const auto kept = [&](std::size_t slot) { return load(row.saved + slot * h + k, n); };
    const auto put = [&](std::size_t slot, V<T> value) { store(row.gate + slot * h + k, value, n); };
    V<T> g = load(row.carry + k, n), direct{};
    if (row.output_grad)
        g += load(row.output_grad + k, n);
    if constexpr (C == Cell::rnn_tanh) {
        const V<T> out = load(row.output + k, n);
        put(0, g * (1 - out * out));
    } else if constexpr (C == Cell::rnn_relu) {
        const V<T> out = load(row.output + k, n);
        put(0, out > 0 ? g : V<T>{});
    } else if constexpr (C == Cell::gru) {
        const V<T> r = kept(0), z = kept(1), candidate = kept(2), m = kept(3);
        const V<T> dn = g * (1 - z) * (1 - candidate * candidate);
        const V<T> dz = g * (load(row.previous + k, n) - candidate) * z * (1 - z), dr = dn * m * r * (1 - r);
        put(0, dr), put(1, dz), put(2, dn);
        store(row.hidden_gate + k, dr, n);
        store(row.hidden_gate + h + k, dz, n);
        store(row.hidden_gate + 2 * h + k, V<T>(dn * r), n);
        direct = g * z;
    } else {
        const V<T> i = kept(0), f = kept(1), candidate = kept(2), o = kept(3), squashed = kept(5);
        const V<T> dc = load(row.cell_carry + k, n) + g * o * (1 - squashed * squashed);
        put(0, dc * candidate * i * (1 - i));
        put(1, dc * load(row.previous_cell + k, n) * f * (1 - f));
        put(2, dc * i * (1 - candidate * candidate));
        put(3, g * squashed * o * (1 - o));
        store(row.cell_carry + k, V<T>(dc * f), n);
    }
    store(row.carry + k, direct, n);
}

// ---- all steps of samples [first, last) ----

JIGSAW_SCAN_INLINE std::size_t active(const Layout &layout, std::size_t step, std::size_t first, std::size_t last)
{
    const std::size_t end = layout.rows[step] < last ? layout.rows[step] : last;
    return end > first ? end - first : 0;
}

template <typename T, Cell C> void forward(const CellForward<T> &args, std::size_t first, std::size_t last, T *scratch)
{
    const std::size_t h = args.hidden, width = gates_of(C) * h, stride = padded<T>(width);
    T *const panels = scratch, *const hidden = scratch + h * stride;
    pack<T>(args.weight, h, width, 1, h, panels);
    for (std::size_t s = 0; s < args.layout.steps; ++s) {
        const std::size_t step = args.layout.reversed ? args.layout.steps - 1 - s : s;
        const std::size_t rows = active(args.layout, step, first, last);
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t j = 0; j < stride; ++j)
                hidden[r * stride + j] = args.bias && j < width ? args.bias[j] : T(0);
        multiply_add<T>(args.state + first * h, {h, 1}, panels, h, width, hidden, stride, rows);
        for (std::size_t r = 0; r < rows; ++r) {
            const std::size_t sample = first + r, at = args.layout.offset[step] + sample;
            const ForwardRow<T> row{
                args.input_gates + at * width, hidden + r * stride,
                args.state + sample * h,       C == Cell::lstm ? args.cell_state + sample * h : nullptr,
                args.output + at * h,          args.saved ? args.saved + at * saved_of(C) * h : nullptr};
            for (std::size_t k = 0; k < h; k += kLanes<T>)
                forward_lanes<T, C>(row, h, k, h - k);
        }
    }
}

/// The state before `step` of one sample: an earlier step's, or the initial one.
template <typename T>
JIGSAW_SCAN_INLINE const T *before(const Layout &layout, std::size_t step, std::size_t sample, const T *initial,
                                   const T *steps, std::size_t width, std::size_t slot, std::size_t h)
{
    const bool is_first = layout.reversed ? step + 1 == layout.steps || sample >= layout.rows[step + 1] : step == 0;
    if (is_first)
        return initial + sample * h;
    return steps + (layout.offset[layout.reversed ? step + 1 : step - 1] + sample) * width + slot;
}

template <typename T, Cell C>
void backward(const CellBackward<T> &args, std::size_t first, std::size_t last, T *scratch)
{
    const std::size_t h = args.hidden, width = gates_of(C) * h, stride = padded<T>(h);
    T *const panels = scratch, *const carry = scratch + width * stride;
    pack<T>(args.weight, width, h, h, 1, panels);
    for (std::size_t r = 0; r < last - first; ++r)
        for (std::size_t k = 0; k < stride; ++k)
            carry[r * stride + k] = k < h ? args.state_grad[(first + r) * h + k] : T(0);
    T *const product_of = C == Cell::gru ? args.hidden_gate_grad : args.gate_grad;
    for (std::size_t s = 0; s < args.layout.steps; ++s) {
        const std::size_t step = args.layout.reversed ? s : args.layout.steps - 1 - s;
        const std::size_t rows = active(args.layout, step, first, last);
        for (std::size_t r = 0; r < rows; ++r) {
            const std::size_t sample = first + r, at = args.layout.offset[step] + sample;
            BackwardRow<T> row{};
            row.output = args.output + at * h;
            row.saved = args.saved + at * saved_of(C) * h;
            row.output_grad = args.output_grad ? args.output_grad + at * h : nullptr;
            if (C == Cell::gru)
                row.previous = before(args.layout, step, sample, args.initial, args.output, h, 0, h);
            if (C == Cell::lstm)
                row.previous_cell = before(args.layout, step, sample, args.initial_cell, args.saved, 6 * h, 4 * h, h);
            row.carry = carry + r * stride;
            row.cell_carry = C == Cell::lstm ? args.cell_grad + sample * h : nullptr;
            row.gate = args.gate_grad + at * width;
            row.hidden_gate = C == Cell::gru ? args.hidden_gate_grad + at * width : nullptr;
            for (std::size_t k = 0; k < h; k += kLanes<T>)
                backward_lanes<T, C>(row, h, k, h - k);
        }
        multiply_add<T>(product_of + (args.layout.offset[step] + first) * width, {width, 1}, panels, width, h, carry,
                        stride, rows);
    }
    for (std::size_t r = 0; r < last - first; ++r)
        for (std::size_t k = 0; k < h; ++k)
            args.state_grad[(first + r) * h + k] = carry[r * stride + k];
}

template <typename T> std::size_t scratch_size(std::size_t gates, std::size_t h, std::size_t rows)
{
    const std::size_t wide = padded<T>(gates * h), narrow = padded<T>(h);
    const std::size_t forward = h * wide + rows * wide, backward = gates * h * narrow + rows * narrow;
    return forward > backward ? forward : backward;
}

template <typename T> constexpr CellTable<T> table()
{
    return {
        product_scratch<T>,
        product<T>,
        scratch_size<T>,
        {forward<T, Cell::rnn_tanh>, forward<T, Cell::rnn_relu>, forward<T, Cell::gru>, forward<T, Cell::lstm>},
        {backward<T, Cell::rnn_tanh>, backward<T, Cell::rnn_relu>, backward<T, Cell::gru>, backward<T, Cell::lstm>}};
}

} // namespace
} // namespace jigsaw::scan
