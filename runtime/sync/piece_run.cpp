// SPDX-License-Identifier: Apache-2.0
// The steps of piece_run.hpp.
#include "runtime/sync/piece_run.hpp"

#include "runtime/sync/reduce.hpp"

#include <algorithm>

namespace jigsaw::sync {

using collective::TagPhase;

PieceRun::PieceRun(collective::Collective &world, const Piece &piece, const BlockBuffer &buffer,
                   std::uint64_t plan_hash, std::uint32_t index, const Wait &wait)
    : world_(world), piece_(piece), buffer_(buffer), plan_hash_(plan_hash), index_(index), wait_(wait),
      rank_(world.rank()), element_bytes_(element_bytes(buffer.type)), runs_(piece.chunks.size())
{
    const auto &ranks = piece.contributors;
    const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
    position_ = mine == ranks.end() ? -1 : static_cast<int>(mine - ranks.begin());
}

void *PieceRun::data_of(const Chunk &chunk) const
{
    return static_cast<unsigned char *>(buffer_.data) + chunk.first * element_bytes_;
}

std::uint64_t PieceRun::tag_of(TagPhase phase, std::size_t chunk) const
{
    return collective::gradient_tag(phase, plan_hash_, index_, static_cast<std::uint32_t>(chunk));
}

PieceRun::Pending PieceRun::send(std::size_t index, int peer, TagPhase phase)
{
    const Chunk &chunk = piece_.chunks[index];
    bytes_sent_ += bytes_of(chunk);
    return {world_.send(peer, tag_of(phase, index), data_of(chunk), bytes_of(chunk)), peer};
}

void PieceRun::receive_contribution(std::size_t index, int peer)
{
    const std::size_t bytes = bytes_of(piece_.chunks[index]);
    Run &run = runs_[index];
    run.scratch.emplace_back(new unsigned char[bytes]);
    run.contributions_in.push_back(
        {world_.receive(peer, tag_of(TagPhase::contribution, index), run.scratch.back().get(), bytes), peer});
}

void PieceRun::wait(Pending &pending)
{
    if (!pending.request)
        return;
    wait_(*pending.request, pending.peer);
    pending.request.reset();
}

void PieceRun::post()
{
    for (std::size_t i = 0; i < runs_.size(); ++i)
        post_chunk(i);
}

void PieceRun::post_chunk(std::size_t index)
{
    const Chunk &chunk = piece_.chunks[index];
    const auto &ranks = piece_.contributors;
    if (!is_contributor()) {
        post_result(index);
    } else if (piece_.chain) {
        if (position_ > 0)
            receive_contribution(index, ranks[static_cast<std::size_t>(position_ - 1)]);
        else if (ranks.size() > 1)
            runs_[index].contribution_out = send(index, ranks[1], TagPhase::contribution);
    } else if (is_root(chunk)) {
        for (const int rank : ranks)
            if (rank != rank_)
                receive_contribution(index, rank);
    } else {
        runs_[index].contribution_out = send(index, chunk.root, TagPhase::contribution);
    }
}

/// The mean overwrites what this rank contributed, so its contribution must be on its way.
void PieceRun::post_result(std::size_t index)
{
    const Chunk &chunk = piece_.chunks[index];
    const int parent = chunk.parent[static_cast<std::size_t>(rank_)];
    if (parent < 0)
        return;
    wait(runs_[index].contribution_out);
    runs_[index].result_in = {
        world_.receive(parent, tag_of(TagPhase::result, index), data_of(chunk), bytes_of(chunk)), parent};
}

void PieceRun::reduce()
{
    if (!is_contributor())
        return;
    for (std::size_t i = 0; i < runs_.size(); ++i)
        if (!is_root(piece_.chunks[i]) && !piece_.chain)
            post_result(i);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
        if (piece_.chain)
            add_link(i);
        else if (is_root(piece_.chunks[i]))
            add_star(i);
    }
}

void PieceRun::add_star(std::size_t index)
{
    const Chunk &chunk = piece_.chunks[index];
    Run &run = runs_[index];
    std::vector<const void *> sources;
    auto received = run.scratch.begin();
    for (const int rank : piece_.contributors)
        sources.push_back(rank == rank_ ? data_of(chunk) : (received++)->get());
    for (Pending &contribution : run.contributions_in)
        wait(contribution);
    reduce_in_order(buffer_.type, data_of(chunk), sources, chunk.count, piece_.divisor);
    run.scratch.clear();
    deliver(index);
}

/// A chain's link: what the lower ranks added up, then this rank's own; the last one divides.
void PieceRun::add_link(std::size_t index)
{
    const Chunk &chunk = piece_.chunks[index];
    Run &run = runs_[index];
    std::vector<const void *> sources;
    if (position_ > 0) {
        wait(run.contributions_in.front());
        sources.push_back(run.scratch.front().get());
    }
    sources.push_back(data_of(chunk));
    if (is_root(chunk)) {
        reduce_in_order(buffer_.type, data_of(chunk), sources, chunk.count, piece_.divisor);
        run.scratch.clear();
        return deliver(index);
    }
    if (position_ > 0) {
        reduce_in_order(buffer_.type, data_of(chunk), sources, chunk.count, 1);
        run.scratch.clear();
        const int next = piece_.contributors[static_cast<std::size_t>(position_ + 1)];
        run.contribution_out = send(index, next, TagPhase::contribution);
    }
    post_result(index);
}

void PieceRun::deliver(std::size_t index)
{
    const std::vector<int> &parent = piece_.chunks[index].parent;
    for (std::size_t rank = 0; rank < parent.size(); ++rank)
        if (parent[rank] == rank_)
            runs_[index].results_out.push_back(send(index, static_cast<int>(rank), TagPhase::result));
}

void PieceRun::forward()
{
    for (std::size_t i = 0; i < runs_.size(); ++i) {
        const Chunk &chunk = piece_.chunks[i];
        const bool hands_on = std::find(chunk.parent.begin(), chunk.parent.end(), rank_) != chunk.parent.end();
        if (is_root(chunk) || !hands_on)
            continue;
        wait(runs_[i].result_in);
        deliver(i);
    }
}

void PieceRun::finish()
{
    for (Run &run : runs_) {
        wait(run.contribution_out);
        wait(run.result_in);
        for (Pending &result : run.results_out)
            wait(result);
    }
}

} // namespace jigsaw::sync
