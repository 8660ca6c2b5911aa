// SPDX-License-Identifier: GPL-2.0-or-later
// See profiles.hpp. The file "jigsaw_profiles": a line for the format, then one line per profile, the oldest first:
//     uid key forward_ms backward_ms network_ms memory_bytes run_s level_ms,level_ms,...
// where the last two may be missing: an earlier version wrote six words. "-" stands for levels that are not known.
#include "plugin/select/profiles.hpp"

#include "plugin/config/text.hpp"
#include "plugin/select/segment.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace jigsaw::select {
namespace {

constexpr std::size_t kMostProfiles = 10000;
constexpr double kLongestMs = 1e9, kMostBytes = 1e15, kLongestRun = 1e9, kLatest = 1e11;
constexpr std::size_t kLongestKey = 64;
const std::string kFormat = "jigsaw profiles 1";

/// Where the value of "name": begins; npos when there is none.
std::size_t value_of(const std::string &json, const std::string &name)
{
    const std::string key = "\"" + name + "\":";
    const std::size_t at = json.find(key);
    return at == std::string::npos ? at : at + key.size();
}

/// The number behind "name": in a JSON object of jigsawd's, in any of JSON's forms; `none` when there is none.
double number_of(const std::string &json, const std::string &name, double highest, double none = 0)
{
    const std::size_t begin = value_of(json, name);
    if (begin == std::string::npos || begin >= json.size() || json[begin] < '0' || json[begin] > '9')
        return none;
    double value = 0;
    const char *end = json.data() + json.size();
    const auto [stop, error] = std::from_chars(json.data() + begin, end, value);
    const bool whole = stop != end && (*stop == ',' || *stop == '}');
    return error == std::errc() && whole && value >= 0 && value <= highest ? value : none;
}

/// Ascending milliseconds, `separator` between them; empty when one is not.
std::vector<double> parse_levels(const std::string &text, char separator)
{
    constexpr std::size_t kMostLevels = 64;
    std::vector<double> levels;
    for (const std::string &word : config::split(text, separator)) {
        double ms = 0;
        if (levels.size() == kMostLevels || !config::parse_fraction(&ms, word, 0, kLongestMs) ||
            (!levels.empty() && ms < levels.back()))
            return {};
        levels.push_back(ms);
    }
    return levels;
}

/// Costs of levels whose last one, full depth, is `full_ms`.
std::vector<double> scaled(std::vector<double> levels, double full_ms)
{
    const double factor = levels.back() > 0 ? full_ms / levels.back() : 0;
    for (double &ms : levels)
        ms *= factor;
    levels.back() = full_ms;
    return levels;
}

bool parse_line(std::uint32_t *ret_uid, std::string *ret_key, core::Profile *ret_profile, const std::string &line)
{
    const std::vector<std::string> words = config::split(line, ' ');
    std::uint64_t uid = 0;
    double forward = 0, backward = 0, network = 0, memory = 0;
    if ((words.size() != 6 && words.size() != 8) || !config::parse_whole(&uid, words[0], 0, UINT32_MAX) ||
        !config::is_plain_word(words[1], kLongestKey) || !config::parse_fraction(&forward, words[2], 0, kLongestMs) ||
        !config::parse_fraction(&backward, words[3], 0, kLongestMs) ||
        !config::parse_fraction(&network, words[4], 0, kLongestMs) ||
        !config::parse_fraction(&memory, words[5], 0, kMostBytes))
        return false;
    *ret_uid = static_cast<std::uint32_t>(uid);
    *ret_key = words[1];
    ret_profile->forward_ms = forward;
    if (backward > 0)
        ret_profile->backward_ms_of_level = {backward};
    ret_profile->network_ms = network;
    ret_profile->memory_peak_bytes = static_cast<std::uint64_t>(memory);
    if (words.size() == 6)
        return true;
    if (!config::parse_fraction(&ret_profile->run_s, words[6], 0, kLongestRun))
        return false;
    if (words[7] == "-")
        return true;
    const std::vector<double> levels = parse_levels(words[7], ',');
    if (levels.empty() || !ret_profile->known())
        return false;
    ret_profile->backward_ms_of_level = scaled(levels, backward);
    return true;
}

std::string format_levels(const std::vector<double> &levels)
{
    if (levels.size() < 2)
        return "-";
    std::string text;
    for (double ms : levels)
        text += (text.empty() ? "" : ",") + config::format_fraction(ms);
    return text;
}

std::string format_line(std::uint32_t uid, const std::string &key, const core::Profile &profile)
{
    const double backward = profile.known() ? profile.backward_ms_of_level.back() : 0;
    return std::to_string(uid) + " " + key + " " + config::format_fraction(profile.forward_ms) + " " +
           config::format_fraction(backward) + " " + config::format_fraction(profile.network_ms) + " " +
           std::to_string(profile.memory_peak_bytes) + " " + config::format_fraction(profile.run_s) + " " +
           format_levels(profile.backward_ms_of_level) + "\n";
}

std::string file_of(const std::string &folder)
{
    return folder + "/jigsaw_profiles";
}

/// jigsawd's "lvl_ms":"4.1 30", where it fits the time of full depth; else full depth alone.
std::vector<double> level_costs(const std::string &json, double full_ms)
{
    const std::size_t begin = value_of(json, "lvl_ms");
    if (begin == std::string::npos || begin >= json.size() || json[begin] != '"')
        return {full_ms};
    const std::vector<double> levels = parse_levels(json.substr(begin + 1, json.find('"', begin + 1) - begin - 1), ' ');
    return levels.empty() || !(levels.back() > 0) ? std::vector<double>{full_ms} : scaled(levels, full_ms);
}

} // namespace

