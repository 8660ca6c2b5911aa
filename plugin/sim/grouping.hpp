// SPDX-License-Identifier: Apache-2.0
// Making groups of jobs that share GPUs, for the preemptive policies: admission, merging, placing. Only jobs on equal
// numbers of GPUs share (as in Muri, SIGCOMM 2022, section 5).
#ifndef JIGSAW_SIM_GROUPING_HPP
#define JIGSAW_SIM_GROUPING_HPP

#include "plugin/sim/node_pool.hpp"
#include "plugin/sim/replan.hpp"

#include <functional>
#include <map>
#include <vector>

namespace jigsaw::sim {

class Grouping {
  public:
    struct Bundle {
        PlannedGroup group;
        std::array<TypeId, kMaxSharing> types{};
    };
    /// What a merged bundle is worth; bundles that are worth nothing (0 or less) are not made.
    using Worth = std::function<double(const Slowdowns::Group &priced)>;

    Grouping(const ReplanView &view, int most_sharing);

    /// Jobs in the order in which they should run. Walks them: for each that would fit a place of its own on an empty
    /// cluster, the next `per_place` jobs of its number of GPUs are admitted, each a bundle of its own.
    void admit(const std::vector<int> &order, int per_place);
    /// More GPUs wanted than there are?
    bool crowded() const { return demand_ > view_.cluster.gpus(); }
    /// While crowded: merge pairs, those of most worth first; `rounds` times over what the last round made. A bundle
    /// is tried with the `look` that follow it.
    void merge(int rounds, int look, const Worth &worth);
    /// Swap members between bundles while the sum over jobs of weight / slow-down grows.
    void improve(int sweeps, int look, const std::vector<double> &weight_of_job);
    /// Bundles with the most urgent member first (`rank_of_job`: smaller is more urgent), each on a place of its own;
    /// then jobs of `order` that are in none, where there is room.
    void place(const std::vector<int> &order, const std::vector<double> &rank_of_job,
               std::vector<PlannedGroup> *ret_groups);
    std::size_t bundles() const;

  private:
    struct Pair {
        double worth;
        int gpus, first, second;
    };

    Bundle single(int job) const;
    Bundle joined(const Bundle &a, const Bundle &b) const;
    const Slowdowns::Group &priced(const Bundle &bundle) const;
    double weighted_rate(const Bundle &bundle, const std::vector<double> &weight_of_job) const;
    void collect(int look, const Worth &worth, std::vector<Pair> *ret_pairs) const;
    bool swap_best(Bundle *a, Bundle *b, const std::vector<double> &weight_of_job) const;

    const ReplanView &view_;
    int most_sharing_;
    NodePool pool_;
    std::map<int, std::vector<Bundle>> by_gpus_;
    int demand_ = 0;
    std::vector<char> mark_; ///< [job], scratch
};

} // namespace jigsaw::sim
#endif
