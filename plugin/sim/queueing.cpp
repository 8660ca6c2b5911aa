// SPDX-License-Identifier: Apache-2.0
// Arrivals and ends; after each, one pass over the queue (scheduling-study 6 and 7). A GPU that holds several jobs slows
// each by the cycle model, and a job runs at the speed of the slowest of its GPUs.
#include "plugin/sim/queueing.hpp"

#include "plugin/sim/gpu_map.hpp"
#include "plugin/sim/joiner.hpp"
#include "plugin/sim/policy.hpp"
#include "plugin/sim/text.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <queue>
#include <tuple>

namespace jigsaw::sim {

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kLeastRemaining_s = 60;       // nobody is about to end, whatever its limit says
constexpr double kUnknownRemaining_s = 1200;   // of a job without a limit that has just begun
constexpr double kSharedBackfillFactor = 1.6;  // a job that joins takes longer than its limit says of it alone
constexpr double kSame_s = 1e-9;
constexpr std::size_t kProgressEvery = 256;

class QueueRun {
  public:
    QueueRun(const Workload &workload, const PolicySettings &settings, const QueueOptions &options)
        : workload_(workload), settings_(settings), options_(options),
          slowdowns_(workload, settings.costs, options.partial_depth), map_(settings.run.cluster),
          live_(workload.jobs.size()), spans_(static_cast<std::size_t>(settings.run.cluster.gpus()))
    {
        outcome_.jobs.resize(workload.jobs.size());
        if (options.share)
            joiner_ = std::make_unique<Joiner>(workload, settings.run.cluster,
                                               site_policy(settings.costs, settings.max_sharing, settings.pay),
                                               options.partial_depth);
    }

    Outcome run()
    {
        const auto began = Clock::now();
        while (done_ < workload_.jobs.size())
            step();
        outcome_.wall_s = std::chrono::duration<double>(Clock::now() - began).count();
        return std::move(outcome_);
    }

  private:
    struct Live {
        double remaining_s = 0, attained_s = 0, slowdown = 1, last_s = 0;
        std::uint32_t version = 0;        ///< of its end in the queue of ends
        std::uint64_t asked_at_change = 0; ///< when it was last told to wait
        bool running = false;
        std::vector<int> gpus;
    };
    using End = std::tuple<double, int, std::uint32_t>; // when, job, version

    const Job &job_of(int job) const { return workload_.jobs[static_cast<std::size_t>(job)]; }
    int gpus_of(int job) const { return workload_.gpus_of(job_of(job)); }
    Live &live(int job) { return live_[static_cast<std::size_t>(job)]; }

    void step()
    {
        drop_stale_ends();
        const double end_s = ends_.empty() ? kNever : std::get<0>(ends_.top());
        const double arrival_s = arrived_ < workload_.jobs.size() ? workload_.jobs[arrived_].submit_s : kNever;
        const double event_s = std::min(end_s, arrival_s);
        if (event_s == kNever)
            throw InputError("no job runs and none arrives, but " + std::to_string(queue_.size()) +
                             " wait: the cluster is too small for them");
        now_s_ = std::max(now_s_, event_s);
        for (drop_stale_ends(); !ends_.empty() && std::get<0>(ends_.top()) <= event_s + kSame_s; drop_stale_ends())
            end_job(std::get<1>(ends_.top()));
        while (arrived_ < workload_.jobs.size() && workload_.jobs[arrived_].submit_s <= event_s)
            enqueue(static_cast<int>(arrived_++));
        if (!queue_.empty())
            schedule();
        sample();
        ++outcome_.events;
        if (settings_.run.progress && outcome_.events % kProgressEvery == 0)
            settings_.run.progress(done_, workload_.jobs.size());
    }

    void drop_stale_ends()
    {
        while (!ends_.empty()) {
            const auto &[at_s, job, version] = ends_.top();
            if (live(job).running && live(job).version == version)
                return;
            ends_.pop();
        }
    }

