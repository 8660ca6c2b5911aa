// SPDX-License-Identifier: Apache-2.0
// Columns as wide as their widest cell.
#include "plugin/cli/table.hpp"

#include <algorithm>
#include <cstdio>

namespace jigsaw::cli {

namespace {

/// What came from elsewhere must not steer the terminal.
std::string printable(std::string text)
{
    for (char &c : text) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            c = '?';
    }
    return text;
}

} // namespace

Table::Table(const std::vector<std::string> &headings)
{
    std::vector<std::string> shown;
    for (const std::string &heading : headings) {
        right_.push_back(!heading.empty() && heading[0] == '>');
        shown.push_back(right_.back() ? heading.substr(1) : heading);
    }
    rows_.push_back(shown);
}

void Table::row(const std::vector<std::string> &cells)
{
    rows_.push_back(cells);
    rows_.back().resize(right_.size());
    for (std::string &cell : rows_.back())
        cell = printable(cell);
}

std::string Table::text(const std::string &indent) const
{
    std::vector<std::size_t> widths(right_.size(), 0);
    for (const auto &row : rows_) {
        for (std::size_t i = 0; i < row.size(); ++i)
            widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto &row : rows_) {
        std::string line = indent;
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string fill(widths[i] - row[i].size(), ' ');
            line += (i > 0 ? "  " : "") + (right_[i] ? fill + row[i] : row[i] + fill);
        }
        text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
}

std::string with_decimals(double value, int decimals)
{
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
    return text;
}

std::string percent(double share)
{
    return with_decimals(100 * share, 0) + "%";
}

std::string duration(double seconds)
{
    if (seconds < 120)
        return with_decimals(seconds, 1) + " s";
    if (seconds < 7200)
        return with_decimals(seconds / 60, 1) + " min";
    return with_decimals(seconds / 3600, 1) + " h";
}

} // namespace jigsaw::cli
