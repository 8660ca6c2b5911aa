# SPDX-License-Identifier: Apache-2.0
# JIGSAW_PYTHON: where the Python package goes. Sets pythondir, HAVE_PYTHON.
#
# By default the folder under the prefix that this python3 looks into (Debian's dist-packages for /usr and /usr/local), else
# automake's PREFIX/lib/pythonX.Y/site-packages: nothing is ever written outside the prefix unless asked for.
AC_DEFUN([JIGSAW_PYTHON], [
    AC_ARG_WITH([pythondir],
        [AS_HELP_STRING([--with-pythondir=DIR], [where the Python package is installed (default: the folder under the prefix that python3 looks into)])],
        [], [with_pythondir=])
    AS_CASE([$with_pythondir], [yes | no], [AC_MSG_ERROR([--with-pythondir needs a folder; --without-python is not needed: the package is a few files])])
    have_PYTHON=no
    AS_IF([test "x$PYTHON" != x && test "x$PYTHON" != x:], [
        have_PYTHON=yes
        jigsaw_prefix=$prefix
        AS_IF([test "x$jigsaw_prefix" = xNONE], [jigsaw_prefix=$ac_default_prefix])
        AS_IF([test "x$with_pythondir" != x], [pythondir=$with_pythondir], [
            jigsaw_site=`$PYTHON -c 'import site, sys
print(next((p for p in site.getsitepackages() if p.startswith(sys.argv[[1]].rstrip("/") + "/lib/")), ""))' "$jigsaw_prefix" 2>/dev/null`
            AS_IF([test "x$jigsaw_site" != x], [pythondir=$jigsaw_site])
        ])
    ])
    AM_CONDITIONAL([HAVE_PYTHON], [test "x$have_PYTHON" = xyes])
    jigsaw_why_PYTHON='no python3 of 3.9 or newer'
])
