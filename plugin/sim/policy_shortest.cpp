// SPDX-License-Identifier: Apache-2.0
// Shortest first with preemption, for policy_srtf.cpp and policy_srsf.cpp, as Tiresias' and Muri's simulators run it:
// sorted by the key (a stable sort of the list as it was left), whoever fits runs, nothing is reserved.
#include "plugin/sim/node_pool.hpp"
#include "plugin/sim/policy.hpp"

#include <algorithm>

namespace jigsaw::sim {

namespace {

class ShortestFirst : public ReplanPolicy {
  public:
    ShortestFirst(const ReplanView &view, ShortestBy by) : view_(view), by_(by), pool_(view.cluster) {}
    void arrive(int job) override { order_.push_back({0, job}); }
    void leave(int job) override
    {
        order_.erase(std::find_if(order_.begin(), order_.end(), [&](const Entry &e) { return e.job == job; }));
    }

    void plan(double, std::vector<PlannedGroup> *ret_groups) override
    {
        for (Entry &entry : order_)
            entry.key = view_.remaining_s(entry.job) * (by_ == ShortestBy::gpu_time ? view_.gpus(entry.job) : 1);
        std::stable_sort(order_.begin(), order_.end(), [](const Entry &a, const Entry &b) { return a.key < b.key; });
        pool_.clear();
        for (const Entry &entry : order_) {
            if (pool_.free_gpus() == 0)
                return;
            if (pool_.take(view_.gpus(entry.job)))
                ret_groups->push_back({{entry.job}, 1});
        }
    }

  private:
    struct Entry {
        double key;
        int job;
    };

    const ReplanView &view_;
    ShortestBy by_;
    NodePool pool_;
    std::vector<Entry> order_;
};

} // namespace

Outcome run_shortest_first(const Workload &workload, const PolicySettings &settings, ShortestBy by)
{
    const Slowdowns slowdowns(workload, settings.costs, false);
    return run_replanning(slowdowns, settings.run, settings.restart,
                          [&](const ReplanView &view) { return std::make_unique<ShortestFirst>(view, by); });
}

} // namespace jigsaw::sim
