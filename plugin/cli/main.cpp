// SPDX-License-Identifier: Apache-2.0
// jigsaw: the command line. An unknown command X is the program jigsaw-X, as with git: of JIGSAW_EXEC_PATH, of our own
// folder of programs, else of PATH.
#include "plugin/agent/version.hpp"
#include "plugin/cli/command.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace {

using namespace jigsaw;
using namespace jigsaw::cli;

const Command kCommands[] = {{"status", "who shares which GPU on this machine", kStatusUsage, run_status},
                             {"top", "the same, live", kTopUsage, run_top},
                             {"trace", "the turn and depth log, for a trace viewer", kTraceUsage, run_trace},
                             {"doctor", "check an installation and say what to change", kDoctorUsage, run_doctor},
                             {"sim", "replay a trace of jobs against schedulers", kSimUsage, run_sim}};

void print_help(std::FILE *to)
{
    std::fputs("usage: jigsaw COMMAND [OPTIONS]\n\n", to);
    for (const Command &command : kCommands)
        std::fprintf(to, "  %-8s %s\n", command.name, command.summary);
    std::fputs("  X        runs the program jigsaw-X\n\n"
               "jigsaw COMMAND --help has the options, jigsaw(1) the rest.\n", to);
}

const Command *find(const std::string &name)
{
    const auto found = std::find_if(std::begin(kCommands), std::end(kCommands),
                                    [&](const Command &command) { return name == command.name; });
    return found == std::end(kCommands) ? nullptr : &*found;
}

/// Returns only when there is no such program.
void exec_other(const std::string &name, char **argv)
{
    const std::string program = "jigsaw-" + name;
    argv[0] = const_cast<char *>(program.c_str());
    if (const char *own = std::getenv("JIGSAW_EXEC_PATH"))
        execv((std::string(own) + "/" + program).c_str(), argv);
    execv((std::string(JIGSAW_LIBEXECDIR) + "/" + program).c_str(), argv);
    execvp(program.c_str(), argv);
}

bool is_command_name(const std::string &name)
{
    return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return std::isalnum(c) || c == '-' || c == '_';
    }) && name[0] != '-';
}

} // namespace

int main(int argc, char **argv)
{
    const std::string name = argc > 1 ? argv[1] : "";
    if (name == "--version" || name == "version") {
        std::printf("jigsaw %s\n", kVersion);
        return kOk;
    }
    if (name.empty() || name == "--help" || name == "-h" || (name == "help" && argc == 2)) {
        print_help(name.empty() ? stderr : stdout);
        return name.empty() ? kUsageError : kOk;
    }
    if (name == "help" && find(argv[2]) != nullptr) {
        std::fputs(find(argv[2])->usage, stdout);
        return kOk;
    }
    try {
        if (const Command *command = find(name))
            return command->run(Arguments(argv + 2, argv + argc));
    } catch (const std::exception &error) {
        complain(error.what());
        return kFailed;
    }
    if (is_command_name(name))
        exec_other(name, argv + 1);
    const bool missing = !is_command_name(name) || errno == ENOENT;
    complain("'" + name + "' is no command" +
             (missing ? ", and no program jigsaw-" + name + " was found"
                      : ": jigsaw-" + name + ": " + std::strerror(errno)) +
             "; `jigsaw help` has the list");
    return kUsageError;
}
