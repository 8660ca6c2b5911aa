// SPDX-License-Identifier: Apache-2.0
// Thin covers over the socket calls.
#include "runtime/collective/socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

namespace jigsaw::collective {
namespace {

/// Descriptors that a forked child must close; the handler may only touch atomics and call close(). A rank holds one,
/// rank 0 one per rank beside its listener: what has no room here is not closed, and only a late notice is lost.
constexpr std::size_t kMaxSockets = 4096;
std::array<std::atomic<int>, kMaxSockets> open_sockets; // 0: free; else descriptor + 1

void close_in_child()
{
    for (auto &slot : open_sockets)
        if (const int fd = slot.exchange(0); fd > 0)
            close(fd - 1);
}

void remember(int fd)
{
    static const int registered = pthread_atfork(nullptr, nullptr, close_in_child);
    (void)registered;
    for (auto &slot : open_sockets) {
        int expected = 0;
        if (slot.compare_exchange_strong(expected, fd + 1))
            return;
    }
}

/// False when a fork has closed it already.
bool forget(int fd)
{
    for (auto &slot : open_sockets) {
        int expected = fd + 1;
        if (slot.compare_exchange_strong(expected, 0))
            return true;
    }
    return false;
}

void set_option(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

/// A machine that vanishes is noticed within about 15 s although nothing is being sent.
void set_connection_options(int fd)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 3);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 15000);
}

const sockaddr *cast(const SocketAddress &address) { return reinterpret_cast<const sockaddr *>(&address.storage); }

} // namespace

Socket::Socket(int fd) : fd_(fd)
{
    if (fd >= 0)
        remember(fd);
}

void Socket::reset()
{
    const int fd = std::exchange(fd_, -1);
    if (fd >= 0 && forget(fd))
        close(fd);
}

std::vector<SocketAddress> resolve(std::string *ret_why, const std::string &host, std::uint16_t port)
{
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo *found = nullptr;
    const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    std::vector<SocketAddress> addresses;
    if (status != 0)
        *ret_why = gai_strerror(status);
    for (const addrinfo *one = status == 0 ? found : nullptr; one; one = one->ai_next) {
        SocketAddress address;
        std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
        address.length = one->ai_addrlen;
        addresses.push_back(address);
    }
    return addresses;
}

std::string host_of(const SocketAddress &address)
{
    char host[NI_MAXHOST] = "?";
    getnameinfo(cast(address), address.length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    return host;
}

std::string local_host_of(int fd)
{
    SocketAddress address;
    address.length = sizeof address.storage;
    getsockname(fd, reinterpret_cast<sockaddr *>(&address.storage), &address.length);
    return host_of(address);
}

bool is_loopback(const SocketAddress &address)
{
    const std::string host = host_of(address);
    return host.rfind("127.", 0) == 0 || host == "::1";
}

std::vector<SocketAddress> own_addresses(std::uint16_t port)
{
    std::vector<SocketAddress> addresses;
    ifaddrs *interfaces = nullptr;
    if (getifaddrs(&interfaces) != 0)
        return addresses;
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(interfaces, freeifaddrs);
    for (const ifaddrs *one = interfaces; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || !(one->ifa_flags & IFF_UP) ||
            (one->ifa_flags & IFF_LOOPBACK))
            continue;
        SocketAddress address;
        address.length = sizeof(sockaddr_in);
        std::memcpy(&address.storage, one->ifa_addr, address.length);
        reinterpret_cast<sockaddr_in &>(address.storage).sin_port = htons(port);
        addresses.push_back(address);
    }
    return addresses;
}

Socket listen_on(int *ret_errno, const SocketAddress &address)
{
    Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket)
        set_option(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (socket && bind(socket.fd(), cast(address), address.length) == 0 && listen(socket.fd(), 1024) == 0)
        return socket;
    *ret_errno = errno;
    return Socket();
}

Socket accept_from(int listener)
{
    Socket socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket)
        set_connection_options(socket.fd());
    return socket;
}

Socket connect_to(int *ret_errno, const SocketAddress &address, int timeout_ms)
{
    Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket || (connect(socket.fd(), cast(address), address.length) != 0 && errno != EINPROGRESS)) {
        *ret_errno = errno;
        return Socket();
    }
    pollfd waiting{socket.fd(), POLLOUT, 0};
    int error = ETIMEDOUT;
    socklen_t length = sizeof error;
    if (poll(&waiting, 1, timeout_ms) == 1)
        getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
        *ret_errno = error;
        return Socket();
    }
    set_connection_options(socket.fd());
    return socket;
}

} // namespace jigsaw::collective
