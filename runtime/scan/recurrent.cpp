// SPDX-License-Identifier: Apache-2.0
// jigsaw::scan::RNN, GRU and LSTM: torch::nn's modules with another forward. Layers, directions, dropout and packing are
// LibTorch's rules; a layer's work is in layer.cpp.
#include "runtime/scan/layer.hpp"

#include <jigsaw/scan.hpp>

#include <ATen/ATen.h>

#include <vector>

namespace jigsaw::scan {

namespace {

using at::Tensor;
using ::torch::nn::utils::rnn::PackedSequence;

/// Several layers of one or two directions.
struct Stack {
    Cell cell;
    std::int64_t layers, directions;
    bool has_bias;
    double dropout;              ///< between layers, 0 outside training
    std::vector<Tensor> weights; ///< layer by layer, direction by direction, as flat_weights
    const ScanOptions *options;
    StatusPtr status;
};

struct StackResult {
    Tensor output, last, last_cell; ///< N x directions H; layers directions x batch x H
};

LayerWeights weights_of(const Stack &stack, std::int64_t index)
{
    const std::size_t each = stack.has_bias ? 4 : 2, at = static_cast<std::size_t>(index) * each;
    LayerWeights out{stack.weights.at(at), stack.weights.at(at + 1), {}, {}};
    if (stack.has_bias) {
        out.input_bias = stack.weights.at(at + 2);
        out.hidden_bias = stack.weights.at(at + 3);
    }
    return out;
}

StackResult run_stack(const Stack &stack, const std::shared_ptr<const Steps> &steps, Tensor data, const Tensor &initial,
                      const Tensor &initial_cell)
{
    std::vector<Tensor> last, last_cell;
    for (std::int64_t layer = 0; layer < stack.layers; ++layer) {
        std::vector<Tensor> outputs;
        for (std::int64_t direction = 0; direction < stack.directions; ++direction) {
            const std::int64_t index = layer * stack.directions + direction;
            const LayerInput input{data, initial.select(0, index),
                                   initial_cell.defined() ? initial_cell.select(0, index) : Tensor()};
            const LayerResult result = run_layer(stack.cell, steps, direction == 1, input, weights_of(stack, index),
                                                 *stack.options, stack.status);
            outputs.push_back(result.output);
            last.push_back(result.last);
            if (result.last_cell.defined())
                last_cell.push_back(result.last_cell);
        }
        data = outputs.size() == 1 ? outputs[0] : at::cat(outputs, 1);
        if (stack.dropout > 0 && layer + 1 < stack.layers)
            data = at::dropout(data, stack.dropout, /*train=*/true);
    }
    return {data, at::stack(last), last_cell.empty() ? Tensor() : at::stack(last_cell)};
}

/// steps x batch x H to N x H, run, and back.
StackResult run_padded(const Stack &stack, const Tensor &input, bool batch_first, const Tensor &initial,
                       const Tensor &initial_cell)
{
    const Tensor data = (batch_first ? input.transpose(0, 1) : input).contiguous();
    const std::int64_t count = data.size(0), batch = data.size(1);
    TORCH_CHECK(count > 0, "jigsaw: a sequence of 0 steps; give at least 1");
    const auto steps = std::make_shared<const Steps>(
        padded_steps(static_cast<std::size_t>(count), static_cast<std::size_t>(batch)));
    StackResult result = run_stack(stack, steps, data.view({count * batch, data.size(2)}), initial, initial_cell);
    result.output = result.output.view({count, batch, result.output.size(1)});
    if (batch_first)
        result.output = result.output.transpose(0, 1);
    return result;
}

/// Whether the fused code can do it; torch::nn's own forward does the rest, and makes the error messages.
bool can_run(const Tensor &input, const std::vector<Tensor> &weights)
{
    if (!input.defined() || !input.device().is_cpu() ||
        (input.scalar_type() != at::kFloat && input.scalar_type() != at::kDouble))
        return false;
    for (const Tensor &weight : weights)
        if (!weight.defined() || weight.scalar_type() != input.scalar_type() || !weight.device().is_cpu())
            return false;
    return true;
}

bool same_kind(const Tensor &state, const Tensor &input)
{
    return !state.defined() || (state.scalar_type() == input.scalar_type() && state.device().is_cpu());
}

template <typename Options>
Stack stack_of(Cell cell, const Options &options, bool training, std::vector<Tensor> weights, const ScanOptions &scan,
               const StatusPtr &status)
{
    return {cell,
            options.num_layers(),
            options.bidirectional() ? 2 : 1,
            options.bias(),
            training ? options.dropout() : 0.0,
            std::move(weights),
            &scan,
            status};
}

template <typename Options> Tensor zeros_for(const Options &options, const Tensor &input, std::int64_t batch)
{
    return at::zeros({options.num_layers() * (options.bidirectional() ? 2 : 1), batch, options.hidden_size()},
                     input.options().requires_grad(false));
}

Tensor in_order(const Tensor &state, const Tensor &order)
{
    return state.defined() && order.defined() ? state.index_select(1, order) : state;
}

PackedSequence like(const PackedSequence &packed, const Tensor &data)
{
    return PackedSequence(data, packed.batch_sizes(), packed.sorted_indices(), packed.unsorted_indices());
}

template <typename Module>
std::shared_ptr<::torch::nn::Module> copy_of(const Module &module, const ::torch::optional<::torch::Device> &device)
{
    auto copy = std::make_shared<Module>(module.options);
    ::torch::NoGradGuard no_grad;
    const auto from = module.named_parameters();
    for (auto &item : copy->named_parameters()) {
        item.value().set_data(from[item.key()].to(device.value_or(from[item.key()].device())).clone());
        item.value().set_requires_grad(from[item.key()].requires_grad());
    }
    copy->train(module.is_training());
    copy->scan = module.scan;
    return copy;
}

} // namespace

#define JIGSAW_SCAN_SIMPLE(NAME, CELL)                                                                                 \
    std::tuple<Tensor, Tensor> NAME::forward(const Tensor &input, Tensor hx)                                           \
    {                                                                                                                  \
        if (!can_run(input, flat_weights_) || input.dim() != 3 || !same_kind(hx, input))                               \
            return ::torch::nn::NAME::forward(input, hx);                                                              \
        const Tensor initial = hx.defined() ? hx                                                                       \
                                            : zeros_for(options, input, input.size(options.batch_first() ? 0 : 1));    \
        check_forward_args(input, initial, {});                                                                        \
        const Stack stack = stack_of(CELL, options, is_training(), flat_weights_, scan, status_);                      \
        const StackResult out = run_padded(stack, input, options.batch_first(), initial, {});                          \
        return {out.output, out.last};                                                                                 \
    }                                                                                                                  \
    std::tuple<PackedSequence, Tensor> NAME::forward_with_packed_input(const PackedSequence &packed, Tensor hx)        \
    {                                                                                                                  \
        const Tensor &input = packed.data();                                                                           \
        if (!can_run(input, flat_weights_) || !same_kind(hx, input))                                                   \
            return ::torch::nn::NAME::forward_with_packed_input(packed, hx);                                           \
        const auto steps = std::make_shared<const Steps>(packed_steps(packed.batch_sizes()));                          \
        const Tensor initial = hx.defined() ? in_order(hx, packed.sorted_indices())                                    \
                                            : zeros_for(options, input, static_cast<std::int64_t>(steps->batch));      \
        check_forward_args(input, initial, packed.batch_sizes());                                                      \
        const Stack stack = stack_of(CELL, options, is_training(), flat_weights_, scan, status_);                      \
        const StackResult out = run_stack(stack, steps, input, initial, {});                                           \
        return {like(packed, out.output), in_order(out.last, packed.unsorted_indices())};                              \
    }                                                                                                                  \
    std::shared_ptr<::torch::nn::Module> NAME::clone(const ::torch::optional<::torch::Device> &device) const           \
    {                                                                                                                  \
        return copy_of(*this, device);                                                                                 \
    }

JIGSAW_SCAN_SIMPLE(RNNImpl, options.nonlinearity().index() == 0 ? Cell::rnn_tanh : Cell::rnn_relu)
JIGSAW_SCAN_SIMPLE(GRUImpl, Cell::gru)
#undef JIGSAW_SCAN_SIMPLE

namespace {

bool lstm_can_run(const Tensor &input, const std::vector<Tensor> &weights, const ::torch::optional<LSTMImpl::Pair> &hx,
                  std::int64_t proj_size)
{
    return proj_size == 0 && can_run(input, weights) &&
           (!hx || (same_kind(std::get<0>(*hx), input) && same_kind(std::get<1>(*hx), input)));
}

} // namespace

std::tuple<Tensor, LSTMImpl::Pair> LSTMImpl::forward(const Tensor &input, ::torch::optional<Pair> hx)
{
    if (!lstm_can_run(input, flat_weights_, hx, options.proj_size()) || input.dim() != 3)
        return ::torch::nn::LSTMImpl::forward(input, hx);
    const Tensor zeros = hx ? Tensor() : zeros_for(options, input, input.size(options.batch_first() ? 0 : 1));
    const Pair initial = hx ? *hx : Pair(zeros, zeros);
    check_forward_args(input, initial, {});
    const Stack stack = stack_of(Cell::lstm, options, is_training(), flat_weights_, scan, status_);
    const StackResult out = run_padded(stack, input, options.batch_first(), std::get<0>(initial), std::get<1>(initial));
    return {out.output, {out.last, out.last_cell}};
}

std::tuple<PackedSequence, LSTMImpl::Pair> LSTMImpl::forward_with_packed_input(const PackedSequence &packed,
                                                                               ::torch::optional<Pair> hx)
{
    const Tensor &input = packed.data();
    if (!lstm_can_run(input, flat_weights_, hx, options.proj_size()))
        return ::torch::nn::LSTMImpl::forward_with_packed_input(packed, hx);
    const auto steps = std::make_shared<const Steps>(packed_steps(packed.batch_sizes()));
    const Tensor zeros = hx ? Tensor() : zeros_for(options, input, static_cast<std::int64_t>(steps->batch));
    const Tensor h = hx ? in_order(std::get<0>(*hx), packed.sorted_indices()) : zeros;
    const Tensor c = hx ? in_order(std::get<1>(*hx), packed.sorted_indices()) : zeros;
    check_forward_args(input, Pair(h, c), packed.batch_sizes());
    const Stack stack = stack_of(Cell::lstm, options, is_training(), flat_weights_, scan, status_);
    const StackResult out = run_stack(stack, steps, input, h, c);
    return {like(packed, out.output),
            {in_order(out.last, packed.unsorted_indices()), in_order(out.last_cell, packed.unsorted_indices())}};
}

std::shared_ptr<::torch::nn::Module> LSTMImpl::clone(const ::torch::optional<::torch::Device> &device) const
{
    return copy_of(*this, device);
}

} // namespace jigsaw::scan
