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
     GPUSYM_MISSING([gpusym requires a C11 compiler for 64-bit Linux.], [gcc libc6-dev], [gcc glibc-devel])])

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

dnl --enable-sanitizers as GPUSYM_SANITIZERS: no, address or thread; the two cannot be had together.
dnl Last of the checks: the sanitizers' flags must not reach the probes of others.
AC_DEFUN([GPUSYM_CHECK_SANITIZERS], [
GPUSYM_SANITIZERS=$enable_sanitizers
GPUSYM_SANITIZER_FLAGS=
GPUSYM_SANITIZER_LIBRARY_FLAGS=
AS_CASE([$enable_sanitizers],
    [no], [GPUSYM_FEATURE([sanitizers], [off (--enable-sanitizers)])],
    [yes|address], [
        GPUSYM_SANITIZERS=address
        dnl Not bool: GCC then reads a volatile bool once only, and Open MPI's headers wait for one (WAIT_SYNC_RELEASE) for ever.
        GPUSYM_SANITIZER_FLAGS='-fsanitize=address,undefined -fno-sanitize=bool -fno-sanitize-recover=undefined -fno-omit-frame-pointer'
        GPUSYM_FEATURE([sanitizers], [address, undefined])],
    [thread], [
        GPUSYM_SANITIZER_FLAGS='-fsanitize=thread -fno-omit-frame-pointer'
        dnl It does not know fences, and says so of each. Ours stand between processes, where it sees nothing anyway.
        GPUSYM_CFLAG_IF_SUPPORTED([GPUSYM_SANITIZER_FLAGS], [-Wno-tsan])
        GPUSYM_FEATURE([sanitizers], [thread])],
    [AC_MSG_ERROR([--enable-sanitizers=$enable_sanitizers: must be address or thread])])
AS_IF([test "$GPUSYM_SANITIZERS" != no], [
    gpusym_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $GPUSYM_SANITIZER_FLAGS"
    AC_MSG_CHECKING([whether $CC links with $GPUSYM_SANITIZER_FLAGS])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         GPUSYM_MISSING([--enable-sanitizers: the sanitizers' libraries are missing.], [libgcc-12-dev (of your gcc)],
                        [libasan libubsan libtsan])])
    CFLAGS=$gpusym_save_CFLAGS
    dnl What is found at the end of a process is told by the names of functions: components stay loaded.
    GPUSYM_SANITIZER_LIBRARY_FLAGS="$GPUSYM_SANITIZER_FLAGS -Wl,-z,nodelete"
])
AC_SUBST([GPUSYM_SANITIZER_FLAGS])
AC_SUBST([GPUSYM_SANITIZER_LIBRARY_FLAGS])
AC_SUBST([GPUSYM_SANITIZERS])
])

dnl The compiler of fuzz harnesses, test/fuzz/: one that has libFuzzer, else the compiler of all the rest, with sanitizers if
dnl it has them. GPUSYM_FUZZ_CC, GPUSYM_FUZZ_FLAGS, and GPUSYM_FUZZ_COMPILE_FLAGS, of what is no harness.
AC_DEFUN([GPUSYM_CHECK_FUZZ], [
AC_MSG_CHECKING([for a compiler with libFuzzer])
GPUSYM_FUZZ_CC=
GPUSYM_FUZZER=no
gpusym_fuzz_sanitizers='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer'
echo '#include <stddef.h>
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) { (void) data; return (int) (0 * size); }' >conftest.c
for gpusym_cc in "$CC" clang clang-21 clang-20 clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
    AS_IF([$gpusym_cc -fsanitize=fuzzer,address,undefined -o conftest$EXEEXT conftest.c >/dev/null 2>&1],
          [GPUSYM_FUZZ_CC=$gpusym_cc
           GPUSYM_FUZZER=yes
           GPUSYM_FUZZ_FLAGS="$gpusym_fuzz_sanitizers -fsanitize=fuzzer"
           GPUSYM_FUZZ_COMPILE_FLAGS="$gpusym_fuzz_sanitizers -fsanitize=fuzzer-no-link"
           break])
done
AC_MSG_RESULT([${GPUSYM_FUZZ_CC:-none}])
AS_IF([test -z "$GPUSYM_FUZZ_CC"], [
    GPUSYM_FUZZ_CC=$CC
    GPUSYM_FUZZ_FLAGS=
    echo 'int main(void) { return 0; }' >conftest.c
    AS_IF([$CC $gpusym_fuzz_sanitizers -o conftest$EXEEXT conftest.c >/dev/null 2>&1],
          [GPUSYM_FUZZ_FLAGS=$gpusym_fuzz_sanitizers])
    GPUSYM_FUZZ_COMPILE_FLAGS=$GPUSYM_FUZZ_FLAGS])
rm -f conftest.c conftest$EXEEXT
AC_SUBST([GPUSYM_FUZZ_CC])
AC_SUBST([GPUSYM_FUZZ_FLAGS])
AC_SUBST([GPUSYM_FUZZ_COMPILE_FLAGS])
AM_CONDITIONAL([GPUSYM_FUZZER], [test "$GPUSYM_FUZZER" = yes])
])
