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
#include <vector>

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
    std::fputs("  help     this list; `jigsaw help COMMAND`: its options\n"
               "  version  the version, as --version\n"
               "  X        runs the program jigsaw-X\n\n"
               "jigsaw COMMAND --help has the options, jigsaw(1) the rest.\n", to);
}

const Command *find(const std::string &name)
{
    const auto found = std::find_if(std::begin(kCommands), std::end(kCommands),
                                    [&](const Command &command) { return name == command.name; });
    return found == std::end(kCommands) ? nullptr : &*found;
}

/// Returns only when there is no such program.
void exec_other(const std::string &name, std::vector<char *> argv)
{
    const std::string program = "jigsaw-" + name;
    argv.insert(argv.begin(), const_cast<char *>(program.c_str()));
    argv.push_back(nullptr);
    if (const char *own = std::getenv("JIGSAW_EXEC_PATH"))
        execv((std::string(own) + "/" + program).c_str(), argv.data());
    execv((std::string(JIGSAW_LIBEXECDIR) + "/" + program).c_str(), argv.data());
    execvp(program.c_str(), argv.data());
}

bool is_command_name(const std::string &name)
{
    return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return std::isalnum(c) || c == '-' || c == '_';
    }) && name[0] != '-';
}

/// jigsaw-NAME in our place, or why not.
int run_other(const std::string &name, const std::vector<char *> &arguments)
{
    if (!is_command_name(name))
        return wrong_usage("'" + name + "' is no command; `jigsaw help` has the list");
    exec_other(name, arguments);
    return wrong_usage("'" + name + "' is no command" +
                       (errno == ENOENT ? ", and no program jigsaw-" + name + " was found"
                                        : ": jigsaw-" + name + ": " + std::strerror(errno)) +
                       "; `jigsaw help` has the list");
}

/// `jigsaw help X` is `jigsaw X --help`.
int run_help(const Arguments &arguments)
{
    if (arguments.size() > 1)
        return wrong_usage("help takes one command, not also '" + arguments[1] + "'");
    const std::string about = arguments.empty() ? "help" : arguments[0];
    if (about == "help" || about == "version") {
        print_help(stdout);
        return kOk;
    }
    if (const Command *command = find(about)) {
        std::fputs(command->usage, stdout);
        return kOk;
    }
    char option[] = "--help";
    return run_other(about, {option});
}

int run(int argc, char **argv)
{
    const std::string name = argc > 1 ? argv[1] : "";
    if (name.empty()) {
        print_help(stderr);
        return kUsageError;
    }
    if (name == "--version" || name == "version") {
        std::printf("jigsaw %s\n", kVersion);
        return kOk;
    }
    const Arguments arguments(argv + 2, argv + argc);
    if (name == "help" || name == "--help" || name == "-h")
        return run_help(arguments);
    if (const Command *command = find(name))
        return command->run(arguments);
    return run_other(name, std::vector<char *>(argv + 2, argv + argc));
}

} // namespace

int main(int argc, char **argv)
{
    int status = kFailed;
    try {
        status = run(argc, argv);
    } catch (const std::exception &error) {
        complain(error.what());
    }
    return finish_output() ? status : kFailed;
}