bool write_whole(const std::string &path, const std::string &text)
{
    const std::string fresh = path + ".new";
    FILE *file = fopen(fresh.c_str(), "we");
    if (!file)
        return false;
    const bool written = fwrite(text.data(), 1, text.size(), file) == text.size() && fflush(file) == 0 && fsync(fileno(file)) == 0;
    return (fclose(file) == 0) && written && rename(fresh.c_str(), path.c_str()) == 0;
}

Measured parse_measured(const std::string &admin_comment)
{
    const std::string json = find_segment(admin_comment);
    Measured measured;
    measured.misbehaving = json.find("\"misbehaving\":") != std::string::npos;
    measured.profile.forward_ms = number_of(json, "fwd_ms", kLongestMs);
    measured.profile.network_ms = number_of(json, "sync_ms", kLongestMs);
    if (const double backward = number_of(json, "bwd_ms", kLongestMs); backward > 0)
        measured.profile.backward_ms_of_level = level_costs(json, backward);
    measured.done_s = number_of(json, "done_s", kLongestRun, -1);
    measured.left_s = number_of(json, "left_s", kLongestRun, -1);
    measured.at_s = static_cast<std::int64_t>(number_of(json, "at", kLatest));
    measured.profile.memory_peak_bytes = static_cast<std::uint64_t>(number_of(json, "mem", kMostBytes));
    return measured;
}

double run_of(const Measured &measured, std::int64_t end_s)
{
    if (measured.done_s < 0 || measured.at_s <= 0)
        return 0;
    return measured.done_s + static_cast<double>(std::max<std::int64_t>(0, end_s - measured.at_s));
}

core::Profile merge_profiles(const core::Profile &older, const core::Profile &newer)
{
    core::Profile merged = older;
    if (newer.backward_ms_of_level.size() == 1 && older.backward_ms_of_level.size() > 1)
        merged.backward_ms_of_level = scaled(older.backward_ms_of_level, newer.backward_ms_of_level.back());
    else if (newer.known())
        merged.backward_ms_of_level = newer.backward_ms_of_level;
    if (newer.run_s > 0)
        merged.run_s = newer.run_s;
    if (newer.forward_ms > 0)
        merged.forward_ms = newer.forward_ms;
    if (newer.network_ms > 0)
        merged.network_ms = newer.network_ms;
    if (newer.memory_peak_bytes > 0)
        merged.memory_peak_bytes = newer.memory_peak_bytes;
    return merged;
}

bool ProfileStore::save(std::string *ret_why, const std::string &folder)
{
    const std::lock_guard<std::mutex> hold(mutex_);
    std::map<std::uint64_t, std::string> by_age;
    for (const auto &[name, entry] : entries_)
        by_age[entry.age] = format_line(name.first, name.second, entry.profile);
    std::string text = kFormat + "\n";
    for (const auto &[age, line] : by_age)
        text += line;
    if (!write_whole(file_of(folder), text)) {
        *ret_why = file_of(folder) + ": " + strerror(errno);
        return false;
    }
    unsaved_ = false;
    return true;
}

void ProfileStore::load(const std::string &folder)
{
    const std::lock_guard<std::mutex> hold(mutex_);
    std::ifstream file(file_of(folder));
    std::string line;
    if (!std::getline(file, line) || line != kFormat)
        return;
    while (std::getline(file, line)) {
        std::uint32_t uid = 0;
        std::string key;
        core::Profile profile;
        if (parse_line(&uid, &key, &profile, line))
            entries_[{uid, key}] = {profile, next_age_++};
    }
    forget_oldest();
}

void ProfileStore::learn(std::uint32_t uid, const std::string &key, const core::Profile &profile)
{
    const std::lock_guard<std::mutex> hold(mutex_);
    Entry &entry = entries_[{uid, key}];
    entry = {merge_profiles(entry.profile, profile), next_age_++};
    unsaved_ = true;
    forget_oldest();
}

core::Profile ProfileStore::find(std::uint32_t uid, const std::string &key) const
{
    const std::lock_guard<std::mutex> hold(mutex_);
    const auto found = entries_.find({uid, key});
    return found == entries_.end() ? core::Profile() : found->second.profile;
}

bool ProfileStore::unsaved() const
{
    const std::lock_guard<std::mutex> hold(mutex_);
    return unsaved_;
}

void ProfileStore::forget_oldest()
{
    while (entries_.size() > kMostProfiles)
        entries_.erase(std::min_element(entries_.begin(), entries_.end(),
                                        [](const auto &a, const auto &b) { return a.second.age < b.second.age; }));
}

} // namespace jigsaw::select
