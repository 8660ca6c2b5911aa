// SPDX-License-Identifier: Apache-2.0
#include "runtime/scan/jacobians.hpp"

#include <cmath>
#include <stdexcept>
#include <string>

namespace jigsaw::scan {

namespace {

/// Collects (row, column) pairs whose columns never fall, and sorts them by row; slot() says where each pair went.
class Builder {
  public:
    void add(std::size_t row, std::size_t column)
    {
        row_.push_back(row);
        column_.push_back(static_cast<std::uint32_t>(column));
    }

    PatternPtr finish(std::size_t rows, std::size_t cols)
    {
        auto pattern = std::make_shared<Pattern>();
        pattern->rows = rows;
        pattern->cols = cols;
        pattern->row_start.assign(rows + 1, 0);
        for (const std::size_t row : row_)
            ++pattern->row_start[row + 1];
        for (std::size_t row = 0; row < rows; ++row)
            pattern->row_start[row + 1] += pattern->row_start[row];
        std::vector<std::size_t> next(pattern->row_start.begin(), pattern->row_start.end() - 1);
        pattern->column.resize(row_.size());
        for (std::size_t i = 0; i < row_.size(); ++i) {
            slot_.push_back(next[row_[i]]++);
            pattern->column[slot_.back()] = column_[i];
        }
        return pattern;
    }
    /// Where pair i of add() stands among the entries.
    std::size_t slot(std::size_t i) const { return slot_[i]; }
    std::size_t size() const { return row_.size(); }

