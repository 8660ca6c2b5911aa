// SPDX-License-Identifier: Apache-2.0
// The modified Blelloch scan over slots 0 ... n + 1: slot 0 is the seed, slot i stage i, the last an identity that is never
// multiplied. At the end slot i + 1 holds g_i.
//
//     up-sweep, level d:     l = i + 2^d - 1, r = min(i + 2^(d+1) - 1, n + 1), a[r] = a[r] . a[l]
//     down-sweep, level d:   t = a[l]; a[l] = a[r]; a[r] = t . a[r]
//
// (Section 3.2 of the paper, with the operands of <> written as matrix products.)
#include "runtime/scan/chain_check.hpp"
#include "runtime/scan/scan.hpp"

#include <algorithm>
#include <optional>

namespace jigsaw::scan {

namespace {

/// A slot is an operator (borrowed from the chain, or a product of its own), a vector, or the identity.
template <typename T> struct Slot {
    const Operator<T> *op = nullptr;
    std::optional<Operator<T>> product;
    std::optional<std::vector<T>> vector;
    std::size_t depth = 0;  ///< products on the longest dependent chain behind this value
    std::uint64_t cost = 0; ///< multiplications on the costliest one
    const Operator<T> *matrix() const { return product ? &*product : op; }
    bool identity() const { return !matrix() && !vector; }
};

struct Pair {
    std::size_t left, right;
};

/// What one product did; written by the task that ran it, added up after the level.
struct Done {
    bool matrix = false, vector = false;
    std::uint64_t multiplications = 0;
};

template <typename T> class Tree {
  public:
    Tree(const Stages<T> &chain, const Parallel &parallel, SymbolicCache *cache, Report *report)
        : batch_(chain.batch), parallel_(parallel), cache_(cache), report_(report), slots_(chain.operators.size() + 2)
    {
        slots_[0].vector = chain.seed;
        for (std::size_t i = 0; i < chain.operators.size(); ++i)
            slots_[i + 1].op = &chain.operators[i];
    }

    Gradients<T> run(std::size_t up_levels)
    {
        for (std::size_t d = 0; d < up_levels; ++d)
            level(pairs(d), &Tree::up);
        middle(up_levels);
        for (std::size_t d = up_levels; d-- > 0;)
            level(pairs(d), &Tree::down);
        return results();
    }

  private:
    std::size_t last() const { return slots_.size() - 1; }

    std::vector<Pair> pairs(std::size_t d) const
    {
        const std::size_t half = std::size_t{1} << d;
        std::vector<Pair> out;
        for (std::size_t i = 0; i + half <= last(); i += 2 * half)
            out.push_back({i + half - 1, std::min(i + 2 * half - 1, last())});
        return out;
    }

    void level(const std::vector<Pair> &pairs, Done (Tree::*step)(Pair))
    {
        std::vector<Done> done(pairs.size());
        parallel_.run(pairs.size(), [&](std::size_t i) { done[i] = (this->*step)(pairs[i]); });
        Level counted;
        for (const Done &one : done) {
            counted.matrix_products += one.matrix;
            counted.vector_products += one.vector;
            if (report_)
                report_->multiplications += one.multiplications;
        }
        if (report_ && counted.matrix_products + counted.vector_products > 0)
            report_->levels.push_back(counted);
    }

    static void account(Slot<T> *out, const Slot<T> &other, std::uint64_t multiplications)
    {
        out->depth = std::max(out->depth, other.depth) + 1;
        out->cost = std::max(out->cost, other.cost) + multiplications;
    }

    Done up(Pair pair)
    {
        if (pair.right == last())
            return {}; // the prefix of everything: nobody asks for it
        Slot<T> &left = slots_[pair.left], &right = slots_[pair.right];
        Done done;
        if (left.vector) {
            right.vector = apply(*right.matrix(), *left.vector, batch_, &done.multiplications);
            right.op = nullptr;
            right.product.reset();
            done.vector = true;
        } else {
            right.product = compose(*right.matrix(), *left.matrix(), batch_, cache_, &done.multiplications);
            done.matrix = true;
        }
        account(&right, left, done.multiplications);
        return done;
    }

    /// left's operator or vector applied to the prefix in right.
    Done down(Pair pair)
    {
        Slot<T> &left = slots_[pair.left], &right = slots_[pair.right];
        if (right.identity()) {
            right = std::move(left);
            left = Slot<T>();
            return {};
        }
        Done done;
        Slot<T> next;
        next.vector = apply(*left.matrix(), *right.vector, batch_, &done.multiplications);
        next.depth = left.depth;
        next.cost = left.cost;
        account(&next, right, done.multiplications);
        left = std::move(right);
        right = std::move(next);
        done.vector = true;
        return done;
    }

    /// Exclusive scan over the roots of the blocks that the up-sweep left, one after the other.
    void middle(std::size_t up_levels)
    {
        const std::size_t block = std::size_t{1} << up_levels;
        Slot<T> prefix; // identity
        for (std::size_t first = 0; first <= last(); first += block) {
            const std::size_t root = std::min(first + block - 1, last());
            Slot<T> mine = std::move(slots_[root]);
            slots_[root] = prefix;
            if (root != last())
                prefix = extend(mine, std::move(prefix));
        }
    }

    Slot<T> extend(Slot<T> &block, Slot<T> prefix)
    {
        if (prefix.identity())
            return std::move(block);
        Done done;
        prefix.vector = apply(*block.matrix(), *prefix.vector, batch_, &done.multiplications);
        account(&prefix, block, done.multiplications);
        if (report_) {
            report_->levels.push_back({0, 1});
            report_->multiplications += done.multiplications;
        }
        return prefix;
    }

    Gradients<T> results()
    {
        Gradients<T> out;
        for (std::size_t i = 1; i < slots_.size(); ++i) {
            if (report_) {
                report_->critical_products = std::max(report_->critical_products, slots_[i].depth);
                report_->critical_multiplications = std::max(report_->critical_multiplications, slots_[i].cost);
            }
            out.push_back(std::move(*slots_[i].vector));
        }
        return out;
    }

    std::size_t batch_;
    const Parallel &parallel_;
    SymbolicCache *cache_;
    Report *report_;
    std::vector<Slot<T>> slots_;
};

} // namespace

std::size_t full_up_levels(std::size_t n)
{
    std::size_t levels = 0;
    while ((std::size_t{2} << levels) < n + 2)
        ++levels;
    return levels;
}

std::size_t tree_middle(std::size_t n, std::size_t up_levels)
{
    const std::size_t block = std::size_t{1} << std::min(up_levels, full_up_levels(n));
    const std::size_t blocks = (n + 2 + block - 1) / block;
    return blocks > 2 ? blocks - 2 : 0;
}

std::size_t tree_levels(std::size_t n, std::size_t up_levels)
{
    const std::size_t up = std::min(up_levels, full_up_levels(n));
    const bool empty_top = up > 0 && (std::size_t{3} << (up - 1)) > n + 1;
    return 2 * up + tree_middle(n, up) - (empty_top ? 1 : 0);
}

template <typename T>
Gradients<T> scan_tree(const Stages<T> &chain, std::size_t up_levels, const Parallel &parallel, SymbolicCache *cache,
                       Report *report)
{
    check_chain(chain);
    SymbolicCache own;
    Tree<T> tree(chain, parallel, cache ? cache : &own, report);
    return serial_unless_finite(tree.run(std::min(up_levels, full_up_levels(chain.operators.size()))), chain, report);
}

template Gradients<float> scan_tree(const Stages<float> &, std::size_t, const Parallel &, SymbolicCache *, Report *);
template Gradients<double> scan_tree(const Stages<double> &, std::size_t, const Parallel &, SymbolicCache *, Report *);

} // namespace jigsaw::scan
