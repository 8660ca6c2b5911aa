// SPDX-License-Identifier: Apache-2.0
// In place of gloo.cpp where configure found no Gloo.
#include "runtime/collective/gloo.hpp"

#include "runtime/collective/threads.hpp"

namespace jigsaw::collective {

bool gloo_available() { return false; }

std::unique_ptr<Collective> join_gloo(const Rendezvous &where)
{
    if (where.size == 1)
        return join(make_thread_world(1), 0);
    throw Error(JIGSAW_NO_BACKEND, "a world of " + std::to_string(where.size) +
                                       " ranks needs Gloo, and this libjigsaw was built without it: install "
                                       "libgloo-dev and configure again, or use the back end \"threads\" in one process");
}

} // namespace jigsaw::collective
