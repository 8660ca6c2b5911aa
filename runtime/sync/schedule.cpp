// SPDX-License-Identifier: Apache-2.0
// Cuts blocks and chooses roots and trees.
//
// What must be sent whatever we choose: every contributor of a block of B bytes sends B (its chunks to their roots, or,
// as a root, the result once). What remains is to hand each result on to k - 2 ranks, (k - 2) B, and any one rank can
// do that: the root itself or one rank that it sends to. The default gives it to whoever has least to send, so that
// deep ranks, who contribute most, hand on least. Roots receive m - 1 contributions where others receive one result;
// the contributor that has received least becomes root.
#include "runtime/sync/schedule.hpp"

#include <algorithm>
#include <numeric>

namespace jigsaw::sync {
namespace {

/// Large enough that a message's fixed cost (some tens of us on a host) is small beside its bytes.
constexpr std::size_t kChunkBytes = 256 * 1024;
/// Smaller chunks cost more in messages than they gain in balance.
constexpr std::size_t kLeastChunkBytes = 4 * 1024;

std::size_t divide_up(std::size_t value, std::size_t by) { return (value + by - 1) / by; }

/// Bytes that each rank has to send and receive so far; the same numbers on every rank.
class Load {
  public:
    Load(const plan::IterationPlan &plan, const std::vector<BlockBuffer> &blocks)
        : sends_(plan.depths.size()), receives_(plan.depths.size())
    {
        for (std::size_t block = 0; block < blocks.size(); ++block)
            for (const std::uint32_t rank : plan.contributors[block])
                sends_[rank] += blocks[block].count * element_bytes(blocks[block].type);
    }

    int least_receiver(const std::vector<int> &ranks) const
    {
        return *std::min_element(ranks.begin(), ranks.end(),
                                 [&](int a, int b) { return of(receives_, a) < of(receives_, b); });
    }
    int least_sender() const
    {
        return static_cast<int>(std::min_element(sends_.begin(), sends_.end()) - sends_.begin());
    }
    void add(int root, int forwarder, std::size_t contributors, std::size_t bytes)
    {
        for (std::uint64_t &received : receives_)
            received += bytes;
        receives_[static_cast<std::size_t>(root)] += (contributors - 1) * bytes - bytes;
        sends_[static_cast<std::size_t>(forwarder)] += (sends_.size() - 2) * bytes;
    }

  private:
    static std::uint64_t of(const std::vector<std::uint64_t> &values, int rank)
    {
        return values[static_cast<std::size_t>(rank)];
    }
    std::vector<std::uint64_t> sends_, receives_;
};

/// The root sends to `forwarder` and that to all others; to all itself when the two are the same.
std::vector<int> star_tree(int ranks, int root, int forwarder)
{
    std::vector<int> parent(static_cast<std::size_t>(ranks), forwarder);
    parent[static_cast<std::size_t>(forwarder)] = root;
    parent[static_cast<std::size_t>(root)] = -1;
    return parent;
}

/// One after another: those that send least otherwise first, so that the deepest rank, the last, hands nothing on.
std::vector<int> chain_tree(const plan::IterationPlan &plan, int root)
{
    std::vector<int> order(plan.depths.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        return plan.depths[static_cast<std::size_t>(a)] < plan.depths[static_cast<std::size_t>(b)];
    });
    std::vector<int> parent(order.size(), -1);
    int last = root;
    for (const int rank : order) {
        if (rank == root)
            continue;
        parent[static_cast<std::size_t>(rank)] = last;
        last = rank;
    }
    return parent;
}

class Scheduler {
  public:
    Scheduler(const plan::IterationPlan &plan, const std::vector<BlockBuffer> &blocks, Strategy strategy)
        : plan_(plan), blocks_(blocks), strategy_(strategy), ranks_(static_cast<int>(plan.depths.size())),
          load_(plan, blocks)
    {
    }

