// SPDX-License-Identifier: Apache-2.0
// The cells' kernels for x86-64 processors with avx2, fma. The pragma stands before everything else and until the end:
// templates take the options of the place where they are instantiated, which is the end of the file.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#pragma GCC target("avx2,fma")
#define JIGSAW_SCAN_LANE_BYTES 32
#include "runtime/scan/cell_kernels.hpp"

namespace jigsaw::scan {

CellTables avx2_cells() { return {"avx2", table<float>(), table<double>()}; }

} // namespace jigsaw::scan
#else
#include "runtime/scan/cell_table.hpp"

namespace jigsaw::scan {

CellTables avx2_cells() { return {}; }

} // namespace jigsaw::scan
#endif
