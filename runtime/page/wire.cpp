// SPDX-License-Identifier: Apache-2.0
// Text of one datagram and back. The parser reads what strangers send: every byte is looked at, nothing is repaired.
#include "runtime/page/wire.hpp"

#include <cassert>
#include <cstring>

namespace jigsaw::wire {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_plain(char c) { return is_digit(c) || is_upper(c) || is_lower(c) || (c != '\0' && std::strchr("._:/,@+-", c)); }

int hex_digit(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string encode(const std::string &value)
{
    static const char kHex[] = "0123456789ABCDEF";
    std::string text;
    for (const char c : value) {
        if (is_plain(c)) {
            text += c;
            continue;
        }
        const auto byte = static_cast<unsigned char>(c);
        text += '%';
        text += kHex[byte >> 4];
        text += kHex[byte & 15];
    }
    return text;
}

/// False for a byte that encode() would not have left bare, a broken escape, and NUL, which would end the value early
/// for whoever passes it to C.
bool decode(std::string *ret_value, const std::string &text)
{
    std::string value;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (is_plain(text[i])) {
            value += text[i];
            continue;
        }
        if (text[i] != '%' || i + 2 >= text.size())
            return false;
        const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
        if (high < 0 || low < 0 || (high == 0 && low == 0))
            return false;
        value += static_cast<char>(high * 16 + low);
        i += 2;
    }
    *ret_value = std::move(value);
    return true;
}

bool is_verb(const std::string &word)
{
    for (const char c : word)
        if (!is_upper(c) && c != '_')
            return false;
    return !word.empty() && is_upper(word[0]);
}

bool is_key(const std::string &word)
{
    for (const char c : word)
        if (!is_lower(c) && !is_digit(c) && c != '_')
            return false;
    return !word.empty() && is_lower(word[0]);
}

/// One line for a log: what is printable of the word, shortened.
std::string quoted(const std::string &word)
{
    std::string text = "'";
    for (const char c : word.substr(0, 40))
        text += c > 0x20 && c < 0x7f ? c : '?';
    return text + (word.size() > 40 ? "...'" : "'");
}

std::string add_word(Message *message, const std::string &word)
{
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos)
        return "word " + quoted(word) + " is not key=value";
    const std::string key = word.substr(0, equals);
    if (!is_key(key))
        return "key " + quoted(key) + " is not [a-z][a-z0-9_]*";
    std::string value;
    if (!decode(&value, word.substr(equals + 1)))
        return "value of " + key + " holds a byte that must be percent-encoded or a broken escape";
    if (!message->values.emplace(key, std::move(value)).second)
        return "key " + quoted(key) + " stands twice";
    return {};
}

std::string parse_words(Message *message, const std::string &text)
{
    std::size_t begin = 0;
    for (bool first = true; begin <= text.size(); first = false) {
        std::size_t end = text.find(' ', begin);
        if (end == std::string::npos)
            end = text.size();
        const std::string word = text.substr(begin, end - begin);
        begin = end + 1;
        if (!first) {
            const std::string why = add_word(message, word);
            if (!why.empty())
                return why;
        } else if (is_verb(word)) {
            message->verb = word;
        } else {
            return "verb " + quoted(word) + " is not [A-Z][A-Z_]*";
        }
    }
    return {};
}

} // namespace

const std::string *Message::find(const std::string &key) const
{
    const auto found = values.find(key);
    return found == values.end() ? nullptr : &found->second;
}

std::string format(const Message &message)
{
    assert(is_verb(message.verb));
    std::string text = message.verb;
    for (const auto &[key, value] : message.values) {
        assert(is_key(key));
        text += ' ' + key + '=' + encode(value);
    }
    assert(text.size() <= kMaxMessage);
    return text;
}

bool parse(Message *ret_message, std::string *ret_why, const char *data, std::size_t bytes)
{
    Message message;
    std::string why;
    if (bytes == 0 || bytes > kMaxMessage)
        why = "message of " + std::to_string(bytes) + " bytes, allowed is 1 to " + std::to_string(kMaxMessage);
    else
        why = parse_words(&message, std::string(data, bytes));
    if (!why.empty()) {
        *ret_why = why;
        return false;
    }
    *ret_message = std::move(message);
    return true;
}

bool parse_unsigned(std::uint64_t *ret_value, const std::string &text, std::uint64_t lowest, std::uint64_t highest)
{
    std::uint64_t value = 0;
    for (const char c : text) {
        const auto digit = static_cast<std::uint64_t>(c - '0');
        if (!is_digit(c) || value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (text.empty() || value < lowest || value > highest)
        return false;
    *ret_value = value;
    return true;
}

} // namespace jigsaw::wire
