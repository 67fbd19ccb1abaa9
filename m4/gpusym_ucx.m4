dnl SPDX-License-Identifier: BSD-3-Clause
dnl
dnl UCX, for communication between hosts. Found and reported; nothing is built with it.

AC_DEFUN([GPUSYM_CHECK_UCX], [
AC_ARG_WITH([ucx], [AS_HELP_STRING([--with-ucx@<:@=DIR@:>@], [UCX (found, not used yet) @<:@auto@:>@])],
            [], [with_ucx=auto])
GPUSYM_OPTIONAL([ucx], [: found, not used yet],
                [[ucp/api/ucp.h], [ucp], [ucp_get_version], [ucx], [libucx-dev], [ucx-devel]])
])
