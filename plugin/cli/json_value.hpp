// SPDX-License-Identifier: Apache-2.0
// Reading JSON: a small tree, enough for jigsawd's answers and gate logs.
#ifndef JIGSAW_CLI_JSON_VALUE_HPP
#define JIGSAW_CLI_JSON_VALUE_HPP

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace jigsaw::cli {

class JsonValue {
  public:
    enum class Kind { null, boolean, number, string, array, object };

    Kind kind = Kind::null;
    bool boolean = false;
    double number = 0;
    std::string text; ///< of a string; of a number as it was written (64-bit integers do not fit a double)
    std::vector<JsonValue> items;
    std::map<std::string, JsonValue> members;

    /// A member, or null when there is none; so look-ups can be chained.
    const JsonValue &operator[](const std::string &key) const;
    bool is_null() const { return kind == Kind::null; }
    double number_or(double fallback) const { return kind == Kind::number ? number : fallback; }
    std::int64_t integer() const; ///< 0 when it is none
    std::string string_or(const std::string &fallback) const { return kind == Kind::string ? text : fallback; }
};

/// Parse one document; false with one line in *ret_why. At most 64 levels deep.
bool parse_json(JsonValue *ret_value, std::string *ret_why, const std::string &text);

} // namespace jigsaw::cli
#endif
