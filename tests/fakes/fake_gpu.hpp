// SPDX-License-Identifier: Apache-2.0
// What tests ask of fake_gpu.so, a CUDA runtime and an NCCL in one file, without a GPU.
//
// Streams are threads that run what is queued, in order; memory of the "device" is the process's own. Collectives really
// exchange data, between threads and between processes, through shared memory; an operation waits on its stream for its
// peers as a kernel does on a GPU. Stricter than the real ones, on purpose:
//   - NCCL calls on non-blocking communicators return ncclInProgress and take effect only when the state was asked for;
//     a call on a communicator that is still in progress is a violation;
//   - operations of one group run in the order in which they came, or in the reverse; two of them that touch the same
//     memory are a violation;
//   - ranks whose operations differ get an error with both descriptions where the real NCCL would hang;
//   - a CUDA call inside a host function is a violation.
// ncclAvg multiplies every value with 1/n before it adds, as the real one does.
#ifndef JIGSAW_TESTS_FAKES_FAKE_GPU_HPP
#define JIGSAW_TESTS_FAKES_FAKE_GPU_HPP

#include <cstdlib>
#include <dlfcn.h>
#include <stdexcept>
#include <string>

namespace jigsaw::tests {

/// X(result type, name, parameters)
#define JIGSAW_FAKE_FUNCTIONS(X)                                                                                       \
    /* The nth call of `function` from now on, counted over this process from 1, fails with `code`. */                 \
    X(void, fake_inject, (const char *function, int nth, int code))                                                    \
    /* How often it was called in this process; injections do not count anew. */                                       \
    X(int, fake_calls, (const char *function))                                                                         \
    /* From now on every CUDA call fails with 719 and nothing on any stream runs. */                                   \
    X(void, fake_break_device, (void))                                                                                 \
    /* A kernel: `function` runs on the stream, in order, and takes its time. */                                       \
    X(void, fake_kernel, (void *stream, void (*function)(void *), void *argument))                                     \
    X(void, fake_reverse_groups, (int on))                                                                             \
    /* What cudaPointerGetAttributes says of all memory: 2 device (the default), 0 host. */                            \
    X(void, fake_memory_type, (int type))                                                                              \
    /* One line for each NCCL operation of this process: "rank 0 of 0,1,3: reduce 64 floats to 1 group 7". */          \
    X(const char *, fake_record, (void))                                                                               \
    /* Broken rules, one a line; empty: none. */                                                                       \
    X(const char *, fake_violations, (void))                                                                           \
    X(void, fake_clear, (void))

struct FakeGpu {
#define JIGSAW_FAKE_POINTER(result, name, parameters) result(*name) parameters = nullptr;
    JIGSAW_FAKE_FUNCTIONS(JIGSAW_FAKE_POINTER)
#undef JIGSAW_FAKE_POINTER
};

/// Makes jigsaw::nccl::libraries() of this process find the fakes, and returns their controls.
inline const FakeGpu &use_fake_gpu()
{
    static const FakeGpu fake = [] {
        const char *const top = std::getenv("top_builddir");
        const std::string file = std::string(top ? top : ".") + "/tests/fakes/.libs/fake_gpu.so";
        setenv("JIGSAW_CUDART_LIBRARY", file.c_str(), 1);
        setenv("JIGSAW_NCCL_LIBRARY", file.c_str(), 1);
        void *const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr)
            throw std::runtime_error(dlerror());
        FakeGpu functions;
#define JIGSAW_FAKE_RESOLVE(result, name, parameters)                                                                  \
    functions.name = reinterpret_cast<decltype(functions.name)>(dlsym(library, #name));
        JIGSAW_FAKE_FUNCTIONS(JIGSAW_FAKE_RESOLVE)
#undef JIGSAW_FAKE_RESOLVE
        return functions;
    }();
    return fake;
}

} // namespace jigsaw::tests
#endif
