dnl SPDX-License-Identifier: BSD-3-Clause
dnl
dnl CUDA: cuda.h for the GPU's device table (its library is opened at run time, none is linked), and nvcc for the
dnl kernels. Either may be missing; without nvcc all but the kernels is built.

dnl GPUSYM_NVCC_TRY(flags, if-yes, if-no): whether nvcc makes a fatbin with them.
AC_DEFUN([GPUSYM_NVCC_TRY], [
cat >conftest.cu <<'EOF'
__global__ void gpusym_probe(int *p) { *p = 1; }
EOF
AS_IF([AC_TRY_COMMAND(["$NVCC" -fatbin -std=c++17 $1 -o conftest.fatbin conftest.cu >&AS_MESSAGE_LOG_FD 2>&1])], [$2], [$3])
rm -f conftest.cu conftest.fatbin
])

AC_DEFUN([GPUSYM_CHECK_CUDA], [
AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
    [CUDA in DIR @<:@auto: in PATH or /usr/local/cuda@:>@])], [], [with_cuda=auto])
AC_ARG_WITH([cuda-arch], [AS_HELP_STRING([--with-cuda-arch=LIST],
    [GPU architectures to build kernels for, the newest also as PTX @<:@80,90,100@:>@; none: no kernels])],
    [], [with_cuda_arch=auto])
AC_ARG_VAR([NVCC], [the CUDA compiler])
AC_ARG_VAR([NVCCFLAGS], [flags for the CUDA compiler])
GPUSYM_HAVE_CUDA=0 GPUSYM_HAVE_KERNELS=0 GPUSYM_HAVE_NVTX=0
GPUSYM_CUDA_CPPFLAGS= GPUSYM_CUDA_ARCH= GPUSYM_NVCC_GENCODE= GPUSYM_NVCC_HOST= GPUSYM_NVCC_WERROR=
AS_IF([test "$with_cuda" = no],
    [GPUSYM_FEATURE([CUDA], [off: --without-cuda])
     GPUSYM_FEATURE([GPU kernels], [off: --without-cuda])],
    [GPUSYM_CHECK_NVCC
     GPUSYM_CHECK_CUDA_H])
AC_SUBST([GPUSYM_HAVE_CUDA])
AC_SUBST([GPUSYM_HAVE_KERNELS])
AC_SUBST([GPUSYM_HAVE_NVTX])
AC_SUBST([GPUSYM_CUDA_CPPFLAGS])
AC_SUBST([GPUSYM_CUDA_ARCH])
AC_SUBST([GPUSYM_NVCC_GENCODE])
AC_SUBST([GPUSYM_NVCC_HOST])
AC_SUBST([GPUSYM_NVCC_WERROR])
AM_CONDITIONAL([GPUSYM_HAVE_CUDA], [test "$GPUSYM_HAVE_CUDA" = 1])
AM_CONDITIONAL([GPUSYM_HAVE_KERNELS], [test "$GPUSYM_HAVE_KERNELS" = 1])
])

dnl Sets NVCC, GPUSYM_NVCC_HOST, GPUSYM_NVCC_WERROR, GPUSYM_CUDA_ARCH and GPUSYM_NVCC_GENCODE; for cuda.h,
dnl gpusym_cuda_dir.
AC_DEFUN([GPUSYM_CHECK_NVCC], [
AS_CASE([$with_cuda],
    [auto|yes], [gpusym_cuda_path=$PATH:/usr/local/cuda/bin gpusym_cuda_dir=],
    [gpusym_cuda_path=$with_cuda/bin gpusym_cuda_dir=$with_cuda])
AC_PATH_PROG([NVCC], [nvcc], [], [$gpusym_cuda_path])
AS_IF([test -z "$gpusym_cuda_dir" && test -n "$NVCC"],
      [gpusym_cuda_dir=$(dirname "$(dirname "$(readlink -f "$NVCC")")")])
gpusym_nvcc_why=
AS_IF([test -z "$NVCC"],
    [gpusym_nvcc_why='nvcc not found (Debian, Ubuntu: nvidia-cuda-toolkit or NVIDIA'"'"'s cuda-nvcc; Fedora, RHEL: cuda-nvcc)'],
    [AC_MSG_CHECKING([whether $NVCC works])
     GPUSYM_NVCC_TRY([], [AC_MSG_RESULT([yes])],
         dnl Only the GPU's half is kept, so a host compiler newer than nvcc knows does no harm.
         [GPUSYM_NVCC_TRY([-allow-unsupported-compiler],
             [GPUSYM_NVCC_HOST=-allow-unsupported-compiler
              AC_MSG_RESULT([yes, with -allow-unsupported-compiler])],
             [AC_MSG_RESULT([no])
              gpusym_nvcc_why="$NVCC does not compile a trivial kernel; config.log has the error"])])])
dnl For --enable-werror; an nvcc that does not know these words does without.
AS_IF([test -z "$gpusym_nvcc_why" && test "$enable_werror" != no],
    [GPUSYM_NVCC_TRY([$GPUSYM_NVCC_HOST -Werror all-warnings], [GPUSYM_NVCC_WERROR='-Werror all-warnings'])])
AS_IF([test -z "$gpusym_nvcc_why" && test "$with_cuda_arch" != none], [GPUSYM_CHECK_CUDA_ARCH])
AS_IF([test "$with_cuda_arch" = none], [GPUSYM_FEATURE([GPU kernels], [off: --with-cuda-arch=none])],
    [test -z "$gpusym_nvcc_why"],
    [GPUSYM_HAVE_KERNELS=1
     gpusym_nvcc_version=$("$NVCC" --version | $SED -n 's/.*release @<:@^,@:>@*, V//p')
     GPUSYM_FEATURE([GPU kernels], [nvcc $gpusym_nvcc_version for sm_$(echo $GPUSYM_CUDA_ARCH | $SED 's/,/, sm_/g') and PTX])],
    [test "$with_cuda" = auto], [GPUSYM_FEATURE([GPU kernels], [off: $gpusym_nvcc_why])],
    [AC_MSG_ERROR([--with-cuda: $gpusym_nvcc_why])])
])

