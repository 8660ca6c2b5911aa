# SPDX-License-Identifier: Apache-2.0
# JIGSAW_COMPILER_FLAGS: our own flags, kept out of the user's CFLAGS and CXXFLAGS, and --enable-sanitizers.
# Sets JIGSAW_WARN, JIGSAW_SANITIZE, JIGSAW_CK_FORK and the conditionals SANITIZERS and THREAD_SANITIZER.

AC_DEFUN([JIGSAW_COMPILER_FLAGS], [
    JIGSAW_WARN="-Wall -Wextra"
    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror], [make compiler warnings errors])],
        [], [enable_werror=no])
    AS_IF([test "x$enable_werror" = xyes], [JIGSAW_WARN="$JIGSAW_WARN -Werror"])

    AC_ARG_ENABLE([sanitizers],
        [AS_HELP_STRING([--enable-sanitizers=LIST],
            [compile with -fsanitize=LIST (address,undefined or thread) and run the tests that way])],
        [], [enable_sanitizers=no])
    JIGSAW_SANITIZE=
    AS_CASE([$enable_sanitizers],
        [no], [],
        [yes], [enable_sanitizers=address,undefined])
    AS_IF([test "x$enable_sanitizers" != xno], [
        JIGSAW_SANITIZE="-fsanitize=$enable_sanitizers -fno-sanitize-recover=all -fno-omit-frame-pointer"
        jigsaw_save_CFLAGS=$CFLAGS
        CFLAGS="$CFLAGS $JIGSAW_SANITIZE"
        AC_MSG_CHECKING([whether $CC links with -fsanitize=$enable_sanitizers])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])], [
            AC_MSG_RESULT([no])
            AC_MSG_ERROR([--enable-sanitizers=$enable_sanitizers: $CC does not link with it; use address,undefined or thread and install the compiler's sanitizer library])])
        CFLAGS=$jigsaw_save_CFLAGS
    ])
    # Check forks a child per test; the thread sanitizer does not follow threads of a forked child reliably.
    AS_CASE([$enable_sanitizers], [*thread*], [JIGSAW_CK_FORK=no], [JIGSAW_CK_FORK=yes])
    AM_CONDITIONAL([SANITIZERS], [test "x$enable_sanitizers" != xno])
    AM_CONDITIONAL([THREAD_SANITIZER], [test "x$JIGSAW_CK_FORK" = xno])
    AC_SUBST([JIGSAW_WARN])
    AC_SUBST([JIGSAW_SANITIZE])
    AC_SUBST([JIGSAW_CK_FORK])
])
