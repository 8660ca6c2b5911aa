# SPDX-License-Identifier: Apache-2.0
# JIGSAW_CHECK_SLURM: public headers (SPANK), the plugin folder, and the source tree for the select plugin.
#
# A select plugin reads structures of slurmctld that change inside a release (22.05.0 to .8, 24.11.0 to .5), and Slurm
# refuses a plugin whose major.minor.micro differs. So three numbers must be equal, or configure stops: the source's
# META, the installed slurm_version.h, and `slurmctld -V`.
#
# Sets SLURM_CPPFLAGS, SLURM_SOURCE_CPPFLAGS, SLURM_SOURCE_DIR, SLURM_VERSION, slurmplugindir; conditionals HAVE_SLURM_HEADERS and
# HAVE_SLURM_SOURCE.

# _JIGSAW_SLURM_HEADER_VERSION: the number in slurm_version.h, 0x160508 -> 22.05.8, in jigsaw_slurm_header.
AC_DEFUN([_JIGSAW_SLURM_HEADER_VERSION], [
    jigsaw_slurm_header=
    jigsaw_save_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $SLURM_CPPFLAGS"
    AC_MSG_CHECKING([version of the Slurm headers])
    AC_COMPUTE_INT([jigsaw_slurm_number], [SLURM_VERSION_NUMBER], [@%:@include <slurm/slurm_version.h>],
        [jigsaw_slurm_number=0])
    CPPFLAGS=$jigsaw_save_CPPFLAGS
    AS_IF([test "$jigsaw_slurm_number" -gt 0], [
        jigsaw_slurm_header=`printf '%d.%02d.%d' @S|@((jigsaw_slurm_number / 65536)) \
            @S|@((jigsaw_slurm_number / 256 % 256)) @S|@((jigsaw_slurm_number % 256))`
    ])
    AC_MSG_RESULT([${jigsaw_slurm_header:-unknown}])
])

# _JIGSAW_SLURM_DAEMON_VERSION: what the installed slurmctld says of itself, in jigsaw_slurm_daemon.
AC_DEFUN([_JIGSAW_SLURM_DAEMON_VERSION], [
    AC_ARG_VAR([SLURMCTLD], [slurmctld, asked for its version with -V])
    AC_PATH_PROG([SLURMCTLD], [slurmctld], [], [$PATH$PATH_SEPARATOR/usr/sbin$PATH_SEPARATOR/usr/local/sbin])
    jigsaw_slurm_daemon=
    AC_MSG_CHECKING([version of the installed slurmctld])
    AS_IF([test -n "$SLURMCTLD"], [jigsaw_slurm_daemon=`$SLURMCTLD -V 2>/dev/null | $AWK '{ print $NF }'`])
    AC_MSG_RESULT([${jigsaw_slurm_daemon:-not installed}])
])

