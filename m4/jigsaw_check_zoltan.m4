# SPDX-License-Identifier: Apache-2.0
# JIGSAW_CHECK_ZOLTAN: another partitioner, for bench/sparse_partition to compare with; nothing else uses it. Debian has its
# headers in include/trilinos and no pkg-config file. It needs MPI, so this comes after JIGSAW_CHECK_MPI.
# Sets ZOLTAN_CPPFLAGS, ZOLTAN_LIBS and the conditional HAVE_ZOLTAN.

AC_DEFUN([JIGSAW_CHECK_ZOLTAN], [
    AC_ARG_WITH([zoltan],
        [AS_HELP_STRING([--with-zoltan=PREFIX], [Zoltan in PREFIX, for a benchmark; --without-zoltan leaves it out])],
        [], [with_zoltan=auto])
    have_ZOLTAN=no
    ZOLTAN_CPPFLAGS="-isystem /usr/include/trilinos"
    ZOLTAN_LIBS="-ltrilinos_zoltan"
    jigsaw_why_ZOLTAN="zoltan.h or libtrilinos_zoltan not found; install libtrilinos-zoltan-dev or give --with-zoltan=PREFIX"
    AS_CASE([$with_zoltan],
        [no], [jigsaw_why_ZOLTAN="switched off by --without-zoltan"],
        [auto|yes], [],
        [ZOLTAN_CPPFLAGS="-isystem $with_zoltan/include"; ZOLTAN_LIBS="-L$with_zoltan/lib -lzoltan"])
    AS_IF([test "x$with_zoltan" != xno && test "x$have_MPI" != xyes], [jigsaw_why_ZOLTAN="it needs MPI"])
    AS_IF([test "x$with_zoltan" != xno && test "x$have_MPI" = xyes], [
        # Without MPI's old C++ classes, which warn.
        ZOLTAN_CPPFLAGS="$ZOLTAN_CPPFLAGS $MPI_CFLAGS -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX"
        ZOLTAN_LIBS="$ZOLTAN_LIBS $MPI_LIBS"
        AC_LANG_PUSH([C++])
        jigsaw_save_CPPFLAGS=$CPPFLAGS; CPPFLAGS="$CPPFLAGS $ZOLTAN_CPPFLAGS"
        jigsaw_save_LIBS=$LIBS; LIBS="$ZOLTAN_LIBS $LIBS"
        AC_MSG_CHECKING([for Zoltan])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <zoltan.h>]],
            [[float version; return Zoltan_Initialize(0, nullptr, &version);]])], [have_ZOLTAN=yes])
        AC_MSG_RESULT([$have_ZOLTAN])
        CPPFLAGS=$jigsaw_save_CPPFLAGS
        LIBS=$jigsaw_save_LIBS
        AC_LANG_POP([C++])
    ])
    AS_IF([test "x$have_ZOLTAN" = xno && test "x$with_zoltan" != xauto && test "x$with_zoltan" != xno],
        [AC_MSG_ERROR([--with-zoltan=$with_zoltan: $jigsaw_why_ZOLTAN])])
    AS_IF([test "x$have_ZOLTAN" = xyes],
        [AC_DEFINE([HAVE_ZOLTAN], [1], [Define to 1 if Zoltan is there to compare with.])],
        [ZOLTAN_CPPFLAGS=; ZOLTAN_LIBS=])
    AC_SUBST([ZOLTAN_CPPFLAGS])
    AC_SUBST([ZOLTAN_LIBS])
    AM_CONDITIONAL([HAVE_ZOLTAN], [test "x$have_ZOLTAN" = xyes])
])
