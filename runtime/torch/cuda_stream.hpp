// SPDX-License-Identifier: Apache-2.0
// The one question about CUDA that LibTorch's device-neutral interface does not answer. Internal to libjigsaw_torch.
#ifndef JIGSAW_TORCH_CUDA_STREAM_HPP
#define JIGSAW_TORCH_CUDA_STREAM_HPP

#include <cstdint>

namespace jigsaw {
namespace torch {

/// Whether this build's LibTorch has CUDA.
bool knows_cuda_streams();
/// The calling thread's current stream (cudaStream_t) on `device`; nullptr, the default stream, in a build without CUDA.
void *current_cuda_stream(std::int8_t device);

} // namespace torch
} // namespace jigsaw
#endif
