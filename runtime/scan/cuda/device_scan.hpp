// SPDX-License-Identifier: Apache-2.0
// The chunked scan on a GPU: all gradients of g_i = J_i g_(i-1) + b_i for dense Jacobians, in three launches where h <= 64
// (one block composes a chunk's product in shared memory), and with a batched GEMM per step of a chunk beyond.
//
// float32 or bfloat16 Jacobians, everything else and every sum in float32. All pointers are device memory; work is queued on
// `stream` and nothing is waited for.
#ifndef JIGSAW_SCAN_CUDA_DEVICE_SCAN_HPP
#define JIGSAW_SCAN_CUDA_DEVICE_SCAN_HPP

#include <cstddef>
#include <string>

namespace jigsaw::scan::cuda {

struct DeviceChain {
    std::size_t stages = 0, batch = 0, width = 0; ///< n, B, h
    bool bfloat16 = false;                        ///< of `jacobians`
    const void *jacobians = nullptr;              ///< n x B x h x h
    const float *offsets = nullptr;               ///< n x B x h, or null
    const float *seed = nullptr;                  ///< B x h
    float *gradients = nullptr;                   ///< (n + 1) x B x h
};

/// Bytes of `workspace` for that many chunks.
std::size_t workspace_bytes(const DeviceChain &chain, std::size_t chunks);

/// Chunks that keep `processors` multiprocessors busy without making the serial border walk the longest part: about
/// sqrt(n), at least one per multiprocessor and sample.
std::size_t good_chunks(const DeviceChain &chain, std::size_t processors);

/// "" when everything was queued, else what is wrong. 1 chunk: the serial way, no workspace.
std::string queue_scan(const DeviceChain &chain, std::size_t chunks, void *workspace, void *stream);

/// Transposed Jacobians of a vanilla RNN's steps, last step first: W_hh^T diag(1 - h_t^2). weight h x h, states T x B x h,
/// jacobians T x B x h x h, float32 or bfloat16.
std::string queue_rnn_jacobians(const float *weight, const float *states, std::size_t steps, std::size_t batch,
                                std::size_t width, bool bfloat16, void *jacobians, void *stream);

} // namespace jigsaw::scan::cuda
#endif
