// SPDX-License-Identifier: Apache-2.0
// Names of the libraries, and what to say when they are not there.
#include "runtime/collective/nccl/libraries.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <initializer_list>
#include <mutex>
#include <optional>

namespace jigsaw::nccl {
namespace {

[[noreturn]] void missing(const std::string &what)
{
    throw Error(JIGSAW_NO_BACKEND, "backend \"nccl\": " + what + "; or use backend \"gloo\"");
}

struct Opened {
    void *handle = nullptr;
    std::string name;
};

/// What a framework loaded before us comes first: two runtimes in a process would work, one is better.
Opened open_library(const char *what, const char *variable, std::initializer_list<const char *> names)
{
    const char *const given = std::getenv(variable);
    if (given != nullptr && *given != '\0') {
        void *const handle = dlopen(given, RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr)
            missing(std::string(variable) + "=" + given + " cannot be opened: " + dlerror() + "; correct or unset it");
        return {handle, given};
    }
    for (const int flags : {RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD, RTLD_NOW | RTLD_LOCAL})
        for (const char *name : names)
            if (void *const handle = dlopen(name, flags))
                return {handle, name};
    missing(std::string("the loader finds no ") + what + "; install it, or name its file in " + variable);
}

template <typename Function> void resolve(Function *ret_function, const Opened &library, const char *name)
{
    void *const symbol = dlsym(library.handle, name);
    if (symbol == nullptr)
        missing(library.name + " has no function " + name + "; use NCCL 2.18 or newer and CUDA 11 or newer");
    *ret_function = reinterpret_cast<Function>(symbol);
}

void load_cuda(Libraries &all)
{
    const Opened library = open_library("libcudart", "JIGSAW_CUDART_LIBRARY",
                                        {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"});
#define JIGSAW_RESOLVE(result, name, parameters) resolve(&all.cuda.name, library, #name);
    JIGSAW_CUDA_FUNCTIONS(JIGSAW_RESOLVE)
#undef JIGSAW_RESOLVE
    all.cuda_name = library.name;
}

void load_nccl(Libraries &all)
{
    const Opened library = open_library("libnccl", "JIGSAW_NCCL_LIBRARY", {"libnccl.so.2", "libnccl.so"});
#define JIGSAW_RESOLVE(result, name, parameters) resolve(&all.nccl.name, library, #name);
    JIGSAW_NCCL_FUNCTIONS(JIGSAW_RESOLVE)
#undef JIGSAW_RESOLVE
    all.nccl_name = library.name;
    const int code = all.nccl.ncclGetVersion(&all.nccl_version);
    if (code != abi::kNcclSuccess)
        missing(library.name + ": ncclGetVersion: " + all.nccl.ncclGetErrorString(code));
    if (all.nccl_version < abi::kLeastNcclVersion)
        missing(library.name + " is NCCL " + nccl_version_text(all.nccl_version) + "; install 2.18 or newer");
}

void find_devices(Libraries &all)
{
    const int code = all.cuda.cudaGetDeviceCount(&all.devices);
    if (code != abi::kCudaSuccess)
        missing(std::string("cudaGetDeviceCount: ") + all.cuda.cudaGetErrorString(code) + " (" + std::to_string(code) +
                "); run on a node with a GPU and its driver");
    if (all.devices < 1)
        missing("this process sees no GPU; look at CUDA_VISIBLE_DEVICES and at the job's --gres");
}

Libraries load()
{
    Libraries all;
    load_cuda(all);
    find_devices(all);
    load_nccl(all);
    return all;
}

} // namespace

const Libraries &libraries()
{
    static std::mutex mutex;
    static std::optional<Libraries> opened;
    const std::lock_guard lock(mutex);
    if (!opened)
        opened = load();
    return *opened;
}

void check_cuda(int code, const char *call)
{
    if (code != abi::kCudaSuccess)
        throw Error(JIGSAW_SYSTEM_ERROR, std::string(call) + ": " + libraries().cuda.cudaGetErrorString(code) + " (" +
                                             std::to_string(code) + ")");
}

void check_nccl(int code, const char *call, abi::Comm comm)
{
    if (code == abi::kNcclSuccess || code == abi::kNcclInProgress)
        return;
    const abi::NcclFunctions &nccl = libraries().nccl;
    std::string text = std::string(call) + ": " + nccl.ncclGetErrorString(code) + " (" + std::to_string(code) + ")";
    const char *const last = nccl.ncclGetLastError(comm);
    if (last != nullptr && *last != '\0')
        text += ": " + std::string(last);
    throw Error(code == abi::kNcclRemoteError ? JIGSAW_PEER_LEFT : JIGSAW_SYSTEM_ERROR, text);
}

std::string nccl_version_text(int version)
{
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

} // namespace jigsaw::nccl
