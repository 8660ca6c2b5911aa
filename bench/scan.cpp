// SPDX-License-Identifier: Apache-2.0
// What backpropagation as a scan gives on this machine, all against LibTorch in the same run. One JSON object per line.
//
//     max_rel_err                      worst tensor's ||g - g*|| / ||g*|| against autograd in float64 (input, initial state and
//                                      parameters); max_rel_err_per_step: of the input's gradient, step by step, wherever
//                                      ||g*_t|| is above 1e-30 of the largest
//     critical_path_levels             levels of dependent products of the full tree, counted; the formula beside it
//     backward_speedup_vs_libtorch     time of torch::nn's backward over ours, medians of interleaved pairs; and
//     forward_speedup_vs_libtorch      the same of forward
//     geomean_, worst_backward_speedup over the table
//     backward_ns_per_step             against T at fixed cores
//     chosen_vs_serial                 our choice against our own serial way
//     diagonal_speedup                 a diagonal recurrence on one and on all cores
//     simulated_speedup                of the tree with P processors over the serial way: products per level as counted,
//                                      costs per product as measured, no cost for waking processors. Not a measurement.
//     pruned_critical_multiplications_ratio   multiplications on the costliest dependent chain of the tree over those of
//                                      ordinary backpropagation through the same sparse Jacobians
//     peak_bytes                       tensor bytes live at the peak of forward + backward, counted by the allocator; formula
//     loss_gap                         largest difference of the loss curves over 200 steps of the bitstream task
//
// Usage: bench/scan [--quick] [--explain] [exactness|levels|speed|scaling|diagonal|simulated|pruned|training|memory]...
#include "bench/bench.hpp"
#include "runtime/scan/cost.hpp"
#include "runtime/scan/diagonal.hpp"
#include "runtime/scan/jacobians.hpp"

#include <jigsaw/scan.hpp>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace {

namespace nn = torch::nn;
namespace scan = jigsaw::scan;
using at::Tensor;
using jigsaw::bench::Line;

bool quick = false, explaining = false;

double seconds_of(const std::function<void()> &body)
{
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values)
{
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

struct Rnn {
    static constexpr const char *kName = "rnn";
    static constexpr scan::Cell kCell = scan::Cell::rnn_tanh;
    using Ours = scan::RNNImpl;
    using Theirs = nn::RNNImpl;
};
struct Gru {
    static constexpr const char *kName = "gru";
    static constexpr scan::Cell kCell = scan::Cell::gru;
    using Ours = scan::GRUImpl;
    using Theirs = nn::GRUImpl;
};
struct Lstm {
    static constexpr const char *kName = "lstm";
    static constexpr scan::Cell kCell = scan::Cell::lstm;
    using Ours = scan::LSTMImpl;
    using Theirs = nn::LSTMImpl;
};

template <typename Module> std::shared_ptr<Module> make(std::int64_t input, std::int64_t hidden, at::ScalarType type)
{
    at::manual_seed(1);
    auto module = std::make_shared<Module>(input, hidden);
    module->to(type);
    return module;
}

template <typename Out> Tensor output_of(const Out &out) { return std::get<0>(out); }

// ---- exactness ----

/// Gradients of the input and all parameters where every step's output has its own weight in the loss.
template <typename Module>
std::vector<Tensor> gradients(Module &module, const Tensor &x, const Tensor &weights, bool last_only)
{
    Tensor in = x.detach().clone().set_requires_grad(true);
    const Tensor output = output_of(module.forward(in));
    const Tensor scored = last_only ? output[output.size(0) - 1] : output;
    (scored * (last_only ? weights[output.size(0) - 1] : weights)).sum().backward();
    std::vector<Tensor> out{in.grad().to(at::kDouble)};
    for (const Tensor &parameter : module.parameters())
        out.push_back(parameter.grad().to(at::kDouble));
    return out;
}

double relative(const Tensor &got, const Tensor &wanted)
{
    return ((got - wanted).norm() / wanted.norm()).item<double>();
}

double worst_step(const Tensor &got, const Tensor &wanted)
{
    const Tensor size = wanted.flatten(1).norm(2, 1), gap = (got - wanted).flatten(1).norm(2, 1);
    const Tensor counted = size > size.max() * 1e-30;
    return (gap.masked_select(counted) / size.masked_select(counted)).max().item<double>();
}

template <typename Kind> void exactness_of(std::int64_t steps, const char *way, at::ScalarType type, bool last_only)
{
    const std::int64_t batch = 2, input = 1, hidden = 20;
    const auto theirs = make<typename Kind::Theirs>(input, hidden, at::kDouble);
    const auto ours = make<typename Kind::Ours>(input, hidden, at::kDouble);
    ours->to(type);
    ours->scan.way = way;
    at::manual_seed(2);
    const Tensor x = at::bernoulli(at::full({steps, batch, input}, 0.5, at::kDouble));
    const Tensor weights = at::randn({steps, batch, hidden}, at::kDouble);
    const auto wanted = gradients(*theirs, x, weights, last_only);
    const auto got = gradients(*ours, x.to(type), weights.to(type), last_only);
    double worst = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i)
        worst = std::max(worst, relative(got[i], wanted[i]));
    const char *const dtype = type == at::kFloat ? "float32" : "float64";
    const auto line = [&](const char *metric, double value) {
        Line("scan", metric, value, "1")
            .with("cell", Kind::kName)
            .with("T", steps)
            .with("way", way)
            .with("dtype", dtype)
            .with("gradient_enters", last_only ? "last step" : "every step")
            .with("fell_back", ours->status().fell_back);
    };
    line("max_rel_err", worst);
    line("max_rel_err_per_step", worst_step(got[0], wanted[0]));
}