# _JIGSAW_SLURM_PLUGINDIR: where slurmctld looks for plugins; Debian and upstream differ, so look for a known plugin.
AC_DEFUN([_JIGSAW_SLURM_PLUGINDIR], [
    AC_ARG_WITH([slurm-plugindir],
        [AS_HELP_STRING([--with-slurm-plugindir=DIR], [install Slurm plugins in DIR (default: where select_cons_tres.so is)])],
        [], [with_slurm_plugindir=])
    AC_MSG_CHECKING([for Slurm's plugin folder])
    slurmplugindir=$with_slurm_plugindir
    AS_IF([test -z "$slurmplugindir"], [
        for jigsaw_dir in /usr/lib/*/slurm-wlm /usr/lib64/slurm /usr/lib/*/slurm /usr/lib/slurm /usr/local/lib/slurm; do
            AS_IF([test -f "$jigsaw_dir/select_cons_tres.so"], [slurmplugindir=$jigsaw_dir; break])
        done])
    AS_IF([test -z "$slurmplugindir"], [slurmplugindir='${libdir}/slurm'])
    AC_MSG_RESULT([$slurmplugindir])
    AC_SUBST([slurmplugindir])
])

# _JIGSAW_SLURM_SOURCE: the configured source tree of exactly the installed Slurm.
AC_DEFUN([_JIGSAW_SLURM_SOURCE], [
    AC_ARG_WITH([slurm-source],
        [AS_HELP_STRING([--with-slurm-source=DIR],
            [source tree of the installed Slurm, after its ./configure; needed for select_jigsaw and job_submit_jigsaw])],
        [], [with_slurm_source=no])
    AS_CASE([$with_slurm_source],
        [no], [jigsaw_why_SLURM_SOURCE="needs --with-slurm-source=DIR (scripts/build fetches it)"],
        [yes], [AC_MSG_ERROR([--with-slurm-source needs a folder: the source tree of the installed Slurm])], [
        with_slurm_source=`cd "$with_slurm_source" 2>/dev/null && pwd || echo "$with_slurm_source"`
        AS_IF([test ! -f "$with_slurm_source/META"],
            [AC_MSG_ERROR([--with-slurm-source=$with_slurm_source: no META file there; give the top of Slurm's source tree])])
        AS_IF([test ! -f "$with_slurm_source/src/slurmctld/slurmctld.h"],
            [AC_MSG_ERROR([--with-slurm-source=$with_slurm_source: no src/slurmctld/slurmctld.h there; give the top of Slurm's source tree])])
        AS_IF([test ! -f "$with_slurm_source/config.h"],
            [AC_MSG_ERROR([--with-slurm-source=$with_slurm_source: no config.h there; run ./configure in it once])])
        AC_MSG_CHECKING([version of the Slurm source])
        jigsaw_slurm_source=`$AWK '$[]1 == "Version:" { print $[]2; exit }' "$with_slurm_source/META"`
        AC_MSG_RESULT([$jigsaw_slurm_source])
        AS_IF([test "x$jigsaw_slurm_source" != "x$jigsaw_slurm_header"],
            [AC_MSG_ERROR([Slurm versions differ: the source in $with_slurm_source is $jigsaw_slurm_source, the installed headers are ${jigsaw_slurm_header:-missing}; a select plugin works only with exactly its own version. Give the source of the installed Slurm (scripts/build fetches it) or leave out --with-slurm-source])])
        AS_IF([test -n "$jigsaw_slurm_daemon" && test "x$jigsaw_slurm_source" != "x$jigsaw_slurm_daemon"],
            [AC_MSG_ERROR([Slurm versions differ: the source in $with_slurm_source is $jigsaw_slurm_source, the installed slurmctld ($SLURMCTLD) is $jigsaw_slurm_daemon; a select plugin works only with exactly its own version. Give the source of the installed Slurm (scripts/build fetches it) or leave out --with-slurm-source])])
        have_SLURM_SOURCE=yes
        SLURM_SOURCE_CPPFLAGS="-isystem $with_slurm_source"
        SLURM_SOURCE_DIR=$with_slurm_source
    ])
])

AC_DEFUN([JIGSAW_CHECK_SLURM], [
    AC_REQUIRE([AC_PROG_CPP])
    AC_ARG_WITH([slurm],
        [AS_HELP_STRING([--with-slurm=PREFIX], [Slurm's headers are in PREFIX/include/slurm; --without-slurm builds no Slurm plugin])],
        [], [with_slurm=auto])
    have_SLURM_HEADERS=no
    have_SLURM_SOURCE=no
    SLURM_CPPFLAGS=
    SLURM_SOURCE_CPPFLAGS=
    SLURM_SOURCE_DIR=
    jigsaw_why_SLURM_HEADERS="slurm/spank.h not found; install libslurm-dev or give --with-slurm=PREFIX"
    jigsaw_why_SLURM_SOURCE=$jigsaw_why_SLURM_HEADERS
    AS_CASE([$with_slurm],
        [no], [jigsaw_why_SLURM_HEADERS="switched off by --without-slurm"; jigsaw_why_SLURM_SOURCE=$jigsaw_why_SLURM_HEADERS],
        [auto|yes], [],
        [SLURM_CPPFLAGS="-I$with_slurm/include"])
    AS_IF([test "x$with_slurm" != xno], [
        jigsaw_save_CPPFLAGS=$CPPFLAGS
        CPPFLAGS="$CPPFLAGS $SLURM_CPPFLAGS"
        AS_CASE([$with_slurm], [auto|yes], [],
            [AS_IF([test ! -f "$with_slurm/include/slurm/spank.h"],
                [AC_MSG_ERROR([--with-slurm=$with_slurm: no include/slurm/spank.h there; give the folder that holds it])])])
        AC_CHECK_HEADER([slurm/spank.h], [have_SLURM_HEADERS=yes])
        CPPFLAGS=$jigsaw_save_CPPFLAGS
        AS_IF([test "x$have_SLURM_HEADERS" = xno && test "x$with_slurm" != xauto],
            [AC_MSG_ERROR([--with-slurm=$with_slurm: slurm/spank.h does not compile; config.log says why])])
    ])
    _JIGSAW_SLURM_PLUGINDIR
    AS_IF([test "x$have_SLURM_HEADERS" = xyes], [
        _JIGSAW_SLURM_HEADER_VERSION
        _JIGSAW_SLURM_DAEMON_VERSION
        _JIGSAW_SLURM_SOURCE
    ])
    SLURM_VERSION=$jigsaw_slurm_header
    AC_SUBST([SLURM_CPPFLAGS])
    AC_SUBST([SLURM_SOURCE_CPPFLAGS])
    AC_SUBST([SLURM_SOURCE_DIR])
    AC_SUBST([SLURM_VERSION])
    AM_CONDITIONAL([HAVE_SLURM_HEADERS], [test "x$have_SLURM_HEADERS" = xyes])
    AM_CONDITIONAL([HAVE_SLURM_SOURCE], [test "x$have_SLURM_SOURCE" = xyes])
])
