// SPDX-License-Identifier: Apache-2.0
/** @file
 * How a layer of jigsaw/scan.hpp works, and what it did. No LibTorch in here.
 */
#ifndef JIGSAW_SCAN_OPTIONS_HPP
#define JIGSAW_SCAN_OPTIONS_HPP

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace jigsaw {
namespace scan {

struct ScanOptions {
    /// "automatic", or for study "serial", "split", "chunked", "tree".
    std::string way = "automatic";
    /// Bytes a layer may keep between forward and backward beside its input and output, and use for gates during them. A layer
    /// that would need more does its steps in stretches, recomputing each in backward. 0: no limit.
    std::size_t memory_limit_bytes = 0;
    std::size_t chunks = 0;    ///< of "chunked"; 0: one per thread
    int up_levels = -1;        ///< of "tree"; -1: all
};

/// What the last backward pass of a layer did.
struct ScanStatus {
    std::function<std::string()> explain; ///< the estimates, and which way was taken; empty before the first backward
    std::string way;
    std::size_t levels = 0;    ///< of dependent products, where it was a scan
    std::size_t stretches = 1; ///< pieces that forward and backward were cut into for the memory limit
    bool fell_back = false;    ///< a product of Jacobians was not finite: the serial way's result was used
};

using StatusPtr = std::shared_ptr<ScanStatus>;

} // namespace scan
} // namespace jigsaw
#endif
