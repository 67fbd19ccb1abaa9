dnl SPDX-License-Identifier: BSD-3-Clause
dnl
dnl The Open MPI to build for: its version, headers (those for components too), libraries and folders.

dnl What a component includes; each of these lives among the MCA development headers.
m4_define([GPUSYM_OMPI_PROBE], [[
#include "ompi_config.h"
#include "mpi.h"
#include "ompi/communicator/communicator.h"
#include "ompi/mca/coll/base/base.h"
#include "ompi/mca/coll/coll.h"
#include "ompi/op/op.h"
#include "ompi/runtime/params.h"
#include "opal/mca/base/mca_base_component_repository.h"
#if OMPI_MAJOR_VERSION >= 5
#include "opal/mca/pmix/pmix-internal.h"
#else
#include "opal/mca/pmix/pmix.h"
#endif
#include "opal/util/show_help.h"
]])

dnl GPUSYM_OMPI_TRY(extra include flags): whether the probe compiles with them; they come last, so that they only add
dnl what is missing.
AC_DEFUN([GPUSYM_OMPI_TRY], [
AS_IF([test "$gpusym_ompi_headers" = no], [
    CPPFLAGS="$gpusym_save_CPPFLAGS $GPUSYM_OMPI_CPPFLAGS $1"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([GPUSYM_OMPI_PROBE], [])],
        [gpusym_ompi_headers=yes
         GPUSYM_OMPI_CPPFLAGS="$GPUSYM_OMPI_CPPFLAGS $1"])
])])

