// SPDX-License-Identifier: Apache-2.0
// DeviceSync on the real NCCL: means against a serial reference, with and without lockstep; how much of the sync hides
// behind backward. One rank per GPU; on one GPU two processes try, and what NCCL says to that is printed.
//
//   one_rank        1: communicator, all-reduce and broadcast of the real library
//   means           1: all blocks within (m + 1) eps sum|x| / m of the serial mean, and alike on all ranks
//   overlap         share of the communication time that is hidden behind compute
#include "runtime/collective/nccl/communicators.hpp"
#include "runtime/collective/threads.hpp"
#include "runtime/sync/device_sync.hpp"
#include "tests/gpu/spin.hpp"
#include "tests/lib/gradients.hpp"
#include "tests/lib/ranks.hpp"
#ifdef JIGSAW_HAVE_GLOO
#include "tests/lib/processes.hpp"
#endif

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <sys/mman.h>

namespace {

using namespace jigsaw;
using namespace jigsaw::sync;
using namespace jigsaw::tests;
using collective::Collective;

void one_rank()
{
    cudaStream_t stream;
    MUST(cudaStreamCreate(&stream));
    auto world = collective::join(collective::make_thread_world(1), 0);
    const auto alive = [] {};
    nccl::Communicators communicators(*world, std::chrono::seconds(30), alive);
    float *data, host[4] = {1, 2, 3, 4};
    MUST(cudaMalloc(reinterpret_cast<void **>(&data), sizeof host));
    MUST(cudaMemcpy(data, host, sizeof host, cudaMemcpyHostToDevice));
    const auto &call = nccl::libraries().nccl;
    communicators.group(communicators.world(), "ncclAllReduce", [&] {
        nccl::check_nccl(call.ncclAllReduce(data, data, 4, nccl::abi::kNcclFloat32, nccl::abi::kNcclAvg, communicators.world(), stream),
                         "ncclAllReduce");
    }, alive);
    communicators.group(communicators.world(), "ncclBroadcast", [&] {
        nccl::check_nccl(call.ncclBroadcast(data, data, 4, nccl::abi::kNcclFloat32, 0, communicators.world(), stream), "ncclBroadcast");
    }, alive);
    communicators.check();
    float back[4];
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaMemcpy(back, data, sizeof back, cudaMemcpyDeviceToHost));
    say("sync", "one_rank", std::equal(host, host + 4, back), "1",
        ",\"nccl\":\"" + nccl::nccl_version_text(nccl::libraries().nccl_version) + "\"");
}

/// Buffers of one rank on its GPU, and pinned copies of what backward would compute.
struct Model {
    Model(const std::vector<std::size_t> &sizes) : counts(sizes)
    {
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (const std::size_t count : counts) {
            void *device, *host;
            MUST(cudaMalloc(&device, count * sizeof(float)));
            MUST(cudaMallocHost(&host, count * sizeof(float)));
            blocks.push_back({device, count, DataType::float32});
            fresh.push_back(static_cast<float *>(host));
        }
    }
    std::vector<std::size_t> counts;
    cudaStream_t stream;
    std::vector<BlockBuffer> blocks;
    std::vector<float *> fresh;
};

void iterate(DeviceSync &sync, Model &model, const plan::IterationPlan &plan, int rank, std::uint64_t kernel_ns)
{
    sync.begin(plan);
    const std::uint32_t depth = plan.depths[static_cast<std::size_t>(rank)];
    for (std::size_t block = model.counts.size(); block-- > model.counts.size() - depth;) {
        if (kernel_ns > 0)
            spin(model.stream, kernel_ns, nullptr);
        MUST(cudaMemcpyAsync(model.blocks[block].data, model.fresh[block], model.counts[block] * sizeof(float),
                             cudaMemcpyHostToDevice, model.stream));
        sync.block_ready(static_cast<std::uint32_t>(block));
    }
    sync.mark_compute_end();
    sync.wait(std::chrono::seconds(30));
}

void check_means(const Model &model, const plan::IterationPlan &plan)
{
    const Blocks<float> expected = reference<float>(plan, model.counts);
    for (std::uint32_t block = 0; block < model.counts.size(); ++block) {
        const std::size_t m = plan.contributors[block].size();
        std::vector<float> mine(model.counts[block]);
        MUST(cudaMemcpy(mine.data(), model.blocks[block].data, mine.size() * sizeof(float), cudaMemcpyDeviceToHost));
        std::vector<double> magnitude(mine.size());
        for (const std::uint32_t rank : plan.contributors[block]) {
            const auto all = gradients_of<float>(static_cast<int>(rank), plan.iteration, model.counts);
            for (std::size_t i = 0; i < mine.size(); ++i)
                magnitude[i] += std::fabs(static_cast<double>(all[block][i]));
        }
        for (std::size_t i = 0; i < mine.size(); ++i)
            if (m > 0 && !(std::fabs(static_cast<double>(mine[i] - expected[block][i])) <=
                           static_cast<double>(m + 1) * std::numeric_limits<float>::epsilon() * magnitude[i] / static_cast<double>(m)))
                throw Error(JIGSAW_INTERNAL_ERROR, "block " + std::to_string(block) + " of iteration " +
                                                       std::to_string(plan.iteration) + " is not the mean");
    }
}

