// SPDX-License-Identifier: Apache-2.0
// jigsawd's command line.
#ifndef JIGSAW_AGENT_OPTIONS_HPP
#define JIGSAW_AGENT_OPTIONS_HPP

#include "plugin/agent/log.hpp"

#include <string>

namespace jigsaw::agent {

struct Options {
    std::string config = "/etc/jigsaw/jigsaw.yaml";
    std::string node;     ///< SLURMD_NODENAME, else the short host name
    std::string run_dir;  ///< empty: the configuration's
    Level log_level = Level::info;
    bool help = false, version = false;
};

extern const char *const kUsage;

/// False: one line in *ret_why. Reads SLURMD_NODENAME and the host name where --node is not given.
bool parse_options(Options *ret_options, std::string *ret_why, int argc, char **argv);

} // namespace jigsaw::agent
#endif
