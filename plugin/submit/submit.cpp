// SPDX-License-Identifier: GPL-2.0-or-later
// job_submit/jigsaw (optional): says at submit what the select plugin would otherwise only say later, and publishes the
// request in AdminComment, for scontrol and sacct. jigsawd updates the same segment afterwards.
//
// Runs in slurmctld under its job write lock, before the job exists.
#include "plugin/select/segment.hpp"
#include "plugin/select/shim.hpp"

namespace jigsaw::submit {
namespace {

std::vector<std::string> entries_of(char **entries, uint32_t count)
{
    std::vector<std::string> strings;
    for (uint32_t i = 0; entries && i < count; ++i)
        if (entries[i])
            strings.emplace_back(entries[i]);
    return strings;
}

bool job_shares(uint32_t job_id)
{
    const job_record_t *job = find_job_record(job_id);
    core::SpbRequest request;
    std::string why;
    return job && config::parse_spank_environment(&request, &why, entries_of(job->spank_job_env, job->spank_job_env_size)) &&
           request.shares();
}

/// The job that "--dependency=expand:42" would make larger; 0: none.
uint32_t expanded_job(const job_desc_msg_t *job)
{
    const char *expand = job->dependency ? strstr(job->dependency, "expand:") : nullptr;
    return expand ? static_cast<uint32_t>(strtoul(expand + strlen("expand:"), nullptr, 10)) : 0;
}

void set_text(char **field, const std::string &text)
{
    xfree(*field);
    *field = text.empty() ? nullptr : xstrdup(text.c_str());
}

int refuse(char **err_msg, const std::string &why)
{
    if (err_msg)
        set_text(err_msg, "jigsaw: " + why);
    return ESLURM_INVALID_GRES;
}

int check_submit(job_desc_msg_t *job, char **err_msg)
{
    core::SpbRequest request;
    std::string why;
    if (!config::parse_spank_environment(&request, &why, entries_of(job->spank_job_env, job->spank_job_env_size)))
        return refuse(err_msg, why);
    if (const uint32_t target = expanded_job(job); target && (request.shares() || job_shares(target)))
        return refuse(err_msg, "--dependency=expand:" + std::to_string(target) +
                                   ": jobs with --spb cannot grow; submit a new job of the size you need");
    if (request.mode == core::SpbMode::off)
        return SLURM_SUCCESS;
    const std::string old = job->admin_comment ? job->admin_comment : "";
    set_text(&job->admin_comment,
             select::replace_segment(old, "jigsaw:{\"spb\":\"" + config::format_request(request) + "\"}"));
    return SLURM_SUCCESS;
}

int check_modify(job_desc_msg_t *wanted, const job_record_t *job)
{
    if (wanted->admin_comment && job && job->admin_comment)
        set_text(&wanted->admin_comment, select::merge_comments(job->admin_comment, wanted->admin_comment));
    return SLURM_SUCCESS;
}

/// No exception reaches slurmctld; in doubt the job goes on as if we were not there.
template <class Work> int fenced(Work work) noexcept
{
    try {
        return work();
    } catch (const std::exception &trouble) {
        error("jigsaw: job_submit: %s; the job is not looked at", trouble.what());
    } catch (...) {
        error("jigsaw: job_submit: unknown exception; the job is not looked at");
    }
    return SLURM_SUCCESS;
}

} // namespace
} // namespace jigsaw::submit

#define JIGSAW_EXPORTED extern "C" __attribute__((visibility("default")))

JIGSAW_EXPORTED const char plugin_name[];
JIGSAW_EXPORTED const char plugin_type[];
JIGSAW_EXPORTED const uint32_t plugin_version;
const char plugin_name[] = "JigSaw: checks and publishes --spb requests";
const char plugin_type[] = "job_submit/jigsaw";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

JIGSAW_EXPORTED int init(void) { return SLURM_SUCCESS; }
JIGSAW_EXPORTED int fini(void) { return SLURM_SUCCESS; }

JIGSAW_EXPORTED int job_submit(job_desc_msg_t *job, uint32_t, char **err_msg)
{
    return jigsaw::submit::fenced([&] { return jigsaw::submit::check_submit(job, err_msg); });
}

#if JIGSAW_SLURM_2411
JIGSAW_EXPORTED int job_modify(job_desc_msg_t *wanted, job_record_t *job, uint32_t, char **)
#else
JIGSAW_EXPORTED int job_modify(job_desc_msg_t *wanted, job_record_t *job, uint32_t)
#endif
{
    return jigsaw::submit::fenced([&] { return jigsaw::submit::check_modify(wanted, job); });
}
