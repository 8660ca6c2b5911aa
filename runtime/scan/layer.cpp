// SPDX-License-Identifier: Apache-2.0
// A recurrent layer's forward and backward over LibTorch's tensors. What is one large matrix product for all steps (input
// gates, gradients of weights and inputs) goes to LibTorch's BLAS, what goes from step to step to cell_scan.hpp.
//
// With a memory limit the steps are cut into stretches: forward keeps the state before each, backward recomputes a
// stretch's gates from it. Bytes at a time, for b bytes per value, batch B, G gates, S saved values (cell.hpp):
//     stretch x B H (2 G + S, for GRU 3 G + S) b, and 1 or 2 states per stretch
#include "runtime/scan/layer.hpp"
#include "runtime/scan/cost.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/ivalue.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace jigsaw::scan {

namespace {

using at::Tensor;
using Optional = c10::optional<Tensor>;
using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;

/// What one call of forward leaves for its backward.
struct Call : ::torch::CustomClassHolder {
    Cell cell = Cell::rnn_tanh;
    std::shared_ptr<const Steps> steps;
    bool reversed = false;
    ScanOptions options;
    StatusPtr status;
    bool keep = false;                                  ///< a backward may follow
    std::size_t hidden = 0, stretch = 0, stretches = 1; ///< stretch: steps at a time
    Decision decision;
    Job job;
    Plan plan;
};
using CallPtr = c10::intrusive_ptr<Call>;

std::size_t bytes_per_step(const Call &call, std::size_t value_bytes)
{
    const std::size_t values = (call.cell == Cell::gru ? 3 : 2) * gates_of(call.cell) + saved_of(call.cell);
    return call.steps->batch * call.hidden * values * value_bytes;
}

void choose_stretch(Call *call, std::size_t value_bytes)
{
    const std::size_t steps = call->steps->count(), limit = call->options.memory_limit_bytes;
    const std::size_t each = std::max<std::size_t>(1, bytes_per_step(*call, value_bytes));
    TORCH_CHECK(limit == 0 || limit >= each, "jigsaw: memory_limit_bytes is ", limit, ", but one step of this ",
                name_of(call->cell), " (batch ", call->steps->batch, ", hidden size ", call->hidden, ") needs ", each,
                "; raise the limit or use 0 for none");
    call->stretch = limit == 0 ? steps : std::min(steps, limit / each);
    call->stretches = (steps + call->stretch - 1) / call->stretch;
}

Way way_of(const std::string &name)
{
    for (const Way way : {Way::automatic, Way::serial, Way::split, Way::chunked, Way::tree})
        if (name == name_of(way))
            return way;
    TORCH_CHECK(false, "jigsaw: scan way '", name, "'; there are: automatic, serial, split, chunked, tree");
}

void choose_way(Call *call, const Parallel &parallel)
{
    const Way way = way_of(call->options.way);
    call->job = {call->cell,   call->stretch,    call->steps->batch,
                 call->hidden, parallel.workers, call->steps->total() != call->steps->count() * call->steps->batch};
    call->decision = decide(machine_costs(parallel), call->job);
    call->plan = call->decision.plan;
    if (way == Way::automatic)
        return;
    const std::size_t full = full_up_levels(call->stretch);
    const int wanted = call->options.up_levels;
    call->plan = {way, call->options.chunks ? call->options.chunks : parallel.workers,
                  wanted < 0 ? full : std::min<std::size_t>(full, static_cast<std::size_t>(wanted))};
}

/// A stretch of steps with row offsets of its own.
struct Stretch {
    std::vector<std::size_t> offset;
    Layout layout;
    std::size_t first_row = 0, rows = 0, index = 0;
};

/// Stretch `index` in the order of forward.
Stretch stretch_at(const Call &call, std::size_t index)
{
    const Steps &all = *call.steps;
    const std::size_t begin = index * call.stretch, end = std::min(all.count(), begin + call.stretch);
    const std::size_t first = call.reversed ? all.count() - end : begin, count = end - begin;
    Stretch out;
    out.index = index;
    out.first_row = all.offset[first];
    out.rows = all.offset[first + count - 1] + all.rows[first + count - 1] - out.first_row;
    for (std::size_t step = first; step < first + count; ++step)
        out.offset.push_back(all.offset[step] - out.first_row);
    out.layout = {count, all.batch, all.rows.data() + first, nullptr, call.reversed};
    return out;
}

Tensor rows_of(const Tensor &tensor, const Stretch &stretch)
{
    return tensor.narrow(0, static_cast<std::int64_t>(stretch.first_row), static_cast<std::int64_t>(stretch.rows));
}

Tensor matrix_like(const Tensor &like, std::size_t rows, std::size_t columns)
{
    return at::empty({static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)}, like.options());
}

