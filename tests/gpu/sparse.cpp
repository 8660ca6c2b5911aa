// SPDX-License-Identifier: Apache-2.0
// The sparse kernels on a GPU against those of the host, and inference through a RadiX-Net: the same samples left, and how
// fast. JSON lines; exit status 1 when a result is wrong. Started by tests/gpu/sparse.
#include "bench/bench.hpp"
#include "runtime/sparse/cuda/device_sparse.hpp"
#include "runtime/sparse/generate.hpp"
#include "runtime/sparse/inference.hpp"
#include "runtime/sparse/random.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace {

using namespace jigsaw::sparse;
using jigsaw::bench::Line;

bool failed = false;

void must(cudaError_t error)
{
    if (error != cudaSuccess)
        throw Error(cudaGetErrorString(error));
}
void must(const std::string &trouble)
{
    if (!trouble.empty())
        throw Error(trouble);
}

template <typename T> class Memory {
public:
    explicit Memory(std::size_t count) : count_(count) { must(cudaMalloc(reinterpret_cast<void **>(&data_), std::max<std::size_t>(count, 1) * sizeof(T))); }
    Memory(const T *from, std::size_t count) : Memory(count) { put(from); }
    explicit Memory(const std::vector<T> &from) : Memory(from.data(), from.size()) {}
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory() { cudaFree(data_); }
    void put(const T *from) { must(cudaMemcpy(data_, from, count_ * sizeof(T), cudaMemcpyHostToDevice)); }
    void get(T *to) const { must(cudaMemcpy(to, data_, count_ * sizeof(T), cudaMemcpyDeviceToHost)); }
    void clear() { must(cudaMemset(data_, 0, count_ * sizeof(T))); }
    T *data() const { return data_; }

private:
    T *data_ = nullptr;
    std::size_t count_;
};

struct OnDevice {
    explicit OnDevice(const CsrMatrix &m) : rows(m.rows), columns(m.columns), row_start(m.row_start), column(m.column), value(m.value) {}
    cuda::DeviceMatrix matrix() const { return {rows, columns, row_start.data(), column.data(), value.data()}; }
    std::uint32_t rows, columns;
    Memory<std::uint64_t> row_start;
    Memory<std::uint32_t> column;
    Memory<float> value;
};

Tiles random_tiles(std::uint32_t rows, std::uint32_t count, std::uint32_t width, std::uint64_t seed)
{
    Random random(seed);
    Tiles tiles;
    tiles.resize(rows, count, width);
    for (std::size_t i = 0; i < tiles.tile_floats() * count; ++i)
        tiles.tile(0)[i] = random.below(3) == 0 ? 0.0F : static_cast<float>(random.below(2001)) / 1000.0F - 1;
    return tiles;
}

/// The largest difference; sums here are of at most some hundred numbers up to 4.
void report(const char *metric, const float *got, const float *wanted, std::size_t count, std::uint32_t width, int finish)
{
    double worst = 0;
    for (std::size_t i = 0; i < count; ++i)
        worst = std::max(worst, static_cast<double>(std::abs(got[i] - wanted[i])));
    failed |= !(worst < 1e-4);
    Line("gpu-sparse", metric, worst, "1").with("width", width).with("finish", finish).with("right", worst < 1e-4);
}

void check_kernels()
{
    Network net = random_regular(200, 1, 17, 3);
    CsrMatrix m = net.layers[0];
    Random random(2);
    for (float &value : m.value)
        value = static_cast<float>(random.below(2001)) / 1000.0F - 1;
    std::vector<float> row_bias;
    for (std::uint32_t row = 0; row < m.rows; ++row)
        row_bias.push_back(static_cast<float>(random.below(100)) / 100);
    const OnDevice device(m);
    const Memory<float> device_bias(row_bias);
    for (const std::uint32_t width : {32U, 64U, 128U}) {
        const Tiles x = random_tiles(m.columns, 3, width, width);
        const Memory<float> device_x(x.tile(0), x.tile_floats() * 3);
        for (int kind = 0; kind < 4; ++kind) {
            Tiles y = random_tiles(m.rows, 3, width, 5);
            Memory<float> device_y(y.tile(0), y.tile_floats() * 3);
            cuda::DeviceProduct product;
            product.matrix = device.matrix();
            product.tiles = 3;
            product.width = width;
            product.x = device_x.data();
            product.y = device_y.data();
            product.add = kind % 2 == 1;
            product.finish = kind;
            product.bias = -.3F;
            product.clip = 1;
            product.row_bias = device_bias.data();
            must(cuda::queue_product(product, nullptr));
            Finish finish{static_cast<Finish::Kind>(kind), -.3F, row_bias.data(), 1};
            for (std::uint32_t t = 0; t < 3; ++t)
                multiply({&m, 0, m.rows, width, x.tile(t), y.tile(t), kind % 2 == 1, finish, nullptr, nullptr}, best_instructions());
            std::vector<float> got(y.tile_floats() * 3);
            device_y.get(got.data());
            report("product_difference", got.data(), y.tile(0), got.size(), width, kind);
        }
        const Tiles delta = random_tiles(m.rows, 3, width, 8);
        const Memory<float> device_delta(delta.tile(0), delta.tile_floats() * 3);
        const Memory<float> device_gradient(m.nonzeros());
        must(cuda::queue_gradient({device.matrix(), 3, width, device_x.data(), device_delta.data(), device_gradient.data()}, nullptr));
        std::vector<float> got(m.nonzeros()), wanted(m.nonzeros());
        device_gradient.get(got.data());
        weight_gradient({&m, 0, m.rows, width, 3, x.tile(0), delta.tile(0), x.tile_floats(), delta.tile_floats(), wanted.data()},
                        best_instructions());
        report("gradient_difference", got.data(), wanted.data(), got.size(), width, -1);
    }
}

