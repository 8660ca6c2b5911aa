// SPDX-License-Identifier: Apache-2.0
// The version of the programs, from configure.
#ifndef JIGSAW_AGENT_VERSION_HPP
#define JIGSAW_AGENT_VERSION_HPP

#include "jigsaw_config.h"

namespace jigsaw {

constexpr const char *kVersion = PACKAGE_VERSION;

} // namespace jigsaw
#endif
