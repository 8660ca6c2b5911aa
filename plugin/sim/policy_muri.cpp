// SPDX-License-Identifier: Apache-2.0
// A stage-interleaving policy after Muri (Zhao et al., SIGCOMM 2022, sections 4 and 5): shortest remaining service
// first, up to four jobs admitted per place, grouped in rounds by interleaving efficiency while the demand exceeds the
// GPUs, a group of which is given up where its cycle is longer than one iteration of each in turn. Muri matches by a
// blossom algorithm; here the pairs of highest efficiency are taken first, so its own figures may be better.
#include "plugin/sim/grouping.hpp"
#include "plugin/sim/policy.hpp"

#include <algorithm>

namespace jigsaw::sim {

namespace {

constexpr int kRounds = 2; // pairs, then pairs of pairs: groups of four (section 4.2)
constexpr int kLook = 128;
constexpr double kNewJob_s = 1; // Muri-L: attained service

class MuriLike : public ReplanPolicy {
  public:
    MuriLike(const ReplanView &view, const PolicySettings &settings)
        : view_(view), settings_(settings), grouping_(view, settings.max_sharing), rank_(view.workload.jobs.size())
    {
    }

    void arrive(int job) override { order_.push_back(job); }
    void leave(int job) override { order_.erase(std::find(order_.begin(), order_.end(), job)); }

    void plan(double, std::vector<PlannedGroup> *ret_groups) override
    {
        for (const int job : order_) {
            const double service_s = settings_.knows_remaining ? std::max(view_.remaining_s(job), 1.0)
                                                               : std::max(view_.state(job).attained_s, kNewJob_s);
            rank_[static_cast<std::size_t>(job)] = service_s * view_.gpus(job);
        }
        std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) {
            return rank_[static_cast<std::size_t>(a)] < rank_[static_cast<std::size_t>(b)];
        });
        grouping_.admit(order_, settings_.max_sharing);
        if (grouping_.crowded())
            grouping_.merge(kRounds, kLook, [&](const Slowdowns::Group &priced) { return efficiency(priced); });
        grouping_.place(order_, rank_, ret_groups);
    }

  private:
    /// Section 4.1: the mean share of the cycle in which a resource is busy; 0 where the group is slower than turns.
    double efficiency(const Slowdowns::Group &priced) const
    {
        if (priced.rate_sum <= 1)
            return 0;
        double busy = 0;
        for (int i = 0; i < priced.count; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const Stages &stages = view_.workload.types[priced.types[at]].stages;
            const double stage_ms = stages.host_ms / stages.host_capacity + stages.gpu_ms + stages.network_ms;
            busy += stage_ms / (stages.iteration_ms * priced.slowdown[at]) / 3;
        }
        return busy;
    }

    const ReplanView &view_;
    const PolicySettings &settings_;
    Grouping grouping_;
    std::vector<int> order_;
    std::vector<double> rank_;
};

Outcome run(const Workload &workload, const PolicySettings &settings)
{
    const Slowdowns slowdowns(workload, settings.costs, false);
    return run_replanning(slowdowns, settings.run, settings.restart,
                          [&](const ReplanView &view) { return std::make_unique<MuriLike>(view, settings); });
}

} // namespace

const Policy kMuri = {"muri", true, "stage interleaving after Muri (greedy matching)", run};

} // namespace jigsaw::sim
