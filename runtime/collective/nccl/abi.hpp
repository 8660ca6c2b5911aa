// SPDX-License-Identifier: Apache-2.0
// The part of the C interfaces of the CUDA runtime and of NCCL that we call, declared anew: the libraries are opened at
// run time, so a build needs neither their headers nor a GPU. tests/abi/nccl_abi.cpp compares every line with the real
// headers and links every name.
//
// CUDA 11 to 13 and NCCL 2.18 (ncclCommSplit) and later agree on all of it. Enumerations are passed as int.
#ifndef JIGSAW_COLLECTIVE_NCCL_ABI_HPP
#define JIGSAW_COLLECTIVE_NCCL_ABI_HPP

#include <climits>
#include <cstddef>

namespace jigsaw::nccl::abi {

using Stream = void *; ///< cudaStream_t; nullptr: the default stream
using Event = void *;  ///< cudaEvent_t
using Comm = void *;   ///< ncclComm_t
using HostFunction = void (*)(void *);

enum Cuda : int {
    kCudaSuccess = 0,
    kCudaNotReady = 600,
    kCudaStreamNonBlocking = 1, ///< does not wait for the legacy default stream
    kCudaMemoryDevice = 2,
    kCudaMemoryManaged = 3
};

struct PointerAttributes {
    int type;
    int device;
    void *device_pointer;
    void *host_pointer;
    char reserved[224]; ///< CUDA 13 appended 64 bytes; room for more
};

enum Nccl : int {
    kNcclSuccess = 0,
    kNcclInvalidUsage = 5,
    kNcclRemoteError = 6,
    kNcclInProgress = 7,
    kNcclSum = 0,
    kNcclAvg = 4,
    kNcclFloat32 = 7,
    kNcclFloat64 = 8,
    kNcclBfloat16 = 9,
    kNcclNoColor = -1
};
constexpr int kLeastNcclVersion = 21800; ///< as ncclGetVersion() says it

struct UniqueId {
    char bytes[128];
};

/// ncclConfig_t as of 2.18: a newer library reads `size` and `version` and takes its own defaults for the rest.
struct Config {
    std::size_t size = sizeof(Config);
    unsigned magic = 0xcafebeef;
    unsigned version = kLeastNcclVersion;
    int blocking = INT_MIN; ///< INT_MIN: the library's default
    int cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;
    const char *net_name = nullptr;
    int split_share = INT_MIN;
};

/// X(result type, name, parameters)
#define JIGSAW_CUDA_FUNCTIONS(X)                                                                                       \
    X(const char *, cudaGetErrorString, (int error))                                                                   \
    X(int, cudaGetDeviceCount, (int *ret_count))                                                                       \
    X(int, cudaGetDevice, (int *ret_device))                                                                           \
    X(int, cudaSetDevice, (int device))                                                                                \
    X(int, cudaPointerGetAttributes, (PointerAttributes *ret_attributes, const void *pointer))                         \
    X(int, cudaDeviceGetStreamPriorityRange, (int *ret_least, int *ret_greatest))                                      \
    X(int, cudaStreamCreateWithPriority, (Stream *ret_stream, unsigned flags, int priority))                           \
    X(int, cudaStreamDestroy, (Stream stream))                                                                         \
    X(int, cudaStreamWaitEvent, (Stream stream, Event event, unsigned flags))                                          \
    X(int, cudaStreamQuery, (Stream stream))                                                                           \
    X(int, cudaLaunchHostFunc, (Stream stream, HostFunction function, void *argument))                                 \
    X(int, cudaEventCreateWithFlags, (Event *ret_event, unsigned flags))                                               \
    X(int, cudaEventDestroy, (Event event))                                                                            \
    X(int, cudaEventRecord, (Event event, Stream stream))                                                              \
    X(int, cudaEventQuery, (Event event))                                                                              \
    X(int, cudaEventElapsedTime, (float *ret_ms, Event start, Event end))

#define JIGSAW_NCCL_FUNCTIONS(X)                                                                                       \
    X(int, ncclGetVersion, (int *ret_version))                                                                         \
    X(int, ncclGetUniqueId, (UniqueId *ret_id))                                                                        \
    X(int, ncclCommInitRankConfig, (Comm *ret_comm, int ranks, UniqueId id, int rank, Config *config))                 \
    X(int, ncclCommSplit, (Comm comm, int color, int key, Comm *ret_comm, Config *config))                             \
    X(int, ncclCommDestroy, (Comm comm))                                                                               \
    X(int, ncclCommAbort, (Comm comm))                                                                                 \
    X(int, ncclCommGetAsyncError, (Comm comm, int *ret_error))                                                         \
    X(const char *, ncclGetErrorString, (int error))                                                                   \
    X(const char *, ncclGetLastError, (Comm comm))                                                                     \
    X(int, ncclGroupStart, (void))                                                                                     \
    X(int, ncclGroupEnd, (void))                                                                                       \
    X(int, ncclAllReduce,                                                                                              \
      (const void *send, void *receive, std::size_t count, int type, int operation, Comm comm, Stream stream))         \
    X(int, ncclReduce,                                                                                                 \
      (const void *send, void *receive, std::size_t count, int type, int operation, int root, Comm comm,               \
       Stream stream))                                                                                                 \
    X(int, ncclBroadcast,                                                                                              \
      (const void *send, void *receive, std::size_t count, int type, int root, Comm comm, Stream stream))

#define JIGSAW_DECLARE_POINTER(result, name, parameters) result(*name) parameters = nullptr;
struct CudaFunctions {
    JIGSAW_CUDA_FUNCTIONS(JIGSAW_DECLARE_POINTER)
};
struct NcclFunctions {
    JIGSAW_NCCL_FUNCTIONS(JIGSAW_DECLARE_POINTER)
};
#undef JIGSAW_DECLARE_POINTER

} // namespace jigsaw::nccl::abi
#endif
