// SPDX-License-Identifier: Apache-2.0
// Hooks and toggles on parameters, over the C ABI of libjigsaw. Facts behind it: freezing by requires_grad before forward
// costs nothing and leaves the suffix's gradients bit-identical; AccumulateGrad's post hooks survive freezing and fire
// in reverse order of blocks. A gradient is copied into its flat buffer rather than accumulated there: the bits are
// those of plain training (0 + -0 is not -0), and zero_grad() of the user's does no harm.
#include "runtime/torch/cuda_stream.hpp"
#include "runtime/torch/flat_blocks.hpp"

#include <jigsaw/torch.hpp>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>

namespace jigsaw {
namespace torch {

namespace {

using ::torch::autograd::FunctionPostHook;
using ::torch::autograd::variable_list;

/// What a hook calls; the hook may outlive the trainer, since it hangs on the parameter.
struct HookTarget {
    std::function<void(std::size_t parameter)> ready;
};

struct ReadyHook : FunctionPostHook {
    ReadyHook(std::shared_ptr<HookTarget> to, std::size_t index) : target(std::move(to)), parameter(index) {}
    variable_list operator()(const variable_list &outputs, const variable_list & /*inputs*/) override
    {
        if (target->ready)
            target->ready(parameter);
        return outputs;
    }
    std::shared_ptr<HookTarget> target;
    std::size_t parameter;
};

const char *or_null(const std::string &text)
{
    return text.empty() ? nullptr : text.c_str();
}

void log_line(void *arg, const char *line)
{
    (*static_cast<const std::function<void(const std::string &)> *>(arg))(line);
}

std::uint32_t c_type(at::ScalarType type)
{
    return type == at::kDouble ? JIGSAW_FLOAT64 : type == at::kBFloat16 ? JIGSAW_BFLOAT16 : JIGSAW_FLOAT32;
}

std::vector<jigsaw_block_t> c_blocks(const FlatBlocks &flat)
{
    std::vector<jigsaw_block_t> out;
    for (const at::Tensor &buffer : flat.buffers())
        out.push_back({buffer.data_ptr(), static_cast<std::size_t>(buffer.numel()), c_type(buffer.scalar_type()), 0});
    return out;
}

} // namespace

struct Trainer::Impl {
    Impl(std::vector<Block> blocks, const Options &with);
    ~Impl();

    void check(jigsaw_result_t result) const
    {
        if (result != JIGSAW_SUCCESS)
            throw Error(result, jigsaw_last_error(ctx));
    }
    void attach();
    void add_hooks();
    void gradient_ready(std::size_t parameter);
    void fill_missing(std::uint32_t block);
    void end_compute();
    void broadcast_tensors(const std::vector<at::Tensor> &tensors);
    std::string where() const;
    void tell_stream();
    void expect_synchronised(const char *call) const;

    Options options;
    FlatBlocks flat;
    std::vector<at::Tensor> module_buffers;
    jigsaw_context_t *ctx = nullptr;
    std::shared_ptr<HookTarget> target = std::make_shared<HookTarget>();
    /// Parameters hold their accumulators weakly, and our hooks hang on those.
    std::vector<std::shared_ptr<::torch::autograd::Node>> accumulators;

