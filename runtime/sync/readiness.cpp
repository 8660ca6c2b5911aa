// SPDX-License-Identifier: Apache-2.0
#include "runtime/sync/readiness.hpp"

#include "runtime/collective/tags.hpp"

namespace jigsaw::sync {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kReady = 1, kWaits = 2;
constexpr auto kGlance = 20ms;
constexpr std::int64_t kRepeatNs = 500'000'000, kExcuseNs = 3'000'000'000;
/// A peer that takes nothing (it looks only when ranks share GPUs) gets no more of these.
constexpr std::size_t kMostUnsent = 4;

/// Gradients travel on GPUs beside this object, so their tags on the host are free.
constexpr std::uint64_t tag() { return collective::sequence_tag(collective::TagKind::gradient, 0); }

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / 1ns; }

std::string text_of(std::uint64_t iteration, std::uint32_t block)
{
    return (block == kWholeIteration ? "all" : "block " + std::to_string(block)) + " of iteration " +
           std::to_string(iteration);
}

} // namespace

Readiness::Readiness(collective::Collective &world) : world_(world)
{
    for (int rank = 0; rank < world.size(); ++rank)
        if (rank != world.rank()) {
            peers_.emplace_back();
            peers_.back().rank = rank;
            post(peers_.back());
        }
}

void Readiness::post(Peer &peer)
{
    peer.receiving = world_.receive(peer.rank, tag(), &peer.in, sizeof peer.in);
}

/// One message, if one comes within `limit`.
bool Readiness::take(Peer &peer, std::chrono::milliseconds limit)
{
    if (!peer.receiving->wait_for(limit))
        return false;
    if (peer.in.kind == kReady)
        peer.told.push_back(peer.in);
    else
        excuse_ns_ = now_ns();
    post(peer);
    return true;
}

void Readiness::send(Peer &peer, const Message &message)
{
    while (!peer.out.empty() && peer.out.front()->sending->wait_for(0ms))
        peer.out.pop_front();
    peer.out.push_back(std::make_unique<Peer::Out>());
    Peer::Out &out = *peer.out.back();
    out.message = message;
    out.sending = world_.send(peer.rank, tag(), &out.message, sizeof out.message);
}

void Readiness::tell(std::uint64_t iteration, std::uint32_t block)
{
    for (Peer &peer : peers_)
        send(peer, {kReady, block, iteration});
}

void Readiness::await(std::uint64_t iteration, std::uint32_t block, const Alive &alive)
{
    for (Peer &peer : peers_)
        while (peer.told.empty())
            if (!take(peer, kGlance))
                alive();
    for (Peer &peer : peers_) { // not before: missing() looks at them when the wait above ends early
        const Message message = peer.told.front();
        peer.told.pop_front();
        if (message.iteration != iteration || message.block != block)
            throw Error(JIGSAW_DISAGREE, "rank " + std::to_string(peer.rank) + " is ready for " +
                                             text_of(message.iteration, message.block) + ", rank " +
                                             std::to_string(world_.rank()) + " for " + text_of(iteration, block));
    }
}

std::vector<int> Readiness::missing(std::uint64_t iteration, std::uint32_t block)
{
    std::vector<int> ranks;
    for (Peer &peer : peers_) {
        while (take(peer, 0ms)) {
        }
        bool told = false;
        for (const Message &message : peer.told)
            told = told || (message.iteration == iteration && message.block == block);
        if (!told)
            ranks.push_back(peer.rank);
    }
    return ranks;
}

void Readiness::tell_waiting_for_turn()
{
    const std::int64_t now = now_ns();
    if (now - told_waiting_ns_ < kRepeatNs)
        return;
    told_waiting_ns_ = now;
    for (Peer &peer : peers_)
        if (peer.out.size() < kMostUnsent)
            send(peer, {kWaits, 0, 0});
}

bool Readiness::excused() const { return now_ns() - excuse_ns_ < kExcuseNs; }

void Readiness::check()
{
    if (!peers_.empty())
        take(peers_[next_check_++ % peers_.size()], 0ms);
}

} // namespace jigsaw::sync