template <typename T> T *data_of(const Tensor &tensor) { return tensor.defined() ? tensor.data_ptr<T>() : nullptr; }

/// Beyond this width a BLAS blocks better than our kernel.
constexpr std::int64_t kWidest = 512;

template <typename T> Product<T> product_of(const Tensor &left, const Tensor &right, const Tensor &out)
{
    Product<T> p;
    p.out = data_of<T>(out);
    p.rows = static_cast<std::size_t>(left.size(0)), p.inner = static_cast<std::size_t>(left.size(1));
    p.width = static_cast<std::size_t>(right.size(1));
    p.left = data_of<T>(left), p.right = data_of<T>(right);
    p.left_row = static_cast<std::size_t>(left.stride(0)), p.left_inner = static_cast<std::size_t>(left.stride(1));
    p.right_row = static_cast<std::size_t>(right.stride(0)), p.right_column = static_cast<std::size_t>(right.stride(1));
    return p;
}

bool is_narrow(const Tensor &left, const Tensor &right)
{
    return std::min(left.size(0), left.size(1)) <= kWidest && right.size(1) <= kWidest;
}

/// left . right into `out`, which is contiguous.
template <typename T> void product_into(const Tensor &left, const Tensor &right, const Tensor &bias, Tensor out)
{
    if (is_narrow(left, right)) {
        Product<T> p = product_of<T>(left, right, out);
        p.bias = data_of<T>(bias);
        multiply(p);
    } else if (bias.defined()) {
        at::addmm_out(out, bias, left, right);
    } else {
        at::mm_out(out, left, right);
    }
}

/// W_ih x + b_ih for all rows.
template <typename T> Tensor input_gates(const Tensor &data, const LayerWeights &weights)
{
    const Tensor gates = at::empty({data.size(0), weights.input.size(0)}, data.options());
    product_into<T>(data, weights.input.t(), weights.input_bias, gates);
    return gates;
}

/// Where a stretch starts and what it produces.
struct Buffers {
    Tensor state, cell_state, output, saved;
};

template <typename T>
void forward_stretch(const Call &call, const Stretch &stretch, const Tensor &data, const LayerWeights &weights,
                     Buffers *out)
{
    const Parallel parallel = torch_threads();
    const Tensor gates = input_gates<T>(rows_of(data, stretch), weights);
    CellForward<T> args;
    args.cell = call.cell;
    args.layout = stretch.layout;
    args.layout.offset = stretch.offset.data();
    args.hidden = call.hidden;
    args.input_gates = data_of<T>(gates);
    args.weight = data_of<T>(weights.hidden);
    args.bias = data_of<T>(weights.hidden_bias);
    args.state = data_of<T>(out->state);
    args.cell_state = data_of<T>(out->cell_state);
    args.output = data_of<T>(out->output);
    args.saved = data_of<T>(out->saved);
    const bool split = call.plan.way == Way::split || call.decision.plan.way == Way::split;
    run_forward(args, split ? parallel.workers : 1, parallel);
}

/// The states that rows of a stretch came from, in row order: only packed layouts need the copy.
template <typename T> Tensor previous_states(const CellBackward<T> &args, const Tensor &output)
{
    const Layout &layout = args.layout;
    const std::size_t h = args.hidden;
    Tensor previous = at::empty_like(output);
    T *to = data_of<T>(previous);
    for (std::size_t step = 0; step < layout.steps; ++step)
        for (std::size_t b = 0; b < layout.rows[step]; ++b) {
            const bool is_first = layout.reversed ? step + 1 == layout.steps || b >= layout.rows[step + 1] : step == 0;
            const T *from = is_first ? args.initial + b * h
                                     : args.output + (layout.offset[layout.reversed ? step + 1 : step - 1] + b) * h;
            std::copy_n(from, h, to + (layout.offset[step] + b) * h);
        }
    return previous;
}

struct Sums {
    Tensor input_weight, hidden_weight, input_bias, hidden_bias;
};

