// SPDX-License-Identifier: Apache-2.0
// Writing JSON: enough for jigsawd's answers, no tree in memory.
#ifndef JIGSAW_AGENT_JSON_HPP
#define JIGSAW_AGENT_JSON_HPP

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::agent {

class Json {
  public:
    Json &object();                          ///< {
    Json &object(const std::string &key);    ///< "key":{
    Json &array(const std::string &key);     ///< "key":[
    Json &end();                             ///< } or ], whichever is open
    Json &field(const std::string &key, const std::string &value);
    Json &field(const std::string &key, const char *value) { return field(key, std::string(value)); }
    Json &field(const std::string &key, double value); ///< null when not finite
    Json &field(const std::string &key, bool value);
    Json &field(const std::string &key, std::uint64_t value);
    Json &field(const std::string &key, std::int64_t value);
    Json &field(const std::string &key, int value) { return field(key, static_cast<std::int64_t>(value)); }
    Json &field(const std::string &key, unsigned value) { return field(key, static_cast<std::uint64_t>(value)); }
    Json &null(const std::string &key);
    Json &value(const std::string &text); ///< an element of an array
    Json &value(double number);
    const std::string &text() const { return text_; }

  private:
    void comma();
    void key(const std::string &name);

    std::string text_;
    std::vector<char> open_; ///< '}' or ']' of what is open
    bool first_ = true;
};

/// A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, so that every reader can parse it.
std::string json_quote(const std::string &text);
/// Shortest text that reads back as the same double; "null" when not finite.
std::string json_number(double value);

} // namespace jigsaw::agent
#endif
