// SPDX-License-Identifier: Apache-2.0
// A recurrent layer's backward pass, by whichever way costs least (cost.hpp): serial and fused, the samples split over the
// workers; or a scan over the steps' Jacobians, chunked or as a tree. All give cell_backward()'s results.
#ifndef JIGSAW_SCAN_CELL_SCAN_HPP
#define JIGSAW_SCAN_CELL_SCAN_HPP

#include "runtime/scan/cell.hpp"
#include "runtime/scan/parallel.hpp"
#include "runtime/scan/scan.hpp"

namespace jigsaw::scan {

enum class Way { automatic, serial, split, chunked, tree };
const char *name_of(Way way);

/// What a way needs to know: chunks of `chunked`, levels of up-sweep of `tree`.
struct Plan {
    Way way = Way::serial;
    std::size_t chunks = 1;
    std::size_t up_levels = 0;
};

/// All samples. Packed sequences are done serially or split: their batch changes from step to step.
template <typename T>
void run_backward(const CellBackward<T> &args, const Plan &plan, const Parallel &parallel, Report *report = nullptr);
template <typename T> void run_forward(const CellForward<T> &args, std::size_t tasks, const Parallel &parallel);

/// The chain of one layer: stage 1 is the last step's Jacobian, and the outputs' gradients enter as offsets.
template <typename T> Stages<T> stages_of(const CellBackward<T> &args, const Parallel &parallel);

bool is_packed(const Layout &layout);

} // namespace jigsaw::scan
#endif
