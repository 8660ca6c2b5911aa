// SPDX-License-Identifier: Apache-2.0
// What the back ends say alike.
#include "runtime/collective/collective.hpp"

namespace jigsaw::collective {

Error timeout_error(int rank, int peer, bool is_send, std::chrono::milliseconds timeout)
{
    return Error(JIGSAW_TIMEOUT, "rank " + std::to_string(rank) + ": rank " + std::to_string(peer) +
                                     (is_send ? " took nothing for " : " sent nothing for ") +
                                     std::to_string(timeout.count()) + " ms");
}

void check_peer(const Collective &world, int peer)
{
    if (peer < 0 || peer >= world.size() || peer == world.rank())
        throw Error(JIGSAW_INVALID_ARGUMENT, "rank " + std::to_string(world.rank()) + " of " +
                                                 std::to_string(world.size()) + " has no peer " +
                                                 std::to_string(peer));
}

} // namespace jigsaw::collective
