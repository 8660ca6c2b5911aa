# SPDX-License-Identifier: Apache-2.0
# JIGSAW_CHECK_LIBTORCH: LibTorch 1.13 or 2.x, for runtime/torch and the examples.
#   --with-libtorch=DIR     that distribution (DIR/include/torch, DIR/lib)
#   --with-libtorch=python  the torch package of the python3 in use
#   --with-libtorch=system  the compiler's own search paths (Debian's libtorch-dev)
#   (nothing)               python's if there is one, else the system's
# Sets TORCH_CPPFLAGS (with the C++ ABI that the library was built with), TORCH_LIBS, TORCH_VERSION, HAVE_LIBTORCH.

# _JIGSAW_TORCH_FIND_PYTHON: folder and ABI flag of python's torch, without importing more than its path when it is
# absent. import torch takes seconds, but only it knows the ABI.
AC_DEFUN([_JIGSAW_TORCH_FIND_PYTHON], [
    AC_MSG_CHECKING([for the torch package of $PYTHON])
    jigsaw_torch_python=`$PYTHON -c 'import os, torch
folder = os.path.dirname(torch.__file__)
assert os.path.exists(os.path.join(folder, "include", "torch", "csrc"))
print(int(torch.compiled_with_cxx11_abi()), folder)' 2>/dev/null`
    AC_MSG_RESULT([${jigsaw_torch_python:-no}])
    AS_IF([test -n "$jigsaw_torch_python"], [
        jigsaw_torch_abi=`echo "$jigsaw_torch_python" | cut -d' ' -f1`
        jigsaw_torch_dir=`echo "$jigsaw_torch_python" | cut -d' ' -f2-`
    ])
])

# _JIGSAW_TORCH_FLAGS: from jigsaw_torch_dir (empty: system) and jigsaw_torch_abi (empty: leave to the compiler).
AC_DEFUN([_JIGSAW_TORCH_FLAGS], [
    jigsaw_torch_inc=${jigsaw_torch_dir:-/usr}/include
    TORCH_CPPFLAGS="-isystem $jigsaw_torch_inc/torch/csrc/api/include"
    TORCH_LIBS="-ltorch -ltorch_cpu -lc10"
    AS_IF([test -n "$jigsaw_torch_dir"], [
        TORCH_CPPFLAGS="-isystem $jigsaw_torch_inc $TORCH_CPPFLAGS"
        TORCH_LIBS="-L$jigsaw_torch_dir/lib -Wl,-rpath,$jigsaw_torch_dir/lib $TORCH_LIBS"
    ])
    AS_IF([test -n "$jigsaw_torch_abi"], [TORCH_CPPFLAGS="$TORCH_CPPFLAGS -D_GLIBCXX_USE_CXX11_ABI=$jigsaw_torch_abi"])
])

# _JIGSAW_TORCH_TRY: compile and link a few lines of c10, which is quick (torch/torch.h alone takes 15 s).
AC_DEFUN([_JIGSAW_TORCH_TRY], [
    AC_LANG_PUSH([C++])
    jigsaw_save_CPPFLAGS=$CPPFLAGS; CPPFLAGS="$CPPFLAGS $TORCH_CPPFLAGS"
    jigsaw_save_LIBS=$LIBS; LIBS="$TORCH_LIBS $LIBS"
    AC_MSG_CHECKING([for LibTorch in ${jigsaw_torch_dir:-the system}])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[
        #include <c10/core/Device.h>
        #include <torch/version.h>
        #if TORCH_VERSION_MAJOR < 1 || (TORCH_VERSION_MAJOR == 1 && TORCH_VERSION_MINOR < 13)
        #error "LibTorch before 1.13"
        #endif]],
        [[c10::Device device("cpu"); return device.str().empty();]])], [
        have_LIBTORCH=yes
        AC_RUN_IFELSE([AC_LANG_PROGRAM([[
            #include <torch/version.h>
            #include <cstdio>]],
            [[std::FILE *out = std::fopen("conftest.version", "w");
              return !out || std::fputs(TORCH_VERSION, out) < 0 || std::fclose(out) != 0;]])],
            [TORCH_VERSION=`cat conftest.version`], [TORCH_VERSION=unknown], [TORCH_VERSION=unknown])
    ])
    AC_MSG_RESULT([${TORCH_VERSION:-no}])
    CPPFLAGS=$jigsaw_save_CPPFLAGS
    LIBS=$jigsaw_save_LIBS
    AC_LANG_POP([C++])
])

AC_DEFUN([JIGSAW_CHECK_LIBTORCH], [
    AC_ARG_WITH([libtorch],
        [AS_HELP_STRING([--with-libtorch=DIR|python|system], [which LibTorch to use (default: python's, else the system's); --without-libtorch builds none of runtime/torch])],
        [], [with_libtorch=auto])
    have_LIBTORCH=no
    TORCH_VERSION=
    jigsaw_torch_dir=
    jigsaw_torch_abi=
    jigsaw_why_LIBTORCH="LibTorch 1.13 or 2.x not found; install libtorch-dev or give --with-libtorch=DIR"
    AS_CASE([$with_libtorch],
        [no], [jigsaw_why_LIBTORCH="switched off by --without-libtorch"],
        [system], [],
        [auto|yes], [_JIGSAW_TORCH_FIND_PYTHON],
        [python], [_JIGSAW_TORCH_FIND_PYTHON
            AS_IF([test -z "$jigsaw_torch_dir"], [AC_MSG_ERROR([--with-libtorch=python: $PYTHON cannot import a torch package with headers])])],
        [jigsaw_torch_dir=$with_libtorch])
    AS_IF([test "x$with_libtorch" != xno], [
        _JIGSAW_TORCH_FLAGS
        _JIGSAW_TORCH_TRY
        AS_IF([test "x$have_LIBTORCH" = xno], [AS_CASE([$with_libtorch], [auto], [],
            [AC_MSG_ERROR([--with-libtorch=$with_libtorch: it does not compile and link there; config.log says why])])])
    ])
    AS_IF([test "x$have_LIBTORCH" = xyes], [AC_DEFINE([HAVE_LIBTORCH], [1], [Define to 1 if LibTorch is used.])],
        [TORCH_CPPFLAGS=; TORCH_LIBS=])
    AC_SUBST([TORCH_CPPFLAGS])
    AC_SUBST([TORCH_LIBS])
    AC_SUBST([TORCH_VERSION])
    AM_CONDITIONAL([HAVE_LIBTORCH], [test "x$have_LIBTORCH" = xyes])
])