template <typename T> void add_product(Tensor *sum, const Tensor &left, const Tensor &right)
{
    if (!sum->defined()) {
        *sum = at::empty({left.size(0), right.size(1)}, right.options());
        return product_into<T>(left, right, Tensor(), *sum);
    }
    if (!is_narrow(left, right)) {
        sum->addmm_(left, right);
        return;
    }
    Product<T> p = product_of<T>(left, right, *sum);
    p.add = true;
    multiply(p);
}

void add_rows(Tensor *sum, const Tensor &rows) { *sum = sum->defined() ? sum->add_(rows.sum(0)) : rows.sum(0); }

/// W_hh's gradient: every step's gates with the state before it. Without packing those states are the output, one step
/// off, and the initial state.
template <typename T>
void add_hidden_weight(Tensor *sum, const CellBackward<T> &args, const Tensor &gates, const Tensor &output,
                       const Tensor &initial)
{
    if (is_packed(args.layout))
        return add_product<T>(sum, gates.t(), previous_states(args, output));
    const auto batch = static_cast<std::int64_t>(args.layout.batch), rows = gates.size(0);
    const std::int64_t at_first = args.layout.reversed ? rows - batch : 0, rest = args.layout.reversed ? 0 : batch;
    add_product<T>(sum, gates.narrow(0, at_first, batch).t(), initial);
    if (rows > batch)
        add_product<T>(sum, gates.narrow(0, rest, rows - batch).t(), output.narrow(0, batch - rest, rows - batch));
}

struct Saved {
    Tensor data, output, saved, states, cell_states;
    LayerWeights weights;
};

/// Gradients that flow through the stretches, last to first.
struct Flow {
    Tensor output, state, cell_state; ///< the first N x H or undefined
    Tensor input;                     ///< N x input size, or undefined
    Sums sums;
};

/// The saved values of a stretch: kept, or computed again from the state before it.
template <typename T> Buffers buffers_of(const Call &call, const Stretch &stretch, const Saved &kept)
{
    const auto index = static_cast<std::int64_t>(stretch.index);
    if (call.stretches == 1 || saved_of(call.cell) == 0)
        return {{}, {}, rows_of(kept.output, stretch), kept.saved};
    Buffers again;
    again.state = kept.states.select(0, index).clone();
    if (call.cell == Cell::lstm)
        again.cell_state = kept.cell_states.select(0, index).clone();
    again.output = matrix_like(kept.output, stretch.rows, call.hidden);
    again.saved = matrix_like(kept.output, stretch.rows, saved_of(call.cell) * call.hidden);
    forward_stretch<T>(call, stretch, kept.data, kept.weights, &again);
    return again;
}

template <typename T> void backward_stretch(Call &call, const Stretch &stretch, const Saved &kept, Flow *flow)
{
    const auto index = static_cast<std::int64_t>(stretch.index);
    const Buffers buffers = buffers_of<T>(call, stretch, kept);
    const Tensor initial = kept.states.select(0, index);
    const std::size_t width = gates_of(call.cell) * call.hidden;
    const Tensor gates = matrix_like(kept.output, stretch.rows, width);
    const Tensor hidden_gates = call.cell == Cell::gru ? matrix_like(kept.output, stretch.rows, width) : gates;
    const Tensor incoming = flow->output.defined() ? rows_of(flow->output, stretch) : Tensor();
    CellBackward<T> args;
    args.cell = call.cell;
    args.layout = stretch.layout;
    args.layout.offset = stretch.offset.data();
    args.hidden = call.hidden;
    args.weight = data_of<T>(kept.weights.hidden);
    args.initial = data_of<T>(initial);
    args.initial_cell = call.cell == Cell::lstm ? data_of<T>(kept.cell_states.select(0, index)) : nullptr;
    args.output = data_of<T>(buffers.output);
    args.saved = data_of<T>(buffers.saved);
    args.output_grad = data_of<T>(incoming);
    args.state_grad = data_of<T>(flow->state);
    args.cell_grad = data_of<T>(flow->cell_state);
    args.gate_grad = data_of<T>(gates);
    args.hidden_gate_grad = call.cell == Cell::gru ? data_of<T>(hidden_gates) : nullptr;
    Report report;
    run_backward(args, call.plan, torch_threads(), &report);
    call.status->levels = report.levels.size();
    call.status->fell_back = call.status->fell_back || report.fell_back;

    const Tensor data = rows_of(kept.data, stretch);
    add_product<T>(&flow->sums.input_weight, gates.t(), data);
    add_hidden_weight(&flow->sums.hidden_weight, args, hidden_gates, buffers.output, initial);
    if (kept.weights.input_bias.defined()) {
        add_rows(&flow->sums.input_bias, gates);
        if (call.cell == Cell::gru)
            add_rows(&flow->sums.hidden_bias, hidden_gates);
    }
    if (flow->input.defined()) {
        product_into<T>(gates, kept.weights.input, Tensor(), rows_of(flow->input, stretch));
    }
}

