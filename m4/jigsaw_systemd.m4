# SPDX-License-Identifier: Apache-2.0
# JIGSAW_SYSTEMD: where jigsawd.service is installed for systemd to find. By itself only with --prefix=/usr, where packages
# go: systemd looks in no folder below another prefix but /usr/local's, and make install must not write outside its prefix.
#
# Sets systemdsystemunitdir; conditional HAVE_SYSTEMDSYSTEMUNITDIR.
AC_DEFUN([JIGSAW_SYSTEMD], [
    AC_REQUIRE([PKG_PROG_PKG_CONFIG])
    AC_ARG_WITH([systemdsystemunitdir],
        [AS_HELP_STRING([--with-systemdsystemunitdir=DIR],
            [install jigsawd.service in DIR (default: with --prefix=/usr what systemd.pc says, else nowhere)])],
        [], [with_systemdsystemunitdir=auto])
    AC_MSG_CHECKING([where systemd units go])
    AS_IF([test "x$with_systemdsystemunitdir" = xauto && test "x$prefix" != x/usr], [with_systemdsystemunitdir=no])
    AS_CASE([$with_systemdsystemunitdir],
        [auto], [systemdsystemunitdir=`$PKG_CONFIG --variable=systemdsystemunitdir systemd 2>/dev/null`],
        [yes], [systemdsystemunitdir=`$PKG_CONFIG --variable=systemdsystemunitdir systemd 2>/dev/null`
            AS_IF([test -z "$systemdsystemunitdir"],
                [AC_MSG_ERROR([--with-systemdsystemunitdir: systemd.pc does not say where; give the folder])])],
        [no], [systemdsystemunitdir=],
        [systemdsystemunitdir=$with_systemdsystemunitdir])
    AC_MSG_RESULT([${systemdsystemunitdir:-nowhere}])
    AC_SUBST([systemdsystemunitdir])
    AM_CONDITIONAL([HAVE_SYSTEMDSYSTEMUNITDIR], [test -n "$systemdsystemunitdir"])
])
