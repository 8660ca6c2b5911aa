// SPDX-License-Identifier: Apache-2.0
// The tests' kernel, and how they print. Programs here are built by tests/gpu/run on a machine with a GPU, never by make.
#ifndef JIGSAW_TESTS_GPU_SPIN_HPP
#define JIGSAW_TESTS_GPU_SPIN_HPP

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace jigsaw::tests {

struct Span {
    std::uint64_t begin_ns, end_ns;
};

/// Computes for `ns` on one thread of the GPU; `span` (device memory or nullptr) says when.
void spin(cudaStream_t stream, std::uint64_t ns, Span *span);

inline void must(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return;
    std::printf("{\"failed\":\"%s: %s\"}\n", what, cudaGetErrorString(code));
    std::exit(1);
}
#define MUST(call) jigsaw::tests::must(call, #call)

/// One line; numbers as they are, texts without quotation marks in them.
inline void say(const char *part, const char *metric, double value, const char *unit, const std::string &more = "")
{
    std::printf("{\"part\":\"%s\",\"metric\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"%s}\n", part, metric, value, unit, more.c_str());
    std::fflush(stdout);
}
inline void skip(const char *part, const char *what, std::string why)
{
    for (char &c : why)
        c = c == '"' || c == '\\' || c == '\n' ? '\'' : c;
    std::printf("{\"part\":\"%s\",\"skipped\":\"%s\",\"why\":\"%s\"}\n", part, what, why.c_str());
    std::fflush(stdout);
}

/// GPUs of this machine, counted by a child: a process that has touched CUDA must not fork.
inline int count_gpus()
{
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        int devices = 0;
        _exit(cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

} // namespace jigsaw::tests
#endif
