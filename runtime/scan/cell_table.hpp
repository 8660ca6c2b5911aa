// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set, as function pointers: cell.cpp picks the set that this processor has.
#ifndef JIGSAW_SCAN_CELL_TABLE_HPP
#define JIGSAW_SCAN_CELL_TABLE_HPP

#include "runtime/scan/cell.hpp"

#include <cstddef>
#include <cstdint>

namespace jigsaw::scan {

/// product: `scratch` has product_scratch(width) values. forward, backward: indexed by Cell; `scratch` has
/// scratch_size(gates, hidden, last - first) values.
template <typename T> struct CellTable {
    std::size_t (*product_scratch)(std::size_t width);
    void (*product)(const Product<T> &, T *scratch);
    std::size_t (*scratch_size)(std::size_t gates, std::size_t hidden, std::size_t rows);
    void (*forward[4])(const CellForward<T> &, std::size_t first, std::size_t last, T *scratch);
    void (*backward[4])(const CellBackward<T> &, std::size_t first, std::size_t last, T *scratch);
};

struct CellTables {
    const char *name;
    CellTable<float> single;
    CellTable<double> twice;
};

CellTables generic_cells();
/// Null functions and no name where this build has none.
CellTables avx2_cells();

} // namespace jigsaw::scan
#endif
