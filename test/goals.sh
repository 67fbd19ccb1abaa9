#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/goals.sh: measures on the simulator, where it judges nothing; and what it makes of tables whose figures are known.
#
#     test/goals.sh BUILDDIR
set -u

builddir=$(cd "${1:?usage: test/goals.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
goals=$GPUSYM_SRCDIR/bench/goals.sh
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

failed=0
# expect FILE REGEX...: each must match a line of the table.
expect() {
    local file=$1 regex
    shift
    for regex; do
        grep -Eq -- "$regex" "$file" || { echo "no line of $(basename "$file") matches: $regex" && failed=1; }
    done
}

"$goals" --device sim --bin "$builddir" --out "$dir/sim" 3 >"$dir/sim.txt" || failed=1
expect "$dir/sim.txt" '^THE SIMULATOR' '^NCCL was not measured' '^goals: 6 passed, 0 failed$' \
    '^allreduce +8 B +us +4\.50 +- +[0-9.]+ +- +- +agxll_r$' '^alltoall +12 B +us +- +- +[0-9.]+ +- +- +ll$' \
    '^second communicator: its first call adds +ms +1\.00 +- ' '^examples/cg: .* us +- +- +[0-9.]+ '
for csv in "$dir"/sim/goals-*.csv; do
    expect "$csv" '^# command line: ' '^# commit: ' '^# GPU of rank 0: none \(simulator\)'
done

# As of 4 H200: goals reached and missed, with NCCL's better figure, and one that nobody measured.
mkdir "$dir/made"
head='# GPU of rank 0: NVIDIA H200
# commit: 1234'
columns=collective,bytes,us,in_place_us,nccl_us,nccl_symmetric_us,algorithm
cat >"$dir/made/goals-allreduce-4-ranks.csv" <<END
$head
# gpusym_first_call_ms: 30.00
# gpusym_second_communicator_MiB: 0.00
# gpusym_memory_MiB: 65.00
# nccl_init_ms: 500.50
# nccl_first_call_ms: 1000.00
$columns
allreduce,8,4.40,,20.00,11.00,first
allreduce,512,5.01,,20.00,,second
END
cat >"$dir/made/goals-others-4-ranks.csv" <<END
$head
$columns
bcast,128,,10.00,30.00,20.00,third
bcast,1048576,,10.00,9.00,20.00,third
END
cat >"$dir/made/goals-blocks-4-ranks.csv" <<END
$head
blocks,us,bytes
0,95.00,536870912
16,100.00,536870912
END
cat >"$dir/made/goals-beside-4-ranks.csv" <<END
$head
what,linger_us,us,over_linger_0
axpy,0,100.00,1.0000
axpy,1000,102.00,1.0200
synchronize,auto,7.00,1.5000
END
"$goals" --device cuda --out "$dir/made" --table 4 >"$dir/made.txt" || failed=1
"$goals" --device cuda --out "$dir/made" --table --markdown 4 >"$dir/made.md" || failed=1
expect "$dir/made.txt" '^4 ranks; GPU of rank 0: NVIDIA H200; commit 1234;' \
    '^allreduce +8 B +us +4\.50 +11\.0 +4\.40 +2\.50 +yes +first$' \
    '^allreduce +512 B +us +5\.00 +20\.0 +5\.01 +3\.99 +no +second$' \
    '^allreduce +4 KiB +us +5\.50 +- +- +- +-$' \
    '^bcast +128 B +us +20\.0 +20\.0 +10\.0 +2\.00 +yes +third$' \
    '^bcast +1 MiB +us +9\.00 +9\.00 +10\.0 +0\.90 +no +third$' \
    '^allreduce with 16 blocks: .* 512 MiB +share +0\.95 +- +0\.95 +- +yes$' \
    '^first call on device memory +ms +60\.0 +1500 +30\.0 +50\.02 +yes$' \
    '^GPU memory per process +MiB +64\.0 +- +65\.0 +- +no$' \
    '^second communicator: GPU memory +MiB +0\.00 +- +0\.00 +- +yes$' \
    '^axpy beside .* ratio +1\.01 +- +1\.02 +- +no$' '5 goals reached, 4 not$' '^ *auto$|^linger +auto$'
expect "$dir/made.md" '^\| allreduce \| 8 B \| us \| 4\.50 \| 11\.0 \| 4\.40 \| 2\.50 \| yes \| first \|$'
# On another machine none is judged.
sed -i 's/H200/H100/' "$dir/made"/*.csv
"$goals" --device cuda --out "$dir/made" --table 4 >"$dir/other.txt" || failed=1
expect "$dir/other.txt" '^the goals are for 4 ranks on NVIDIA H200' \
    '^allreduce +8 B +us +4\.50 +11\.0 +4\.40 +2\.50 +- +first$'
# Without tables there is no table.
if "$goals" --device cuda --out "$dir" --table 4 >/dev/null 2>&1; then
    echo "a table of nothing" && failed=1
fi

[ $failed -ne 0 ] || echo "the tables are right"
exit $failed
