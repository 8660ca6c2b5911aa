// SPDX-License-Identifier: Apache-2.0
// See text.hpp. std::from_chars and std::to_chars: the only number functions that know no locale.
#include "plugin/config/text.hpp"

#include <algorithm>
#include <charconv>

namespace jigsaw::config {
namespace {

constexpr std::size_t kShownLimit = 64;
constexpr std::size_t kFractionLimit = 40; ///< more digits than a double holds help nobody

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_plain(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
}

} // namespace

bool parse_whole(std::uint64_t *ret_value, const std::string &text, std::uint64_t lowest, std::uint64_t highest)
{
    if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit))
        return false;
    std::uint64_t value = 0;
    const char *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || value < lowest || value > highest)
        return false;
    *ret_value = value;
    return true;
}

bool parse_fraction(double *ret_value, const std::string &text, double lowest, double highest)
{
    if (text.empty() || text.size() > kFractionLimit || !is_digit(text.front()) || !is_digit(text.back()))
        return false;
    double value = 0;
    const char *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
    if (error != std::errc() || stop != end || !(value >= lowest && value <= highest))
        return false;
    *ret_value = value;
    return true;
}

std::string format_fraction(double value)
{
    char buffer[512]; // the longest fixed form of a double has 309 digits before the point
    const auto [stop, error] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
    return error == std::errc() ? std::string(buffer, stop) : "0";
}

std::string shown(const std::string &value)
{
    std::string text = value.substr(0, kShownLimit);
    std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return value.size() > kShownLimit ? text + "..." : text;
}

std::vector<std::string> split(const std::string &text, char separator)
{
    std::vector<std::string> parts;
    std::size_t start = 0;
    for (std::size_t at; (at = text.find(separator, start)) != std::string::npos; start = at + 1)
        parts.push_back(text.substr(start, at - start));
    parts.push_back(text.substr(start));
    return parts;
}

bool is_plain_word(const std::string &text, std::size_t longest)
{
    return !text.empty() && text.size() <= longest && text.front() != '.' &&
           std::all_of(text.begin(), text.end(), is_plain);
}

} // namespace jigsaw::config
