dnl SPDX-License-Identifier: BSD-3-Clause
dnl
dnl What the sources need of the C compiler and the C library, and the flags they are built with.

dnl GPUSYM_CFLAG_IF_SUPPORTED(variable, flag)
AC_DEFUN([GPUSYM_CFLAG_IF_SUPPORTED], [
AC_MSG_CHECKING([whether $CC takes $2])
gpusym_save_CFLAGS=$CFLAGS
CFLAGS="$CFLAGS $2 -Werror"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [$1="$$1 $2"
                                              AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no])])
CFLAGS=$gpusym_save_CFLAGS
])

AC_DEFUN([GPUSYM_CHECK_COMPILER], [
AC_MSG_CHECKING([for C11, 64-bit pointers and Linux])
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#include <stdint.h>
#if !defined(__linux__) || UINTPTR_MAX < UINT64_MAX || __STDC_VERSION__ < 201112L
#error missing
#endif
_Static_assert(sizeof(void *) == 8, "64 bits");
]], [])], [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     GPUSYM_MISSING([A C11 compiler for 64-bit Linux is needed.], [gcc libc6-dev], [gcc glibc-devel])])

GPUSYM_CFLAGS=
for flag in -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes; do
    GPUSYM_CFLAG_IF_SUPPORTED([GPUSYM_CFLAGS], [$flag])
done
AS_IF([test "$enable_werror" != no], [GPUSYM_CFLAGS="$GPUSYM_CFLAGS -Werror"])
AC_SUBST([GPUSYM_CFLAGS])

dnl In the C library itself since glibc 2.34; libdl, librt, libpthread before.
gpusym_save_LIBS=$LIBS
AC_SEARCH_LIBS([dlopen], [dl])
AC_SEARCH_LIBS([shm_open], [rt])
AC_SEARCH_LIBS([pthread_create], [pthread])
GPUSYM_SYSTEM_LIBS=$LIBS
LIBS=$gpusym_save_LIBS
AC_SUBST([GPUSYM_SYSTEM_LIBS])
])

dnl Last of the checks: the sanitizers' flags must not reach the probes of others.
AC_DEFUN([GPUSYM_CHECK_SANITIZERS], [
GPUSYM_SANITIZER_FLAGS=
AS_IF([test "$enable_sanitizers" = no], [GPUSYM_FEATURE([sanitizers], [off (--enable-sanitizers)])], [
    GPUSYM_SANITIZER_FLAGS='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer'
    gpusym_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $GPUSYM_SANITIZER_FLAGS"
    AC_MSG_CHECKING([whether $CC links with $GPUSYM_SANITIZER_FLAGS])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         GPUSYM_MISSING([--enable-sanitizers: the sanitizers' libraries are missing.], [libgcc-12-dev (of your gcc)],
                        [libasan libubsan])])
    CFLAGS=$gpusym_save_CFLAGS
    GPUSYM_FEATURE([sanitizers], [address, undefined])
])
AC_SUBST([GPUSYM_SANITIZER_FLAGS])
AC_SUBST([enable_sanitizers])
])
