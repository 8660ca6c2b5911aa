// SPDX-License-Identifier: Apache-2.0
// Tables of text: fields, numbers, complaints that name the line.
#include "plugin/sim/text.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace jigsaw::sim {

namespace {

constexpr std::size_t kLongestLine = 1 << 16; // no table has longer ones; a binary file has

std::string shown(double number)
{
    char text[32];
    std::snprintf(text, sizeof text, "%g", number);
    return text;
}

} // namespace

std::vector<std::string> split(const std::string &line, char separator)
{
    std::vector<std::string> fields(1);
    for (const char c : line) {
        if (c == separator)
            fields.emplace_back();
        else
            fields.back() += c;
    }
    return fields;
}

std::string trim(const std::string &text)
{
    const auto first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos)
        return "";
    return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

bool parse_number(double *ret_number, const std::string &text)
{
    const std::string bare = trim(text);
    char *end = nullptr;
    const double number = std::strtod(bare.c_str(), &end);
    if (bare.empty() || *end != '\0' || !std::isfinite(number))
        return false;
    *ret_number = number;
    return true;
}

TableReader::TableReader(const std::string &path, char separator, bool skip_bad)
    : path_(path), file_(path), separator_(separator), skip_bad_(skip_bad)
{
    if (!file_)
        throw InputError(path + ": " + std::strerror(errno));
}

bool TableReader::next(std::vector<std::string> *ret_fields)
{
    std::string line;
    while (std::getline(file_, line)) {
        ++line_;
        if (trim(line).empty())
            continue;
        if (line.size() > kLongestLine || line.find('\0') != std::string::npos)
            throw InputError(path_ + ":" + std::to_string(line_) + ": not a line of text; is this a table?");
        if (line.back() == '\r')
            line.pop_back();
        *ret_fields = split(line, separator_);
        return true;
    }
    return false;
}

void TableReader::header(const std::vector<std::string> &needed)
{
    std::vector<std::string> fields;
    if (!next(&fields))
        throw InputError(path_ + ": empty; expected a header with " + needed.front());
    for (std::size_t i = 0; i < fields.size(); ++i)
        columns_[trim(fields[i])] = i;
    for (const std::string &column : needed)
        if (!has(column))
            throw InputError(path_ + ":" + std::to_string(line_) + ": the header has no column '" + column + "'");
}

const std::string &TableReader::field(const std::vector<std::string> &fields, const std::string &column) const
{
    const std::size_t at = columns_.at(column);
    if (at >= fields.size())
        throw InputError("no field '" + column + "', " + std::to_string(fields.size()) + " fields in all");
    return fields[at];
}

double TableReader::number(const std::vector<std::string> &fields, const std::string &column, double least,
                           double most) const
{
    const std::string &text = field(fields, column);
    double number = 0;
    if (!parse_number(&number, text))
        throw InputError(column + " '" + text + "' is no number");
    if (number < least || number > most)
        throw InputError(column + " " + trim(text) + " is not in " + shown(least) + ".." + shown(most));
    return number;
}

void TableReader::bad(const std::string &why)
{
    if (!skip_bad_)
        throw InputError(path_ + ":" + std::to_string(line_) + ": " + why + "; --skip-bad leaves such lines out");
    ++bad_;
}

} // namespace jigsaw::sim
