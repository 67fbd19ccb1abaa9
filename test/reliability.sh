#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# docs/reliability.md against the tests: each that it names, in the last column of a table, is a row of test/tests.table or a
# program of test/unit.
#
#     test/reliability.sh [DOCUMENT]
#
# Prints what is wrong; so says the exit status.
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
document=${1:-$top/docs/reliability.md}

names=$(awk -f "$top/test/table.awk" "$top/test/tests.table" | sed 's/[| ].*//' | sort -u)
# shellcheck disable=SC2016  # Markdown's backquotes
cited=$(awk -F'|' '
    /^\|/ { last = $(NF - 1); if (last ~ /^ *tests *$/) on = 1; if (on) print last; next }
    { on = 0 }' "$document" | grep -o '`[^`]*`' | tr -d '`' | sort -u)
if [ -z "$names" ] || [ "$(wc -l <<<"$cited")" -lt 20 ]; then
    echo "$document: no tests are named, or test/tests.table has none"
    exit 1
fi
wrong=$(for name in $cited; do
    grep -Fqx -- "$name" <<<"$names" || [ -e "$top/test/unit/$name.c" ] || echo "$document names a test that does not exist: $name"
done)
[ -z "$wrong" ] || { echo "$wrong" && exit 1; }
echo "reliability: $(wc -l <<<"$cited") tests, all there"
