# SPDX-License-Identifier: Apache-2.0
# JIGSAW_CHECK_GRAPHBLAS: SuiteSparse:GraphBLAS, which bench/sparse is compared with. Sets GRAPHBLAS_LIBS and HAVE_GRAPHBLAS.
AC_DEFUN([JIGSAW_CHECK_GRAPHBLAS], [
    AC_ARG_WITH([graphblas],
        [AS_HELP_STRING([--without-graphblas], [do not compare with SuiteSparse:GraphBLAS in bench/sparse])],
        [], [with_graphblas=auto])
    have_GRAPHBLAS=no
    GRAPHBLAS_LIBS="-lgraphblas"
    jigsaw_why_GRAPHBLAS="GraphBLAS.h or libgraphblas not found; install libgraphblas-dev"
    AS_IF([test "x$with_graphblas" = xno], [jigsaw_why_GRAPHBLAS="switched off by --without-graphblas"], [
        jigsaw_save_LIBS=$LIBS; LIBS="$GRAPHBLAS_LIBS $LIBS"
        AC_MSG_CHECKING([for SuiteSparse:GraphBLAS])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <GraphBLAS.h>]], [[GrB_init(GrB_NONBLOCKING)]])], [have_GRAPHBLAS=yes])
        AC_MSG_RESULT([$have_GRAPHBLAS])
        LIBS=$jigsaw_save_LIBS
        AS_IF([test "x$have_GRAPHBLAS" = xno && test "x$with_graphblas" = xyes],
            [AC_MSG_ERROR([--with-graphblas: $jigsaw_why_GRAPHBLAS])])
    ])
    AC_SUBST([GRAPHBLAS_LIBS])
    AM_CONDITIONAL([HAVE_GRAPHBLAS], [test "x$have_GRAPHBLAS" = xyes])
])
