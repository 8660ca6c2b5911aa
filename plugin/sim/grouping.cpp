// SPDX-License-Identifier: Apache-2.0
// Groups of jobs on the same GPUs.
#include "plugin/sim/grouping.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace jigsaw::sim {

namespace {

constexpr double kBetter = 1 + 1e-9; // sums in another order are no improvement

} // namespace

Grouping::Grouping(const ReplanView &view, int most_sharing)
    : view_(view), most_sharing_(most_sharing), pool_(view.cluster), mark_(view.workload.jobs.size(), 0)
{
}

Grouping::Bundle Grouping::single(int job) const { return {{{job}, 1}, {view_.type(job)}}; }

Grouping::Bundle Grouping::joined(const Bundle &a, const Bundle &b) const
{
    Bundle made = a;
    for (int i = 0; i < b.group.count; ++i) {
        const auto at = static_cast<std::size_t>(made.group.count++);
        made.group.jobs[at] = b.group.jobs[static_cast<std::size_t>(i)];
        made.types[at] = b.types[static_cast<std::size_t>(i)];
    }
    return made;
}

const Slowdowns::Group &Grouping::priced(const Bundle &bundle) const
{
    return view_.slowdowns.group(bundle.types.data(), bundle.group.count);
}

double Grouping::weighted_rate(const Bundle &bundle, const std::vector<double> &weight_of_job) const
{
    const Slowdowns::Group &price = priced(bundle);
    double sum = 0;
    for (int i = 0; i < bundle.group.count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        sum += weight_of_job[static_cast<std::size_t>(bundle.group.jobs[at])] / price.of(bundle.types[at]);
    }
    return sum;
}

void Grouping::admit(const std::vector<int> &order, int per_place)
{
    by_gpus_.clear();
    demand_ = 0;
    pool_.clear();
    std::map<int, std::vector<int>> waiting;
    for (const int job : order)
        waiting[view_.gpus(job)].push_back(job);
    std::map<int, std::size_t> admitted;
    std::fill(mark_.begin(), mark_.end(), 0);
    for (const int job : order) {
        const int gpus = view_.gpus(job);
        if (mark_[static_cast<std::size_t>(job)] || !pool_.take(gpus))
            continue;
        const std::vector<int> &alike = waiting[gpus];
        std::size_t &next = admitted[gpus];
        for (int i = 0; i < per_place && next < alike.size(); ++i)
            mark_[static_cast<std::size_t>(alike[next++])] = 1;
    }
    for (const int job : order) {
        if (!mark_[static_cast<std::size_t>(job)])
            continue;
        by_gpus_[view_.gpus(job)].push_back(single(job));
        demand_ += view_.gpus(job);
    }
}

std::size_t Grouping::bundles() const
{
    std::size_t count = 0;
    for (const auto &[gpus, bundles] : by_gpus_)
        count += bundles.size();
    return count;
}

void Grouping::collect(int look, const Worth &worth, std::vector<Pair> *ret_pairs) const
{
    for (const auto &[gpus, bundles] : by_gpus_) {
        const int count = static_cast<int>(bundles.size());
        for (int i = 0; i < count; ++i)
            for (int k = i + 1; k < count && k <= i + look; ++k) {
                const Bundle &a = bundles[static_cast<std::size_t>(i)], &b = bundles[static_cast<std::size_t>(k)];
                if (a.group.count + b.group.count > most_sharing_)
                    continue;
                const double value = worth(priced(joined(a, b)));
                if (value > 0)
                    ret_pairs->push_back({value, gpus, i, k});
            }
    }
    std::sort(ret_pairs->begin(), ret_pairs->end(), [](const Pair &a, const Pair &b) {
        return std::tie(a.worth, a.gpus, a.first, a.second) > std::tie(b.worth, b.gpus, b.first, b.second);
    });
}