void exactness()
{
    const std::vector<std::int64_t> all{10, 1000, 10000, 30000}, few{10, 1000};
    for (const std::int64_t steps : quick ? few : all)
        for (const char *way : {"serial", "chunked", "tree"})
            for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
                exactness_of<Rnn>(steps, way, type, false);
                exactness_of<Rnn>(steps, way, type, true);
                exactness_of<Gru>(steps, way, type, false);
                if (steps <= 1000)
                    exactness_of<Lstm>(steps, way, type, false);
            }
}

// ---- levels ----

void levels()
{
    for (const std::size_t steps : {10u, 30u, 100u, 300u, 1000u, 3000u, 10000u, 30000u}) {
        scan::Stages<double> stages;
        stages.seed = {1};
        stages.operators.assign(steps, scan::make_diagonal<double>(1, 1, {1}));
        const std::size_t full = scan::full_up_levels(steps), cut = full > 3 ? full - 3 : full;
        for (const std::size_t up : {full, cut}) {
            scan::Report report;
            scan::scan_tree(stages, up, {}, nullptr, &report);
            const auto bound = 2 * static_cast<std::size_t>(std::ceil(std::log2(static_cast<double>(steps))));
            Line("scan", "critical_path_levels", static_cast<double>(report.levels.size()), "levels")
                .with("T", steps)
                .with("up_levels", up)
                .with("formula", scan::tree_levels(steps, up))
                .with("middle", scan::tree_middle(steps, up))
                .with("equal", report.levels.size() == scan::tree_levels(steps, up))
                .with("paper_bound_without_middle", bound)
                .with("longest_dependent_chain", report.critical_products);
        }
    }
}

// ---- speed ----

struct Times {
    double forward = 0, backward = 0;
};

template <typename Module> Times time_once(Module &module, const Tensor &x)
{
    Times times;
    Tensor output;
    module.zero_grad();
    times.forward = seconds_of([&] { output = output_of(module.forward(x)); });
    const Tensor grad = at::ones_like(output);
    times.backward = seconds_of([&] { output.backward(grad); });
    return times;
}

struct Table {
    double log_sum = 0, worst = 1e9;
    int rows = 0;
    void add(double ratio)
    {
        log_sum += std::log(ratio);
        worst = std::min(worst, ratio);
        ++rows;
    }
    double geomean() const { return std::exp(log_sum / rows); }
};

/// Medians of interleaved pairs: fewer for rows that take long.
template <typename First, typename Second>
std::pair<Times, Times> interleaved(First &first, Second &second, const Tensor &x, int pairs)
{
    std::vector<double> a_forward, a_backward, b_forward, b_backward;
    time_once(first, x);
    time_once(second, x);
    for (int i = 0; i < pairs; ++i) {
        const Times a = time_once(first, x), b = time_once(second, x);
        a_forward.push_back(a.forward), a_backward.push_back(a.backward);
        b_forward.push_back(b.forward), b_backward.push_back(b.backward);
    }
    return {{median(a_forward), median(a_backward)}, {median(b_forward), median(b_backward)}};
}

