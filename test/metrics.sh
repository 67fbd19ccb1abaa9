#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Metrics (coll_gpusym_metrics) on the simulator: the format; values against the trace of the same run, to the call, byte and
# nanosecond; a rank that is late; threads; files that are read while they are written, of a job that is killed, and that cannot
# be written.
#
#     test/metrics.sh BUILDDIR
#
# The closing line is "metrics: N passed, M failed".
set -u
builddir=$(cd "${1:?usage: test/metrics.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/mpirun.sh
. "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL
export OMPI_MCA_coll=gpusym OMPI_MCA_coll_gpusym_device=sim GPUSYM_TEST_DEVICE=sim
# shellcheck disable=SC2154  # test/mpirun.sh sets it
mpirun=("$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}")
traced=$builddir/test/mpi/traced
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
# shellcheck source=test/verdict.sh
. "$GPUSYM_SRCDIR/test/verdict.sh" || exit 2
parser=$(python3 -c 'import prometheus_client.parser' 2>/dev/null && echo yes)

# form FILE...: what is wrong with them, as the text format and the rules of the textfile collector say: each family once, its
# HELP and TYPE before its samples, each series once, labels quoted, counters numbers without a sign; the last family is there.
form() {
    # shellcheck disable=SC2016  # awk's
    awk '
        FNR == 1 { if (NR > 1) finish(); split("", family); split("", series); name = ""; file = FILENAME }
        { last = $0 }
        /^# HELP [a-z][a-z_]* [^\\]+$/ {
            if (family[$3]++) wrong("family twice")
            name = $3; typed = 0
            next
        }
        /^# TYPE [a-z][a-z_]* (counter|gauge)$/ {
            if ($3 != name || typed++) wrong("TYPE without HELP")
            if ($4 == "counter" && name !~ /_total$/) wrong("counter without _total")
            next
        }
        /^[a-z][a-z_]*\{[a-z]+="[^"\\]*"(,[a-z]+="[^"\\]*")*\} [0-9]+(\.[0-9]+)?$/ {
            at = index($0, "{"); key = substr($0, 1, index($0, "} "))
            if (substr($0, 1, at - 1) != name || !typed) wrong("sample of another family")
            if (series[key]++) wrong("series twice")
            if (key !~ /rank="[0-9]+",host="[^"]+",pid="[0-9]+"/) wrong("no rank, host, pid")
            next
        }
        { wrong("no line of the format") }
        function wrong(why) { print file ": " why ": " $0 }
        function finish() { if (last !~ /^gpusym_messages_because_total\{/) print file ": cut: " last }
        END { if (NR == 0) print "empty"; else finish() }' "$@"
    [ -z "$parser" ] || python3 -c 'import sys
from prometheus_client.parser import text_string_to_metric_families as parse
for name in sys.argv[1:]:
    if not sum(len(family.samples) for family in parse(open(name).read())):
        print(name, "has no samples")' "$@" 2>&1 | tail -n 1
}

