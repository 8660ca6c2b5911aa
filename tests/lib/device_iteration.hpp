// SPDX-License-Identifier: Apache-2.0
// An iteration on the fake GPU as a framework runs it: kernels are queued, the host runs ahead.
#ifndef JIGSAW_TESTS_LIB_DEVICE_ITERATION_HPP
#define JIGSAW_TESTS_LIB_DEVICE_ITERATION_HPP

#include "runtime/collective/nccl/libraries.hpp"
#include "runtime/collective/ops.hpp"
#include "runtime/sync/device_sync.hpp"
#include "tests/fakes/fake_gpu.hpp"
#include "tests/lib/gradients.hpp"

#include <algorithm>
#include <functional>
#include <list>
#include <thread>

namespace jigsaw::tests {

/// A framework's stream.
class Compute {
  public:
    Compute()
    {
        use_fake_gpu();
        functions().cudaStreamCreateWithPriority(&stream_, 0, 0);
    }
    ~Compute() { functions().cudaStreamDestroy(stream_); }
    void *handle() const { return stream_; }
    void kernel(std::function<void()> work)
    {
        kernels_.push_back(std::move(work));
        use_fake_gpu().fake_kernel(
            stream_, [](void *function) { (*static_cast<std::function<void()> *>(function))(); }, &kernels_.back());
    }

    /// Until everything has run, or never will.
    void drain() const
    {
        while (functions().cudaStreamQuery(stream_) == nccl::abi::kCudaNotReady)
            std::this_thread::yield();
    }

  private:
    static const nccl::abi::CudaFunctions &functions() { return nccl::libraries().cuda; }
    void *stream_ = nullptr;
    std::list<std::function<void()>> kernels_; // all of them: a broken device gives none back
};

/// One iteration as a framework runs it: everything is queued, nothing has run when begin() and block_ready() return.
template <typename Number>
void iterate(sync::DeviceSync &sync, Compute &compute, const collective::Collective &world, const plan::IterationPlan &plan,
             Blocks<Number> &mine, const std::vector<std::size_t> &counts, std::chrono::milliseconds timeout = std::chrono::seconds(60))
{
    const auto fresh = gradients_of<Number>(world.rank(), plan.iteration, counts);
    struct Drain { // kernels look at what this function owns
        Compute &compute;
        ~Drain() { compute.drain(); }
    } drain{compute};
    compute.kernel([&] { // the optimizer of the iteration before still looks at the buffers
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        for (auto &block : mine)
            std::fill(block.begin(), block.end(), static_cast<Number>(77));
    });
    sync.set_stream(compute.handle());
    sync.begin(plan);
    const std::uint32_t depth = plan.depths[static_cast<std::size_t>(world.rank())];
    for (std::size_t block = counts.size(); block-- > counts.size() - depth;) {
        compute.kernel([&, block] {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
            std::copy(fresh[block].begin(), fresh[block].end(), mine[block].begin());
        });
        sync.block_ready(static_cast<std::uint32_t>(block));
    }
    sync.mark_compute_end();
    sync.wait(timeout);
}

/// Ranks leave together, as a session's do by their last exchange.
inline void leave_together(collective::Collective &world)
{
    constexpr std::uint64_t kSequence = std::uint64_t{1} << 58;
    collective::barrier(world, kSequence, std::chrono::seconds(60));
}

} // namespace jigsaw::tests
#endif
