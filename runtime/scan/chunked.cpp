// SPDX-License-Identifier: Apache-2.0
// The serial way, and the chunked two-level way: what many-core processors and thread blocks do best, since a chunk needs
// one product matrix instead of one per pair.
#include "runtime/scan/chain_check.hpp"
#include "runtime/scan/scan.hpp"

#include <algorithm>

namespace jigsaw::scan {

namespace {

template <typename T> class Chunks {
  public:
    Chunks(const Stages<T> &chain, std::size_t chunks, SymbolicCache *cache)
        : chain_(chain), cache_(cache), chunks_(std::clamp<std::size_t>(chunks, 1, std::max<std::size_t>(1, stages()))),
          products_(chunks_), counts_(chunks_), gradients_(stages() + 1)
    {
        gradients_[0] = chain.seed;
    }

    /// Chunk 0 has its gradients at once; the last chunk's product is never needed; the others compose theirs.
    void reduce(std::size_t chunk)
    {
        if (chunk == 0)
            return walk(0, first(1));
        Operator<T> product = chain_.operators[first(chunk)];
        for (std::size_t i = first(chunk) + 1; i < first(chunk + 1); ++i)
            product = compose(chain_.operators[i], product, chain_.batch, cache_, &counts_[chunk]);
        products_[chunk] = std::move(product);
    }

    /// The gradient after each middle chunk, from the one before it: the only part in series.
    void cross_borders()
    {
        for (std::size_t chunk = 1; chunk + 1 < chunks_; ++chunk)
            gradients_[first(chunk + 1)] = apply(products_[chunk], gradients_[first(chunk)], chain_.batch,
                                                 &counts_[chunk]);
    }

    void expand(std::size_t chunk)
    {
        // The last gradient of a middle chunk is there already.
        walk(first(chunk), chunk + 1 < chunks_ ? first(chunk + 1) - 1 : stages());
    }

    std::size_t count() const { return chunks_; }
    Gradients<T> take() { return std::move(gradients_); }

    void account(Report *report) const
    {
        for (const std::uint64_t count : counts_)
            report->multiplications += count;
        const std::size_t length = first(1);
        add_steps(report, length, 0, 1);
        for (std::size_t s = 0; s + 1 < length && chunks_ > 2; ++s)
            report->levels[s].matrix_products += count_longer_than(s + 1, 1, chunks_ - 1);
        add_steps(report, chunks_ > 2 ? chunks_ - 2 : 0, 0, 1);
        for (std::size_t s = 0; s < length && chunks_ > 1; ++s)
            if (const std::size_t busy = busy_in_expand(s))
                report->levels.push_back({0, busy});
        report->critical_products = report->levels.size();
    }

  private:
    std::size_t stages() const { return chain_.operators.size(); }
    /// Chunk 0 is as long as any: it does vectors only, and the levels are counted along it.
    std::size_t first(std::size_t chunk) const
    {
        const std::size_t length = stages() / chunks_, longer = stages() % chunks_;
        return chunk * length + std::min(chunk, longer);
    }
    std::size_t length(std::size_t chunk) const { return first(chunk + 1) - first(chunk); }

    void walk(std::size_t from, std::size_t to)
    {
        std::uint64_t count = 0;
        for (std::size_t i = from; i < to; ++i)
            gradients_[i + 1] = apply(chain_.operators[i], gradients_[i], chain_.batch, &count);
        counts_[chunk_of(from)] += count;
    }
    std::size_t chunk_of(std::size_t stage) const
    {
        std::size_t chunk = 0;
        while (chunk + 1 < chunks_ && first(chunk + 1) <= stage)
            ++chunk;
        return chunk;
    }
    static void add_steps(Report *report, std::size_t steps, std::size_t matrix, std::size_t vector)
    {
        for (std::size_t s = 0; s < steps; ++s)
            report->levels.push_back({matrix, vector});
    }
    std::size_t count_longer_than(std::size_t steps, std::size_t from, std::size_t to) const
    {
        std::size_t count = 0;
        for (std::size_t chunk = from; chunk < to; ++chunk)
            count += length(chunk) > steps;
        return count;
    }
    std::size_t busy_in_expand(std::size_t step) const
    {
        std::size_t busy = length(chunks_ - 1) > step;
        for (std::size_t chunk = 1; chunk + 1 < chunks_; ++chunk)
            busy += length(chunk) > step + 1;
        return busy;
    }

    const Stages<T> &chain_;
    SymbolicCache *cache_;
    std::size_t chunks_;
    std::vector<Operator<T>> products_;
    std::vector<std::uint64_t> counts_;
    Gradients<T> gradients_;
};

} // namespace

template <typename T> Gradients<T> scan_serial(const Stages<T> &chain, Report *report)
{
    check_chain(chain);
    Gradients<T> out{chain.seed};
    std::uint64_t count = 0;
    for (const Operator<T> &op : chain.operators)
        out.push_back(apply(op, out.back(), chain.batch, &count));
    if (report) {
        report->levels.assign(chain.operators.size(), {0, 1});
        report->critical_products = chain.operators.size();
        report->multiplications = report->critical_multiplications = count;
    }
    return out;
}

template <typename T>
Gradients<T> scan_chunked(const Stages<T> &chain, std::size_t chunks, const Parallel &parallel, SymbolicCache *cache,
                          Report *report)
{
    check_chain(chain);
    if (chain.operators.empty())
        return {chain.seed};
    SymbolicCache own;
    Chunks<T> work(chain, chunks, cache ? cache : &own);
    parallel.run(std::max<std::size_t>(1, work.count() - 1), [&](std::size_t chunk) { work.reduce(chunk); });
    work.cross_borders();
    parallel.run(work.count() - 1, [&](std::size_t chunk) { work.expand(chunk + 1); });
    if (report)
        work.account(report);
    return serial_unless_finite(work.take(), chain, report);
}

#define JIGSAW_SCAN_INSTANTIATE(T)                                                                                     \
    template Gradients<T> scan_serial(const Stages<T> &, Report *);                                                    \
    template Gradients<T> scan_chunked(const Stages<T> &, std::size_t, const Parallel &, SymbolicCache *, Report *);
JIGSAW_SCAN_INSTANTIATE(float)
JIGSAW_SCAN_INSTANTIATE(double)
#undef JIGSAW_SCAN_INSTANTIATE

} // namespace jigsaw::scan
