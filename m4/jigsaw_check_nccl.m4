# SPDX-License-Identifier: Apache-2.0
# JIGSAW_CHECK_NCCL: nccl.h and libnccl, for tests alone: the product declares what it calls itself and opens the library
# at run time, so one binary serves machines with and without it. Sets NCCL_CPPFLAGS, NCCL_LIBS and the conditionals
# HAVE_NCCL (the header) and HAVE_NCCL_LIBRARY; call after JIGSAW_CHECK_CUDA (nccl.h includes CUDA's).

# _JIGSAW_NCCL_PYTHON: the include folder of the wheel that the python3 in use carries, if any.
AC_DEFUN([_JIGSAW_NCCL_PYTHON], [
    jigsaw_nccl_include=`$PYTHON -c 'import importlib.util, os
spec = importlib.util.find_spec("nvidia")
for folder in (spec.submodule_search_locations if spec else []):
    path = os.path.join(folder, "nccl", "include")
    if os.path.exists(os.path.join(path, "nccl.h")):
        print(path)
        break' 2>/dev/null`
    AS_IF([test -n "$jigsaw_nccl_include"], [NCCL_CPPFLAGS="-isystem $jigsaw_nccl_include"])
])

AC_DEFUN([JIGSAW_CHECK_NCCL], [
    AC_ARG_WITH([nccl],
        [AS_HELP_STRING([--with-nccl=PREFIX], [nccl.h in PREFIX/include; --without-nccl builds no NCCL collective])],
        [], [with_nccl=auto])
    have_NCCL=no
    have_NCCL_LIBRARY=no
    NCCL_LIBS=
    NCCL_CPPFLAGS=
    jigsaw_why_NCCL="nccl.h (2.18 or newer) not found; install libnccl-dev or give --with-nccl=PREFIX"
    AS_CASE([$with_nccl],
        [no], [jigsaw_why_NCCL="switched off by --without-nccl"],
        [auto|yes], [_JIGSAW_NCCL_PYTHON],
        [NCCL_CPPFLAGS="-isystem $with_nccl/include"])
    AS_IF([test "x$with_nccl" != xno && test "x$have_CUDA" != xyes], [jigsaw_why_NCCL="needs the CUDA runtime"], [
      AS_IF([test "x$with_nccl" != xno], [
        AC_LANG_PUSH([C++])
        jigsaw_save_CPPFLAGS=$CPPFLAGS; CPPFLAGS="$CPPFLAGS $NCCL_CPPFLAGS $CUDA_CPPFLAGS"
        AC_MSG_CHECKING([for nccl.h, 2.18 or newer])
        AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
            #include <nccl.h>
            #if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
            #error "NCCL before 2.18 has no ncclCommSplit"
            #endif]], [])], [have_NCCL=yes])
        AC_MSG_RESULT([$have_NCCL])
        jigsaw_save_LIBS=$LIBS; LIBS="-lnccl $CUDA_LIBS $LIBS"
        AS_IF([test "x$have_NCCL" = xyes], [
            AC_MSG_CHECKING([for libnccl])
            AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <nccl.h>]], [[int v; return ncclGetVersion(&v);]])],
                [have_NCCL_LIBRARY=yes])
            AC_MSG_RESULT([$have_NCCL_LIBRARY])
        ])
        LIBS=$jigsaw_save_LIBS
        CPPFLAGS=$jigsaw_save_CPPFLAGS
        AC_LANG_POP([C++])
      ])])
    AS_IF([test "x$have_NCCL" = xno], [AS_CASE([$with_nccl], [no|auto], [],
        [AC_MSG_ERROR([--with-nccl=$with_nccl: $jigsaw_why_NCCL])])])
    AS_IF([test "x$have_NCCL" = xyes],
        [AC_DEFINE([HAVE_NCCL], [1], [Define to 1 if nccl.h is used.])
         NCCL_CPPFLAGS="$NCCL_CPPFLAGS $CUDA_CPPFLAGS"], [NCCL_CPPFLAGS=])
    AS_IF([test "x$have_NCCL_LIBRARY" = xyes], [NCCL_LIBS="-lnccl $CUDA_LIBS"])
    AC_SUBST([NCCL_CPPFLAGS])
    AC_SUBST([NCCL_LIBS])
    AM_CONDITIONAL([HAVE_NCCL_LIBRARY], [test "x$have_NCCL_LIBRARY" = xyes])
    AM_CONDITIONAL([HAVE_NCCL], [test "x$have_NCCL" = xyes])
])
