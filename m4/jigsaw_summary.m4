# SPDX-License-Identifier: Apache-2.0
# JIGSAW_SUMMARY: the table that ends configure: part, built or not, with what or why not.

# _JIGSAW_ROW(part, NAME of the have_/jigsaw_why_ variables, what it is built with)
AC_DEFUN([_JIGSAW_ROW], [
    AS_IF([test "x$have_$2" = xyes],
        [printf '  %-44s %-4s %s\n' "$1" yes "$3"],
        [printf '  %-44s %-4s %s\n' "$1" no "$jigsaw_why_$2"])
])

AC_DEFUN([JIGSAW_SUMMARY], [
    printf '\n%s %s will build:\n\n' "$PACKAGE_NAME" "$PACKAGE_VERSION"
    printf '  %-44s %-4s %s\n' "core, page, plan, sync, libjigsaw" yes "$CXX"
    _JIGSAW_ROW([configuration, jigsawd, jigsaw command], [YAML], [libyaml `$PKG_CONFIG --modversion yaml-0.1 2>/dev/null`])
    _JIGSAW_ROW([topology and CPU binding], [HWLOC], [hwloc `$PKG_CONFIG --modversion hwloc 2>/dev/null`])
    _JIGSAW_ROW([SPANK plugin], [SLURM_HEADERS], [Slurm $SLURM_VERSION])
    _JIGSAW_ROW([select and job_submit plugins], [SLURM_SOURCE], [$with_slurm_source])
    _JIGSAW_ROW([Gloo collective], [GLOO], [$GLOO_LIBS])
    printf '  %-44s %-4s %s\n' "NCCL collective (libraries at run time)" yes "$CXX"
    _JIGSAW_ROW([  its check against the real headers], [NCCL], [$NCCL_CPPFLAGS])
    _JIGSAW_ROW([libjigsaw_torch and examples], [LIBTORCH], [LibTorch $TORCH_VERSION])
    _JIGSAW_ROW([sparse networks on several ranks (MPI)], [MPI], [Open MPI `$PKG_CONFIG --modversion ompi 2>/dev/null`])
    _JIGSAW_ROW([  a partitioner to compare with], [ZOLTAN], [$ZOLTAN_LIBS])
    _JIGSAW_ROW([  GraphBLAS to compare with in bench/sparse], [GRAPHBLAS], [$GRAPHBLAS_LIBS])
    _JIGSAW_ROW([Python package], [PYTHON], [$pythondir])
    _JIGSAW_ROW([unit tests], [CHECK], [check `$PKG_CONFIG --modversion check 2>/dev/null`])
    _JIGSAW_ROW([model tests], [SPIN], [$SPIN])
    AS_IF([test "x$enable_sanitizers" != xno], [printf '  %-44s %-4s %s\n' "sanitizers" yes "$enable_sanitizers"])
    printf '\n  prefix %s, Slurm plugins in %s, jigsawd.service in %s\n\n' "$prefix" "$slurmplugindir" \
        "${systemdsystemunitdir:-the folder of documents}"
])
