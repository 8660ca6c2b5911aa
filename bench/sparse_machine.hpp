// SPDX-License-Identifier: Apache-2.0
// What the machine can do at best, measured: the roofs that a kernel is compared with.
#ifndef JIGSAW_BENCH_SPARSE_MACHINE_HPP
#define JIGSAW_BENCH_SPARSE_MACHINE_HPP

#include "runtime/sparse/kernels.hpp"

namespace jigsaw::bench {

/// Multiplications (each with its addition) per second of one core, from registers, with these instructions.
double peak_multiplications(sparse::Instructions instructions);
/// Bytes per second that one core reads again and again from an array of this size.
double read_bandwidth(std::size_t bytes, sparse::Instructions instructions);
/// Bytes per second of a[i] = b[i] + s * c[i] over arrays larger than any cache, on so many threads; the writes counted once.
double memory_bandwidth(unsigned threads);

} // namespace jigsaw::bench

#endif
