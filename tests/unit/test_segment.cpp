// SPDX-License-Identifier: GPL-2.0-or-later
// Our segment in comments that others write, too.
#include "plugin/select/segment.hpp"

#include "tests/lib/suite.hpp"

#include <string>

using namespace jigsaw::select;

namespace {

struct Replace {
    const char *comment, *segment, *want;
};
const Replace kReplaced[] = {
    {"", "jigsaw:{a}", "jigsaw:{a}"},
    {"disk quota raised", "jigsaw:{a}", "disk quota raised jigsaw:{a}"},
    {"jigsaw:{a}", "jigsaw:{b}", "jigsaw:{b}"},
    {"before jigsaw:{a} after", "jigsaw:{b}", "before jigsaw:{b} after"},
    {"before jigsaw:{a} after", "", "before after"},
    {"jigsaw:{\"x\":\"}\",\"y\":{\"z\":1}} after", "jigsaw:{b}", "jigsaw:{b} after"},
    {"jigsaw:{\"quote\\\"}\"} after", "jigsaw:{b}", "jigsaw:{b} after"},
    {"before jigsaw:{unclosed", "jigsaw:{b}", "before jigsaw:{b}"},
    {"jigsaw: not ours", "jigsaw:{b}", "jigsaw: not ours jigsaw:{b}"},
    {"nothing", "", "nothing"},
};

struct Merge {
    const char *old, *wanted, *want;
};
const Merge kMerged[] = {
    {"text jigsaw:{a}", "other text", "other text jigsaw:{a}"},     // an administrator's new text keeps our segment
    {"text jigsaw:{a}", "jigsaw:{b}", "text jigsaw:{b}"},           // ours alone keeps the administrator's text
    {"text jigsaw:{a}", "new jigsaw:{b}", "new jigsaw:{b}"},        // both: as they are
    {"", "jigsaw:{b}", "jigsaw:{b}"},
    {"text", "", ""},
    {"text jigsaw:{a}", "", "jigsaw:{a}"},
};

START_TEST(replaces)
{
    for (const Replace &row : kReplaced)
        ck_assert_str_eq(replace_segment(row.comment, row.segment).c_str(), row.want);
}
END_TEST

START_TEST(merges)
{
    for (const Merge &row : kMerged)
        ck_assert_str_eq(merge_comments(row.old, row.wanted).c_str(), row.want);
}
END_TEST

START_TEST(plain_words_cannot_break_out)
{
    ck_assert_str_eq(plain_segment("").c_str(), "");
    ck_assert_str_eq(plain_segment("waits: {n1} \"x\"").c_str(), "jigsaw:{waits: (n1) 'x'}");
    const std::string hostile = plain_segment("} jigsaw:{");
    ck_assert_str_eq(find_segment("a " + hostile + " b").c_str(), hostile.c_str());
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("segment");
    jigsaw::tests::add_case(suite, "comments", {replaces, merges, plain_words_cannot_break_out});
    return jigsaw::tests::run_tap(suite);
}
