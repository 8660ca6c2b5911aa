// SPDX-License-Identifier: Apache-2.0
// Slurm's side of an installation.
#include "plugin/cli/checks.hpp"

#include "plugin/cli/plugin_file.hpp"
#include "plugin/config/config.hpp"

#include <glob.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
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

struct SlurmPlugins {
    std::string folders; ///< PluginDir
    std::string version; ///< of the Slurm in use
};

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

/// "22.05.8" as SLURM_VERSION_NUMBER, 0x160508; 0: not of that form.
std::uint32_t version_number(const std::string &version)
{
    unsigned major = 0, minor = 0, micro = 0;
    if (std::sscanf(version.c_str(), "%3u.%3u.%3u", &major, &minor, &micro) != 3)
        return 0;
    return major << 16 | minor << 8 | micro;
}

std::string version_text(std::uint32_t number)
{
    char text[32];
    std::snprintf(text, sizeof text, "%u.%02u.%u", number >> 16, number >> 8 & 0xff, number & 0xff);
    return text;
}

/// The first that is there, as Slurm looks; "" when none is.
std::string find_plugin(const std::string &folders, const std::string &file)
{
    if (!file.empty() && file[0] == '/')
        return access(file.c_str(), F_OK) == 0 ? file : "";
    std::istringstream list(folders);
    for (std::string folder; std::getline(list, folder, ':');) {
        if (access((folder + "/" + file).c_str(), F_OK) == 0)
            return folder + "/" + file;
    }
    return "";
}

/// Would Slurm take this plugin? It compares versions to the micro release, but of SPANK plugins major and minor only
/// (plugin.c, _verify_syms()).
Finding check_plugin(const SlurmPlugins &plugins, const std::string &file, const std::string &type)
{
    const std::string path = find_plugin(plugins.folders, file);
    if (path.empty())
        return {Result::fail, "plugins", file[0] == '/' ? file + " is not there" : file + " is in none of PluginDir=" + plugins.folders,
                "make install on this machine, or add its folder to PluginDir in slurm.conf"};
    PluginFile found;
    std::string why;
    if (!read_plugin_file(&found, &why, path))
        return {Result::fail, "plugins", path + " " + why, "make install anew on this machine"};
    if (found.type != type)
        return {Result::fail, "plugins", path + " is " + found.type + ", not " + type, "make install anew on this machine"};
    const std::uint32_t mask = type == "spank" ? 0xffff00 : 0xffffff, wanted = version_number(plugins.version);
    if (wanted == 0)
        return {Result::warn, "plugins", path + " is for Slurm " + version_text(found.version) + ", and scontrol does not say which Slurm this is",
                "compare it with `slurmctld -V`"};
    if ((found.version & mask) != (wanted & mask))
        return {Result::fail, "plugins", path + " is for Slurm " + version_text(found.version) + ", but Slurm is " + plugins.version,
                "build JigSaw anew against Slurm " + plugins.version + " (--with-slurm-source) and make install"};
    return {Result::ok, "plugins", path + " is for Slurm " + version_text(found.version), ""};
}

/// select/cons_tres_jigsaw is select_cons_tres_jigsaw.so.
std::string file_of_type(std::string type)
{
    std::replace(type.begin(), type.end(), '/', '_');
    return type + ".so";
}

std::vector<std::string> included_files(std::string pattern, const std::string &conf)
{
    if (pattern[0] != '/') // Slurm looks beside the file that includes (plugstack.c, _spank_conf_include())
        pattern = std::filesystem::path(conf).parent_path() / pattern;
    std::vector<std::string> files;
    glob_t found{};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
        files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    return files;
}

/// run_dir as spank_jigsaw finds it (plugin.cpp, run_dir_of()).
std::string run_dir_of(const SpankLine &line)
{
    std::string config_path = config::kDefaultConfigPath, why;
    for (const std::string &argument : line.arguments) {
        if (argument.rfind("run_dir=", 0) == 0 && argument.size() > 8)
            return argument.substr(8);
    }
    for (const std::string &argument : line.arguments) {
        if (argument.rfind("config=", 0) == 0 && argument.size() > 7) {
            config_path = argument.substr(7);
            break;
        }
    }
    const auto config = config::load_config(&why, config_path);
    return config ? config->run_dir : config::Config().run_dir;
}

