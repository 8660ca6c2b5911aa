// SPDX-License-Identifier: Apache-2.0
// Running a program without a shell, with a time limit: scontrol, for jigsawd and for jigsaw doctor.
#ifndef JIGSAW_AGENT_COMMAND_HPP
#define JIGSAW_AGENT_COMMAND_HPP

#include <atomic>
#include <string>
#include <vector>

namespace jigsaw::agent {

struct CommandResult {
    int status = -1; ///< exit status; -1: not run, killed, or out of time
    std::string output;
};
/// Run a program without a shell; standard output and error are collected (up to 64 KiB). Ends it after timeout_ms, and
/// soon after *stop becomes true.
CommandResult run_command(const std::vector<std::string> &arguments,
                          const std::vector<std::string> &extra_environment, int timeout_ms,
                          const std::atomic<bool> &stop);

} // namespace jigsaw::agent
#endif
