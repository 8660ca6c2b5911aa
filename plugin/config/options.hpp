// SPDX-License-Identifier: Apache-2.0
// The --spb options: one table (spb_options.def) makes the SPANK options, the help text, the man page's table and the
// parser that submit, select, prolog and jigsawd all use. Values in a job's environment were written by the client and
// are validated again by everybody.
#ifndef JIGSAW_CONFIG_OPTIONS_HPP
#define JIGSAW_CONFIG_OPTIONS_HPP

#include "plugin/core/job.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::config {

struct OptionRow {
    const char *name;     ///< "spb-policy"
    const char *arginfo;  ///< "two-level|rotate|shuffle|fixed|uniform"
    const char *usage;    ///< one sentence for --help and the man page
    bool has_argument;    ///< an argument is required; false: it is optional (only --spb)
    const char *allowed;  ///< completes "--name=VALUE: allowed: ..."
    const char *fallback; ///< what its absence means, for the man page
};
const std::vector<OptionRow> &spb_option_table();

/// Set one option on a request. False: *ret_why is one line with the value and what is allowed; *request untouched.
/// The value of --spb may be absent: "" and "(null)" (Slurm's way to carry an absent value) mean auto.
bool set_spb_option(core::SpbRequest *request, std::string *ret_why, const std::string &name, const std::string &value);

/// All options of a job from its spank_job_env / environment entries ("NAME=value"). Unknown option names of ours, bad
/// values, an option twice with different values and options without --spb are errors: false, *ret_why one line,
/// *ret_request untouched. No option at all: mode off, true. Entries that carry no option are skipped.
bool parse_spank_environment(core::SpbRequest *ret_request, std::string *ret_why, const std::vector<std::string> &entries);

/// The name under which Slurm carries an option: "_SLURM_SPANK_OPTION_jigsaw_spb_policy" (each character that is no
/// letter or digit becomes '_': plugstack.c, _opt_env_name()).
std::string spank_environment_name(const std::string &option);
/// Is this entry ours ("_SLURM_SPANK_OPTION_jigsaw_*", "SPANK_JIGSAW_*", "JIGSAW_*"), with or without the "SPANK_" that
/// Slurm puts before all of them in prolog and epilog?
bool is_our_entry(const std::string &entry);
/// Is it one that carries an option ("[SPANK_]_SLURM_SPANK_OPTION_jigsaw_*")? The others of ours never come from a user.
bool is_option_entry(const std::string &entry);

/// "--spb-policy=rotate: needs --spb; add --spb": what is said when an option stands alone.
std::string option_needs_spb(const std::string &name, const std::string &value);

/// Canonical "spb=auto spb-policy=rotate ..." of a request, defaults left out; used by records and AdminComment.
std::string format_request(const core::SpbRequest &request);
/// And back. False: *ret_why is one line, *ret_request untouched.
bool parse_request(core::SpbRequest *ret_request, std::string *ret_why, const std::string &text);

/// "512M", "20G", "1T", bytes without suffix. Powers of 1024.
bool parse_size(std::uint64_t *ret_bytes, const std::string &text);
/// The shortest text that parse_size() reads back as the same number.
std::string format_size(std::uint64_t bytes);

} // namespace jigsaw::config
#endif
