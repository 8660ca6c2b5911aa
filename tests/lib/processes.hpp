// SPDX-License-Identifier: Apache-2.0
// Ranks as real processes over Gloo on loopback: what a kill or a forked child does to them can be seen only so.
#ifndef JIGSAW_TESTS_LIB_PROCESSES_HPP
#define JIGSAW_TESTS_LIB_PROCESSES_HPP

#include "runtime/collective/gloo.hpp"
#include "tests/lib/ports.hpp"
#include "tests/lib/ranks.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <csignal>

namespace jigsaw::tests {

/// Runs `body` and writes how it ended to `fd`.
inline void run_process_rank(int fd, const collective::Rendezvous &where,
                             const std::function<void(collective::Collective &)> &body)
{
    Outcome outcome;
    try {
        const auto world = collective::join_gloo(where);
        body(*world);
    } catch (const Error &error) {
        outcome = {error.code(), error.what()};
    } catch (const std::exception &error) {
        outcome = {JIGSAW_INTERNAL_ERROR, error.what()};
    }
    const std::string line = std::to_string(outcome.code) + " " + outcome.text;
    if (write(fd, line.data(), line.size()) < 0)
        _exit(2);
}

inline std::string read_to_end(int fd)
{
    std::string text;
    char bytes[4096];
    for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;)
        text.append(bytes, static_cast<std::size_t>(got));
    close(fd);
    return text;
}

/// run_ranks() with processes. A rank that dies without a word is JIGSAW_INTERNAL_ERROR "killed by signal N" or "exit
/// status N". Call it before the test has threads of its own. A failed ck_assert in a body is exit status 1. Ranks are gone
/// after limit_s, whatever becomes of the test.
inline std::vector<Outcome> run_processes(int size, const std::function<void(collective::Collective &)> &body,
                                          unsigned limit_s = 100)
{
    const std::uint16_t port = free_port();
    std::vector<pid_t> children;
    std::vector<int> ends;
    std::fflush(nullptr);
    for (int rank = 0; rank < size; ++rank) {
        int pipe_ends[2];
        if (pipe(pipe_ends) != 0)
            throw std::runtime_error("no pipe");
        const pid_t child = fork();
        if (child == 0) {
            alarm(limit_s);
            run_process_rank(pipe_ends[1], meet_at(port, rank, size), body);
            _exit(0);
        }
        close(pipe_ends[1]);
        children.push_back(child);
        ends.push_back(pipe_ends[0]);
    }
    std::vector<Outcome> outcomes;
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
        int status = 0;
        waitpid(children[rank], &status, 0);
        // A child of a killed rank may hold the pipe; what the rank itself wrote is there already.
        const std::string line = WIFEXITED(status) && WEXITSTATUS(status) == 0 ? read_to_end(ends[rank]) : "";
        if (WIFSIGNALED(status))
            outcomes.push_back({JIGSAW_INTERNAL_ERROR, "killed by signal " + std::to_string(WTERMSIG(status))});
        else if (line.empty())
            outcomes.push_back({JIGSAW_INTERNAL_ERROR, "exit status " + std::to_string(WEXITSTATUS(status))});
        else
            outcomes.push_back({static_cast<jigsaw_result_t>(std::stoi(line)), line.substr(line.find(' ') + 1)});
    }
    return outcomes;
}

} // namespace jigsaw::tests
#endif
