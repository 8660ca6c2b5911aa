// SPDX-License-Identifier: GPL-2.0-or-later
// See profiles.hpp. The file "jigsaw_profiles": a line for the format, then one line per profile, the oldest first:
//     uid key forward_ms backward_ms network_ms memory_bytes
#include "plugin/select/profiles.hpp"

#include "plugin/config/text.hpp"
#include "plugin/select/segment.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace jigsaw::select {
namespace {

constexpr std::size_t kMostProfiles = 10000;
constexpr double kLongestMs = 1e9, kMostBytes = 1e15;
constexpr std::size_t kLongestKey = 64;
const std::string kFormat = "jigsaw profiles 1";

/// The number behind "name": in a JSON object of jigsawd's; 0 when there is none.
double number_of(const std::string &json, const std::string &name, double highest)
{
    const std::string key = "\"" + name + "\":";
    const std::size_t at = json.find(key);
    if (at == std::string::npos)
        return 0;
    const std::size_t begin = at + key.size();
    const std::size_t end = json.find_first_not_of("0123456789.", begin);
    double value = 0;
    return config::parse_fraction(&value, json.substr(begin, end - begin), 0, highest) ? value : 0;
}

bool parse_line(std::uint32_t *ret_uid, std::string *ret_key, core::Profile *ret_profile, const std::string &line)
{
    const std::vector<std::string> words = config::split(line, ' ');
    std::uint64_t uid = 0;
    double forward = 0, backward = 0, network = 0, memory = 0;
    if (words.size() != 6 || !config::parse_whole(&uid, words[0], 0, UINT32_MAX) ||
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
    return true;
}

std::string format_line(std::uint32_t uid, const std::string &key, const core::Profile &profile)
{
    const double backward = profile.known() ? profile.backward_ms_of_level.back() : 0;
    return std::to_string(uid) + " " + key + " " + config::format_fraction(profile.forward_ms) + " " +
           config::format_fraction(backward) + " " + config::format_fraction(profile.network_ms) + " " +
           std::to_string(profile.memory_peak_bytes) + "\n";
}

std::string file_of(const std::string &folder)
{
    return folder + "/jigsaw_profiles";
}

bool write_whole(const std::string &path, const std::string &text)
{
    const std::string fresh = path + ".new";
    FILE *file = fopen(fresh.c_str(), "we");
    if (!file)
        return false;
    const bool written = fwrite(text.data(), 1, text.size(), file) == text.size() && fflush(file) == 0 && fsync(fileno(file)) == 0;
    return (fclose(file) == 0) && written && rename(fresh.c_str(), path.c_str()) == 0;
}

} // namespace

Measured parse_measured(const std::string &admin_comment)
{
    const std::string json = find_segment(admin_comment);
    Measured measured;
    measured.misbehaving = json.find("\"misbehaving\":") != std::string::npos;
    measured.profile.forward_ms = number_of(json, "fwd_ms", kLongestMs);
    measured.profile.network_ms = number_of(json, "sync_ms", kLongestMs);
    if (const double backward = number_of(json, "bwd_ms", kLongestMs); backward > 0)
        measured.profile.backward_ms_of_level = {backward};
    measured.profile.memory_peak_bytes = static_cast<std::uint64_t>(number_of(json, "mem", kMostBytes));
    return measured;
}

core::Profile merge_profiles(const core::Profile &older, const core::Profile &newer)
{
    core::Profile merged = older;
    if (newer.known())
        merged.backward_ms_of_level = newer.backward_ms_of_level;
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
