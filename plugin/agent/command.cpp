// SPDX-License-Identifier: Apache-2.0
// Running a program without a shell, with a time limit.
#include "plugin/agent/command.hpp"

#include "runtime/page/fd.hpp"
#include "runtime/page/page.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

extern char **environ;

namespace jigsaw::agent {

namespace {

constexpr std::size_t kOutputLimit = 65536;
constexpr int kPollMs = 50;

std::vector<char *> pointers(const std::vector<std::string> &texts)
{
    std::vector<char *> list;
    for (const std::string &text : texts)
        list.push_back(const_cast<char *>(text.c_str()));
    list.push_back(nullptr);
    return list;
}

std::vector<std::string> environment_with(const std::vector<std::string> &extra)
{
    std::vector<std::string> all;
    for (char **entry = environ; *entry != nullptr; ++entry)
        all.push_back(*entry);
    all.insert(all.end(), extra.begin(), extra.end());
    return all;
}

/// Signals at their defaults and none blocked: jigsawd blocks those that it takes by signalfd.
pid_t spawn(const std::vector<std::string> &arguments, const std::vector<std::string> &environment, int out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    pid_t pid = -1;
    const int error = posix_spawnp(&pid, arguments[0].c_str(), &actions, &attributes, pointers(arguments).data(),
                                   pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    errno = error;
    return error == 0 ? pid : -1;
}

/// Read until end of file, the deadline or a stop; false when it did not come to the end.
bool collect(std::string *ret_output, int fd, std::uint64_t deadline_ns, const std::atomic<bool> &stop)
{
    while (!stop.load() && page::monotonic_ns() < deadline_ns) {
        pollfd waiting{fd, POLLIN, 0};
        if (poll(&waiting, 1, kPollMs) <= 0)
            continue;
        char buffer[4096];
        const ssize_t got = read(fd, buffer, sizeof buffer);
        if (got == 0 || (got < 0 && errno != EINTR))
            return true;
        if (got > 0 && ret_output->size() < kOutputLimit)
            ret_output->append(buffer, static_cast<std::size_t>(got));
    }
    return false;
}

} // namespace

CommandResult run_command(const std::vector<std::string> &arguments,
                          const std::vector<std::string> &extra_environment, int timeout_ms,
                          const std::atomic<bool> &stop)
{
    CommandResult result;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return result;
    UniqueFd reader(ends[0]), writer(ends[1]);
    const pid_t pid = spawn(arguments, environment_with(extra_environment), writer.get());
    if (pid < 0) {
        result.output = arguments[0] + ": " + std::strerror(errno);
        return result;
    }
    writer.reset();
    const std::uint64_t deadline_ns = page::monotonic_ns() + static_cast<std::uint64_t>(timeout_ms) * 1000000u;
    const bool ended = collect(&result.output, reader.get(), deadline_ns, stop);
    if (!ended) {
        kill(-pid, SIGKILL); // its group: the child leads one
        result.output = arguments[0] + " did not end within " + std::to_string(timeout_ms) + " ms";
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (ended && WIFEXITED(status))
        result.status = WEXITSTATUS(status);
    return result;
}

} // namespace jigsaw::agent
