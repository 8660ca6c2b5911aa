// SPDX-License-Identifier: Apache-2.0
// A rank's view of the rendezvous: come in, exchange a few values, and hear for the rest of the run who left, gave up
// or died. Rank 0 also runs the server. docs/protocol.md "Rendezvous".
#ifndef JIGSAW_COLLECTIVE_STORE_HPP
#define JIGSAW_COLLECTIVE_STORE_HPP

#include "runtime/collective/rendezvous.hpp"
#include "runtime/collective/store_wire.hpp"

#include <memory>

namespace jigsaw::collective {

class Store {
  public:
    /// Called from the store's thread, once per rank that goes, and never after the destructor has begun to return.
    using OnDeparture = std::function<void(const Departure &)>;

    /// Returns when all ranks are in. Throws JIGSAW_TIMEOUT naming who is missing and where we waited,
    /// JIGSAW_SYSTEM_ERROR when rank 0 cannot listen, JIGSAW_INVALID_ARGUMENT when the worlds differ.
    Store(const Rendezvous &where, OnDeparture on_departure);
    ~Store(); ///< a clean end: the others hear that this rank left
    Store(const Store &) = delete;

    void set(const std::string &key, const std::string &value);
    /// Waits until some rank has set `key`. Throws JIGSAW_TIMEOUT naming it, JIGSAW_PEER_LEFT when a rank ended.
    std::string get(const std::string &key, std::chrono::milliseconds timeout);
    /// Tell all others that nothing goes on.
    void abort(const std::string &why);
    /// The address of this machine on the way to rank 0: where a back end should listen.
    std::string local_address() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace jigsaw::collective
#endif
