// SPDX-License-Identifier: Apache-2.0
// What a file says of itself as a Slurm plugin, read without loading it: outside slurmctld a select plugin does not load, and
// its constructors are nothing to run for a look.
#ifndef JIGSAW_CLI_PLUGIN_FILE_HPP
#define JIGSAW_CLI_PLUGIN_FILE_HPP

#include <cstdint>
#include <string>

namespace jigsaw::cli {

struct PluginFile {
    std::string type;          ///< plugin_type: "select/jigsaw", "spank"
    std::uint32_t version = 0; ///< plugin_version: Slurm's, 0x160508 for 22.05.8
};

/// False with what is wrong in *ret_why: empty, no shared object of this machine, no plugin.
bool read_plugin_file(PluginFile *ret_plugin, std::string *ret_why, const std::string &path);

} // namespace jigsaw::cli
#endif