template <typename T> struct Pass {
    static Buffers forward(Call *call, const Tensor &data, const Tensor &initial, const Tensor &initial_cell,
                           const LayerWeights &weights, Saved *kept)
    {
        const std::size_t stretches = call->stretches, width = saved_of(call->cell) * call->hidden;
        Buffers out{initial.clone(),
                    initial_cell.defined() ? initial_cell.clone() : Tensor(),
                    matrix_like(data, call->steps->total(), call->hidden),
                    {}};
        if (call->keep && stretches == 1 && width > 0)
            kept->saved = out.saved = matrix_like(data, call->steps->total(), width);
        std::vector<Tensor> states, cell_states;
        for (std::size_t index = 0; index < stretches; ++index) {
            const Stretch stretch = stretch_at(*call, index);
            if (call->keep) {
                states.push_back(index == 0 ? initial : out.state.clone());
                if (out.cell_state.defined())
                    cell_states.push_back(index == 0 ? initial_cell : out.cell_state.clone());
            }
            Buffers part{out.state, out.cell_state, rows_of(out.output, stretch), out.saved};
            forward_stretch<T>(*call, stretch, data, weights, &part);
        }
        if (call->keep) {
            kept->states = stretches == 1 ? states[0].unsqueeze(0) : at::stack(states);
            if (!cell_states.empty())
                kept->cell_states = stretches == 1 ? cell_states[0].unsqueeze(0) : at::stack(cell_states);
        }
        return out;
    }

    static void backward(Call &call, const Saved &kept, Flow *flow)
    {
        for (std::size_t index = call.stretches; index-- > 0;)
            backward_stretch<T>(call, stretch_at(call, index), kept, flow);
    }
};

Tensor given(const Optional &tensor) { return tensor.has_value() ? *tensor : Tensor(); }

Tensor contiguous(const Tensor &tensor) { return tensor.defined() ? tensor.contiguous() : tensor; }

struct LayerFunction : public ::torch::autograd::Function<LayerFunction> {
    static variable_list forward(AutogradContext *ctx, const Tensor &data, const Tensor &initial,
                                 const Optional &initial_cell, const Tensor &input_weight, const Tensor &hidden_weight,
                                 const Optional &input_bias, const Optional &hidden_bias, const CallPtr &call)
    {
        Saved kept;
        kept.weights = {contiguous(input_weight), contiguous(hidden_weight), contiguous(given(input_bias)),
                        contiguous(given(hidden_bias))};
        const Tensor first = contiguous(initial), first_cell = contiguous(given(initial_cell));
        const Buffers out = data.scalar_type() == at::kFloat
                                ? Pass<float>::forward(call.get(), data, first, first_cell, kept.weights, &kept)
                                : Pass<double>::forward(call.get(), data, first, first_cell, kept.weights, &kept);
        if (call->keep)
            ctx->save_for_backward({data, out.output, kept.saved, kept.states, kept.cell_states, input_weight,
                                    hidden_weight, kept.weights.input_bias, kept.weights.hidden_bias});
        ctx->set_materialize_grads(false);
        ctx->saved_data["call"] = c10::IValue::make_capsule(call);
        variable_list results{out.output, out.state};
        if (out.cell_state.defined())
            results.push_back(out.cell_state);
        return results;
    }

    static variable_list backward(AutogradContext *ctx, variable_list grads)
    {
        TORCH_CHECK(!c10::GradMode::is_enabled(),
                    "jigsaw: gradients of gradients through a scan layer are not supported; use torch::nn's layer");
        const auto call = c10::static_intrusive_pointer_cast<Call>(ctx->saved_data["call"].toCapsule());
        const variable_list saved = ctx->get_saved_variables();
        const Saved kept{
            saved[0], saved[1],
            saved[2], saved[3],
            saved[4], {contiguous(saved[5]), contiguous(saved[6]), contiguous(saved[7]), contiguous(saved[8])}};
        Flow flow;
        flow.output = contiguous(grads[0]);
        flow.state = fresh(grads[1], kept.states);
        if (call->cell == Cell::lstm)
            flow.cell_state = fresh(grads[2], kept.states);
        if (ctx->needs_input_grad(0))
            flow.input = at::empty_like(kept.data);
        call->status->fell_back = false;
        if (kept.data.scalar_type() == at::kFloat)
            Pass<float>::backward(*call, kept, &flow);
        else
            Pass<double>::backward(*call, kept, &flow);
        report(*call);
        const Sums &sums = flow.sums;
        const bool one_bias = sums.input_bias.defined() && call->cell != Cell::gru;
        return {flow.input,
                flow.state,
                flow.cell_state,
                sums.input_weight,
                sums.hidden_weight,
                sums.input_bias,
                one_bias ? sums.input_bias.clone() : sums.hidden_bias,
                Tensor()};
    }

