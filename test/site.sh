#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The documents as a site (docs/site.sh), and whether every link and anchor in it leads somewhere:
#
#     test/site.sh
#
# Links to other sites are not followed. Needs mkdocs and linkchecker, as Debian packages them.
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
for program in mkdocs linkchecker; do
    command -v $program >/dev/null || { echo "$program is missing" && exit 77; }
done
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir" # where root runs it, linkchecker is user nobody
# shellcheck source=test/verdict.sh
. "$top/test/verdict.sh" || exit 2

why=
"$top/docs/site.sh" "$dir/site" >"$dir/log" 2>&1 || why='not built'
verdict 'mkdocs builds it' "$why" "$dir/log"
echo '[AnchorCheck]' >"$dir/checks"
why=
linkchecker --config="$dir/checks" --no-status "file://$dir/site/index.html" >"$dir/log" 2>&1 || why='links to nowhere'
verdict 'every link leads somewhere' "$why" "$dir/log"
# What a crawl from the start page does not meet is not checked: it must meet all pages.
why=
for page in "$top"/docs/*.md; do
    name=$(basename "$page" .md)
    grep -q "href=\"docs/$name.html\"" "$dir/site/index.html" || why="$why $name"
done
verdict 'every page is in the menu' "${why:+not$why}"
echo "$passed as expected, $failed not"
[ $failed -eq 0 ]
