// SPDX-License-Identifier: Apache-2.0
// Reading /proc.
#include "plugin/agent/proc.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <sstream>

namespace jigsaw::agent {

bool read_file(std::string *ret_text, const std::string &path, std::size_t limit)
{
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd)
        return false;
    std::string text;
    char buffer[4096];
    ssize_t got = 0;
    while ((got = read(fd.get(), buffer, sizeof buffer)) > 0) {
        text.append(buffer, static_cast<std::size_t>(got));
        if (text.size() > limit)
            return false;
    }
    if (got < 0)
        return false;
    *ret_text = std::move(text);
    return true;
}

bool parse_proc_stat(ProcStat *ret_stat, const std::string &text)
{
    // proc(5): pid (comm) state ppid ... field 22 is starttime. comm may hold blanks and brackets: take the last ')'.
    const std::size_t end = text.rfind(')');
    if (end == std::string::npos || end + 2 >= text.size())
        return false;
    std::istringstream rest(text.substr(end + 2));
    ProcStat stat;
    std::string skipped;
    rest >> stat.state;
    for (int field = 4; field < 22; ++field)
        rest >> skipped;
    rest >> stat.start_ticks;
    if (!rest)
        return false;
    *ret_stat = stat;
    return true;
}

bool read_proc_stat(ProcStat *ret_stat, pid_t pid, const std::string &root)
{
    std::string text;
    return read_file(&text, root + "/proc/" + std::to_string(pid) + "/stat") && parse_proc_stat(ret_stat, text);
}

UniqueFd open_pidfd(pid_t pid)
{
    return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

namespace {

/// Value of "Key:   value" in the driver's information file; empty without one.
std::string value_after(const std::string &text, const std::string &key)
{
    const std::size_t at = text.find(key);
    if (at == std::string::npos)
        return "";
    const std::size_t begin = text.find_first_not_of(" \t", at + key.size());
    const std::size_t end = text.find_first_of(" \t\n", begin);
    return begin == std::string::npos ? "" : text.substr(begin, end - begin);
}

} // namespace

std::map<std::string, int> nvidia_gpu_indices(const std::string &root)
{
    std::map<std::string, int> indices;
    const std::string folder = root + "/proc/driver/nvidia/gpus";
    const std::unique_ptr<DIR, int (*)(DIR *)> dir(opendir(folder.c_str()), closedir);
    while (const dirent *entry = dir ? readdir(dir.get()) : nullptr) {
        std::string text;
        if (!read_file(&text, folder + "/" + entry->d_name + "/information"))
            continue;
        const std::string uuid = value_after(text, "GPU UUID:");
        const std::string minor = value_after(text, "Device Minor:");
        if (!uuid.empty() && !minor.empty())
            indices[uuid] = std::atoi(minor.c_str());
    }
    return indices;
}

} // namespace jigsaw::agent
