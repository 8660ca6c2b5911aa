// SPDX-License-Identifier: Apache-2.0
// See registration.hpp. jigsawd reads these files as root, so the parser is as strict as if a stranger had written them:
// each key exactly once, every value in range, nothing else.
#include "plugin/config/registration.hpp"

#include "plugin/config/options.hpp"
#include "plugin/config/text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <set>
#include <stdexcept>
#include <sys/random.h>
#include <system_error>

namespace jigsaw::config {
namespace {

constexpr std::size_t kLongestRecord = 65536;
constexpr std::uint64_t kMost32 = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kMostGpuIndex = 1023; ///< far above any machine; bounds what a list can make us allocate
constexpr std::uint64_t kMostSeconds = 1ULL << 40;

/// Empty when the value was taken, else what is wrong with it.
using Reader = std::string (*)(Registration *record, const std::string &value);

template <std::uint32_t Registration::*member> std::string read_32(Registration *record, const std::string &value)
{
    std::uint64_t number = 0;
    if (!parse_whole(&number, value, 0, kMost32))
        return "'" + shown(value) + "' is not a number from 0 to 4294967295";
    record->*member = static_cast<std::uint32_t>(number);
    return "";
}

std::string read_job_id(Registration *record, const std::string &value)
{
    const std::string why = read_32<&Registration::job_id>(record, value);
    return why.empty() && record->job_id == 0 ? "0 is no job" : why;
}

std::string read_gpus(Registration *record, const std::string &value)
{
    if (!parse_gpu_list(&record->gpus, value))
        return "'" + shown(value) + "' is not an ascending list of GPU indices from 0 to 1023";
    return "";
}

std::string read_request(Registration *record, const std::string &value)
{
    std::string why;
    return parse_request(&record->spb, &why, value) ? "" : why;
}

std::string read_token(Registration *record, const std::string &value)
{
    const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    if (value.size() != 64 || !std::all_of(value.begin(), value.end(), is_hex))
        return "'" + shown(value) + "' is not 64 lower-case hexadecimal digits";
    record->token_sha256 = value;
    return "";
}

std::string read_start(Registration *record, const std::string &value)
{
    std::uint64_t number = 0;
    if (!parse_whole(&number, value, 0, kMostSeconds))
        return "'" + shown(value) + "' is not a number of seconds since 1970";
    record->start_s = static_cast<std::int64_t>(number);
    return "";
}

struct Key {
    const char *name;
    Reader read;
};
const std::array<Key, 7> kKeys = {{{"job_id", read_job_id},
                                   {"restart_count", read_32<&Registration::restart_count>},
                                   {"uid", read_32<&Registration::uid>},
                                   {"gpus", read_gpus},
                                   {"request", read_request},
                                   {"token_sha256", read_token},
                                   {"start_s", read_start}}};

/// One line; empty when it was taken.
std::string read_line(Registration *record, std::set<std::string> *seen, const std::string &line)
{
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos)
        return "'" + shown(line) + "': not of the form key=value";
    const std::string name = line.substr(0, equals);
    const auto key = std::find_if(kKeys.begin(), kKeys.end(), [&](const Key &row) { return name == row.name; });
    if (key == kKeys.end())
        return shown(name) + ": unknown key";
    if (!seen->insert(name).second)
        return name + ": given twice";
    const std::string why = key->read(record, line.substr(equals + 1));
    return why.empty() ? "" : name + ": " + why;
}

bool parse_range(std::uint64_t *ret_first, std::uint64_t *ret_last, const std::string &part)
{
    const std::size_t dash = part.find('-');
    if (dash == std::string::npos)
        return parse_whole(ret_first, part, 0, kMostGpuIndex) && parse_whole(ret_last, part, 0, kMostGpuIndex);
    return parse_whole(ret_first, part.substr(0, dash), 0, kMostGpuIndex) &&
           parse_whole(ret_last, part.substr(dash + 1), *ret_first, kMostGpuIndex);
}

} // namespace

