// SPDX-License-Identifier: Apache-2.0
// getopt_long and the defaults that come from the environment.
#include "plugin/agent/options.hpp"

#include <getopt.h>
#include <unistd.h>

#include <cstdlib>

namespace jigsaw::agent {

const char *const kUsage =
    "usage: jigsawd [--config FILE] [--node NAME] [--run-dir DIR] [--log-level LEVEL] [--foreground]\n"
    "Gives turns on the GPUs of this node and writes depth directives; jigsawd(8).\n"
    "  --config FILE      configuration (/etc/jigsaw/jigsaw.yaml; read again on SIGHUP)\n"
    "  --node NAME        Slurm's name of this node (SLURMD_NODENAME, else the short host name)\n"
    "  --run-dir DIR      socket, lock and job records lie in DIR/NAME (run_dir of the configuration)\n"
    "  --log-level LEVEL  error, warning, info (default) or debug, to standard error\n"
    "  --foreground       stay in the foreground; the default, and the only way\n"
    "  --version, --help\n";

namespace {

std::string default_node()
{
    if (const char *name = std::getenv("SLURMD_NODENAME"); name != nullptr && *name != '\0')
        return name;
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    const std::string host = name;
    return host.substr(0, host.find('.'));
}

/// A node's name becomes a folder's.
bool is_node_name(const std::string &name)
{
    return !name.empty() && name.size() <= 64 && name[0] != '.' && name.find('/') == std::string::npos;
}

} // namespace

bool parse_options(Options *ret_options, std::string *ret_why, int argc, char **argv)
{
    static const option kLong[] = {{"config", required_argument, nullptr, 'c'},
                                   {"node", required_argument, nullptr, 'n'},
                                   {"run-dir", required_argument, nullptr, 'r'},
                                   {"log-level", required_argument, nullptr, 'l'},
                                   {"foreground", no_argument, nullptr, 'f'},
                                   {"version", no_argument, nullptr, 'V'},
                                   {"help", no_argument, nullptr, 'h'},
                                   {nullptr, 0, nullptr, 0}};
    Options options;
    options.node = default_node();
    optind = 0; // parse anew: tests call this more than once
    opterr = 0;
    for (int found = 0; (found = getopt_long(argc, argv, ":", kLong, nullptr)) != -1;) {
        switch (found) {
        case 'c': options.config = optarg; break;
        case 'n': options.node = optarg; break;
        case 'r': options.run_dir = optarg; break;
        case 'f': break;
        case 'V': options.version = true; break;
        case 'h': options.help = true; break;
        case 'l':
            if (!parse_level(&options.log_level, optarg)) {
                *ret_why = std::string("--log-level ") + optarg + ": error, warning, info or debug is needed";
                return false;
            }
            break;
        case ':': *ret_why = std::string(argv[optind - 1]) + " needs a value"; return false;
        default: *ret_why = std::string(argv[optind - 1]) + ": no such option"; return false;
        }
    }
    if (optind < argc) {
        *ret_why = std::string(argv[optind]) + ": no argument is expected";
        return false;
    }
    if (!is_node_name(options.node)) {
        *ret_why = "node name '" + options.node + "': a name without '/' of at most 64 bytes is needed";
        return false;
    }
    *ret_options = options;
    return true;
}

} // namespace jigsaw::agent
