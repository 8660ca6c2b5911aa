// SPDX-License-Identifier: Apache-2.0
// See job_files.hpp.
#include "plugin/spank/job_files.hpp"

#include "plugin/config/options.hpp"
#include "plugin/config/text.hpp"
#include "plugin/spank/private_files.hpp"
#include "runtime/page/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <set>
#include <stdexcept>
#include <unistd.h>

namespace jigsaw::spank {
namespace {

/// A prolog holds up a job's start, an epilog the node's next job: how long they wait until jigsawd takes a message, at
/// most, and the prolog for its answer (which only tells the log whether all is well).
constexpr int kAgentLimit_ms = 100, kAnswerLimit_ms = 100;

std::uint32_t number_of(const Environment &environment, const std::string &name, std::uint64_t lowest)
{
    std::uint64_t value = 0;
    if (!config::parse_whole(&value, value_of(environment, name), lowest, UINT32_MAX))
        throw std::runtime_error(name + "='" + config::shown(value_of(environment, name)) + "' in the environment is no number");
    return static_cast<std::uint32_t>(value);
}

/// SLURM_JOB_RESTART_COUNT is absent in epilogs, and in prologs of a job that was never requeued on some releases.
std::uint32_t restart_count_of(const Environment &environment)
{
    const std::string name = "SLURM_JOB_RESTART_COUNT";
    return value_of(environment, name).empty() ? 0 : number_of(environment, name, 0);
}

/// The record without its token.
config::Registration record_of(const Environment &environment, const core::SpbRequest &request)
{
    config::Registration record;
    record.job_id = number_of(environment, "SLURM_JOB_ID", 1);
    record.restart_count = restart_count_of(environment);
    record.uid = number_of(environment, "SLURM_JOB_UID", 0);
    record.spb = request;
    record.start_s = static_cast<std::int64_t>(std::time(nullptr));
    const std::string gpus = value_of(environment, "SLURM_JOB_GPUS");
    if (!config::parse_gpu_list(&record.gpus, gpus))
        throw std::runtime_error("SLURM_JOB_GPUS='" + config::shown(gpus) + "' is no list of GPU indices");
    return record;
}

std::string token_in(const config::NodePaths &paths, const std::string &name)
{
    const std::optional<std::string> text = read_whole(paths.tokens + "/" + name);
    return text && text->size() == 65 && text->back() == '\n' ? text->substr(0, 64) : "";
}

std::optional<std::uint32_t> newest_restart(const std::string &folder, core::JobId job_id)
{
    std::optional<std::uint32_t> newest;
    for (const std::string &name : list_folder(folder)) {
        core::JobId job = 0;
        std::uint32_t restart = 0;
        if (config::parse_registration_file_name(&job, &restart, name) && job == job_id)
            newest = std::max(newest.value_or(0), restart);
    }
    return newest;
}

/// A prolog that runs again must not change the token: tasks may have it already.
bool is_registered(const config::NodePaths &paths, const std::string &name)
{
    const std::string token = token_in(paths, name);
    const std::optional<std::string> text = read_whole(paths.jobs + "/" + name);
    config::Registration record;
    std::string why;
    return !token.empty() && text && config::parse_registration(&record, &why, *text) &&
           record.token_sha256 == config::sha256_hex(token);
}

/// Removes what the folder holds of the job, except `kept`; restart counts of what went.
std::set<std::uint32_t> remove_files(const std::string &folder, core::JobId job_id, const std::string &kept)
{
    std::set<std::uint32_t> gone;
    for (const std::string &name : list_folder(folder)) {
        core::JobId job = 0;
        std::uint32_t restart = 0;
        const std::string plain = name[0] == '.' ? name.substr(1) : name; // a draft whose writer was killed
        if (!config::parse_registration_file_name(&job, &restart, plain) || job != job_id || plain == kept)
            continue;
        if (unlink((folder + "/" + name).c_str()) != 0 && errno != ENOENT)
            throw std::runtime_error(folder + "/" + name + ": cannot be removed: " + std::strerror(errno));
        gone.insert(restart);
    }
    return gone;
}

std::set<std::uint32_t> remove_job(const config::NodePaths &paths, core::JobId job_id, const std::string &kept)
{
    std::set<std::uint32_t> gone = remove_files(paths.jobs, job_id, kept);
    gone.merge(remove_files(paths.tokens, job_id, kept));
    return gone;
}

wire::Message message(const char *verb, core::JobId job_id, std::uint32_t restart_count)
{
    return {verb, {{"job", std::to_string(job_id)}, {"restart", std::to_string(restart_count)}}};
}

std::string subject(const Environment &environment)
{
    return "job " + config::shown(value_of(environment, "SLURM_JOB_ID")) + ": ";
}

void write_files(const config::NodePaths &paths, const std::string &name, config::Registration record)
{
    ensure_folders(paths.base, 0755);
    ensure_folder(paths.jobs, 0700);
    ensure_folder(paths.tokens, 0700);
    remove_job(paths, record.job_id, name);
    if (is_registered(paths, name))
        return;
    const std::string token = config::make_token();
    record.token_sha256 = config::sha256_hex(token);
    write_whole(paths.tokens, name, token + "\n");
    write_whole(paths.jobs, name, config::format_registration(record)); // last: it is what jigsawd looks for
}

/// Tells jigsawd to look; empty, or what is wrong. The record stays whatever it says.
std::string ring(const std::string &socket, const wire::Message &what)
{
    std::string why;
    const UniqueFd agent = wire::connect_to(&why, socket, kAgentLimit_ms);
    if (!agent || !wire::send_message(&why, agent.get(), what, {}, kAgentLimit_ms))
        return "jigsawd does not hear of it (" + why + ")";
    wire::Message answer;
    std::vector<UniqueFd> fds;
    switch (wire::receive_message(&answer, &fds, &why, agent.get(), kAnswerLimit_ms)) {
    case wire::Received::message: break;
    case wire::Received::nothing: return "jigsawd was told and has not answered within " + std::to_string(kAnswerLimit_ms) + " ms";
    case wire::Received::closed: return "jigsawd hung up";
    case wire::Received::bad: return "jigsawd answered what is no message (" + why + ")";
    }
    const std::string *text = answer.find("text");
    return answer.verb == "OK" ? "" : "jigsawd refuses it (" + (text ? *text : answer.verb) + ")";
}

void register_job(const Environment &environment, const std::string &run_dir, const core::SpbRequest &request, const Log &log)
{
    const config::NodePaths paths = config::node_paths(run_dir, value_of(environment, "SLURMD_NODENAME"));
    const config::Registration record = record_of(environment, request);
    if (record.gpus.empty())
        return; // nothing to share on this node
    write_files(paths, config::registration_file_name(record.job_id, record.restart_count), record);
    const std::string why = ring(paths.socket, message("REGISTER", record.job_id, record.restart_count));
    if (!why.empty())
        log(subject(environment) + why + "; it runs without turns until jigsawd has read its record: see systemctl status jigsawd");
}

} // namespace

std::string value_of(const Environment &environment, const std::string &name)
{
    for (const std::string &entry : environment)
        if (entry.compare(0, name.size(), name) == 0 && entry.size() > name.size() && entry[name.size()] == '=')
            return entry.substr(name.size() + 1);
    return "";
}

void run_prolog(const Environment &environment, const std::string &run_dir, const Log &log)
{
    core::SpbRequest request;
    std::string why;
    try {
        if (!config::parse_spank_environment(&request, &why, environment))
            log(subject(environment) + "its options are bad (" + why + "); it has its GPUs to itself");
        else if (request.shares())
            register_job(environment, run_dir, request, log);
    } catch (const std::exception &error) {
        log(subject(environment) + "not registered (" + error.what() + "); it runs without turns");
    }
}

void run_epilog(const Environment &environment, const std::string &run_dir, const Log &log)
{
    try {
        const config::NodePaths paths = config::node_paths(run_dir, value_of(environment, "SLURMD_NODENAME"));
        const core::JobId job_id = number_of(environment, "SLURM_JOB_ID", 1);
        for (const std::uint32_t restart : remove_job(paths, job_id, "")) {
            std::string why; // without jigsawd there is nobody to tell, and the next one finds no record
            const UniqueFd agent = wire::connect_to(&why, paths.socket, kAgentLimit_ms);
            if (agent)
                wire::send_message(&why, agent.get(), message("DRAIN", job_id, restart), {}, kAgentLimit_ms);
        }
    } catch (const std::exception &error) {
        log(subject(environment) + "not cleaned up (" + error.what() + "); jigsawd will");
    }
}

std::vector<std::pair<std::string, std::string>> task_variables(const config::NodePaths &paths, core::JobId job_id,
                                                                std::uint32_t step_id)
{
    const std::optional<std::uint32_t> restart = newest_restart(paths.tokens, job_id);
    const std::string token = restart ? token_in(paths, config::registration_file_name(job_id, *restart)) : "";
    if (token.empty())
        return {};
    return {{"JIGSAW_SOCKET", paths.socket},
            {"JIGSAW_JOB", std::to_string(job_id)},
            {"JIGSAW_RESTART", std::to_string(*restart)},
            {"JIGSAW_STEP", std::to_string(step_id)},
            {"JIGSAW_TOKEN", token}};
}

} // namespace jigsaw::spank
