// SPDX-License-Identifier: Apache-2.0
// The socket's messages: round trips, and everything that must be refused with one printable line.
#include "runtime/page/wire.hpp"
#include "tests/lib/suite.hpp"

#include <string>

namespace {

using namespace jigsaw::wire;

START_TEST(round_trips)
{
    Message message{"ATTACH", {{"job", "12"}, {"gpu", "GPU-0a1b/2:3"}, {"text", "a b=c%\n\xff~\x01"}, {"empty", ""}}};
    const std::string text = format(message);
    ck_assert_str_eq(text.c_str(), "ATTACH empty= gpu=GPU-0a1b/2:3 job=12 text=a%20b%3Dc%25%0A%FF%7E%01");
    Message back;
    std::string why;
    ck_assert(parse(&back, &why, text.data(), text.size()));
    ck_assert_str_eq(back.verb.c_str(), "ATTACH");
    ck_assert(back.values == message.values);
    ck_assert_str_eq(back.find("job")->c_str(), "12");
    ck_assert_ptr_null(back.find("rank"));
}
END_TEST

struct Row {
    std::string text;
    const char *says; ///< null: accepted
};

START_TEST(grammar)
{
    const std::string longest = "PING x=" + std::string(kMaxMessage - 7, 'a');
    const Row rows[] = {
        {"STATUS", nullptr},
        {"A_B a=1 b_2=%41", nullptr},
        {"PING x=%c3%A9", nullptr},
        {longest, nullptr},
        {longest + "a", "message of 4097 bytes, allowed is 1 to 4096"},
        {"", "message of 0 bytes"},
        {" ", "verb ''"},
        {"status", "verb 'status'"},
        {"_PING", "verb '_PING'"},
        {"PING1", "verb 'PING1'"},
        {"PING\n", "verb 'PING?'"},
        {std::string("PING\0", 5), "verb 'PING?'"},
        {"PING ", "word ''"},
        {"PING  a=1", "word ''"},
        {"PING a", "word 'a' is not key=value"},
        {"PING =1", "key ''"},
        {"PING A=1", "key 'A'"},
        {"PING 1a=1", "key '1a'"},
        {"PING a-b=1", "key 'a-b'"},
        {"PING a=1 a=2", "key 'a' stands twice"},
        {"PING a=b=c", "value of a"},
        {"PING a=\xff", "value of a"},
        {"PING a=\t", "value of a"},
        {std::string("PING a=\0", 8), "value of a"},
        {"PING a=%", "value of a"},
        {"PING a=%4", "value of a"},
        {"PING a=%4g", "value of a"},
        {"PING a=%00", "value of a"},
        {"PING \x1b[2J=1", "key '?[2J'"},
        {"PING " + std::string(500, 'x'), "xxx...' is not key=value"},
    };
    for (const Row &row : rows) {
        Message message{"KEPT", {}};
        std::string why = "kept";
        const bool accepted = parse(&message, &why, row.text.data(), row.text.size());
        ck_assert_msg(accepted == (row.says == nullptr), "'%s': %s", row.text.c_str(), why.c_str());
        if (accepted) {
            ck_assert_str_eq(why.c_str(), "kept");
            continue;
        }
        ck_assert_str_eq(message.verb.c_str(), "KEPT");
        ck_assert_msg(why.find(row.says) != std::string::npos, "'%s' does not say '%s'", why.c_str(), row.says);
        for (const char c : why)
            ck_assert_msg(c >= 0x20 && c < 0x7f, "unprintable in '%s'", why.c_str());
    }
}
END_TEST

START_TEST(numbers)
{
    const struct {
        const char *text;
        std::uint64_t lowest, highest;
        bool good;
        std::uint64_t value;
    } rows[] = {
        {"0", 0, 10, true, 0},
        {"10", 0, 10, true, 10},
        {"007", 0, 10, true, 7},
        {"18446744073709551615", 0, UINT64_MAX, true, UINT64_MAX},
        {"18446744073709551616", 0, UINT64_MAX, false, 0},
        {"99999999999999999999999", 0, UINT64_MAX, false, 0},
        {"11", 0, 10, false, 0},
        {"0", 1, 10, false, 0},
        {"", 0, 10, false, 0},
        {"-1", 0, UINT64_MAX, false, 0},
        {"+1", 0, 10, false, 0},
        {" 1", 0, 10, false, 0},
        {"1 ", 0, 10, false, 0},
        {"0x1", 0, 10, false, 0},
        {"1e1", 0, 10, false, 0},
    };
    for (const auto &row : rows) {
        std::uint64_t value = 77;
        ck_assert_msg(parse_unsigned(&value, row.text, row.lowest, row.highest) == row.good, "'%s'", row.text);
        ck_assert_uint_eq(value, row.good ? row.value : 77);
    }
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("wire");
    jigsaw::tests::add_case(suite, "messages", {round_trips, grammar});
    jigsaw::tests::add_case(suite, "numbers", {numbers});
    return jigsaw::tests::run_tap(suite);
}
