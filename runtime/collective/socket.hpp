// SPDX-License-Identifier: Apache-2.0
// TCP sockets of the rendezvous: owners, addresses, options. A forked child (a data loader's worker) closes them, so
// that a rank's death is seen although its children live on.
#ifndef JIGSAW_COLLECTIVE_SOCKET_HPP
#define JIGSAW_COLLECTIVE_SOCKET_HPP

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace jigsaw::collective {

/// Owns a descriptor that is closed in forked children too.
class Socket {
  public:
    Socket() = default;
    explicit Socket(int fd);
    ~Socket() { reset(); }
    Socket(Socket &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket &operator=(Socket &&other) noexcept
    {
        reset();
        fd_ = std::exchange(other.fd_, -1);
        return *this;
    }
    int fd() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    void reset();

  private:
    int fd_ = -1;
};

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t length = 0;
};

/// Every address of `host` (a number or a name); empty with *ret_why for none.
std::vector<SocketAddress> resolve(std::string *ret_why, const std::string &host, std::uint16_t port);

/// "10.0.0.7" without the port.
std::string host_of(const SocketAddress &address);
/// Of this end of a connection.
std::string local_host_of(int fd);
bool is_loopback(const SocketAddress &address);
/// Addresses of this machine's interfaces that are up and not loopback, IPv4, port set.
std::vector<SocketAddress> own_addresses(std::uint16_t port);

/// Non-blocking, closed on exec. On failure no socket and errno in *ret_errno.
Socket listen_on(int *ret_errno, const SocketAddress &address);
Socket accept_from(int listener);
/// Connects within timeout_ms.
Socket connect_to(int *ret_errno, const SocketAddress &address, int timeout_ms);

} // namespace jigsaw::collective
#endif
