// SPDX-License-Identifier: Apache-2.0
// jigsaw::scan::Chain: a feed-forward stack whose backward pass is a scan over its layers' Jacobians. Forward runs the modules
// and keeps what flows between them; backward makes each layer's operator, scans, and takes the gradients of parameters from
// the gradients at the layers' outputs, which no longer depend on each other.
//
// Batch norm in training couples the samples of a batch, so no per-sample operator holds it: the scan is cut there.
#include "runtime/scan/cell_scan.hpp"
#include "runtime/scan/jacobians.hpp"
#include "runtime/scan/layer.hpp"

#include <jigsaw/scan_chain.hpp>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/version.h>

#include <algorithm>
#include <map>

namespace jigsaw::scan {

namespace {

using at::Tensor;
using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;
namespace nn = ::torch::nn;

/// LibTorch's variants are its own up to 2.0.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
namespace variants = std;
#else
namespace variants = c10;
#endif

/// Null for padding by name ("same", "valid").
const ::torch::ExpandingArray<2> *padding_of(const nn::Conv2dImpl &conv)
{
    return variants::get_if<::torch::ExpandingArray<2>>(&conv.options.padding());
}

std::size_t size_of(std::int64_t value) { return static_cast<std::size_t>(value); }

template <typename T> std::vector<T> numbers(const Tensor &tensor)
{
    const Tensor flat = tensor.contiguous();
    return {flat.data_ptr<T>(), flat.data_ptr<T>() + flat.numel()};
}

template <typename Kernel, typename Stride, typename Padding>
Window window_of(const Tensor &input, const Kernel &kernel, const Stride &stride, const Padding &padding)
{
    Window w;
    w.height = size_of(input.size(2)), w.width = size_of(input.size(3));
    w.kernel_height = size_of((*kernel)[0]), w.kernel_width = size_of((*kernel)[1]);
    w.stride_height = size_of((*stride)[0]), w.stride_width = size_of((*stride)[1]);
    w.padding_height = size_of((*padding)[0]), w.padding_width = size_of((*padding)[1]);
    return w;
}

} // namespace

/// Patterns and symbolic products, kept from one iteration to the next.
struct ChainCache {
    struct Convolution {
        std::vector<std::int64_t> input_size;
        std::vector<bool> keep;
        std::shared_ptr<ConvJacobian> jacobian;
    };
    std::map<std::size_t, Convolution> convolutions; ///< by layer
    SymbolicCache products;
};

namespace {

/// A layer that can be scanned over; `layer` is its module, one of those below.
struct Layer {
    nn::LinearImpl *linear = nullptr;
    nn::Conv2dImpl *conv = nullptr;
    nn::ReLUImpl *relu = nullptr;
    nn::TanhImpl *tanh = nullptr;
    nn::SigmoidImpl *sigmoid = nullptr;
    nn::MaxPool2dImpl *max_pool = nullptr;
    nn::AvgPool2dImpl *average_pool = nullptr;
    nn::BatchNorm2dImpl *norm = nullptr;
    nn::FlattenImpl *flatten = nullptr;

