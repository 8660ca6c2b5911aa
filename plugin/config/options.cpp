// SPDX-License-Identifier: Apache-2.0
// See options.hpp. A row of spb_options.def names its setter here; everything else goes over the table.
#include "plugin/config/options.hpp"

#include "plugin/config/text.hpp"

#include <limits>
#include <map>

namespace jigsaw::config {
namespace {

constexpr std::uint64_t kMebibyte = 1ULL << 20;
constexpr std::uint64_t kTebibyte = 1ULL << 40;
const std::string kOptionPrefix = "_SLURM_SPANK_OPTION_jigsaw_";
const std::string kScriptPrefix = "SPANK_";
const std::string kAbsent = "(null)"; // what xstrfmtcat makes of NULL in sbatch's spank_set_job_env()

struct PolicyWord {
    const char *word;
    plan::Policy policy;
};
constexpr PolicyWord kPolicyWords[] = {
    {"two-level", plan::Policy::two_level},
    {"rotate", plan::Policy::rotate},
    {"shuffle", plan::Policy::shuffle},
    {"fixed", plan::Policy::fixed},
    {"uniform", plan::Policy::uniform},
};

using Setter = bool (*)(core::SpbRequest *request, const std::string &value);

bool set_mode(core::SpbRequest *request, const std::string &value)
{
    std::uint64_t levels = 0;
    core::SpbMode mode = core::SpbMode::automatic;
    if (value == "off")
        mode = core::SpbMode::off;
    else if (value == "full")
        mode = core::SpbMode::full;
    else if (parse_whole(&levels, value, 2, 16))
        mode = core::SpbMode::levels;
    else if (value != "auto" && !value.empty() && value != kAbsent)
        return false;
    request->mode = mode;
    request->levels = static_cast<std::uint32_t>(levels);
    return true;
}

bool set_policy(core::SpbRequest *request, const std::string &value)
{
    for (const PolicyWord &row : kPolicyWords)
        if (value == row.word) {
            request->policy = row.policy;
            return true;
        }
    return false;
}

bool set_warmup(core::SpbRequest *request, const std::string &value)
{
    return parse_whole(&request->warmup_iterations, value, 0, 1000000000);
}

bool set_min_depth(core::SpbRequest *request, const std::string &value)
{
    return parse_fraction(&request->min_depth_fraction, value, 0, 1);
}

bool set_share(core::SpbRequest *request, const std::string &value)
{
    std::uint64_t jobs = 1;
    if (value != "no" && !parse_whole(&jobs, value, 2, 8))
        return false;
    request->max_share = static_cast<std::uint32_t>(jobs);
    return true;
}

bool set_memory(core::SpbRequest *request, const std::string &value)
{
    std::uint64_t bytes = 0;
    if (!parse_size(&bytes, value) || bytes < kMebibyte || bytes > 16 * kTebibyte)
        return false;
    request->memory_bytes = bytes;
    return true;
}

bool set_weight(core::SpbRequest *request, const std::string &value)
{
    return parse_fraction(&request->weight, value, 0.1, 10);
}

bool set_profile(core::SpbRequest *request, const std::string &value)
{
    if (!is_plain_word(value, 64))
        return false;
    request->profile_key = value;
    return true;
}

/// In the order of spb_option_table().
const Setter kSetters[] = {
#define SPB_OPTION(setter, ...) setter,
#include "plugin/config/spb_options.def"
#undef SPB_OPTION
};

const OptionRow *find_row(const std::string &name)
{
    for (const OptionRow &row : spb_option_table())
        if (name == row.name)
            return &row;
    return nullptr;
}

std::string without_script_prefix(const std::string &entry)
{
    const bool prefixed = entry.compare(0, kScriptPrefix.size(), kScriptPrefix) == 0;
    return prefixed ? entry.substr(kScriptPrefix.size()) : entry;
}

bool starts_with(const std::string &text, const std::string &prefix)
{
    return text.compare(0, prefix.size(), prefix) == 0;
}

/// Option name -> value of every entry that carries one.
bool collect(std::map<std::string, std::string> *ret_values, std::string *ret_why, const std::vector<std::string> &entries)
{
    std::map<std::string, std::string> by_variable, values;
    for (const OptionRow &row : spb_option_table())
        by_variable[spank_environment_name(row.name)] = row.name;
    for (const std::string &entry : entries) {
        if (!is_option_entry(entry))
            continue;
        const std::string plain = without_script_prefix(entry);
        const std::size_t equals = plain.find('=');
        const auto known = by_variable.find(plain.substr(0, equals));
        if (equals == std::string::npos || known == by_variable.end()) {
            *ret_why = shown(entry) + ": carries no option of ours";
            return false;
        }
        const std::string value = plain.substr(equals + 1);
        const auto [at, fresh] = values.emplace(known->second, value);
        if (!fresh && at->second != value) {
            *ret_why = "--" + at->first + ": given twice, as " + shown(at->second) + " and " + shown(value);
            return false;
        }
    }
    *ret_values = std::move(values);
    return true;
}

/// Set them all, --spb among them.
bool set_all(core::SpbRequest *ret_request, std::string *ret_why, const std::map<std::string, std::string> &values)
{
    core::SpbRequest request;
    for (const auto &[name, value] : values)
        if (!set_spb_option(&request, ret_why, name, value))
            return false;
    if (!values.empty() && values.count("spb") == 0) {
        *ret_why = option_needs_spb(values.begin()->first, values.begin()->second);
        return false;
    }
    *ret_request = request;
    return true;
}

std::string mode_word(const core::SpbRequest &request)
{
    switch (request.mode) {
    case core::SpbMode::off: return "off";
    case core::SpbMode::automatic: return "auto";
    case core::SpbMode::full: return "full";
    case core::SpbMode::levels: return std::to_string(request.levels);
    }
    return "off";
}

std::string policy_word(plan::Policy policy)
{
    for (const PolicyWord &row : kPolicyWords)
        if (policy == row.policy)
            return row.word;
    return kPolicyWords[0].word;
}

} // namespace

const std::vector<OptionRow> &spb_option_table()
{
    constexpr bool required = true, optional = false;
    static const std::vector<OptionRow> table = {
#define SPB_OPTION(setter, name, arginfo, argument, allowed, fallback, usage)                                              \
    {name, arginfo, usage, argument, allowed, fallback},
#include "plugin/config/spb_options.def"
#undef SPB_OPTION
    };
    return table;
}

bool set_spb_option(core::SpbRequest *request, std::string *ret_why, const std::string &name, const std::string &value)
{
    const OptionRow *row = find_row(name);
    if (row == nullptr) {
        *ret_why = "--" + shown(name) + ": no such option";
        return false;
    }
    const auto index = static_cast<std::size_t>(row - spb_option_table().data());
    core::SpbRequest changed = *request;
    if (!kSetters[index](&changed, value)) {
        *ret_why = "--" + name + "=" + shown(value) + ": allowed: " + row->allowed;
        return false;
    }
    *request = changed;
    return true;
}

bool parse_spank_environment(core::SpbRequest *ret_request, std::string *ret_why, const std::vector<std::string> &entries)
{
    std::map<std::string, std::string> values;
    return collect(&values, ret_why, entries) && set_all(ret_request, ret_why, values);
}

std::string spank_environment_name(const std::string &option)
{
    std::string name = kOptionPrefix;
    for (char c : option) {
        const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        name += plain ? c : '_';
    }
    return name;
}

bool is_option_entry(const std::string &entry)
{
    return starts_with(without_script_prefix(entry), kOptionPrefix);
}

bool is_our_entry(const std::string &entry)
{
    return is_option_entry(entry) || starts_with(without_script_prefix(entry), "JIGSAW_") ||
           starts_with(without_script_prefix(without_script_prefix(entry)), "JIGSAW_");
}

std::string option_needs_spb(const std::string &name, const std::string &value)
{
    return "--" + name + "=" + shown(value) + ": means nothing without --spb; add --spb";
}

std::string format_request(const core::SpbRequest &request)
{
    const core::SpbRequest usual;
    std::string text = "spb=" + mode_word(request);
    if (request.policy != usual.policy)
        text += " spb-policy=" + policy_word(request.policy);
    if (request.warmup_iterations != usual.warmup_iterations)
        text += " spb-warmup=" + std::to_string(request.warmup_iterations);
    if (request.min_depth_fraction != usual.min_depth_fraction)
        text += " spb-min-depth=" + format_fraction(request.min_depth_fraction);
    if (request.max_share != usual.max_share)
        text += " spb-share=" + (request.max_share == 1 ? std::string("no") : std::to_string(request.max_share));
    if (request.memory_bytes != usual.memory_bytes)
        text += " spb-mem=" + format_size(request.memory_bytes);
    if (request.weight != usual.weight)
        text += " spb-weight=" + format_fraction(request.weight);
    if (request.profile_key != usual.profile_key)
        text += " spb-profile=" + request.profile_key;
    return text;
}

bool parse_request(core::SpbRequest *ret_request, std::string *ret_why, const std::string &text)
{
    std::map<std::string, std::string> values;
    for (const std::string &word : split(text, ' ')) {
        const std::size_t equals = word.find('=');
        if (equals == std::string::npos) {
            *ret_why = "'" + shown(word) + "': not of the form option=value";
            return false;
        }
        if (!values.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
            *ret_why = "--" + shown(word.substr(0, equals)) + ": given twice";
            return false;
        }
    }
    return set_all(ret_request, ret_why, values);
}

bool parse_size(std::uint64_t *ret_bytes, const std::string &text)
{
    static const std::string suffixes = "KMGT";
    if (text.empty())
        return false;
    unsigned shift = 0;
    std::string digits = text;
    const char last = text.back() >= 'a' && text.back() <= 'z' ? static_cast<char>(text.back() - 'a' + 'A') : text.back();
    if (const std::size_t at = suffixes.find(last); at != std::string::npos) {
        shift = static_cast<unsigned>(10 * (at + 1));
        digits.pop_back();
    }
    std::uint64_t value = 0;
    if (!parse_whole(&value, digits, 0, std::numeric_limits<std::uint64_t>::max() >> shift))
        return false;
    *ret_bytes = value << shift;
    return true;
}

std::string format_size(std::uint64_t bytes)
{
    static const char suffixes[] = "TGMK";
    for (unsigned i = 0; i < 4 && bytes > 0; ++i) {
        const unsigned shift = 40 - 10 * i;
        if ((bytes & ((1ULL << shift) - 1)) == 0)
            return std::to_string(bytes >> shift) + suffixes[i];
    }
    return std::to_string(bytes);
}

} // namespace jigsaw::config