    void enqueue(int job)
    {
        live(job).remaining_s = job_of(job).isolated_s();
        auto at = queue_.end();
        if (options_.order)
            at = std::upper_bound(queue_.begin(), queue_.end(), job, [&](int a, int b) {
                return options_.order(job_of(a)) < options_.order(job_of(b));
            });
        queue_.insert(at, job);
    }

    // Jobs on their GPUs

    void advance(int job)
    {
        Live &at = live(job);
        const double passed_s = now_s_ - at.last_s;
        at.remaining_s -= passed_s / at.slowdown;
        at.attained_s += passed_s;
        at.last_s = now_s_;
    }

    /// The jobs on these GPUs, each once.
    std::vector<int> jobs_on(const std::vector<int> &gpus) const
    {
        std::vector<int> found;
        for (const int gpu : gpus) {
            const GpuMap::Residents &residents = map_.on(gpu);
            for (int i = 0; i < residents.count; ++i) {
                const int job = residents.jobs[static_cast<std::size_t>(i)];
                if (std::find(found.begin(), found.end(), job) == found.end())
                    found.push_back(job);
            }
        }
        return found;
    }

    const Slowdowns::Group &group_on(const GpuMap::Residents &residents) const
    {
        std::array<TypeId, kMaxSharing> types{};
        for (int i = 0; i < residents.count; ++i)
            types[static_cast<std::size_t>(i)] =
                static_cast<TypeId>(job_of(residents.jobs[static_cast<std::size_t>(i)]).type);
        return slowdowns_.group(types.data(), residents.count);
    }

    void set_speed(int job)
    {
        advance(job);
        Live &at = live(job);
        const auto type = static_cast<TypeId>(job_of(job).type);
        double slowest = 0;
        const GpuMap::Residents *last = nullptr;
        for (const int gpu : at.gpus) {
            const GpuMap::Residents &residents = map_.on(gpu);
            if (last && last->count == residents.count && last->jobs == residents.jobs)
                continue; // GPUs of a gang mostly hold the same jobs
            slowest = std::max(slowest, group_on(residents).of(type));
            last = &residents;
        }
        at.slowdown = slowest;
        ends_.emplace(now_s_ + std::max(0.0, at.remaining_s) * at.slowdown, job, ++at.version);
        if (joiner_)
            joiner_->progress(job, job_of(job).isolated_s() - at.remaining_s, now_s_);
    }

    void start(int job, const std::vector<int> &gpus)
    {
        Live &at = live(job);
        at.gpus = gpus;
        at.last_s = now_s_;
        at.running = true;
        close_spans(gpus);
        map_.put(job, gpus);
        running_.push_back(job);
        outcome_.jobs[static_cast<std::size_t>(job)].start_s = now_s_;
        if (joiner_)
            joiner_->add(job, gpus, now_s_);
        for (const int other : jobs_on(gpus))
            set_speed(other);
        for (const int gpu : gpus)
            for (int i = 0; i < map_.on(gpu).count; ++i)
                note_sharing(map_.on(gpu).jobs[static_cast<std::size_t>(i)], map_.on(gpu).count);
        open_spans(gpus);
        ++changes_;
    }

    void note_sharing(int job, int count)
    {
        std::uint32_t &most = outcome_.jobs[static_cast<std::size_t>(job)].most_sharing;
        most = std::max(most, static_cast<std::uint32_t>(count));
    }

    void end_job(int job)
    {
        Live &at = live(job);
        at.running = false;
        at.remaining_s = 0;
        close_spans(at.gpus);
        map_.remove(job, at.gpus);
        running_.erase(std::find(running_.begin(), running_.end(), job));
        outcome_.jobs[static_cast<std::size_t>(job)].end_s = now_s_;
        if (joiner_)
            joiner_->remove(job);
        for (const int other : jobs_on(at.gpus))
            set_speed(other);
        open_spans(at.gpus);
        at.gpus.clear();
        ++done_;
        ++changes_;
    }

