#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The model of what a call costs (tuning/model.h): its constants are what bench/model fits to bench/results, and
# docs/performance.md has the errors that it has, and the published constants.
#
#     test/model.sh BUILDDIR
#
# The closing line is "model: N passed, M failed".
set -u
builddir=$(cd "${1:?usage: test/model.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
# shellcheck source=test/verdict.sh
. "$GPUSYM_SRCDIR/test/verdict.sh" || exit 2
results=$GPUSYM_SRCDIR/bench/results
document=$GPUSYM_SRCDIR/docs/performance.md

# The constants, within 2 %: a compiler may round otherwise.
"$builddir/bench/model" "$results" >"$dir/fitted"
verdict 'the fit' "$([ $? -eq 0 ] || echo "exit status $?")"
sed -nE 's/^GPUSYM_MODEL\(([A-Z0-9_]+), ([0-9]+), "([^"]+)".*/\1 \2 \3/p' "$GPUSYM_SRCDIR/tuning/model.def" >"$dir/there"
paste -d ' ' "$dir/fitted" "$dir/there" | awk '
    NF != 6 || $1 != $4 || $3 != $6 || $2 > $5 * 1.02 + 1 || $2 < $5 * 0.98 - 1 { print "fitted " $1, $2, $3 ", in tuning/model.def " $4, $5, $6 }' >"$dir/differ"
verdict "$(wc -l <"$dir/there") constants" "$([ -s "$dir/there" ] && [ ! -s "$dir/differ" ] || echo differ)" "$dir/differ"

# The table of errors.
"$builddir/bench/model" "$results" --errors >"$dir/errors"
sed -n '/^| | measured | median error |/,/^$/p' "$document" | sed '/^$/d' | diff - "$dir/errors" >"$dir/differ"
verdict 'docs/performance.md has the errors' "$([ -s "$dir/errors" ] && [ ! -s "$dir/differ" ] || echo '< the document, > the model')" "$dir/differ"

# Published constants, each with its source.
sed -nE 's/^GPUSYM_MODEL_PUBLISHED\(([A-Z0-9_]+), ([0-9]+), "([^"]+)", "([^"]+)",$/\1 \2 \3 \4/p' "$GPUSYM_SRCDIR/tuning/model.def" >"$dir/published"
while read -r id value unit source; do
    grep -F "| \`$id\` | $value $unit |" "$document" | grep -qF "https://$source" || echo "$id $value $unit $source"
done <"$dir/published" >"$dir/differ"
verdict 'docs/performance.md has the published constants' "$([ -s "$dir/published" ] && [ ! -s "$dir/differ" ] || echo 'not these')" "$dir/differ"

"$builddir/bench/model" "$dir" >"$dir/log" 2>&1
verdict 'no results' "$([ $? -eq 1 ] && grep -q 'cannot be read' "$dir/log" || echo 'no message')" "$dir/log"

echo "model: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
