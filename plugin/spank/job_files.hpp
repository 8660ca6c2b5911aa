// SPDX-License-Identifier: Apache-2.0
// What prolog, epilog and tasks do with the node's run folder: record and token of a job appear, are used and disappear,
// and jigsawd is told. Knows no Slurm: the environment comes as text, so all of it is tested without a cluster.
//
// Nothing here may cost a job or a node: every failure is one log line and means that the job runs without sharing.
#ifndef JIGSAW_SPANK_JOB_FILES_HPP
#define JIGSAW_SPANK_JOB_FILES_HPP

#include "plugin/config/registration.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace jigsaw::spank {

/// Takes one line.
using Log = std::function<void(const std::string &line)>;
/// "NAME=value", as in environ.
using Environment = std::vector<std::string>;

/// The value of a variable, "" when it is absent.
std::string value_of(const Environment &environment, const std::string &name);

/// Prolog, as root: a job that shares gets its token (tokens/JOB.RESTART, 0600) and its record (jobs/JOB.RESTART), both
/// written whole; then jigsawd is rung. Done twice it changes nothing. What an earlier run of the job left goes.
void run_prolog(const Environment &environment, const std::string &run_dir, const Log &log);

/// Epilog, as root: record and token go, then jigsawd is told. Done twice, or for a job that never shared, it does nothing.
void run_epilog(const Environment &environment, const std::string &run_dir, const Log &log);

/// What a task of this job gets: JIGSAW_SOCKET, JIGSAW_JOB, JIGSAW_RESTART, JIGSAW_STEP, JIGSAW_TOKEN; empty for a job that
/// does not share here. Needs root, for the token. The restart count is that of the token's file, of which the prolog
/// leaves one: Slurm 22.05 does not know it in a step (S_SLURM_RESTART_COUNT is always 0, nothing sets restart_cnt).
std::vector<std::pair<std::string, std::string>> task_variables(const config::NodePaths &paths, core::JobId job_id,
                                                                std::uint32_t step_id);

} // namespace jigsaw::spank
#endif
