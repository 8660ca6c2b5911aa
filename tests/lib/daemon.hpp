// SPDX-License-Identifier: Apache-2.0
// A real jigsawd in a folder of its own, jobs registered by hand, and gate_client processes as their ranks. Used by
// tests/unit/test_agent_process.cpp and bench/recovery.cpp. Waits have generous limits and end as soon as they can:
// nothing here depends on how fast the machine is.
#ifndef JIGSAW_TESTS_LIB_DAEMON_HPP
#define JIGSAW_TESTS_LIB_DAEMON_HPP

#include "plugin/config/registration.hpp"
#include "runtime/page/page.hpp"
#include "runtime/page/socket.hpp"
#include "tests/lib/folder.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace jigsaw::tests {

constexpr int kPatienceMs = 60000;

/// Call until it is true; false after kPatienceMs.
inline bool eventually(const std::function<bool()> &holds)
{
    const std::uint64_t end_ns = page::monotonic_ns() + kPatienceMs * std::uint64_t{1000000};
    while (!holds()) {
        if (page::monotonic_ns() > end_ns)
            return false;
        usleep(2000);
    }
    return true;
}

inline std::string read_text(const std::string &path)
{
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/// A child process whose standard output is read line by line; killed at the end of its life here.
class Child {
  public:
    Child(const std::vector<std::string> &arguments, const std::string &stderr_path)
    {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0)
            throw std::runtime_error("pipe2");
        out_.reset(ends[0]);
        UniqueFd writer(ends[1]);
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            setpgid(0, 0); // what it forks goes with it: ~Child
            dup2(writer.get(), STDOUT_FILENO);
            const int err = open(stderr_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
            dup2(err, STDERR_FILENO);
            std::vector<char *> argv;
            for (const std::string &argument : arguments)
                argv.push_back(const_cast<char *>(argument.c_str()));
            argv.push_back(nullptr);
            execv(argv[0], argv.data());
            _exit(127);
        }
    }
    ~Child()
    {
        if (!waited_) {
            kill(SIGKILL);
            ::kill(-pid_, SIGKILL);
        }
        wait();
    }
    Child(const Child &) = delete;

    pid_t pid() const { return pid_; }
    void kill(int signal) const { ::kill(pid_, signal); }
    /// Exit status, or 128 + signal.
    int wait()
    {
        if (!waited_) {
            int status = 0;
            while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
            }
            status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            waited_ = true;
        }
        return status_;
    }
    /// Read lines until one holds `text`; that line, or "" at the end of the output or of our patience.
    std::string line_with(const std::string &text)
    {
        const std::uint64_t end_ns = page::monotonic_ns() + kPatienceMs * std::uint64_t{1000000};
        std::string line;
        while (page::monotonic_ns() < end_ns) {
            if (next_line(&line)) {
                if (line.find(text) != std::string::npos)
                    return line;
            } else if (!read_more()) {
                return "";
            }
        }
        return "";
    }

  private:
    bool next_line(std::string *line)
    {
        const std::size_t end = pending_.find('\n');
        if (end == std::string::npos)
            return false;
        *line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        return true;
    }
    bool read_more()
    {
        pollfd waiting{out_.get(), POLLIN, 0};
        if (poll(&waiting, 1, 100) <= 0)
            return true;
        char buffer[4096];
        const ssize_t got = read(out_.get(), buffer, sizeof buffer);
        if (got > 0)
            pending_.append(buffer, static_cast<std::size_t>(got));
        return got > 0;
    }

    pid_t pid_ = -1;
    UniqueFd out_;
    std::string pending_;
    bool waited_ = false;
    int status_ = -1;
};

class Daemon {
  public:
    /// `programs` is the build folder; more configuration text goes to jigsaw.yaml.
    explicit Daemon(const std::string &programs, const std::string &yaml = "") : programs_(programs)
    {
        chmod(dir_.c_str(), 0755); // other users must reach the socket
        configure(yaml);
        start();
    }
    Daemon(const Daemon &) = delete;

    void configure(const std::string &yaml)
    {
        std::ofstream(dir_ + "/jigsaw.yaml") << "trace_file: " << trace_path() << "\nadmin_comment_period_s: 0\n"
                                             << "scontrol: /bin/false\n" << yaml;
    }
    void start()
    {
        agent_ = std::make_unique<Child>(std::vector<std::string>{programs_ + "/plugin/agent/jigsawd", "--config",
                                                                  dir_ + "/jigsaw.yaml", "--node", "t1",
                                                                  "--run-dir", dir_ + "/run"},
                                         log_path());
        if (!eventually([this] { return answers(); }))
            throw std::runtime_error("jigsawd does not answer: " + log());
    }
    Child &agent() { return *agent_; }
    bool answers() const
    {
        wire::Message question, answer;
        std::vector<UniqueFd> fds;
        std::string why;
        question.verb = "PING";
        return wire::ask(&answer, &fds, &why, paths().socket, question, 1000);
    }
    std::string status() const
    {
        wire::Message question, answer;
        std::vector<UniqueFd> fds;
        std::string why;
        question.verb = "STATUS";
        if (!wire::ask(&answer, &fds, &why, paths().socket, question, 5000) || fds.size() != 1)
            return "";
        return read_text("/proc/self/fd/" + std::to_string(fds[0].get()));
    }
    /// As the prolog does.
    void register_job(core::JobId job, std::uint32_t uid = getuid(), std::int64_t start_s = 0,
                      const core::SpbRequest &request = sharing(), const std::vector<int> &gpus = {0}) const
    {
        config::Registration record;
        record.job_id = job;
        record.uid = uid;
        record.gpus = gpus;
        record.spb = request;
        record.token_sha256 = config::sha256_hex(token(job));
        record.start_s = start_s == 0 ? static_cast<std::int64_t>(job) : start_s;
        const std::string path = paths().jobs + "/.new";
        {
            std::ofstream file(path);
            file << config::format_registration(record);
        }
        chmod(path.c_str(), 0600);
        if (rename(path.c_str(), (paths().jobs + "/" + config::registration_file_name(job, 0)).c_str()) != 0)
            throw std::runtime_error("rename " + path);
    }
    static core::SpbRequest sharing()
    {
        core::SpbRequest request;
        request.mode = core::SpbMode::automatic;
        return request;
    }
    static std::string token(core::JobId job) { return std::string(56, 'a') + std::to_string(10000000 + job); }
    std::unique_ptr<Child> rank(core::JobId job, std::vector<std::string> more,
                                const std::string &given_token = "") const
    {
        std::vector<std::string> arguments = {programs_ + "/tests/lib/gate_client", paths().socket,
                                              std::to_string(job), given_token.empty() ? token(job) : given_token};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return std::make_unique<Child>(arguments, dir_ + "/clients.log");
    }
    config::NodePaths paths() const { return config::node_paths(dir_ + "/run", "t1"); }
    const std::string &dir() const { return dir_; }
    std::string log_path() const { return dir_ + "/jigsawd.log"; }
    std::string log() const { return read_text(log_path()); }
    std::string trace_path() const { return dir_ + "/trace.jsonl"; }
    std::vector<std::string> trace() const
    {
        std::vector<std::string> lines;
        const std::string whole = read_text(trace_path());
        std::istringstream text(whole.substr(0, whole.rfind('\n') + 1)); // it may be writing just now
        for (std::string line; std::getline(text, line);)
            lines.push_back(line);
        return lines;
    }

  private:
    std::string programs_;
    const Folder folder_{"daemon"};
    const std::string &dir_ = folder_.path();
    std::unique_ptr<Child> agent_;
};

} // namespace jigsaw::tests

#endif
