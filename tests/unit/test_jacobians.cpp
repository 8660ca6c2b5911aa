// SPDX-License-Identifier: Apache-2.0
// Every feed-forward Jacobian, and chains of them, against autograd in double precision.
#include "runtime/scan/jacobians.hpp"
#include "runtime/scan/scan.hpp"

#include <ATen/ATen.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/lib/suite.hpp" // last: Check defines a macro `fail`

namespace {

using namespace jigsaw::scan;
using at::Tensor;

constexpr std::size_t kBatch = 3;

Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

std::vector<double> numbers(const Tensor &tensor)
{
    const Tensor flat = tensor.detach().contiguous();
    return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

/// The operator applied to a random gradient against autograd through `layer`.
void check_layer(const char *name, const Tensor &input, const std::function<Tensor(const Tensor &)> &layer,
                 const std::function<Operator<double>(const Tensor &in, const Tensor &out)> &jacobian,
                 std::size_t batch = kBatch)
{
    const Tensor x = input.detach().clone().set_requires_grad(true);
    const Tensor out = layer(x), g = random(out.sizes());
    out.backward(g);
    const Operator<double> op = jacobian(x, out);
    const std::vector<double> got = apply(op, numbers(g), batch, nullptr), wanted = numbers(x.grad());
    ck_assert_msg(got.size() == wanted.size(), "%s: %zu values, autograd has %zu", name, got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i)
        ck_assert_msg(std::abs(got[i] - wanted[i]) <= 1e-12 * (1 + std::abs(wanted[i])),
                      "%s: element %zu is %g, autograd says %g", name, i, got[i], wanted[i]);
}

double *data(const Tensor &tensor) { return tensor.data_ptr<double>(); }

START_TEST(linear)
{
    Tensor weight = random({5, 7});
    check_layer(
        "dense", random({kBatch, 7}), [&](const Tensor &x) { return at::linear(x, weight); },
        [&](const Tensor &, const Tensor &) { return linear_jacobian(data(weight), 5, 7); });
    weight = weight * at::bernoulli(at::full({5, 7}, 0.3, at::kDouble));
    check_layer(
        "pruned", random({kBatch, 7}), [&](const Tensor &x) { return at::linear(x, weight); },
        [&](const Tensor &, const Tensor &) { return sparse_linear_jacobian(data(weight), 5, 7); });
}
END_TEST

struct Conv {
    const char *name;
    std::size_t in = 4, out = 6, groups = 1;
    Window window;
};

START_TEST(convolution)
{
    const Conv rows[] = {
        {"3x3, pad 1", 4, 6, 1, {5, 6, 3, 3, 1, 1, 1, 1}},
        {"1x1", 4, 6, 1, {5, 6, 1, 1}},
        {"stride and uneven kernel", 4, 6, 1, {7, 8, 3, 2, 2, 3, 1, 0}},
        {"dilation", 4, 6, 1, {7, 8, 3, 3, 1, 2, 2, 1, 2, 1}},
        {"groups", 4, 6, 2, {5, 5, 3, 3, 1, 1, 1, 1}},
        {"depthwise", 4, 8, 4, {5, 5, 2, 2, 1, 1, 1, 1}},
        {"larger padding than kernel", 1, 1, 1, {2, 2, 2, 2, 3, 3, 3, 3}},
    };
    for (const Conv &row : rows) {
        const Window &w = row.window;
        const auto size = [](std::size_t value) { return static_cast<std::int64_t>(value); };
        const Tensor weight = random(
            {size(row.out), size(row.in / row.groups), size(w.kernel_height), size(w.kernel_width)});
        const ConvJacobian jacobian(w, row.in, row.out, row.groups);
        check_layer(
            row.name, random({kBatch, size(row.in), size(w.height), size(w.width)}),
            [&](const Tensor &x) {
                return at::conv2d(x, weight, {}, {size(w.stride_height), size(w.stride_width)},
                                  {size(w.padding_height), size(w.padding_width)},
                                  {size(w.dilation_height), size(w.dilation_width)}, size(row.groups));
            },
            [&](const Tensor &, const Tensor &) { return jacobian.values(data(weight)); });
    }
}
END_TEST

START_TEST(pruned_convolution)
{
    const Tensor weight = random({6, 4, 3, 3}) * at::bernoulli(at::full({6, 4, 3, 3}, 0.2, at::kDouble));
    std::vector<bool> keep;
    for (const double value : numbers(weight))
        keep.push_back(value != 0);
    const Window window{5, 6, 3, 3, 1, 1, 1, 1};
    const ConvJacobian pruned(window, 4, 6, 1, keep), full(window, 4, 6, 1);
    ck_assert_uint_lt(pruned.pattern()->entries(), full.pattern()->entries() / 2);
    check_layer(
        "pruned", random({kBatch, 4, 5, 6}), [&](const Tensor &x) { return at::conv2d(x, weight, {}, 1, 1); },
        [&](const Tensor &, const Tensor &) { return pruned.values(data(weight)); });
}
END_TEST

START_TEST(pooling)
{
    const Window tiles{6, 8, 2, 2, 2, 2}, overlapping{7, 7, 3, 3, 2, 2, 1, 1};
    for (const Window *w : {&tiles, &overlapping}) {
        const auto size = [](std::size_t value) { return static_cast<std::int64_t>(value); };
        const std::vector<std::int64_t> kernel{size(w->kernel_height), size(w->kernel_width)},
            stride{size(w->stride_height), size(w->stride_width)},
            padding{size(w->padding_height), size(w->padding_width)};
        const MaxPoolJacobian largest(*w, 2);
        const Tensor input = random({kBatch, 2, size(w->height), size(w->width)});
        for (const Tensor &x : {input, at::zeros_like(input)}) // zeros: all are equal
            check_layer(
                "max", x, [&](const Tensor &in) { return at::max_pool2d(in, kernel, stride, padding); },
                [&](const Tensor &in, const Tensor &) { return largest.values(data(in), kBatch); });
        for (const bool count : {true, false})
            check_layer(
                "average", input,
                [&](const Tensor &in) { return at::avg_pool2d(in, kernel, stride, padding, false, count); },
                [&](const Tensor &, const Tensor &) { return average_pool_jacobian<double>(*w, 2, count); });
    }
}
END_TEST

START_TEST(elementwise)
{
    const Tensor x = random({kBatch, 9});
    check_layer(
        "relu", x, [](const Tensor &in) { return at::relu(in); },
        [](const Tensor &, const Tensor &out) { return relu_jacobian(data(out), 9, kBatch); });
    check_layer(
        "tanh", x, [](const Tensor &in) { return at::tanh(in); },
        [](const Tensor &, const Tensor &out) { return tanh_jacobian(data(out), 9, kBatch); });
    check_layer(
        "sigmoid", x, [](const Tensor &in) { return at::sigmoid(in); },
        [](const Tensor &, const Tensor &out) { return sigmoid_jacobian(data(out), 9, kBatch); });
    check_layer(
        "softplus", x, [](const Tensor &in) { return at::softplus(in); },
        [](const Tensor &in, const Tensor &) { return elementwise_jacobian(numbers(at::sigmoid(in)), kBatch); });
}
END_TEST

START_TEST(batch_norm)
{
    const Tensor x = random({kBatch, 2, 3, 2}), weight = random({2}), bias = random({2}), mean = random({2});
    const Tensor variance = random({2}).abs();
    for (const bool affine : {true, false}) {
        const Tensor w = affine ? weight : Tensor(), b = affine ? bias : Tensor();
        const auto norm = [&](bool training) {
            return [&, training](const Tensor &in) {
                return at::batch_norm(in, w, b, mean.clone(), variance.clone(), training, 0.1, 1e-5, false);
            };
        };
        const double *const scale = affine ? data(weight) : nullptr;
        check_layer("evaluation", x, norm(false), [&](const Tensor &, const Tensor &) {
            return batch_norm_jacobian(scale, data(variance), 1e-5, 2, 6);
        });
        check_layer(
            "training", x, norm(true),
            [&](const Tensor &in, const Tensor &) {
                return batch_norm_training_jacobian(data(in), scale, 1e-5, kBatch, 2, 6);
            },
            1);
    }
}
END_TEST

/// conv, ReLU, max pool, conv, tanh, average pool, linear: g at every layer's input by all three ways.
START_TEST(a_network)
{
    const Tensor first = random({4, 2, 3, 3}), second = random({3, 4, 3, 3}), last = random({5, 12});
    std::vector<Tensor> at_layer{random({kBatch, 2, 8, 8}).set_requires_grad(true)};
    const auto then = [&](const Tensor &out) {
        at_layer.push_back(out);
        at_layer.back().retain_grad();
    };
    then(at::conv2d(at_layer.back(), first, {}, 1, 1));
    then(at::relu(at_layer.back()));
    then(at::max_pool2d(at_layer.back(), 2));
    then(at::conv2d(at_layer.back(), second, {}, 1, 1));
    then(at::tanh(at_layer.back()));
    then(at::avg_pool2d(at_layer.back(), 2));
    then(at::linear(at_layer.back().flatten(1), last));
    const Tensor g = random(at_layer.back().sizes());
    at_layer.back().backward(g);

    Stages<double> stages;
    stages.batch = kBatch;
    stages.seed = numbers(g);
    stages.operators.push_back(linear_jacobian(data(last), 5, 12));
    stages.operators.push_back(average_pool_jacobian<double>({4, 4, 2, 2, 2, 2}, 3));
    stages.operators.push_back(tanh_jacobian(data(at_layer[5]), 48, kBatch));
    stages.operators.push_back(ConvJacobian({4, 4, 3, 3, 1, 1, 1, 1}, 4, 3, 1).values(data(second)));
    stages.operators.push_back(MaxPoolJacobian({8, 8, 2, 2, 2, 2}, 4).values(data(at_layer[2]), kBatch));
    stages.operators.push_back(relu_jacobian(data(at_layer[2]), 256, kBatch));
    stages.operators.push_back(ConvJacobian({8, 8, 3, 3, 1, 1, 1, 1}, 2, 4, 1).values(data(first)));
    const std::vector<Gradients<double>> ways{scan_serial(stages), scan_chunked(stages, 3), scan_tree(stages, 9)};
    for (const Gradients<double> &gradients : ways)
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            const std::vector<double> wanted = numbers(at_layer[at_layer.size() - 1 - i].grad());
            ck_assert_uint_eq(gradients[i].size(), wanted.size());
            for (std::size_t k = 0; k < wanted.size(); ++k)
                ck_assert_msg(std::abs(gradients[i][k] - wanted[k]) < 1e-10, "stage %zu, element %zu", i, k);
        }
}
END_TEST

std::string refusal(const std::function<void()> &body)
{
    try {
        body();
    } catch (const std::invalid_argument &error) {
        return error.what();
    }
    return "";
}

START_TEST(shapes_that_cannot_be_are_named)
{
    ck_assert_str_eq(refusal([] {
                         ConvJacobian({2, 2, 3, 3}, 1, 1, 1);
                     }),
                     "scan: a window of 3 with stride 1, dilation 1 and padding 0 does not fit an input of 2");
    ck_assert_str_eq(refusal([] {
                         ConvJacobian({4, 4, 3, 3}, 3, 4, 2);
                     }),
                     "scan: 2 groups do not divide 3 input and 4 output channels");
    ck_assert_str_eq(refusal([] {
                         ConvJacobian({4, 4, 3, 3}, 1, 1, 1, {true});
                     }),
                     "scan: a mask of 1 weights for a convolution of 9");
    ck_assert_str_eq(refusal([] {
                         elementwise_jacobian<double>({1, 2, 3}, 2);
                     }),
                     "scan: 3 derivatives for a batch of 2");
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("jacobians");
    jigsaw::tests::add_case(suite, "layers",
                            {linear, convolution, pruned_convolution, pooling, elementwise, batch_norm});
    jigsaw::tests::add_case(suite, "networks", {a_network, shapes_that_cannot_be_are_named});
    return jigsaw::tests::run_tap(suite);
}
