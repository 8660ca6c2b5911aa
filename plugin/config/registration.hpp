// SPDX-License-Identifier: Apache-2.0
// The record that the prolog leaves for jigsawd: <run_dir>/<node>/jobs/<job_id>.<restart_count>, text, one key=value per
// line, written whole (rename) by root in a folder of mode 0700.
#ifndef JIGSAW_CONFIG_REGISTRATION_HPP
#define JIGSAW_CONFIG_REGISTRATION_HPP

#include "plugin/core/job.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::config {

struct Registration {
    core::JobId job_id = 0;
    std::uint32_t restart_count = 0;
    std::uint32_t uid = 0;
    std::vector<int> gpus;       ///< indices on this node, from SLURM_JOB_GPUS
    core::SpbRequest spb;
    std::string token_sha256;    ///< hex, of the job token
    std::int64_t start_s = 0;    ///< wall clock of the prolog
};

std::string format_registration(const Registration &record);
/// Validates everything; false: one line in *ret_why ("line: key: what is wrong"), *ret_record untouched.
bool parse_registration(Registration *ret_record, std::string *ret_why, const std::string &text);
/// A list of GPU indices as Slurm writes SLURM_JOB_GPUS ("0,1,3" or "0-3,7"), ascending and each once; "" is no GPU.
bool parse_gpu_list(std::vector<int> *ret_gpus, const std::string &text);
std::string format_gpu_list(const std::vector<int> &gpus);
/// "<job_id>.<restart_count>" and back.
std::string registration_file_name(core::JobId job_id, std::uint32_t restart_count);
bool parse_registration_file_name(core::JobId *ret_job_id, std::uint32_t *ret_restart, const std::string &name);

/// <run_dir>/<node>, .../jobs, .../tokens, .../socket, .../lock, .../log; run_dir "/run/jigsaw" unless configured.
struct NodePaths {
    std::string base, jobs, tokens, socket, lock, log;
};
/// Throws std::invalid_argument for a node name that is no plain word (it becomes a folder) or a relative run_dir.
NodePaths node_paths(const std::string &run_dir, const std::string &node_name);

/// 32 random bytes as hex; throws std::system_error. SHA-256 of a text as hex.
std::string make_token();
std::string sha256_hex(const std::string &text);

} // namespace jigsaw::config
#endif