int pairs_for(std::int64_t steps, std::int64_t batch)
{
    return quick ? 3 : steps * batch >= 160000 ? 3 : steps >= 10000 ? 5 : 15;
}

template <typename Kind> void speed_of(Table *table, std::int64_t steps, std::int64_t batch, std::int64_t hidden)
{
    const auto theirs = make<typename Kind::Theirs>(20, hidden, at::kFloat);
    const auto ours = make<typename Kind::Ours>(20, hidden, at::kFloat);
    const Tensor x = at::randn({steps, batch, 20});
    const int pairs = pairs_for(steps, batch);
    const auto [base, scanned] = interleaved(*theirs, *ours, x, pairs);
    const double backward = base.backward / scanned.backward;
    table->add(backward);
    const auto line = [&](const char *metric, double value, bool headline) {
        Line out("scan", metric, value, "x");
        out.with("cell", Kind::kName)
            .with("T", steps)
            .with("batch", batch)
            .with("h", hidden)
            .with("way", ours->status().way)
            .with("pairs", pairs)
            .with("threads", at::get_num_threads());
        if (headline)
            out.headline();
    };
    line("backward_speedup_vs_libtorch", backward, steps == 1000 && batch == 16 && hidden == 20);
    line("forward_speedup_vs_libtorch", base.forward / scanned.forward, false);
    Line("scan", "backward_ms", scanned.backward * 1e3, "ms")
        .with("cell", Kind::kName)
        .with("T", steps)
        .with("batch", batch)
        .with("h", hidden)
        .with("libtorch_ms", base.backward * 1e3);
    if (explaining)
        std::fprintf(stderr, "%s", ours->status().explain().c_str());
}

template <typename Kind> void speed_table()
{
    Table table;
    for (const std::int64_t steps : {10, 100, 1000, 10000})
        for (const std::int64_t batch : {1, 16, 64})
            for (const std::int64_t hidden : {20, 64})
                if (!quick || steps * batch <= 16000)
                    speed_of<Kind>(&table, steps, batch, hidden);
    Line("scan", "geomean_backward_speedup", table.geomean(), "x")
        .with("cell", Kind::kName)
        .with("rows", table.rows)
        .headline();
    Line("scan", "worst_backward_speedup", table.worst, "x")
        .with("cell", Kind::kName)
        .with("rows", table.rows)
        .headline();
}

/// Our choice against our own serial way, so that a wrong estimate shows.
template <typename Kind> void choice_table()
{
    Table table;
    for (const std::int64_t steps : {10, 100, 1000})
        for (const std::int64_t batch : {1, 2, 16, 64}) {
            const auto serial = make<typename Kind::Ours>(20, 20, at::kFloat),
                       chosen = make<typename Kind::Ours>(20, 20, at::kFloat);
            serial->scan.way = "serial";
            const Tensor x = at::randn({steps, batch, 20});
            const auto [base, picked] = interleaved(*serial, *chosen, x, 15);
            table.add(base.backward / picked.backward);
            Line("scan", "chosen_vs_serial", base.backward / picked.backward, "x")
                .with("cell", Kind::kName)
                .with("T", steps)
                .with("batch", batch)
                .with("h", 20)
                .with("way", chosen->status().way);
        }
    Line("scan", "geomean_chosen_vs_serial", table.geomean(), "x").with("cell", Kind::kName).with("worst", table.worst);
}

void speed()
{
    speed_table<Rnn>();
    speed_table<Gru>();
    if (!quick)
        speed_table<Lstm>();
    choice_table<Rnn>();
    choice_table<Gru>();
}

void scaling()
{
    for (const std::int64_t steps : {100, 300, 1000, 3000, 10000, 30000}) {
        const auto ours = make<scan::GRUImpl>(20, 20, at::kFloat);
        const Tensor x = at::randn({steps, 16, 20});
        std::vector<double> times;
        for (int i = 0; i < 5; ++i)
            times.push_back(time_once(*ours, x).backward);
        Line("scan", "backward_ns_per_step", median(times) * 1e9 / static_cast<double>(steps), "ns")
            .with("cell", "gru")
            .with("T", steps)
            .with("batch", 16)
            .with("h", 20);
    }
}

// ---- diagonal recurrences ----

