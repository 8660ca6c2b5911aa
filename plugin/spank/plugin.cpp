// SPDX-License-Identifier: Apache-2.0
// spank_jigsaw: the only file that sees spank.h. Registers the --spb options, judges them where a job is submitted, and
// hands prolog, epilog and tasks to job_files.cpp.
//
// A SPANK plugin that crashes or fails in a prolog or a step drains nodes, so: only a submit command may fail (refuse());
// everything else returns success whatever happens; no exception leaves (guard()). Two calls that crash
// Slurm 22.05 are not made: spank_get_item() in init (the prolog's process has no job there, plugstack.c:921) and
// spank_job_control_getenv() in prolog and epilog (dlclose(NULL), plugstack.c:2289); spank_context() in the prolog's init
// says S_CTX_ERROR. That is why the prolog reads its own environment, into which Slurm puts the job's.
//
// plugstack.conf: "optional spank_jigsaw.so [run_dir=PATH] [config=PATH]". run_dir wins; otherwise it is run_dir of the
// configuration, by default /etc/jigsaw/jigsaw.yaml.
#include "plugin/config/options.hpp"
#include "plugin/spank/job_files.hpp"
#ifdef JIGSAW_HAVE_YAML
#include "plugin/config/config.hpp"
#endif

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

#pragma GCC visibility push(default)
extern "C" {
#include <slurm/spank.h>

// What SPANK_PLUGIN() makes; in C++ its constants would have no external linkage.
extern const char plugin_name[] = "jigsaw";
extern const char plugin_type[] = "spank";
extern const unsigned int plugin_version = SLURM_VERSION_NUMBER;
extern const unsigned int spank_plugin_version = 1;
}
#pragma GCC visibility pop

namespace {

using namespace jigsaw;

/// What a submit command was asked for. One process submits one job, in one thread.
struct Submission {
    core::SpbRequest request;
    std::set<std::string> given;
    std::string one_given, its_value; ///< an option other than --spb, for the message
};
Submission submission;

/// From task_init_privileged, which may read the token, to task_init in the same process, which hands it on.
std::vector<std::pair<std::string, std::string>> variables_of_task;

void log_line(const std::string &line) { slurm_error("jigsaw: %s", line.c_str()); }

/// The one fence: whatever happens inside, Slurm gets a number.
template <class Function> int guard(const char *where, Function function) noexcept
{
    try {
        return function();
    } catch (const std::exception &error) {
        slurm_error("jigsaw: %s: %s", where, error.what());
    } catch (...) {
        slurm_error("jigsaw: %s: unknown trouble", where);
    }
    return ESPANK_SUCCESS;
}

/// The value of an argument "name=..." of our line in plugstack.conf, else "".
std::string argument(int argc, char **argv, const char *name)
{
    const std::size_t length = std::strlen(name);
    for (int i = 0; i < argc; ++i)
        if (std::strncmp(argv[i], name, length) == 0 && argv[i][length] == '=')
            return argv[i] + length + 1;
    return "";
}

std::string run_dir_of(int argc, char **argv)
{
    const std::string given = argument(argc, argv, "run_dir");
    if (!given.empty())
        return given;
#ifdef JIGSAW_HAVE_YAML
    const std::string path = argument(argc, argv, "config");
    std::string why;
    if (const auto config = config::load_config(&why, path.empty() ? config::kDefaultConfigPath : path))
        return config->run_dir;
    log_line(why + "; using run_dir /run/jigsaw");
#endif
    return "/run/jigsaw";
}

spank::Environment environment()
{
    spank::Environment entries;
    for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry)
        entries.emplace_back(*entry);
    return entries;
}

bool is_submit_command()
{
    const spank_context_t context = spank_context();
    return context == S_CTX_ALLOCATOR || context == S_CTX_LOCAL;
}

/// Ends sbatch, salloc or srun before anything is queued: one line, exit status 1. A status returned to Slurm would not do:
/// from an option it ends the command with 255 and a second line, and from init_post_opt it is ignored for a plugin that is
/// "optional" in plugstack.conf (plugstack.c, _do_call_stack()).
[[noreturn]] void refuse(const std::string &why)
{
    slurm_error("%s", why.c_str());
    std::exit(EXIT_FAILURE);
}

