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
/// Validates everything; false: one line in *ret_why ("path:line: key: what is wrong" without the path).
bool parse_registration(Registration *ret_record, std::string *ret_why, const std::string &text);
/// "<job_id>.<restart_count>" and back.
std::string registration_file_name(core::JobId job_id, std::uint32_t restart_count);
bool parse_registration_file_name(core::JobId *ret_job_id, std::uint32_t *ret_restart, const std::string &name);

/// <run_dir>/<node>, .../jobs, .../tokens, .../socket; run_dir "/run/jigsaw" unless configured.
struct NodePaths {
    std::string base, jobs, tokens, socket, lock, log;
};
NodePaths node_paths(const std::string &run_dir, const std::string &node_name);

/// 32 random bytes as hex; throws std::system_error. SHA-256 of a text as hex.
std::string make_token();
std::string sha256_hex(const std::string &text);

} // namespace jigsaw::config
#endif