void diagonal()
{
    const std::size_t steps = 200000, width = 16;
    std::vector<float> factor(steps * width, 0.9f), add(steps * width, 0.1f), state(steps * width);
    const auto once = [&](const scan::Parallel &parallel) {
        return seconds_of(
            [&] { scan::diagonal_recurrence(steps, width, factor.data(), add.data(), state.data(), parallel); });
    };
    const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
    const scan::Parallel one, all = scan::plain_threads(cores);
    std::vector<double> alone, together;
    for (int i = 0; i < 15; ++i)
        alone.push_back(once(one)), together.push_back(once(all));
    Line("scan", "diagonal_speedup", median(alone) / median(together), "x")
        .with("cores", cores)
        .with("T", steps)
        .with("width", width);
}

// ---- simulated processors ----

void simulated()
{
    const std::size_t hidden = 20, steps = 10000;
    const std::vector<float> values(hidden * hidden, 0.01f), vector(hidden, 1);
    const auto matrix = scan::make_dense<float>(hidden, hidden, 1, values);
    scan::SymbolicCache cache;
    const auto cost = [](const std::function<void()> &body) {
        double best = 1;
        for (int i = 0; i < 200; ++i)
            best = std::min(best, seconds_of(body));
        return best;
    };
    const double product = cost([&] { scan::compose(matrix, matrix, 1, &cache, nullptr); });
    const double apply = cost([&] { scan::apply(matrix, vector, 1, nullptr); });
    scan::Stages<float> stages;
    stages.seed = {1};
    stages.operators.assign(steps, scan::make_diagonal<float>(1, 1, {1}));
    for (std::size_t processors = 1; processors <= 4096; processors *= 4) {
        double best = 1e9;
        for (std::size_t up = 0; up <= scan::full_up_levels(steps); ++up) {
            scan::Report report;
            scan::scan_tree(stages, up, {}, nullptr, &report);
            double time = 0;
            for (const scan::Level &level : report.levels)
                time += std::ceil(static_cast<double>(level.matrix_products) / static_cast<double>(processors)) *
                            product +
                        std::ceil(static_cast<double>(level.vector_products) / static_cast<double>(processors)) * apply;
            best = std::min(best, time);
        }
        Line("scan", "simulated_speedup", static_cast<double>(steps) * apply / best, "x")
            .with("processors", processors)
            .with("T", steps)
            .with("h", hidden)
            .with("simulated", true)
            .with("matrix_product_us", product * 1e6)
            .with("vector_product_us", apply * 1e6);
    }
}

// ---- pruned networks ----

/// VGG-11's convolutional part for 32 x 32 images at `divisor`-th width with a linear layer: its backward chain, of random
/// weights of which the largest `kept` are left, and ReLU masks of random activations.
scan::Stages<double> pruned_vgg11(std::size_t divisor, double kept)
{
    const std::size_t channels[] = {64, 128, 256, 256, 512, 512, 512, 512};
    const bool pools[] = {true, true, false, true, false, true, false, true};
    at::manual_seed(6);
    std::vector<scan::Operator<double>> forward;
    std::size_t in = 3, side = 32;
    const auto prune = [&](std::int64_t out, std::int64_t fan_in) {
        const Tensor weight = at::randn({out, fan_in}, at::kDouble) / std::sqrt(static_cast<double>(fan_in));
        const auto count = std::max<std::int64_t>(
            1, static_cast<std::int64_t>(kept * static_cast<double>(weight.numel())));
        const Tensor least = std::get<0>(weight.abs().flatten().topk(count)).min();
        return weight * (weight.abs() >= least).to(at::kDouble);
    };
    for (std::size_t layer = 0; layer < 8; ++layer) {
        const std::size_t out = channels[layer] / divisor;
        const Tensor weight = prune(static_cast<std::int64_t>(out), static_cast<std::int64_t>(in * 9));
        const double *const values = weight.data_ptr<double>();
        std::vector<bool> keep;
        for (std::int64_t i = 0; i < weight.numel(); ++i)
            keep.push_back(values[i] != 0);
        const scan::Window window{side, side, 3, 3, 1, 1, 1, 1};
        forward.push_back(scan::ConvJacobian(window, in, out, 1, keep).values(values));
        const Tensor active = at::randn({static_cast<std::int64_t>(out * side * side)}, at::kDouble);
        forward.push_back(scan::relu_jacobian(active.data_ptr<double>(), out * side * side, 1));
        if (pools[layer]) {
            forward.push_back(
                scan::MaxPoolJacobian({side, side, 2, 2, 2, 2}, out).values(active.data_ptr<double>(), 1));
            side /= 2;
        }
        in = out;
    }
    const Tensor last = prune(10, static_cast<std::int64_t>(in));
    forward.push_back(scan::sparse_linear_jacobian(last.data_ptr<double>(), 10, in));
    scan::Stages<double> stages;
    stages.seed.assign(10, 1);
    stages.operators.assign(forward.rbegin(), forward.rend());
    return stages;
}

