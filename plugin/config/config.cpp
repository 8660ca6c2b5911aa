// SPDX-License-Identifier: Apache-2.0
// See config.hpp. The table (keys.def) says what there is; this file says how a value of each type is read.
#include "plugin/config/config.hpp"

#include "plugin/config/keys.hpp"
#include "plugin/config/options.hpp"
#include "plugin/config/text.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <sys/stat.h>

namespace jigsaw::config {
namespace {

constexpr std::size_t kLargestFile = 262144;
constexpr std::uint64_t kMostIndex = 1023; ///< of a GPU or a CPU core

std::string not_a(const std::string &text, const std::string &what) { return "'" + shown(text) + "' is not " + what; }

/// "LOW..HIGH"
std::pair<std::string, std::string> range_of(const KeyRow &row)
{
    const std::string range = row.range;
    const std::size_t dots = range.find("..");
    return {range.substr(0, dots), range.substr(dots + 2)};
}

std::string take(bool *field, const KeyRow &, const std::string &text)
{
    if (text == "on" || text == "true" || text == "yes")
        *field = true;
    else if (text == "off" || text == "false" || text == "no")
        *field = false;
    else
        return not_a(text, "on or off");
    return "";
}

std::string take(std::uint64_t *field, const KeyRow &row, const std::string &text)
{
    const auto [low, high] = range_of(row);
    std::uint64_t value = 0, lowest = 0, highest = 0;
    parse_size(&lowest, low); // plain numbers are sizes too
    parse_size(&highest, high);
    const bool is_size = row.type == KeyType::size;
    const bool is_read = is_size ? parse_size(&value, text) : parse_whole(&value, text, 0, std::numeric_limits<std::uint64_t>::max());
    if (!is_read || value < lowest || value > highest)
        return not_a(text, (is_size ? "a size from " : "a whole number from ") + low + " to " + high);
    *field = value;
    return "";
}

std::string take(std::uint32_t *field, const KeyRow &row, const std::string &text)
{
    std::uint64_t value = 0;
    const std::string why = take(&value, row, text);
    if (why.empty())
        *field = static_cast<std::uint32_t>(value);
    return why;
}

std::string take(double *field, const KeyRow &row, const std::string &text)
{
    const auto [low, high] = range_of(row);
    double lowest = 0, highest = 0;
    parse_fraction(&lowest, low, 0, 1e9);
    parse_fraction(&highest, high, 0, 1e9);
    return parse_fraction(field, text, lowest, highest) ? "" : not_a(text, "a number from " + low + " to " + high);
}

std::string take_choice(std::string *field, const KeyRow &row, const std::string &text)
{
    const std::vector<std::string> words = split(row.range, '|');
    if (std::find(words.begin(), words.end(), text) != words.end()) {
        *field = text;
        return "";
    }
    std::string list;
    for (const std::string &word : words)
        list += (list.empty() ? "" : ", ") + word;
    return not_a(text, "one of " + list);
}

std::string take(std::string *field, const KeyRow &row, const std::string &text)
{
    if (row.type == KeyType::choice)
        return take_choice(field, row, text);
    const bool is_path = row.type == KeyType::path;
    const bool may_be_empty = is_path && *row.fallback == '\0';
    const bool is_printable = std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 127; });
    if (!is_printable || text.size() > 4000 || (text.empty() && !may_be_empty) || (is_path && !text.empty() && text[0] != '/'))
        return not_a(text, is_path ? "an absolute path" : "a text of printable characters");
    *field = text;
    return "";
}

std::string take(core::SharingScope *field, const KeyRow &row, const std::string &text)
{
    std::string word;
    const std::string why = take_choice(&word, row, text);
    if (why.empty())
        *field = word == "user" ? core::SharingScope::user
                                : word == "account" ? core::SharingScope::account : core::SharingScope::any;
    return why;
}

const KeyRow &row_named(const char *key)
{
    const auto &table = config_key_table();
    return *std::find_if(table.begin(), table.end(), [&](const KeyRow &row) { return std::strcmp(row.key, key) == 0; });
}

