dnl SPDX-License-Identifier: BSD-3-Clause
dnl
dnl hwloc 2, for where GPUs sit on PCI. Without it all pairs of GPUs that have no NVLink count as equally far.

AC_DEFUN([GPUSYM_CHECK_HWLOC], [
AC_ARG_WITH([hwloc], [AS_HELP_STRING([--with-hwloc@<:@=DIR@:>@], [hwloc 2, for the order of rings on PCI @<:@auto@:>@])],
            [], [with_hwloc=auto])
GPUSYM_OPTIONAL([hwloc], [: rings follow PCI switches and NUMA nodes],
                [[hwloc.h], [hwloc], [hwloc_topology_set_all_types_filter], [hwloc], [libhwloc-dev], [hwloc-devel]])
AS_IF([test "$gpusym_hwloc_found" = yes],
      [GPUSYM_HAVE_HWLOC=1 HWLOC_CPPFLAGS=$gpusym_hwloc_cppflags HWLOC_LIBS=$gpusym_hwloc_libs],
      [GPUSYM_HAVE_HWLOC=0 HWLOC_CPPFLAGS= HWLOC_LIBS=])
AC_SUBST([GPUSYM_HAVE_HWLOC])
AC_SUBST([HWLOC_CPPFLAGS])
AC_SUBST([HWLOC_LIBS])
])