/// The same folder, by whatever name.
bool is_same_folder(const std::string &a, const std::string &b)
{
    std::error_code ignored;
    const auto plain = [&](const std::string &path) {
        const auto resolved = std::filesystem::weakly_canonical(path, ignored);
        return resolved.has_filename() ? resolved : resolved.parent_path();
    };
    return plain(a) == plain(b);
}

} // namespace

/// plugstack.conf(5): "required|optional|include PATH ARGUMENTS", '#' comments.
std::optional<SpankLine> find_spank_line(const std::string &path, int depth)
{
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line.substr(0, line.find('#')));
        std::string kind, what;
        words >> kind >> what;
        if (what.empty())
            continue;
        if (kind == "include" && depth < 8) {
            for (const std::string &included : included_files(what, path)) {
                if (auto found = find_spank_line(included, depth + 1))
                    return found;
            }
        }
        if ((kind == "optional" || kind == "required") && what.find("spank_jigsaw") != std::string::npos) {
            SpankLine found{path, what, {}};
            for (std::string argument; words >> argument;)
                found.arguments.push_back(argument);
            return found;
        }
    }
    return std::nullopt;
}

Finding check_plugstack(const std::string &path)
{
    if (const auto line = find_spank_line(path))
        return {Result::ok, "plugins", "spank_jigsaw stands in " + line->conf, ""};
    if (access(path.c_str(), R_OK) != 0)
        return {Result::fail, "plugins", path + " cannot be read: sbatch knows no --spb",
                "make it, on every machine, with the line: optional spank_jigsaw.so"};
    return {Result::fail, "plugins", "spank_jigsaw does not stand in " + path + ": sbatch knows no --spb",
            "add the line `optional spank_jigsaw.so` there, on every machine"};
}

Finding check_run_dir(const SpankLine &line, const std::string &run_dir)
{
    const std::string prologs = run_dir_of(line);
    if (is_same_folder(prologs, run_dir))
        return {Result::ok, "folders", "prologs and jigsawd meet in " + run_dir, ""};
    return {Result::fail, "folders",
            "prologs leave jobs in " + prologs + " (spank_jigsaw in " + line.conf + "), but jigsawd looks in " + run_dir,
            "one run_dir for both: in jigsaw.yaml, with run_dir= in plugstack.conf equal or left out"};
}

Findings check_slurm_config(const std::string &show_config, const std::string &run_dir)
{
    const auto value = [&](const char *key) { return config_value(show_config, key); };
    std::string plugstack = value("PlugStackConfig"); // printed since 18.08; else beside slurm.conf
    if (plugstack.empty()) {
        const std::string slurm_conf = value("SLURM_CONF");
        plugstack = slurm_conf.substr(0, slurm_conf.rfind('/') + 1) + "plugstack.conf";
    }
    const SlurmPlugins plugins{value("PluginDir"), value("SLURM_VERSION")};
    const Finding select = check_select(value("SelectType"));
    const std::string type = select.result == Result::ok ? value("SelectType") : "select/jigsaw";
    Findings findings = {select,
                         check_parameters(value("SelectTypeParameters")),
                         check_prolog(value("PrologFlags")),
                         check_proctrack(value("ProctrackType")),
                         check_gres(value("GresTypes")),
                         check_plugin(plugins, file_of_type(type), type),
                         check_plugstack(plugstack)};
    const auto line = find_spank_line(plugstack);
    findings.push_back(check_plugin(plugins, line ? line->file : "spank_jigsaw.so", "spank"));
    if (line)
        findings.push_back(check_run_dir(*line, run_dir));
    const std::string submit = value("JobSubmitPlugins");
    if (has_word(submit, "jigsaw") || has_word(submit, "job_submit/jigsaw")) {
        findings.push_back(check_plugin(plugins, "job_submit_jigsaw.so", "job_submit/jigsaw"));
        if (find_plugin(plugins.folders, "job_submit_jigsaw.so").empty())
            findings.back().result = Result::warn; // only slurmctld's machine needs it
    }
    return findings;
}

} // namespace jigsaw::cli
