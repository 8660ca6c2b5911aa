// SPDX-License-Identifier: Apache-2.0
// The LibTorch layer with CUDA tensors: one rank trains as plain training does, bit for bit, and what an iteration costs
// more. Built by tests/gpu/run against the torch of python3 where that one has CUDA.
#include <jigsaw/torch.hpp>

#include <torch/torch.h>

#include <chrono>
#include <cstdio>

namespace {

struct Net : torch::nn::Module {
    Net()
    {
        for (int i = 0; i < 4; ++i)
            layers.push_back(register_module("l" + std::to_string(i), torch::nn::Linear(2048, 2048)));
        to(torch::kCUDA);
    }
    torch::Tensor loss(int iteration)
    {
        torch::manual_seed(static_cast<std::uint64_t>(iteration));
        torch::Tensor x = torch::randn({1024, 2048}, torch::kCUDA);
        for (auto &layer : layers)
            x = torch::tanh(layer->forward(x));
        return x.square().mean();
    }
    std::vector<torch::nn::Linear> layers;
};

/// Milliseconds per iteration, after ten.
template <typename Step> double time_of(Step step)
{
    constexpr int kWarm = 10, kTimed = 100;
    std::chrono::steady_clock::time_point start;
    for (int t = 0; t < kWarm + kTimed; ++t) {
        if (t == kWarm) {
            torch::cuda::synchronize();
            start = std::chrono::steady_clock::now();
        }
        step(t);
    }
    torch::cuda::synchronize();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() / kTimed;
}

} // namespace

int main()
{
    if (!torch::cuda::is_available()) {
        std::printf("{\"part\":\"sync\",\"skipped\":\"torch\",\"why\":\"this torch sees no GPU\"}\n");
        return 0;
    }
    torch::manual_seed(1);
    auto plain = std::make_shared<Net>(), ours = std::make_shared<Net>();
    {
        torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < plain->parameters().size(); ++i)
            ours->parameters()[i].copy_(plain->parameters()[i]);
    }
    torch::optim::SGD plain_optimizer(plain->parameters(), 0.01), our_optimizer(ours->parameters(), 0.01);
    const double plain_ms = time_of([&](int t) {
        plain_optimizer.zero_grad();
        plain->loss(t).backward();
        plain_optimizer.step();
    });
    jigsaw::torch::Options options;
    options.world_size = 1;
    options.rank = 0;
    std::vector<std::shared_ptr<torch::nn::Module>> blocks;
    for (auto &layer : ours->layers)
        blocks.push_back(layer.ptr());
    auto trainer = jigsaw::torch::attach(blocks, options);
    const double our_ms = time_of([&](int t) {
        trainer.begin();
        trainer.backward(ours->loss(t));
        trainer.sync();
        our_optimizer.step();
    });
    trainer.detach();
    bool same = true;
    for (std::size_t i = 0; i < plain->parameters().size(); ++i)
        same = same && torch::equal(plain->parameters()[i], ours->parameters()[i]);
    std::printf("{\"part\":\"sync\",\"metric\":\"torch_bits_equal\",\"value\":%d,\"unit\":\"1\"}\n", same);
    std::printf("{\"part\":\"sync\",\"metric\":\"full_depth_overhead_ratio\",\"value\":%.4f,\"unit\":\"1\",\"plain_ms\":%.3f}\n",
                our_ms / plain_ms, plain_ms);
    return same ? 0 : 1;
}