/// The entries of a mapping; an empty value is an empty mapping. (A view: what is returned refers to `node` alone.)
const std::vector<YamlNode::Entry> &entries_of(const YamlNode &node, std::string_view path)
{
    if (!node.is_mapping && !node.scalar.empty())
        throw YamlError{node.at, std::string(path), "'" + shown(node.scalar) + "', where 'key: value' lines belong"};
    return node.entries;
}

const std::string &scalar_of(const YamlNode &node, std::string_view path)
{
    if (node.is_mapping)
        throw YamlError{node.at, std::string(path), "'key: value' lines, where a single value belongs"};
    return node.scalar;
}

template <class Value>
void read_override(std::optional<Value> *field, const KeyRow &row, const YamlNode &node, const std::string &path)
{
    Value value{};
    if (const std::string why = take(&value, row, scalar_of(node, path)); !why.empty())
        throw YamlError{node.at, path, why};
    *field = value;
}

/// The table's own rows judge the values; one that is missing below is unknown.
SharingOverride read_one_override(const YamlNode &node, const std::string &path)
{
    SharingOverride result;
    for (const YamlNode::Entry &entry : entries_of(node, path)) {
        const std::string name = path + "." + shown(entry.key);
        if (entry.key == "sharing")
            read_override(&result.enabled, row_named("sharing"), entry.value, name);
        else if (entry.key == "max_jobs_per_gpu")
            read_override(&result.max_jobs_per_gpu, row_named("max_jobs_per_gpu"), entry.value, name);
        else if (entry.key == "sharing_scope")
            read_override(&result.scope, row_named("sharing_scope"), entry.value, name);
        else
            throw YamlError{entry.at, name, "unknown key; known are sharing, max_jobs_per_gpu, sharing_scope"};
    }
    return result;
}

template <std::map<std::string, SharingOverride> Config::*field>
void read_overrides(Config *config, const KeyRow &row, const YamlNode &node)
{
    for (const YamlNode::Entry &entry : entries_of(node, row.key))
        (config->*field)[entry.key] = read_one_override(entry.value, std::string(row.key) + "." + shown(entry.key));
}

void read_gpu_memory(Config *config, const KeyRow &row, const YamlNode &node)
{
    for (const YamlNode::Entry &entry : entries_of(node, row.key)) {
        const std::string path = std::string(row.key) + "." + shown(entry.key);
        const std::string &text = scalar_of(entry.value, path);
        std::uint64_t bytes = 0;
        if (!parse_size(&bytes, text) || bytes < (1ULL << 20) || bytes > (16ULL << 40))
            throw YamlError{entry.value.at, path, not_a(text, "a size from 1M to 16T")};
        config->gpu_memory[entry.key] = bytes;
    }
}

void read_gpu_cores(Config *config, const KeyRow &row, const YamlNode &node)
{
    for (const YamlNode::Entry &host : entries_of(node, row.key)) {
        const std::string path = std::string(row.key) + "." + shown(host.key);
        std::map<int, int> &cores = config->gpu_cores[host.key];
        for (const YamlNode::Entry &entry : entries_of(host.value, path)) {
            const std::string name = path + "." + shown(entry.key);
            std::uint64_t gpu = 0, core = 0;
            if (!parse_whole(&gpu, entry.key, 0, kMostIndex))
                throw YamlError{entry.at, name, not_a(entry.key, "a GPU index from 0 to 1023")};
            if (const std::string &text = scalar_of(entry.value, name); !parse_whole(&core, text, 0, kMostIndex))
                throw YamlError{entry.value.at, name, not_a(text, "a CPU core from 0 to 1023")};
            if (!cores.emplace(static_cast<int>(gpu), static_cast<int>(core)).second)
                throw YamlError{entry.at, name, "GPU " + std::to_string(gpu) + " is given twice"};
        }
    }
}

