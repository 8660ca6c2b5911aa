// SPDX-License-Identifier: Apache-2.0
// jigsawd: one per node (one per SLURMD_NODENAME on a test host). Signals come by signalfd into the same loop as
// everything else: SIGTERM and SIGINT end it in order, SIGHUP reads the configuration again.
#include "plugin/agent/agent.hpp"
#include "plugin/agent/options.hpp"
#include "plugin/agent/version.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using namespace jigsaw;
using namespace jigsaw::agent;

/// Blocked before the first thread starts, so that no thread takes them.
UniqueFd take_signals()
{
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP})
        sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signal(SIGPIPE, SIG_IGN);
    return UniqueFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

/// The lock that makes jigsawd the only one of its node; held until the process ends.
UniqueFd take_lock(std::string *ret_why, const std::string &path)
{
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!fd) {
        *ret_why = "cannot open " + path + ": " + std::strerror(errno);
        return fd;
    }
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
        char owner[32] = {};
        const ssize_t got = read(fd.get(), owner, sizeof owner - 1);
        *ret_why = "another jigsawd" +
                   (got > 0 ? " (pid " + std::string(owner, std::strcspn(owner, "\n")) + ")" : "") +
                   " serves this node: it holds " + path;
        return UniqueFd();
    }
    const std::string pid = std::to_string(getpid()) + "\n";
    if (ftruncate(fd.get(), 0) != 0 || write(fd.get(), pid.data(), pid.size()) < 0) {
        *ret_why = "cannot write " + path + ": " + std::strerror(errno);
        return UniqueFd();
    }
    return fd;
}

/// Three descriptors of each process and one per connection.
void raise_limits()
{
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/// sd_notify(3) without libsystemd.
void tell_systemd(const char *text)
{
    const char *path = std::getenv("NOTIFY_SOCKET");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path == nullptr || std::strlen(path) >= sizeof address.sun_path)
        return;
    std::memcpy(address.sun_path, path, std::strlen(path));
    if (address.sun_path[0] == '@')
        address.sun_path[0] = '\0';
    const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
    sendto(fd.get(), text, std::strlen(text), MSG_NOSIGNAL, reinterpret_cast<const sockaddr *>(&address), length);
}

void reload(Agent &agent, const Options &options, Log &log)
{
    std::string why;
    if (auto config = config::load_config(&why, options.config))
        agent.reload(std::move(config));
    else
        log.error(why + "; the configuration in force stays");
}

/// Until a signal ends it; the exit status.
int serve(Agent &agent, const Options &options, Log &log, int signals)
{
    bool going = true;
    agent.loop().watch(signals, EPOLLIN, Loop::Priority::turn, [&](std::uint32_t) {
        signalfd_siginfo info{};
        if (read(signals, &info, sizeof info) != sizeof info)
            return;
        if (info.ssi_signo == SIGHUP) {
            reload(agent, options, log);
            return;
        }
        log.info(std::string(strsignal(static_cast<int>(info.ssi_signo))) +
                 ": ends; processes go on without turns");
        going = false;
    });
    tell_systemd("READY=1");
    while (going)
        agent.step(-1);
    tell_systemd("STOPPING=1");
    agent.end();
    return EXIT_SUCCESS;
}

int run(const Options &options, Log &log)
{
    std::string why;
    const auto config = config::load_config(&why, options.config);
    if (!config) {
        log.error(why);
        return EXIT_FAILURE;
    }
    const UniqueFd signals = take_signals();
    const config::NodePaths paths =
        config::node_paths(options.run_dir.empty() ? config->run_dir : options.run_dir, options.node);
    make_folders(paths);
    const UniqueFd lock = take_lock(&why, paths.lock);
    if (!lock) {
        log.error(why);
        return EXIT_FAILURE;
    }
    raise_limits();
    Agent agent({options.node, options.run_dir}, config, log);
    const int status = serve(agent, options, log, signals.get());
    unlink(paths.lock.c_str());
    return status;
}

constexpr int kUsageError = 2;

int print(const std::string &text)
{
    if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0)
        return EXIT_SUCCESS;
    std::fprintf(stderr, "jigsawd: standard output: %s\n", std::strerror(errno));
    return EXIT_FAILURE;
}

} // namespace

int main(int argc, char **argv)
{
    Options options;
    std::string why;
    if (!parse_options(&options, &why, argc, argv)) {
        std::fprintf(stderr, "jigsawd: %s; `jigsawd --help` has the options\n", why.c_str());
        return kUsageError;
    }
    if (options.help || options.version)
        return print(options.help ? kUsage : "jigsawd " + std::string(kVersion) + "\n");
    Log log(options.log_level, stderr_sink());
    try {
        return run(options, log);
    } catch (const std::exception &error) {
        log.error(error.what());
        return EXIT_FAILURE;
    }
}