  private:
    std::vector<std::size_t> row_, slot_;
    std::vector<std::uint32_t> column_;
};

std::size_t out_size(std::size_t in, std::size_t kernel, std::size_t stride, std::size_t padding, std::size_t dilation)
{
    const std::size_t reach = dilation * (kernel - 1) + 1;
    if (kernel == 0 || stride == 0 || dilation == 0 || in + 2 * padding < reach)
        throw std::invalid_argument("scan: a window of " + std::to_string(kernel) + " with stride " +
                                    std::to_string(stride) + ", dilation " + std::to_string(dilation) +
                                    " and padding " + std::to_string(padding) + " does not fit an input of " +
                                    std::to_string(in));
    return (in + 2 * padding - reach) / stride + 1;
}

/// visit(input index within its channel, kernel index) for every input under the window of output (y, x).
template <typename Visit> void each_under(const Window &w, std::size_t y, std::size_t x, const Visit &visit)
{
    for (std::size_t ky = 0; ky < w.kernel_height; ++ky)
        for (std::size_t kx = 0; kx < w.kernel_width; ++kx) {
            const std::size_t row = y * w.stride_height + ky * w.dilation_height;
            const std::size_t column = x * w.stride_width + kx * w.dilation_width;
            if (row >= w.padding_height && row - w.padding_height < w.height && column >= w.padding_width &&
                column - w.padding_width < w.width)
                visit((row - w.padding_height) * w.width + column - w.padding_width, ky * w.kernel_width + kx);
        }
}

template <typename T, typename Derivative>
Operator<T> from_output(const T *output, std::size_t n, std::size_t batch, const Derivative &derivative)
{
    std::vector<T> values(output, output + n * batch);
    for (T &value : values)
        value = derivative(value);
    return make_diagonal(n, batch, std::move(values));
}

} // namespace

std::size_t Window::out_height() const
{
    return out_size(height, kernel_height, stride_height, padding_height, dilation_height);
}
std::size_t Window::out_width() const
{
    return out_size(width, kernel_width, stride_width, padding_width, dilation_width);
}

template <typename T> Operator<T> linear_jacobian(const T *weight, std::size_t out, std::size_t in)
{
    std::vector<T> values(out * in);
    for (std::size_t o = 0; o < out; ++o)
        for (std::size_t i = 0; i < in; ++i)
            values[i * out + o] = weight[o * in + i];
    return make_dense(in, out, 1, std::move(values));
}

template <typename T> Operator<T> sparse_linear_jacobian(const T *weight, std::size_t out, std::size_t in)
{
    Builder builder;
    std::vector<T> kept;
    for (std::size_t o = 0; o < out; ++o)
        for (std::size_t i = 0; i < in; ++i)
            if (weight[o * in + i] != 0) {
                builder.add(i, o);
                kept.push_back(weight[o * in + i]);
            }
    const PatternPtr pattern = builder.finish(in, out);
    std::vector<T> values(kept.size());
    for (std::size_t i = 0; i < kept.size(); ++i)
        values[builder.slot(i)] = kept[i];
    return make_csr(pattern, 1, std::move(values));
}

ConvJacobian::ConvJacobian(const Window &w, std::size_t in_channels, std::size_t out_channels, std::size_t groups,
                           const std::vector<bool> &keep)
{
    if (groups == 0 || in_channels % groups != 0 || out_channels % groups != 0)
        throw std::invalid_argument("scan: " + std::to_string(groups) + " groups do not divide " +
                                    std::to_string(in_channels) + " input and " + std::to_string(out_channels) +
                                    " output channels");
    const std::size_t ins = in_channels / groups, outs = out_channels / groups, area = w.kernel_height * w.kernel_width;
    if (!keep.empty() && keep.size() != out_channels * ins * area)
        throw std::invalid_argument("scan: a mask of " + std::to_string(keep.size()) +
                                    " weights for a convolution of " + std::to_string(out_channels * ins * area));
    const std::size_t out_height = w.out_height(), out_width = w.out_width();
    Builder builder;
    std::vector<std::size_t> source;
    for (std::size_t o = 0; o < out_channels; ++o)
        for (std::size_t y = 0; y < out_height; ++y)
            for (std::size_t x = 0; x < out_width; ++x)
                for (std::size_t i = 0; i < ins; ++i)
                    each_under(w, y, x, [&](std::size_t input, std::size_t kernel) {
                        const std::size_t weight = (o * ins + i) * area + kernel;
                        if (!keep.empty() && !keep[weight])
                            return;
                        builder.add((o / outs * ins + i) * w.height * w.width + input,
                                    (o * out_height + y) * out_width + x);
                        source.push_back(weight);
                    });
    pattern_ = builder.finish(in_channels * w.height * w.width, out_channels * out_height * out_width);
    source_.resize(source.size());
    for (std::size_t i = 0; i < source.size(); ++i)
        source_[builder.slot(i)] = source[i];
}

template <typename T> Operator<T> ConvJacobian::values(const T *weight) const
{
    std::vector<T> values(source_.size());
    for (std::size_t e = 0; e < source_.size(); ++e)
        values[e] = weight[source_[e]];
    return make_csr(pattern_, 1, std::move(values));
}

MaxPoolJacobian::MaxPoolJacobian(const Window &w, std::size_t channels)
{
    const std::size_t out_height = w.out_height(), out_width = w.out_width(), area = w.height * w.width;
    Builder builder;
    std::vector<std::size_t> row;
    for (std::size_t c = 0; c < channels; ++c)
        for (std::size_t y = 0; y < out_height; ++y)
            for (std::size_t x = 0; x < out_width; ++x) {
                first_.push_back(builder.size());
                each_under(w, y, x, [&](std::size_t input, std::size_t) {
                    builder.add(c * area + input, (c * out_height + y) * out_width + x);
                    row.push_back(c * area + input);
                });
            }
    first_.push_back(builder.size());
    pattern_ = builder.finish(channels * area, channels * out_height * out_width);
    for (std::size_t i = 0; i < row.size(); ++i)
        entry_.push_back(builder.slot(i));
    row_ = std::move(row);
}

template <typename T> Operator<T> MaxPoolJacobian::values(const T *input, std::size_t batch) const
{
    std::vector<T> values(batch * pattern_->entries());
    for (std::size_t b = 0; b < batch; ++b)
        for (std::size_t o = 0; o + 1 < first_.size(); ++o) {
            const T *const sample = input + b * pattern_->rows;
            std::size_t best = first_[o];
            for (std::size_t i = first_[o] + 1; i < first_[o + 1]; ++i)
                if (sample[row_[i]] > sample[row_[best]] || std::isnan(sample[row_[i]]))
                    best = i;
            if (first_[o] < first_[o + 1])
                values[b * pattern_->entries() + entry_[best]] = 1;
        }
    return make_csr(pattern_, batch, std::move(values));
}

template <typename T> Operator<T> average_pool_jacobian(const Window &w, std::size_t channels, bool count_padding)
{
    const std::size_t out_height = w.out_height(), out_width = w.out_width(), area = w.height * w.width;
    Builder builder;
    std::vector<T> share;
    for (std::size_t c = 0; c < channels; ++c)
        for (std::size_t y = 0; y < out_height; ++y)
            for (std::size_t x = 0; x < out_width; ++x) {
                const std::size_t before = builder.size();
                each_under(w, y, x, [&](std::size_t input, std::size_t) {
                    builder.add(c * area + input, (c * out_height + y) * out_width + x);
                });
                const std::size_t inside = builder.size() - before;
                const std::size_t divisor = count_padding ? w.kernel_height * w.kernel_width : inside;
                share.insert(share.end(), inside, T(1) / static_cast<T>(divisor));
            }
    const PatternPtr pattern = builder.finish(channels * area, channels * out_height * out_width);
    std::vector<T> values(share.size());
    for (std::size_t i = 0; i < share.size(); ++i)
        values[builder.slot(i)] = share[i];
    return make_csr(pattern, 1, std::move(values));
}

template <typename T> Operator<T> elementwise_jacobian(std::vector<T> derivative, std::size_t batch)
{
    if (batch == 0 || derivative.empty() || derivative.size() % batch != 0)
        throw std::invalid_argument("scan: " + std::to_string(derivative.size()) + " derivatives for a batch of " +
                                    std::to_string(batch));
    const std::size_t n = derivative.size() / batch;
    return make_diagonal(n, batch, std::move(derivative));
}

template <typename T> Operator<T> relu_jacobian(const T *output, std::size_t n, std::size_t batch)
{
    return from_output(output, n, batch, [](T y) { return y > 0 ? T(1) : T(0); });
}

template <typename T> Operator<T> tanh_jacobian(const T *output, std::size_t n, std::size_t batch)
{
    return from_output(output, n, batch, [](T y) { return 1 - y * y; });
}

template <typename T> Operator<T> sigmoid_jacobian(const T *output, std::size_t n, std::size_t batch)
{
    return from_output(output, n, batch, [](T y) { return y * (1 - y); });
}

template <typename T>
Operator<T> batch_norm_jacobian(const T *weight, const T *variance, T epsilon, std::size_t channels, std::size_t area)
{
    std::vector<T> values;
    for (std::size_t c = 0; c < channels; ++c)
        values.insert(values.end(), area, (weight ? weight[c] : T(1)) / std::sqrt(variance[c] + epsilon));
    return make_diagonal(channels * area, 1, std::move(values));
}

/// d x = w / (sigma m) (m g - sum g - xhat sum (g xhat)), m = batch x area: symmetric in input and output.
template <typename T>
Operator<T> batch_norm_training_jacobian(const T *input, const T *weight, T epsilon, std::size_t batch,
                                         std::size_t channels, std::size_t area)
{
    const std::size_t m = batch * area, n = m * channels;
    const auto at = [&](std::size_t c, std::size_t i) { return (i / area * channels + c) * area + i % area; };
    auto pattern = std::make_shared<Pattern>();
    pattern->rows = pattern->cols = n;
    pattern->row_start.push_back(0);
    std::vector<T> mean(channels), inverse(channels), values;
    for (std::size_t c = 0; c < channels; ++c) {
        T square = 0;
        for (std::size_t i = 0; i < m; ++i)
            mean[c] += input[at(c, i)] / static_cast<T>(m);
        for (std::size_t i = 0; i < m; ++i)
            square += (input[at(c, i)] - mean[c]) * (input[at(c, i)] - mean[c]) / static_cast<T>(m);
        inverse[c] = 1 / std::sqrt(square + epsilon);
    }
    for (std::size_t row = 0; row < n; ++row) {
        const std::size_t c = row / area % channels;
        const T mine = (input[row] - mean[c]) * inverse[c];
        for (std::size_t i = 0; i < m; ++i) {
            const std::size_t column = at(c, i);
            const T other = (input[column] - mean[c]) * inverse[c];
            pattern->column.push_back(static_cast<std::uint32_t>(column));
            values.push_back((weight ? weight[c] : T(1)) * inverse[c] *
                             ((row == column ? T(1) : T(0)) - (1 + mine * other) / static_cast<T>(m)));
        }
        pattern->row_start.push_back(pattern->column.size());
    }
    return make_csr(PatternPtr(pattern), 1, std::move(values));
}

#define JIGSAW_SCAN_INSTANTIATE(T)                                                                                     \
    template Operator<T> linear_jacobian(const T *, std::size_t, std::size_t);                                         \
    template Operator<T> sparse_linear_jacobian(const T *, std::size_t, std::size_t);                                  \
    template Operator<T> ConvJacobian::values(const T *) const;                                                        \
    template Operator<T> MaxPoolJacobian::values(const T *, std::size_t) const;                                        \
    template Operator<T> average_pool_jacobian(const Window &, std::size_t, bool);                                     \
    template Operator<T> elementwise_jacobian(std::vector<T>, std::size_t);                                            \
    template Operator<T> relu_jacobian(const T *, std::size_t, std::size_t);                                           \
    template Operator<T> tanh_jacobian(const T *, std::size_t, std::size_t);                                           \
    template Operator<T> sigmoid_jacobian(const T *, std::size_t, std::size_t);                                        \
    template Operator<T> batch_norm_jacobian(const T *, const T *, T, std::size_t, std::size_t);                       \
    template Operator<T> batch_norm_training_jacobian(const T *, const T *, T, std::size_t, std::size_t, std::size_t);
JIGSAW_SCAN_INSTANTIATE(float)
JIGSAW_SCAN_INSTANTIATE(double)
#undef JIGSAW_SCAN_INSTANTIATE

} // namespace jigsaw::scan
