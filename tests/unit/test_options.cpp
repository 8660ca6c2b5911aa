// SPDX-License-Identifier: Apache-2.0
// The --spb options: good and bad values, one by one and as a job's environment carries them.
#include "plugin/config/options.hpp"
#include "plugin/config/text.hpp"

#include <cmath>
#include <string>
#include <vector>

// Check last: it defines fail().
#include "tests/lib/same_text.hpp"
#include "tests/lib/suite.hpp"

using namespace jigsaw;
using config::set_spb_option;

namespace {

struct Good {
    const char *name, *value, *canonical; ///< canonical: format_request() of a --spb job with this option
};
const std::vector<Good> kGood = {
    {"spb", "auto", "spb=auto"},
    {"spb", "", "spb=auto"},
    {"spb", "(null)", "spb=auto"},
    {"spb", "off", "spb=off"},
    {"spb", "full", "spb=full"},
    {"spb", "2", "spb=2"},
    {"spb", "16", "spb=16"},
    {"spb-policy", "two-level", "spb=auto"},
    {"spb-policy", "rotate", "spb=auto spb-policy=rotate"},
    {"spb-policy", "shuffle", "spb=auto spb-policy=shuffle"},
    {"spb-policy", "fixed", "spb=auto spb-policy=fixed"},
    {"spb-warmup", "0", "spb=auto"},
    {"spb-warmup", "1000000000", "spb=auto spb-warmup=1000000000"},
    {"spb-min-depth", "0", "spb=auto"},
    {"spb-min-depth", "0.25", "spb=auto spb-min-depth=0.25"},
    {"spb-min-depth", "1", "spb=auto spb-min-depth=1"},
    {"spb-min-depth", "0.1", "spb=auto spb-min-depth=0.1"},
    {"spb-share", "no", "spb=auto spb-share=no"},
    {"spb-share", "2", "spb=auto spb-share=2"},
    {"spb-share", "8", "spb=auto spb-share=8"},
    {"spb-mem", "20G", "spb=auto spb-mem=20G"},
    {"spb-mem", "20g", "spb=auto spb-mem=20G"},
    {"spb-mem", "1M", "spb=auto spb-mem=1M"},
    {"spb-mem", "1024K", "spb=auto spb-mem=1M"},
    {"spb-mem", "1536M", "spb=auto spb-mem=1536M"},
    {"spb-mem", "16T", "spb=auto spb-mem=16T"},
    {"spb-mem", "10000001", "spb=auto spb-mem=10000001"},
    {"spb-weight", "0.1", "spb=auto spb-weight=0.1"},
    {"spb-weight", "1", "spb=auto"},
    {"spb-weight", "1.0", "spb=auto"},
    {"spb-weight", "2.5", "spb=auto spb-weight=2.5"},
    {"spb-weight", "10", "spb=auto spb-weight=10"},
    {"spb-profile", "resnet50-b32_v1.2", "spb=auto spb-profile=resnet50-b32_v1.2"},
    {"spb-profile", "a", "spb=auto spb-profile=a"},
};

struct Bad {
    const char *name, *value, *why;
};
const std::string kLong(65, 'k');
const std::vector<Bad> kBad = {
    {"spb", "1", "--spb=1: allowed: auto, off, full, or a number of levels from 2 to 16"},
    {"spb", "17", "--spb=17: allowed: auto"},
    {"spb", "0", "--spb=0: allowed: auto"},
    {"spb", "-4", "--spb=-4: allowed: auto"},
    {"spb", "+4", "--spb=+4: allowed: auto"},
    {"spb", " 4", "allowed: auto"},
    {"spb", "4 ", "allowed: auto"},
    {"spb", "4.0", "allowed: auto"},
    {"spb", "0x4", "allowed: auto"},
    {"spb", "Auto", "allowed: auto"},
    {"spb", "yes", "allowed: auto"},
    {"spb", "18446744073709551620", "allowed: auto"}, // 4 modulo 2^64
    {"spb-policy", "fast", "--spb-policy=fast: allowed: two-level, rotate, shuffle, fixed, uniform"},
    {"spb-policy", "", "allowed: two-level"},
    {"spb-policy", "(null)", "allowed: two-level"},
    {"spb-policy", "full", "allowed: two-level"},
    {"spb-policy", "rotate,fixed", "allowed: two-level"},
    {"spb-warmup", "", "--spb-warmup=: allowed: a whole number of iterations from 0 to 1000000000"},
    {"spb-warmup", "-1", "allowed: a whole"},
    {"spb-warmup", "1e3", "allowed: a whole"},
    {"spb-warmup", "1000000001", "allowed: a whole"},
    {"spb-warmup", "99999999999999999999", "allowed: a whole"},
    {"spb-warmup", "10%", "allowed: a whole"},
    {"spb-min-depth", "1.01", "--spb-min-depth=1.01: allowed: a fraction from 0 to 1"},
    {"spb-min-depth", "-0.1", "allowed: a fraction"},
    {"spb-min-depth", "nan", "allowed: a fraction"},
    {"spb-min-depth", "inf", "allowed: a fraction"},
    {"spb-min-depth", "0,5", "allowed: a fraction"},
    {"spb-min-depth", ".5", "allowed: a fraction"},
    {"spb-min-depth", "1.", "allowed: a fraction"},
    {"spb-min-depth", "0.5.5", "allowed: a fraction"},
    {"spb-min-depth", "5e-1", "allowed: a fraction"},
    {"spb-min-depth", "0x1p-1", "allowed: a fraction"},
    {"spb-min-depth", "", "allowed: a fraction"},
    {"spb-min-depth", "0.00000000000000000000000000000000000000001", "allowed: a fraction"},
    {"spb-share", "1", "--spb-share=1: allowed: no, or a number of jobs from 2 to 8"},
    {"spb-share", "9", "allowed: no, or"},
    {"spb-share", "0", "allowed: no, or"},
    {"spb-share", "yes", "allowed: no, or"},
    {"spb-share", "", "allowed: no, or"},
    {"spb-mem", "0", "--spb-mem=0: allowed: a size from 1M to 16T, such as 512M or 20G"},
    {"spb-mem", "20", "allowed: a size"},
    {"spb-mem", "20GB", "allowed: a size"},
    {"spb-mem", "20GiB", "allowed: a size"},
    {"spb-mem", "G", "allowed: a size"},
    {"spb-mem", "", "allowed: a size"},
    {"spb-mem", "-1G", "allowed: a size"},
    {"spb-mem", "1.5G", "allowed: a size"},
    {"spb-mem", "17T", "allowed: a size"},
    {"spb-mem", "18014398509481985K", "allowed: a size"}, // 1K modulo 2^64
    {"spb-mem", "20 G", "allowed: a size"},
    {"spb-weight", "0", "--spb-weight=0: allowed: a weight from 0.1 to 10"},
    {"spb-weight", "0.09", "allowed: a weight"},
    {"spb-weight", "10.1", "allowed: a weight"},
    {"spb-weight", "nan", "allowed: a weight"},
    {"spb-weight", "high", "allowed: a weight"},
    {"spb-profile", "", "--spb-profile=: allowed: 1 to 64 letters"},
    {"spb-profile", "a b", "allowed: 1 to 64"},
    {"spb-profile", "../../etc/passwd", "allowed: 1 to 64"},
    {"spb-profile", "..", "allowed: 1 to 64"},
    {"spb-profile", "k\xc3\xa4se", "k??se: allowed: 1 to 64"},
    {"spb-profile", "a\nb", "a?b: allowed: 1 to 64"},
    {"spb-levels", "4", "--spb-levels: no such option"},
};

core::SpbRequest just_spb()
{
    core::SpbRequest request;
    request.mode = core::SpbMode::automatic;
    return request;
}

} // namespace