    // The pass over the queue

    /// Of an isolated run, as the scheduler may think of it: by the time limit, else by what was attained.
    double expected_s(int job) const
    {
        const Live &at = live_[static_cast<std::size_t>(job)];
        const double since_s = at.running ? now_s_ - at.last_s : 0;
        const double limit_s = job_of(job).limit_s;
        if (!(limit_s > 0))
            return std::max(at.attained_s + since_s, kUnknownRemaining_s);
        const double done_s = job_of(job).isolated_s() - at.remaining_s + since_s / at.slowdown;
        return std::max(limit_s - done_s, kLeastRemaining_s);
    }

    struct Reservation {
        double at_s = kNever;
        std::vector<bool> nodes; ///< kept for the head
    };

    /// When enough GPUs come free for the job, by what the running jobs are expected to need, and where.
    Reservation reserve(int job) const
    {
        using Free = std::pair<double, int>;
        std::vector<Free> frees;
        frees.reserve(running_.size());
        for (const int one : running_)
            frees.emplace_back(now_s_ + expected_s(one) * live_[static_cast<std::size_t>(one)].slowdown, one);
        std::make_heap(frees.begin(), frees.end(), std::greater<Free>());
        std::vector<int> idle = map_.idle();
        std::vector<std::int8_t> residents(static_cast<std::size_t>(map_.shape().gpus()));
        for (std::size_t gpu = 0; gpu < residents.size(); ++gpu)
            residents[gpu] = static_cast<std::int8_t>(map_.on(static_cast<int>(gpu)).count);
        int free_gpus = map_.idle_gpus();
        Reservation made;
        made.nodes.assign(idle.size(), false);
        while (!frees.empty()) {
            std::pop_heap(frees.begin(), frees.end(), std::greater<Free>());
            const auto [at_s, one] = frees.back();
            frees.pop_back();
            const int before = free_gpus;
            for (const int gpu : live_[static_cast<std::size_t>(one)].gpus)
                if (--residents[static_cast<std::size_t>(gpu)] == 0) {
                    ++idle[static_cast<std::size_t>(map_.node_of(gpu))];
                    ++free_gpus;
                }
            if (free_gpus == before || free_gpus < gpus_of(job))
                continue;
            const std::vector<int> nodes = map_.nodes_for(gpus_of(job), idle);
            for (const int node : nodes)
                made.nodes[static_cast<std::size_t>(node)] = true;
            if (!nodes.empty()) {
                made.at_s = at_s;
                return made;
            }
        }
        return made;
    }

    bool start_idle(int job, const std::vector<bool> *closed)
    {
        const std::vector<int> gpus = map_.idle_place(gpus_of(job), closed);
        if (!gpus.empty())
            start(job, gpus);
        return !gpus.empty();
    }

    bool join(int job, double wait_s, const std::vector<bool> *closed, std::size_t waiting)
    {
        if (!joiner_ || live(job).asked_at_change == changes_)
            return false;
        const double queue_per_gpu = static_cast<double>(waiting) / map_.shape().gpus();
        const std::vector<int> gpus = joiner_->place(job, {wait_s, now_s_ - job_of(job).submit_s, queue_per_gpu}, closed, now_s_);
        if (gpus.empty()) {
            live(job).asked_at_change = changes_;
            return false;
        }
        start(job, gpus);
        ++outcome_.joins;
        return true;
    }

