dnl SPDX-License-Identifier: BSD-3-Clause
dnl
dnl hwloc, for which GPU, network card and core sit together. Found and reported; nothing is built with it.

AC_DEFUN([GPUSYM_CHECK_HWLOC], [
AC_ARG_WITH([hwloc], [AS_HELP_STRING([--with-hwloc@<:@=DIR@:>@], [hwloc (found, not used yet) @<:@auto@:>@])],
            [], [with_hwloc=auto])
GPUSYM_OPTIONAL([hwloc], [: found, not used yet],
                [[hwloc.h], [hwloc], [hwloc_get_api_version], [hwloc], [libhwloc-dev], [hwloc-devel]])
])
