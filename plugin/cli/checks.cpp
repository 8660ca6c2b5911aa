// SPDX-License-Identifier: Apache-2.0
// Slurm's side of an installation.
#include "plugin/cli/checks.hpp"

#include "plugin/agent/version.hpp"

#include <glob.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace jigsaw::cli {

bool has_failed(const Findings &findings)
{
    return std::any_of(findings.begin(), findings.end(),
                       [](const Finding &f) { return f.result == Result::fail; });
}

std::string config_value(const std::string &show_config, const std::string &key)
{
    std::istringstream lines(show_config);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t equals = line.find('=');
        if (line.compare(0, key.size(), key) != 0 || equals == std::string::npos ||
            line.find_first_not_of(' ', key.size()) != equals)
            continue;
        const std::size_t begin = line.find_first_not_of(' ', equals + 1);
        const std::size_t end = line.find_last_not_of(" \r");
        const std::string value = begin == std::string::npos ? "" : line.substr(begin, end - begin + 1);
        return value == "(null)" ? "" : value;
    }
    return "";
}

bool has_word(const std::string &list, const std::string &word)
{
    std::istringstream words(list);
    for (std::string found; std::getline(words, found, ',');) {
        if (strcasecmp(found.c_str(), word.c_str()) == 0)
            return true;
    }
    return false;
}

namespace {

Finding check_select(const std::string &type)
{
    if (type == "select/jigsaw" || type == "select/cons_tres_jigsaw")
        return {Result::ok, "slurm", "SelectType=" + type, ""};
    return {Result::fail, "slurm", "SelectType=" + type + ": jobs do not share",
            "SelectType=select/jigsaw in slurm.conf; restart slurmctld and every slurmd"};
}

Finding check_parameters(const std::string &parameters)
{
    for (const char *known :
         {"CR_CORE", "CR_CORE_MEMORY", "CR_CPU", "CR_CPU_MEMORY", "CR_SOCKET", "CR_SOCKET_MEMORY"}) {
        if (has_word(parameters, known))
            return {Result::ok, "slurm", "SelectTypeParameters=" + parameters, ""};
    }
    return {Result::warn, "slurm",
            "SelectTypeParameters=" + (parameters.empty() ? "(none)" : parameters) +
                ": whole nodes are allocated, so jobs seldom meet",
            "SelectTypeParameters=CR_Core_Memory (or CR_Core) in slurm.conf"};
}

Finding check_prolog(const std::string &flags)
{
    if (has_word(flags, "Alloc"))
        return {Result::ok, "slurm", "PrologFlags=" + flags, ""};
    return {Result::fail, "slurm",
            "PrologFlags=" + (flags.empty() ? "(none)" : flags) +
                ": only the batch node's prolog would see a job's options, so nothing is shared",
            "PrologFlags=Alloc in slurm.conf"};
}

/// linuxproc follows parents: a data loader whose parent was killed is lost to it, and while that child keeps the step's
/// output open slurmstepd waits 60 s (eio.c) before the job is over and its record goes.
Finding check_proctrack(const std::string &type)
{
    if (type != "proctrack/linuxproc")
        return {Result::ok, "slurm", "ProctrackType=" + (type.empty() ? "(none)" : type), ""};
    return {Result::warn, "slurm", "ProctrackType=" + type + ": children of a killed process live on and hold up its job's end for 60 s",
            "ProctrackType=proctrack/cgroup in slurm.conf"};
}

Finding check_gres(const std::string &types)
{
    if (has_word(types, "gpu"))
        return {Result::ok, "slurm", "GresTypes=" + types, ""};
    return {Result::fail, "slurm", "GresTypes=" + (types.empty() ? "(none)" : types) + ": no GPUs are known",
            "GresTypes=gpu in slurm.conf, and the GPUs in gres.conf"};
}

Finding check_plugin(const std::string &folders, const std::string &file)
{
    std::istringstream list(folders);
    for (std::string folder; std::getline(list, folder, ':');) {
        if (access((folder + "/" + file).c_str(), R_OK) == 0)
            return {Result::ok, "plugins", folder + "/" + file, ""};
    }
    return {Result::fail, "plugins", file + " is in none of PluginDir=" + folders,
            "make install on this machine, or add its folder to PluginDir in slurm.conf"};
}

#ifdef JIGSAW_SLURM_VERSION
Finding check_version(const std::string &version)
{
    const std::string built = JIGSAW_SLURM_VERSION;
    if (built.empty() || built == version)
        return {Result::ok, "versions", "Slurm " + version, ""};
    return {Result::fail, "versions", "Slurm is " + version + ", the plugins here were built for " + built,
            "build JigSaw anew against Slurm " + version + " (--with-slurm-source)"};
}
#endif

std::vector<std::string> included_files(const std::string &pattern)
{
    std::vector<std::string> files;
    glob_t found{};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
        files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    return files;
}

/// plugstack.conf(5): "required|optional|include PATH ARGUMENTS", '#' comments.
bool names_spank_jigsaw(const std::string &path, int depth)
{
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line.substr(0, line.find('#')));
        std::string kind, what;
        words >> kind >> what;
        if (kind == "include" && depth < 8) {
            for (const std::string &included : included_files(what)) {
                if (names_spank_jigsaw(included, depth + 1))
                    return true;
            }
        }
        if ((kind == "optional" || kind == "required") && what.find("spank_jigsaw") != std::string::npos)
            return true;
    }
    return false;
}

} // namespace

Finding check_plugstack(const std::string &path)
{
    if (names_spank_jigsaw(path, 0))
        return {Result::ok, "plugins", "spank_jigsaw stands in " + path, ""};
    if (access(path.c_str(), R_OK) != 0)
        return {Result::fail, "plugins", path + " cannot be read: sbatch knows no --spb",
                "make it, on every machine, with the line: optional spank_jigsaw.so"};
    return {Result::fail, "plugins", "spank_jigsaw does not stand in " + path + ": sbatch knows no --spb",
            "add the line `optional spank_jigsaw.so` there, on every machine"};
}

Findings check_slurm_config(const std::string &show_config)
{
    const auto value = [&](const char *key) { return config_value(show_config, key); };
    std::string plugstack = value("PlugStackConfig"); // printed since 18.08; else beside slurm.conf
    if (plugstack.empty()) {
        const std::string slurm_conf = value("SLURM_CONF");
        plugstack = slurm_conf.substr(0, slurm_conf.rfind('/') + 1) + "plugstack.conf";
    }
    Findings findings = {check_select(value("SelectType")),
                         check_parameters(value("SelectTypeParameters")),
                         check_prolog(value("PrologFlags")),
                         check_proctrack(value("ProctrackType")),
                         check_gres(value("GresTypes")),
                         check_plugin(value("PluginDir"), "select_jigsaw.so"),
                         check_plugin(value("PluginDir"), "spank_jigsaw.so"),
                         check_plugstack(plugstack)};
#ifdef JIGSAW_SLURM_VERSION
    findings.push_back(check_version(value("SLURM_VERSION")));
#endif
    return findings;
}

} // namespace jigsaw::cli
