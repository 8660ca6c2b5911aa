// SPDX-License-Identifier: GPL-2.0-or-later
// See segment.hpp.
#include "plugin/select/segment.hpp"

#include <algorithm>
#include <utility>

namespace jigsaw::select {
namespace {

const std::string kOpen = "jigsaw:{";

/// One past the brace that closes the one at `at`; braces within JSON strings do not count.
std::size_t end_of_braces(const std::string &text, std::size_t at)
{
    int depth = 0;
    bool quoted = false;
    for (std::size_t i = at; i < text.size(); ++i) {
        if (quoted && text[i] == '\\')
            ++i;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && text[i] == '{')
            ++depth;
        else if (!quoted && text[i] == '}' && --depth == 0)
            return i + 1;
    }
    return text.size();
}

/// Begin and length of our segment; length 0: none.
std::pair<std::size_t, std::size_t> locate(const std::string &comment)
{
    const std::size_t begin = comment.find(kOpen);
    if (begin == std::string::npos)
        return {comment.size(), 0};
    return {begin, end_of_braces(comment, begin + kOpen.size() - 1) - begin};
}

std::string trimmed(const std::string &text)
{
    const std::size_t first = text.find_first_not_of(' ');
    return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::string joined(const std::string &a, const std::string &b)
{
    return a.empty() || b.empty() ? a + b : a + " " + b;
}

} // namespace

std::string plain_segment(const std::string &words)
{
    if (words.empty())
        return "";
    std::string inside = words;
    std::replace(inside.begin(), inside.end(), '{', '(');
    std::replace(inside.begin(), inside.end(), '}', ')');
    std::replace(inside.begin(), inside.end(), '"', '\'');
    return kOpen + inside + "}";
}

std::string find_segment(const std::string &comment)
{
    const auto [begin, length] = locate(comment);
    return comment.substr(begin, length);
}

std::string without_segment(const std::string &comment)
{
    return replace_segment(comment, "");
}

std::string replace_segment(const std::string &comment, const std::string &segment)
{
    const auto [begin, length] = locate(comment);
    if (length == 0)
        return joined(comment, segment);
    return joined(joined(trimmed(comment.substr(0, begin)), segment), trimmed(comment.substr(begin + length)));
}

std::string merge_comments(const std::string &old, const std::string &wanted)
{
    const std::string segment = find_segment(wanted);
    if (segment.empty())
        return replace_segment(wanted, find_segment(old));
    return without_segment(wanted).empty() ? replace_segment(old, segment) : wanted;
}

} // namespace jigsaw::select
