// SPDX-License-Identifier: Apache-2.0
// Comparing std::strings in Check: ck_assert_str_eq() keeps pointers into temporaries that are gone when it compares.
#ifndef JIGSAW_TESTS_LIB_SAME_TEXT_HPP
#define JIGSAW_TESTS_LIB_SAME_TEXT_HPP

#include <check.h>

#include <string>

#define assert_same_text(actual, expected)                                                                             \
    do {                                                                                                               \
        const std::string actual_ = (actual), expected_ = (expected);                                                  \
        ck_assert_msg(actual_ == expected_, #actual " is '%s', not '%s'", actual_.c_str(), expected_.c_str());         \
    } while (0)

#define assert_has_text(whole, part)                                                                                   \
    do {                                                                                                               \
        const std::string whole_ = (whole), part_ = (part);                                                            \
        ck_assert_msg(whole_.find(part_) != std::string::npos, #whole " is '%s', without '%s'", whole_.c_str(),        \
                      part_.c_str());                                                                                  \
    } while (0)

#endif
