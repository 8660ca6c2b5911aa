// SPDX-License-Identifier: Apache-2.0
// jigsawd's socket: who is connected, what may be said, how fast. What the messages mean is the handler's business.
//
// Limits (docs/protocol.md "Registration" 4): a message is one datagram of at most wire::kMaxMessage bytes, a user has at
// most kConnectionsPerUid connections, and a connection that is not attached says something every kHandshakeNs or goes.
#ifndef JIGSAW_AGENT_SERVER_HPP
#define JIGSAW_AGENT_SERVER_HPP

#include "plugin/agent/log.hpp"
#include "plugin/agent/loop.hpp"
#include "runtime/page/wire.hpp"

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace jigsaw::agent {

/// The other end of a connection, as the kernel vouches for it (SO_PEERCRED, at the time of connect).
struct Peer {
    std::uint32_t uid = 0;
    pid_t pid = 0;
    std::uint64_t connection = 0;  ///< never used twice
    std::uint64_t accepted_ns = 0; ///< CLOCK_BOOTTIME, to compare with a process's start
};

struct Reply {
    wire::Message message;
    UniqueFd document;              ///< sent along, then closed
    std::vector<int> borrowed_fds;  ///< sent along, stay the handler's
    bool attached = false;          ///< the connection is a rank's from now on: no deadline
};

Reply error_reply(const std::string &code, const std::string &text);

class Server {
  public:
    using Handler = std::function<Reply(const Peer &, const wire::Message &)>;
    using Closed = std::function<void(std::uint64_t connection)>;
    static constexpr unsigned kConnectionsPerUid = 64;
    static constexpr std::uint64_t kHandshakeNs = 1000000000;

    /// Listens at `path` (mode 0666), replacing a socket that nobody serves. Throws std::runtime_error.
    Server(Loop &loop, Log &log, const std::string &path, Handler handler, Closed closed);
    ~Server(); ///< closes all and removes the socket
    Server(const Server &) = delete;

    void close(std::uint64_t connection); ///< unknown numbers are fine; Closed is not called
    void close_idle(std::uint64_t now_ns);
    std::size_t connection_count() const { return connections_.size(); }

  private:
    struct Connection {
        Peer peer;
        UniqueFd fd;
        bool attached = false;
        std::uint64_t deadline_ns = 0;
    };
    void accept_some();
    bool admit(UniqueFd fd);
    void serve(std::uint64_t number);
    /// False: the connection is to be closed.
    bool answer(Connection &connection, const wire::Message &message);
    void refuse_garbage(const Connection &connection, const std::string &why);
    bool send(const Connection &connection, const Reply &reply);
    void drop(std::uint64_t number, bool tell);

    Loop &loop_;
    Log &log_;
    std::string path_;
    Handler handler_;
    Closed closed_;
    UniqueFd listener_, spare_;
    std::map<std::uint64_t, Connection> connections_;
    std::map<std::uint32_t, unsigned> per_uid_;
    std::uint64_t next_connection_ = 1;
};

} // namespace jigsaw::agent
#endif
