// SPDX-License-Identifier: Apache-2.0
// From a layer's steps to a chain and back. A chain's vector is the gradient of h (LSTM: of h, then of c) of one state.
#include "runtime/scan/cell_scan.hpp"

#include <algorithm>
#include <vector>

namespace jigsaw::scan {

namespace {

template <typename Run>
void split_samples(std::size_t batch, std::size_t tasks, const Parallel &parallel, const Run &run)
{
    tasks = std::clamp<std::size_t>(tasks, 1, std::max<std::size_t>(1, batch));
    if (tasks == 1)
        return run(0, batch);
    parallel.run(tasks, [&](std::size_t task) { run(task * batch / tasks, (task + 1) * batch / tasks); });
}

/// Step number `s` in the order of the backward pass.
std::size_t step_at(const Layout &layout, std::size_t s) { return layout.reversed ? s : layout.steps - 1 - s; }

/// batch x width from two matrices of batch x H side by side; either may be null (zeros).
template <typename T>
std::vector<T> join(const T *left, const T *right, std::size_t batch, std::size_t h, std::size_t width)
{
    std::vector<T> out(batch * width);
    for (std::size_t b = 0; b < batch; ++b)
        for (std::size_t k = 0; k < h; ++k) {
            if (left)
                out[b * width + k] = left[b * h + k];
            if (right)
                out[b * width + h + k] = right[b * h + k];
        }
    return out;
}

template <typename T> void part(const std::vector<T> &from, std::size_t first, std::size_t batch, std::size_t h, T *to)
{
    const std::size_t width = from.size() / batch;
    for (std::size_t b = 0; b < batch; ++b)
        std::copy_n(from.data() + b * width + first, h, to + b * h);
}

/// The gates' gradients of one step whose state's gradient is known: the fused kernel on a layout of that step alone.
template <typename T> void gates_of_step(const CellBackward<T> &args, std::size_t step, const std::vector<T> &gradient)
{
    const std::size_t h = args.hidden, batch = args.layout.batch, at = args.layout.offset[step];
    const std::size_t rows[] = {batch}, offset[] = {0}, saved = saved_of(args.cell) * h;
    const bool is_first = args.layout.reversed ? step + 1 == args.layout.steps : step == 0;
    const std::size_t other = is_first ? 0 : args.layout.offset[args.layout.reversed ? step + 1 : step - 1];
    std::vector<T> state(batch * h), cell, before;
    part(gradient, 0, batch, h, state.data());
    CellBackward<T> one = args;
    one.layout = {1, batch, rows, offset, false};
    one.initial = is_first ? args.initial : args.output + other * h;
    if (args.cell == Cell::lstm) {
        cell.resize(batch * h);
        part(gradient, h, batch, h, cell.data());
        before.resize(batch * h);
        for (std::size_t b = 0; b < batch; ++b)
            std::copy_n(is_first ? args.initial_cell + b * h : args.saved + (other + b) * saved + 4 * h, h,
                        before.data() + b * h);
        one.initial_cell = before.data();
    }
    one.output += at * h;
    one.saved += at * saved;
    one.output_grad = nullptr; // it is in the gradient already
    one.state_grad = state.data();
    one.cell_grad = cell.data();
    one.gate_grad += at * gates_of(args.cell) * h;
    if (one.hidden_gate_grad)
        one.hidden_gate_grad += at * gates_of(args.cell) * h;
    cell_backward(one, 0, batch);
}

template <typename T>
void scan_backward(const CellBackward<T> &args, const Plan &plan, const Parallel &parallel, Report *report)
{
    const std::size_t h = args.hidden, batch = args.layout.batch;
    const Stages<T> stages = stages_of(args, parallel);
    const Gradients<T> gradients = plan.way == Way::tree ? scan_tree(stages, plan.up_levels, parallel, nullptr, report)
                                                         : scan_chunked(stages, plan.chunks, parallel, nullptr, report);
    parallel.run(args.layout.steps, [&](std::size_t s) { gates_of_step(args, step_at(args.layout, s), gradients[s]); });
    part(gradients.back(), 0, batch, h, args.state_grad);
    if (args.cell == Cell::lstm)
        part(gradients.back(), h, batch, h, args.cell_grad);
}

} // namespace

const char *name_of(Way way)
{
    switch (way) {
    case Way::automatic: return "automatic";
    case Way::serial: return "serial";
    case Way::split: return "split";
    case Way::chunked: return "chunked";
    case Way::tree: return "tree";
    }
    return "unknown";
}

bool is_packed(const Layout &layout)
{
    return std::any_of(layout.rows, layout.rows + layout.steps, [&](std::size_t rows) { return rows != layout.batch; });
}

template <typename T> Stages<T> stages_of(const CellBackward<T> &args, const Parallel &parallel)
{
    const std::size_t h = args.hidden, batch = args.layout.batch, steps = args.layout.steps;
    const std::size_t width = args.cell == Cell::lstm ? 2 * h : h;
    const auto entering = [&](std::size_t s) {
        return args.output_grad ? args.output_grad + args.layout.offset[step_at(args.layout, s)] * h : nullptr;
    };
    Stages<T> stages;
    stages.batch = batch;
    stages.seed = join<T>(args.state_grad, args.cell_grad, batch, h, width);
    if (const T *const last = entering(0))
        for (std::size_t b = 0; b < batch; ++b)
            for (std::size_t k = 0; k < h; ++k)
                stages.seed[b * width + k] += last[b * h + k];
    stages.operators.resize(steps);
    parallel.run(steps, [&](std::size_t s) {
        stages.operators[s] = cell_jacobian(args, step_at(args.layout, s));
        if (s + 1 < steps && args.output_grad)
            stages.operators[s].offset = join<T>(entering(s + 1), nullptr, batch, h, width);
    });
    return stages;
}

template <typename T>
void run_backward(const CellBackward<T> &args, const Plan &plan, const Parallel &parallel, Report *report)
{
    const bool scan = plan.way == Way::chunked || plan.way == Way::tree;
    if (scan && args.layout.steps > 0 && args.layout.batch > 0 && !is_packed(args.layout))
        return scan_backward(args, plan, parallel, report);
    split_samples(args.layout.batch, plan.way == Way::serial ? 1 : parallel.workers, parallel,
                  [&](std::size_t first, std::size_t last) { cell_backward(args, first, last); });
}

template <typename T> void run_forward(const CellForward<T> &args, std::size_t tasks, const Parallel &parallel)
{
    split_samples(args.layout.batch, tasks, parallel,
                  [&](std::size_t first, std::size_t last) { cell_forward(args, first, last); });
}

#define JIGSAW_SCAN_INSTANTIATE(T)                                                                                     \
    template Stages<T> stages_of(const CellBackward<T> &, const Parallel &);                                           \
    template void run_backward(const CellBackward<T> &, const Plan &, const Parallel &, Report *);                     \
    template void run_forward(const CellForward<T> &, std::size_t, const Parallel &);
JIGSAW_SCAN_INSTANTIATE(float)
JIGSAW_SCAN_INSTANTIATE(double)
#undef JIGSAW_SCAN_INSTANTIATE

} // namespace jigsaw::scan