/// Slurm calls this once for each option of the command line or the shell's SLURM_SPANK_* variables; in a step (remote)
/// the values are the client's and are not ours to refuse.
int take_option(int index, const char *value, int remote)
{
    if (remote || !is_submit_command())
        return ESPANK_SUCCESS;
    return guard("option", [&] {
        const config::OptionRow &row = config::spb_option_table().at(static_cast<std::size_t>(index));
        const std::string text = value ? value : "";
        std::string why;
        if (!config::set_spb_option(&submission.request, &why, row.name, text))
            refuse(why);
        submission.given.insert(row.name);
        if (row.has_argument) {
            submission.one_given = row.name;
            submission.its_value = text;
        }
        return ESPANK_SUCCESS;
    });
}

/// getopt_long()'s optional argument: --spb and --spb=4, but not "--spb 4".
constexpr int kRequired = 1, kOptional = 2;

void register_options(spank_t spank)
{
    int index = 0;
    for (const config::OptionRow &row : config::spb_option_table()) {
        const std::string arginfo = row.has_argument ? row.arginfo : "[" + std::string(row.arginfo) + "]";
        spank_option option = {};
        option.name = const_cast<char *>(row.name); // Slurm copies all three
        option.arginfo = const_cast<char *>(arginfo.c_str());
        option.usage = const_cast<char *>(row.usage);
        option.has_arg = row.has_argument ? kRequired : kOptional;
        option.val = index++;
        option.cb = take_option;
        if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
            log_line(std::string("--") + row.name + " cannot be registered; is it another plugin's?");
    }
}

/// A job can be submitted from within another one with that one's environment; its tasks must not take themselves for it.
void drop_variables_of_another_job(spank_t spank, core::JobId job_id)
{
    char value[32] = "";
    const bool has_some = spank_getenv(spank, "JIGSAW_JOB", value, sizeof value) == ESPANK_SUCCESS;
    if (!has_some || value == std::to_string(job_id))
        return;
    for (const char *name : {"JIGSAW_SOCKET", "JIGSAW_JOB", "JIGSAW_RESTART", "JIGSAW_STEP", "JIGSAW_TOKEN"})
        spank_unsetenv(spank, name);
}

} // namespace

#pragma GCC visibility push(default)
extern "C" {

int slurm_spank_init(spank_t spank, int, char **)
{
    return guard("init", [&] {
        register_options(spank);
        return ESPANK_SUCCESS;
    });
}

int slurm_spank_init_post_opt(spank_t, int, char **)
{
    return guard("init_post_opt", [&] {
        if (is_submit_command() && !submission.given.empty() && submission.given.count("spb") == 0)
            refuse(config::option_needs_spb(submission.one_given, submission.its_value));
        return ESPANK_SUCCESS;
    });
}

int slurm_spank_job_prolog(spank_t, int argc, char **argv)
{
    return guard("prolog", [&] {
        spank::run_prolog(environment(), run_dir_of(argc, argv), log_line);
        return ESPANK_SUCCESS;
    });
}

int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv)
{
    return guard("task_init_privileged", [&] {
        std::uint32_t job_id = 0, step_id = 0;
        const char *node = std::getenv("SLURMD_NODENAME");
        if (node == nullptr || spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS ||
            spank_get_item(spank, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS)
            return ESPANK_SUCCESS;
        drop_variables_of_another_job(spank, job_id);
        const config::NodePaths paths = config::node_paths(run_dir_of(argc, argv), node);
        variables_of_task = spank::task_variables(paths, job_id, step_id);
        return ESPANK_SUCCESS;
    });
}

int slurm_spank_task_init(spank_t spank, int, char **)
{
    return guard("task_init", [&] {
        for (const auto &[name, value] : variables_of_task)
            spank_setenv(spank, name.c_str(), value.c_str(), /*overwrite=*/1);
        return ESPANK_SUCCESS;
    });
}

int slurm_spank_job_epilog(spank_t, int argc, char **argv)
{
    return guard("epilog", [&] {
        spank::run_epilog(environment(), run_dir_of(argc, argv), log_line);
        return ESPANK_SUCCESS;
    });
}

} // extern "C"
#pragma GCC visibility pop
