// SPDX-License-Identifier: Apache-2.0
// jigsaw doctor: looks at everything that has to be right for sharing, one line each, with what to change.
#include "plugin/agent/command.hpp"
#include "plugin/agent/json.hpp"
#include "plugin/agent/version.hpp"
#include "plugin/cli/checks.hpp"
#include "plugin/cli/command.hpp"
#include "plugin/config/config.hpp"

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
#include <filesystem>
#include <iterator>
#include <sstream>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace jigsaw::cli {

const char *const kDoctorUsage =
    "usage: jigsaw doctor [--json] [--scontrol PROGRAM] " JIGSAW_CLI_WHERE "\n"
    "Checks this machine's part of an installation: OK, WARN or FAIL, and what to change. Exit status 1 on "
    "FAIL.\n"
    "  --json              one object per check and line: result, subject, text, remedy\n"
    "  --scontrol PROGRAM  instead of scontrol of the configuration\n";

namespace {

constexpr int kScontrolMs = 12000; ///< scontrol itself gives up after about 10 s

/// How this machine's Slurm is asked.
struct Scontrol {
    std::string program, slurm_conf;

    agent::CommandResult run(const std::vector<std::string> &arguments) const
    {
        const std::atomic<bool> never{false};
        std::vector<std::string> words = {program}, environment;
        words.insert(words.end(), arguments.begin(), arguments.end());
        if (!slurm_conf.empty())
            environment.push_back("SLURM_CONF=" + slurm_conf);
        return agent::run_command(words, environment, kScontrolMs, never);
    }
};

Findings check_slurm(const Scontrol &scontrol, const std::string &run_dir)
{
    const agent::CommandResult shown = scontrol.run({"show", "config"});
    if (shown.status != 0)
        return {{Result::fail, "slurm",
                 "`" + scontrol.program + " show config` fails: " + shown.output.substr(0, shown.output.find('\n')),
                 "start slurmctld, or run this where Slurm's commands work"}};
    return check_slurm_config(shown.output, run_dir);
}

Findings check_configuration(const Where &where, std::shared_ptr<const config::Config> *ret_config)
{
    std::string why;
    *ret_config = load_config(&why, where);
    if (!*ret_config)
        return {{Result::fail, "configuration", why, "correct it; jigsaw.yaml(5) has the keys"}};
    const std::string &path = where.config_path();
    const bool there = access(path.c_str(), F_OK) == 0;
    Findings findings = {{Result::ok, "configuration", path + (there ? " can be read" : " is not there: defaults"), ""}};
    if ((*ret_config)->gpu_memory.empty())
        findings.push_back({Result::warn, "configuration",
                            "gpu_memory is empty: GPU memory is not checked before jobs share",
                            "give the bytes of each GPU type in " + path});
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

/// `systemctl VERB jigsawd`, where it knows the unit. A package puts it where systemd looks; make install with another prefix
/// does not.
std::string systemctl_remedy(const std::string &verb)
{
    for (const char *folder : {"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system",
                               "/usr/lib/systemd/system", "/lib/systemd/system"}) {
        if (access((std::string(folder) + "/jigsawd.service").c_str(), R_OK) == 0)
            return "systemctl " + verb + " jigsawd";
    }
    return "cp " JIGSAW_DOCDIR "/jigsawd.service /etc/systemd/system/ && systemctl daemon-reload && "
           "systemctl enable --now jigsawd";
}

Findings check_agent(const Endpoint &endpoint)
{
    std::string version, why;
    if (!fetch_version(&version, &why, endpoint))
        return {{Result::fail, "jigsawd", endpoint.line(why), systemctl_remedy("restart") + "; its log says more"}};
    Findings findings = {{Result::ok, "jigsawd", endpoint.title() + ": version " + version + " answers", ""}};
    if (version != kVersion)
        findings.push_back({Result::warn, "versions", "jigsawd is " + version + ", this command is " + kVersion,
                            "install the same version of both and restart jigsawd"});
    struct stat status{};
    const std::uint32_t owner = stat(endpoint.socket.c_str(), &status) == 0 ? status.st_uid : 0;
    const std::string base = std::filesystem::path(endpoint.socket).parent_path(); // config::NodePaths
    findings.push_back(check_mode(base, 0755, owner));
    findings.push_back(check_mode(base + "/jobs", 0700, owner));
    findings.push_back(check_mode(endpoint.socket, 0666, owner));
    return findings;
}

/// Why no jigsawd belongs on this machine; "": one does, or nobody can tell. `scontrol show aliases` names the nodes that are
/// this machine (slurm.conf knows them, slurmctld is not asked).
std::string why_no_agent(const Scontrol &scontrol)
{
    const agent::CommandResult names = scontrol.run({"show", "aliases"});
    std::istringstream words(names.output);
    std::string all, name;
    while (words >> name)
        all += (all.empty() ? "" : ",") + name;
    if (names.status != 0)
        return "";
    if (all.empty())
        return "this machine is no node of the cluster";
    const agent::CommandResult nodes = scontrol.run({"-o", "show", "node", all});
    if (nodes.status != 0 || nodes.output.find("Gres=gpu") != std::string::npos ||
        nodes.output.find(",gpu:") != std::string::npos)
        return "";
    return "node " + all + " has no GPU in slurm.conf";
}

Findings check_agents(const Where &where, const std::string &run_dir, const Scontrol &scontrol)
{
    Where asked = where;
    asked.config.clear(); // has been read, or has failed, already
    if (asked.socket.empty())
        asked.run_dir = run_dir;
    std::string why;
    const std::vector<Endpoint> endpoints = find_endpoints(&why, asked);
    if (endpoints.empty()) {
        const std::string not_here = why_no_agent(scontrol);
        if (!not_here.empty())
            return {{Result::warn, "jigsawd", "none here, and " + not_here, "run this on the GPU nodes, too"}};
        return {{Result::fail, "jigsawd", "no socket below " + run_dir, "on a GPU node: " + systemctl_remedy("enable --now")}};
    }
    Findings findings;
    for (const Endpoint &endpoint : endpoints) {
        const Findings more = check_agent(endpoint);
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
    std::string program;
    int status = kOk;
    OptionReader reader("doctor", arguments, kDoctorUsage);
    if (!reader.where(&where).flag("--json", &json).value("--scontrol", &program).read(&status))
        return status;
    std::shared_ptr<const config::Config> config;
    Findings findings = check_configuration(where, &config);
    if (!config)
        config = std::make_shared<config::Config>();
    const Scontrol scontrol{program.empty() ? config->scontrol : program, config->slurm_conf};
    const std::string run_dir = where.run_dir.empty() ? config->run_dir : where.run_dir;
    for (const Findings &more : {check_slurm(scontrol, run_dir), check_agents(where, run_dir, scontrol), check_kernel()})
        findings.insert(findings.end(), more.begin(), more.end());
    json ? print_json(findings) : print(findings);
    return has_failed(findings) ? kFailed : kOk;
}

} // namespace jigsaw::cli
