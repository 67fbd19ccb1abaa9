#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# That test/soak.sh finds what is left behind: each kind is injected into one of its programs, and must be told of.
#
#     test/soak_selftest.sh BUILDDIR
set -u
builddir=${1:?usage: test/soak_selftest.sh BUILDDIR}
soak=$(dirname "$0")/soak.sh
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
passed=0 failed=0

# finds WHAT REGEX
finds() {
    local said
    if said=$("$soak" --build "$builddir" --seed 5 --only windows --inject "$1" --once 2>&1) || ! grep -Eq -- "$2" <<<"$said"; then
        echo "$said"
        echo "soak.sh has not found what was left behind: $1"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
}

if [ "$GPUSYM_SANITIZERS" = no ]; then
    finds heap 'FAIL on rank [0-9]: blocks'
    finds resident 'FAIL on rank [0-9]: resident'
    finds mapping 'FAIL on rank [0-9]: mappings'
fi
finds descriptor 'FAIL on rank [0-9]: descriptors'
finds device 'FAIL on rank [0-9]: device'
finds file 'FAIL windows: files are left: .*/left'
finds process 'FAIL windows: process [0-9]+ is left: sleep 600'
echo "soak: $passed passed, $failed failed"
[ $failed -eq 0 ]
