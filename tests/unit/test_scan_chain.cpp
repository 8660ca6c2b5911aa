// SPDX-License-Identifier: Apache-2.0
// jigsaw::scan::Chain against the same torch::nn modules and ordinary autograd, in double precision.
#include <jigsaw/scan_chain.hpp>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/lib/suite.hpp" // last: Check defines a macro `fail`

namespace {

namespace nn = torch::nn;
namespace scan = jigsaw::scan;
using at::Tensor;

/// Every layer there is.
scan::Chain network()
{
    scan::Chain chain(nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)), nn::BatchNorm2d(4), nn::ReLU(),
                      nn::MaxPool2d(nn::MaxPool2dOptions(2)),
                      nn::Conv2d(nn::Conv2dOptions(4, 6, 3).padding(1).stride(2).groups(2)), nn::Tanh(),
                      nn::AvgPool2d(nn::AvgPool2dOptions(2)), nn::Flatten(), nn::Linear(6, 5), nn::Sigmoid(),
                      nn::Linear(5, 3));
    chain->to(at::kDouble);
    return chain;
}

struct Pass {
    Tensor output;
    std::vector<Tensor> grads; ///< of the input, then of every parameter
};

Pass pass(scan::Chain &chain, const std::string &way, const Tensor &x)
{
    chain->scan.way = way;
    chain->zero_grad();
    const Tensor in = x.detach().clone().set_requires_grad(true);
    Pass out{chain->forward(in), {}};
    at::manual_seed(8);
    (out.output * at::randn(out.output.sizes(), at::kDouble)).sum().backward();
    out.grads.push_back(in.grad());
    for (const auto &item : chain->named_parameters())
        out.grads.push_back(item.value().grad().clone());
    return out;
}

void check_equal(const Pass &got, const Pass &wanted, const std::string &what)
{
    ck_assert_msg(at::allclose(got.output, wanted.output, 1e-12, 1e-12), "%s: output", what.c_str());
    ck_assert_uint_eq(got.grads.size(), wanted.grads.size());
    for (std::size_t i = 0; i < got.grads.size(); ++i) {
        const double size = wanted.grads[i].norm().item<double>(),
                     gap = (got.grads[i] - wanted.grads[i]).norm().item<double>();
        // A bias in front of batch norm in training has no influence: both gradients are rounding errors.
        ck_assert_msg(gap <= 1e-10 * size || (size < 1e-12 && gap < 1e-12), "%s: gradient %zu is off by %g of %g",
                      what.c_str(), i, gap, size);
    }
}

START_TEST(equals_autograd)
{
    at::manual_seed(1);
    scan::Chain chain = network();
    const Tensor x = at::randn({3, 2, 8, 8}, at::kDouble);
    for (const bool training : {true, false}) {
        chain->train(training);
        const Pass wanted = pass(chain, "serial", x);
        for (const char *way : {"tree", "chunked", "automatic"}) {
            check_equal(pass(chain, way, x), wanted, std::string(way) + (training ? ", training" : ", evaluation"));
            ck_assert(!chain->status().fell_back);
        }
    }
    chain->scan.up_levels = 1;
    check_equal(pass(chain, "tree", x), pass(chain, "serial", x), "one level");
}
END_TEST

/// Magnitude pruning and ten steps of retraining under the mask: the loss curve is that of ordinary backpropagation.
std::vector<double> retrain(const std::string &way)
{
    at::manual_seed(2);
    scan::Chain chain = network();
    chain->scan.way = way;
    std::vector<Tensor> masks, weights;
    {
        torch::NoGradGuard no_grad;
        for (const auto &item : chain->named_parameters())
            if (item.value().dim() > 1) {
                Tensor weight = item.value();
                masks.push_back((weight.abs() > weight.abs().median() * 1.5).to(at::kDouble));
                weight.mul_(masks.back());
                weights.push_back(weight);
            }
    }
    const Tensor x = at::randn({4, 2, 8, 8}, at::kDouble), wanted = at::randn({4, 3}, at::kDouble);
    std::vector<double> out;
    for (int step = 0; step < 10; ++step) {
        chain->zero_grad();
        const Tensor loss = at::mse_loss(chain->forward(x), wanted);
        loss.backward();
        torch::NoGradGuard no_grad;
        for (Tensor parameter : chain->parameters())
            parameter.sub_(parameter.grad(), 0.05);
        for (std::size_t i = 0; i < weights.size(); ++i)
            weights[i].mul_(masks[i]);
        out.push_back(loss.item<double>());
    }
    return out;
}

START_TEST(pruned_networks_retrain_alike)
{
    const std::vector<double> serial = retrain("serial"), tree = retrain("tree");
    ck_assert(serial.back() < serial.front());
    for (std::size_t i = 0; i < serial.size(); ++i)
        ck_assert_msg(std::abs(serial[i] - tree[i]) < 1e-10, "step %zu", i);
}
END_TEST

std::string complaint(const std::function<void()> &body)
{
    try {
        body();
    } catch (const c10::Error &error) {
        return error.what_without_backtrace();
    }
    return "";
}

START_TEST(what_cannot_be_scanned_is_named)
{
    scan::Chain chain(nn::Linear(4, 4), nn::Dropout(0.5));
    chain->scan.way = "tree";
    const std::string text = complaint([&] { chain->forward(at::zeros({2, 4})); });
    ck_assert_msg(text.find("module 1 of the chain") != std::string::npos &&
                      text.find("has no Jacobian here") != std::string::npos,
                  "%s", text.c_str());
    chain->scan.way = "serial";
    ck_assert(chain->forward(at::zeros({2, 4})).defined());
    chain->scan.way = "quick";
    ck_assert(complaint([&] {
                  chain->forward(at::zeros({2, 4}));
              }).find("automatic, serial, chunked, tree") != std::string::npos);
    scan::Chain one(nn::Linear(4, 4));
    one->scan.way = "tree";
    ck_assert(complaint([&] { one->forward(at::zeros({0, 4})); }).find("[0, 4]") != std::string::npos);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("scan_chain");
    jigsaw::tests::add_case(suite, "chain",
                            {equals_autograd, pruned_networks_retrain_alike, what_cannot_be_scanned_is_named});
    return jigsaw::tests::run_tap(suite);
}
