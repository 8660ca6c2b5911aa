// SPDX-License-Identifier: Apache-2.0
#include "runtime/torch/cuda_stream.hpp"

#ifdef JIGSAW_TORCH_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

namespace jigsaw {
namespace torch {

#ifdef JIGSAW_TORCH_CUDA
bool knows_cuda_streams() { return true; }
void *current_cuda_stream(std::int8_t device) { return c10::cuda::getCurrentCUDAStream(device).stream(); }
#else
bool knows_cuda_streams() { return false; }
void *current_cuda_stream(std::int8_t) { return nullptr; }
#endif

} // namespace torch
} // namespace jigsaw
