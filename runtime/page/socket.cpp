// SPDX-License-Identifier: Apache-2.0
// AF_UNIX sequential packets with limits on every wait.
#include "runtime/page/socket.hpp"

#include "runtime/page/page.hpp"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

namespace jigsaw::wire {
namespace {

/// What is left of a limit, for poll().
class Deadline {
  public:
    explicit Deadline(int timeout_ms) : end_ns_(page::monotonic_ns() + std::uint64_t(timeout_ms) * 1000000u) {}
    int left_ms() const
    {
        const std::uint64_t now = page::monotonic_ns();
        return now >= end_ns_ ? 0 : static_cast<int>((end_ns_ - now) / 1000000u) + 1;
    }

  private:
    std::uint64_t end_ns_;
};

bool fill_address(sockaddr_un *address, std::string *ret_why, const std::string &path)
{
    std::memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address->sun_path) {
        *ret_why = "socket path of " + std::to_string(path.size()) + " bytes, allowed is 1 to " +
                   std::to_string(sizeof address->sun_path - 1);
        return false;
    }
    std::memcpy(address->sun_path, path.data(), path.size());
    return true;
}

UniqueFd make_socket() { return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

std::string error_text(const std::string &what) { return what + ": " + std::strerror(errno); }

/// False when `events` did not come in time; EINTR only shortens one round.
bool wait_for(int socket, short events, const Deadline &deadline)
{
    for (;;) {
        const int left_ms = deadline.left_ms();
        pollfd polled = {socket, events, 0};
        const int ready = poll(&polled, 1, left_ms);
        if (ready > 0)
            return true;
        if (left_ms == 0 || (ready < 0 && errno != EINTR))
            return false;
    }
}

void take_fds(std::vector<UniqueFd> *ret_fds, msghdr *header)
{
    for (cmsghdr *control = CMSG_FIRSTHDR(header); control; control = CMSG_NXTHDR(header, control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
            continue;
        const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(control) + i * sizeof fd, sizeof fd);
            ret_fds->emplace_back(fd);
        }
    }
}

/// One datagram now: its size, 0 when the peer closed, -1 with errno.
ssize_t receive_datagram(char *buffer, std::size_t room, std::vector<UniqueFd> *ret_fds, int *ret_flags, int socket)
{
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
    iovec data = {buffer, room};
    msghdr header = {};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t bytes = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (bytes >= 0) {
        take_fds(ret_fds, &header);
        *ret_flags = header.msg_flags;
    }
    return bytes;
}

} // namespace

UniqueFd connect_to(std::string *ret_why, const std::string &path, int timeout_ms)
{
    sockaddr_un address;
    if (!fill_address(&address, ret_why, path))
        return {};
    UniqueFd fd = make_socket();
    const Deadline deadline(timeout_ms);
    while (fd && connect(fd.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0) {
        // AF_UNIX answers EAGAIN while the queue is full, and poll() does not wait for that.
        if ((errno != EAGAIN && errno != EINTR) || deadline.left_ms() == 0) {
            *ret_why = error_text("connect to " + path);
            return {};
        }
        const timespec pause = {0, 1000000};
        nanosleep(&pause, nullptr);
    }
    if (!fd)
        *ret_why = error_text("socket");
    return fd;
}

UniqueFd listen_at(std::string *ret_why, const std::string &path, int backlog)
{
    sockaddr_un address;
    if (!fill_address(&address, ret_why, path))
        return {};
    UniqueFd fd = make_socket();
    unlink(path.c_str());
    if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0 ||
        chmod(path.c_str(), 0666) != 0 || listen(fd.get(), backlog) != 0) {
        *ret_why = error_text("listen at " + path);
        return {};
    }
    return fd;
}

bool send_message(std::string *ret_why, int socket, const Message &message, const std::vector<int> &fds,
                  int timeout_ms)
{
    std::string text = format(message);
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
    iovec data = {text.data(), text.size()};
    msghdr header = {};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    if (!fds.empty() && fds.size() <= kMaxFds) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
        cmsghdr *first = CMSG_FIRSTHDR(&header);
        first->cmsg_level = SOL_SOCKET;
        first->cmsg_type = SCM_RIGHTS;
        first->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
        std::memcpy(CMSG_DATA(first), fds.data(), fds.size() * sizeof(int));
    }
    const Deadline deadline(timeout_ms);
    while (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN || !wait_for(socket, POLLOUT, deadline)) {
            *ret_why = error_text("send " + message.verb);
            return false;
        }
    }
    return true;
}

Received receive_message(Message *ret_message, std::vector<UniqueFd> *ret_fds, std::string *ret_why, int socket,
                         int timeout_ms)
{
    const Deadline deadline(timeout_ms);
    char buffer[kMaxMessage];
    std::vector<UniqueFd> fds;
    int flags = 0;
    ssize_t bytes;
    while ((bytes = receive_datagram(buffer, sizeof buffer, &fds, &flags, socket)) < 0) {
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return Received::closed;
        if (timeout_ms == 0 || !wait_for(socket, POLLIN, deadline))
            return Received::nothing;
    }
    if (bytes == 0)
        return Received::closed;
    if (flags & (MSG_TRUNC | MSG_CTRUNC)) {
        *ret_why = "message longer than " + std::to_string(kMaxMessage) + " bytes, or with more than " +
                   std::to_string(kMaxFds) + " descriptors";
        return Received::bad;
    }
    if (!parse(ret_message, ret_why, buffer, static_cast<std::size_t>(bytes)))
        return Received::bad;
    *ret_fds = std::move(fds);
    return Received::message;
}

bool has_hung_up(int socket)
{
    pollfd polled = {socket, POLLRDHUP, 0};
    return poll(&polled, 1, 0) > 0 && (polled.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) != 0;
}

bool ask(Message *ret_answer, std::vector<UniqueFd> *ret_fds, std::string *ret_why, const std::string &path,
         const Message &question, int timeout_ms)
{
    const UniqueFd fd = connect_to(ret_why, path, timeout_ms);
    if (!fd || !send_message(ret_why, fd.get(), question, {}, timeout_ms))
        return false;
    Message answer;
    switch (receive_message(&answer, ret_fds, ret_why, fd.get(), timeout_ms)) {
    case Received::message:
        break;
    case Received::nothing:
        *ret_why = "no answer to " + question.verb + " within " + std::to_string(timeout_ms) + " ms";
        return false;
    case Received::closed:
        *ret_why = "hung up without an answer to " + question.verb;
        return false;
    case Received::bad:
        return false;
    }
    if (answer.verb != "OK") {
        const std::string *text = answer.find("text");
        *ret_why = question.verb + " refused: " + (text ? *text : answer.verb);
        return false;
    }
    *ret_answer = std::move(answer);
    return true;
}

} // namespace jigsaw::wire
