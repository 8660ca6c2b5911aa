// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a test meet: loopback, and a port that was free a moment ago.
#ifndef JIGSAW_TESTS_LIB_PORTS_HPP
#define JIGSAW_TESTS_LIB_PORTS_HPP

#include "runtime/collective/rendezvous.hpp"
#include "runtime/collective/socket.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace jigsaw::tests {

/// A listening socket on a free port of loopback, and the port.
inline collective::Socket listen_anywhere(std::uint16_t *ret_port)
{
    std::string why;
    int error = 0;
    collective::Socket socket = collective::listen_on(&error, collective::resolve(&why, "127.0.0.1", 0).front());
    sockaddr_in address{};
    socklen_t length = sizeof address;
    getsockname(socket.fd(), reinterpret_cast<sockaddr *>(&address), &length);
    *ret_port = ntohs(address.sin_port);
    return socket;
}

inline std::uint16_t free_port()
{
    std::uint16_t port = 0;
    listen_anywhere(&port);
    return port;
}

inline collective::Rendezvous meet_at(std::uint16_t port, int rank, int size)
{
    collective::Rendezvous where;
    where.rank = rank;
    where.size = size;
    where.address = "127.0.0.1";
    where.ports = {port};
    where.token = "test";
    return where;
}

} // namespace jigsaw::tests
#endif
