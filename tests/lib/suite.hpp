// SPDX-License-Identifier: Apache-2.0
// run_tap(): what every unit test's main() returns. Check prints TAP, Automake's tap-driver.sh reads it.
//
//     START_TEST(adds) { ck_assert_int_eq(1 + 1, 2); } END_TEST
//     int main()
//     {
//         Suite *suite = suite_create("arithmetic");
//         jigsaw::tests::add_case(suite, "sums", {adds});
//         return jigsaw::tests::run_tap(suite);
//     }
#ifndef JIGSAW_TESTS_LIB_SUITE_HPP
#define JIGSAW_TESTS_LIB_SUITE_HPP

#include <check.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>

namespace jigsaw::tests {

/// Check reads its limit when a case is created; 4 s (its default) is too short for a busy machine and a sanitizer.
inline const bool kTimeoutSet = setenv("CK_DEFAULT_TIMEOUT", "120", /*overwrite=*/0) == 0;

/// What START_TEST defines: a function pointer up to Check 0.12, a pointer to a description since 0.13.
using TestEntry = const TTest *;

/// One named case holding these tests; returns it for fixtures.
inline TCase *add_case(Suite *suite, const char *name, std::initializer_list<TestEntry> tests)
{
    TCase *tcase = tcase_create(name);
    for (TestEntry test : tests)
        tcase_add_test(tcase, test);
    suite_add_tcase(suite, tcase);
    return tcase;
}

inline std::string text_of(const std::string &text) { return text; }
inline std::string text_of(const char *text) { return text ? text : "(null)"; }

enum class Isolation { as_told, process };

/// Runs the suite and prints TAP on stdout. Fails when a test failed, and when there was none to run: an empty suite
/// is a mistake, not a success. `process`: each test in a process of its own, whatever CK_FORK says; sound under the thread
/// sanitizer as long as main() starts no thread.
inline int run_tap(Suite *suite, Isolation isolation = Isolation::as_told)
{
    SRunner *runner = srunner_create(suite);
    if (isolation == Isolation::process)
        srunner_set_fork_status(runner, CK_FORK);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    const int ran = srunner_ntests_run(runner);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    if (ran == 0)
        std::printf("Bail out! the suite holds no test\n");
    return ran > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace jigsaw::tests

// Check's own macros for strings keep pointers past the end of the expression that made them, so that a temporary
// std::string is gone when they compare. These take std::string and const char *, and copy.
#undef ck_assert_str_eq
#undef ck_assert_str_ne
#define ck_assert_str_eq(X, Y) JIGSAW_COMPARE_TEXT(X, ==, Y)
#define ck_assert_str_ne(X, Y) JIGSAW_COMPARE_TEXT(X, !=, Y)
#define JIGSAW_COMPARE_TEXT(X, OP, Y)                                                                                  \
    do {                                                                                                               \
        const std::string x_text_ = jigsaw::tests::text_of(X), y_text_ = jigsaw::tests::text_of(Y);                    \
        ck_assert_msg(x_text_ OP y_text_, "Assertion '%s' failed: %s is \"%s\", %s is \"%s\"", #X " " #OP " " #Y, #X,  \
                      x_text_.c_str(), #Y, y_text_.c_str());                                                           \
    } while (0)

#endif
