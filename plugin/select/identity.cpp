// SPDX-License-Identifier: GPL-2.0-or-later
// Who we are to Slurm; compiled once for each name (JIGSAW_SELECT_TYPE, JIGSAW_SELECT_ID).
#include "plugin/select/shim.hpp"

#define JIGSAW_EXPORTED extern "C" __attribute__((visibility("default")))

JIGSAW_EXPORTED const char plugin_name[];
JIGSAW_EXPORTED const char plugin_type[];
JIGSAW_EXPORTED const uint32_t plugin_id;
JIGSAW_EXPORTED const uint32_t plugin_version;

const char plugin_name[] = "JigSaw: GPUs shared by jobs that agreed to, on top of select/cons_tres";
const char plugin_type[] = JIGSAW_SELECT_TYPE;
#if JIGSAW_SLURM_2605
const uint32_t plugin_id = 109; // running_cons_tres() asks for exactly this number, and only one plugin is loaded
#else
const uint32_t plugin_id = JIGSAW_SELECT_ID; // all select plugins are loaded, a number twice is fatal
#endif
const uint32_t plugin_version = SLURM_VERSION_NUMBER;