void Grouping::merge(int rounds, int look, const Worth &worth)
{
    for (int round = 0; round < rounds && crowded(); ++round) {
        std::vector<Pair> pairs;
        collect(look, worth, &pairs);
        std::map<int, std::vector<char>> used;
        for (const auto &[gpus, bundles] : by_gpus_)
            used[gpus].assign(bundles.size(), 0);
        for (const Pair &pair : pairs) {
            if (!crowded())
                break;
            std::vector<char> &taken = used[pair.gpus];
            const auto first = static_cast<std::size_t>(pair.first), second = static_cast<std::size_t>(pair.second);
            if (taken[first] || taken[second])
                continue;
            taken[first] = taken[second] = 1;
            std::vector<Bundle> &bundles = by_gpus_[pair.gpus];
            bundles[first] = joined(bundles[first], bundles[second]);
            bundles[second].group.count = 0;
            demand_ -= pair.gpus;
        }
        for (auto &[gpus, bundles] : by_gpus_)
            bundles.erase(std::remove_if(bundles.begin(), bundles.end(),
                                         [](const Bundle &b) { return b.group.count == 0; }),
                          bundles.end());
    }
}

/// Every swap of one member for one that gains is made; true if any was.
bool Grouping::swap_best(Bundle *a, Bundle *b, const std::vector<double> &weight_of_job) const
{
    bool any = false;
    double best = weighted_rate(*a, weight_of_job) + weighted_rate(*b, weight_of_job);
    for (int i = 0; i < a->group.count; ++i)
        for (int k = 0; k < b->group.count; ++k) {
            const auto x = static_cast<std::size_t>(i), y = static_cast<std::size_t>(k);
            Bundle first = *a, second = *b;
            std::swap(first.group.jobs[x], second.group.jobs[y]);
            std::swap(first.types[x], second.types[y]);
            const double sum = weighted_rate(first, weight_of_job) + weighted_rate(second, weight_of_job);
            if (!(sum > best * kBetter))
                continue;
            best = sum;
            *a = first;
            *b = second;
            any = true;
        }
    return any;
}

void Grouping::improve(int sweeps, int look, const std::vector<double> &weight_of_job)
{
    bool any = true;
    for (int sweep = 0; sweep < sweeps && any; ++sweep) {
        any = false;
        for (auto &[gpus, bundles] : by_gpus_) {
            const int count = static_cast<int>(bundles.size());
            for (int i = 0; i < count; ++i)
                for (int k = i + 1; k < count && k <= i + look; ++k)
                    any |= swap_best(&bundles[static_cast<std::size_t>(i)], &bundles[static_cast<std::size_t>(k)],
                                     weight_of_job);
        }
    }
}

void Grouping::place(const std::vector<int> &order, const std::vector<double> &rank_of_job,
                     std::vector<PlannedGroup> *ret_groups)
{
    struct Ranked {
        double rank;
        int gpus;
        const Bundle *bundle;
    };
    std::vector<Ranked> ranked;
    for (const auto &[gpus, bundles] : by_gpus_)
        for (const Bundle &bundle : bundles) {
            double rank = rank_of_job[static_cast<std::size_t>(bundle.group.jobs[0])];
            for (int i = 1; i < bundle.group.count; ++i)
                rank = std::min(rank, rank_of_job[static_cast<std::size_t>(
                                          bundle.group.jobs[static_cast<std::size_t>(i)])]);
            ranked.push_back({rank, gpus, &bundle});
        }
    std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked &a, const Ranked &b) { return a.rank < b.rank; });
    pool_.clear();
    std::fill(mark_.begin(), mark_.end(), 0);
    for (const Ranked &one : ranked) {
        if (!pool_.take(one.gpus))
            continue;
        ret_groups->push_back(one.bundle->group);
        for (int i = 0; i < one.bundle->group.count; ++i)
            mark_[static_cast<std::size_t>(one.bundle->group.jobs[static_cast<std::size_t>(i)])] = 1;
    }
    for (const int job : order) {
        if (pool_.free_gpus() == 0)
            return;
        if (!mark_[static_cast<std::size_t>(job)] && pool_.take(view_.gpus(job)))
            ret_groups->push_back({{job}, 1});
    }
}

} // namespace jigsaw::sim
