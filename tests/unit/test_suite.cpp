// SPDX-License-Identifier: Apache-2.0
// The test library itself: a suite without tests fails, one with a passing test passes, one with a failing test fails.
#include "tests/lib/suite.hpp"

#include <unistd.h>

namespace {

START_TEST(passes) { ck_assert_int_eq(1, 1); } END_TEST
START_TEST(fails) { ck_assert_int_eq(1, 2); } END_TEST

/// run_tap() of an inner suite with its TAP sent away, so that it does not mix with ours.
int run_quietly(std::initializer_list<jigsaw::tests::TestEntry> tests)
{
    Suite *inner = suite_create("inner");
    if (tests.size() > 0)
        jigsaw::tests::add_case(inner, "inner", tests);
    std::fflush(stdout);
    const int saved = dup(STDOUT_FILENO);
    if (!std::freopen("/dev/null", "w", stdout))
        return -1;
    const int status = jigsaw::tests::run_tap(inner);
    std::fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    return status;
}

START_TEST(empty_suite_fails) { ck_assert_int_eq(run_quietly({}), EXIT_FAILURE); } END_TEST
START_TEST(passing_suite_passes) { ck_assert_int_eq(run_quietly({passes}), EXIT_SUCCESS); } END_TEST
START_TEST(failing_suite_fails) { ck_assert_int_eq(run_quietly({passes, fails}), EXIT_FAILURE); } END_TEST

START_TEST(texts_differ) { ck_assert_str_eq(std::string("a"), "b"); } END_TEST
START_TEST(texts_equal) { ck_assert_str_ne(std::string("a"), "a"); } END_TEST

START_TEST(texts_are_compared_by_value)
{
    ck_assert_str_eq(std::string("long enough to be ") + "on the heap", "long enough to be on the heap");
    ck_assert_str_ne(std::string("a").c_str(), std::string("b").c_str());
    ck_assert_int_eq(run_quietly({texts_differ}), EXIT_FAILURE);
    ck_assert_int_eq(run_quietly({texts_equal}), EXIT_FAILURE);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("suite");
    jigsaw::tests::add_case(suite, "exit status", {empty_suite_fails, passing_suite_passes, failing_suite_fails});
    jigsaw::tests::add_case(suite, "texts", {texts_are_compared_by_value});
    return jigsaw::tests::run_tap(suite);
}
