// SPDX-License-Identifier: Apache-2.0
// jigsaw doctor: looks at everything that has to be right for sharing, one line each, with what to change.
#include "plugin/agent/command.hpp"
#include "plugin/agent/json.hpp"
#include "plugin/agent/version.hpp"
#include "plugin/cli/checks.hpp"
#include "plugin/cli/command.hpp"
#include "plugin/config/config.hpp"
#include "plugin/config/registration.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace jigsaw::cli {

const char *const kDoctorUsage =
    "usage: jigsaw doctor [--json] [--scontrol PROGRAM] [--config FILE] [--run-dir DIR] [--node NAME]\n"
    "Checks this machine's part of an installation: OK, WARN or FAIL, and what to change. Exit status 1 on "
    "FAIL.\n";

namespace {

constexpr int kScontrolMs = 12000; ///< scontrol itself gives up after about 10 s

Findings check_slurm(const std::string &scontrol, const std::string &slurm_conf)
{
    const std::atomic<bool> never{false};
    std::vector<std::string> environment;
    if (!slurm_conf.empty())
        environment.push_back("SLURM_CONF=" + slurm_conf);
    const agent::CommandResult shown =
        agent::run_command({scontrol, "show", "config"}, environment, kScontrolMs, never);
    if (shown.status != 0)
        return {{Result::fail, "slurm",
                 "`" + scontrol + " show config` fails: " + shown.output.substr(0, shown.output.find('\n')),
                 "start slurmctld, or run this where Slurm's commands work"}};
    return check_slurm_config(shown.output);
}

Findings check_configuration(const Where &where, std::shared_ptr<const config::Config> *ret_config)
{
    std::string why;
    *ret_config = config::load_config(&why, where.config);
    if (!*ret_config)
        return {{Result::fail, "configuration", why, "correct it; jigsaw.yaml(5) has the keys"}};
    Findings findings = {{Result::ok, "configuration", where.config + " can be read", ""}};
    if ((*ret_config)->gpu_memory.empty())
        findings.push_back({Result::warn, "configuration",
                            "gpu_memory is empty: GPU memory is not checked before jobs share",
                            "give the bytes of each GPU type in " + where.config});
    return findings;
}

/// A folder or socket of jigsawd: its owner and mode.
Finding check_mode(const std::string &path, mode_t wanted, std::uint32_t owner)
{
    struct stat status{};
    char text[8];
    std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(wanted));
    if (lstat(path.c_str(), &status) != 0)
        return {errno == EACCES ? Result::warn : Result::fail, "folders", path + ": " + std::strerror(errno),
                errno == EACCES ? "run this as root" : "start jigsawd"};
    if ((status.st_mode & 07777) != wanted || status.st_uid != owner)
        return {Result::fail, "folders", path + " is not of mode " + text + " and uid " + std::to_string(owner),
                "stop jigsawd, remove the folder, start jigsawd"};
    return {Result::ok, "folders", path + " has mode " + text, ""};
}

Findings check_agent(const Endpoint &endpoint, const std::string &run_dir)
{
    std::string version, why;
    if (!fetch_version(&version, &why, endpoint))
        return {{Result::fail, "jigsawd", "node " + endpoint.node + ": " + why,
                 "systemctl restart jigsawd; its log says more"}};
    Findings findings = {
        {Result::ok, "jigsawd", "node " + endpoint.node + ": version " + version + " answers", ""}};
    if (version != kVersion)
        findings.push_back({Result::warn, "versions", "jigsawd is " + version + ", this command is " + kVersion,
                            "install the same version of both and restart jigsawd"});
    const config::NodePaths paths = config::node_paths(run_dir, endpoint.node);
    struct stat status{};
    const std::uint32_t owner = stat(paths.socket.c_str(), &status) == 0 ? status.st_uid : 0;
    findings.push_back(check_mode(paths.base, 0755, owner));
    findings.push_back(check_mode(paths.jobs, 0700, owner));
    findings.push_back(check_mode(paths.socket, 0666, owner));
    return findings;
}

Findings check_agents(Where where, const config::Config *config)
{
    if (where.run_dir.empty())
        where.run_dir = config ? config->run_dir : config::Config().run_dir;
    std::string why;
    const std::vector<Endpoint> endpoints = find_endpoints(&why, where);
    if (endpoints.empty())
        return {{Result::fail, "jigsawd", why, "on a GPU node: systemctl enable --now jigsawd"}};
    Findings findings;
    for (const Endpoint &endpoint : endpoints) {
        const Findings more = check_agent(endpoint, where.run_dir);
        findings.insert(findings.end(), more.begin(), more.end());
    }
    return findings;
}

Findings check_kernel()
{
    Findings findings;
    const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
    const int memfd = memfd_create("jigsaw-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const bool seals =
        memfd >= 0 && fcntl(memfd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0;
    if (pidfd >= 0 && seals)
        findings.push_back({Result::ok, "kernel", "pidfd and sealed memfd work", ""});
    if (pidfd < 0)
        findings.push_back({Result::fail, "kernel", std::string("pidfd_open: ") + std::strerror(errno),
                            "Linux 5.3 or newer is needed"});
    if (!seals)
        findings.push_back({Result::fail, "kernel", "memfd with F_SEAL_FUTURE_WRITE does not work",
                            "Linux 5.1 or newer is needed"});
    close(pidfd);
    close(memfd);
    return findings;
}

void print(const Findings &findings)
{
    static constexpr const char *kWords[] = {"OK  ", "WARN", "FAIL"};
    for (const Finding &finding : findings) {
        std::printf("%s  %s: %s\n", kWords[static_cast<int>(finding.result)], finding.subject.c_str(),
                    finding.text.c_str());
        if (!finding.remedy.empty())
            std::printf("      -> %s\n", finding.remedy.c_str());
    }
}

void print_json(const Findings &findings)
{
    static constexpr const char *kWords[] = {"ok", "warn", "fail"};
    for (const Finding &finding : findings) {
        agent::Json json;
        json.object().field("result", kWords[static_cast<int>(finding.result)]).field("subject", finding.subject);
        std::puts(json.field("text", finding.text).field("remedy", finding.remedy).end().text().c_str());
    }
}

} // namespace

int run_doctor(const Arguments &arguments)
{
    Where where;
    bool json = false;
    std::string scontrol;
    int status = kOk;
    OptionReader reader(arguments, kDoctorUsage);
    if (!reader.where(&where).flag("--json", &json).value("--scontrol", &scontrol).read(&status))
        return status;
    std::shared_ptr<const config::Config> config;
    Findings findings = check_configuration(where, &config);
    if (scontrol.empty())
        scontrol = config ? config->scontrol : "scontrol";
    for (const Findings &more : {check_slurm(scontrol, config ? config->slurm_conf : ""),
                                 check_agents(where, config.get()), check_kernel()})
        findings.insert(findings.end(), more.begin(), more.end());
    json ? print_json(findings) : print(findings);
    return has_failed(findings) ? kFailed : kOk;
}

} // namespace jigsaw::cli
