// SPDX-License-Identifier: Apache-2.0
// Recursive descent over RFC 8259.
#include "plugin/cli/json_value.hpp"

#include <cstdlib>
#include <cstring>

namespace jigsaw::cli {

const JsonValue &JsonValue::operator[](const std::string &key) const
{
    static const JsonValue kNull;
    const auto found = members.find(key);
    return found == members.end() ? kNull : found->second;
}

std::int64_t JsonValue::integer() const
{
    return kind == Kind::number ? std::strtoll(text.c_str(), nullptr, 10) : 0;
}

namespace {

constexpr int kMaxDepth = 64;

class Parser {
  public:
    explicit Parser(const std::string &text) : text_(text) {}

    bool document(JsonValue *ret_value, std::string *ret_why)
    {
        JsonValue value;
        const bool whole = parse(&value, 0) && (skip(), at_ == text_.size());
        if (whole)
            *ret_value = std::move(value);
        else
            *ret_why = "not JSON at byte " + std::to_string(at_);
        return whole;
    }

  private:
    void skip()
    {
        while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr)
            ++at_;
    }
    bool take(char c)
    {
        skip();
        if (at_ >= text_.size() || text_[at_] != c)
            return false;
        ++at_;
        return true;
    }
    bool word(const char *expected)
    {
        const std::size_t length = std::strlen(expected);
        if (text_.compare(at_, length, expected) != 0)
            return false;
        at_ += length;
        return true;
    }

    bool parse(JsonValue *value, int depth)
    {
        skip();
        if (depth > kMaxDepth || at_ >= text_.size())
            return false;
        switch (text_[at_]) {
        case '{': return object(value, depth);
        case '[': return array(value, depth);
        case '"': value->kind = JsonValue::Kind::string; return string(&value->text);
        case 't': value->kind = JsonValue::Kind::boolean; value->boolean = true; return word("true");
        case 'f': value->kind = JsonValue::Kind::boolean; return word("false");
        case 'n': return word("null");
        default: return number(value);
        }
    }

    bool object(JsonValue *value, int depth)
    {
        value->kind = JsonValue::Kind::object;
        take('{');
        for (bool first = true; !take('}'); first = false) {
            std::string key;
            if ((!first && !take(',')) || (skip(), at_ >= text_.size()) || text_[at_] != '"' || !string(&key) ||
                !take(':') || !parse(&value->members[key], depth + 1))
                return false;
        }
        return true;
    }

    bool array(JsonValue *value, int depth)
    {
        value->kind = JsonValue::Kind::array;
        take('[');
        for (bool first = true; !take(']'); first = false) {
            if (!first && !take(','))
                return false;
            value->items.emplace_back();
            if (!parse(&value->items.back(), depth + 1))
                return false;
        }
        return true;
    }

    bool number(JsonValue *value)
    {
        const std::size_t begin = at_;
        while (at_ < text_.size() && std::strchr("+-.eE0123456789", text_[at_]) != nullptr && text_[at_] != '\0')
            ++at_;
        value->kind = JsonValue::Kind::number;
        value->text = text_.substr(begin, at_ - begin);
        char *end = nullptr;
        value->number = std::strtod(value->text.c_str(), &end);
        return !value->text.empty() && *end == '\0';
    }

    bool string(std::string *ret_text)
    {
        ++at_; // the quote
        while (at_ < text_.size() && text_[at_] != '"') {
            if (text_[at_] != '\\') {
                *ret_text += text_[at_++];
                continue;
            }
            if (++at_ >= text_.size() || !escape(ret_text))
                return false;
        }
        return at_ < text_.size() && text_[at_++] == '"';
    }

    bool escape(std::string *text)
    {
        static const std::map<char, char> kShort = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'b', '\b'},
                                                    {'f', '\f'}, {'n', '\n'},  {'r', '\r'}, {'t', '\t'}};
        const char c = text_[at_++];
        const auto found = kShort.find(c);
        if (found != kShort.end()) {
            *text += found->second;
            return true;
        }
        if (c != 'u' || at_ + 4 > text_.size())
            return false;
        char *end = nullptr;
        const std::string digits = text_.substr(at_, 4);
        append_utf8(text, static_cast<std::uint32_t>(std::strtoul(digits.c_str(), &end, 16)));
        at_ += 4;
        return *end == '\0';
    }

    /// Surrogates are not joined: we never write any.
    static void append_utf8(std::string *text, std::uint32_t code)
    {
        if (code < 0x80) {
            *text += static_cast<char>(code);
        } else if (code < 0x800) {
            *text += static_cast<char>(0xc0 | code >> 6);
            *text += static_cast<char>(0x80 | (code & 0x3f));
        } else {
            *text += static_cast<char>(0xe0 | code >> 12);
            *text += static_cast<char>(0x80 | (code >> 6 & 0x3f));
            *text += static_cast<char>(0x80 | (code & 0x3f));
        }
    }

    const std::string &text_;
    std::size_t at_ = 0;
};

} // namespace

bool parse_json(JsonValue *ret_value, std::string *ret_why, const std::string &text)
{
    return Parser(text).document(ret_value, ret_why);
}

} // namespace jigsaw::cli
