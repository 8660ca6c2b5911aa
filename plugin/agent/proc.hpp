// SPDX-License-Identifier: Apache-2.0
// What /proc says of a process and of NVIDIA GPUs. The root of the file system is an argument for the tests.
#ifndef JIGSAW_AGENT_PROC_HPP
#define JIGSAW_AGENT_PROC_HPP

#include "runtime/page/fd.hpp"

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace jigsaw::agent {

struct ProcStat {
    char state = '?';               ///< R, S, D, T (stopped), t (traced), Z, X
    std::uint64_t start_ticks = 0;  ///< since boot
};

/// False: no such process.
bool read_proc_stat(ProcStat *ret_stat, pid_t pid, const std::string &root = "");
/// The text after "PID (name) " may hold anything in the name; exposed for the tests.
bool parse_proc_stat(ProcStat *ret_stat, const std::string &text);

/// pidfd_open(2); empty when the process is gone (or the kernel is older than 5.3).
UniqueFd open_pidfd(pid_t pid);

/// GPU UUID -> index (the device minor) as the NVIDIA driver tells in /proc/driver/nvidia/gpus. Empty without one.
std::map<std::string, int> nvidia_gpu_indices(const std::string &root = "");

/// Whole small file; false when it cannot be read or is larger than `limit` bytes.
bool read_file(std::string *ret_text, const std::string &path, std::size_t limit = 65536);

} // namespace jigsaw::agent
#endif
