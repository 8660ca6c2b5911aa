// SPDX-License-Identifier: Apache-2.0
// A small YAML document as a tree of nodes that know where they stand. Only what a configuration needs: mappings and
// scalars in one document. Anchors, aliases and tags are refused (an alias can stand for millions of nodes), and so are
// sequences, depth beyond kDeepest and more than kMostNodes nodes.
#ifndef JIGSAW_CONFIG_YAML_HPP
#define JIGSAW_CONFIG_YAML_HPP

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace jigsaw::config {

/// Counted from 1, as editors do.
struct Position {
    std::size_t line = 1, column = 1;
};

struct YamlNode {
    struct Entry;
    Position at;
    bool is_mapping = false;
    std::string scalar;         ///< of a scalar
    std::vector<Entry> entries; ///< of a mapping, in the order of the file; keys are unique
};
struct YamlNode::Entry {
    std::string key;
    Position at;
    YamlNode value;
};

struct YamlError {
    Position at;
    std::string key; ///< the dotted path, "syntax" where there is none
    std::string text;
};

constexpr std::size_t kDeepest = 4;
constexpr std::size_t kMostNodes = 20000;

/// The root mapping (an empty document has an empty one), or why not.
std::optional<YamlNode> parse_yaml(YamlError *ret_error, const std::string &text);

} // namespace jigsaw::config
#endif
