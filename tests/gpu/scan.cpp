// SPDX-License-Identifier: Apache-2.0
// The chunked scan on a GPU: right against the serial way on the CPU in float64, and how fast against the serial way on the
// same GPU. JSON lines; exit status 1 when a result is wrong. Started by tests/gpu/scan.
#include "bench/bench.hpp"
#include "runtime/scan/cuda/device_scan.hpp"
#include "runtime/scan/scan.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

namespace {

using jigsaw::bench::Line;
namespace cuda = jigsaw::scan::cuda;

void must(cudaError_t error)
{
    if (error != cudaSuccess)
        throw std::runtime_error(cudaGetErrorString(error));
}
void must(const std::string &trouble)
{
    if (!trouble.empty())
        throw std::runtime_error(trouble);
}

class Memory {
  public:
    explicit Memory(std::size_t bytes) { must(cudaMalloc(&data_, std::max<std::size_t>(bytes, 4))); }
    Memory(const void *from, std::size_t bytes) : Memory(bytes)
    {
        must(cudaMemcpy(data_, from, bytes, cudaMemcpyHostToDevice));
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory() { cudaFree(data_); }
    void *get() const { return data_; }
    float *floats() const { return static_cast<float *>(data_); }

  private:
    void *data_ = nullptr;
};

/// The upper half of a float, rounded to nearest: bfloat16.
std::uint16_t to_bfloat16(float value)
{
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float from_bfloat16(std::uint16_t half)
{
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

/// A vanilla RNN's Jacobians by the device's own kernel, random states; gradients enter at every step.
struct Problem {
    std::size_t steps, batch, width;
    bool bfloat16;
    std::vector<float> weight, states, seed, offsets;

    Problem(std::size_t t, std::size_t b, std::size_t h, bool half) : steps(t), batch(b), width(h), bfloat16(half)
    {
        std::mt19937 random(1);
        const float bound = 1 / std::sqrt(static_cast<float>(h)); // LibTorch's initial weights
        weight = draw(random, h * h, bound);
        states = draw(random, t * b * h, 1);
        seed = draw(random, b * h, 1);
        offsets = draw(random, t * b * h, 1);
    }
    static std::vector<float> draw(std::mt19937 &random, std::size_t count, float bound)
    {
        std::uniform_real_distribution<float> uniform(-bound, bound);
        std::vector<float> out(count);
        for (float &value : out)
            value = uniform(random);
        return out;
    }
};

struct OnDevice {
    explicit OnDevice(const Problem &p)
        : weight(p.weight.data(), p.weight.size() * 4), states(p.states.data(), p.states.size() * 4),
          seed(p.seed.data(), p.seed.size() * 4), offsets(p.offsets.data(), p.offsets.size() * 4),
          jacobians(p.steps * p.batch * p.width * p.width * (p.bfloat16 ? 2 : 4)),
          gradients((p.steps + 1) * p.batch * p.width * 4)
    {
        make(p);
        chain = {p.steps,         p.batch,          p.width,       p.bfloat16,
                 jacobians.get(), offsets.floats(), seed.floats(), gradients.floats()};
    }
    void make(const Problem &p)
    {
        must(cuda::queue_rnn_jacobians(weight.floats(), states.floats(), p.steps, p.batch, p.width, p.bfloat16,
                                       jacobians.get(), nullptr));
    }
    Memory weight, states, seed, offsets, jacobians, gradients;
    cuda::DeviceChain chain;
};

/// The same Jacobians (rounded as the device's are) on the CPU in float64.
jigsaw::scan::Gradients<double> reference(const Problem &p)
{
    jigsaw::scan::Stages<double> stages;
    stages.batch = p.batch;
    stages.seed.assign(p.seed.begin(), p.seed.end());
    const std::size_t h = p.width, area = h * h;
    for (std::size_t i = 0; i < p.steps; ++i) {
        std::vector<double> values(p.batch * area);
        for (std::size_t b = 0; b < p.batch; ++b)
            for (std::size_t k = 0; k < area; ++k) {
                const float state = p.states[((p.steps - 1 - i) * p.batch + b) * h + k % h];
                const float value = p.weight[k % h * h + k / h] * (1 - state * state);
                values[b * area + k] = p.bfloat16 ? from_bfloat16(to_bfloat16(value)) : value;
            }
        stages.operators.push_back(jigsaw::scan::make_dense(h, h, p.batch, std::move(values)));
        const float *const offset = p.offsets.data() + i * p.batch * h;
        stages.operators.back().offset.assign(offset, offset + p.batch * h);
    }
    return jigsaw::scan::scan_serial(stages);
}

bool check(std::size_t steps, std::size_t batch, std::size_t width, bool half, std::size_t chunks)
{
    const Problem problem(steps, batch, width, half);
    OnDevice device(problem);
    const Memory workspace(cuda::workspace_bytes(device.chain, chunks));
    must(cuda::queue_scan(device.chain, chunks, workspace.get(), nullptr));
    must(cudaDeviceSynchronize());
    std::vector<float> got((steps + 1) * batch * width);
    must(cudaMemcpy(got.data(), device.gradients.get(), got.size() * 4, cudaMemcpyDeviceToHost));
    const auto wanted = reference(problem);
    double gap = 0, size = 0;
    for (std::size_t i = 0; i <= steps; ++i)
        for (std::size_t k = 0; k < batch * width; ++k) {
            gap += std::pow(got[i * batch * width + k] - wanted[i][k], 2);
            size += std::pow(wanted[i][k], 2);
        }
    const double error = std::sqrt(gap / size);
    // Beyond h = 64 products of bfloat16 Jacobians are kept in bfloat16 between the steps of a chunk.
    const double limit = half && width > 64 ? 3e-2 : 1e-4;
    const bool good = error < limit;
    Line("gpu-scan", "max_rel_err", error, "1")
        .with("T", steps)
        .with("batch", batch)
        .with("h", width)
        .with("dtype", half ? "bfloat16" : "float32")
        .with("chunks", chunks)
        .with("limit", limit)
        .with("passed", good);
    return good;
}

/// Milliseconds of one queue_scan, median of 20, by events.
double time_ms(const cuda::DeviceChain &chain, std::size_t chunks, void *workspace)
{
    cudaEvent_t start, stop;
    must(cudaEventCreate(&start));
    must(cudaEventCreate(&stop));
    std::vector<float> times;
    for (int i = 0; i < 21; ++i) {
        must(cudaEventRecord(start, nullptr));
        must(cuda::queue_scan(chain, chunks, workspace, nullptr));
        must(cudaEventRecord(stop, nullptr));
        must(cudaEventSynchronize(stop));
        float ms = 0;
        must(cudaEventElapsedTime(&ms, start, stop));
        times.push_back(ms);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    std::sort(times.begin() + 1, times.end()); // the first one warms up
    return times[11];
}

void measure(std::size_t steps, std::size_t batch, std::size_t width, bool half, std::size_t processors)
{
    const Problem problem(steps, batch, width, half);
    OnDevice device(problem);
    const std::size_t chunks = cuda::good_chunks(device.chain, processors),
                      bytes = cuda::workspace_bytes(device.chain, chunks);
    const Memory workspace(bytes);
    const double serial = time_ms(device.chain, 1, nullptr), scan = time_ms(device.chain, chunks, workspace.get());
    Line("gpu-scan", "speedup_vs_serial_kernel", serial / scan, "x")
        .with("T", steps)
        .with("batch", batch)
        .with("h", width)
        .with("dtype", half ? "bfloat16" : "float32")
        .with("chunks", chunks)
        .with("serial_ms", serial)
        .with("scan_ms", scan)
        .with("workspace_bytes", bytes)
        .with("jacobian_bytes", steps * batch * width * width * (half ? 2 : 4));
}

bool run(std::size_t processors)
{
    bool good = true;
    for (const bool half : {false, true})
        for (const std::size_t width : {1u, 20u, 64u, 65u, 96u})
            for (const std::size_t chunks : {1u, 2u, 3u, 7u, 33u})
                good = check(33, 3, width, half, chunks) && good;
    good = check(1, 1, 20, false, 1) && good;
    good = check(3000, 2, 20, false, 50) && good;
    for (const std::size_t steps : {100u, 1000u, 10000u, 30000u})
        measure(steps, 16, 20, false, processors);
    for (const std::size_t batch : {2u, 16u, 64u, 256u})
        measure(1000, batch, 20, false, processors);
    measure(1000, 16, 20, true, processors);
    measure(1000, 16, 64, false, processors);
    measure(1000, 4, 128, false, processors);
    return good;
}

} // namespace

int main()
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        std::printf("{\"part\":\"scan\",\"skipped\":\"all\",\"why\":\"no CUDA device\"}\n");
        return EXIT_SUCCESS;
    }
    try {
        cudaDeviceProp device;
        must(cudaGetDeviceProperties(&device, 0));
        const bool good = run(static_cast<std::size_t>(device.multiProcessorCount));
        std::printf("{\"part\":\"scan\",\"passed\":%s,\"device\":\"%s\"}\n", good ? "true" : "false", device.name);
        return good ? EXIT_SUCCESS : EXIT_FAILURE;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "tests/gpu/scan: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
