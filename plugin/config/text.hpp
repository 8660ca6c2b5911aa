// SPDX-License-Identifier: Apache-2.0
// Numbers and words out of text that somebody else wrote. Whole string or nothing; no sign, no blank, no locale, no NaN.
#ifndef JIGSAW_CONFIG_TEXT_HPP
#define JIGSAW_CONFIG_TEXT_HPP

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::config {

/// Decimal digits only, within [lowest, highest].
bool parse_whole(std::uint64_t *ret_value, const std::string &text, std::uint64_t lowest, std::uint64_t highest);
/// "0.25": digits, at most one dot with digits on both sides, within [lowest, highest].
bool parse_fraction(double *ret_value, const std::string &text, double lowest, double highest);
/// The shortest text that parse_fraction() reads back as the same number; `value` is finite and not negative.
std::string format_fraction(double value);

/// A foreign value as it may stand in a message or a log: printable ASCII, at most 64 characters.
std::string shown(const std::string &value);

/// The parts between single `separator`s; "" has one empty part.
std::vector<std::string> split(const std::string &text, char separator);

/// Only [A-Za-z0-9._-], 1 to `longest` characters, not starting with a dot: safe as part of a file name.
bool is_plain_word(const std::string &text, std::size_t longest);

} // namespace jigsaw::config
#endif