AC_DEFUN([GPUSYM_CHECK_OMPI], [
AC_ARG_WITH([ompi], [AS_HELP_STRING([--with-ompi@<:@=DIR@:>@], [the Open MPI in DIR @<:@the first in PATH@:>@])],
            [], [with_ompi=yes])
AS_CASE([$with_ompi],
    [no], [AC_MSG_ERROR([--without-ompi: gpusym is a part of Open MPI and cannot be built without it])],
    [yes|''], [gpusym_ompi_path=$PATH gpusym_ompi_where='in PATH'],
    [gpusym_ompi_path=$with_ompi/bin gpusym_ompi_where="in $with_ompi/bin"])
dnl All programs are of one installation, that of the first ompi_info: no other MPI has a program of that name. Beside other
dnl MPIs, Debian's mpicc may be another one's, and Open MPI's is mpicc.openmpi.
AC_PATH_PROG([GPUSYM_OMPI_INFO], [ompi_info], [], [$gpusym_ompi_path])
AC_MSG_CHECKING([for the folder of Open MPI's programs])
AS_IF([test -z "$GPUSYM_OMPI_INFO"], [AC_MSG_RESULT([no ompi_info $gpusym_ompi_where])],
      [gpusym_ompi_bin=$(dirname "$GPUSYM_OMPI_INFO")
       gpusym_ompi_where="in $gpusym_ompi_bin, beside ompi_info"
       AC_MSG_RESULT([$gpusym_ompi_bin])
       AC_PATH_PROGS([GPUSYM_OMPI_MPICC], [mpicc.openmpi mpicc], [], [$gpusym_ompi_bin])
       AC_PATH_PROGS([GPUSYM_OMPI_MPIRUN], [mpirun.openmpi mpirun], [], [$gpusym_ompi_bin])])
AS_IF([test -z "$GPUSYM_OMPI_INFO" || test -z "$GPUSYM_OMPI_MPICC" || test -z "$GPUSYM_OMPI_MPIRUN"],
    [GPUSYM_MISSING([Open MPI's ompi_info, mpicc and mpirun were not all found $gpusym_ompi_where.],
        [libopenmpi-dev openmpi-bin], [openmpi-devel],
        [(then: module load mpi/openmpi-x86_64)  or name its folder: --with-ompi=DIR])])

AC_MSG_CHECKING([for the version of Open MPI])
GPUSYM_OMPI_VERSION=$("$GPUSYM_OMPI_INFO" --parsable 2>/dev/null | $SED -n 's/^ompi:version:full://p')
GPUSYM_OMPI_MAJOR=${GPUSYM_OMPI_VERSION%%.*}
AC_MSG_RESULT([${GPUSYM_OMPI_VERSION:-unknown}])
AS_CASE([$GPUSYM_OMPI_VERSION],
    [4.1.*|5.*|6.*], [],
    [GPUSYM_MISSING([gpusym requires Open MPI 4.1, 5 or 6; $GPUSYM_OMPI_INFO says '$GPUSYM_OMPI_VERSION'.],
        [libopenmpi-dev openmpi-bin], [openmpi-devel], [or name another: --with-ompi=DIR])])

AC_MSG_CHECKING([for the folder of Open MPI's components])
GPUSYM_OMPI_PKGDATADIR=$("$GPUSYM_OMPI_INFO" --path pkgdatadir --parsable 2>/dev/null | $SED -n 's/^path:pkgdatadir://p')
GPUSYM_OMPI_PKGLIBDIR=$("$GPUSYM_OMPI_INFO" --path pkglibdir --parsable 2>/dev/null | $SED -n 's/^path:pkglibdir://p')
AC_MSG_RESULT([${GPUSYM_OMPI_PKGLIBDIR:-unknown}])
AS_IF([test -z "$GPUSYM_OMPI_PKGLIBDIR"], [AC_MSG_ERROR([$GPUSYM_OMPI_INFO names no pkglibdir])])

dnl What must follow our folder in mca_base_component_path: 4.1 has a word for its own folders; to 5 and 6 that
dnl word is a folder that does not exist, at which they stop looking.
AS_IF([test "$GPUSYM_OMPI_MAJOR" -le 4], [GPUSYM_OMPI_PATH_TAIL=SYSTEM_DEFAULT],
      [GPUSYM_OMPI_PATH_TAIL=$GPUSYM_OMPI_PKGLIBDIR])

GPUSYM_OMPI_CPPFLAGS= GPUSYM_OMPI_INCDIRS=
gpusym_ompi_incdirs=$("$GPUSYM_OMPI_MPICC" --showme:incdirs)
for dir in $gpusym_ompi_incdirs; do
    GPUSYM_OMPI_CPPFLAGS="$GPUSYM_OMPI_CPPFLAGS -isystem $dir"
    dnl For test/env.sh; those that the compiler looks into by itself must keep their place.
    AS_CASE([$dir], [/usr/include|/usr/local/include], [],
            [GPUSYM_OMPI_INCDIRS="${GPUSYM_OMPI_INCDIRS:+$GPUSYM_OMPI_INCDIRS:}$dir"])
    dnl mpicc names this one only where it was configured to.
    AS_CASE([" $gpusym_ompi_incdirs "], [*" $dir/openmpi "*], [], [AS_IF([test -f "$dir/openmpi/ompi_config.h"],
        [GPUSYM_OMPI_CPPFLAGS="$GPUSYM_OMPI_CPPFLAGS -isystem $dir/openmpi"])])
done
gpusym_ompi_ldflags=
for dir in $("$GPUSYM_OMPI_MPICC" --showme:libdirs); do
    gpusym_ompi_ldflags="$gpusym_ompi_ldflags -L$dir"
done

dnl Open MPI installs headers that include others it does not install: PMIx's (a package of its own), and some of its own,
dnl for which we have stand-ins.
gpusym_save_CPPFLAGS=$CPPFLAGS
gpusym_ompi_headers=no
gpusym_pmix=$(pkg-config --cflags-only-I pmix 2>/dev/null | $SED 's/-I/-isystem /g')
AS_IF([test -z "$gpusym_pmix"], [
    for dir in "${GPUSYM_OMPI_PKGLIBDIR%/openmpi/*}/pmix2/include" "$with_ompi/include"; do
        AS_IF([test -f "$dir/pmix_common.h"], [gpusym_pmix="-isystem $dir"])
    done])
gpusym_compat="-isystem $(cd "$srcdir" && pwd)/mca/common/ompi/compat"
AC_MSG_CHECKING([for Open MPI's headers for components])
GPUSYM_OMPI_TRY([])
GPUSYM_OMPI_TRY([$gpusym_pmix])
GPUSYM_OMPI_TRY([$gpusym_compat])
GPUSYM_OMPI_TRY([$gpusym_pmix $gpusym_compat])
AC_MSG_RESULT([$gpusym_ompi_headers])
CPPFLAGS=$gpusym_save_CPPFLAGS
AS_IF([test "$gpusym_ompi_headers" = no], [
    GPUSYM_MISSING([Open MPI's headers for components (MCA) are missing or do not compile; config.log has the error.],
        [libopenmpi-dev libpmix-dev libhwloc-dev libevent-dev], [openmpi-devel pmix-devel hwloc-devel libevent-devel],
        [An Open MPI built from source has them if it was configured with --with-devel-headers.])])
AC_MSG_CHECKING([whether they are those of Open MPI $GPUSYM_OMPI_VERSION])
CPPFLAGS="$CPPFLAGS $GPUSYM_OMPI_CPPFLAGS"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[
typedef char same@<:@OMPI_MAJOR_VERSION == $GPUSYM_OMPI_MAJOR ? 1 : -1@:>@;]])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_ERROR([mpi.h and ompi_info are of different versions of Open MPI: select one by --with-ompi=DIR])])
CPPFLAGS=$gpusym_save_CPPFLAGS

dnl Since 6.0 what components call is in a library of its own beside libmpi.
gpusym_save_LIBS=$LIBS gpusym_save_LDFLAGS=$LDFLAGS
LDFLAGS="$LDFLAGS $gpusym_ompi_ldflags"
GPUSYM_OMPI_COMPONENT_LIBS=
LIBS="-lopen_mpi $gpusym_save_LIBS"
AC_LINK_IFELSE([AC_LANG_CALL([], [ompi_comm_free])], [GPUSYM_OMPI_COMPONENT_LIBS="-lopen_mpi -lopen-pal"])
AS_IF([test -z "$GPUSYM_OMPI_COMPONENT_LIBS"], [
    LIBS="-lmpi -lopen-pal $gpusym_save_LIBS"
    AC_LINK_IFELSE([AC_LANG_CALL([], [ompi_comm_free])], [GPUSYM_OMPI_COMPONENT_LIBS="-lmpi -lopen-pal"],
        [GPUSYM_MISSING([A program does not link with Open MPI's libraries (-lmpi -lopen-pal); config.log has the error.],
            [libopenmpi-dev], [openmpi-devel])])])
dnl What a process tells its peers in MPI_Init goes by PMIx itself since 5.0; before, by a table of Open MPI's.
GPUSYM_PMIX_LIBS=
AS_IF([test "$GPUSYM_OMPI_MAJOR" -ge 5], [
    gpusym_pmix_ldflags=
    for dir in $(pkg-config --variable=libdir pmix 2>/dev/null) "${GPUSYM_OMPI_PKGLIBDIR%/openmpi*}" \
               "${GPUSYM_OMPI_PKGLIBDIR%/openmpi/*}/pmix2/lib"; do
        AS_IF([test -f "$dir/libpmix.so"], [gpusym_pmix_ldflags="$gpusym_pmix_ldflags -L$dir"])
    done
    LDFLAGS="$LDFLAGS $gpusym_pmix_ldflags"
    LIBS="-lpmix $gpusym_save_LIBS"
    AC_LINK_IFELSE([AC_LANG_CALL([], [PMIx_Put])], [GPUSYM_PMIX_LIBS="$gpusym_pmix_ldflags -lpmix"],
        [GPUSYM_MISSING([A program does not link with the PMIx of Open MPI (-lpmix); config.log has the error.],
            [libpmix-dev], [pmix-devel])])])
LIBS=$gpusym_save_LIBS LDFLAGS=$gpusym_save_LDFLAGS
GPUSYM_OMPI_COMPONENT_LIBS="$gpusym_ompi_ldflags $GPUSYM_OMPI_COMPONENT_LIBS"
dnl Programs link what mpicc links.
GPUSYM_OMPI_LIBS=$("$GPUSYM_OMPI_MPICC" --showme:link)

dnl Since 5.0 components tell Open MPI which memory is a GPU's. One that has such a component for CUDA keeps it.
gpusym_accelerator=no
AS_IF([test "$GPUSYM_OMPI_MAJOR" -ge 5], [
    AC_MSG_CHECKING([for Open MPI's accelerator framework])
    CPPFLAGS="$CPPFLAGS $GPUSYM_OMPI_CPPFLAGS"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#include "ompi_config.h"
#include "opal/mca/accelerator/base/base.h"]], [])], [gpusym_accelerator=yes])
    CPPFLAGS=$gpusym_save_CPPFLAGS
    AS_IF(["$GPUSYM_OMPI_INFO" --parsable 2>/dev/null | grep '^mca:accelerator:cuda:' >/dev/null],
          [gpusym_accelerator='its own'])
    AC_MSG_RESULT([$gpusym_accelerator])])
dnl Whether it can go on when a rank dies (ULFM), for the tests: since 5.0, if it was built so.
GPUSYM_OMPI_FT=0
AC_MSG_CHECKING([whether Open MPI survives its ranks])
CPPFLAGS="$CPPFLAGS $GPUSYM_OMPI_CPPFLAGS"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#include <mpi.h>
#include <mpi-ext.h>]], [[int (*shrink)(MPI_Comm, MPI_Comm *) = MPIX_Comm_shrink; return !shrink;]])], [GPUSYM_OMPI_FT=1])
CPPFLAGS=$gpusym_save_CPPFLAGS
AC_MSG_RESULT([$(test $GPUSYM_OMPI_FT = 1 && echo yes || echo no)])
AM_CONDITIONAL([GPUSYM_OMPI_4], [test "$GPUSYM_OMPI_MAJOR" -eq 4])
AM_CONDITIONAL([GPUSYM_HAVE_ACCELERATOR], [test "$gpusym_accelerator" = yes])
AS_CASE([$gpusym_accelerator],
    [yes], [GPUSYM_FEATURE([accelerator], [MPI_Pack, files and partitioned messages accept GPU memory])],
    ['its own'], [GPUSYM_FEATURE([accelerator], [off: this Open MPI has its own CUDA component])],
    [GPUSYM_FEATURE([accelerator], [off: Open MPI $GPUSYM_OMPI_VERSION has no such framework, or lacks its headers])])

AC_SUBST([GPUSYM_OMPI_VERSION])
AC_SUBST([GPUSYM_OMPI_MAJOR])
AC_SUBST([GPUSYM_OMPI_FT])
AC_SUBST([GPUSYM_OMPI_PKGLIBDIR])
AC_SUBST([GPUSYM_OMPI_PATH_TAIL])
AC_SUBST([GPUSYM_OMPI_CPPFLAGS])
AC_SUBST([GPUSYM_OMPI_INCDIRS])
AC_SUBST([GPUSYM_OMPI_COMPONENT_LIBS])
AC_SUBST([GPUSYM_OMPI_LIBS])
AC_SUBST([GPUSYM_PMIX_LIBS])
GPUSYM_FEATURE([Open MPI], [$GPUSYM_OMPI_VERSION in $gpusym_ompi_bin ($(basename "$GPUSYM_OMPI_MPICC"), $(basename "$GPUSYM_OMPI_MPIRUN"))])
])
