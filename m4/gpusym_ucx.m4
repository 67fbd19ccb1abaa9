dnl SPDX-License-Identifier: BSD-3-Clause
dnl
dnl UCX 1.13 or later, for messages between hosts: a library of its own (net/net_ucx.c) and gpusym_netperf. Without it
dnl communicators that span hosts go through the host's collectives.

AC_DEFUN([GPUSYM_CHECK_UCX], [
AC_ARG_WITH([ucx], [AS_HELP_STRING([--with-ucx@<:@=DIR@:>@],
    [UCX 1.13 or later, for messages between hosts @<:@auto: by pkg-config@:>@])], [], [with_ucx=auto])
dnl What pkg-config knows outside of the compiler's own folders comes first. An older one is only refused if asked for.
AS_CASE([$with_ucx], [yes|auto],
    [gpusym_ucx_prefix=$(pkg-config --variable=prefix ucx 2>/dev/null)
     AS_IF([pkg-config --exists 'ucx < 1.13' 2>/dev/null],
           [AS_IF([test "$with_ucx" = yes], [AC_MSG_ERROR([--with-ucx: this UCX is older than 1.13])])
            AC_MSG_NOTICE([UCX is older than 1.13: not used])
            with_ucx=no],
           [test "$gpusym_ucx_prefix" != /usr && test -e "$gpusym_ucx_prefix/include/ucp/api/ucp.h"],
           [with_ucx=$gpusym_ucx_prefix])])
GPUSYM_OPTIONAL([ucx], [: messages between hosts],
                [[ucp/api/ucp.h], [ucp], [ucp_am_recv_data_nbx], [ucx], [libucx-dev], [ucx-devel]])
AS_IF([test "$gpusym_ucx_found" = yes],
      [GPUSYM_HAVE_UCX=1 UCX_CPPFLAGS=$gpusym_ucx_cppflags UCX_LIBS="$gpusym_ucx_libs -luct -lucs"],
      [GPUSYM_HAVE_UCX=0 UCX_CPPFLAGS= UCX_LIBS=])
AC_SUBST([GPUSYM_HAVE_UCX])
AC_SUBST([UCX_CPPFLAGS])
AC_SUBST([UCX_LIBS])
AM_CONDITIONAL([GPUSYM_HAVE_UCX], [test "$GPUSYM_HAVE_UCX" = 1])
])
