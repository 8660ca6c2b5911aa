// SPDX-License-Identifier: Apache-2.0
// Least attained service in two dimensions: Tiresias (NSDI 2019, section 3.2, "discretized 2D-LAS"), with the limits and
// the bookkeeping of Muri's simulator (`dlas-gpu`), so that the numbers can be compared: three queues, split at 3,250
// and 7,200 GPU-seconds held; no way back up; first come first served inside a queue, but running before waiting; GPUs
// are counted, not placed.
#include "plugin/sim/policy.hpp"

#include <algorithm>
#include <cmath>

namespace jigsaw::sim {

namespace {

constexpr int kQueues = 3;
constexpr std::array<double, kQueues - 1> kLimit_gpu_s = {3250, 7200};

class TwoDimensionalLas : public ReplanPolicy {
  public:
    explicit TwoDimensionalLas(const ReplanView &view) : view_(view), queue_of_(view.workload.jobs.size(), 0) {}

    void arrive(int job) override
    {
        present_.push_back(job);
        queues_[0].push_back(job);
    }

    void leave(int job) override
    {
        remove(&present_, job);
        remove(&queues_[queue(job)], job);
    }

    void advanced() override
    {
        for (const int job : present_) {
            const std::size_t at = queue(job);
            if (!view_.state(job).running || at + 1 == kQueues ||
                view_.state(job).attained_s * view_.gpus(job) < kLimit_gpu_s[at])
                continue;
            remove(&queues_[at], job);
            queues_[at + 1].push_back(job);
            ++queue_of_[static_cast<std::size_t>(job)];
        }
    }

    double next_event_s() const override { return next_jump_s_; }

    void plan(double now_s, std::vector<PlannedGroup> *ret_groups) override
    {
        int free = view_.cluster.gpus();
        next_jump_s_ = std::numeric_limits<double>::infinity();
        for (std::vector<int> &queue : queues_)
            plan_queue(now_s, &queue, &free, ret_groups);
    }

  private:
    static void remove(std::vector<int> *from, int job) { from->erase(std::find(from->begin(), from->end(), job)); }
    std::size_t queue(int job) const { return static_cast<std::size_t>(queue_of_[static_cast<std::size_t>(job)]); }

    void plan_queue(double now_s, std::vector<int> *queue_jobs, int *free, std::vector<PlannedGroup> *ret_groups)
    {
        std::vector<int> running, waiting;
        for (const int job : *queue_jobs) {
            const int gpus = view_.gpus(job);
            if (gpus > *free) {
                waiting.push_back(job);
                continue;
            }
            *free -= gpus;
            running.push_back(job);
            ret_groups->push_back({{job}, 1});
            if (queue(job) + 1 < kQueues)
                next_jump_s_ = std::min(next_jump_s_, std::ceil(kLimit_gpu_s[queue(job)] / gpus) -
                                                          view_.state(job).attained_s + now_s);
        }
        queue_jobs->clear();
        queue_jobs->insert(queue_jobs->end(), running.begin(), running.end());
        queue_jobs->insert(queue_jobs->end(), waiting.begin(), waiting.end());
        if (next_jump_s_ <= now_s)
            next_jump_s_ = std::nextafter(now_s + kLeastStep_s, now_s + 1);
    }

    static constexpr double kLeastStep_s = 1e-6; // time must go on

    const ReplanView &view_;
    std::vector<int> present_; ///< in order of arrival
    std::array<std::vector<int>, kQueues> queues_;
    std::vector<int> queue_of_; ///< [job]
    double next_jump_s_ = std::numeric_limits<double>::infinity();
};

Outcome run(const Workload &workload, const PolicySettings &settings)
{
    const Slowdowns slowdowns(workload, settings.costs, false);
    return run_replanning(slowdowns, settings.run, settings.restart,
                          [](const ReplanView &view) { return std::make_unique<TwoDimensionalLas>(view); });
}

} // namespace

const Policy kLas = {"las", true, "Tiresias' two-dimensional least attained service (no knowledge)", run};

} // namespace jigsaw::sim
