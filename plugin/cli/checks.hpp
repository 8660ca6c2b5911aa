// SPDX-License-Identifier: Apache-2.0
// What jigsaw doctor finds, and its checks of Slurm's configuration as `scontrol show config` prints it.
#ifndef JIGSAW_CLI_CHECKS_HPP
#define JIGSAW_CLI_CHECKS_HPP

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

/// SelectType, its parameters, PrologFlags, ProctrackType, GresTypes, plugins, plugstack, version.
Findings check_slurm_config(const std::string &show_config);
/// Is spank_jigsaw in this plugstack.conf, or in what it includes?
Finding check_plugstack(const std::string &path);

} // namespace jigsaw::cli
#endif
