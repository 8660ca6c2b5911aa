// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the sync. The order of additions is the contract: see gradient_sync.hpp.
#ifndef JIGSAW_SYNC_REDUCE_HPP
#define JIGSAW_SYNC_REDUCE_HPP

#include "runtime/sync/gradient_sync.hpp"

namespace jigsaw::sync {

/// out[i] = ((sources[0][i] + sources[1][i]) + ...) / divisor; divisor 1 leaves the sum. `out` may be one of `sources`.
void reduce_in_order(DataType type, void *out, const std::vector<const void *> &sources, std::size_t count,
                     std::size_t divisor);

/// What is added to any number, zeros of either sign included, without changing it: minus zero.
void fill_neutral(DataType type, void *out, std::size_t count);

} // namespace jigsaw::sync
#endif