void read_key(Config *config, const YamlNode::Entry &entry)
{
    const auto &table = config_key_table();
    const auto row = std::find_if(table.begin(), table.end(), [&](const KeyRow &candidate) {
        return candidate.type != KeyType::section && entry.key == candidate.key;
    });
    if (row == table.end())
        throw YamlError{entry.at, shown(entry.key), "unknown key; jigsaw.yaml(5) lists them all"};
    if (row->type == KeyType::map)
        return row->read(config, *row, entry.value);
    if (const std::string why = row->take(config, *row, scalar_of(entry.value, row->key)); !why.empty())
        throw YamlError{entry.value.at, row->key, why};
}

std::string at(const std::string &file, const YamlError &error)
{
    return file + ":" + std::to_string(error.at.line) + ":" + std::to_string(error.at.column) + ": " + error.key + ": " +
           error.text;
}

void apply(core::SharingPolicy *policy, bool *is_off, const std::map<std::string, SharingOverride> &overrides,
           const std::string &name)
{
    const auto found = overrides.find(name);
    if (found == overrides.end())
        return;
    const SharingOverride &change = found->second;
    *is_off = *is_off || !change.enabled.value_or(true);
    policy->enabled = change.enabled.value_or(policy->enabled);
    policy->max_jobs_per_gpu = change.max_jobs_per_gpu.value_or(policy->max_jobs_per_gpu);
    policy->scope = change.scope.value_or(policy->scope);
}

} // namespace

const std::vector<KeyRow> &config_key_table()
{
    static const std::vector<KeyRow> table = {
#define CONFIG_SECTION(title, paragraph) {KeyType::section, title, "", "", "", paragraph, nullptr, nullptr},
#define CONFIG_KEY(key, type, field, unit, range, fallback, sentence)                                                      \
    {KeyType::type, key, unit, range, fallback, sentence,                                                                  \
     [](Config *config, const KeyRow &row, const std::string &text) { return take(&config->field, row, text); }, nullptr},
#define CONFIG_MAP(key, reader, example, sentence) {KeyType::map, key, "", "", example, sentence, nullptr, reader},
#include "plugin/config/keys.def"
#undef CONFIG_SECTION
#undef CONFIG_KEY
#undef CONFIG_MAP
    };
    return table;
}

std::shared_ptr<const Config> parse_config(std::string *ret_why, const std::string &text, const std::string &file)
{
    try {
        if (text.size() > kLargestFile)
            throw YamlError{{}, "file", std::to_string(text.size()) + " bytes (limit " + std::to_string(kLargestFile) + ")"};
        YamlError error;
        const std::optional<YamlNode> root = parse_yaml(&error, text);
        if (!root)
            throw error;
        auto config = std::make_shared<Config>();
        for (const YamlNode::Entry &entry : root->entries)
            read_key(config.get(), entry);
        config->sharing.extra_iterations = config->extra_iterations; // placement reckons with it, too
        return config;
    } catch (const YamlError &error) {
        *ret_why = at(file, error);
        return nullptr;
    }
}

std::shared_ptr<const Config> load_config(std::string *ret_why, const std::string &path)
{
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0) {
        if (errno == ENOENT && path == kDefaultConfigPath)
            return std::make_shared<Config>();
        *ret_why = at(path, {{}, "file", std::strerror(errno)});
        return nullptr;
    }
    if (!S_ISREG(status.st_mode)) {
        *ret_why = at(path, {{}, "file", "not a regular file"});
        return nullptr;
    }
    std::ifstream stream(path, std::ios::binary);
    std::string text(kLargestFile + 1, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!stream.is_open() || stream.bad()) {
        *ret_why = at(path, {{}, "file", "cannot be read"});
        return nullptr;
    }
    text.resize(static_cast<std::size_t>(stream.gcount()));
    return parse_config(ret_why, text, path);
}

core::SharingPolicy policy_for(const Config &config, const std::string &partition, const std::string &qos,
                               const std::string &account)
{
    core::SharingPolicy policy = config.sharing;
    bool is_off = false;
    apply(&policy, &is_off, config.partitions, partition);
    apply(&policy, &is_off, config.qos, qos);
    apply(&policy, &is_off, config.accounts, account);
    policy.enabled = policy.enabled && !is_off;
    return policy;
}

} // namespace jigsaw::config
