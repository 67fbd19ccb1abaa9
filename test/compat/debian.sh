#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds this tree and runs its tests with another Debian's Open MPI, inside a root of that Debian:
#
#     test/compat/debian.sh trixie|sid [FORM]     trixie has Open MPI 5.0.7, sid 6.0
#
# FORM is the form of the tests (GPUSYM_TEST_FORM of test/run.sh): version, if none is given, those of make check, and of
# make check-long what depends on the version of Open MPI; ompi, what meets most of Open MPI's own code.
# The tree is taken as it is, committed or not. The root is kept: test/compat/root.sh, which also says where packages come
# from. Needs root (or sudo), to make it and to enter it. Ends with the tests' closing line, "N passed, M failed"; exit
# status 77: packages cannot be fetched.
set -eu
me=debian.sh
# libpmix-dev: libopenmpi-dev needs its headers for components, and since Open MPI 6 does not ask for it.
packages=(gcc libc6-dev make autoconf automake libtool libopenmpi-dev libpmix-dev openmpi-bin libcmocka-dev libucx-dev iproute2)

# shellcheck source=test/compat/root.sh
. "$(dirname "$0")/root.sh"

# Inside the root: installs what is still missing, builds, tests.
build_and_test() {
    local form=$1 without='' jobs
    install_missing "${@:2}"
    mkdir /gpusym/_build
    cd /gpusym/_build
    say "building with $(ompi_info --version | head -n 1), $(gcc --version | head -n 1)"
    jobs=$(($(nproc) + 2))
    # The unit tests know no MPI.
    [ "$form" != ompi ] || without=--without-cmocka
    { ../autogen.sh && ../configure --enable-werror $without && make -j"$jobs" check-programs; } >build.log 2>&1 ||
        { tail -n 40 build.log; die "the build failed"; }
    sed -n '/^gpusym [0-9]/,/^ *install to/p' build.log
    GPUSYM_TEST_FORM=$form exec make --no-print-directory check
}

[ "${1:-}" != --inside ] || build_and_test "${@:2}"

name=${1:-}
case $name in trixie | sid) ;; *) die "which Debian? trixie or sid" ;; esac
form=${2:-version}
as_root "$0" "$name" "$form"
have_root "$name" "$name" "${packages[@]}"

# What mpirun left of a run that was killed: its folder's name is a process id, which may come again.
rm -rf "$root"/tmp/prte* "$root"/tmp/ompi.* "$root"/tmp/pmix-*
copy_tree "$root/gpusym"
exec "${into[@]}" "$root" /bin/bash /gpusym/test/compat/debian.sh --inside "$form" "${packages[@]}"
