// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other, host to host, beside collectives on GPUs: "I am ready to launch this", so that no kernel
// spins on a shared GPU for a peer that waits for its turn (docs/protocol.md "No hold and wait"), and "I wait for my turn",
// so that nobody takes that for a fault.
//
// One ordered stream of 16-byte messages between every two ranks, for the life of the object. All ranks announce the same
// things in the same order. Not thread-safe, except excused().
#ifndef JIGSAW_SYNC_READINESS_HPP
#define JIGSAW_SYNC_READINESS_HPP

#include "runtime/collective/collective.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace jigsaw::sync {

constexpr std::uint32_t kWholeIteration = 0xffffffff; ///< in place of a block: everything of it was launched

class Readiness {
  public:
    /// Called every 20 ms of a wait; throws to end it.
    using Alive = std::function<void()>;

    explicit Readiness(collective::Collective &world);
    Readiness(const Readiness &) = delete;

    void tell(std::uint64_t iteration, std::uint32_t block);
    /// Until every other rank told the same.
    void await(std::uint64_t iteration, std::uint32_t block, const Alive &alive);
    /// Ranks that have not told this yet; takes what has arrived.
    std::vector<int> missing(std::uint64_t iteration, std::uint32_t block);

    /// At most every half second.
    void tell_waiting_for_turn();
    /// A peer said not long ago that it waits for its turn.
    bool excused() const;
    /// Throws jigsaw::Error {JIGSAW_PEER_LEFT} when a rank is gone; looks at another one each time. Takes about 1 ms.
    void check();

  private:
    struct Message {
        std::uint32_t kind, block;
        std::uint64_t iteration;
    };
    struct Peer {
        int rank = 0;
        Message in{};
        std::unique_ptr<collective::Request> receiving;
        std::deque<Message> told;
        struct Out {
            Message message;
            std::unique_ptr<collective::Request> sending;
        };
        std::deque<std::unique_ptr<Out>> out;
    };
    void post(Peer &peer);
    bool take(Peer &peer, std::chrono::milliseconds limit);
    void send(Peer &peer, const Message &message);

    collective::Collective &world_;
    std::deque<Peer> peers_; ///< all other ranks
    std::int64_t told_waiting_ns_ = 0;
    std::atomic<std::int64_t> excuse_ns_{INT64_MIN / 2};
    std::size_t next_check_ = 0;
};

} // namespace jigsaw::sync
#endif
