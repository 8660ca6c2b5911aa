// SPDX-License-Identifier: Apache-2.0
#include "runtime/capi/binding.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <memory>
#include <sched.h>

namespace jigsaw::capi {

namespace {

/// Threads may appear while we look: a second pass that finds all of them bound already costs microseconds.
constexpr int kPasses = 2;

bool bind_threads(const cpu_set_t &set, std::string *ret_why)
{
    const std::unique_ptr<DIR, int (*)(DIR *)> folder(opendir("/proc/self/task"), closedir);
    if (!folder) {
        *ret_why = std::string("/proc/self/task: ") + std::strerror(errno);
        return false;
    }
    while (const dirent *entry = readdir(folder.get())) {
        const pid_t thread = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
        if (thread <= 0 || sched_setaffinity(thread, sizeof set, &set) == 0 || errno == ESRCH)
            continue;
        *ret_why = std::string("sched_setaffinity: ") + std::strerror(errno);
        return false;
    }
    return true;
}

} // namespace

bool bind_process(const std::vector<int> &cores, std::string *ret_why)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores) {
        if (core < 0 || core >= CPU_SETSIZE) {
            *ret_why = "core " + std::to_string(core) + " is out of range";
            return false;
        }
        CPU_SET(core, &set);
    }
    for (int pass = 0; pass < kPasses; ++pass)
        if (!bind_threads(set, ret_why))
            return false;
    return true;
}

} // namespace jigsaw::capi
