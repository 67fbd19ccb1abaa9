#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Makes ./configure from configure.ac and Makefile.am. Needed once in a git checkout, never in a release.
set -eu
cd "$(dirname "$0")"

missing=
for tool in autoconf automake libtoolize; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
if [ -n "$missing" ]; then
    echo "autogen.sh: not found:$missing" >&2
    echo "  Debian, Ubuntu:  apt-get install autoconf automake libtool" >&2
    echo "  Fedora, RHEL:    dnf install autoconf automake libtool" >&2
    exit 1
fi

autoreconf --install --warnings=all,no-obsolete