START_TEST(good_values)
{
    for (const Good &row : kGood) {
        core::SpbRequest request = just_spb();
        std::string why;
        ck_assert_msg(set_spb_option(&request, &why, row.name, row.value), "--%s=%s: %s", row.name, row.value, why.c_str());
        assert_same_text(config::format_request(request), row.canonical);
    }
}
END_TEST

START_TEST(bad_values)
{
    for (const Bad &row : kBad) {
        core::SpbRequest request = just_spb();
        std::string why;
        ck_assert_msg(!set_spb_option(&request, &why, row.name, row.value), "--%s=%s was taken", row.name, row.value);
        ck_assert_msg(why.find(row.why) != std::string::npos, "--%s=%s: %s", row.name, row.value, why.c_str());
        ck_assert(why.find('\n') == std::string::npos);
        assert_same_text(config::format_request(request), "spb=auto");
    }
    core::SpbRequest request = just_spb();
    std::string why;
    ck_assert(!set_spb_option(&request, &why, "spb-profile", kLong));
    ck_assert(set_spb_option(&request, &why, "spb-profile", kLong.substr(1)));
}
END_TEST

START_TEST(requests_survive_text)
{
    for (const Good &row : kGood) {
        core::SpbRequest request;
        std::string why;
        ck_assert_msg(config::parse_request(&request, &why, row.canonical), "%s: %s", row.canonical, why.c_str());
        assert_same_text(config::format_request(request), row.canonical);
    }
    const char *all = "spb=8 spb-policy=fixed spb-warmup=10 spb-min-depth=0.3 spb-share=3 spb-mem=20G spb-weight=0.7 spb-profile=x";
    core::SpbRequest request;
    std::string why;
    ck_assert(config::parse_request(&request, &why, all));
    assert_same_text(config::format_request(request), all);
    ck_assert_uint_eq(request.levels, 8);
    ck_assert_uint_eq(request.max_share, 3);
    ck_assert_uint_eq(request.memory_bytes, 20ULL << 30);
    ck_assert(request.min_depth_fraction == 0.3 && request.weight == 0.7);
}
END_TEST

