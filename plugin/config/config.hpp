// SPDX-License-Identifier: Apache-2.0
// /etc/jigsaw/jigsaw.yaml -> an immutable Config. One table of keys (keys.def): key, type, unit, range, default, sentence;
// the parser, etc/jigsaw.yaml.example and jigsaw.yaml(5) come from it. Unknown keys are errors.
#ifndef JIGSAW_CONFIG_CONFIG_HPP
#define JIGSAW_CONFIG_CONFIG_HPP

#include "plugin/core/placement.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace jigsaw::config {

/// Overrides for a partition, QOS or account; unset: inherited.
struct SharingOverride {
    std::optional<bool> enabled;
    std::optional<std::uint32_t> max_jobs_per_gpu;
    std::optional<core::SharingScope> scope;
};

struct Config {
    std::string run_dir = "/run/jigsaw";
    core::SharingPolicy sharing;                     ///< the site's default
    std::map<std::string, SharingOverride> partitions, qos, accounts;
    std::map<std::string, std::uint64_t> gpu_memory; ///< bytes by GPU type; "*": any other
    /// Test hosts: GPU index -> CPU core that stands for it, by node name ("*": all nodes).
    std::map<std::string, std::map<int, int>> gpu_cores;
    double anticipation = 0;                         ///< share of a cycle a GPU may idle for an owed job, 0..0.05
    double extra_iterations = 1;                     ///< q of core::depth_pays, and of `sharing`
    std::string depth = "auto";                      ///< "auto" | "off": never direct partial depth
    std::string phases = "complement";               ///< "complement" | "same": control runs
    std::string turns = "on";                        ///< "on" | "off": control runs, gates stay open
    std::uint32_t lease_min_ms = 1000;
    std::string slurm_conf;                          ///< for scontrol; empty: the default
    std::string scontrol = "scontrol";
    std::uint32_t admin_comment_period_s = 60;       ///< 0: never
    std::uint64_t trace_events = 200000;             ///< turn log kept in memory
    std::string trace_file;                          ///< every event appended here too; empty: none
};

constexpr const char *kDefaultConfigPath = "/etc/jigsaw/jigsaw.yaml";

/// Parse text. nullptr on failure, with *ret_why "file:line:column: key: what is wrong".
std::shared_ptr<const Config> parse_config(std::string *ret_why, const std::string &text, const std::string &file);
/// Load a file; a missing file at the default path is the default configuration.
std::shared_ptr<const Config> load_config(std::string *ret_why, const std::string &path);

/// The policy for a job: partition, then QOS, then account override the default (so a partition can switch on what is off
/// by default); an override that says "off" wins over all others.
core::SharingPolicy policy_for(const Config &config, const std::string &partition, const std::string &qos,
                               const std::string &account);

} // namespace jigsaw::config
#endif
