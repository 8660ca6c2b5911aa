// SPDX-License-Identifier: Apache-2.0
// The --spb options: one table (spb_options.def) makes the SPANK options, the help text, the man page's table and the
// parser that submit, select, prolog and jigsawd all use. Values in a job's environment were written by the client and
// are validated again by everybody.
#ifndef JIGSAW_CONFIG_OPTIONS_HPP
#define JIGSAW_CONFIG_OPTIONS_HPP

#include "plugin/core/job.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace jigsaw::config {

struct OptionRow {
    const char *name;     ///< "spb-policy"
    const char *arginfo;  ///< "two-level|rotate|shuffle|fixed", nullptr: none
    const char *usage;    ///< one sentence for --help and the man page
    bool has_argument;    ///< SPANK: argument required (--spb takes an optional one: see options.cpp)
    const char *fallback; ///< what its absence means, for the man page
};
const std::vector<OptionRow> &spb_option_table();

/// Set one option on a request. False: *ret_why is one line with the value and what is allowed; *request untouched.
bool set_spb_option(core::SpbRequest *request, std::string *ret_why, const std::string &name, const std::string &value);

/// All options of a job from its spank_job_env / environment entries ("NAME=value"). Unknown names of ours and bad values
/// are errors: false, *ret_why one line, *ret_request untouched. No --spb at all: mode off, true.
bool parse_spank_environment(core::SpbRequest *ret_request, std::string *ret_why, const std::vector<std::string> &entries);

/// The name under which Slurm carries an option: "_SLURM_SPANK_OPTION_jigsaw_spb_policy".
std::string spank_environment_name(const std::string &option);
/// Is this entry ours ("_SLURM_SPANK_OPTION_jigsaw_*", "SPANK_JIGSAW_*", "JIGSAW_*")?
bool is_our_entry(const std::string &entry);

/// Canonical "spb=auto spb-policy=two-level ..." of a request, and back; used by records and AdminComment.
std::string format_request(const core::SpbRequest &request);

/// "512M", "20G", "1T", bytes without suffix. Powers of 1024.
bool parse_size(std::uint64_t *ret_bytes, const std::string &text);
std::string format_size(std::uint64_t bytes);

} // namespace jigsaw::config
#endif