START_TEST(bad_request_texts)
{
    for (const char *text : {"", "spb", "spb=auto ", " spb=auto", "spb=auto  spb-share=2", "spb=auto spb=auto",
                             "spb-share=2", "spb=auto x=1", "spb=auto\nspb-share=2", "=auto"}) {
        core::SpbRequest request;
        std::string why;
        ck_assert_msg(!config::parse_request(&request, &why, text), "'%s' was taken", text);
        ck_assert(!why.empty());
        ck_assert(!request.shares());
    }
}
END_TEST

namespace {
struct Environment {
    std::vector<std::string> entries;
    const char *canonical; ///< nullptr: refused
    const char *why;
};
} // namespace

START_TEST(environments)
{
    const std::string prefix = "_SLURM_SPANK_OPTION_jigsaw_";
    const std::vector<Environment> rows = {
        {{}, "spb=off", ""},
        {{"PATH=/bin", "HOME=/root"}, "spb=off", ""},
        {{prefix + "spb=(null)"}, "spb=auto", ""},
        {{prefix + "spb="}, "spb=auto", ""},
        {{prefix + "spb=4", prefix + "spb_policy=rotate"}, "spb=4 spb-policy=rotate", ""},
        {{prefix + "spb_policy=rotate", prefix + "spb=4"}, "spb=4 spb-policy=rotate", ""},
        {{"SPANK_" + prefix + "spb=full"}, "spb=full", ""},
        {{"SPANK_" + prefix + "spb=full", prefix + "spb=full"}, "spb=full", ""},
        {{prefix + "spb=auto", "JIGSAW_MAP=x", "SPANK_JIGSAW_MAP=y"}, "spb=auto", ""},
        {{"_SLURM_SPANK_OPTION_pyxis_container=x"}, "spb=off", ""},
        {{"X" + prefix + "spb=9999"}, "spb=off", ""},
        {{prefix + "spb=off", prefix + "spb_share=2"}, "spb=off spb-share=2", ""},
        {{prefix + "spb=99"}, nullptr, "--spb=99: allowed: auto"},
        {{"SPANK_" + prefix + "spb=full", prefix + "spb=4"}, nullptr, "--spb: given twice, as full and 4"},
        {{prefix + "spb_policy=rotate"}, nullptr, "--spb-policy=rotate: means nothing without --spb; add --spb"},
        {{prefix + "spb=4", prefix + "spb_colour=red"}, nullptr, "carries no option of ours"},
        {{prefix + "spb=4", prefix + "spb-policy=rotate"}, nullptr, "carries no option of ours"},
        {{prefix + "spb"}, nullptr, "carries no option of ours"},
        {{prefix}, nullptr, "carries no option of ours"},
        {{prefix + "spb=4", prefix + "spb_mem=" + std::string(100000, '9')}, nullptr, "allowed: a size"},
    };
    for (const Environment &row : rows) {
        core::SpbRequest request;
        std::string why;
        const bool taken = config::parse_spank_environment(&request, &why, row.entries);
        ck_assert_msg(taken == (row.canonical != nullptr), "%s", why.c_str());
        assert_same_text(config::format_request(request), taken ? row.canonical : "spb=off");
        ck_assert_msg(why.find(row.why) != std::string::npos, "%s", why.c_str());
        ck_assert(why.size() < 300 && why.find('\n') == std::string::npos);
    }
}
END_TEST