# run N ARGUMENT...: N ranks, which write $dir/RANK.prom
run() {
    local n=$1 rc why=
    shift
    rm -f "$dir"/*.prom* "$dir"/trace.*
    timeout $((90 * ${GPUSYM_TEST_SLOW:-1})) "${mpirun[@]}" -n "$n" --mca coll_gpusym_metrics "$dir/%r.prom" "$@" \
        >"$dir/said" 2>&1 </dev/null
    rc=$?
    [ $rc -eq 77 ] && return 77
    [ $rc -eq 0 ] || why="exit status $rc"
    [ "$(find "$dir" -name '*.prom' | wc -l)" -eq "$n" ] || why="$why not a file for each rank"
    [ -z "$(find "$dir" -name '*.tmp')" ] || why="$why a file is left"
    verdict "$label: runs" "$why" "$dir/said"
    verdict "$label: format" "$(form "$dir"/*.prom | head -n 3)"
}

# value RANK METRIC LABELS: "" if there is no such sample
value() {
    sed -nE "s/^gpusym_$2\{rank=\"$1\",[^}]*$3\} (.*)$/\1/p" "$dir/$1.prom"
}

# is RANK METRIC LABELS VALUE
is() {
    local v
    v=$(value "$1" "$2" "$3")
    verdict "$label: rank $1: $2{$3} $4" "$([ "$v" = "$4" ] || echo "$v")" "$dir/$1.prom"
}

# sums RANK: what the trace's lines of the process add up to, as lines "collective form calls bytes ns waiting"
sums() {
    # shellcheck disable=SC2016  # awk's
    awk '
        function number(name) {
            if (!match($0, "\"" name "\":[0-9]+")) return 0
            return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
        }
        function word(name) {
            match($0, "\"" name "\":\"[a-z_]+")
            return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4)
        }
        # Times have more digits than awk keeps: from the first call on.
        function since(text) { return text == 0 ? 0 : substr(text, length(text) - 12) + 0 }
        /"coll":/ {
            key = word("coll") " " word("form")
            calls[key]++
            bytes[key] += number("bytes")
            ns[key] += since(number("returned")) - since(number("entered"))
            if (number("there") != 0) waiting[key] += since(number("there")) - since(number("posted"))
        }
        END { for (key in calls) printf "%s %.0f %.0f %.0f %.0f\n", key, calls[key], bytes[key], ns[key], waiting[key] }
    ' "$dir/trace.$1" | LC_ALL=C sort
}

# The same of the metrics: seconds with nine digits are nanoseconds.
metric_sums() {
    # shellcheck disable=SC2016  # awk's
    awk -F'[{}" ]' '
        /^gpusym_(recorded_calls|bytes|seconds|waiting_seconds)_total/ {
            match($0, /collective="[a-z_]+"/); coll = substr($0, RSTART + 12, RLENGTH - 13)
            match($0, /form="[a-z]+"/); key = coll " " substr($0, RSTART + 6, RLENGTH - 7)
            v = $NF; sub(/\./, "", v); sub(/^0+/, "", v)
            sum[key, $1] = v == "" ? 0 : v; keys[key]
        }
        END {
            for (key in keys)
                print key, sum[key, "gpusym_recorded_calls_total"], sum[key, "gpusym_bytes_total"], sum[key, "gpusym_seconds_total"], sum[key, "gpusym_waiting_seconds_total"]
        }' "$dir/$1.prom" | LC_ALL=C sort
}

# as_traced N: every rank's metrics are what its trace adds up to
as_traced() {
    local rank
    for ((rank = 0; rank < $1; rank++)); do
        sums "$rank" >"$dir/want"
        metric_sums "$rank" | diff "$dir/want" - >"$dir/differ"
        verdict "$label: rank $rank: as in the trace" "$([ -s "$dir/want" ] && [ ! -s "$dir/differ" ] || echo no)" "$dir/differ"
    done
}

label=forms
run 2 --mca coll_gpusym_trace "$dir/trace" "$traced" --what forms --n 5 --bytes 4096
for rank in 0 1; do
    for form in blocking nonblocking persistent; do
        is $rank recorded_calls_total "collective=\"allreduce\",form=\"$form\"" 10
        is $rank bytes_total "collective=\"allreduce\",form=\"$form\"" 40960
    done
    is $rank calls_total 'collective="allreduce",way="native"' 30
    is $rank recorded_calls_total 'collective="bcast",form="persistent"' 10
    is $rank recorded_calls_total 'collective="bcast",form="blocking"' ''
done
as_traced 2

label=ways
run 3 --mca coll_gpusym_metrics_interval 0 --mca coll_gpusym_trace "$dir/trace" "$traced" --what ways
is 0 staged_calls_total 'collective="allreduce",reason="user_op"' 1
is 0 native_calls_total 'collective="allreduce",algorithm="copy"' 1
is 1 staged_calls_total 'collective="bcast",reason="mixed"' 1
is 2 calls_total 'collective="reduce_local",way="staged"' 1
as_traced 3

label='a late rank'
run 2 --mca coll_gpusym_trace "$dir/trace" "$traced" --late 1 --us 20000 --n 20
as_traced 2

label='shared GPUs'
run 4 --mca coll_gpusym_sim_gpus 2 --mca coll_gpusym_trace "$dir/trace" "$traced" --n 10
is 3 native_calls_total 'collective="allreduce",algorithm="led"' 10
as_traced 4

label=threads
run 2 "$traced" --what threads --n 200
[ $? -eq 77 ] || is 1 recorded_calls_total 'collective="allreduce",form="blocking"' 800

label='more calls in flight than records'
run 2 "$traced" --what many --n 9000 --bytes 8
for rank in 0 1; do
    n=$(value $rank recorded_calls_total 'collective="allreduce",form="nonblocking"')
    verdict "$label: rank $rank: all are counted" "$([ $((n + $(sed -nE 's/^gpusym_unrecorded_calls_total.* //p' "$dir/$rank.prom"))) -eq 9000 ] || echo "$n")"
done

# Files that are complete at any time: written every eighth of a second, read all the time; then one rank is killed.
label='at any time'
rm -f "$dir"/*.prom*
timeout $((90 * ${GPUSYM_TEST_SLOW:-1})) "${mpirun[@]}" -n 2 --mca coll_gpusym_metrics "$dir/%r.prom" \
    --mca coll_gpusym_metrics_interval 0.125 "$traced" --late 1 --us 20000 --n 100000 >"$dir/said" 2>&1 </dev/null &
job=$!
calls=0
reads=0
why=
for ((i = 0; i < 3000 && reads < 40; i++)); do
    kill -0 $job 2>/dev/null || break
    sleep 0.02
    [ -e "$dir/0.prom" ] || continue
    cat <"$dir/0.prom" >"$dir/copy"
    why=$why$(form "$dir/copy" | head -n 1)
    n=$(sed -nE 's/^gpusym_recorded_calls_total.*collective="allreduce".* ([0-9]+)$/\1/p' "$dir/copy")
    [ "${n:-0}" -gt "$calls" ] || continue
    calls=$n
    reads=$((reads + 1))
done
verdict "$label: $reads different files are complete" "$why$([ $reads -ge 10 ] || echo ' too few')" "$dir/said"
label='a killed job'
kill -9 "$(sed -nE 's/^gpusym_info.*pid="([0-9]+)".*/\1/p' "$dir/1.prom")"
wait $job
verdict "$label ends" "$([ $? -ne 0 ] || echo 'by exit status 0')" "$dir/said"
verdict "$label: format" "$(form "$dir"/*.prom | head -n 3)"

# A name that is relative is of the folder where the program began.
label='a relative name'
(cd "$dir" && timeout 60 "${mpirun[@]}" -n 1 --mca coll_gpusym_metrics relative "$traced" --what away --n 3) >"$dir/said" 2>&1 </dev/null
verdict "$label: runs" "$([ $? -eq 0 ] || echo no)" "$dir/said"
grep -q 'collective="allreduce",form="blocking"} 3$' "$dir/relative.0"
verdict "$label: the last file" "$([ $? -eq 0 ] || echo no)" "$dir/said"

# Files that cannot be written: at the start, and later.
label=unwritable
timeout 60 "${mpirun[@]}" -n 1 --mca coll_gpusym_metrics "$dir/none/metrics" "$traced" --n 1 >"$dir/said" 2>&1 </dev/null
verdict "$label: the program goes on" "$([ $? -eq 0 ] || echo no)" "$dir/said"
verdict "$label: one message" "$([ "$(grep -c '^Rank 0 cannot write its metrics (coll_gpusym_metrics) to$' "$dir/said")" = 1 ] || echo no)" "$dir/said"
mkdir "$dir/soon"
timeout 60 "${mpirun[@]}" -n 1 --mca coll_gpusym_metrics "$dir/soon/metrics" --mca coll_gpusym_metrics_interval 0.125 \
    "$traced" --us 20000 --n 100 >"$dir/said" 2>&1 </dev/null &
job=$!
while kill -0 $job 2>/dev/null && ! [ -e "$dir/soon/metrics.0" ]; do sleep 0.02; done
verdict "$label: .RANK is appended" "$([ -e "$dir/soon/metrics.0" ] || echo no)" "$dir/said"
mv "$dir/soon" "$dir/gone"
wait $job
verdict "$label later: the program goes on" "$([ $? -eq 0 ] || echo no)" "$dir/said"
verdict "$label later: one message" "$([ "$(grep -c '^Rank 0 cannot write its metrics (coll_gpusym_metrics) to$' "$dir/said")" = 1 ] || echo no)" "$dir/said"
grep -q '^gpusym_info' "$dir/gone/metrics.0"
verdict "$label later: the last file stays" "$([ $? -eq 0 ] || echo no)"

echo "metrics: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
