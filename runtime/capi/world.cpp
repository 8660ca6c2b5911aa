// SPDX-License-Identifier: Apache-2.0
#include "runtime/capi/world.hpp"

#include "runtime/collective/gloo.hpp"
#include "runtime/collective/rendezvous.hpp"
#include "runtime/collective/threads.hpp"

namespace jigsaw::capi {

std::unique_ptr<collective::Collective> make_world(const Settings &settings)
{
    const int rank = static_cast<int>(settings.rank), size = static_cast<int>(settings.world_size);
    if (settings.threads)
        return collective::join(*static_cast<std::shared_ptr<collective::ThreadWorld> *>(settings.thread_world), rank);
    collective::Rendezvous where = collective::rendezvous_from_environment(rank, size);
    where.timeout = settings.timeout;
    where.log = settings.log;
    return collective::join_gloo(where);
}

} // namespace jigsaw::capi
