// SPDX-License-Identifier: Apache-2.0
// The store of rank 0: knows who is in, keeps the few values that a back end needs to connect, and, as long as the job
// runs, tells every rank who left, gave up or died. One thread, one poll().
//
// Strangers: at most 64 at a time, 5 s each to say the 32 bytes of a hello, no answer before those are right.
// Ranks: frames up to 1 MiB, a bounded number of keys; who breaks the protocol is disconnected and counts as dead.
#ifndef JIGSAW_COLLECTIVE_STORE_SERVER_HPP
#define JIGSAW_COLLECTIVE_STORE_SERVER_HPP

#include "runtime/collective/socket.hpp"
#include "runtime/collective/store_wire.hpp"

#include <memory>
#include <string>

namespace jigsaw::collective {

class StoreServer {
  public:
    StoreServer(Socket listener, int size, const std::string &token);
    /// Rank 0 has left: serves what has arrived, says goodbye for rank 0 if nobody did, closes.
    ~StoreServer();
    StoreServer(const StoreServer &) = delete;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace jigsaw::collective
#endif
