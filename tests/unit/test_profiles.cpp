// SPDX-License-Identifier: GPL-2.0-or-later
// What select learns from AdminComment and keeps between runs.
#include "plugin/select/profiles.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include <unistd.h>

#include "tests/lib/folder.hpp"
#include "tests/lib/suite.hpp"

using namespace jigsaw::select;
using jigsaw::core::Profile;
using jigsaw::tests::Folder;

namespace {

Profile profile(double forward, double backward, std::uint64_t memory)
{
    Profile made;
    made.forward_ms = forward;
    if (backward > 0)
        made.backward_ms_of_level = {backward};
    made.memory_peak_bytes = memory;
    return made;
}

START_TEST(reads_what_jigsawd_writes)
{
    const Measured measured = parse_measured("see ticket 7 jigsaw:{\"spb\":\"spb=auto\",\"attached\":true,\"gpu_s\":3.1,"
                                             "\"mem\":1073741824,\"fwd_ms\":12.5,\"bwd_ms\":30,\"sync_ms\":4.25}");
    ck_assert_double_eq(measured.profile.forward_ms, 12.5);
    ck_assert_double_eq(measured.profile.full_turn_ms(), 42.5);
    ck_assert_double_eq(measured.profile.network_ms, 4.25);
    ck_assert_uint_eq(measured.profile.memory_peak_bytes, 1073741824);
    ck_assert(!measured.misbehaving);
}
END_TEST

// What jigsawd says beside the profile: costs of levels, and how far the run is.
START_TEST(reads_levels_and_progress)
{
    const Measured measured = parse_measured("jigsaw:{\"fwd_ms\":1e+01,\"bwd_ms\":30,\"lvl_ms\":\"5 10 20\",\"at\":1790000000,"
                                             "\"done_s\":1e+06,\"left_s\":0}");
    ck_assert_double_eq(measured.profile.forward_ms, 10);
    ck_assert((measured.profile.backward_ms_of_level == std::vector<double>{7.5, 15, 30})); // scaled to the whole
    ck_assert_double_eq(measured.done_s, 1000000);
    ck_assert_double_eq(measured.left_s, 0);
    ck_assert_int_eq(measured.at_s, 1790000000);
    ck_assert_double_eq(run_of(measured, 1790000100), 1000100);
    ck_assert_double_eq(run_of(measured, 0), 1000000);
    ck_assert_double_eq(run_of(parse_measured("jigsaw:{}"), 5), 0);
    ck_assert_double_lt(parse_measured("jigsaw:{\"done_s\":5}").left_s, 0);
    for (const char *levels : {"\"\"", "\"5 4 30\"", "\"5 x\"", "\"0 0\"", "7", "\"5", "null"}) {
        const std::string comment = std::string("jigsaw:{\"bwd_ms\":30,\"lvl_ms\":") + levels + "}";
        ck_assert_msg(parse_measured(comment).profile.backward_ms_of_level == std::vector<double>{30}, "%s", levels);
    }
}
END_TEST

START_TEST(levels_and_length_survive)
{
    const Folder folder;
    std::string why;
    ProfileStore first;
    Profile measured = profile(10, 20, 0);
    measured.backward_ms_of_level = {4, 20};
    measured.run_s = 600.5;
    first.learn(1000, "resnet", measured);
    first.learn(1000, "resnet", profile(10, 40, 0)); // full depth alone: the levels are scaled to it
    first.learn(1000, "plain", profile(1, 2, 3));
    ck_assert_msg(first.save(&why, folder.path()), "%s", why.c_str());
    ProfileStore second;
    second.load(folder.path());
    ck_assert((second.find(1000, "resnet").backward_ms_of_level == std::vector<double>{8, 40}));
    ck_assert_double_eq(second.find(1000, "resnet").run_s, 600.5);
    ck_assert((second.find(1000, "plain").backward_ms_of_level == std::vector<double>{2}));
    ck_assert_double_eq(second.find(1000, "plain").run_s, 0);
}
END_TEST

START_TEST(takes_no_other_text_for_numbers)
{
    for (const char *comment : {"", "\"fwd_ms\":5", "jigsaw:{}", "jigsaw:{\"fwd_ms\":-5}", "jigsaw:{\"fwd_ms\":1e99}",
                                "jigsaw:{\"fwd_ms\":1.2.3}", "jigsaw:{\"fwd_ms\":", "jigsaw:{\"fwd_ms\":nan}"}) {
        const Measured measured = parse_measured(comment);
        ck_assert_msg(measured.profile.forward_ms <= 1, "%s", comment);
        ck_assert(!measured.profile.known());
    }
    ck_assert(parse_measured("jigsaw:{\"misbehaving\":\"keeps turns\"}").misbehaving);
}
END_TEST

START_TEST(keeps_profiles_between_runs)
{
    const Folder folder;
    std::string why;
    ProfileStore first;
    first.learn(1000, "resnet", profile(10, 20, 1u << 30));
    first.learn(1000, "resnet", profile(11, 0, 0)); // nothing newer about backward and memory
    first.learn(1001, "resnet", profile(1, 2, 3));
    ck_assert(first.unsaved());
    ck_assert_msg(first.save(&why, folder.path()), "%s", why.c_str());
    ck_assert(!first.unsaved());
    ProfileStore second;
    second.load(folder.path());
    ck_assert_double_eq(second.find(1000, "resnet").full_turn_ms(), 31);
    ck_assert_uint_eq(second.find(1000, "resnet").memory_peak_bytes, 1u << 30);
    ck_assert_double_eq(second.find(1001, "resnet").full_turn_ms(), 3); // another user's
    ck_assert(!second.find(1000, "bert").known());
}
END_TEST

START_TEST(leaves_out_what_is_damaged)
{
    const Folder folder;
    std::ofstream(folder.path() + "/jigsaw_profiles")
        << "jigsaw profiles 1\n1000 a 1 2 3 4\n1000 b one 2 3 4\n1000 ../c 1 2 3 4\n5000000000 d 1 2 3 4\n\n1000 e 1 2 3\n"
           "1000 g 1 2 3 4 5 -\n1000 h 1 2 3 4 5 1,2\n1000 i 1 2 3 4 5\n1000 j 1 2 3 4 5 2,1\n1000 k 1 2 3 4 -5 -\n";
    ProfileStore store;
    store.load(folder.path());
    for (const char *key : {"a", "g", "h"})
        ck_assert(store.find(1000, key).known());
    for (const char *key : {"b", "../c", "e", "i", "j", "k"})
        ck_assert(!store.find(1000, key).known());
    std::ofstream(folder.path() + "/jigsaw_profiles") << "jigsaw profiles 2\n1000 f 1 2 3 4\n";
    store.load(folder.path());
    ck_assert(!store.find(1000, "f").known());
    std::string why;
    ck_assert(!store.save(&why, "/nonexistent/folder"));
    ck_assert_ptr_nonnull(strstr(why.c_str(), "/nonexistent/folder/jigsaw_profiles: No such file"));
}
END_TEST

START_TEST(forgets_the_oldest)
{
    ProfileStore store;
    for (int i = 0; i <= 10000; ++i)
        store.learn(1, "k" + std::to_string(i), profile(1, 1, 1));
    ck_assert(!store.find(1, "k0").known());
    ck_assert(store.find(1, "k1").known());
    ck_assert(store.find(1, "k10000").known());
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("profiles");
    jigsaw::tests::add_case(suite, "profiles",
                            {reads_what_jigsawd_writes, reads_levels_and_progress, levels_and_length_survive, takes_no_other_text_for_numbers, keeps_profiles_between_runs,
                             leaves_out_what_is_damaged, forgets_the_oldest});
    return jigsaw::tests::run_tap(suite);
}
