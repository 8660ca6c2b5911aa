# SPDX-License-Identifier: Apache-2.0
# JIGSAW_CHECK_MPI: Open MPI, for sparse networks on several ranks. pkg-config knows it as `ompi`; --with-mpi=PREFIX is for
# one in a place of its own. Sets MPI_CFLAGS, MPI_LIBS, MPIRUN and the conditional HAVE_MPI.
AC_DEFUN([JIGSAW_CHECK_MPI], [
    AC_ARG_WITH([mpi],
        [AS_HELP_STRING([--with-mpi=PREFIX], [Open MPI in PREFIX; --without-mpi: sparse networks on one rank only])],
        [], [with_mpi=auto])
    AC_ARG_VAR([MPIRUN], [starts MPI programs, for the tests])
    have_MPI=no
    jigsaw_why_MPI="Open MPI (ompi.pc) not found; install libopenmpi-dev or give --with-mpi=PREFIX"
    AS_CASE([$with_mpi],
        [no], [jigsaw_why_MPI="switched off by --without-mpi"],
        [auto|yes], [PKG_CHECK_MODULES([MPI], [ompi >= 4], [have_MPI=yes], [have_MPI=no])],
        [MPI_CFLAGS="-I$with_mpi/include"; MPI_LIBS="-L$with_mpi/lib -Wl,-rpath,$with_mpi/lib -lmpi"; have_MPI=yes])
    AS_IF([test "x$have_MPI" = xyes], [
        jigsaw_save_CPPFLAGS=$CPPFLAGS; CPPFLAGS="$CPPFLAGS $MPI_CFLAGS"
        jigsaw_save_LIBS=$LIBS; LIBS="$MPI_LIBS $LIBS"
        AC_MSG_CHECKING([whether MPI links])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[MPI_Init(0, 0)]])], [], [have_MPI=no])
        AC_MSG_RESULT([$have_MPI])
        CPPFLAGS=$jigsaw_save_CPPFLAGS
        LIBS=$jigsaw_save_LIBS
        AC_PATH_PROGS([MPIRUN], [mpirun orterun], [], [$with_mpi/bin$PATH_SEPARATOR$PATH])
    ])
    AS_IF([test "x$have_MPI" != xyes && test "x$with_mpi" != xauto && test "x$with_mpi" != xno],
        [AC_MSG_ERROR([--with-mpi=$with_mpi: $jigsaw_why_MPI])])
    AS_IF([test "x$have_MPI" = xyes], [AC_DEFINE([HAVE_MPI], [1], [Define to 1 if MPI is used.])], [MPI_CFLAGS=; MPI_LIBS=])
    AC_SUBST([MPI_CFLAGS])
    AC_SUBST([MPI_LIBS])
    AM_CONDITIONAL([HAVE_MPI], [test "x$have_MPI" = xyes])
])