    enum class State { idle, open, ended } state = State::idle;
    jigsaw_iteration_t now{};
    bool last_micro_batch = true;
    bool synchronised = false;        ///< between sync() and begin()
    std::uint64_t defined_blocks = 0; ///< of the last sync()
    void *stream = nullptr;           ///< what libjigsaw knows
    std::vector<std::uint32_t> left; ///< [block] parameters without a gradient in this iteration
    std::vector<bool> done;          ///< [parameter]
};

Trainer::Impl::Impl(std::vector<Block> blocks, const Options &with) : options(with), flat(blocks)
{
    for (const Block &block : blocks)
        module_buffers.insert(module_buffers.end(), block.buffers.begin(), block.buffers.end());
    attach();
    add_hooks();
    if (options.broadcast_parameters) {
        std::vector<at::Tensor> all;
        for (const Parameter &parameter : flat.parameters())
            all.push_back(parameter.tensor);
        all.insert(all.end(), module_buffers.begin(), module_buffers.end());
        broadcast_tensors(all);
    }
}

Trainer::Impl::~Impl()
{
    target->ready = nullptr;
    jigsaw_detach(ctx);
}

void Trainer::Impl::attach()
{
    const std::vector<jigsaw_block_t> buffers = c_blocks(flat);
    jigsaw_config_t config = JIGSAW_CONFIG_INIT;
    config.num_blocks = static_cast<std::uint32_t>(buffers.size());
    config.blocks = buffers.data();
    config.rank = options.rank;
    config.world_size = options.world_size;
    config.local_rank = options.local_rank;
    config.timeout_ms = options.timeout_ms;
    const at::Device device = flat.buffers().front().device();
    if (options.backend.empty() && device.is_cuda())
        options.backend = "nccl";
    config.backend = !options.backend.empty() ? options.backend.c_str() : options.thread_world != nullptr ? "threads" : nullptr;
    config.cuda_device = device.is_cuda() ? device.index() : -1;
    config.thread_world = options.thread_world;
    config.policy = or_null(options.policy);
    config.levels = options.levels;
    config.full_workers = options.full_workers;
    config.warmup_iterations = options.warmup_iterations;
    config.seed = options.seed;
    config.first_iteration = options.first_iteration;
    config.min_depth_fraction = options.min_depth_fraction;
    config.sync_strategy = or_null(options.sync_strategy);
    config.directive_log = or_null(options.directive_log);
    config.replay_log = or_null(options.replay_log);
    if (options.log) {
        config.log = log_line;
        config.log_arg = &options.log;
    }
    check(jigsaw_attach(&ctx, &config));
}

void Trainer::Impl::add_hooks()
{
    target->ready = [this](std::size_t parameter) { gradient_ready(parameter); };
    for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
        auto accumulator = ::torch::autograd::impl::grad_accumulator(flat.parameters()[i].tensor);
        accumulator->add_post_hook(std::make_unique<ReadyHook>(target, i));
        accumulators.push_back(std::move(accumulator));
    }
}

std::string Trainer::Impl::where() const
{
    return "jigsaw: rank " + std::to_string(jigsaw_rank(ctx)) + ", iteration " + std::to_string(now.iteration) + ": ";
}

void Trainer::Impl::gradient_ready(std::size_t index)
{
    if (state != State::open || !last_micro_batch)
        return;
    const Parameter &parameter = flat.parameters()[index];
    TORCH_CHECK(!done[index], where(), "parameter ", parameter.name,
                " got a second gradient; give all micro-batches but the last to backward(loss, false)");
    flat.take_gradient(index);
    done[index] = true;
    if (--left[parameter.block] > 0)
        return;
    tell_stream();
    check(jigsaw_block_ready(ctx, parameter.block));
}

/// Autograd runs hooks on the stream of the forward operation, so this is asked wherever a gradient is complete.
void Trainer::Impl::tell_stream()
{
    const at::Device device = flat.buffers().front().device();
    if (!device.is_cuda())
        return;
    void *const now_on = current_cuda_stream(static_cast<std::int8_t>(device.index()));
    if (now_on != stream)
        check(jigsaw_set_stream(ctx, now_on));
    stream = now_on;
}

void Trainer::Impl::expect_synchronised(const char *call) const
{
    TORCH_CHECK(synchronised, where(), call, " belongs between sync() and the next begin(): only then are gradients the means");
}

/// A parameter that the loss did not depend on this time has gradient zero: other ranks may have used it.
void Trainer::Impl::fill_missing(std::uint32_t block)
{
    bool any = false;
    for (std::size_t i = 0; i < done.size(); ++i)
        any = any || (flat.parameters()[i].block == block && done[i]);
    TORCH_CHECK(any, where(), "no gradient reached block ", flat.name(block), " within depth ", now.depth,
                "; was backward() called on this iteration's loss?");
    for (std::size_t i = 0; i < done.size(); ++i)
        if (flat.parameters()[i].block == block && !done[i])
            flat.zero_gradient(i);
    left[block] = 0;
    tell_stream();
    check(jigsaw_block_ready(ctx, block));
}

void Trainer::Impl::end_compute()
{
    for (std::uint32_t block = now.num_blocks; block-- > now.num_blocks - now.depth;)
        if (left[block] != 0)
            fill_missing(block);
    tell_stream();
    check(jigsaw_end_compute(ctx));
    state = State::ended;
}

void Trainer::Impl::broadcast_tensors(const std::vector<at::Tensor> &tensors)
{
    const at::NoGradGuard no_grad;
    for (const at::Tensor &tensor : tensors) {
        at::Tensor host = tensor.detach().cpu().contiguous();
        check(jigsaw_broadcast(ctx, host.data_ptr(), static_cast<std::size_t>(host.nbytes()), 0));
        if (!host.is_same(tensor))
            tensor.detach().copy_(host);
    }
}

Trainer::Trainer(std::vector<Block> blocks, const Options &options)
    : impl_(std::make_unique<Impl>(std::move(blocks), options))
{
}
Trainer::Trainer(Trainer &&) noexcept = default;
Trainer &Trainer::operator=(Trainer &&) noexcept = default;
Trainer::~Trainer() = default;

Iteration Trainer::begin()
{
    Impl &impl = *impl_;
    impl.now.size = sizeof impl.now;
    impl.tell_stream();
    impl.synchronised = false;
    impl.check(jigsaw_begin_iteration(impl.ctx, &impl.now));
    impl.flat.reset_gradients();
    impl.flat.freeze_below(impl.now.num_blocks - impl.now.depth);
    impl.left = impl.flat.parameters_of_block();
    impl.done.assign(impl.flat.parameters().size(), false);
    impl.last_micro_batch = true;
    impl.state = Impl::State::open;
    return {impl.now.iteration, impl.now.depth, impl.now.num_blocks, impl.now.generation};
}

void Trainer::backward(const at::Tensor &loss, bool last)
{
    Impl &impl = *impl_;
    TORCH_CHECK(impl.state == Impl::State::open, impl.where(), "backward() without begin()");
    impl.last_micro_batch = last;
    impl.check(jigsaw_end_forward(impl.ctx));
    loss.backward();
    impl.last_micro_batch = true;
    if (last)
        return impl.end_compute();
    impl.check(jigsaw_yield_turn(impl.ctx));
    impl.check(jigsaw_turn_begin(impl.ctx));
}

SyncResult Trainer::sync(std::uint32_t timeout_ms)
{
    Impl &impl = *impl_;
    if (impl.state == Impl::State::open)
        impl.end_compute();
    jigsaw_sync_result_t result{};
    result.size = sizeof result;
    const std::uint32_t limit_ms = timeout_ms != 0 ? timeout_ms : impl.options.timeout_ms;
    impl.check(jigsaw_sync(impl.ctx, &result, limit_ms != 0 ? limit_ms : 60000));
    impl.state = Impl::State::idle;
    impl.synchronised = true;
    impl.defined_blocks = result.defined_blocks;
    impl.flat.publish_gradients(result.defined_blocks);
    impl.flat.freeze_below(0);
    return {result.iteration, result.defined_blocks, result.last != 0, static_cast<double>(result.sync_ns) / 1e6,
            static_cast<double>(result.turn_wait_ns) / 1e6};
}

bool Trainer::finite()
{
    Impl &impl = *impl_;
    impl.expect_synchronised("finite()");
    const bool all = impl.flat.finite(impl.defined_blocks);
    if (!all)
        impl.check(jigsaw_skip_step(impl.ctx));
    return all;
}

void Trainer::scale_gradients(double factor)
{
    impl_->expect_synchronised("scale_gradients()");
    impl_->flat.scale(impl_->defined_blocks, factor);
}

double Trainer::clip_grad_norm(double max_norm)
{
    Impl &impl = *impl_;
    impl.expect_synchronised("clip_grad_norm()");
    TORCH_CHECK(max_norm > 0, impl.where(), "clip_grad_norm(", max_norm, "); give a positive norm");
    const double norm = std::sqrt(impl.flat.square_sum(impl.defined_blocks));
    if (norm > max_norm)
        impl.flat.scale(impl.defined_blocks, max_norm / norm);
    return norm;
}

Trainer::Turn::Turn(jigsaw_context_t *ctx) : ctx_(ctx)
{
    const jigsaw_result_t result = jigsaw_turn_begin(ctx);
    if (result != JIGSAW_SUCCESS)
        throw Error(result, jigsaw_last_error(ctx));
}
Trainer::Turn::Turn(Turn &&other) noexcept : ctx_(std::exchange(other.ctx_, nullptr)) {}
Trainer::Turn::~Turn()
{
    if (ctx_ != nullptr)
        jigsaw_yield_turn(ctx_); // not turn_end: a broadcast inside may have given it back
}

Trainer::Turn Trainer::turn()
{
    return Turn(impl_->ctx);
}

void Trainer::report(double loss, double progress, double lr_over_peak)
{
    jigsaw_report_t report = JIGSAW_REPORT_INIT;
    report.loss = loss;
    report.progress = progress;
    report.lr_over_peak = lr_over_peak;
    impl_->check(jigsaw_report(impl_->ctx, &report));
}

void Trainer::leave()
{
    impl_->check(jigsaw_leave(impl_->ctx));
}

void Trainer::detach()
{
    const jigsaw_result_t result = jigsaw_detach(std::exchange(impl_->ctx, nullptr));
    if (result != JIGSAW_SUCCESS)
        throw Error(result, jigsaw_last_error(nullptr));
}

void Trainer::mean(std::vector<double> *values)
{
    impl_->check(jigsaw_mean(impl_->ctx, values->data(), values->size()));
}

void Trainer::broadcast_buffers()
{
    impl_->broadcast_tensors(impl_->module_buffers);
}

int Trainer::rank() const
{
    return jigsaw_rank(impl_->ctx);
}

int Trainer::world_size() const
{
    return jigsaw_world_size(impl_->ctx);
}

std::uint32_t Trainer::num_blocks() const
{
    return static_cast<std::uint32_t>(impl_->flat.buffers().size());
}

jigsaw_stats_t Trainer::stats() const
{
    jigsaw_stats_t stats{};
    stats.size = sizeof stats;
    impl_->check(jigsaw_get_stats(impl_->ctx, &stats));
    return stats;
}

jigsaw_context_t *Trainer::context()
{
    return impl_->ctx;
}

Trainer attach(const std::vector<std::vector<at::Tensor>> &blocks, const Options &options)
{
    std::vector<Block> named;
    for (std::size_t b = 0; b < blocks.size(); ++b)
        named.push_back({std::to_string(b), blocks[b], {}});
    return Trainer(std::move(named), options);
}

} // namespace torch
} // namespace jigsaw
