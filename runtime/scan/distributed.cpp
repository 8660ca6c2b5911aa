// SPDX-License-Identifier: Apache-2.0
#include "runtime/scan/distributed.hpp"

#include "runtime/collective/tags.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

namespace jigsaw::scan {

namespace {

/// What a stretch comes to: an operator, or behind rank 0 a vector.
template <typename T> struct Part {
    std::optional<Operator<T>> op;
    std::vector<T> vector;
};

/// Both sides know the order of messages, not their sizes: a header goes in front.
struct Header {
    std::uint64_t is_vector, kind, rows, cols, matrices, block, values, offsets;
};

/// A pair of ranks and a level name a message; operations of collective/ops count far below bit 61.
std::uint64_t tag_of(bool up, std::size_t level, bool is_header)
{
    return collective::sequence_tag(collective::TagKind::operation, std::uint64_t{1} << 61 |
                                                                        static_cast<std::uint64_t>(level) << 2 |
                                                                        (up ? 2u : 0u) | (is_header ? 1u : 0u));
}

template <typename T> class Exchange {
  public:
    Exchange(collective::Collective &world, std::chrono::milliseconds timeout) : world_(world), timeout_(timeout) {}

    std::uint64_t send(std::size_t peer, bool up, std::size_t level, const Part<T> &part)
    {
        const Operator<T> none;
        const Operator<T> &op = part.op ? *part.op : none;
        const Header header{!part.op,
                            static_cast<std::uint64_t>(op.kind),
                            op.rows,
                            op.cols,
                            op.matrices,
                            op.block,
                            part.op ? op.values.size() : part.vector.size(),
                            op.offset.size()};
        std::vector<T> body = part.op ? op.values : part.vector;
        body.insert(body.end(), op.offset.begin(), op.offset.end());
        const int to = static_cast<int>(peer);
        world_.send(to, tag_of(up, level, true), &header, sizeof header)->wait(timeout_);
        world_.send(to, tag_of(up, level, false), body.data(), body.size() * sizeof(T))->wait(timeout_);
        return sizeof header + body.size() * sizeof(T);
    }

    Part<T> receive(std::size_t peer, bool up, std::size_t level)
    {
        const int from = static_cast<int>(peer);
        Header header;
        world_.receive(from, tag_of(up, level, true), &header, sizeof header)->wait(timeout_);
        std::vector<T> body(header.values + header.offsets);
        world_.receive(from, tag_of(up, level, false), body.data(), body.size() * sizeof(T))->wait(timeout_);
        Part<T> part;
        if (header.is_vector) {
            part.vector = std::move(body);
            return part;
        }
        Operator<T> op;
        op.kind = static_cast<Kind>(header.kind);
        op.rows = header.rows, op.cols = header.cols, op.matrices = header.matrices, op.block = header.block;
        op.offset.assign(body.begin() + static_cast<std::ptrdiff_t>(header.values), body.end());
        body.resize(header.values);
        op.values = std::move(body);
        part.op = std::move(op);
        return part;
    }

  private:
    collective::Collective &world_;
    std::chrono::milliseconds timeout_;
};

struct Role {
    bool left = false, right = false; ///< of a pair at this level
    std::size_t peer = 0;
    bool first_block = false; ///< the pair's block starts at rank 0: what is in front of it is nothing
};

Role role_at(std::size_t rank, std::size_t ranks, std::size_t level)
{
    const std::size_t half = std::size_t{1} << level, start = rank / (2 * half) * (2 * half);
    const std::size_t left = start + half - 1, right = std::min(start + 2 * half - 1, ranks - 1);
    if (left >= right)
        return {};
    return {rank == left, rank == right, rank == left ? right : left, start == 0};
}

template <typename T> class RankScan {
  public:
    RankScan(collective::Collective &world, const Stages<T> &stages, std::chrono::milliseconds timeout,
             DistributedReport *report)
        : stages_(stages), rank_(static_cast<std::size_t>(world.rank())),
          ranks_(static_cast<std::size_t>(world.size())), exchange_(world, timeout), report_(report),
          kept_(rank_levels(ranks_))
    {
    }

    Gradients<T> run()
    {
        summarize();
        for (std::size_t level = 0; level < kept_.size(); ++level)
            up(level);
        for (std::size_t level = kept_.size(); level-- > 0;)
            down(level);
        return rank_ == 0 ? std::move(mine_) : walk(before_);
    }

  private:
    void summarize()
    {
        if (rank_ == 0) {
            mine_ = walk(stages_.seed);
            part_.vector = mine_.back();
        } else if (rank_ + 1 < ranks_) {
            Operator<T> product = stages_.operators[0];
            for (std::size_t i = 1; i < stages_.operators.size(); ++i)
                product = compose(stages_.operators[i], product, stages_.batch, &cache_, &count_);
            // Patterns are this rank's own: between ranks a sparse product travels dense.
            part_.op = product.kind == Kind::csr ? to_dense(product) : std::move(product);
        }
    }

    void up(std::size_t level)
    {
        const Role role = role_at(rank_, ranks_, level);
        std::uint64_t sent = 0;
        if (role.left)
            sent = exchange_.send(role.peer, true, level, part_);
        if (role.right) {
            kept_[level] = exchange_.receive(role.peer, true, level);
            if (rank_ + 1 < ranks_)
                part_ = after(*kept_[level]);
        }
        note(true, level, sent);
    }

    /// This rank's part behind an earlier one.
    Part<T> after(const Part<T> &earlier)
    {
        Part<T> out;
        if (earlier.op)
            out.op = compose(*part_.op, *earlier.op, stages_.batch, &cache_, &count_);
        else
            out.vector = apply_checked(*part_.op, earlier.vector);
        return out;
    }

    std::vector<T> apply_checked(const Operator<T> &op, const std::vector<T> &vector)
    {
        if (vector.size() != stages_.batch * op.cols)
            throw std::invalid_argument("scan: rank " + std::to_string(rank_) + " takes gradients of " +
                                        std::to_string(stages_.batch) + " x " + std::to_string(op.cols) +
                                        " values, but the ranks before it give " + std::to_string(vector.size()));
        return apply(op, vector, stages_.batch, &count_);
    }

    void down(std::size_t level)
    {
        const Role role = role_at(rank_, ranks_, level);
        std::uint64_t sent = 0;
        if (role.right && !role.first_block) {
            sent = exchange_.send(role.peer, false, level, {std::nullopt, before_});
            before_ = apply_checked(*kept_[level]->op, before_);
        } else if (role.right) {
            before_ = kept_[level]->vector;
        }
        if (role.left && !role.first_block)
            before_ = exchange_.receive(role.peer, false, level).vector;
        note(false, level, sent);
    }

    void note(bool up, std::size_t level, std::uint64_t sent)
    {
        if (report_) {
            report_->levels.push_back({up, level, sent});
            report_->multiplications = count_;
        }
    }

    Gradients<T> walk(const std::vector<T> &from)
    {
        Stages<T> local;
        local.batch = stages_.batch;
        local.seed = from;
        local.operators = stages_.operators;
        Report done;
        Gradients<T> out = scan_serial(local, &done);
        count_ += done.multiplications;
        if (report_)
            report_->multiplications = count_;
        return out;
    }

    const Stages<T> &stages_;
    std::size_t rank_, ranks_;
    Exchange<T> exchange_;
    DistributedReport *report_;
    SymbolicCache cache_;
    std::uint64_t count_ = 0;
    Part<T> part_;
    std::vector<T> before_;
    Gradients<T> mine_;
    std::vector<std::optional<Part<T>>> kept_;
};

} // namespace

std::size_t rank_levels(std::size_t ranks)
{
    std::size_t levels = 0;
    while ((std::size_t{1} << levels) < ranks)
        ++levels;
    return levels;
}

template <typename T>
Gradients<T> scan_over_ranks(collective::Collective &world, const Stages<T> &stages, std::chrono::milliseconds timeout,
                             DistributedReport *report)
{
    if (stages.operators.empty() || stages.batch == 0)
        throw std::invalid_argument("scan: rank " + std::to_string(world.rank()) + " holds " +
                                    std::to_string(stages.operators.size()) + " stages for a batch of " +
                                    std::to_string(stages.batch) + "; each rank needs at least one of both");
    return RankScan<T>(world, stages, timeout, report).run();
}

template Gradients<float> scan_over_ranks(collective::Collective &, const Stages<float> &, std::chrono::milliseconds,
                                          DistributedReport *);
template Gradients<double> scan_over_ranks(collective::Collective &, const Stages<double> &, std::chrono::milliseconds,
                                           DistributedReport *);

} // namespace jigsaw::scan
