// SPDX-License-Identifier: Apache-2.0
// The cells' kernels for any processor.
#ifdef __GNUC__
#pragma GCC optimize("O3")
#endif
#define JIGSAW_SCAN_LANE_BYTES 16
#include "runtime/scan/cell_kernels.hpp"

namespace jigsaw::scan {

CellTables generic_cells() { return {"generic", table<float>(), table<double>()}; }

} // namespace jigsaw::scan
