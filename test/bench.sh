#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The files of test/run.sh's tests "bench" and "bench-p2p": CSV and JSON say the same; each is drawn where Python has matplotlib, and where it
# has not that is said. Ends with 77 where there is no python3, or no such files.
#
#     test/bench.sh BUILDDIR
set -u
build=${1:?usage: test/bench.sh BUILDDIR}
results=$build/test/results
program=$build/bench/gpusym_bench
command -v python3 >/dev/null || { echo "no python3" && exit 77; }
for name in bench bench-p2p; do
    [ -r "$results/$name.json" ] || { echo "the test $name has not run" && exit 77; }
    python3 -m json.tool "$results/$name.json" >/dev/null || exit 1
done

# same_rows NAME FACT: that fact is above 0; FACT empty: there is none
same_rows() {
    python3 - "$results/$1.csv" "$results/$1.json" "$2" <<'END'
import csv, json, sys

with open(sys.argv[1]) as f:
    lines = list(f)
rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
whole = json.load(open(sys.argv[2]))

def same(text, value):
    return value is None if text == "" else value == text if isinstance(value, str) else float(text) == value

if len(rows) != len(whole["rows"]):
    sys.exit(f"{len(rows)} rows of CSV, {len(whole['rows'])} of JSON")
for a, b in zip(rows, whole["rows"]):
    if list(a) != list(b) or not all(same(a[k], b[k]) for k in a):
        sys.exit(f"CSV: {a}\nJSON: {b}")
if [line[2:-1] for line in lines if line.startswith("# ") and line.split(":")[0][2:] not in whole["facts"]] != whole["comments"]:
    sys.exit("other comments")
if sys.argv[3] and whole["facts"][sys.argv[3]] <= 0:
    sys.exit(f"no {sys.argv[3]}")
print(f"the same {len(rows)} rows")
END
}
same_rows bench gpusym_first_call_ms || exit 1
same_rows bench-p2p "" || exit 1

pictures=$(mktemp -d) || exit 1
trap 'rm -rf "$pictures"' EXIT
words=$("$program" plot --out "$pictures" "$results/bench.csv" "$results/bench.json" 2>&1)
status=$?
if python3 -c 'import matplotlib' 2>/dev/null || /usr/bin/python3 -c 'import matplotlib' 2>/dev/null; then
    drawn=$(find "$pictures" -name '*.png' -size +1k | wc -l) # both files have one name, and so have their pictures
    if [ $status -ne 0 ] || [ "$drawn" -ne 45 ]; then
        echo "$words"
        echo "$drawn pictures, not 45"
        exit 1
    fi
elif [ $status -eq 0 ] || [[ $words != *python3-matplotlib* ]]; then
    echo "without matplotlib: status $status, $words"
    exit 1
fi
echo "plot: ${words##*$'\n'}"