    bool couples_batch() const { return norm && (norm->is_training() || !norm->running_var.defined()); }
    std::vector<Tensor> parameters() const
    {
        std::vector<Tensor> out;
        const auto add = [&](const Tensor &tensor) {
            if (tensor.defined())
                out.push_back(tensor);
        };
        if (linear)
            add(linear->weight), add(linear->bias);
        if (conv)
            add(conv->weight), add(conv->bias);
        if (norm)
            add(norm->weight), add(norm->bias);
        return out;
    }
};

Layer layer_of(nn::Module *module, std::size_t index)
{
    Layer out;
    out.linear = dynamic_cast<nn::LinearImpl *>(module);
    out.conv = dynamic_cast<nn::Conv2dImpl *>(module);
    out.relu = dynamic_cast<nn::ReLUImpl *>(module);
    out.tanh = dynamic_cast<nn::TanhImpl *>(module);
    out.sigmoid = dynamic_cast<nn::SigmoidImpl *>(module);
    out.max_pool = dynamic_cast<nn::MaxPool2dImpl *>(module);
    out.average_pool = dynamic_cast<nn::AvgPool2dImpl *>(module);
    out.norm = dynamic_cast<nn::BatchNorm2dImpl *>(module);
    out.flatten = dynamic_cast<nn::FlattenImpl *>(module);
    TORCH_CHECK(out.linear || out.conv || out.relu || out.tanh || out.sigmoid || out.max_pool || out.average_pool ||
                    out.norm || out.flatten,
                "jigsaw: module ", index, " of the chain (", module->name(),
                ") has no Jacobian here; there are Linear, Conv2d, ",
                "ReLU, Tanh, Sigmoid, MaxPool2d, AvgPool2d, BatchNorm2d and Flatten, or use the way \"serial\"");
    TORCH_CHECK(!out.conv || padding_of(*out.conv), "jigsaw: module ", index,
                " of the chain pads by name (same, valid); give numbers");
    return out;
}

struct Call : ::torch::CustomClassHolder {
    std::vector<Layer> layers;
    std::vector<std::shared_ptr<nn::Module>> alive;
    Plan plan;
    StatusPtr status;
    std::shared_ptr<ChainCache> cache;
};

template <typename T>
Operator<T> conv_operator(nn::Conv2dImpl &conv, const Tensor &input, ChainCache::Convolution *known)
{
    const auto &padding = *padding_of(conv);
    Window w = window_of(input, conv.options.kernel_size(), conv.options.stride(), padding);
    w.dilation_height = size_of((*conv.options.dilation())[0]),
    w.dilation_width = size_of((*conv.options.dilation())[1]);
    const std::vector<T> weight = numbers<T>(conv.weight.detach());
    std::vector<bool> keep;
    for (const T value : weight)
        keep.push_back(value != 0);
    if (!known->jacobian || known->input_size != input.sizes() || known->keep != keep) {
        known->jacobian = std::make_shared<ConvJacobian>(w, size_of(conv.options.in_channels()),
                                                         size_of(conv.options.out_channels()),
                                                         size_of(conv.options.groups()), keep);
        known->input_size = input.sizes().vec();
        known->keep = std::move(keep);
    }
    return known->jacobian->values(weight.data());
}

/// What a linear layer costs least as: sparse where at most a quarter of the weights is left.
template <typename T> Operator<T> linear_operator(const Tensor &weight)
{
    const std::vector<T> values = numbers<T>(weight.detach());
    const auto zeros = static_cast<std::size_t>(std::count(values.begin(), values.end(), T(0)));
    const std::size_t out = size_of(weight.size(0)), in = size_of(weight.size(1));
    return zeros * 4 >= values.size() * 3 ? sparse_linear_jacobian(values.data(), out, in)
                                          : linear_jacobian(values.data(), out, in);
}

template <typename T> Operator<T> pool_operator(const Layer &layer, const Tensor &input, std::size_t batch)
{
    const std::size_t channels = size_of(input.size(1));
    if (layer.average_pool) {
        const auto &options = layer.average_pool->options;
        TORCH_CHECK(!options.ceil_mode() && !options.divisor_override().has_value(),
                    "jigsaw: average pooling with ceil_mode or a divisor of its own has no Jacobian here");
        return average_pool_jacobian<T>(window_of(input, options.kernel_size(), options.stride(), options.padding()),
                                        channels, options.count_include_pad());
    }
    const auto &options = layer.max_pool->options;
    TORCH_CHECK(!options.ceil_mode() && (*options.dilation())[0] == 1 && (*options.dilation())[1] == 1,
                "jigsaw: max pooling with ceil_mode or dilation has no Jacobian here");
    const MaxPoolJacobian jacobian(window_of(input, options.kernel_size(), options.stride(), options.padding()),
                                   channels);
    return jacobian.values(numbers<T>(input).data(), batch);
}

template <typename T> Operator<T> operator_of(Call &call, std::size_t index, const Tensor &input, const Tensor &output)
{
    const Layer &layer = call.layers[index];
    const std::size_t batch = size_of(input.size(0)), n = size_of(output.numel()) / batch;
    if (layer.linear)
        return linear_operator<T>(layer.linear->weight);
    if (layer.conv)
        return conv_operator<T>(*layer.conv, input, &call.cache->convolutions[index]);
    if (layer.relu)
        return relu_jacobian(numbers<T>(output).data(), n, batch);
    if (layer.tanh)
        return tanh_jacobian(numbers<T>(output).data(), n, batch);
    if (layer.sigmoid)
        return sigmoid_jacobian(numbers<T>(output).data(), n, batch);
    if (layer.flatten)
        return elementwise_jacobian(std::vector<T>(n, T(1)), 1);
    if (layer.norm) {
        const std::vector<T> variance = numbers<T>(layer.norm->running_var);
        const std::vector<T> weight = layer.norm->weight.defined() ? numbers<T>(layer.norm->weight.detach())
                                                                   : std::vector<T>();
        return batch_norm_jacobian<T>(weight.empty() ? nullptr : weight.data(), variance.data(),
                                      static_cast<T>(layer.norm->options.eps()), size_of(input.size(1)),
                                      n / size_of(input.size(1)));
    }
    return pool_operator<T>(layer, input, batch);
}

/// Gradients of (input if wanted, weight, bias) of batch norm.
std::tuple<Tensor, Tensor, Tensor> norm_backward(nn::BatchNorm2dImpl &norm, const Tensor &input, const Tensor &grad,
                                                 bool training)
{
    const Tensor mean = training ? input.mean(std::vector<std::int64_t>{0, 2, 3}) : norm.running_mean;
    const Tensor variance = training ? input.var(std::vector<std::int64_t>{0, 2, 3}, /*unbiased=*/false)
                                     : norm.running_var;
    const bool affine = norm.weight.defined();
    return at::native_batch_norm_backward(grad, input, affine ? norm.weight.detach() : Tensor(), norm.running_mean,
                                          norm.running_var, mean, (variance + norm.options.eps()).rsqrt(), training,
                                          norm.options.eps(), {true, affine, affine});
}

void add_parameter_gradients(const Layer &layer, const Tensor &input, const Tensor &grad, variable_list *out)
{
    if (layer.linear) {
        out->push_back(at::mm(grad.t(), input));
        if (layer.linear->bias.defined())
            out->push_back(grad.sum(0));
    }
    if (layer.conv) {
        const auto &options = layer.conv->options;
        const auto &padding = *padding_of(*layer.conv);
        const bool bias = layer.conv->bias.defined();
        const auto [none, weight, shift] = at::convolution_backward(
            grad, input, layer.conv->weight.detach(), at::IntArrayRef{options.out_channels()}, *options.stride(),
            *padding, *options.dilation(), false, std::vector<std::int64_t>{0, 0}, options.groups(),
            {false, true, bias});
        out->push_back(weight);
        if (bias)
            out->push_back(shift);
    }
    if (layer.norm && layer.norm->weight.defined()) {
        const auto [none, weight, bias] = norm_backward(*layer.norm, input, grad, layer.couples_batch());
        out->push_back(weight);
        out->push_back(bias);
    }
}

/// Gradients at every activation, last to first, of layers [first, last) from that behind the last.
template <typename T>
void scan_segment(Call &call, const variable_list &activations, std::size_t first, std::size_t last,
                  variable_list *grads)
{
    Stages<T> stages;
    stages.batch = size_of(activations[0].size(0));
    stages.seed = numbers<T>((*grads)[last]);
    for (std::size_t i = last; i-- > first;)
        stages.operators.push_back(operator_of<T>(call, i, activations[i], activations[i + 1]));
    Report report;
    const std::size_t up = std::min(call.plan.up_levels, full_up_levels(stages.operators.size()));
    const Gradients<T> found = call.plan.way == Way::tree
                                   ? scan_tree(stages, up, torch_threads(), &call.cache->products, &report)
                                   : scan_chunked(stages, call.plan.chunks, torch_threads(), &call.cache->products,
                                                  &report);
    for (std::size_t i = first; i < last; ++i) {
        const std::vector<T> &values = found[last - i];
        (*grads)[i] = at::empty_like(activations[i], at::MemoryFormat::Contiguous);
        std::copy(values.begin(), values.end(), (*grads)[i].template data_ptr<T>());
    }
    call.status->levels += report.levels.size();
    call.status->fell_back = call.status->fell_back || report.fell_back;
}

struct ChainFunction : public ::torch::autograd::Function<ChainFunction> {
    static Tensor forward(AutogradContext *ctx, const Tensor &input, at::TensorList parameters,
                          const c10::intrusive_ptr<Call> &call, nn::SequentialImpl *sequential)
    {
        variable_list kept{input};
        for (auto module = sequential->begin(); module != sequential->end(); ++module)
            kept.push_back(module->forward(kept.back()));
        const Tensor output = kept.back();
        kept.insert(kept.end(), parameters.begin(),
                    parameters.end()); // only so that a change before backward is noticed
        ctx->save_for_backward(kept);
        ctx->saved_data["call"] = c10::IValue::make_capsule(call);
        return output;
    }

