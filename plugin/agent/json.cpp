// SPDX-License-Identifier: Apache-2.0
// JSON text, comma by comma.
#include "plugin/agent/json.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace jigsaw::agent {

namespace {

/// Length of the valid UTF-8 sequence at `at`, 0 when there is none (RFC 3629: no overlong forms, no surrogates).
std::size_t utf8_length(const std::string &text, std::size_t at)
{
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(i < text.size() ? text[i] : 0); };
    const unsigned char lead = byte(at);
    if (lead < 0x80)
        return 1;
    const std::size_t length = lead >= 0xc2 && lead <= 0xdf ? 2 : lead >= 0xe0 && lead <= 0xef ? 3
                               : lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(at + i) & 0xc0) != 0x80)
            return 0;
    }
    const unsigned char second = byte(at + 1);
    const bool bad = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
                     (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f);
    return bad ? 0 : length;
}

} // namespace

std::string json_quote(const std::string &text)
{
    std::string quoted = "\"";
    for (std::size_t i = 0; i < text.size();) {
        const auto c = static_cast<unsigned char>(text[i]);
        const std::size_t length = utf8_length(text, i);
        if (length == 0) {
            quoted += "\\ufffd";
            ++i;
            continue;
        }
        if (c == '"' || c == '\\') {
            quoted += '\\';
            quoted += static_cast<char>(c);
        } else if (c < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", c);
            quoted += escape;
        } else {
            quoted.append(text, i, length);
        }
        i += length;
    }
    return quoted + '"';
}

std::string json_number(double value)
{
    if (!std::isfinite(value))
        return "null";
    char text[32];
    for (const int digits : {6, 9, 17}) {
        std::snprintf(text, sizeof text, "%.*g", digits, value);
        if (std::strtod(text, nullptr) == value)
            break;
    }
    return text;
}

void Json::comma()
{
    if (!first_)
        text_ += ',';
    first_ = false;
}

void Json::key(const std::string &name)
{
    comma();
    text_ += json_quote(name);
    text_ += ':';
}

Json &Json::object()
{
    comma();
    text_ += '{';
    open_.push_back('}');
    first_ = true;
    return *this;
}

Json &Json::object(const std::string &name)
{
    key(name);
    text_ += '{';
    open_.push_back('}');
    first_ = true;
    return *this;
}

Json &Json::array(const std::string &name)
{
    key(name);
    text_ += '[';
    open_.push_back(']');
    first_ = true;
    return *this;
}

Json &Json::end()
{
    text_ += open_.back();
    open_.pop_back();
    first_ = false;
    return *this;
}

Json &Json::field(const std::string &name, const std::string &value)
{
    key(name);
    text_ += json_quote(value);
    return *this;
}

Json &Json::field(const std::string &name, double value)
{
    key(name);
    text_ += json_number(value);
    return *this;
}

Json &Json::field(const std::string &name, bool value)
{
    key(name);
    text_ += value ? "true" : "false";
    return *this;
}

Json &Json::field(const std::string &name, std::uint64_t value)
{
    key(name);
    text_ += std::to_string(value);
    return *this;
}

Json &Json::field(const std::string &name, std::int64_t value)
{
    key(name);
    text_ += std::to_string(value);
    return *this;
}

Json &Json::null(const std::string &name)
{
    key(name);
    text_ += "null";
    return *this;
}

Json &Json::value(const std::string &text)
{
    comma();
    text_ += json_quote(text);
    return *this;
}

Json &Json::value(double number)
{
    comma();
    text_ += json_number(number);
    return *this;
}

} // namespace jigsaw::agent
