// SPDX-License-Identifier: Apache-2.0
// What runtime/collective/nccl declares of CUDA and NCCL, against the real headers (parameter by parameter, at compile
// time) and the real libraries (every name, at link time); and what a process says that has libraries and no driver.
#include "runtime/collective/nccl/libraries.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <type_traits>

namespace {

namespace abi = jigsaw::nccl::abi;

/// Passed alike in every calling convention that CUDA has: pointers, integers and enumerations of one size, and
/// trivially copied structures of one size.
template <typename Ours, typename Theirs> constexpr bool passed_alike()
{
    if constexpr (std::is_void_v<Theirs> || std::is_void_v<Ours>)
        return std::is_void_v<Theirs> && std::is_void_v<Ours>;
    else if constexpr (std::is_pointer_v<Theirs>)
        return std::is_pointer_v<Ours>;
    else if constexpr (std::is_class_v<Theirs>)
        return std::is_class_v<Ours> && sizeof(Ours) == sizeof(Theirs) && std::is_trivially_copyable_v<Ours>;
    else
        return (std::is_integral_v<Ours>)&&(std::is_integral_v<Theirs> || std::is_enum_v<Theirs>) &&
               sizeof(Ours) == sizeof(Theirs);
}

template <typename R, typename... P, typename S, typename... Q>
constexpr bool called_alike(R (*)(P...), S (*)(Q...))
{
    if constexpr (sizeof...(P) != sizeof...(Q))
        return false;
    else
        return passed_alike<R, S>() && (passed_alike<P, Q>() && ...);
}

#define COMPARE(result, name, parameters)                                                                              \
    static_assert(called_alike(static_cast<decltype(FUNCTIONS::name)>(nullptr), static_cast<decltype(&::name)>(nullptr)),                     \
                  #name " differs");
#define FUNCTIONS abi::CudaFunctions
JIGSAW_CUDA_FUNCTIONS(COMPARE)
#undef FUNCTIONS
#define FUNCTIONS abi::NcclFunctions
JIGSAW_NCCL_FUNCTIONS(COMPARE)

constexpr bool same(int ours, int theirs) { return ours == theirs; }
static_assert(same(abi::kCudaSuccess, cudaSuccess) && same(abi::kCudaNotReady, cudaErrorNotReady));
static_assert(same(abi::kCudaStreamNonBlocking, cudaStreamNonBlocking));
static_assert(same(abi::kCudaMemoryDevice, cudaMemoryTypeDevice) && same(abi::kCudaMemoryManaged, cudaMemoryTypeManaged));
static_assert(same(abi::kNcclSuccess, ncclSuccess) && same(abi::kNcclInvalidUsage, ncclInvalidUsage));
static_assert(same(abi::kNcclRemoteError, ncclRemoteError) && same(abi::kNcclInProgress, ncclInProgress));
static_assert(same(abi::kNcclSum, ncclSum) && same(abi::kNcclAvg, ncclAvg) && same(abi::kNcclNoColor, NCCL_SPLIT_NOCOLOR));
static_assert(same(abi::kNcclFloat32, ncclFloat32) && same(abi::kNcclFloat64, ncclFloat64) && same(abi::kNcclBfloat16, ncclBfloat16));
static_assert(same(abi::kLeastNcclVersion, NCCL_VERSION(2, 18, 0)));

static_assert(sizeof(abi::PointerAttributes) >= sizeof(cudaPointerAttributes), "a newer CUDA writes beyond it");
static_assert(offsetof(abi::PointerAttributes, device) == offsetof(cudaPointerAttributes, device));
static_assert(sizeof(abi::Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(abi::Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(abi::Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(abi::Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(abi::Config, split_share) == offsetof(ncclConfig_t, splitShare));

/// Linked, though not called: the library has every function.
#define ADDRESS(result, name, parameters) reinterpret_cast<const void *>(&::name),
const void *const kLinked[] = {JIGSAW_CUDA_FUNCTIONS(ADDRESS) JIGSAW_NCCL_FUNCTIONS(ADDRESS)};

} // namespace

int main()
{
    std::printf("1..3\n");
    std::printf("ok 1 - declarations are those of NCCL %d.%d.%d and CUDA %d\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH,
                CUDART_VERSION);
    bool all = true;
    for (const void *function : kLinked)
        all = all && function != nullptr;
    std::printf("%sok 2 - all %zu functions are linked\n", all ? "" : "not ", sizeof kLinked / sizeof *kLinked);
    int devices = 0;
    const bool gpu = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
    std::string said = "(nothing)";
    try {
        said = "NCCL " + jigsaw::nccl::nccl_version_text(jigsaw::nccl::libraries().nccl_version);
    } catch (const jigsaw::Error &error) {
        said = error.what();
    }
    const std::string expected = gpu ? "NCCL 2." : "backend \"nccl\": cudaGetDeviceCount: ";
    const bool right = said.rfind(expected, 0) == 0 &&
                       (gpu || said.find("run on a node with a GPU and its driver; or use backend \"gloo\"") != std::string::npos);
    std::printf("%sok 3 - with the real libraries: %s\n", right ? "" : "not ", said.c_str());
    return all && right ? 0 : 1;
}
