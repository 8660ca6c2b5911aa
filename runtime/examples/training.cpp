// SPDX-License-Identifier: Apache-2.0
// begin, forward, backward, sync, step: the loop of jigsaw/torch.hpp with metrics, checkpoints and a common end.
#include "runtime/examples/training.hpp"

#include "runtime/examples/digest.hpp"
#include "runtime/examples/task.hpp"

#include <jigsaw/torch.hpp>

#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <mutex>
#include <unistd.h>

namespace jigsaw::examples {

namespace {

/// A GPU stands for one core here, so a rank computes on one thread.
void use_one_thread()
{
    // OpenMP's number is a thread's own; LibTorch 1.13 aborts when two threads set it at once.
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    at::set_num_threads(1);
    if (void *set = dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))
        reinterpret_cast<void (*)(int)>(set)(1);
}

/// Ranks may be threads, and LibTorch's default generator is one for all of them.
std::unique_ptr<Task> make_seeded(MakeTask make_task, const Options &options)
{
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    ::torch::manual_seed(options.seed);
    return make_task(options);
}

std::unique_ptr<::torch::optim::Optimizer> make_optimizer(const Options &options, Task &task)
{
    const std::vector<at::Tensor> parameters = task.module().parameters();
    if (options.optimizer == "adam")
        return std::make_unique<::torch::optim::Adam>(
            parameters, ::torch::optim::AdamOptions(options.lr).weight_decay(options.weight_decay));
    return std::make_unique<::torch::optim::SGD>(
        parameters, ::torch::optim::SGDOptions(options.lr).momentum(options.momentum).weight_decay(options.weight_decay));
}

void set_rate(::torch::optim::Optimizer &optimizer, double lr)
{
    for (::torch::optim::OptimizerParamGroup &group : optimizer.param_groups())
        group.options().set_lr(lr);
}

double median(std::vector<double> values)
{
    if (values.empty())
        return 0;
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

std::string digest_of(Task &task)
{
    Sha256 sha;
    for (const at::Tensor &parameter : task.module().parameters()) {
        const at::Tensor host = parameter.detach().contiguous();
        sha.add(host.data_ptr(), static_cast<std::size_t>(host.nbytes()));
    }
    return sha.hex();
}

torch::Options trainer_options(const Options &options, const Place &place, std::uint64_t first_iteration)
{
    torch::Options out;
    out.policy = options.policy;
    out.levels = options.levels;
    out.full_workers = options.full_workers;
    out.warmup_iterations =
        static_cast<std::uint64_t>(std::lround(options.warmup_fraction * static_cast<double>(options.iterations)));
    out.seed = options.seed;
    out.first_iteration = first_iteration;
    out.min_depth_fraction = options.min_depth;
    out.sync_strategy = options.strategy;
    out.directive_log = options.directive_log;
    out.replay_log = options.replay_log;
    out.timeout_ms = options.timeout_ms;
    out.rank = place.rank;
    out.world_size = place.world_size;
    out.thread_world = place.thread_world;
    return out;
}

/// One rank's run.
class Run {
  public:
    Run(MakeTask make_task, const Options &options, const Place &place)
        : options_(options), task_(make_seeded(make_task, options)), optimizer_(make_optimizer(options, *task_)),
          next_(options.resume.empty() ? 0 : torch::load_checkpoint(options.resume, &task_->module(), optimizer_.get())),
          trainer_(start(place)), metrics_(options.metrics.empty() ? "" : with_rank(options.metrics, trainer_.rank()))
    {
    }

    EndLine go(const std::atomic<bool> &stop)
    {
        bool stopped = false;
        require_can_save();
        task_->module().train();
        turn_begin_ns_ = now_ns();
        while (next_ < options_.iterations && !stopped)
            stopped = step(stop);
        return end(stopped);
    }

  private:
    /// Before hours of training, not after.
    void require_can_save() const
    {
        if (trainer_.rank() != 0 || options_.save.empty())
            return;
        const std::string probe = options_.save + ".new." + std::to_string(getpid());
        if (!std::ofstream(probe))
            throw std::runtime_error("--save " + options_.save + ": " + std::strerror(errno));
        std::remove(probe.c_str());
    }

    torch::Trainer start(const Place &place)
    {
        if (options_.iterations == 0)
            options_.iterations = static_cast<std::uint64_t>(
                std::max(1.0, std::ceil(options_.epochs * task_->samples_per_epoch() / options_.batch)));
        return torch::attach(task_->blocks(), trainer_options(options_, place, next_));
    }

    /// Returns whether all ranks stop here.
    bool step(const std::atomic<bool> &stop)
    {
        const std::uint64_t asked_ns = now_ns();
        const torch::Iteration now = trainer_.begin();
        const std::uint64_t begun_ns = now_ns();
        IterationLine line;
        line.iteration = now.iteration;
        line.generation = now.generation;
        line.depth = now.depth;
        line.num_blocks = now.num_blocks;
        const at::Tensor loss = task_->loss(now.iteration, trainer_.rank(), trainer_.world_size());
        const std::uint64_t forward_ns = now_ns();
        trainer_.backward(loss);
        line.turn_end_ns = now_ns();
        line.loss = loss.item<double>();
        line.forward_ms = static_cast<double>(forward_ns - begun_ns) / 1e6;
        line.backward_ms = static_cast<double>(line.turn_end_ns - forward_ns) / 1e6;
        const bool beat = (now.iteration + 1) % options_.beat == 0;
        const bool stopped = beat && look_around(line, stop);
        const torch::SyncResult synced = trainer_.sync();
        const std::uint64_t synced_ns = now_ns();
        const Rate rate = rate_at(options_, now.iteration);
        set_rate(*optimizer_, rate.lr);
        optimizer_->step();
        // The turn was held since the last sync, unless it had to go back and begin() waited for another one.
        line.turn_begin_ns = begun_ns - asked_ns > kWaitedNs ? begun_ns : turn_begin_ns_;
        line.sync_ms = synced.sync_ms;
        line.turn_wait_ms = synced.turn_wait_ms;
        line.lr = rate.lr;
        turn_begin_ns_ = synced_ns;
        next_ = now.iteration + 1;
        const Rate coming = rate_at(options_, next_);
        trainer_.report(line.loss, static_cast<double>(next_) / static_cast<double>(options_.iterations),
                        options_.follow_rate ? coming.over_peak : NAN);
        note(line, now.full());
        return stopped;
    }

    /// Mean loss over all ranks, and whether one of them was asked to stop. While no turn is held anyway.
    bool look_around(const IterationLine &line, const std::atomic<bool> &stop)
    {
        std::vector<double> values{line.loss, stop.load() ? 1.0 : 0.0};
        trainer_.mean(&values);
        if (trainer_.rank() == 0 && !options_.quiet)
            std::fprintf(stderr, "%s: iteration %llu/%llu  loss %.4f  depth %u/%u  forward %.1f ms  backward %.1f ms\n",
                         options_.program.c_str(), static_cast<unsigned long long>(line.iteration + 1),
                         static_cast<unsigned long long>(options_.iterations), values[0], line.depth, line.num_blocks,
                         line.forward_ms, line.backward_ms);
        return values[1] > 0;
    }

    void note(const IterationLine &line, bool full)
    {
        metrics_.add(line);
        if (!full)
            return;
        forward_ms_.push_back(line.forward_ms);
        backward_ms_.push_back(line.backward_ms);
    }

    EndLine end(bool stopped)
    {
        EndLine line;
        trainer_.broadcast_buffers();
        if (trainer_.rank() == 0 && !options_.save.empty())
            torch::save_checkpoint(options_.save, task_->module(), *optimizer_, next_);
        {
            const torch::Trainer::Turn turn = trainer_.turn();
            const at::NoGradGuard no_grad;
            task_->module().eval();
            line.quality = task_->evaluate();
        }
        const jigsaw_stats_t stats = trainer_.stats();
        line.iterations = next_;
        line.stopped = stopped;
        line.quality_name = task_->quality_name();
        line.mean_depth_fraction = stats.mean_depth_fraction;
        line.payload_bytes_sent = stats.payload_bytes_sent;
        line.turns = stats.turns;
        line.forward_ms = median(forward_ms_);
        line.backward_ms = median(backward_ms_);
        line.sha256 = digest_of(*task_);
        line.rank = trainer_.rank();
        line.world_size = trainer_.world_size();
        metrics_.add(line);
        trainer_.detach();
        return line;
    }

    /// A begin() that found its turn takes microseconds.
    static constexpr std::uint64_t kWaitedNs = 200000;

    Options options_;
    std::unique_ptr<Task> task_;
    std::unique_ptr<::torch::optim::Optimizer> optimizer_;
    std::uint64_t next_;
    torch::Trainer trainer_;
    Metrics metrics_;
    std::uint64_t turn_begin_ns_ = 0;
    std::vector<double> forward_ms_, backward_ms_;
};

std::atomic<bool> stop_asked{false};

void ask_to_stop(int)
{
    stop_asked.store(true);
}

} // namespace

EndLine train(MakeTask make_task, Options options, const Place &place, const std::atomic<bool> &stop)
{
    use_one_thread();
    return Run(make_task, options, place).go(stop);
}

int train_main(Options defaults, MakeTask make_task, const char *what_it_does, int argc, char **argv)
{
    switch (parse_options(&defaults, argc, argv, what_it_does)) {
    case Parsed::help:
        return 0;
    case Parsed::error:
        return 2;
    case Parsed::run:
        break;
    }
    struct sigaction action = {};
    action.sa_handler = ask_to_stop;
    action.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &action, nullptr);
    try {
        const EndLine line = train(make_task, defaults, Place(), stop_asked);
        if (line.rank == 0)
            std::fprintf(stderr, "%s: %s after %llu iterations: %s %.4f, mean depth %.3f, full depth: forward %.1f ms, backward %.1f ms\n",
                         defaults.program.c_str(), line.stopped ? "stopped" : "done",
                         static_cast<unsigned long long>(line.iterations), line.quality_name, line.quality,
                         line.mean_depth_fraction, line.forward_ms, line.backward_ms);
        return 0;
    } catch (const NoData &missing) {
        std::fprintf(stderr, "%s: skipped: %s\n", defaults.program.c_str(), missing.text.c_str());
        return 77;
    } catch (const c10::Error &error) { // without 16 lines of backtrace
        std::fprintf(stderr, "%s: %s\n", defaults.program.c_str(), error.what_without_backtrace());
        return 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s: %s\n", defaults.program.c_str(), error.what());
        return 1;
    }
}

} // namespace jigsaw::examples
