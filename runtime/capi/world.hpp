// SPDX-License-Identifier: Apache-2.0
// Which Collective a session runs on.
#ifndef JIGSAW_CAPI_WORLD_HPP
#define JIGSAW_CAPI_WORLD_HPP

#include "runtime/capi/settings.hpp"
#include "runtime/collective/collective.hpp"

#include <memory>

namespace jigsaw::capi {

/// Joins all ranks. Throws jigsaw::Error {JIGSAW_NO_BACKEND, JIGSAW_TIMEOUT, JIGSAW_PEER_LEFT}.
std::unique_ptr<collective::Collective> make_world(const Settings &settings);

} // namespace jigsaw::capi
#endif