void run_inference()
{
    constexpr std::uint32_t kNeurons = 1024, kSamples = 10000, kWidth = 32;
    const Network network = radix_net(kNeurons, 120, 1);
    Random random(7);
    Samples samples;
    samples.features = kNeurons;
    for (std::uint32_t s = 0; s < kSamples; ++s) {
        const std::uint32_t share = 60 + random.below(300); // of 1024: few live on
        for (std::uint32_t n = 0; n < kNeurons; ++n)
            if (random.below(1024) < share) {
                samples.feature.push_back(n);
                samples.value.push_back(1);
            }
        samples.start.push_back(samples.feature.size());
    }
    AloneComm comm;
    Workers workers(1);
    Partition one;
    one.owner.assign(network.layers.size() + 1, std::vector<std::uint32_t>(kNeurons, 0));
    const NetworkShare share = share_of(network, one, 0);
    Inference host(network, share, comm, workers, {});
    const std::vector<std::uint32_t> wanted = host.run(samples).alive;

    std::vector<std::unique_ptr<OnDevice>> layers;
    for (const CsrMatrix &layer : network.layers)
        layers.push_back(std::make_unique<OnDevice>(layer));
    std::vector<std::uint32_t> which(kSamples);
    for (std::uint32_t s = 0; s < kSamples; ++s)
        which[s] = s;
    Tiles x;
    fill_tiles(samples, which, share.inputs, kWidth, &x);
    const std::size_t floats = x.tile_floats() * x.count();
    Memory<float> first(floats), second(floats);
    Memory<std::uint32_t> live(std::size_t{x.count()} * (network.layers.size() + 1));
    const std::vector<std::uint32_t> all(x.count(), 1);
    double seconds = 0;
    for (int run = 0; run < 3; ++run) {
        first.put(x.tile(0));
        live.clear();
        must(cudaMemcpy(live.data(), all.data(), all.size() * sizeof all[0], cudaMemcpyHostToDevice));
        must(cudaDeviceSynchronize());
        const auto start = std::chrono::steady_clock::now();
        float *in = first.data(), *out = second.data();
        for (std::size_t k = 0; k < layers.size(); ++k) {
            cuda::DeviceProduct product;
            product.matrix = layers[k]->matrix();
            product.tiles = x.count();
            product.width = kWidth;
            product.x = in;
            product.y = out;
            product.finish = Finish::graph_challenge;
            product.bias = network.bias;
            product.clip = network.clip;
            product.live_in = live.data() + k * x.count();
            product.live_out = live.data() + (k + 1) * x.count();
            must(cuda::queue_product(product, nullptr));
            std::swap(in, out);
        }
        must(cudaDeviceSynchronize());
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    // An even number of layers: the outputs are where the inputs were. Tiles that died on the way hold old numbers.
    first.get(x.tile(0));
    std::vector<std::uint32_t> last(std::size_t{x.count()} * (layers.size() + 1)), alive;
    live.get(last.data());
    for (std::uint32_t s = 0; s < kSamples; ++s) {
        bool any = false;
        for (std::uint32_t n = 0; n < kNeurons && last[layers.size() * x.count() + s / kWidth] != 0; ++n)
            any |= x.at(n, s) > 0;
        if (any)
            alive.push_back(s);
    }
    failed |= alive != wanted;
    Line("gpu-sparse", "edges_per_s", static_cast<double>(kSamples) * static_cast<double>(network.nonzeros()) / seconds, "1/s")
        .with("alive", alive.size())
        .with("right", alive == wanted)
        .with("seconds", seconds);
}

} // namespace

int main()
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("{\"part\":\"sparse\",\"skipped\":\"all\",\"why\":\"no GPU here\"}");
        return 0;
    }
    try {
        check_kernels();
        run_inference();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "tests/gpu/sparse: %s\n", error.what());
        failed = true;
    }
    return failed ? 1 : 0;
}
