#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The manual pages of a build: that they have what the programs, the parameters and the headers have, and that mandoc
# and groff find nothing wrong with them.
#
#     test/man.sh BUILDDIR
#
# Exit status 77: all that could be checked is right, but a formatter is missing.
set -u
builddir=$(cd "${1:?usage: test/man.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
# shellcheck source=test/verdict.sh
. "$GPUSYM_SRCDIR/test/verdict.sh" || exit 2
cd "$builddir/man" || exit 1

# same WHAT WANTED GOT: two files of names are the same, and not empty
same() {
    local why=
    sort -u -o "$2" "$2"
    sort -u -o "$3" "$3"
    [ -s "$2" ] || why='nothing was found'
    diff "$2" "$3" >"$dir/log" || why='differs'
    verdict "$1" "$why" "$dir/log"
}

# items PAGE REGEX: the items of a page whose name matches
items() {
    sed -n '/^\.TP$/ { n; s/\\f[BR]//g; s/\\-/-/g; p; }' "$1" | grep -E "$2"
}

for page in *.1; do
    ../*/"${page%.1}" --help | sed -n 's/^  \(--.*\)/\1/p' >"$dir/said"
    items "$page" '^--' >"$dir/written"
    same "$page: options as --help" "$dir/said" "$dir/written"
done
# shellcheck disable=SC2016  # Markdown's backquotes
sed -n 's/^| `\([a-z_]*gpu[a-z]*_[a-z0-9_]*\)` |.*/\1/p' "$GPUSYM_SRCDIR/docs/parameters.md" >"$dir/said"
items gpusym-parameters.7 '^[a-z_]*gpu[a-z]*_[a-z0-9_]*$' >"$dir/written"
same 'parameters and counters as in docs/parameters.md' "$dir/said" "$dir/written"
(cd "$GPUSYM_SRCDIR" && sed -n 's/^ *\(int \)\{0,1\}\([A-Za-z_]*\)(.*/\2/p' pmpi/mpi-ext.h api/*.h) |
    grep -v '^api_' >"$dir/said"
printf '%s\n' *.3gpusym | sed 's/\.3gpusym$//' | grep -vx -e gpusym -e mpix_stream >"$dir/written"
same 'a page for each function of the headers' "$dir/said" "$dir/written"
# Those that only lead to another one, which is there.
mapfile -t links < <(grep -l '^\.so ' ./*)
why=
for page in "${links[@]}"; do
    [ -e "$(sed -n 's,^\.so man3/,,p' "$page")" ] || why="$why $page"
done
verdict 'pages that lead to others' "${why:+nowhere:$why}"
mapfile -t pages < <(grep -L '^\.so ' ./* | sed 's,^\./,,')
for page in "${pages[@]}"; do
    why=
    grep -o '\\fB[^\\]*\(\\-[^\\]*\)*\\fR([0-9a-z]*)' "$page" |
        sed 's/\\f[BR]//g; s/\\-/-/g; s/(/./; s/)//' >"$dir/others"
    [ -s "$dir/others" ] || why=' none'
    while read -r other; do
        # One that is not built everywhere.
        [ -e "$other" ] || [ "$other" = gpusym_netperf.1 ] || why="$why $other"
    done <"$dir/others"
    verdict "$page: refers to pages that there are" "$why"
    why=
    LC_ALL=C grep -n '[^ -~]' "$page" >"$dir/log" && why='docs/man.awk has no name for a character'
    verdict "$page: ASCII" "$why" "$dir/log"
done

missing=
for formatter in 'mandoc -Tlint' 'groff -ww -man -Tutf8'; do
    command -v "${formatter%% *}" >/dev/null || { missing="$missing ${formatter%% *}" && continue; }
    for page in "${pages[@]}"; do
        why=
        # shellcheck disable=SC2086  # a list of words
        $formatter "$page" 2>"$dir/errors" >"$dir/log" || why='not formatted'
        [ "${formatter%% *}" != mandoc ] || mv "$dir/log" "$dir/errors"
        [ ! -s "$dir/errors" ] || why='warnings'
        verdict "$formatter $page" "$why" "$dir/errors"
    done
done
echo "$passed as expected, $failed not"
[ $failed -eq 0 ] || exit 1
[ -z "$missing" ] || { echo "missing:$missing" && exit 77; }
