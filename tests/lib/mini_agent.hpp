// SPDX-License-Identifier: Apache-2.0
// The least jigsawd that gives turns: one GPU, first come first served, in a thread of the test or benchmark. It uses
// arbiter_side.hpp as plugin/agent does and keeps the gate log of docs/gate-log.md. It knows no jobs, users or leases.
#ifndef JIGSAW_TESTS_LIB_MINI_AGENT_HPP
#define JIGSAW_TESTS_LIB_MINI_AGENT_HPP

#include "runtime/page/arbiter_side.hpp"
#include "runtime/page/socket.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <list>
#include <mutex>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <vector>

namespace jigsaw::tests {

class MiniAgent {
  public:
    struct Options {
        bool always_closed = false; ///< also for a process alone
        bool keeps_log = true;
        /// What ATTACH is answered with, besides the descriptors; "ERROR" refuses.
        wire::Message answer{"OK", {{"proto", "1"}, {"gpu", "3"}, {"cores", "0-1"}, {"pages", "2"}, {"bell", "1"}}};
    };

    /// Listens at once, so that processes forked now find it; serves from start() on.
    MiniAgent(const std::string &path, Options options)
        : options_(std::move(options)), listener_(wire::listen_at(&why_, path, 64)),
          command_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
    {
        note("start", nullptr);
    }
    explicit MiniAgent(const std::string &path) : MiniAgent(path, Options{}) {}
    ~MiniAgent() { stop(); }

    void start()
    {
        thread_ = std::thread([this] { serve(); });
    }
    /// As a killed daemon: sockets and pages are closed, nothing is said.
    void stop()
    {
        stop_ = true;
        wake();
        if (thread_.joinable())
            thread_.join();
        connections_.clear();
        listener_.reset();
    }
    /// As a stopped daemon: hearts look ten seconds old and nothing is served. Returns when that is so.
    void freeze() { set_frozen(true); }
    void thaw() { set_frozen(false); }
    /// Publishes to every process attached at the next pass of the loop, and returns after it.
    void publish(const page::DirectiveView &view)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        for (Connection &connection : connections_)
            if (connection.process)
                page::publish_directive(connection.process->pages.directive.get(), view);
    }

