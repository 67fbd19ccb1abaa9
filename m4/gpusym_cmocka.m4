dnl SPDX-License-Identifier: BSD-3-Clause
dnl
dnl cmocka, for the unit tests. Without it they are not built, and the table says so.

AC_DEFUN([GPUSYM_CHECK_CMOCKA], [
AC_ARG_WITH([cmocka], [AS_HELP_STRING([--with-cmocka@<:@=DIR@:>@], [cmocka, for the unit tests @<:@auto@:>@])],
            [], [with_cmocka=auto])
GPUSYM_OPTIONAL([cmocka], [: unit tests on],
                [[cmocka.h], [cmocka], [_cmocka_run_group_tests], [cmocka], [libcmocka-dev], [libcmocka-devel]])
AS_IF([test "$gpusym_cmocka_found" = yes], [GPUSYM_HAVE_CMOCKA=1], [GPUSYM_HAVE_CMOCKA=0])
dnl cmocka 2 deprecates names for which cmocka 1 has no others.
CMOCKA_CPPFLAGS="$gpusym_cmocka_cppflags -DCMOCKA_DISABLE_DEPRECATION_WARNINGS"
CMOCKA_LIBS=$gpusym_cmocka_libs
AC_SUBST([GPUSYM_HAVE_CMOCKA])
AC_SUBST([CMOCKA_CPPFLAGS])
AC_SUBST([CMOCKA_LIBS])
AM_CONDITIONAL([GPUSYM_HAVE_CMOCKA], [test "$GPUSYM_HAVE_CMOCKA" = 1])
])