    static variable_list backward(AutogradContext *ctx, variable_list grad)
    {
        TORCH_CHECK(!c10::GradMode::is_enabled(),
                    "jigsaw: gradients of gradients through a Chain are not supported; use the way ", "\"serial\"");
        const auto call = c10::static_intrusive_pointer_cast<Call>(ctx->saved_data["call"].toCapsule());
        const variable_list activations = ctx->get_saved_variables();
        const std::size_t n = call->layers.size();
        variable_list grads(n + 1);
        grads[n] = grad[0].contiguous();
        *call->status = ScanStatus();
        call->status->way = name_of(call->plan.way);
        for (std::size_t last = n; last > 0;)
            last = one_segment(*call, activations, last, &grads);
        variable_list out{grads[0]};
        for (std::size_t i = 0; i < n; ++i)
            add_parameter_gradients(call->layers[i], activations[i], grads[i + 1], &out);
        out.insert(out.end(), {Tensor(), Tensor()});
        return out;
    }

  private:
    /// From behind layer `last` to the next cut; returns where that is.
    static std::size_t one_segment(Call &call, const variable_list &activations, std::size_t last, variable_list *grads)
    {
        if (call.layers[last - 1].couples_batch()) {
            (*grads)[last - 1] = std::get<0>(
                norm_backward(*call.layers[last - 1].norm, activations[last - 1], (*grads)[last], true));
            return last - 1;
        }
        std::size_t first = last;
        while (first > 0 && !call.layers[first - 1].couples_batch())
            --first;
        if (activations[0].scalar_type() == at::kFloat)
            scan_segment<float>(call, activations, first, last, grads);
        else
            scan_segment<double>(call, activations, first, last, grads);
        return first;
    }
};

} // namespace

ChainImpl::Cache ChainImpl::make_cache() { return std::make_shared<ChainCache>(); }

Tensor ChainImpl::forward(const Tensor &input)
{
    const bool chunked = scan.way == "chunked";
    TORCH_CHECK(chunked || scan.way == "tree" || scan.way == "serial" || scan.way == "automatic", "jigsaw: chain way '",
                scan.way, "'; there are: automatic, serial, chunked, tree");
    if (is_empty() || !c10::GradMode::is_enabled() || (!chunked && scan.way != "tree"))
        return ::torch::nn::SequentialImpl::forward(input);
    TORCH_CHECK(input.device().is_cpu() && (input.scalar_type() == at::kFloat || input.scalar_type() == at::kDouble) &&
                    input.dim() >= 2 && input.numel() > 0,
                "jigsaw: a Chain scans batches of float or double on the CPU; got ", input.sizes(), " of ",
                input.scalar_type(), " on ", input.device());
    auto call = c10::make_intrusive<Call>();
    variable_list parameters;
    for (auto module = begin(); module != end(); ++module) {
        call->alive.push_back(module->ptr());
        call->layers.push_back(layer_of(module->ptr().get(), call->layers.size()));
        const std::vector<Tensor> own = call->layers.back().parameters();
        parameters.insert(parameters.end(), own.begin(), own.end());
    }
    call->plan = {chunked ? Way::chunked : Way::tree, scan.chunks ? scan.chunks : torch_threads().workers,
                  scan.up_levels < 0 ? full_up_levels(call->layers.size()) : static_cast<std::size_t>(scan.up_levels)};
    call->status = status_;
    call->cache = cache_;
    return ChainFunction::apply(input.contiguous(), at::TensorList(parameters), call,
                                static_cast<nn::SequentialImpl *>(this));
}

} // namespace jigsaw::scan
