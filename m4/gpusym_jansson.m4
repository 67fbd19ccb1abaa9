dnl SPDX-License-Identifier: BSD-3-Clause
dnl
dnl jansson, for gpusym_info --json, and files of rules (a library of its own, rules/rules_json.c). Without it both say so.

AC_DEFUN([GPUSYM_CHECK_JANSSON], [
AC_ARG_WITH([jansson], [AS_HELP_STRING([--with-jansson@<:@=DIR@:>@], [jansson, for rules and gpusym_info --json @<:@auto@:>@])],
            [], [with_jansson=auto])
GPUSYM_OPTIONAL([jansson], [: rules, gpusym_info --json],
                [[jansson.h], [jansson], [json_dumpf], [jansson], [libjansson-dev], [jansson-devel]])
AS_IF([test "$gpusym_jansson_found" = yes],
      [GPUSYM_HAVE_JANSSON=1 JANSSON_CPPFLAGS=$gpusym_jansson_cppflags JANSSON_LIBS=$gpusym_jansson_libs],
      [GPUSYM_HAVE_JANSSON=0 JANSSON_CPPFLAGS= JANSSON_LIBS=])
AC_SUBST([GPUSYM_HAVE_JANSSON])
AC_SUBST([JANSSON_CPPFLAGS])
AC_SUBST([JANSSON_LIBS])
AM_CONDITIONAL([GPUSYM_HAVE_JANSSON], [test "$GPUSYM_HAVE_JANSSON" = 1])
])
