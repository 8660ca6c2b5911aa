# SPDX-License-Identifier: Apache-2.0
# JIGSAW_CHECK_GLOO: the CPU collectives. Gloo has no pkg-config file, so its header and library are tried.
# Sets GLOO_CPPFLAGS, GLOO_LIBS and the conditional HAVE_GLOO.

AC_DEFUN([JIGSAW_CHECK_GLOO], [
    AC_ARG_WITH([gloo],
        [AS_HELP_STRING([--with-gloo=PREFIX], [Gloo in PREFIX; --without-gloo builds no Gloo collective])],
        [], [with_gloo=auto])
    have_GLOO=no
    GLOO_CPPFLAGS=
    GLOO_LIBS="-lgloo"
    jigsaw_why_GLOO="gloo/context.h or libgloo not found; install libgloo-dev or give --with-gloo=PREFIX"
    AS_CASE([$with_gloo],
        [no], [jigsaw_why_GLOO="switched off by --without-gloo"],
        [auto|yes], [],
        [GLOO_CPPFLAGS="-I$with_gloo/include"; GLOO_LIBS="-L$with_gloo/lib -lgloo"])
    AS_IF([test "x$with_gloo" != xno], [
        AC_LANG_PUSH([C++])
        jigsaw_save_CPPFLAGS=$CPPFLAGS; CPPFLAGS="$CPPFLAGS $GLOO_CPPFLAGS"
        jigsaw_save_LIBS=$LIBS; LIBS="$GLOO_LIBS $LIBS"
        AC_MSG_CHECKING([for Gloo])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[
            #include <gloo/context.h>
            #include <gloo/transport/tcp/device.h>]],
            [[gloo::Context context(0, 1); return context.size != 1;]])], [have_GLOO=yes])
        AC_MSG_RESULT([$have_GLOO])
        CPPFLAGS=$jigsaw_save_CPPFLAGS
        LIBS=$jigsaw_save_LIBS
        AC_LANG_POP([C++])
        AS_IF([test "x$have_GLOO" = xno && test "x$with_gloo" != xauto], [AC_MSG_ERROR([--with-gloo=$with_gloo: $jigsaw_why_GLOO])])
    ])
    AS_IF([test "x$have_GLOO" = xyes], [AC_DEFINE([HAVE_GLOO], [1], [Define to 1 if Gloo is used.])], [GLOO_CPPFLAGS=; GLOO_LIBS=])
    AC_SUBST([GLOO_CPPFLAGS])
    AC_SUBST([GLOO_LIBS])
    AM_CONDITIONAL([HAVE_GLOO], [test "x$have_GLOO" = xyes])
])
