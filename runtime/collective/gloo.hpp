// SPDX-License-Identifier: Apache-2.0
// Ranks as processes on one or more machines, over Gloo's TCP transport.
#ifndef JIGSAW_COLLECTIVE_GLOO_HPP
#define JIGSAW_COLLECTIVE_GLOO_HPP

#include "runtime/collective/collective.hpp"
#include "runtime/collective/rendezvous.hpp"

namespace jigsaw::collective {

/// Whether this build has Gloo.
bool gloo_available();

/// Meets all ranks at `where` and connects to each. Needs no Gloo for a world of one rank.
/// Throws what Store does, and JIGSAW_NO_BACKEND in a build without Gloo.
///
/// Each rank also stays connected to rank 0's store. Whoever dies is named to all others within milliseconds by the end
/// of that connection (within 15 s when a machine vanishes), whatever they wait for; every wait then fails with the rank
/// that died first, not with the one that failed because of it.
///
/// A forked child must not use its parent's collective; destroying it there does nothing.
std::unique_ptr<Collective> join_gloo(const Rendezvous &where);

} // namespace jigsaw::collective
#endif
