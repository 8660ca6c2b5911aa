// SPDX-License-Identifier: Apache-2.0
// See yaml.hpp. libyaml's events rather than its documents: a document has lost its anchors, and with them the place
// where to complain. An error travels as an exception inside this file and leaves it as a YamlError.
#include "plugin/config/yaml.hpp"

#include "plugin/config/text.hpp"

#include <map>
#include <yaml.h>

namespace jigsaw::config {
namespace {

Position position(const yaml_mark_t &mark) { return {mark.line + 1, mark.column + 1}; }

class Event {
  public:
    Event() = default;
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
    ~Event() { yaml_event_delete(&event_); }
    yaml_event_t *get() { return &event_; }
    yaml_event_type_t type() const { return event_.type; }
    Position at() const { return position(event_.start_mark); }
    std::string scalar() const
    {
        return {reinterpret_cast<const char *>(event_.data.scalar.value), event_.data.scalar.length};
    }
    bool is_decorated() const
    {
        if (event_.type == YAML_SCALAR_EVENT)
            return event_.data.scalar.anchor != nullptr || event_.data.scalar.tag != nullptr;
        if (event_.type == YAML_SEQUENCE_START_EVENT)
            return event_.data.sequence_start.anchor != nullptr || event_.data.sequence_start.tag != nullptr;
        return event_.type == YAML_MAPPING_START_EVENT &&
               (event_.data.mapping_start.anchor != nullptr || event_.data.mapping_start.tag != nullptr);
    }

  private:
    yaml_event_t event_{};
};

class Builder {
  public:
    explicit Builder(const std::string &text)
    {
        if (!yaml_parser_initialize(&parser_))
            throw std::bad_alloc();
        yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char *>(text.data()), text.size());
    }
    Builder(const Builder &) = delete;
    Builder &operator=(const Builder &) = delete;
    ~Builder() { yaml_parser_delete(&parser_); }

    YamlNode document()
    {
        YamlNode root;
        root.is_mapping = true;
        Event stream, start;
        next(&stream);
        next(&start);
        if (start.type() == YAML_STREAM_END_EVENT)
            return root;
        Event first;
        next(&first);
        const bool is_empty = first.type() == YAML_SCALAR_EVENT && first.scalar().empty() && !first.is_decorated();
        if (!is_empty)
            root = node(first, "", 0);
        if (!root.is_mapping)
            throw YamlError{root.at, "syntax", "'" + shown(root.scalar) + "' is not a list of 'key: value' lines"};
        Event end, last;
        next(&end);
        next(&last);
        if (last.type() != YAML_STREAM_END_EVENT)
            throw YamlError{last.at(), "syntax", "a second document; give one"};
        return root;
    }

  private:
    void next(Event *ret_event)
    {
        if (!yaml_parser_parse(&parser_, ret_event->get()))
            throw syntax_error();
    }

    YamlError syntax_error() const
    {
        std::string text = parser_.problem ? parser_.problem : "not YAML";
        if (parser_.context)
            text += std::string(" ") + parser_.context;
        const bool is_reader = parser_.error == YAML_READER_ERROR; // it knows no mark of the problem
        return {position(is_reader ? parser_.mark : parser_.problem_mark), "syntax", text};
    }

    YamlNode node(const Event &first, const std::string &path, std::size_t depth)
    {
        const std::string name = path.empty() ? "syntax" : path;
        if (++nodes_ > kMostNodes)
            throw YamlError{first.at(), name, "more than " + std::to_string(kMostNodes) + " values"};
        if (first.type() == YAML_ALIAS_EVENT || first.is_decorated())
            throw YamlError{first.at(), name, "anchors, aliases and tags are not allowed; write the value out"};
        YamlNode result;
        result.at = first.at();
        if (first.type() == YAML_SCALAR_EVENT) {
            result.scalar = first.scalar();
            return result;
        }
        if (first.type() != YAML_MAPPING_START_EVENT)
            throw YamlError{first.at(), name, "a list, where a value or 'key: value' lines belong"};
        if (depth >= kDeepest)
            throw YamlError{first.at(), name, "nested deeper than " + std::to_string(kDeepest) + " levels"};
        fill(&result, path, depth);
        return result;
    }

    void fill(YamlNode *mapping, const std::string &path, std::size_t depth)
    {
        mapping->is_mapping = true;
        std::map<std::string, Position> seen;
        for (;;) {
            Event key;
            next(&key);
            if (key.type() == YAML_MAPPING_END_EVENT)
                return;
            const YamlNode key_node = node(key, path, kDeepest);
            const std::string name = path.empty() ? shown(key_node.scalar) : path + "." + shown(key_node.scalar);
            const auto [first, fresh] = seen.emplace(key_node.scalar, key_node.at);
            if (!fresh)
                throw YamlError{key_node.at, name, "given twice; the first is in line " + std::to_string(first->second.line)};
            Event value;
            next(&value);
            mapping->entries.push_back({key_node.scalar, key_node.at, node(value, name, depth + 1)});
        }
    }

    yaml_parser_t parser_{};
    std::size_t nodes_ = 0;
};

} // namespace

std::optional<YamlNode> parse_yaml(YamlError *ret_error, const std::string &text)
{
    try {
        return Builder(text).document();
    } catch (const YamlError &error) {
        *ret_error = error;
        return std::nullopt;
    }
}

} // namespace jigsaw::config
