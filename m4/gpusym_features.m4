dnl SPDX-License-Identifier: BSD-3-Clause
dnl
dnl The table that configure ends with, the words for what is missing, and a check for a plain library.

AC_DEFUN([GPUSYM_FEATURES_INIT], [gpusym_features=])

dnl GPUSYM_FEATURE(name, version or why it is off): a line of the table.
AC_DEFUN([GPUSYM_FEATURE], [
gpusym_feature_line=$(printf '  %-12s %s' "$1" "$2")
gpusym_features="$gpusym_features
$gpusym_feature_line"
])

AC_DEFUN([GPUSYM_FEATURES_PRINT], [
AS_ECHO(["
$PACKAGE_NAME $PACKAGE_VERSION$gpusym_features
  install to   $gpusym_install_words

Next: make && make check && make install"])
])

dnl GPUSYM_MISSING(what is missing, Debian packages, RPM packages, [more]): ends configure.
AC_DEFUN([GPUSYM_MISSING], [
AC_MSG_ERROR([$1
  Debian, Ubuntu:  apt-get install $2
  Fedora, RHEL:    dnf install $3[]m4_ifnblank([$4], [
  $4])])
])

dnl GPUSYM_CHECK_PLAIN_LIB(name, header, library, function, pkg-config name, Debian package, RPM package, prefix):
dnl looks for a C library, beneath prefix if that is not empty. Sets gpusym_NAME_{found,version,cppflags,libs};
dnl found is yes or the words why not.
AC_DEFUN([GPUSYM_CHECK_PLAIN_LIB], [
gpusym_$1_found=yes gpusym_$1_version= gpusym_$1_cppflags= gpusym_$1_libs="-l$3"
AS_IF([test -n "$8"], [gpusym_$1_cppflags="-I$8/include"
                       gpusym_$1_libs="-L$8/lib -Wl,-rpath,$8/lib -l$3"])
gpusym_save_CPPFLAGS=$CPPFLAGS gpusym_save_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $gpusym_$1_cppflags" LIBS="$gpusym_$1_libs $LIBS"
AC_MSG_CHECKING([for $2 and lib$3])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <$2>
]], [[return (void (*)(void)) &$4 == NULL;]])], [AC_MSG_RESULT([yes])],
    [gpusym_$1_found="$2 or lib$3 not found (Debian, Ubuntu: $6; Fedora, RHEL: $7)"
     AC_MSG_RESULT([no])])
CPPFLAGS=$gpusym_save_CPPFLAGS LIBS=$gpusym_save_LIBS
AS_IF([test "$gpusym_$1_found" = yes],
      [gpusym_$1_version=$(PKG_CONFIG_PATH="m4_ifnblank([$8], [${8:+$8/lib/pkgconfig:}])$PKG_CONFIG_PATH" \
                           pkg-config --modversion $5 2>/dev/null) || gpusym_$1_version='version unknown'])
])

dnl GPUSYM_OPTIONAL(name, words of use): the --with option and the line of a library that may be missing.
dnl Expects with_NAME; no: off; yes or a folder: an error if it is missing; auto: on if it is there.
AC_DEFUN([GPUSYM_OPTIONAL], [
AS_CASE([$with_$1],
    [no], [gpusym_$1_found='--without-$1'],
    [yes|auto], [GPUSYM_CHECK_PLAIN_LIB([$1], $3, [])],
    [gpusym_$1_dir=$with_$1
     GPUSYM_CHECK_PLAIN_LIB([$1], $3, [$gpusym_$1_dir])])
AS_IF([test "$gpusym_$1_found" = yes], [GPUSYM_FEATURE([$1], [$gpusym_$1_version$2])],
      [test "$with_$1" = no || test "$with_$1" = auto], [GPUSYM_FEATURE([$1], [off: $gpusym_$1_found])],
      [AC_MSG_ERROR([--with-$1: $gpusym_$1_found])])
])
