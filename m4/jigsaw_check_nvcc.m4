# SPDX-License-Identifier: Apache-2.0
# JIGSAW_CHECK_NVCC: CUDA's compiler and cuBLAS, for the scan's kernels (after JIGSAW_CHECK_CUDA, whose prefix it looks in).
# Sets NVCC, NVCC_FLAGS (sm_80 and sm_90) and the conditional HAVE_NVCC.
AC_DEFUN([JIGSAW_CHECK_NVCC], [
    AC_ARG_VAR([NVCC], [CUDA's compiler])
    NVCC_FLAGS="-std=c++17 -O2 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90"
    have_NVCC=no
    AS_IF([test "x$have_CUDA" = xyes], [
        AC_PATH_PROG([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR$jigsaw_cuda_prefix/bin])
        AS_IF([test -n "$NVCC"], [
            AC_MSG_CHECKING([whether $NVCC compiles for sm_80 and sm_90, with cuBLAS])
            AS_ECHO(["#include <cublas_v2.h>
__global__ void kernel() {}"]) >conftest.cu
            AS_IF([$NVCC $NVCC_FLAGS -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1], [have_NVCC=yes])
            rm -f conftest.cu conftest.o
            AC_MSG_RESULT([$have_NVCC])
        ])
    ])
    AC_SUBST([NVCC_FLAGS])
    AM_CONDITIONAL([HAVE_NVCC], [test "x$have_NVCC" = xyes])
])
