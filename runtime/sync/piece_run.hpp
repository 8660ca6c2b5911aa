// SPDX-License-Identifier: Apache-2.0
// One rank's part in one piece of one block, in four steps.
//
//     post      never waits: contributions that are complete go out, every receive that has room is posted
//     reduce    waits for contributions; as root completes the sum and sends the mean to its children
//     forward   waits for the means that this rank hands on, and hands them on
//     finish    waits for everything that is still in flight
//
// A step waits only for posts of the same piece and for steps of other ranks at the same or an earlier place in the
// order of steps, those at the same place along a tree. Ranks that do reduce and forward in one order, and post a piece
// before they wait in it, therefore never wait in a circle. finish may come any time after forward.
#ifndef JIGSAW_SYNC_PIECE_RUN_HPP
#define JIGSAW_SYNC_PIECE_RUN_HPP

#include "runtime/collective/tags.hpp"
#include "runtime/sync/schedule.hpp"

#include <functional>

namespace jigsaw::sync {

class PieceRun {
  public:
    /// Waits for `request`, an exchange with `peer`; throws when the iteration failed.
    using Wait = std::function<void(collective::Request &request, int peer)>;

    /// Everything is borrowed for the life of the object.
    PieceRun(collective::Collective &world, const Piece &piece, const BlockBuffer &buffer, std::uint64_t plan_hash,
             std::uint32_t index, const Wait &wait);

    void post();
    void reduce();
    void forward();
    void finish();

    std::uint64_t bytes_sent() const { return bytes_sent_; }

  private:
    struct Pending {
        std::unique_ptr<collective::Request> request;
        int peer = -1;
    };
    /// Of one chunk. Requests are cancelled before the memory that they write to goes: scratch stands first.
    struct Run {
        std::vector<std::unique_ptr<unsigned char[]>> scratch; ///< [contributions_in]
        Pending contribution_out, result_in;
        std::vector<Pending> contributions_in; ///< star root: of the other contributors; chain: of the one before
        std::vector<Pending> results_out;
    };

    void post_chunk(std::size_t index);
    void post_result(std::size_t index);
    void add_star(std::size_t index);
    void add_link(std::size_t index);
    void deliver(std::size_t index);

    void *data_of(const Chunk &chunk) const;
    std::size_t bytes_of(const Chunk &chunk) const { return chunk.count * element_bytes_; }
    std::uint64_t tag_of(collective::TagPhase phase, std::size_t chunk) const;
    Pending send(std::size_t chunk, int peer, collective::TagPhase phase);
    void receive_contribution(std::size_t chunk, int peer);
    void wait(Pending &pending);
    bool is_contributor() const { return position_ >= 0; }
    bool is_root(const Chunk &chunk) const { return chunk.root == rank_; }

    collective::Collective &world_;
    const Piece &piece_;
    const BlockBuffer &buffer_;
    const std::uint64_t plan_hash_;
    const std::uint32_t index_;
    const Wait &wait_;
    const int rank_;
    const std::size_t element_bytes_;
    int position_ = -1; ///< of this rank in piece_.contributors
    std::vector<Run> runs_;
    std::uint64_t bytes_sent_ = 0;
};

} // namespace jigsaw::sync
#endif
