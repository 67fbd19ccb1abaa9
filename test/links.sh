#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Whether the links of documents lead to a file:
#
#     test/links.sh FOLDER       of all .md files beneath FOLDER: an installation's folder of documents
#     test/links.sh --build BUILDDIR     of those that "make install" installs from this build
set -u
dir=${1:?usage: test/links.sh FOLDER, or --build BUILDDIR}
if [ "$dir" = --build ]; then
    builddir=$(cd "${2:?usage: test/links.sh --build BUILDDIR}" && pwd) || exit 2
    dir=$(mktemp -d) || exit 2
    trap 'rm -rf "$dir"' EXIT
    make -C "$builddir" --no-print-directory install-nobase_dist_docDATA docdir="$dir" >/dev/null || exit 2
fi
cd "$dir" || exit 2

links=0
broken=0
while IFS=: read -r file target; do
    links=$((links + 1))
    [ -e "$(dirname "$file")/$target" ] && continue
    broken=$((broken + 1))
    echo "$file: $target is not there"
done < <(find . -name '*.md' -exec grep -HoE '\]\([^)]+\)' {} + |
    sed -E 's/\]\(([^)#]*)[^)]*\)$/\1/' | grep -vE ':(https?:.*)?$')
echo "$links links, $broken broken"
[ $links -gt 0 ] && [ $broken -eq 0 ]
