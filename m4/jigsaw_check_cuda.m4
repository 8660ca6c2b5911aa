# SPDX-License-Identifier: Apache-2.0
# JIGSAW_CHECK_CUDA: the CUDA runtime, for GPU events in the runtime half (the plugin half links no GPU library).
# No nvcc is needed: we write no kernels here. Sets CUDA_CPPFLAGS, CUDA_LIBS and the conditional HAVE_CUDA.

AC_DEFUN([JIGSAW_CHECK_CUDA], [
    AC_ARG_WITH([cuda],
        [AS_HELP_STRING([--with-cuda=PREFIX], [CUDA in PREFIX (default: /usr/local/cuda, then the system); --without-cuda builds no GPU code])],
        [], [with_cuda=auto])
    have_CUDA=no
    CUDA_CPPFLAGS=
    CUDA_LIBS="-lcudart"
    jigsaw_why_CUDA="cuda_runtime.h or libcudart not found; install the CUDA toolkit or give --with-cuda=PREFIX"
    AS_CASE([$with_cuda],
        [no], [jigsaw_why_CUDA="switched off by --without-cuda"; jigsaw_cuda_prefix=],
        [auto|yes], [jigsaw_cuda_prefix=/usr/local/cuda],
        [jigsaw_cuda_prefix=$with_cuda])
    AS_IF([test -n "$jigsaw_cuda_prefix" && test -f "$jigsaw_cuda_prefix/include/cuda_runtime.h"], [
        CUDA_CPPFLAGS="-isystem $jigsaw_cuda_prefix/include"
        jigsaw_cuda_lib=$jigsaw_cuda_prefix/lib64
        AS_IF([test ! -d "$jigsaw_cuda_lib"], [jigsaw_cuda_lib=$jigsaw_cuda_prefix/lib])
        CUDA_LIBS="-L$jigsaw_cuda_lib -Wl,-rpath,$jigsaw_cuda_lib -lcudart"
    ])
    AS_IF([test "x$with_cuda" != xno], [
        AC_LANG_PUSH([C++])
        jigsaw_save_CPPFLAGS=$CPPFLAGS; CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
        jigsaw_save_LIBS=$LIBS; LIBS="$CUDA_LIBS $LIBS"
        AC_MSG_CHECKING([for the CUDA runtime])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime.h>]],
            [[int count = 0; return cudaGetDeviceCount(&count) == cudaSuccess ? 0 : 1;]])], [have_CUDA=yes])
        AC_MSG_RESULT([$have_CUDA])
        CPPFLAGS=$jigsaw_save_CPPFLAGS
        LIBS=$jigsaw_save_LIBS
        AC_LANG_POP([C++])
        AS_IF([test "x$have_CUDA" = xno && test "x$with_cuda" != xauto], [AC_MSG_ERROR([--with-cuda=$with_cuda: $jigsaw_why_CUDA])])
    ])
    AS_IF([test "x$have_CUDA" = xyes], [AC_DEFINE([HAVE_CUDA], [1], [Define to 1 if the CUDA runtime is used.])], [CUDA_CPPFLAGS=; CUDA_LIBS=])
    AC_SUBST([CUDA_CPPFLAGS])
    AC_SUBST([CUDA_LIBS])
    AM_CONDITIONAL([HAVE_CUDA], [test "x$have_CUDA" = xyes])
])
