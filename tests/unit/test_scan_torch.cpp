// SPDX-License-Identifier: Apache-2.0
// jigsaw::scan's recurrent modules against torch::nn's with the same parameters: outputs, final states and every gradient,
// in double precision, whichever way the backward pass takes.
#include <jigsaw/scan.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "tests/lib/suite.hpp" // last: Check defines a macro `fail`

namespace {

namespace nn = torch::nn;
namespace scan = jigsaw::scan;
using at::Tensor;

constexpr double kClose = 1e-10;

struct Case {
    const char *name;
    int steps = 7, batch = 3, input = 4, hidden = 5, layers = 1;
    bool both = false, batch_first = false, bias = true;
    const char *way = "automatic";
    std::size_t limit = 0;
};

const Case kCases[] = {
    {"plain"},
    {"one step", 1},
    {"one element", 6, 2, 1, 1},
    {"one sample", 9, 1},
    {"wide", 5, 6, 3, 37},
    {"layers", 6, 3, 4, 5, 3},
    {"both directions", 6, 3, 4, 5, 2, true},
    {"batch first, no bias", 6, 3, 4, 5, 2, true, true, false},
    {"serial", 12, 5, 4, 5, 1, false, false, true, "serial"},
    {"split", 12, 5, 4, 5, 1, false, false, true, "split"},
    {"chunked", 12, 5, 4, 5, 1, true, false, true, "chunked"},
    {"tree", 33, 3, 4, 5, 2, true, false, true, "tree"},
    {"tree, one step", 1, 3, 4, 5, 1, true, false, true, "tree"},
    {"memory limit", 23, 3, 4, 5, 2, true, false, true, "automatic", 4500},
    {"memory limit, tree", 23, 3, 4, 5, 2, true, false, true, "tree", 4500},
};

struct Rnn {
    using Ours = scan::RNNImpl;
    using Theirs = nn::RNNImpl;
    static nn::RNNOptions options(const Case &c) { return nn::RNNOptions(c.input, c.hidden); }
};
struct ReluRnn : Rnn {
    static nn::RNNOptions options(const Case &c)
    {
        return nn::RNNOptions(c.input, c.hidden).nonlinearity(torch::kReLU);
    }
};
struct Gru {
    using Ours = scan::GRUImpl;
    using Theirs = nn::GRUImpl;
    static nn::GRUOptions options(const Case &c) { return nn::GRUOptions(c.input, c.hidden); }
};
struct Lstm {
    using Ours = scan::LSTMImpl;
    using Theirs = nn::LSTMImpl;
    static nn::LSTMOptions options(const Case &c) { return nn::LSTMOptions(c.input, c.hidden); }
};

template <typename Kind> auto options_of(const Case &c)
{
    auto options = Kind::options(c);
    options.num_layers(c.layers).bidirectional(c.both).batch_first(c.batch_first).bias(c.bias);
    return options;
}

/// Both modules with the same double parameters.
template <typename Kind> struct Two {
    std::shared_ptr<typename Kind::Ours> ours;
    std::shared_ptr<typename Kind::Theirs> theirs;
    template <typename Options> explicit Two(const Options &options)
    {
        at::manual_seed(7);
        theirs = std::make_shared<typename Kind::Theirs>(options);
        at::manual_seed(7);
        ours = std::make_shared<typename Kind::Ours>(options);
        theirs->to(torch::kDouble);
        ours->to(torch::kDouble);
    }
};

using Tensors = std::vector<Tensor>;

/// Outputs in one list, whatever the module's return type is.
Tensors flat(const std::tuple<Tensor, Tensor> &out) { return {std::get<0>(out), std::get<1>(out)}; }
Tensors flat(const std::tuple<Tensor, std::tuple<Tensor, Tensor>> &out)
{
    return {std::get<0>(out), std::get<0>(std::get<1>(out)), std::get<1>(std::get<1>(out))};
}
template <typename State> Tensors flat(const std::tuple<nn::utils::rnn::PackedSequence, State> &out)
{
    return flat(std::tuple<Tensor, State>(std::get<0>(out).data(), std::get<1>(out)));
}

template <typename Module> auto state_for(const Module &, const Tensor &h, const Tensor &c)
{
    if constexpr (std::is_base_of_v<nn::LSTMImpl, Module>)
        return std::tuple<Tensor, Tensor>(h, c);
    else
        return h;
}

/// Gradients of x, h, c (undefined but for the LSTM) and every parameter, of a loss that weighs all outputs differently.
template <typename Module> Tensors gradients(Module &module, const Tensors &outputs, const Tensors &inputs)
{
    at::manual_seed(11);
    Tensor loss = at::zeros({}, outputs[0].options());
    for (const Tensor &output : outputs)
        loss = loss + (output * at::randn(output.sizes(), output.options().requires_grad(false))).sum();
    module.zero_grad();
    for (Tensor input : inputs)
        input.mutable_grad() = Tensor();
    loss.backward();
    Tensors out;
    for (const Tensor &input : inputs)
        out.push_back(input.grad());
    for (const auto &item : module.named_parameters())
        out.push_back(item.value().grad().clone());
    return out;
}

double difference(const Tensor &got, const Tensor &wanted)
{
    if (!wanted.defined() || !got.defined())
        return wanted.defined() == got.defined() ? 0 : 1;
    return (got - wanted).norm().item<double>() / std::max(wanted.norm().item<double>(), 1e-300);
}

void compare(const Tensors &got, const Tensors &wanted, const std::string &what, double limit = kClose)
{
    ck_assert_uint_eq(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i)
        ck_assert_msg(difference(got[i], wanted[i]) <= limit, "%s, tensor %zu of %zu: off by %g", what.c_str(), i,
                      got.size(), difference(got[i], wanted[i]));
}

struct Inputs {
    Tensor x, h, c;
    explicit Inputs(const Case &k, bool batch_first)
    {
        at::manual_seed(3);
        const auto options = at::TensorOptions(at::kDouble);
        x = batch_first ? at::randn({k.batch, k.steps, k.input}, options)
                        : at::randn({k.steps, k.batch, k.input}, options);
        h = at::randn({k.layers * (k.both ? 2 : 1), k.batch, k.hidden}, options);
        c = at::randn_like(h);
        for (Tensor *tensor : {&x, &h, &c})
            tensor->set_requires_grad(true);
    }
    Tensors all() const { return {x, h, c}; }
};

template <typename Kind> void check_case(const Case &c)
{
    Two<Kind> two(options_of<Kind>(c));
    two.ours->scan.way = c.way;
    two.ours->scan.memory_limit_bytes = c.limit;
    const Inputs in(c, c.batch_first);
    const auto state = state_for(*two.ours, in.h, in.c);
    const Tensors wanted = flat(two.theirs->forward(in.x, state)), got = flat(two.ours->forward(in.x, state));
    compare(got, wanted, std::string(c.name) + ", outputs");
    const Tensors wanted_grads = gradients(*two.theirs, wanted, in.all());
    compare(gradients(*two.ours, got, in.all()), wanted_grads, std::string(c.name) + ", gradients");
    if (std::string(c.way) != "automatic")
        ck_assert_str_eq(two.ours->status().way, c.way);
    ck_assert(c.limit == 0 || two.ours->status().stretches > 1);
    ck_assert(!two.ours->status().fell_back);
    compare(flat(two.ours->forward(in.x)), flat(two.theirs->forward(in.x)), std::string(c.name) + ", no state given");
}

template <typename Kind> void check_all()
{
    for (const Case &c : kCases)
        check_case<Kind>(c);
}

START_TEST(rnn_equals_torch) { check_all<Rnn>(); }
END_TEST
START_TEST(relu_rnn_equals_torch) { check_all<ReluRnn>(); }
END_TEST
START_TEST(gru_equals_torch) { check_all<Gru>(); }
END_TEST
START_TEST(lstm_equals_torch) { check_all<Lstm>(); }
END_TEST

template <typename Kind> void check_packed(const char *way, std::size_t limit)
{
    const Case c{"packed", 6, 4, 4, 5, 2, true};
    Two<Kind> two(options_of<Kind>(c));
    two.ours->scan.way = way;
    two.ours->scan.memory_limit_bytes = limit;
    const Inputs in(c, false);
    const auto packed = nn::utils::rnn::pack_padded_sequence(in.x, torch::tensor({2, 6, 1, 4}), false, false);
    const auto state = state_for(*two.ours, in.h, in.c);
    const Tensors wanted = flat(two.theirs->forward_with_packed_input(packed, state));
    const Tensors wanted_grads = gradients(*two.theirs, wanted, in.all());
    const auto again = nn::utils::rnn::pack_padded_sequence(in.x, torch::tensor({2, 6, 1, 4}), false, false);
    const Tensors got = flat(two.ours->forward_with_packed_input(again, state));
    compare(got, wanted, "packed, outputs");
    compare(gradients(*two.ours, got, in.all()), wanted_grads, "packed, gradients");
}

START_TEST(packed_sequences_equal_torch)
{
    for (const char *way : {"automatic", "split", "tree"})
        for (const std::size_t limit : {std::size_t{0}, std::size_t{6000}}) {
            check_packed<Rnn>(way, limit);
            check_packed<Gru>(way, limit);
            check_packed<Lstm>(way, limit);
        }
}
END_TEST

START_TEST(dropout_between_layers_equals_torch)
{
    Two<Gru> two(options_of<Gru>({"dropout", 6, 3, 4, 5, 3, true}).dropout(0.4));
    const Inputs in({"dropout", 6, 3, 4, 5, 3, true}, false);
    at::manual_seed(5);
    const Tensors wanted = flat(two.theirs->forward(in.x, in.h));
    const Tensors wanted_grads = gradients(*two.theirs, wanted, in.all());
    at::manual_seed(5);
    const Tensors got = flat(two.ours->forward(in.x, in.h));
    compare(got, wanted, "dropout, outputs");
    compare(gradients(*two.ours, got, in.all()), wanted_grads, "dropout, gradients");
    two.ours->eval();
    two.theirs->eval();
    compare(flat(two.ours->forward(in.x, in.h)), flat(two.theirs->forward(in.x, in.h)), "evaluation");
}
END_TEST

START_TEST(tensors_of_any_layout)
{
    const Case c{"layout"};
    Two<Lstm> two(options_of<Lstm>(c));
    const Inputs in(c, false);
    const Tensor x = at::randn({c.input, c.batch, c.steps}, in.x.options()).permute({2, 1, 0}).set_requires_grad(true);
    ck_assert(!x.is_contiguous());
    const Tensors wanted = flat(two.theirs->forward(x)), got = flat(two.ours->forward(x));
    compare(got, wanted, "layout, outputs");
    const Tensors wanted_grads = gradients(*two.theirs, wanted, {x});
    compare(gradients(*two.ours, got, {x}), wanted_grads, "layout, gradients");
}
END_TEST

START_TEST(single_precision)
{
    for (const char *way : {"serial", "tree", "chunked"}) {
        const Case c{"float", 200, 2, 3, 20};
        Two<Gru> two(options_of<Gru>(c));
        const Inputs in(c, false);
        const Tensors wanted = flat(two.theirs->forward(in.x));
        const Tensors wanted_grads = gradients(*two.theirs, wanted, {in.x});
        two.ours->to(torch::kFloat);
        two.ours->scan.way = way;
        const Tensor x = in.x.detach().to(at::kFloat).set_requires_grad(true);
        at::manual_seed(11);
        const auto [output, last] = two.ours->forward(x);
        // The same weights of the loss as gradients() draws, in double.
        const auto draw = [&](const Tensor &like) {
            return at::randn(like.sizes(), at::TensorOptions(at::kDouble)).to(at::kFloat);
        };
        const Tensor first = (output * draw(output)).sum();
        (first + (last * draw(last)).sum()).backward();
        ck_assert_msg(difference(x.grad().to(at::kDouble), wanted_grads[0]) < 1e-4, "%s", way);
    }
}
END_TEST

/// The message of what `body` throws, "" if nothing.
std::string complaint(const std::function<void()> &body)
{
    try {
        body();
    } catch (const c10::Error &error) {
        return error.what_without_backtrace();
    }
    return "";
}

void ck_says(const std::string &text, const std::string &wanted)
{
    ck_assert_msg(text.find(wanted) != std::string::npos, "\"%s\" does not say \"%s\"", text.c_str(), wanted.c_str());
}

START_TEST(bad_input_is_named)
{
    const Case c{"bad"};
    scan::GRU gru(options_of<Gru>(c));
    scan::LSTM lstm(options_of<Lstm>(c));
    ck_says(complaint([&] { gru->forward(at::zeros({0, 3, 4})); }), "a sequence of 0 steps; give at least 1");
    ck_says(complaint([&] { gru->forward(at::zeros({7, 3, 9})); }), "9");
    ck_says(complaint([&] { gru->forward(at::zeros({7, 3, 4}), at::zeros({1, 2, 5})); }), "hidden size");
    ck_says(complaint([&] {
                lstm->forward(at::zeros({7, 3, 4}), std::make_tuple(at::zeros({1, 3, 5}), at::zeros({2, 3, 5})));
            }),
            "size");
    ck_assert(complaint([&] { gru->forward(at::zeros({7, 4})); }) != "");
    gru->scan.way = "fastest";
    ck_says(complaint([&] {
                gru->forward(at::zeros({7, 3, 4}));
            }),
            "scan way 'fastest'; there are: automatic, serial, split, chunked, tree");
    gru->scan.way = "automatic";
    gru->scan.memory_limit_bytes = 100;
    ck_says(complaint([&] {
                gru->forward(at::zeros({7, 3, 4}));
            }),
            "one step of this gru (batch 3, hidden size 5) needs 780");
}
END_TEST

START_TEST(an_empty_batch_is_empty)
{
    scan::GRU gru(4, 5);
    const Tensor x = at::zeros({7, 0, 4}).set_requires_grad(true);
    const auto [output, last] = gru->forward(x);
    ck_assert(output.sizes() == at::IntArrayRef({7, 0, 5}));
    output.sum().backward();
    ck_assert_double_eq(gru->all_weights()[0].grad().abs().sum().item<double>(), 0);
}
END_TEST

START_TEST(non_finite_values_go_where_torch_puts_them)
{
    for (const char *way : {"serial", "tree", "chunked"}) {
        Case c{"non-finite", 8, 2, 4, 5};
        Two<Gru> two(options_of<Gru>(c));
        two.ours->scan.way = way;
        Inputs in(c, false);
        {
            torch::NoGradGuard no_grad;
            in.x[5][1][2] = std::numeric_limits<double>::quiet_NaN();
        }
        const Tensors wanted = flat(two.theirs->forward(in.x)), got = flat(two.ours->forward(in.x));
        const Tensors wanted_grads = gradients(*two.theirs, wanted, {in.x}), grads = gradients(*two.ours, got, {in.x});
        for (std::size_t i = 0; i < wanted_grads.size(); ++i)
            ck_assert_msg(at::equal(at::isnan(grads[i]), at::isnan(wanted_grads[i])), "%s, tensor %zu", way, i);
        ck_assert(at::equal(at::isnan(got[0]), at::isnan(wanted[0])));
    }
}
END_TEST

START_TEST(drop_in)
{
    scan::GRU ours(4, 5);
    nn::GRU theirs(4, 5);
    std::stringstream file;
    torch::save(theirs, file);
    torch::load(ours, file);
    const Tensor x = at::randn({7, 3, 4});
    compare({std::get<0>(ours->forward(x))}, {std::get<0>(theirs->forward(x))}, "loaded", 1e-6);
    const auto copy = std::dynamic_pointer_cast<scan::GRUImpl>(ours->clone());
    ck_assert_ptr_nonnull(copy.get());
    compare({std::get<0>(copy->forward(x))}, {std::get<0>(theirs->forward(x))}, "cloned", 1e-6);
    ck_assert(!copy->all_weights()[0].is_same(ours->all_weights()[0]));

    scan::LSTM projected(nn::LSTMOptions(4, 5).proj_size(2));
    ck_assert(std::get<0>(projected->forward(x)).size(2) == 2);

    const Tensor again = at::randn({7, 3, 4}).set_requires_grad(true);
    ck_says(complaint([&] {
                torch::autograd::grad({std::get<0>(ours->forward(again)).sum()}, {again}, {}, {},
                                      /*create_graph=*/true);
            }),
            "gradients of gradients");
    const auto [output, last] = ours->forward(again);
    output.sum().backward({}, /*keep_graph=*/true);
    const Tensor once = again.grad().clone();
    output.sum().backward();
    compare({again.grad()}, {once * 2}, "backward twice", 1e-6);
    ck_says(ours->status().explain(), "<- taken");
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("scan_torch");
    jigsaw::tests::add_case(suite, "recurrent",
                            {rnn_equals_torch, relu_rnn_equals_torch, gru_equals_torch, lstm_equals_torch,
                             packed_sequences_equal_torch, dropout_between_layers_equals_torch, tensors_of_any_layout,
                             single_precision});
    jigsaw::tests::add_case(
        suite, "edges",
        {bad_input_is_named, an_empty_batch_is_empty, non_finite_values_go_where_torch_puts_them, drop_in});
    return jigsaw::tests::run_tap(suite);
}
