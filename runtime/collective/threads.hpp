// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: what the tests run on, and "threads" of jigsaw_thread_world_create().
#ifndef JIGSAW_COLLECTIVE_THREADS_HPP
#define JIGSAW_COLLECTIVE_THREADS_HPP

#include "runtime/collective/collective.hpp"

namespace jigsaw::collective {

class ThreadWorld;

/// A world of `size` ranks (1 or more) that nobody has joined yet.
std::shared_ptr<ThreadWorld> make_thread_world(int size);

/// Rank `rank`'s view; each rank joins once. Destroying it is leaving: who still waits for this rank gets
/// JIGSAW_PEER_LEFT. The world lives as long as any of its views.
std::unique_ptr<Collective> join(std::shared_ptr<ThreadWorld> world, int rank);

} // namespace jigsaw::collective
#endif