bool parse_gpu_list(std::vector<int> *ret_gpus, const std::string &text)
{
    std::vector<int> gpus;
    if (!text.empty())
        for (const std::string &part : split(text, ',')) {
            std::uint64_t first = 0, last = 0;
            if (!parse_range(&first, &last, part) || (!gpus.empty() && static_cast<int>(first) <= gpus.back()))
                return false;
            for (std::uint64_t gpu = first; gpu <= last; ++gpu)
                gpus.push_back(static_cast<int>(gpu));
        }
    *ret_gpus = std::move(gpus);
    return true;
}

std::string format_gpu_list(const std::vector<int> &gpus)
{
    std::string text;
    for (int gpu : gpus)
        text += (text.empty() ? "" : ",") + std::to_string(gpu);
    return text;
}

std::string format_registration(const Registration &record)
{
    return "job_id=" + std::to_string(record.job_id) + "\nrestart_count=" + std::to_string(record.restart_count) +
           "\nuid=" + std::to_string(record.uid) + "\ngpus=" + format_gpu_list(record.gpus) +
           "\nrequest=" + format_request(record.spb) + "\ntoken_sha256=" + record.token_sha256 +
           "\nstart_s=" + std::to_string(record.start_s) + "\n";
}

bool parse_registration(Registration *ret_record, std::string *ret_why, const std::string &text)
{
    if (text.size() > kLongestRecord || text.empty() || text.back() != '\n') {
        *ret_why = "1: not a whole record: " + std::to_string(text.size()) + " bytes (limit " +
                   std::to_string(kLongestRecord) + ", last one a newline)";
        return false;
    }
    Registration record;
    std::set<std::string> seen;
    std::size_t number = 0;
    for (const std::string &line : split(text.substr(0, text.size() - 1), '\n')) {
        ++number;
        if (const std::string why = read_line(&record, &seen, line); !why.empty()) {
            *ret_why = std::to_string(number) + ": " + why;
            return false;
        }
    }
    for (const Key &key : kKeys)
        if (seen.count(key.name) == 0) {
            *ret_why = std::to_string(number) + ": " + key.name + ": missing";
            return false;
        }
    *ret_record = std::move(record);
    return true;
}

std::string registration_file_name(core::JobId job_id, std::uint32_t restart_count)
{
    return std::to_string(job_id) + "." + std::to_string(restart_count);
}

bool parse_registration_file_name(core::JobId *ret_job_id, std::uint32_t *ret_restart, const std::string &name)
{
    const std::size_t dot = name.find('.');
    std::uint64_t job_id = 0, restart = 0;
    if (dot == std::string::npos || !parse_whole(&job_id, name.substr(0, dot), 1, kMost32) ||
        !parse_whole(&restart, name.substr(dot + 1), 0, kMost32))
        return false;
    const auto job = static_cast<core::JobId>(job_id);
    const auto count = static_cast<std::uint32_t>(restart);
    if (registration_file_name(job, count) != name) // one file, one name: no "007.0"
        return false;
    *ret_job_id = job;
    *ret_restart = count;
    return true;
}

NodePaths node_paths(const std::string &run_dir, const std::string &node_name)
{
    if (run_dir.empty() || run_dir.front() != '/')
        throw std::invalid_argument("run_dir '" + shown(run_dir) + "' is not an absolute path");
    if (!is_plain_word(node_name, 255))
        throw std::invalid_argument("node name '" + shown(node_name) + "' is not made of letters, digits, '.', '_', '-'");
    const std::string base = run_dir + "/" + node_name;
    return {base, base + "/jobs", base + "/tokens", base + "/socket", base + "/lock", base + "/log"};
}

std::string make_token()
{
    unsigned char bytes[32];
    std::size_t have = 0;
    while (have < sizeof bytes) {
        const ssize_t got = getrandom(bytes + have, sizeof bytes - have, 0);
        if (got < 0 && errno != EINTR)
            throw std::system_error(errno, std::generic_category(), "getrandom");
        have += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    static const char digits[] = "0123456789abcdef";
    std::string hex;
    for (unsigned char byte : bytes) {
        hex += digits[byte >> 4];
        hex += digits[byte & 0xf];
    }
    return hex;
}

} // namespace jigsaw::config
