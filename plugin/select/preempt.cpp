// SPDX-License-Identifier: GPL-2.0-or-later
// See preempt.hpp.
#include "plugin/select/preempt.hpp"

namespace jigsaw::select {
namespace {

/// The job under whose name a job is preempted: the leader of a het job.
job_record_t *leader_of(job_record_t *job)
{
    job_record_t *leader = job->het_job_id ? find_job_record(job->het_job_id) : nullptr;
    return leader ? leader : job;
}

std::set<job_record_t *> members(ListPtr list)
{
    std::set<job_record_t *> jobs;
    for_each<job_record_t>(list, [&](job_record_t *job) {
        jobs.insert(job);
        for_each<job_record_t>(job->het_job_list, [&](job_record_t *component) { jobs.insert(component); });
    });
    return jobs;
}

/// The jobs, all components, that go.
class Victims {
  public:
    explicit Victims(const JobTest &test) : list_(*test.victims), going_(members(list_)), candidates_(members(test.candidates)) {}
    bool goes(job_record_t *job) const { return going_.count(job) > 0; }
    bool is_candidate(job_record_t *job) const { return candidates_.count(job) > 0; }
    /// False: it is no candidate.
    bool add(job_record_t *job)
    {
        if (goes(job))
            return true;
        if (!is_candidate(job))
            return false;
        job_record_t *leader = leader_of(job);
        list_append(list_, leader);
        going_.insert(leader);
        for_each<job_record_t>(leader->het_job_list, [&](job_record_t *component) { going_.insert(component); });
        info("jigsaw: job %u is preempted, too: it shares GPUs with another victim", leader->job_id);
        return true;
    }

  private:
    ListPtr list_;
    std::set<job_record_t *> going_, candidates_;
};

std::vector<job_record_t *> residents_of_gpu(const core::Gpu &gpu)
{
    std::vector<job_record_t *> jobs;
    for (core::JobId id : gpu.residents)
        if (job_record_t *job = find_job_record(id))
            jobs.push_back(job);
    return jobs;
}

/// Candidates leave this GPU, in the order of their arrival, until it is open. False: it cannot be, nothing is changed.
bool open_gpu(const core::Gpu &gpu, int node, int index, const FutureAdmission &admission, Victims *victims)
{
    std::vector<job_record_t *> staying, going;
    for (job_record_t *job : residents_of_gpu(gpu))
        if (!victims->goes(job))
            staying.push_back(job);
    while (true) {
        std::vector<core::JobId> left;
        for (const job_record_t *job : staying)
            left.push_back(job->job_id);
        if (admission.opens(node, index, left))
            break;
        const auto next = std::find_if(staying.begin(), staying.end(), [&](auto *job) { return victims->is_candidate(job); });
        if (next == staying.end())
            return false;
        going.push_back(*next);
        staying.erase(next);
    }
    for (job_record_t *job : going)
        victims->add(job);
    return true;
}

/// At least `wanted` GPUs of a node open: first those that need no further victim.
bool open_node(const core::Node &gpus, int node, std::size_t wanted, const FutureAdmission &admission, Victims *victims)
{
    std::size_t open = 0;
    std::vector<int> shut;
    for (int index = 0; index < static_cast<int>(gpus.gpus.size()); ++index) {
        std::vector<core::JobId> left;
        for (job_record_t *job : residents_of_gpu(gpus.gpus[static_cast<std::size_t>(index)]))
            if (!victims->goes(job))
                left.push_back(job->job_id);
        if (admission.opens(node, index, left))
            ++open;
        else
            shut.push_back(index);
    }
    for (std::size_t i = 0; i < shut.size() && open < wanted; ++i)
        open += open_gpu(gpus.gpus[static_cast<std::size_t>(shut[i])], node, shut[i], admission, victims);
    return open >= wanted;
}

} // namespace

void take_neighbours_along(const Occupancy &occupancy, const JobTest &test)
{
    if (!test.victims || !*test.victims)
        return;
    Victims victims(test);
    const std::set<job_record_t *> first = members(*test.victims);
    for (int node : nodes_in(test.nodes)) {
        if (node >= occupancy.cluster().node_count())
            continue;
        for (const core::Gpu &gpu : occupancy.cluster().node(node).gpus) {
            const std::vector<job_record_t *> residents = residents_of_gpu(gpu);
            if (std::any_of(residents.begin(), residents.end(), [&](auto *job) { return first.count(job) > 0; }))
                for (job_record_t *job : residents)
                    victims.add(job);
        }
    }
}

bool open_for_sharing(const Occupancy &occupancy, const JobTest &test, const FutureAdmission &admission)
{
    if (!test.victims || !*test.victims)
        return true;
    Victims victims(test);
    const std::size_t wanted = gpu_wish(test.job).gpus_per_node;
    for (int node : nodes_in(test.nodes)) {
        if (node >= occupancy.cluster().node_count() || occupancy.cluster().node(node).gpus.empty() ||
            open_node(occupancy.cluster().node(node), node, wanted, admission, &victims))
            continue;
        list_destroy(*test.victims);
        *test.victims = nullptr;
        return false;
    }
    return true;
}

} // namespace jigsaw::select
