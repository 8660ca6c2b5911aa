// SPDX-License-Identifier: Apache-2.0
// Two jobs of one rank on one GPU, with the tests' small arbiter between them: do their kernels ever overlap, how long does
// the GPU idle when a turn changes hands, and what does each iteration cost beside the sum of what both compute?
//
//   exclusive          1: no kernel of one job ran inside a turn of the other (by the GPU's clock)
//   handover_us_p50    from the last kernel of one job to the first of the other
//   shared_time_ratio  time of both jobs together over the sum of each alone: 1 is ideal
#include "runtime/capi/session.hpp"
#include "runtime/collective/threads.hpp"
#include "tests/gpu/spin.hpp"
#include "tests/lib/mini_agent.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>

namespace {

using namespace jigsaw;
using namespace jigsaw::tests;

constexpr int kIterations = 200, kKernels = 4;
constexpr std::uint64_t kKernelNs = 500'000;
constexpr int kPerJob = kIterations * kKernels;

struct Results { ///< in memory that all processes share
    Span spans[2][kPerJob];
    double seconds[2];
    std::atomic<int> ready, failed;
};

struct Device { ///< what a job has on the GPU
    cudaStream_t stream = nullptr;
    Span *spans = nullptr;
    float *gradient = nullptr;
    Device()
    {
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        MUST(cudaMalloc(reinterpret_cast<void **>(&spans), sizeof(Span) * kPerJob));
        MUST(cudaMalloc(reinterpret_cast<void **>(&gradient), 1 << 20));
        spin(stream, 1000, spans); // lazy loading of the module belongs to nobody's turn
        MUST(cudaStreamSynchronize(stream));
    }
};

void iterate(capi::Session &session, Device &device, int iteration)
{
    session.begin_iteration();
    session.end_forward();
    for (int k = 0; k < kKernels; ++k)
        spin(device.stream, kKernelNs, device.spans + iteration * kKernels + k);
    session.block_ready(0);
    session.end_compute();
    session.sync(std::chrono::seconds(30));
}

void run_job(int job, Results &results, const std::string &socket, int jobs)
{
    Device device;
    auto world = collective::make_thread_world(1);
    const jigsaw_block_t block = {device.gradient, (1 << 20) / sizeof(float), JIGSAW_FLOAT32, 0};
    jigsaw_config_t config = JIGSAW_CONFIG_INIT;
    config.num_blocks = 1;
    config.blocks = &block;
    config.rank = 0;
    config.world_size = 1;
    config.backend = "nccl";
    config.thread_world = &world;
    capi::Settings settings = capi::make_settings(&config);
    settings.agent_given = true;
    settings.agent.socket_path = socket;
    settings.agent.token = "c0ffee";
    capi::Session session(settings);
    session.set_stream(device.stream);
    ++results.ready;
    while (results.ready < jobs)
        usleep(100);
    const auto start = std::chrono::steady_clock::now();
    for (int t = 0; t < kIterations; ++t)
        iterate(session, device, t);
    MUST(cudaStreamSynchronize(device.stream));
    results.seconds[job] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    MUST(cudaMemcpy(results.spans[job], device.spans, sizeof results.spans[job], cudaMemcpyDeviceToHost));
    session.detach();
}

/// Forks first: the arbiter's thread and CUDA come after.
void run_jobs(int jobs, Results &results)
{
    const std::string socket = "/tmp/jigsaw-gpu-" + std::to_string(getpid());
    results.ready = 0;
    MiniAgent agent(socket);
    std::vector<pid_t> children;
    std::fflush(stdout);
    for (int job = 0; job < jobs; ++job) {
        children.push_back(fork());
        if (children.back() != 0)
            continue;
        alarm(60);
        try {
            run_job(job, results, socket, jobs);
        } catch (const std::exception &error) {
            std::fprintf(stderr, "job %d: %s\n", job, error.what());
            _exit(1);
        }
        _exit(0);
    }
    agent.start();
    for (const pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        results.failed += status != 0;
    }
    agent.stop();
    unlink(socket.c_str());
}

struct Turn {
    std::uint64_t begin_ns, end_ns;
    int job;
};

bool judge(const Results &results)
{
    std::vector<Turn> turns;
    for (int job = 0; job < 2; ++job)
        for (int t = 0; t < kIterations; ++t)
            turns.push_back({results.spans[job][t * kKernels].begin_ns, results.spans[job][t * kKernels + kKernels - 1].end_ns, job});
    std::sort(turns.begin(), turns.end(), [](const Turn &a, const Turn &b) { return a.begin_ns < b.begin_ns; });
    std::vector<double> gaps;
    bool exclusive = true;
    for (std::size_t i = 1; i < turns.size(); ++i) {
        if (turns[i].job == turns[i - 1].job)
            continue;
        exclusive = exclusive && turns[i].begin_ns >= turns[i - 1].end_ns;
        gaps.push_back((static_cast<double>(turns[i].begin_ns) - static_cast<double>(turns[i - 1].end_ns)) / 1e3);
    }
    std::sort(gaps.begin(), gaps.end());
    say("turns", "exclusive", exclusive, "1", ",\"turns\":" + std::to_string(turns.size()));
    if (!gaps.empty()) {
        say("turns", "handover_us_p50", gaps[gaps.size() / 2], "us", ",\"handovers\":" + std::to_string(gaps.size()));
        say("turns", "handover_us_p99", gaps[gaps.size() * 99 / 100], "us");
    }
    return exclusive && gaps.size() >= kIterations / 2;
}

} // namespace

int main()
{
    if (count_gpus() == 0) {
        skip("turns", "all", "no GPU");
        return 0;
    }
    auto &results = *new (mmap(nullptr, sizeof(Results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Results();
    run_jobs(1, results);
    const double alone_s = results.seconds[0];
    say("turns", "alone_iteration_us", alone_s / kIterations * 1e6, "us", ",\"compute_us\":" + std::to_string(kKernels * kKernelNs / 1000));
    run_jobs(2, results);
    const double together_s = std::max(results.seconds[0], results.seconds[1]);
    say("turns", "shared_time_ratio", together_s / (2 * alone_s), "1");
    const bool right = judge(results);
    skip("turns", "slow-down of a rival while a peer is late", "needs two ranks of one communicator; see part sync");
    return right && results.failed == 0 ? 0 : 1;
}
