// SPDX-License-Identifier: GPL-2.0-or-later
// jigsaw.yaml as slurmctld uses it.
#ifndef JIGSAW_SELECT_SETTINGS_HPP
#define JIGSAW_SELECT_SETTINGS_HPP

#include "plugin/select/shim.hpp"

namespace jigsaw::select {

/// jigsaw.yaml of slurmctld: $JIGSAW_CONFIG, else /etc/jigsaw/jigsaw.yaml. A bad file is logged and changes nothing: the
/// settings read before stay, if need be those that an earlier slurmctld left in StateSaveLocation (since 24.11
/// `scontrol reconfigure` starts a new process). Where there are none, the defaults with sharing off, since nobody knows
/// what the site wanted.
void load_settings();
const config::Config &settings();

} // namespace jigsaw::select
#endif
