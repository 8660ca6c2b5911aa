// SPDX-License-Identifier: Apache-2.0
// Kernels of device_scan.hpp. Chunk c holds stages first(c) ... first(c + 1) - 1.
//
//     reduce   grid (chunks - 2, batch): chunks 1 ... chunks - 2 compose their product P and offset p
//     borders  grid (batch): chunk 0 walks its stages, then g at every border from P and p
//     expand   grid (chunks - 1, batch): chunks 1 ... walk their stages from their border
#include "runtime/scan/cuda/device_scan.hpp"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace jigsaw::scan::cuda {

namespace {

constexpr std::size_t kSharedWidth = 64; ///< three matrices of 64 x 64 floats fit the 48 KiB that every block may have
constexpr int kThreads = 256;
constexpr int kWarp = 32;

struct Shape {
    std::size_t stages, batch, width, chunks;
    __host__ __device__ std::size_t first(std::size_t chunk) const
    {
        const std::size_t length = stages / chunks, longer = stages % chunks;
        return chunk * length + (chunk < longer ? chunk : longer);
    }
};

__device__ float as_float(float value) { return value; }
__device__ float as_float(__nv_bfloat16 value) { return __bfloat162float(value); }

/// out = J g + b by a whole block: a warp per row. g and out are shared memory; ends with all threads in step.
template <typename T>
__device__ void apply(const T *jacobian, const float *offset, const float *g, float *out, std::size_t width)
{
    const unsigned lane = threadIdx.x % kWarp;
    for (std::size_t row = threadIdx.x / kWarp; row < width; row += blockDim.x / kWarp) {
        float sum = 0;
        for (std::size_t column = lane; column < width; column += kWarp)
            sum += as_float(jacobian[row * width + column]) * g[column];
        for (int step = kWarp / 2; step > 0; step /= 2)
            sum += __shfl_down_sync(0xffffffffu, sum, step);
        if (lane == 0)
            out[row] = sum + (offset ? offset[row] : 0.0f);
    }
    __syncthreads();
}

/// Stages [from, to) of one sample from g at `from`, whose values are in gradients already.
template <typename T>
__device__ void walk(const T *jacobians, const float *offsets, float *gradients, Shape shape, std::size_t sample,
                     std::size_t from, std::size_t to, float *shared)
{
    const std::size_t width = shape.width;
    float *now = shared, *next = shared + width;
    for (std::size_t k = threadIdx.x; k < width; k += blockDim.x)
        now[k] = gradients[(from * shape.batch + sample) * width + k];
    __syncthreads();
    for (std::size_t i = from; i < to; ++i) {
        const std::size_t at = i * shape.batch + sample;
        apply(jacobians + at * width * width, offsets ? offsets + at * width : nullptr, now, next, width);
        float *const out = gradients + ((i + 1) * shape.batch + sample) * width;
        for (std::size_t k = threadIdx.x; k < width; k += blockDim.x)
            out[k] = next[k];
        float *const other = now;
        now = next;
        next = other;
        __syncthreads();
    }
}

/// products, offsets_out: [chunk][sample]; chunk numbers from 1 stand at index 0.
template <typename T>
__global__ void reduce(const T *jacobians, const float *offsets, Shape shape, float *products, float *offsets_out)
{
    extern __shared__ float shared[];
    const std::size_t chunk = blockIdx.x + 1, sample = blockIdx.y, width = shape.width, area = width * width;
    float *product = shared, *next = shared + area, *const jacobian = shared + 2 * area;
    float *offset = shared + 3 * area, *next_offset = offset + width;
    for (std::size_t i = shape.first(chunk); i < shape.first(chunk + 1); ++i) {
        const std::size_t at = i * shape.batch + sample;
        const bool is_first = i == shape.first(chunk);
        float *const into = is_first ? product : jacobian;
        for (std::size_t k = threadIdx.x; k < area; k += blockDim.x)
            into[k] = as_float(jacobians[at * area + k]);
        if (is_first)
            for (std::size_t k = threadIdx.x; k < width; k += blockDim.x)
                offset[k] = offsets ? offsets[at * width + k] : 0.0f;
        __syncthreads();
        if (is_first)
            continue;
        for (std::size_t k = threadIdx.x; k < area; k += blockDim.x) {
            const std::size_t row = k / width, column = k % width;
            float sum = 0;
            for (std::size_t inner = 0; inner < width; ++inner)
                sum += jacobian[row * width + inner] * product[inner * width + column];
            next[k] = sum;
        }
        apply(jacobian, offsets ? offsets + at * width : nullptr, offset, next_offset, width);
        float *const old = product, *const old_offset = offset;
        product = next, next = old;
        offset = next_offset, next_offset = old_offset;
    }
    const std::size_t at = (chunk - 1) * shape.batch + sample;
    for (std::size_t k = threadIdx.x; k < area; k += blockDim.x)
        products[at * area + k] = product[k];
    for (std::size_t k = threadIdx.x; k < width; k += blockDim.x)
        offsets_out[at * width + k] = offset[k];
}

template <typename T>
__global__ void borders(const T *jacobians, const float *offsets, const float *seed, Shape shape, const float *products,
                        const float *product_offsets, float *gradients)
{
    extern __shared__ float shared[];
    const std::size_t sample = blockIdx.x, width = shape.width;
    for (std::size_t k = threadIdx.x; k < width; k += blockDim.x)
        gradients[sample * width + k] = seed[sample * width + k];
    __syncthreads();
    walk(jacobians, offsets, gradients, shape, sample, 0, shape.first(1), shared);
    for (std::size_t chunk = 1; chunk + 1 < shape.chunks; ++chunk) {
        const std::size_t at = (chunk - 1) * shape.batch + sample;
        for (std::size_t k = threadIdx.x; k < width; k += blockDim.x)
            shared[k] = gradients[(shape.first(chunk) * shape.batch + sample) * width + k];
        __syncthreads();
        apply(products + at * width * width, product_offsets + at * width, shared, shared + width, width);
        float *const out = gradients + (shape.first(chunk + 1) * shape.batch + sample) * width;
        for (std::size_t k = threadIdx.x; k < width; k += blockDim.x)
            out[k] = shared[width + k];
        __syncthreads();
    }
}

template <typename T> __global__ void expand(const T *jacobians, const float *offsets, Shape shape, float *gradients)
{
    extern __shared__ float shared[];
    const std::size_t chunk = blockIdx.x + 1, sample = blockIdx.y;
    // The last gradient of a middle chunk is the next one's border: there already, and read by that chunk's block.
    const std::size_t end = shape.first(chunk + 1) - (chunk + 1 < shape.chunks ? 1 : 0);
    walk(jacobians, offsets, gradients, shape, sample, shape.first(chunk), end, shared);
}

// ---- beyond h = 64: one batched GEMM per step of all chunks ----

/// The first stage of every middle chunk: its Jacobian and offset are where the products start.
template <typename T>
__global__ void start_products(const T *jacobians, const float *offsets, Shape shape, T *products,
                               float *product_offsets)
{
    const std::size_t chunk = blockIdx.x + 1, sample = blockIdx.y, width = shape.width, area = width * width;
    const std::size_t from = shape.first(chunk) * shape.batch + sample, to = (chunk - 1) * shape.batch + sample;
    for (std::size_t k = threadIdx.x; k < area; k += blockDim.x)
        products[to * area + k] = jacobians[from * area + k];
    for (std::size_t k = threadIdx.x; k < width; k += blockDim.x)
        product_offsets[to * width + k] = offsets ? offsets[from * width + k] : 0.0f;
}

/// p = J p + b for the step `step` of every middle chunk that is long enough.
template <typename T>
__global__ void step_offsets(const T *jacobians, const float *offsets, Shape shape, std::size_t step,
                             float *product_offsets)
{
    extern __shared__ float shared[];
    const std::size_t chunk = blockIdx.x + 1, sample = blockIdx.y, width = shape.width;
    const std::size_t i = shape.first(chunk) + step, at = i * shape.batch + sample;
    if (i >= shape.first(chunk + 1))
        return;
    float *const mine = product_offsets + ((chunk - 1) * shape.batch + sample) * width;
    for (std::size_t k = threadIdx.x; k < width; k += blockDim.x)
        shared[k] = mine[k];
    __syncthreads();
    apply(jacobians + at * width * width, offsets ? offsets + at * width : nullptr, shared, shared + width, width);
    for (std::size_t k = threadIdx.x; k < width; k += blockDim.x)
        mine[k] = shared[width + k];
}

__global__ void as_single(const __nv_bfloat16 *from, float *to, std::size_t count)
{
    for (std::size_t k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        to[k] = __bfloat162float(from[k]);
}

template <typename T> constexpr cudaDataType_t kType = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;

/// Row-major P' = J P is column-major P'^T = P^T J^T: cuBLAS gets P as its left and J as its right operand.
template <typename T>
cublasStatus_t multiply_step(cublasHandle_t cublas, const T *jacobians, Shape shape, std::size_t step,
                             const T *products, T *next, std::size_t chunk)
{
    const std::size_t area = shape.width * shape.width, to = (chunk - 1) * shape.batch * area;
    const T *const jacobian = jacobians + (shape.first(chunk) + step) * shape.batch * area;
    const float one = 1, zero = 0;
    const int h = static_cast<int>(shape.width);
    return cublasGemmStridedBatchedEx(cublas, CUBLAS_OP_N, CUBLAS_OP_N, h, h, h, &one, products + to, kType<T>, h,
                                      static_cast<long long>(area), jacobian, kType<T>, h, static_cast<long long>(area),
                                      &zero, next + to, kType<T>, h, static_cast<long long>(area),
                                      static_cast<int>(shape.batch), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

struct Handle {
    cublasHandle_t cublas = nullptr;
    ~Handle()
    {
        if (cublas)
            cublasDestroy(cublas);
    }
};

template <typename T>
std::string reduce_by_gemm(const DeviceChain &chain, Shape shape, float *workspace, float *product_offsets,
                           cudaStream_t stream)
{
    const T *const jacobians = static_cast<const T *>(chain.jacobians);
    const std::size_t middle = shape.chunks - 2, count = middle * shape.batch * shape.width * shape.width;
    T *products = reinterpret_cast<T *>(workspace), *next = reinterpret_cast<T *>(workspace + count);
    const dim3 grid(static_cast<unsigned>(middle), static_cast<unsigned>(shape.batch));
    start_products<T><<<grid, kThreads, 0, stream>>>(jacobians, chain.offsets, shape, products, product_offsets);
    thread_local Handle handle;
    if (!handle.cublas && cublasCreate(&handle.cublas) != CUBLAS_STATUS_SUCCESS)
        return "scan: cuBLAS cannot be started on this device";
    cublasSetStream(handle.cublas, stream);
    const std::size_t longest = shape.first(1), shared = 2 * shape.width * sizeof(float);
    for (std::size_t step = 1; step < longest; ++step) {
        step_offsets<T><<<grid, kThreads, shared, stream>>>(jacobians, chain.offsets, shape, step, product_offsets);
        for (std::size_t chunk = 1; chunk + 1 < shape.chunks; ++chunk) {
            const std::size_t each = shape.batch * shape.width * shape.width;
            if (shape.first(chunk) + step < shape.first(chunk + 1)) {
                if (multiply_step<T>(handle.cublas, jacobians, shape, step, products, next, chunk) !=
                    CUBLAS_STATUS_SUCCESS)
                    return "scan: cuBLAS refused a batched product of width " + std::to_string(shape.width);
            } else {
                cudaMemcpyAsync(next + (chunk - 1) * each, products + (chunk - 1) * each, each * sizeof(T),
                                cudaMemcpyDeviceToDevice, stream);
            }
        }
        std::swap(products, next);
    }
    // borders() reads floats from the workspace's start.
    if (std::is_same_v<T, float> && reinterpret_cast<float *>(products) != workspace)
        cudaMemcpyAsync(workspace, products, count * sizeof(float), cudaMemcpyDeviceToDevice, stream);
    if (!std::is_same_v<T, float>) {
        float *const spare = workspace + 2 * count; // room of the second half of `next`: see workspace_bytes()
        as_single<<<256, kThreads, 0, stream>>>(reinterpret_cast<const __nv_bfloat16 *>(products), spare, count);
        cudaMemcpyAsync(workspace, spare, count * sizeof(float), cudaMemcpyDeviceToDevice, stream);
    }
    return "";
}

std::string last_error()
{
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? "" : std::string("scan: CUDA: ") + cudaGetErrorString(error);
}

template <typename T> std::string queue(const DeviceChain &chain, Shape shape, float *workspace, cudaStream_t stream)
{
    const T *const jacobians = static_cast<const T *>(chain.jacobians);
    const std::size_t width = shape.width, area = width * width, middle = shape.chunks > 2 ? shape.chunks - 2 : 0;
    float *const product_offsets = workspace ? workspace + (width > kSharedWidth ? 3 : 1) * middle * shape.batch * area
                                             : nullptr;
    const unsigned batch = static_cast<unsigned>(shape.batch);
    const std::size_t vectors = 2 * width * sizeof(float);
    if (middle > 0 && width <= kSharedWidth) {
        const std::size_t shared = (3 * area + 2 * width) * sizeof(float);
        cudaFuncSetAttribute(reduce<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
        reduce<T><<<dim3(static_cast<unsigned>(middle), batch), kThreads, shared, stream>>>(
            jacobians, chain.offsets, shape, workspace, product_offsets);
    } else if (middle > 0) {
        const std::string trouble = reduce_by_gemm<T>(chain, shape, workspace, product_offsets, stream);
        if (!trouble.empty())
            return trouble;
    }
    borders<T><<<batch, kThreads, vectors, stream>>>(jacobians, chain.offsets, chain.seed, shape, workspace,
                                                     product_offsets, chain.gradients);
    if (shape.chunks > 1)
        expand<T><<<dim3(static_cast<unsigned>(shape.chunks - 1), batch), kThreads, vectors, stream>>>(
            jacobians, chain.offsets, shape, chain.gradients);
    return last_error();
}

__device__ void set(float *to, float value) { *to = value; }
__device__ void set(__nv_bfloat16 *to, float value) { *to = __float2bfloat16(value); }

template <typename T>
__global__ void rnn_jacobians(const float *weight, const float *states, std::size_t steps, std::size_t batch,
                              std::size_t width, T *out)
{
    const std::size_t stage = blockIdx.x, sample = blockIdx.y;
    const float *const state = states + ((steps - 1 - stage) * batch + sample) * width;
    T *const matrix = out + (stage * batch + sample) * width * width;
    for (std::size_t k = threadIdx.x; k < width * width; k += blockDim.x) {
        const std::size_t row = k / width, column = k % width;
        set(matrix + k, weight[column * width + row] * (1 - state[column] * state[column]));
    }
}

std::string refuse(const DeviceChain &chain, std::size_t chunks)
{
    if (chain.stages == 0 || chain.batch == 0 || chain.width == 0)
        return "scan: a chain of " + std::to_string(chain.stages) + " stages, batch " + std::to_string(chain.batch) +
               ", width " + std::to_string(chain.width) + " on a GPU; each must be at least 1";
    if (chain.batch > 65535 || chain.width > 4096)
        return "scan: batch " + std::to_string(chain.batch) + " and width " + std::to_string(chain.width) +
               " on a GPU; the limits are 65535 and 4096";
    if (chunks == 0 || chunks > chain.stages)
        return "scan: " + std::to_string(chunks) + " chunks of " + std::to_string(chain.stages) +
               " stages; give 1 to one per stage";
    return "";
}

} // namespace

std::size_t workspace_bytes(const DeviceChain &chain, std::size_t chunks)
{
    const std::size_t middle = chunks > 2 ? chunks - 2 : 0, matrices = chain.width > kSharedWidth ? 3 : 1;
    return middle * chain.batch * (matrices * chain.width * chain.width + chain.width) * sizeof(float);
}

std::size_t good_chunks(const DeviceChain &chain, std::size_t processors)
{
    const auto root = static_cast<std::size_t>(std::sqrt(static_cast<double>(chain.stages)));
    const std::size_t fill = 2 * processors / std::max<std::size_t>(1, chain.batch);
    return std::clamp<std::size_t>(std::min(std::max<std::size_t>(root, 1), std::max<std::size_t>(fill, 1)), 1,
                                   std::max<std::size_t>(1, chain.stages));
}

std::string queue_scan(const DeviceChain &chain, std::size_t chunks, void *workspace, void *stream)
{
    const std::string trouble = refuse(chain, chunks);
    if (!trouble.empty())
        return trouble;
    const Shape shape{chain.stages, chain.batch, chain.width, chunks};
    auto *const room = static_cast<float *>(workspace);
    const auto queue_on = static_cast<cudaStream_t>(stream);
    return chain.bfloat16 ? queue<__nv_bfloat16>(chain, shape, room, queue_on)
                          : queue<float>(chain, shape, room, queue_on);
}

std::string queue_rnn_jacobians(const float *weight, const float *states, std::size_t steps, std::size_t batch,
                                std::size_t width, bool bfloat16, void *jacobians, void *stream)
{
    const dim3 grid(static_cast<unsigned>(steps), static_cast<unsigned>(batch));
    const auto queue_on = static_cast<cudaStream_t>(stream);
    if (bfloat16)
        rnn_jacobians<<<grid, kThreads, 0, queue_on>>>(weight, states, steps, batch, width,
                                                       static_cast<__nv_bfloat16 *>(jacobians));
    else
        rnn_jacobians<<<grid, kThreads, 0, queue_on>>>(weight, states, steps, batch, width,
                                                       static_cast<float *>(jacobians));
    return last_error();
}

} // namespace jigsaw::scan::cuda
