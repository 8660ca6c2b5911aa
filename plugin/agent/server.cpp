// SPDX-License-Identifier: Apache-2.0
// Accepting, receiving, answering. Nothing here waits: what does not go at once closes the connection.
#include "plugin/agent/server.hpp"

#include "runtime/page/page.hpp"
#include "runtime/page/socket.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <stdexcept>

namespace jigsaw::agent {

namespace {

constexpr int kBacklog = 128;
constexpr int kAcceptsPerRound = 16;

UniqueFd listen_or_throw(const std::string &path)
{
    std::string why;
    UniqueFd fd = wire::listen_at(&why, path, kBacklog); // the lock file says that no other jigsawd serves it
    if (!fd)
        throw std::runtime_error(why);
    return fd;
}

std::uint64_t boottime_ns()
{
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000u + static_cast<std::uint64_t>(now.tv_nsec);
}

} // namespace

Reply error_reply(const std::string &code, const std::string &text)
{
    Reply reply;
    reply.message.verb = "ERROR";
    reply.message.values = {{"code", code}, {"text", text}};
    return reply;
}

Server::Server(Loop &loop, Log &log, const std::string &path, Handler handler, Closed closed)
    : loop_(loop), log_(log), path_(path), handler_(std::move(handler)), closed_(std::move(closed)),
      listener_(listen_or_throw(path)), spare_(open("/dev/null", O_RDONLY | O_CLOEXEC))
{
    loop_.watch(listener_.get(), EPOLLIN, Loop::Priority::client, [this](std::uint32_t) { accept_some(); });
}

Server::~Server()
{
    for (const auto &[number, connection] : connections_)
        loop_.forget(connection.fd.get());
    loop_.forget(listener_.get());
    unlink(path_.c_str());
}

void Server::accept_some()
{
    for (int i = 0; i < kAcceptsPerRound; ++i) {
        UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!fd && (errno == EMFILE || errno == ENFILE)) {
            // Out of descriptors: use the spare one to take the connection off the queue and refuse it.
            spare_.reset();
            UniqueFd refused(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            refused.reset();
            spare_.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
            log_.client("out of file descriptors: a connection was refused", page::monotonic_ns());
            return;
        }
        if (!fd || !admit(std::move(fd)))
            return;
    }
}

/// False: stop accepting in this round.
bool Server::admit(UniqueFd fd)
{
    ucred credentials{};
    socklen_t length = sizeof credentials;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
        return true;
    unsigned &count = per_uid_[credentials.uid];
    if (count >= kConnectionsPerUid) {
        const std::string limit = std::to_string(kConnectionsPerUid);
        log_.client("uid " + std::to_string(credentials.uid) + " has " + limit + " connections (limit " + limit +
                        "): one more was refused",
                    page::monotonic_ns());
        const Reply refusal = error_reply("TOO_MANY", limit + " connections per user; close some");
        std::string why;
        wire::send_message(&why, fd.get(), refusal.message, {}, 0);
        return true;
    }
    ++count;
    const std::uint64_t number = next_connection_++;
    const int raw = fd.get();
    Connection connection;
    connection.peer = Peer{credentials.uid, credentials.pid, number, boottime_ns()};
    connection.fd = std::move(fd);
    connection.deadline_ns = page::monotonic_ns() + kHandshakeNs;
    connections_.emplace(number, std::move(connection));
    loop_.watch(raw, EPOLLIN | EPOLLRDHUP, Loop::Priority::client,
                [this, number](std::uint32_t) { serve(number); });
    return true;
}

void Server::serve(std::uint64_t number)
{
    const auto found = connections_.find(number);
    if (found == connections_.end())
        return;
    wire::Message message;
    std::vector<UniqueFd> fds; // nobody needs to send us any: closed unseen
    std::string why;
    const wire::Received received = wire::receive_message(&message, &fds, &why, found->second.fd.get(), 0);
    if (received == wire::Received::nothing)
        return;
    bool keep = false;
    if (received == wire::Received::message)
        keep = answer(found->second, message);
    else if (received == wire::Received::bad)
        refuse_garbage(found->second, why);
    if (!keep)
        drop(number, true);
}

void Server::refuse_garbage(const Connection &connection, const std::string &why)
{
    log_.client("uid " + std::to_string(connection.peer.uid) + " pid " + std::to_string(connection.peer.pid) +
                    ": not a message of ours: " + why,
                page::monotonic_ns());
    send(connection, error_reply("BAD_MESSAGE", why));
}

bool Server::answer(Connection &connection, const wire::Message &message)
{
    const std::uint64_t number = connection.peer.connection;
    const Reply reply = handler_(connection.peer, message);
    if (connections_.count(number) == 0)
        return true; // the handler closed it
    connection.attached = connection.attached || reply.attached;
    connection.deadline_ns = page::monotonic_ns() + kHandshakeNs;
    return send(connection, reply);
}

bool Server::send(const Connection &connection, const Reply &reply)
{
    std::vector<int> fds = reply.borrowed_fds;
    if (reply.document)
        fds.push_back(reply.document.get());
    std::string why;
    return wire::send_message(&why, connection.fd.get(), reply.message, fds, 0);
}

void Server::drop(std::uint64_t number, bool tell)
{
    const auto found = connections_.find(number);
    if (found == connections_.end())
        return;
    const std::uint32_t uid = found->second.peer.uid;
    loop_.forget(found->second.fd.get());
    connections_.erase(found);
    const auto count = per_uid_.find(uid);
    if (--count->second == 0)
        per_uid_.erase(count);
    if (tell)
        closed_(number);
}

void Server::close(std::uint64_t connection)
{
    drop(connection, false);
}

void Server::close_idle(std::uint64_t now_ns)
{
    for (auto it = connections_.begin(); it != connections_.end();) {
        const auto here = it++;
        if (!here->second.attached && now_ns > here->second.deadline_ns)
            drop(here->first, true);
    }
}

} // namespace jigsaw::agent
