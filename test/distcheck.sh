#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A release can be made of this tree: make distcheck, which makes the tarball, unpacks it, builds, tests, installs, removes
# all again, and looks for what is left:
#
#     test/distcheck.sh BUILDDIR
#
# Of the tests it runs one, that of the documents' links; the others have run in the build itself.
set -u
builddir=$(cd "${1:?usage: test/distcheck.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
for program in autoconf automake; do
    command -v $program >/dev/null || { echo "no $program" && exit 77; }
done
# That make is none of this one's, and its tests are not those of this run.
for name in MAKEFLAGS MFLAGS MAKELEVEL LD_PRELOAD "${!GPUSYM_TEST_@}" "${!OMPI_MCA_@}"; do unset "$name"; done
make -C "$builddir" -j"$(nproc)" distcheck PATTERNS=links || exit 1
