// SPDX-License-Identifier: Apache-2.0
// A packing policy after Gandiva and Gavel. From Gavel (Narayanan et al., OSDI 2020, sections 4 and 5): rounds of six
// minutes, jobs that had least GPU time for their weight first (max-min fairness on one kind of GPU), and two jobs on
// the same GPUs where their normalised throughputs add up to more than one. From Gandiva (Xiao et al., OSDI 2018,
// section 3.2): pairs only, and only under load.
#include "plugin/sim/grouping.hpp"
#include "plugin/sim/policy.hpp"

#include <algorithm>

namespace jigsaw::sim {

namespace {

constexpr int kPair = 2, kLook = 128;
constexpr double kRound_s = 360;

class Packing : public ReplanPolicy {
  public:
    explicit Packing(const ReplanView &view)
        : view_(view), grouping_(view, kPair), rank_(view.workload.jobs.size())
    {
    }

    void arrive(int job) override { order_.push_back(job); }
    void leave(int job) override { order_.erase(std::find(order_.begin(), order_.end(), job)); }
    double next_event_s() const override { return next_round_s_; }

    void plan(double now_s, std::vector<PlannedGroup> *ret_groups) override
    {
        for (const int job : order_)
            rank_[static_cast<std::size_t>(job)] = view_.state(job).attained_s * view_.gpus(job);
        std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) {
            return rank_[static_cast<std::size_t>(a)] < rank_[static_cast<std::size_t>(b)];
        });
        grouping_.admit(order_, kPair);
        if (grouping_.crowded())
            grouping_.merge(1, kLook, [](const Slowdowns::Group &priced) {
                return priced.rate_sum > 1 ? priced.rate_sum : 0;
            });
        grouping_.place(order_, rank_, ret_groups);
        std::size_t running = 0;
        for (const PlannedGroup &group : *ret_groups)
            running += static_cast<std::size_t>(group.count);
        const bool contended = running < order_.size();
        next_round_s_ = contended ? now_s + kRound_s : std::numeric_limits<double>::infinity();
    }

  private:
    const ReplanView &view_;
    Grouping grouping_;
    std::vector<int> order_;
    std::vector<double> rank_;
    double next_round_s_ = std::numeric_limits<double>::infinity();
};

Outcome run(const Workload &workload, const PolicySettings &settings)
{
    const Slowdowns slowdowns(workload, settings.costs, false);
    return run_replanning(slowdowns, settings.run, settings.restart,
                          [](const ReplanView &view) { return std::make_unique<Packing>(view); });
}

} // namespace

const Policy kPacking = {"packing", true, "least service first, packed in pairs, after Gavel and Gandiva", run};

} // namespace jigsaw::sim