void pruned()
{
    for (const double kept : {0.03, 0.1}) {
        const scan::Stages<double> stages = pruned_vgg11(16, kept);
        scan::Report serial;
        const auto wanted = scan::scan_serial(stages, &serial);
        scan::SymbolicCache cache;
        for (std::size_t up = 0; up <= scan::full_up_levels(stages.operators.size()); ++up) {
            scan::Report report;
            const auto got = scan::scan_tree(stages, up, {}, &cache, &report);
            double gap = 0;
            for (std::size_t i = 0; i < got.size(); ++i)
                for (std::size_t k = 0; k < got[i].size(); ++k)
                    gap = std::max(gap, std::fabs(got[i][k] - wanted[i][k]));
            Line("scan", "pruned_critical_multiplications_ratio",
                 static_cast<double>(report.critical_multiplications) / static_cast<double>(serial.multiplications),
                 "1")
                .with("network", "VGG-11 at 1/16 width, random weights")
                .with("weights_kept", kept)
                .with("up_levels", up)
                .with("stages", stages.operators.size())
                .with("levels", report.levels.size())
                .with("critical_multiplications", report.critical_multiplications)
                .with("multiplications", report.multiplications)
                .with("serial_multiplications", serial.multiplications)
                .with("largest_difference", gap);
        }
    }
}

// ---- memory ----

/// Counts what live tensors hold; in front of LibTorch's own allocator.
class Counting : public at::Allocator {
  public:
    explicit Counting(at::Allocator *inner) : inner_(inner) {}
    at::DataPtr allocate(std::size_t bytes) const override
    {
        live_ += bytes;
        peak_ = std::max(peak_.load(), live_.load());
        at::DataPtr inner = inner_->allocate(bytes);
        void *const data = inner.get();
        return {data, new Held{std::move(inner), bytes},
                [](void *held) {
                    live_ -= static_cast<Held *>(held)->bytes;
                    delete static_cast<Held *>(held);
                },
                at::kCPU};
    }
    static void start() { peak_ = live_.load(), start_ = live_.load(); }
    static double peak() { return static_cast<double>(peak_ - start_); }

  private:
    struct Held {
        at::DataPtr inner;
        std::size_t bytes;
    };
    at::Allocator *inner_;
    static std::atomic<std::size_t> live_, peak_, start_;
};
std::atomic<std::size_t> Counting::live_{0}, Counting::peak_{0}, Counting::start_{0};

template <typename Module> double peak_of(Module &module, const Tensor &x)
{
    time_once(module, x);
    module.zero_grad();
    Counting::start();
    output_of(module.forward(x)).sum().backward();
    return Counting::peak();
}

template <typename Kind> void memory_of(std::int64_t steps, std::size_t limit)
{
    const std::int64_t batch = 16, hidden = 20;
    const auto ours = make<typename Kind::Ours>(20, hidden, at::kFloat);
    const auto theirs = make<typename Kind::Theirs>(20, hidden, at::kFloat);
    ours->scan.memory_limit_bytes = limit;
    const Tensor x = at::randn({steps, batch, 20});
    const double cells = static_cast<double>(steps * batch * hidden * 4);
    const double mine = peak_of(*ours, x);
    // The output and its gradient, and then the limit and the states kept, or all that is saved and the gates' gradients.
    const bool gru = Kind::kCell == scan::Cell::gru, lstm = Kind::kCell == scan::Cell::lstm;
    const double gates = static_cast<double>(scan::gates_of(Kind::kCell) * (gru ? 2 : 1) + scan::saved_of(Kind::kCell));
    const double states = static_cast<double>(ours->status().stretches * (lstm ? 2 : 1)) *
                          static_cast<double>(batch * hidden * 4);
    const double work = 2 * cells + (limit ? static_cast<double>(limit) + states : cells * gates);
    Line("scan", "peak_bytes", mine, "B")
        .with("cell", Kind::kName)
        .with("T", steps)
        .with("batch", batch)
        .with("h", hidden)
        .with("limit", limit)
        .with("formula", work)
        .with("stretches", ours->status().stretches)
        .with("libtorch", peak_of(*theirs, x));
}

