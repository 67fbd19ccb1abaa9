#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs the fuzz harnesses of a build tree (test/fuzz/): what users and peers write, in any form.
#
#     test/fuzz.sh BUILDDIR SECONDS [NAME...]     for so long each; without names: all
#
# Each begins with the inputs in test/fuzz/corpus/NAME. With libFuzzer the inputs that it finds new are kept in the build
# tree, test/results/fuzz/NAME, and the next run begins with them too. What crashes, hangs or takes more than 1 GiB is kept
# beside them, and the command that repeats it is printed. Closes with "fuzz: N passed, M failed".
set -u
usage="usage: test/fuzz.sh BUILDDIR SECONDS [NAME...]"
builddir=$(cd "${1:?$usage}" && pwd) || exit 2
seconds=${2:?$usage}
shift 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
[ -r "$builddir/test/fuzz/built" ] || { echo "there are no harnesses: make fuzz-programs" >&2 && exit 2; }
read -ra names <"$builddir/test/fuzz/built"
[ $# -eq 0 ] || names=("$@")
seed=${GPUSYM_TEST_SEED:-$RANDOM}
echo "seed $seed"
passed=0 failed=0
for name in "${names[@]}"; do
    new=$builddir/test/results/fuzz/$name
    log=$new.log
    mkdir -p "$new" || exit 2
    if timeout --kill-after=5 $((seconds * 3 + 60)) "$builddir/test/fuzz/$name" -seed="$seed" -max_total_time="$seconds" \
        -max_len=2048 -timeout=20 -rss_limit_mb=1024 -artifact_prefix="$new-" "$new" "$GPUSYM_SRCDIR/test/fuzz/corpus/$name" \
        >"$log" 2>&1 </dev/null; then
        passed=$((passed + 1))
        echo "ok   $name: $(grep -E -o '[Dd]one [0-9]+ runs.*' "$log" | tail -n 1)"
    else
        failed=$((failed + 1))
        echo "FAIL $name, seed $seed"
        grep -E -A 14 'ERROR|runtime error|does not hold' "$log" | head -n 40 | sed 's/^/     | /'
        sed -n "s|.*Test unit written to |     again: $builddir/test/fuzz/$name |p" "$log"
    fi
done
echo "fuzz: $passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