    void add_block(std::vector<Piece> &schedule, std::uint32_t block)
    {
        const BlockBuffer &buffer = blocks_[block];
        Piece piece;
        piece.block = block;
        piece.chain = strategy_ == Strategy::chain;
        piece.divisor = plan_.contributors[block].size();
        if (piece.divisor == 0)
            return;
        piece.contributors = added_ranks(block);
        const std::size_t bytes = element_bytes(buffer.type);
        const std::size_t step = kChunkBytes / bytes * most_chunks(piece);
        for (piece.first = 0; piece.first < buffer.count; piece.first += step) {
            piece.count = std::min(step, buffer.count - piece.first);
            schedule.push_back(piece);
            cut(schedule.back(), bytes);
        }
    }

  private:
    std::vector<int> added_ranks(std::uint32_t block) const
    {
        std::vector<int> ranks(plan_.contributors[block].begin(), plan_.contributors[block].end());
        if (strategy_ == Strategy::full_all_reduce) {
            ranks.resize(static_cast<std::size_t>(ranks_));
            std::iota(ranks.begin(), ranks.end(), 0);
        }
        return ranks;
    }

    std::size_t most_chunks(const Piece &piece) const
    {
        if (strategy_ == Strategy::chain)
            return 1;
        return strategy_ == Strategy::automatic ? static_cast<std::size_t>(ranks_) : piece.contributors.size();
    }

    void cut(Piece &piece, std::size_t bytes)
    {
        std::size_t chunks = std::min(most_chunks(piece), piece.count);
        if (strategy_ == Strategy::automatic)
            chunks = std::min(chunks, divide_up(piece.count * bytes, kLeastChunkBytes));
        for (std::size_t i = 0; i < chunks; ++i) {
            const std::size_t begin = piece.count * i / chunks, end = piece.count * (i + 1) / chunks;
            Chunk chunk;
            chunk.first = piece.first + begin;
            chunk.count = end - begin;
            choose_ways(chunk, piece, i, chunk.count * bytes);
            piece.chunks.push_back(chunk);
        }
    }

    void choose_ways(Chunk &chunk, const Piece &piece, std::size_t index, std::size_t bytes)
    {
        if (strategy_ == Strategy::chain) {
            chunk.root = piece.contributors.back();
            chunk.parent = chain_tree(plan_, chunk.root);
            return;
        }
        const bool balance = strategy_ == Strategy::automatic;
        chunk.root = balance ? load_.least_receiver(piece.contributors) : piece.contributors[index];
        const int forwarder = balance ? load_.least_sender() : chunk.root;
        chunk.parent = star_tree(ranks_, chunk.root, forwarder);
        load_.add(chunk.root, forwarder, piece.contributors.size(), bytes);
    }

    const plan::IterationPlan &plan_;
    const std::vector<BlockBuffer> &blocks_;
    const Strategy strategy_;
    const int ranks_;
    Load load_;
};

} // namespace

std::size_t element_bytes(DataType type)
{
    return type == DataType::float64 ? 8 : type == DataType::float32 ? 4 : 2;
}

std::vector<Piece> make_schedule(const plan::IterationPlan &plan, const std::vector<BlockBuffer> &blocks,
                                 Strategy strategy)
{
    std::vector<Piece> schedule;
    if (plan.depths.size() < 2)
        return schedule;
    Scheduler scheduler(plan, blocks, strategy);
    for (std::size_t block = blocks.size(); block-- > 0;)
        scheduler.add_block(schedule, static_cast<std::uint32_t>(block));
    return schedule;
}

std::vector<std::uint64_t> bytes_by_rank(const std::vector<Piece> &schedule, const std::vector<BlockBuffer> &blocks,
                                         int ranks)
{
    std::vector<std::uint64_t> sent(static_cast<std::size_t>(ranks));
    for (const Piece &piece : schedule)
        for (const Chunk &chunk : piece.chunks) {
            const std::uint64_t bytes = chunk.count * element_bytes(blocks[piece.block].type);
            for (const int rank : piece.contributors)
                sent[static_cast<std::size_t>(rank)] += rank == chunk.root ? 0 : bytes;
            for (const int parent : chunk.parent)
                if (parent >= 0)
                    sent[static_cast<std::size_t>(parent)] += bytes;
        }
    return sent;
}

} // namespace jigsaw::sync
