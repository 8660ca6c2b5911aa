// SPDX-License-Identifier: GPL-2.0-or-later
// See comments.hpp.
#include "plugin/select/comments.hpp"

#include "plugin/select/segment.hpp"

namespace jigsaw::select {
namespace {

constexpr std::size_t kLongestComment = 400, kLongestReason = 250;

/// "n1:0-1 with job 12, n2:0 alone"
std::string describe_sharing(const Occupancy &occupancy, const core::Resident &job)
{
    std::string text;
    for (core::JobId neighbour : occupancy.neighbours_of(job.id))
        text += (text.empty() ? "shares GPUs with job " : ", ") + std::to_string(neighbour);
    return (text.empty() ? "may share GPUs, alone now" : text) + "; holds " + format_gpus(job.where);
}

void announce(const Occupancy &occupancy, core::JobId id)
{
    const core::Resident *resident = occupancy.cluster().find(id);
    job_record_t *job = resident ? find_job_record(id) : nullptr;
    if (job && resident->spb.shares())
        set_system_comment(job, describe_sharing(occupancy, *resident));
}

} // namespace

void set_system_comment(job_record_t *job, const std::string &text)
{
    const std::string old = job->system_comment ? job->system_comment : "";
    const std::string now = replace_segment(old, plain_segment(text.substr(0, kLongestComment)));
    if (now == old)
        return;
    xfree(job->system_comment);
    job->system_comment = now.empty() ? nullptr : xstrdup(now.c_str());
    last_job_update = time(nullptr);
}

void announce_sharing(const Occupancy &occupancy, core::JobId job)
{
    announce(occupancy, job);
    announce_leaving(occupancy, occupancy.neighbours_of(job));
}

void announce_leaving(const Occupancy &occupancy, const std::vector<core::JobId> &neighbours)
{
    for (core::JobId neighbour : neighbours)
        announce(occupancy, neighbour);
}

Reasons &Reasons::instance()
{
    static auto *reasons = new Reasons();
    return *reasons;
}

void Reasons::refuse(job_record_t *job, const std::string &text)
{
    set_system_comment(job, "waits: " + text);
    const std::lock_guard<std::mutex> hold(mutex_);
    if (stopping_)
        return;
    refused_[job->job_id] = ("JigSaw: " + text).substr(0, kLongestReason);
    if (!thread_.joinable())
        thread_ = std::thread([this] { work(); });
    wake_.notify_one();
}

void Reasons::stop()
{
    {
        const std::lock_guard<std::mutex> hold(mutex_);
        stopping_ = true;
        wake_.notify_one();
    }
    if (thread_.joinable())
        thread_.join();
}

void Reasons::work()
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr); // slurmctld's signals are its own threads' business
    std::unique_lock<std::mutex> hold(mutex_);
    while (!stopping_) {
        if (refused_.empty()) {
            wake_.wait(hold);
            continue;
        }
        std::map<core::JobId, std::string> refusals;
        refusals.swap(refused_);
        hold.unlock();
        write(refusals);
        hold.lock();
    }
}

void Reasons::write(const std::map<core::JobId, std::string> &refusals)
{
    slurmctld_lock_t locks = {};
    locks.job = WRITE_LOCK;
    lock_slurmctld(locks);
    for (const auto &[id, text] : refusals) {
        job_record_t *job = find_job_record(id);
        if (!job || !IS_JOB_PENDING(job) || job->state_reason != WAIT_RESOURCES)
            continue;
        if (job->state_desc && text == job->state_desc)
            continue;
        xfree(job->state_desc);
        job->state_desc = xstrdup(text.c_str());
        last_job_update = time(nullptr);
    }
    unlock_slurmctld(locks);
}

} // namespace jigsaw::select
