// SPDX-License-Identifier: Apache-2.0
// Messages of wire.hpp over AF_UNIX SOCK_SEQPACKET, with descriptors beside them. Used by libjigsaw, jigsawd,
// spank_jigsaw and the jigsaw command. Nothing here throws or raises SIGPIPE; every wait has a limit.
#ifndef JIGSAW_PAGE_SOCKET_HPP
#define JIGSAW_PAGE_SOCKET_HPP

#include "runtime/page/fd.hpp"
#include "runtime/page/wire.hpp"

#include <string>
#include <vector>

namespace jigsaw::wire {

constexpr std::size_t kMaxFds = 4; ///< in one message; more are closed unseen

/// Non-blocking, close-on-exec socket connected to `path`. No descriptor and one line in *ret_why when that failed:
/// nobody listens, or the queue of connections stayed full for timeout_ms.
UniqueFd connect_to(std::string *ret_why, const std::string &path, int timeout_ms);

/// Listening socket at `path` (an old file there is replaced), non-blocking, close-on-exec, mode 0666.
UniqueFd listen_at(std::string *ret_why, const std::string &path, int backlog);

/// Sends one message and copies of `fds`. False: peer gone, or its queue stayed full for timeout_ms.
bool send_message(std::string *ret_why, int socket, const Message &message, const std::vector<int> &fds,
                  int timeout_ms);

enum class Received {
    message, ///< *ret_message and *ret_fds are set
    nothing, ///< none came within timeout_ms
    closed,  ///< the peer hung up
    bad      ///< one came and was no message of ours; it is consumed; *ret_why says why
};
/// timeout_ms 0: only look.
Received receive_message(Message *ret_message, std::vector<UniqueFd> *ret_fds, std::string *ret_why, int socket,
                         int timeout_ms);

/// Has the peer closed its end? Looks, never waits, consumes nothing.
bool has_hung_up(int socket);

/// connect_to, send, receive: a question with one answer. False with one line in *ret_why for any failure, also
/// when the answer is ERROR (its text).
bool ask(Message *ret_answer, std::vector<UniqueFd> *ret_fds, std::string *ret_why, const std::string &path,
         const Message &question, int timeout_ms);

} // namespace jigsaw::wire
#endif