void means(Collective &world, int devices)
{
    MUST(cudaSetDevice(world.rank() % devices));
    Model model({100003, 1, 3000, 1u << 20});
    DeviceSync sync(world, model.blocks, {});
    sync.set_stream(model.stream);
    const std::uint32_t ranks = static_cast<std::uint32_t>(world.size());
    for (std::uint64_t t = 0; t < 8; ++t) {
        std::vector<std::uint32_t> depths;
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
            depths.push_back(t < 2 ? 4 : 1 + (rank + static_cast<std::uint32_t>(t)) % 4);
        const auto plan = plan_of(depths, 4, t);
        const auto fresh = gradients_of<float>(world.rank(), t, model.counts);
        for (std::size_t block = 0; block < fresh.size(); ++block)
            std::copy(fresh[block].begin(), fresh[block].end(), model.fresh[block]);
        sync.set_lockstep(t % 2 == 1);
        iterate(sync, model, plan, world.rank(), 0);
        check_means(model, plan);
    }
}

double seconds_of(DeviceSync &sync, Model &model, int rank, const plan::IterationPlan &plan, std::uint64_t kernel_ns)
{
    iterate(sync, model, plan, rank, kernel_ns);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i)
        iterate(sync, model, plan, rank, kernel_ns);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 20;
}

struct Overlap {
    double together = 0, sync_only = 0;
};

void overlap(Collective &world, int devices, Overlap *ret_overlap)
{
    constexpr std::uint64_t kKernelNs = 3'000'000;
    MUST(cudaSetDevice(world.rank() % devices));
    Model model(std::vector<std::size_t>(8, 4u << 20));
    DeviceSync sync(world, model.blocks, {});
    sync.set_stream(model.stream);
    const auto plan = plan_of(std::vector<std::uint32_t>(static_cast<std::size_t>(world.size()), 8), 8);
    const double sync_only = seconds_of(sync, model, world.rank(), plan, 0);
    const double together = seconds_of(sync, model, world.rank(), plan, kKernelNs);
    if (world.rank() == 0)
        *ret_overlap = {together, sync_only};
}

using Run = std::vector<Outcome> (*)(int, const std::function<void(Collective &)> &);

bool many_ranks(int ranks, int devices, const Run &run, const std::string &how)
{
    const auto outcomes = run(ranks, [&](Collective &world) { means(world, devices); });
    const std::string failure = first_failure(outcomes);
    if (devices < ranks && failure.find("(5)") != std::string::npos) { // ncclInvalidUsage
        skip("sync", "two ranks on one GPU", failure);
        return true;
    }
    say("sync", "means", failure.empty(), "1", ",\"ranks\":" + std::to_string(ranks) + ",\"how\":\"" + how + "\"");
    if (!failure.empty()) {
        std::fprintf(stderr, "%s\n", failure.c_str());
        return false;
    }
    if (devices < ranks) {
        skip("sync", "overlap", "ranks share a GPU");
        return true;
    }
    auto *const times = static_cast<Overlap *>(mmap(nullptr, sizeof(Overlap), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    run(ranks, [&](Collective &world) { overlap(world, devices, times); });
    const double compute = 8 * 3e-3;
    say("sync", "overlap", 1 - (times->together - compute) / times->sync_only, "1",
        ",\"iteration_ms\":" + std::to_string(times->together * 1e3) + ",\"sync_only_ms\":" + std::to_string(times->sync_only * 1e3) +
            ",\"compute_ms\":24");
    return true;
}

#ifdef JIGSAW_HAVE_GLOO
std::vector<Outcome> as_processes(int ranks, const std::function<void(Collective &)> &body)
{
    return run_processes(ranks, [&](Collective &world) {
        // NCCL refuses two ranks on one GPU unless they seem to be of two hosts, or, from 2.30 on, are allowed to.
        setenv("NCCL_HOSTID", ("jigsaw-" + std::to_string(world.rank())).c_str(), 0);
        setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
        body(world);
    }, 60);
}
#endif

} // namespace

int main()
{
    const int devices = count_gpus();
    if (devices == 0) {
        skip("sync", "all", "no GPU");
        return 0;
    }
    bool right = true;
    const int ranks = std::min(std::max(devices, 2), 4);
#ifdef JIGSAW_HAVE_GLOO
    right = many_ranks(ranks, devices, as_processes, "processes over Gloo"); // before this process touches CUDA
#else
    if (devices >= 2)
        right = many_ranks(ranks, devices, [](int n, const std::function<void(Collective &)> &body) { return run_ranks(n, body); },
                           "threads: no Gloo here");
    else
        skip("sync", "two ranks on one GPU", "needs two processes, and this machine has no libgloo-dev");
#endif
    try {
        one_rank();
    } catch (const std::exception &error) {
        std::printf("{\"part\":\"sync\",\"failed\":\"one rank\"}\n");
        std::fprintf(stderr, "%s\n", error.what());
        right = false;
    }
    return right ? 0 : 1;
}
