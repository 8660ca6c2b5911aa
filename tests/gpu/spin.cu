// SPDX-License-Identifier: Apache-2.0
// A kernel that takes a known time and says when it ran, by the GPU's own clock, which all processes on it share.
#include "tests/gpu/spin.hpp"

#include <cstdint>

namespace {

__device__ std::uint64_t global_ns()
{
    std::uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

__global__ void spin_kernel(std::uint64_t ns, jigsaw::tests::Span *span)
{
    const std::uint64_t begin = global_ns();
    std::uint64_t now = begin;
    while (now - begin < ns)
        now = global_ns();
    if (span != nullptr) {
        span->begin_ns = begin;
        span->end_ns = now;
    }
}

} // namespace

namespace jigsaw::tests {

void spin(cudaStream_t stream, std::uint64_t ns, Span *span) { spin_kernel<<<1, 1, 0, stream>>>(ns, span); }

} // namespace jigsaw::tests