void memory()
{
    static Counting counting(at::GetAllocator(at::kCPU));
    c10::SetAllocator(at::kCPU, &counting, /*priority=*/10);
    for (const std::int64_t steps : {100, 1000})
        for (const std::size_t limit : {std::size_t{0}, std::size_t{200000}}) {
            memory_of<Rnn>(steps, limit);
            memory_of<Gru>(steps, limit);
            memory_of<Lstm>(steps, limit);
        }
}

// ---- training ----

/// The paper's task: which of 10 classes a stream of bits is, bits ~ Bernoulli(0.05 + 0.1 class); T = 100 here.
template <typename Module> std::vector<double> loss_curve(std::int64_t steps, const char *way, at::ScalarType type)
{
    at::manual_seed(4);
    auto module = std::make_shared<Module>(1, 20);
    nn::Linear last(20, 10);
    module->to(type);
    last->to(type);
    if constexpr (std::is_base_of_v<scan::RNNImpl, Module> || std::is_base_of_v<scan::GRUImpl, Module>)
        module->scan.way = way;
    std::vector<Tensor> parameters = module->parameters();
    for (const Tensor &parameter : last->parameters())
        parameters.push_back(parameter);
    torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.01));
    std::vector<double> out;
    for (int step = 0; step < 200; ++step) {
        at::manual_seed(static_cast<std::uint64_t>(1000 + step));
        const Tensor labels = at::randint(0, 10, {16}, at::kLong);
        const Tensor bits =
            at::bernoulli((labels.to(at::kFloat) * 0.1 + 0.05).expand({steps, 16})).unsqueeze(2).to(type);
        optimizer.zero_grad();
        const Tensor loss = at::cross_entropy_loss(last(output_of(module->forward(bits))[steps - 1]), labels);
        loss.backward();
        optimizer.step();
        out.push_back(loss.item<double>());
    }
    return out;
}

template <typename Kind> void training_of(at::ScalarType type, double tolerance)
{
    const auto wanted = loss_curve<typename Kind::Theirs>(100, "", type);
    for (const char *way : {"automatic", "tree"}) {
        const auto got = loss_curve<typename Kind::Ours>(100, way, type);
        double gap = 0;
        for (std::size_t i = 0; i < got.size(); ++i)
            gap = std::max(gap, std::fabs(got[i] - wanted[i]));
        Line("scan", "loss_gap", gap, "nats")
            .with("cell", Kind::kName)
            .with("way", way)
            .with("steps", got.size())
            .with("dtype", type == at::kFloat ? "float32" : "float64")
            .with("tolerance", tolerance)
            .with("within", gap < tolerance)
            .with("first_loss", wanted.front())
            .with("last_loss", wanted.back());
    }
}

void training()
{
    training_of<Rnn>(at::kDouble, 1e-8);
    training_of<Gru>(at::kDouble, 1e-8);
    training_of<Rnn>(at::kFloat, 1e-3);
    training_of<Gru>(at::kFloat, 1e-3);
}

} // namespace

int main(int argc, char **argv)
{
    // memory last: it puts a counting allocator in front of every later allocation.
    const std::vector<std::pair<const char *, void (*)()>> parts{
        {"exactness", exactness}, {"levels", levels},     {"speed", speed},
        {"scaling", scaling},     {"diagonal", diagonal}, {"simulated", simulated},
        {"pruned", pruned},       {"training", training}, {"memory", memory}};
    std::vector<std::string> wanted;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        quick = quick || word == "--quick";
        explaining = explaining || word == "--explain";
        if (word == "--quick" || word == "--explain")
            continue;
        std::vector<std::string> names;
        for (const auto &[name, run] : parts)
            names.push_back(name);
        jigsaw::bench::require_word(word, "scan: PART", names);
        wanted.push_back(word);
    }
    for (const auto &[name, run] : parts)
        if (wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end())
            run();
    return 0;
}
