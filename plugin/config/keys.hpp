// SPDX-License-Identifier: Apache-2.0
// keys.def as data: what the parser walks and what gen_tables prints.
#ifndef JIGSAW_CONFIG_KEYS_HPP
#define JIGSAW_CONFIG_KEYS_HPP

#include "plugin/config/config.hpp"
#include "plugin/config/yaml.hpp"

#include <string>
#include <vector>

namespace jigsaw::config {

enum class KeyType { section, switch_, whole, fraction, size, choice, path, text, map };

struct KeyRow {
    KeyType type = KeyType::section;
    const char *key = "";      ///< a section's title
    const char *unit = "";
    const char *range = "";
    const char *fallback = ""; ///< of a map: example lines
    const char *sentence = ""; ///< a section's paragraph
    /// Takes a scalar; empty, or what is wrong with it. Not of sections and maps.
    std::string (*take)(Config *config, const KeyRow &row, const std::string &text) = nullptr;
    /// Takes a mapping; throws YamlError. Of maps only.
    void (*read)(Config *config, const KeyRow &row, const YamlNode &node) = nullptr;
};
const std::vector<KeyRow> &config_key_table();

} // namespace jigsaw::config
#endif
