// SPDX-License-Identifier: Apache-2.0
// libcudart and libnccl, opened at run time: one build for machines with and without a GPU.
#ifndef JIGSAW_COLLECTIVE_NCCL_LIBRARIES_HPP
#define JIGSAW_COLLECTIVE_NCCL_LIBRARIES_HPP

#include "runtime/collective/error.hpp"
#include "runtime/collective/nccl/abi.hpp"

#include <string>

namespace jigsaw::nccl {

struct Libraries {
    abi::CudaFunctions cuda;
    abi::NcclFunctions nccl;
    std::string cuda_name, nccl_name; ///< what was opened
    int nccl_version = 0;             ///< 22809 is 2.28.9
    int devices = 0;                  ///< at least 1
};

/// Opens both, once in a process. In this order: the file that JIGSAW_CUDART_LIBRARY or JIGSAW_NCCL_LIBRARY names, what
/// the process has loaded already (a framework's own copy), what the loader finds. Throws jigsaw::Error
/// {JIGSAW_NO_BACKEND} with one line that says what is missing (library, function, version, driver or device) and what to do.
const Libraries &libraries();

/// Throw jigsaw::Error {JIGSAW_SYSTEM_ERROR} "cudaEventRecord: invalid resource handle (400)" unless `code` is success.
void check_cuda(int code, const char *call);
/// The same for NCCL, with what the library says about its last error. JIGSAW_PEER_LEFT for a remote error.
void check_nccl(int code, const char *call, abi::Comm comm = nullptr);

/// "2.28.9"
std::string nccl_version_text(int version);

} // namespace jigsaw::nccl
#endif
