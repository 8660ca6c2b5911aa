// SPDX-License-Identifier: GPL-2.0-or-later
// See requests.hpp.
#include "plugin/select/requests.hpp"

namespace jigsaw::select {
namespace {

constexpr std::size_t kRememberedWarnings = 4096;

/// True the first time for a job, so that a job that waits for a day is named once.
bool warn_once(core::JobId job)
{
    static std::set<core::JobId> warned;
    if (warned.size() >= kRememberedWarnings)
        warned.clear();
    return warned.insert(job).second;
}

std::int64_t seconds_of_minutes(uint32_t minutes)
{
    return minutes == NO_VAL || minutes == INFINITE ? 0 : static_cast<std::int64_t>(minutes) * 60;
}

/// The nodes among which Slurm lets the job choose; where --nodelist names enough, those.
std::vector<bool> allowed_nodes(const JobTest &test)
{
    bitstr_t *required = test.job->details ? test.job->details->req_node_bitmap : nullptr;
    const bool fixed = required && bit_set_count(required) >= static_cast<int>(std::max<uint32_t>(test.min_nodes, 1));
    std::vector<bool> allowed(static_cast<std::size_t>(node_record_count), false);
    for (int node : nodes_in(test.nodes))
        allowed[static_cast<std::size_t>(node)] = !fixed || bit_test(required, node);
    return allowed;
}

bool parse(core::SpbRequest *ret_request, std::string *ret_why, const job_record_t *job)
{
    return config::parse_spank_environment(ret_request, ret_why, spank_entries(job));
}

template <class Unwanted> void remove_entries(job_record_t *job, Unwanted unwanted)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < job->spank_job_env_size; ++i) {
        if (job->spank_job_env[i] && unwanted(std::string(job->spank_job_env[i])))
            xfree(job->spank_job_env[i]);
        else
            job->spank_job_env[kept++] = job->spank_job_env[i];
    }
    for (uint32_t i = kept; i < job->spank_job_env_size; ++i)
        job->spank_job_env[i] = nullptr;
    job->spank_job_env_size = kept;
}

} // namespace

core::SpbRequest spb_request(const job_record_t *job)
{
    core::SpbRequest request;
    std::string why;
    if (parse(&request, &why, job))
        return request;
    if (warn_once(job->job_id))
        info("jigsaw: job %u: %s; it gets GPUs of its own", job->job_id, why.c_str());
    return {};
}

ProfileStore &profile_store()
{
    static auto *store = new ProfileStore(); // until the process ends, as slurmctld's threads do
    return *store;
}

JobFacts facts_of(const job_record_t *job)
{
    JobFacts facts;
    facts.id = job->job_id;
    facts.uid = job->user_id;
    facts.account = job->account ? job->account : "";
    facts.partition = partition_name(job);
    facts.qos = qos_name(job);
    facts.shares = job_shares(job);
    facts.spb = spb_request(job);
    facts.admin_comment = job->admin_comment ? job->admin_comment : "";
    facts.start_s = job->start_time;
    facts.eligible_s = job->details ? job->details->begin_time : 0;
    facts.time_limit_s = seconds_of_minutes(job->time_limit);
    return facts;
}

void learn_profile(const job_record_t *job)
{
    const std::string key = spb_request(job).profile_key;
    const Measured measured = parse_measured(job->admin_comment ? job->admin_comment : "");
    core::Profile profile = measured.profile;
    if (IS_JOB_COMPLETE(job)) // others did not run to their end
        profile.run_s = run_of(measured, job->end_time);
    if (!key.empty() && (profile.known() || profile.memory_peak_bytes))
        profile_store().learn(job->user_id, key, profile);
}

core::SharingPolicy sharing_policy(const job_record_t *job)
{
    return config::policy_for(settings(), partition_name(job), qos_name(job), job->account ? job->account : "");
}

bool job_shares(const job_record_t *job)
{
    return !wants_whole_node(job) && spb_request(job).shares() && gpu_wish(job).any && sharing_policy(job).enabled;
}

void strip_forged(job_record_t *job)
{
    if (!job->spank_job_env || !job->spank_job_env_size)
        return;
    core::SpbRequest request;
    std::string why;
    const bool good = parse(&request, &why, job);
    remove_entries(job, [good](const std::string &entry) {
        return config::is_option_entry(entry) ? !good : config::is_our_entry(entry);
    });
}

core::Resident make_resident(job_record_t *job)
{
    return resident_of(facts_of(job), profile_store(), gpus_held(job));
}

core::PlacementRequest make_placement_request(const JobTest &test)
{
    const GpuWish wish = gpu_wish(test.job);
    core::PlacementRequest request = request_of(facts_of(test.job), profile_store(), time(nullptr));
    request.gpus_per_node = wish.gpus_per_node;
    request.nodes = std::max<std::uint32_t>(test.min_nodes, 1);
    request.gpu_type = wish.type;
    request.allowed_nodes = allowed_nodes(test);
    return request;
}

} // namespace jigsaw::select