  private:
    /// A copy that may be written to; zeros where no gradient came.
    static Tensor fresh(const Tensor &grad, const Tensor &states)
    {
        return grad.defined() ? grad.clone(at::MemoryFormat::Contiguous) : at::zeros_like(states.select(0, 0));
    }

    static void report(const Call &call)
    {
        call.status->way = name_of(call.plan.way);
        call.status->stretches = call.stretches;
        const bool chosen = call.options.way == "automatic";
        call.status->explain = [decision = call.decision, job = call.job, chosen, way = call.options.way] {
            return explain(decision, job) + (chosen ? "" : "  but the options ask for " + way + "\n");
        };
    }
};

Optional optional(const Tensor &tensor) { return tensor.defined() ? Optional(tensor) : Optional(); }

bool wants_grad(const LayerInput &input, const LayerWeights &weights)
{
    if (!c10::GradMode::is_enabled())
        return false;
    for (const Tensor &tensor : {input.data, input.initial, input.initial_cell, weights.input, weights.hidden,
                                 weights.input_bias, weights.hidden_bias})
        if (tensor.defined() && tensor.requires_grad())
            return true;
    return false;
}

} // namespace

Parallel torch_threads()
{
    Parallel parallel;
    parallel.workers = static_cast<std::size_t>(std::max(1, at::get_num_threads()));
    parallel.run = [](std::size_t count, const Task &task) {
        at::parallel_for(0, static_cast<std::int64_t>(count), 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i)
                task(static_cast<std::size_t>(i));
        });
    };
    return parallel;
}

Steps padded_steps(std::size_t steps, std::size_t batch)
{
    Steps out;
    out.batch = batch;
    out.rows.assign(steps, batch);
    for (std::size_t step = 0; step < steps; ++step)
        out.offset.push_back(step * batch);
    return out;
}

Steps packed_steps(const Tensor &batch_sizes)
{
    const Tensor sizes = batch_sizes.to(at::kCPU, at::kLong).contiguous();
    TORCH_CHECK(sizes.dim() == 1 && sizes.numel() > 0, "jigsaw: a packed sequence without steps");
    Steps out;
    std::size_t at = 0;
    for (std::int64_t i = 0; i < sizes.numel(); ++i) {
        const std::int64_t rows = sizes.data_ptr<std::int64_t>()[i];
        TORCH_CHECK(rows > 0 && (i == 0 || rows <= static_cast<std::int64_t>(out.rows.back())), "jigsaw: packed step ",
                    i, " has ", rows, " samples; each step must have at least 1 and no more than the step before it");
        out.rows.push_back(static_cast<std::size_t>(rows));
        out.offset.push_back(at);
        at += out.rows.back();
    }
    out.batch = out.rows.front();
    return out;
}

LayerResult run_layer(Cell cell, const std::shared_ptr<const Steps> &steps, bool reversed, const LayerInput &input,
                      const LayerWeights &weights, const ScanOptions &options, const StatusPtr &status)
{
    auto call = c10::make_intrusive<Call>();
    call->cell = cell;
    call->steps = steps;
    call->reversed = reversed;
    call->options = options;
    call->status = status;
    call->keep = wants_grad(input, weights);
    call->hidden = static_cast<std::size_t>(weights.hidden.size(1));
    choose_stretch(call.get(), input.data.element_size());
    choose_way(call.get(), torch_threads());
    const variable_list out = LayerFunction::apply(input.data.contiguous(), input.initial, optional(input.initial_cell),
                                                   weights.input, weights.hidden, optional(weights.input_bias),
                                                   optional(weights.hidden_bias), call);
    return {out[0], out[1], cell == Cell::lstm ? out[2] : Tensor()};
}

} // namespace jigsaw::scan