    std::size_t attached() const { return attached_; }
    wire::Message last_attach()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return last_attach_;
    }
    std::vector<std::string> log()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return log_;
    }

  private:
    struct Process {
        int id = 0;
        page::AgentPages pages;
        UniqueFd bell, pidfd;
        bool queued = false, holds = false;
    };
    struct Connection {
        UniqueFd socket;
        std::unique_ptr<Process> process;
    };

    void wake()
    {
        const std::uint64_t one = 1;
        if (write(command_.get(), &one, sizeof one) < 0)
            return;
    }
    void set_frozen(bool frozen)
    {
        frozen_ = frozen;
        wake();
        while (thread_.joinable() && is_frozen_ != frozen)
            std::this_thread::yield();
    }

    void note(const char *event, const Process *process)
    {
        if (!options_.keeps_log)
            return;
        std::string line = "{\"t_ns\":" + std::to_string(page::monotonic_ns()) + ",\"event\":\"" + event + "\"";
        if (process)
            line += ",\"gpu\":0,\"process\":" + std::to_string(process->id);
        log_.push_back(line + "}");
    }

    void serve()
    {
        while (!stop_) {
            const bool more_than_bells = wait();
            std::lock_guard<std::mutex> lock(mutex_);
            const bool frozen = frozen_;
            beat(frozen);
            is_frozen_ = frozen;
            if (frozen)
                continue;
            arbitrate();
            if (more_than_bells)
                meet_and_part();
        }
    }

    void meet_and_part()
    {
        drop_the_dead();
        while (UniqueFd socket{accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)})
            connections_.push_back({std::move(socket), nullptr});
        greet();
        arbitrate();
    }

    /// Sleeps until something happens, 50 ms at most. True when it was not only bells.
    bool wait()
    {
        std::vector<pollfd> others{{command_.get(), POLLIN, 0}};
        std::vector<pollfd> bells;
        if (!frozen_)
            others.push_back({listener_.get(), POLLIN, 0});
        for (const Connection &connection : connections_) {
            if (frozen_)
                break;
            others.push_back({connection.socket.get(), POLLIN | POLLRDHUP, 0});
            if (!connection.process)
                continue;
            bells.push_back({connection.process->bell.get(), POLLIN, 0});
            others.push_back({connection.process->pidfd.get(), POLLIN, 0});
        }
        const std::size_t nbells = bells.size();
        bells.insert(bells.end(), others.begin(), others.end());
        const int ready = poll(bells.data(), bells.size(), 50);
        for (std::size_t i = 0; i < nbells; ++i)
            if (bells[i].revents != 0)
                drain(bells[i].fd);
        const bool any = std::any_of(bells.begin() + static_cast<std::ptrdiff_t>(nbells), bells.end(),
                                     [](const pollfd &polled) { return polled.revents != 0; });
        if (any)
            drain(command_.get());
        return any || ready <= 0;
    }

    /// Before looking at what it rang for, never after.
    static void drain(int fd)
    {
        std::uint64_t count = 0;
        if (read(fd, &count, sizeof count) < 0)
            return;
    }

    void beat(bool frozen)
    {
        const std::uint64_t age_ns = frozen ? 10000000000u : 0;
        for (Connection &connection : connections_)
            if (connection.process)
                page::beat(connection.process->pages, page::monotonic_ns() - age_ns);
    }

    static bool is_dead(const Connection &connection)
    {
        if (wire::has_hung_up(connection.socket.get()))
            return true;
        if (!connection.process || !connection.process->pidfd)
            return false;
        pollfd ended = {connection.process->pidfd.get(), POLLIN, 0};
        return poll(&ended, 1, 0) > 0;
    }

    void drop_the_dead()
    {
        for (auto connection = connections_.begin(); connection != connections_.end();) {
            if (!is_dead(*connection)) {
                ++connection;
                continue;
            }
            if (connection->process) {
                note("dead", connection->process.get());
                queue_.erase(std::remove(queue_.begin(), queue_.end(), connection->process.get()), queue_.end());
                --attached_;
            }
            connection = connections_.erase(connection);
            set_gates();
        }
    }

    void greet()
    {
        for (Connection &connection : connections_) {
            wire::Message message;
            std::vector<UniqueFd> fds;
            std::string why;
            if (connection.process || wire::receive_message(&message, &fds, &why, connection.socket.get(), 0) !=
                                          wire::Received::message)
                continue;
            last_attach_ = message;
            attach(connection);
        }
    }

    void attach(Connection &connection)
    {
        std::string why;
        if (options_.answer.verb != "OK") {
            wire::send_message(&why, connection.socket.get(), options_.answer, {}, 100);
            return;
        }
        connection.process = std::make_unique<Process>();
        Process &process = *connection.process;
        process.id = ++last_id_;
        process.pages = page::create_pages();
        process.bell = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        ucred peer = {};
        socklen_t length = sizeof peer;
        getsockopt(connection.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
        if (peer.pid != getpid())
            process.pidfd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
        ++attached_;
        const bool closed = options_.always_closed || attached_ > 1;
        note(closed ? "close" : "open", &process);
        if (closed)
            page::close_gate(process.pages);
        set_gates();
        const page::AgentPages &pages = process.pages;
        wire::send_message(&why, connection.socket.get(), options_.answer,
                           {pages.directive_fd.get(), pages.report_fd.get(), process.bell.get()}, 100);
    }

    /// Closed for all while there are rivals, open for the last one.
    void set_gates()
    {
        const bool closed = options_.always_closed || attached_ > 1;
        for (Connection &connection : connections_) {
            Process *process = connection.process.get();
            if (!process || page::gate_is_closed(process->pages) == closed)
                continue;
            closed ? close(*process) : open(*process);
        }
    }

    void close(Process &process)
    {
        note("close", &process);
        process.holds = page::close_gate(process.pages) == page::Claim::holds;
        if (process.holds)
            note("run", &process);
    }

    void open(Process &process)
    {
        look_at(process);
        if (process.queued) {
            note("grant", &process);
            queue_.clear();
        }
        process.queued = process.holds = false;
        note("open", &process);
        page::open_gate(process.pages);
    }

    /// One reading both decides and is noted: a second one might see a turn come back that the log still shows held.
    page::Claim look_at(Process &process)
    {
        const page::Claim claim = page::claim(process.pages);
        if (process.holds && claim != page::Claim::holds) {
            note("release", &process);
            process.holds = false;
        }
        if (claim == page::Claim::idle && process.queued) { // gave up waiting
            note("cancel", &process);
            process.queued = false;
            queue_.erase(std::remove(queue_.begin(), queue_.end(), &process), queue_.end());
        }
        if (claim == page::Claim::asks && !process.queued) {
            note("want", &process);
            process.queued = true;
            queue_.push_back(&process);
        }
        return claim;
    }

    bool somebody_holds()
    {
        bool holds = false;
        for (Connection &connection : connections_)
            if (connection.process)
                holds |= look_at(*connection.process) == page::Claim::holds;
        return holds;
    }

    void arbitrate()
    {
        while (!somebody_holds() && !queue_.empty()) {
            Process &process = *queue_.front();
            queue_.pop_front();
            process.queued = false;
            const bool asks = page::claim(process.pages) == page::Claim::asks;
            note(asks ? "grant" : "cancel", &process); // it may have given up waiting
            if (!asks)
                continue;
            process.holds = page::gate_is_closed(process.pages);
            page::grant(process.pages);
        }
    }

    Options options_;
    std::string why_;
    UniqueFd listener_, command_;
    std::thread thread_;
    std::atomic<bool> stop_{false}, frozen_{false}, is_frozen_{false};
    std::atomic<std::size_t> attached_{0};
    std::mutex mutex_; ///< of everything below, between the thread and the test
    std::list<Connection> connections_;
    std::deque<Process *> queue_;
    std::vector<std::string> log_;
    wire::Message last_attach_;
    int last_id_ = 0;
};

} // namespace jigsaw::tests
#endif