dnl The GPUs to build for. Of the default list, what this nvcc does not know is left out; of a list given, it is an error.
AC_DEFUN([GPUSYM_CHECK_CUDA_ARCH], [
AS_CASE([$with_cuda_arch], [auto|yes|no], [gpusym_arch_list=80,90,100], [gpusym_arch_list=$with_cuda_arch])
gpusym_arch_newest=
for arch in $(echo "$gpusym_arch_list" | tr ',' '\n' | $SED 's/^sm_//' | sort -n -u); do
    AC_MSG_CHECKING([whether nvcc supports sm_$arch])
    GPUSYM_NVCC_TRY([$GPUSYM_NVCC_HOST -gencode arch=compute_$arch,code=sm_$arch],
        [AC_MSG_RESULT([yes])
         GPUSYM_NVCC_GENCODE="$GPUSYM_NVCC_GENCODE -gencode arch=compute_$arch,code=sm_$arch"
         GPUSYM_CUDA_ARCH="${GPUSYM_CUDA_ARCH:+$GPUSYM_CUDA_ARCH,}$arch"
         gpusym_arch_newest=$arch],
        [AC_MSG_RESULT([no])
         AS_IF([test "$with_cuda_arch" != auto],
               [AC_MSG_ERROR([--with-cuda-arch=$with_cuda_arch: $NVCC does not support sm_$arch])])])
done
AS_IF([test -z "$gpusym_arch_newest"], [gpusym_nvcc_why="$NVCC supports none of sm_$gpusym_arch_list"],
    [GPUSYM_NVCC_GENCODE="$GPUSYM_NVCC_GENCODE -gencode arch=compute_$gpusym_arch_newest,code=compute_$gpusym_arch_newest"])
])

AC_DEFUN([GPUSYM_CHECK_CUDA_H], [
gpusym_save_CPPFLAGS=$CPPFLAGS
gpusym_cuda_h=
for dir in "" "$gpusym_cuda_dir/include" "$gpusym_cuda_dir"/targets/*/include; do
    AS_IF([test -z "$gpusym_cuda_h"], [
        GPUSYM_CUDA_CPPFLAGS=${dir:+-I$dir}
        CPPFLAGS="$gpusym_save_CPPFLAGS $GPUSYM_CUDA_CPPFLAGS"
        AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <cuda.h>
#if CUDA_VERSION < 11070
#error too old
#endif
            ]])], [gpusym_cuda_h=yes])])
done
CPPFLAGS=$gpusym_save_CPPFLAGS
AC_MSG_CHECKING([for cuda.h of CUDA 11.7 or newer])
AC_MSG_RESULT([${gpusym_cuda_h:-no}])
AS_IF([test "$gpusym_cuda_h" = yes],
    [GPUSYM_HAVE_CUDA=1
     gpusym_save_CPPFLAGS=$CPPFLAGS
     CPPFLAGS="$CPPFLAGS $GPUSYM_CUDA_CPPFLAGS"
     AC_COMPUTE_INT([gpusym_cuda_version], [CUDA_VERSION], [[#include <cuda.h>]], [gpusym_cuda_version=0])
     CPPFLAGS=$gpusym_save_CPPFLAGS
     CPPFLAGS="$CPPFLAGS $GPUSYM_CUDA_CPPFLAGS"
     AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <nvtx3/nvToolsExt.h>]])],
         [GPUSYM_HAVE_NVTX=1
          GPUSYM_FEATURE([NVTX], [ranges for profilers])],
         [GPUSYM_FEATURE([NVTX], [off: nvtx3/nvToolsExt.h not found (cuda-nvtx)])])
     CPPFLAGS=$gpusym_save_CPPFLAGS
     gpusym_cuda_version=$((gpusym_cuda_version / 1000)).$((gpusym_cuda_version % 1000 / 10))
     GPUSYM_FEATURE([CUDA], [$gpusym_cuda_version (libcuda.so.1 is opened at run time)])],
    [GPUSYM_CUDA_CPPFLAGS=
     gpusym_cuda_h_why='cuda.h not found (Debian, Ubuntu: nvidia-cuda-dev or NVIDIA'"'"'s cuda-driver-dev; Fedora, RHEL: cuda-driver-devel)'
     AS_IF([test "$with_cuda" = auto],
         [GPUSYM_HAVE_KERNELS=0
          GPUSYM_FEATURE([CUDA], [off: $gpusym_cuda_h_why])],
         [AC_MSG_ERROR([--with-cuda: $gpusym_cuda_h_why])])])
])
