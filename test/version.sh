#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Whether what tells the history of versions begins with the version of configure.ac; all else is made from that one:
#
#     test/version.sh BUILDDIR
set -u
builddir=$(cd "${1:?usage: test/version.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/verdict.sh
. "$GPUSYM_SRCDIR/test/verdict.sh" || exit 2
cd "$GPUSYM_SRCDIR" || exit 2

# same FILE PATTERN: the first line that the pattern matches has the version in its group
same() {
    local found
    found=$(sed -nE "s/$2/\1/p" "$1" | head -n 1)
    verdict "$1" "$([ "$found" = "$GPUSYM_VERSION" ] || echo "it says '$found', configure.ac $GPUSYM_VERSION")"
}
same NEWS '^([0-9.]+) \(.*'
same debian/changelog '^gpusym \(([0-9.]+)-[0-9]+\).*'
major_minor() {
    sed -nE 's/^#define GPUSYM_VERSION_(MAJOR|MINOR) ([0-9]+)$/\2/p' api/gpusym.h | paste -sd.
}
verdict api/gpusym.h "$([ "$(major_minor)" = "${GPUSYM_VERSION%.*}" ] || echo "it says '$(major_minor)'")"
# No other file has a version of its own.
others=$(grep -rnF "$GPUSYM_VERSION" configure.ac m4/gpusym_*.m4 Makefile.am packaging debian quickstart 2>/dev/null |
    grep -vE '^(debian/changelog|packaging/gpusym\.spec):')
verdict 'from one place' "$others"
echo "$passed as expected, $failed not"
[ $failed -eq 0 ]