    void schedule()
    {
        const auto before = Clock::now();
        std::size_t kept = 0, at = 0, waiting = queue_.size();
        bool has_head = false;
        Reservation reserved;
        double ahead_gpu_s = 0;
        int asked = 0;
        for (; at < queue_.size() && kept < static_cast<std::size_t>(options_.most_tested); ++at) {
            const int job = queue_[at];
            bool started = false;
            if (!has_head) {
                started = start_idle(job, nullptr);
                if (!started && !options_.backfill)
                    break;
                if (!started && !joiner_ && map_.idle_gpus() == 0)
                    break; // nothing to fill
                if (!started) {
                    reserved = reserve(job);
                    started = join(job, reserved.at_s - now_s_, nullptr, waiting);
                    has_head = !started;
                }
            } else {
                const bool ends_before = now_s_ + expected_s(job) <= reserved.at_s;
                started = start_idle(job, ends_before ? nullptr : &reserved.nodes);
                if (!started && joiner_ && asked < options_.most_joins) {
                    ++asked;
                    const bool joined_before = now_s_ + expected_s(job) * kSharedBackfillFactor <= reserved.at_s;
                    const double wait_s = reserved.at_s - now_s_ + ahead_gpu_s / map_.shape().gpus();
                    started = join(job, wait_s, joined_before ? nullptr : &reserved.nodes, waiting);
                }
                if (!started && !joiner_ && map_.idle_gpus() == 0) {
                    queue_[kept++] = job;
                    ++at;
                    break;
                }
            }
            if (started) {
                --waiting;
                continue;
            }
            ahead_gpu_s += expected_s(job) * gpus_of(job);
            queue_[kept++] = job;
        }
        queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(kept),
                     queue_.begin() + static_cast<std::ptrdiff_t>(at));
        outcome_.decision_ms.push_back(std::chrono::duration<float, std::milli>(Clock::now() - before).count());
    }

    // Pictures

    void close_spans(const std::vector<int> &gpus)
    {
        for (const int gpu : gpus) {
            GpuSpan &span = spans_[static_cast<std::size_t>(gpu)];
            if (!settings_.run.keep_spans || span.jobs.empty())
                continue;
            span.end_s = now_s_;
            if (span.end_s > span.begin_s)
                outcome_.spans.push_back(span);
            span.jobs.clear();
        }
    }

    void open_spans(const std::vector<int> &gpus)
    {
        for (const int gpu : gpus) {
            const GpuMap::Residents &residents = map_.on(gpu);
            if (!settings_.run.keep_spans || residents.count == 0)
                continue;
            GpuSpan &span = spans_[static_cast<std::size_t>(gpu)];
            span.begin_s = now_s_;
            span.node = map_.node_of(gpu);
            span.gpu = gpu % map_.shape().gpus_per_node;
            span.jobs.assign(residents.jobs.begin(), residents.jobs.begin() + residents.count);
            span.partial = residents.count > 1 && group_on(residents).partial;
        }
    }

    void sample()
    {
        if (!settings_.run.keep_samples)
            return;
        Sample sample;
        sample.at_s = now_s_;
        sample.busy_gpus = map_.shape().gpus() - map_.idle_gpus();
        sample.running_jobs = static_cast<int>(running_.size());
        sample.waiting_jobs = static_cast<int>(queue_.size());
        for (const int job : running_)
            sample.work_rate += gpus_of(job) / live(job).slowdown;
        outcome_.samples.push_back(sample);
    }

    const Workload &workload_;
    const PolicySettings &settings_;
    const QueueOptions &options_;
    Slowdowns slowdowns_;
    GpuMap map_;
    std::unique_ptr<Joiner> joiner_;
    std::vector<Live> live_;
    std::vector<GpuSpan> spans_; ///< [gpu], open ones
    std::vector<int> queue_, running_;
    std::priority_queue<End, std::vector<End>, std::greater<End>> ends_;
    Outcome outcome_;
    std::size_t arrived_ = 0, done_ = 0;
    std::uint64_t changes_ = 1; ///< starts and ends so far
    double now_s_ = 0;
};

} // namespace

Outcome run_queueing(const Workload &workload, const PolicySettings &settings, const QueueOptions &options)
{
    return QueueRun(workload, settings, options).run();
}

} // namespace jigsaw::sim
