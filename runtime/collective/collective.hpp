// SPDX-License-Identifier: Apache-2.0
// What the runtime needs of a communication library: point-to-point with tags, and time-outs that name the peer.
// Everything else (partial sync, agreement) is built on it in runtime/sync, so that a scheme is written once and runs on
// threads, on Gloo and on the host side beside NCCL. The NCCL data path has its own interface (later, collective/nccl).
#ifndef JIGSAW_COLLECTIVE_COLLECTIVE_HPP
#define JIGSAW_COLLECTIVE_COLLECTIVE_HPP

#include "runtime/collective/error.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace jigsaw::collective {

/// An operation in flight. Both waits throw jigsaw::Error {JIGSAW_PEER_LEFT} naming the rank that is gone. Destroying a
/// request that has not completed cancels it: the buffer is not touched any more, the world is of no more use.
class Request {
  public:
    virtual ~Request() = default;
    /// True when complete; false when `limit` passed first, which costs nothing: wait again.
    virtual bool wait_for(std::chrono::milliseconds limit) = 0;
    /// Like wait_for(), and JIGSAW_TIMEOUT naming the peer when `timeout` passed first.
    virtual void wait(std::chrono::milliseconds timeout) = 0;
};

/// One rank's view of the world. Thread-safe: several threads may send and receive with different tags.
/// A (peer, tag) pair carries messages in order; both sides know every size ahead.
class Collective {
  public:
    virtual ~Collective() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    /// The buffer must live and stay unchanged until wait() returned.
    virtual std::unique_ptr<Request> send(int peer, std::uint64_t tag, const void *data, std::size_t bytes) = 0;
    virtual std::unique_ptr<Request> receive(int peer, std::uint64_t tag, void *data, std::size_t bytes) = 0;
    /// Make every pending and later operation of this rank fail soon, and those of its peers, who learn `why`;
    /// idempotent: the first reason stays; any thread.
    virtual void abort(const std::string &why) = 0;
    /// Payload bytes this rank has sent since it was made.
    virtual std::uint64_t bytes_sent() const = 0;
    virtual const char *name() const = 0; ///< "threads", "gloo"
};

/// For back ends: the error of a wait() that ran out, and the check that `peer` is another rank of `world`.
Error timeout_error(int rank, int peer, bool is_send, std::chrono::milliseconds timeout);
void check_peer(const Collective &world, int peer);

} // namespace jigsaw::collective
#endif
