// SPDX-License-Identifier: Apache-2.0
// What jigsaw doctor finds, and its checks of Slurm's configuration as `scontrol show config` prints it.
#ifndef JIGSAW_CLI_CHECKS_HPP
#define JIGSAW_CLI_CHECKS_HPP

#include <optional>
#include <string>
#include <vector>

namespace jigsaw::cli {

enum class Result { ok, warn, fail };

struct Finding {
    Result result;
    std::string subject, text;
    std::string remedy; ///< what to change; empty when all is well
};
using Findings = std::vector<Finding>;

bool has_failed(const Findings &findings);

/// Value of "Key   = value"; empty when there is none, or it is "(null)".
std::string config_value(const std::string &show_config, const std::string &key);
/// Is `word` one of the comma-separated words of `list` (case ignored)?
bool has_word(const std::string &list, const std::string &word);

/// SelectType, its parameters, PrologFlags, ProctrackType, GresTypes, plugins, plugstack. `run_dir`: jigsawd's.
Findings check_slurm_config(const std::string &show_config, const std::string &run_dir);

/// The line of plugstack.conf that loads spank_jigsaw.
struct SpankLine {
    std::string conf; ///< the file it stands in
    std::string file; ///< the plugin as it is named there
    std::vector<std::string> arguments;
};
/// In this plugstack.conf, or in what it includes.
std::optional<SpankLine> find_spank_line(const std::string &path, int depth = 0);
Finding check_plugstack(const std::string &path);
/// Do prologs leave their records where jigsawd looks?
Finding check_run_dir(const SpankLine &line, const std::string &run_dir);

} // namespace jigsaw::cli
#endif
