# SPDX-License-Identifier: Apache-2.0
# Packages that pkg-config knows. Each sets NAME_CFLAGS, NAME_LIBS, the conditional HAVE_NAME and jigsaw_why_NAME,
# the reason for the closing table when the package is not used.

# JIGSAW_CHECK_PKGCONFIG(NAME, option, pkg-config condition, Debian package)
AC_DEFUN([JIGSAW_CHECK_PKGCONFIG], [
    AC_ARG_WITH([$2],
        [AS_HELP_STRING([--without-$2], [do not build what needs $2])],
        [], [with_$2=auto])
    have_$1=no
    jigsaw_why_$1=
    AS_IF([test "x$with_$2" = xno], [jigsaw_why_$1="switched off by --without-$2"], [
        PKG_CHECK_MODULES([$1], [$3], [have_$1=yes], [
            jigsaw_why_$1="$3 not found; install $4"
            AS_IF([test "x$with_$2" = xyes], [AC_MSG_ERROR([--with-$2: $3 not found by pkg-config; install $4])])])
    ])
    AS_IF([test "x$have_$1" = xyes], [AC_DEFINE([HAVE_$1], [1], [Define to 1 if $2 is used.])])
    AM_CONDITIONAL([HAVE_$1], [test "x$have_$1" = xyes])
])

AC_DEFUN([JIGSAW_CHECK_HWLOC], [JIGSAW_CHECK_PKGCONFIG([HWLOC], [hwloc], [hwloc >= 2.4], [libhwloc-dev])])
AC_DEFUN([JIGSAW_CHECK_YAML], [JIGSAW_CHECK_PKGCONFIG([YAML], [yaml], [yaml-0.1 >= 0.2], [libyaml-dev])])
AC_DEFUN([JIGSAW_CHECK_CHECK], [JIGSAW_CHECK_PKGCONFIG([CHECK], [check], [check >= 0.15], [check])])

# JIGSAW_CHECK_SPIN: the model checker. It writes a C program, so it needs the compiler that we have anyway.
AC_DEFUN([JIGSAW_CHECK_SPIN], [
    AC_ARG_VAR([SPIN], [the spin model checker])
    AC_PATH_PROG([SPIN], [spin])
    have_SPIN=no
    jigsaw_why_SPIN="spin not found in PATH; install spin"
    AS_IF([test -n "$SPIN"], [have_SPIN=yes])
    AM_CONDITIONAL([HAVE_SPIN], [test "x$have_SPIN" = xyes])
])