START_TEST(names_in_the_environment)
{
    assert_same_text(config::spank_environment_name("spb"), "_SLURM_SPANK_OPTION_jigsaw_spb");
    assert_same_text(config::spank_environment_name("spb-min-depth"), "_SLURM_SPANK_OPTION_jigsaw_spb_min_depth");
    const std::vector<std::pair<const char *, int>> rows = { // 2: an option; 1: ours; 0: not
        {"_SLURM_SPANK_OPTION_jigsaw_spb=4", 2}, {"SPANK__SLURM_SPANK_OPTION_jigsaw_spb=4", 2},
        {"_SLURM_SPANK_OPTION_jigsaw_anything", 2}, {"JIGSAW_MAP=x", 1}, {"SPANK_JIGSAW_MAP=x", 1},
        {"SPANK_SPANK_JIGSAW_MAP=x", 1}, {"JIGSAW=x", 0}, {"XJIGSAW_MAP=x", 0}, {"_SLURM_SPANK_OPTION_other_spb=4", 0},
        {"", 0}, {"PATH=JIGSAW_", 0}};
    for (const auto &[entry, kind] : rows) {
        ck_assert_msg(config::is_our_entry(entry) == (kind > 0), "%s", entry);
        ck_assert_msg(config::is_option_entry(entry) == (kind == 2), "%s", entry);
    }
}
END_TEST

START_TEST(table_is_whole)
{
    ck_assert_uint_eq(config::spb_option_table().size(), 8);
    for (const config::OptionRow &row : config::spb_option_table()) {
        ck_assert(row.name && row.arginfo && row.usage && row.allowed && row.fallback);
        ck_assert_int_eq(row.has_argument, std::string(row.name) != "spb");
    }
}
END_TEST

START_TEST(policies_are_the_plan_s)
{
    for (const plan::Policy policy : {plan::Policy::two_level, plan::Policy::rotate, plan::Policy::shuffle, plan::Policy::fixed,
                                      plan::Policy::uniform}) {
        core::SpbRequest request = just_spb();
        std::string why;
        ck_assert(set_spb_option(&request, &why, "spb-policy", plan::policy_name(policy)));
        ck_assert(request.policy == policy);
    }
}
END_TEST

START_TEST(sizes)
{
    const std::vector<std::pair<const char *, std::uint64_t>> good = {
        {"0", 0}, {"1", 1}, {"1K", 1024}, {"1k", 1024}, {"512M", 512ULL << 20}, {"20G", 20ULL << 30}, {"1T", 1ULL << 40},
        {"18446744073709551615", UINT64_MAX}, {"16777215T", 16777215ULL << 40}};
    for (const auto &[text, bytes] : good) {
        std::uint64_t value = 7;
        ck_assert_msg(config::parse_size(&value, text), "%s", text);
        ck_assert_uint_eq(value, bytes);
        std::uint64_t again = 7;
        ck_assert(config::parse_size(&again, config::format_size(value)));
        ck_assert_uint_eq(again, bytes);
    }
    for (const char *text : {"", "K", "1P", "1KB", "-1", "1 K", "18446744073709551616", "16777216T", "1.0G", "0x10", "١"}) {
        std::uint64_t value = 7;
        ck_assert_msg(!config::parse_size(&value, text), "%s", text);
        ck_assert_uint_eq(value, 7);
    }
}
END_TEST

int main()
{
    Suite *suite = suite_create("options");
    tests::add_case(suite, "values", {good_values, bad_values, policies_are_the_plan_s, sizes});
    tests::add_case(suite, "texts", {requests_survive_text, bad_request_texts});
    tests::add_case(suite, "environment", {environments, names_in_the_environment, table_is_whole});
    return tests::run_tap(suite);
}
