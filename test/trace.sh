#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The trace of a job (coll_gpusym_trace) and what gpusym_trace says of it, on the simulator: every way of carrying out a
# call, a rank that is late, threads, errors, a full ring, clocks of two hosts.
#
#     test/trace.sh BUILDDIR
#
# The closing line is "trace: N passed, M failed".
set -u
builddir=$(cd "${1:?usage: test/trace.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/mpirun.sh
. "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL
export OMPI_MCA_coll=gpusym OMPI_MCA_coll_gpusym_device=sim GPUSYM_TEST_DEVICE=sim
# shellcheck disable=SC2154  # test/mpirun.sh sets it
mpirun=("$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}")
traced=$builddir/test/mpi/traced
tool=$builddir/info/gpusym_trace
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
# shellcheck source=test/verdict.sh
. "$GPUSYM_SRCDIR/test/verdict.sh" || exit 2

# run N ARGUMENT...: N ranks, which write $dir/trace.RANK; what they say is in $dir/said, the calls in $dir/calls
run() {
    local n=$1 rc why=
    shift
    rm -f "$dir"/trace.*
    timeout $((90 * ${GPUSYM_TEST_SLOW:-1})) "${mpirun[@]}" -n "$n" --mca coll_gpusym_trace "$dir/trace" "$@" \
        >"$dir/said" 2>&1 </dev/null
    rc=$?
    [ $rc -eq 77 ] && return 77
    [ $rc -eq 0 ] || why="exit status $rc"
    verdict "$label: runs" "$why" "$dir/said"
    cat "$dir"/trace.* >"$dir/log"
    grep -h '"coll":' "$dir"/trace.* >"$dir/calls"
    check
    tables
}

# says REGEX [N]: N lines of $dir/log match, 1 if it is not given
says() {
    local n
    n=$(grep -Ec -- "$1" "$dir/log")
    verdict "$label: ${2:-1} x $1" "$([ "$n" = "${2:-1}" ] || echo "$n")" "$dir/log"
}

# tables: what gpusym_trace prints is in $dir/log
tables() {
    local why=
    "$tool" "$dir"/trace.* >"$dir/log" 2>&1 || why="exit status $?"
    verdict "$label: tables" "$why" "$dir/log"
}

# calls REGEX N: N lines of calls match
calls() {
    local n
    n=$(grep -Ec -- "$1" "$dir/calls")
    verdict "$label: $2 x $1" "$([ "$n" = "$2" ] || echo "$n")" "$dir/calls"
}

# most N REGEX: at least N of them do
most() {
    local n
    n=$(grep -Ec -- "$2" "$dir/calls")
    verdict "$label: at least $1 x $2" "$([ "$n" -ge "$1" ] || echo "$n")" "$dir/calls"
}

# What holds of every line: JSON; times rise; no call of a communicator comes twice.
check() {
    local why=
    # shellcheck disable=SC2016  # awk's
    awk '
        function number(name,    text) {
            if (!match($0, "\"" name "\":[0-9]+")) return 0
            text = substr($0, RSTART, RLENGTH)
            sub(/.*:/, "", text)
            return text + 0
        }
        FNR == 1 && !/^\{"gpusym_trace":1,"version":"[^"]+","rank":[0-9]+,"host":"[^"]*","pid":[0-9]+,"monotonic":[0-9]+,"realtime":[0-9]+\}$/ { print "head: " $0 }
        FNR == 1 { if (NR > 1 && !ended) print "no end before " FILENAME; ended = 0; split("", seen) }
        /"end":true/ { ended = 1 }
        /"coll":/ {
            match($0, /"id":"[^"]*","seq":[0-9]+/)
            if (RLENGTH > 0 && seen[substr($0, RSTART, RLENGTH)]++) print "twice: " $0
            entered = number("entered"); posted = number("posted"); there = number("there"); returned = number("returned")
            launched = number("launched")
            if (!entered || !returned || returned < entered || (posted && posted < entered) || there > returned ||
                (there && there < posted) || launched > returned || (launched && launched < entered))
                print "times: " $0
        }
        END { if (!ended) print "no end" }' "$dir"/trace.* >"$dir/wrong"
    [ ! -s "$dir/wrong" ] || why='lines that are not right'
    verdict "$label: lines" "$why" "$dir/wrong"
    command -v python3 >/dev/null || return
    why=$(python3 -c 'import json, sys
for name in sys.argv[1:]:
    for line in open(name):
        json.loads(line)' "$dir"/trace.* 2>&1 | tail -n 1)
    verdict "$label: JSON" "$why"
}

# events: the events are JSON, with an arrow's end for each beginning
events() {
    local why=
    "$tool" --out "$dir/events" "$dir"/trace.* >"$dir/log" 2>&1 || why="exit status $?"
    grep -q '"ph":"X".*"name":"MPI_Allreduce"' "$dir/events" || why="$why no calls"
    [ "$(grep -c '"ph":"s"' "$dir/events")" -eq "$(grep -c '"ph":"f"' "$dir/events")" ] || why="$why arrows"
    grep -q '"ph":"s"' "$dir/events" || why="$why no arrows"
    if command -v python3 >/dev/null; then
        why=$why$(python3 -c 'import json, sys
json.load(open(sys.argv[1]))["traceEvents"]' "$dir/events" 2>&1 | tail -n 1)
    fi
    verdict "$label: events" "$why" "$dir/log"
}

# outside EVENTS: no kernel stands outside of its call, by more than 2 ms of what the clocks may differ
outside() {
    local why
    # shellcheck disable=SC2016  # awk's
    why=$(awk '
        function number(name) {
            if (!match($0, "\"" name "\":-?[0-9.]+")) return -1
            return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
        }
        /"ph":"X".*"name":"MPI_Allreduce"/ {
            key = number("pid") " " number("call"); from = number("ts"); to = from + number("dur")
            if (/"tid":0/) { first[key] = from; last[key] = to }
            else { kernels++; if (from < first[key] - 2000 || to > last[key] + 2000) print "a kernel from " from " to " to }
        }
        END { if (kernels < 100) print kernels + 0 " kernels" }' "$1" | head -n 3)
    verdict "$label: kernels are within their calls" "$why"
}

label=late
run 4 "$traced" --n 30 --late 2 --us 2000
calls '"coll":"allreduce","comm":"MPI_COMM_WORLD \(cid [0-9]+\)".*"form":"blocking","bytes":4096,' 120
most 100 '"way":"kernel","algorithm":"agxll_r","by":"(launch|resident|late)","blocks":[0-9]+,"entered":[0-9]+,"posted":[0-9]+,"there"'
# The first calls set up the communicator, for which all ranks wait for each other.
most 100 '"there":[0-9]+,"last":2,'
most 110 '"launched":[0-9]+,"gpu_begin":[0-9]+,"gpu_end":[0-9]+,"returned"'
says '^4 ranks on 1 host, 120 calls of 30 collectives in '
says '^MPI_Allreduce +blocking +4096 +30 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+  2 \([0-9]+ %\) +agxll_r'
says '^slowest rank: 2, last in [23][0-9] of 30 collectives; the other ranks waited [0-9]+\.[0-9]+ ms for it$'
says '^2 .* simulated GPU'
says 'missing|cannot be read|not in the trace|^error' 0
events
"$tool" --svg "$dir/picture" --calls 4 "$dir"/trace.*
cp "$dir/picture" "$dir/log"
says '^<rect .*MPI_Allreduce, call [0-9]+, 4096 bytes' "$(grep -c '<title>' "$dir/picture")"
says '^<line .* marker-end' "$(grep -c marker-end "$dir/picture")"

# Two hosts, whose clocks differ by 5 s, and their clocks of the day by 1 s; and the GPUs' clocks from these by 8 s.
label='two hosts'
for rank in 2 3; do
    # shellcheck disable=SC2016  # awk's
    awk '
        function move(name, by,    at, text) {
            if (!match($0, "\"" name "\":[0-9]+")) return
            text = substr($0, RSTART, RLENGTH); at = text; sub(/.*:/, "", at)
            $0 = substr($0, 1, RSTART - 1) "\"" name "\":" sprintf("%.0f", at + by) substr($0, RSTART + RLENGTH)
        }
        { sub(/"host":"/, "&other-") }
        { n = split("entered posted there launched returned monotonic", names, " ")
          for (i = 1; i <= n; i++) move(names[i], 5e9)
          move("gpu_begin", -3e9); move("gpu_end", -3e9); move("realtime", 1e9); print }' "$dir/trace.$rank" >"$dir/moved" &&
        mv "$dir/moved" "$dir/trace.$rank"
done
outside "$dir/events"
"$tool" --out "$dir/events" "$dir"/trace.*
outside "$dir/events"
tables
says '^4 ranks on 2 hosts, 120 calls of 30 collectives in [0-9]{1,4}\.[0-9]+ ms$'
says '^clocks of the hosts agree within [0-9.]+ us$'
says '^slowest rank: 2, last in [23][0-9] of 30 '

label=forms
run 2 "$traced" --what forms --n 12
calls '"form":"blocking"' 48
calls '"form":"nonblocking"' 48
calls '"form":"persistent"' 96
calls '"coll":"bcast".*"form":"persistent"' 48
says '^MPI_Bcast +persistent +4096 +24 '
calls '"id":"[0-9a-f]*\.0"' 96
calls '"id":"[0-9a-f]*\.1"' 96

label=resident
run 2 --mca coll_gpusym_linger 100000 "$traced" --n 30
most 30 '"algorithm":"agxll_r","by":"resident","blocks":1,.*"gpu_begin":[0-9]+,"gpu_end"'
# Each begins behind the last one, but for what two clocks may differ: both ends are told by another than what is between.
why=$(awk '
    FNR == 1 { last = 0 }
    match($0, /"entered":[0-9]+/) && substr($0, RSTART + 10, RLENGTH - 10) + 5000 < last { print "begins early: " $0 }
    match($0, /"returned":[0-9]+/) { last = substr($0, RSTART + 11, RLENGTH - 11) + 0 }' "$dir"/trace.* | head -n 3)
verdict "$label: one behind the other" "$why"

label=ways
run 3 "$traced" --what ways
calls '"coll":"allreduce".*"reason":"user_op"' 3
calls '"coll":"bcast".*"reason":"mixed"' 2
calls '"coll":"bcast".*"bytes":16,"way":"kernel"' 3
calls '"coll":"reduce_local".*"way":"whole","reason":"no_native"' 3
calls '"comm":"MPI_COMM_SELF.*"way":"copy"' 3
calls '"error":[1-9]' 3
says '^error [0-9]+: rank [0-2], MPI_(Bcast|Allreduce), call [0-9]+ of ' 3
says '^staged through the host: 3 calls, user_op$'

label='shared GPUs'
run 4 --mca coll_gpusym_sim_gpus 2 "$traced" --n 10
calls '"way":"leaders",.*"entered":[0-9]+,"posted":[0-9]+,"there":[0-9]+,("last":[0-3],)?"launched"' 40

label=islands
run 4 --mca coll_gpusym_node_size 2 "$traced" --n 10
most 30 '"way":"rails",.*"posted":[0-9]+,"there":[0-9]+,"launched":[0-9]+,"returned"'
calls '"way":"(rails|whole)"' 40

label=staged_copies
run 2 --mca coll_gpusym_algorithm allgather:staged,bcast:staged "$builddir/test/mpi/every" --thin 400 --coll bcast
most 10 '"coll":"bcast".*"way":"staged_copies",.*"launched"'

label=segments
run 2 --mca coll_gpusym_piece 68 "$builddir/test/mpi/every" --thin 400 --coll allreduce
most 10 '"way":"segments","reason":"[a-z_]+",.*"launched"'

# More calls in flight than there are records: the others are counted.
label=many
run 2 "$traced" --what many --n 9000 --bytes 8
says '^rank 0: 80[0-9] calls are not in the trace: too many others were in flight$'
lost=0
for rank in 0 1; do
    lost=$((lost + $(sed -n 's/.*"lost":\([0-9]*\).*/\1/p' "$dir/trace.$rank")))
done
calls '"form":"nonblocking"' $((2 * 9000 - lost))

label=threads
run 2 "$traced" --what threads --n 200
[ $? -eq 77 ] || calls '"coll":"allreduce"' 1600

# What the program does not want to have recorded is not, from the next call on; what it wants again is.
label=parts
run 2 "$traced" --what parts --n 50
calls '"bytes":4,' 2
calls '"bytes":8,' 0
most 2 '"bytes":12,.*"launched"'

# And the program that measures what a trace costs.
label='the cost'
timeout 60 "${mpirun[@]}" -n 2 --mca coll_gpusym_trace "$dir/trace" "$builddir/bench/trace_cost" --turns 1 >"$dir/log" 2>&1 </dev/null
says '^ +(allreduce|alltoall) +(blocking|nonblocking|persistent) +(8|16|4096) ' 12
says '^# every element of every result is right$'

# A job that is killed: the thread has written what had ended, few lines as they are, on another core than that of the
# rank, where there is one.
label='a killed job'
rm -f "$dir"/trace.*
first=$(taskset -cp $$ | sed -E 's/.*: ([0-9]+).*/\1/')
timeout 60 taskset -c "$first" "${mpirun[@]}" --bind-to none -n 1 --mca coll_gpusym_trace "$dir/trace" "$traced" --n 100000 --us 20000 \
    >"$dir/said" 2>&1 </dev/null &
job=$!
n=0
while kill -0 $job 2>/dev/null && [ "$n" -lt 3 ]; do
    sleep 0.05
    n=$(cat "$dir"/trace.* 2>/dev/null | grep -c '"coll":')
done
pid=$(sed -nE 's/.*"pid":([0-9]+).*/\1/p' "$dir/trace.0")
task=$(grep -lx gpusym-trace /proc/"$pid"/task/*/comm | xargs dirname)
cores=$(sed -n 's/^Cpus_allowed_list:\t//p' "$task/status")
why=
[ "$(nproc)" -eq 1 ] || [ "$cores" != "$first" ] || why="on core $cores, as the rank"
[ -n "$cores" ] || why='there is no such thread'
verdict "$label: the thread" "$why" "$dir/said"
kill -9 "$pid"
wait $job
cp "$dir/trace.0" "$dir/log"
says '^\{"coll":"allreduce".*"returned":[0-9]+\}$' "$(grep -c '"coll":' "$dir/log")"
most=$(wc -l <"$dir/log")
verdict "$label: few lines" "$([ "$most" -gt 3 ] && [ "$most" -lt 2000 ] || echo "$most")"
tables

# A file that takes lines more slowly than there are calls: these wait, and none is lost.
label='a slow file'
rm -f "$dir"/trace.*
mkfifo "$dir/trace.0"
# A job that ends without having opened it leaves a reader that waits for a writer: so both have a limit.
# shellcheck disable=SC2016  # the inner shell's
timeout 70 bash -c 'exec <"$1" && sleep 0.5 && exec cat' reader "$dir/trace.0" >"$dir/log" &
reader=$!
timeout 60 "${mpirun[@]}" -n 1 --mca coll_gpusym_trace "$dir/trace" "$traced" --n 20000 --bytes 8 >"$dir/said" 2>&1 </dev/null
rc=$?
[ $rc -eq 0 ] || kill "$reader" 2>/dev/null
verdict "$label: runs" "$([ $rc -eq 0 ] || echo "exit status $rc")" "$dir/said"
wait "$reader"
verdict "$label: is read to its end" "$([ $? -eq 0 ] || echo 'nobody has written it')" "$dir/said"
says '^\{"coll":"allreduce".*"returned":[0-9]+\}$' 20000
says '^\{"end":true,"calls":20000,"lost":0,'
rm -f "$dir/trace.0"

# A profiler gets a range for each call of MPI, also for those that go on behind it.
label=NVTX
if [ "$GPUSYM_HAVE_NVTX" = 1 ]; then
    timeout 60 env NVTX_INJECTION64_PATH="$builddir/test/.libs/libnvtx.so" "${mpirun[@]}" -n 2 -x NVTX_INJECTION64_PATH \
        "$traced" --what forms --n 12 >"$dir/log" 2>&1 </dev/null
    says '^nvtx: MPI_Allreduce, 7[2-9] ranges$' 2
    says '^nvtx: MPI_Bcast, 24 ranges$' 2
    says 'ranges are open' 0
fi

# Names, and files that cannot be written.
label=names
timeout 60 "${mpirun[@]}" -n 2 --mca coll_gpusym_trace "$dir/%h-%r-%%" "$traced" --n 1 >"$dir/log" 2>&1
verdict "$label: of host and rank" "$([ "$(find "$dir" -name '*-[01]-%' | wc -l)" -eq 2 ] || echo no)" "$dir/log"
timeout 60 "${mpirun[@]}" -n 2 --mca coll_gpusym_trace "$dir/none/trace" "$traced" --n 1 >"$dir/log" 2>&1
says '^Rank [01] cannot write its trace \(coll_gpusym_trace\) to$'
says ': No such file or directory$'
# Names in a file are texts, whatever is in them. The picture is XML, the events are JSON.
printf '%s\n' '{"gpusym_trace":1,"version":"1","rank":0,"host":"a","pid":1,"monotonic":10,"realtime":10}' >"$dir/trace.8"
printf '{"coll":"a<b>&c\\"d\033\377\\\\","form":"blocking","bytes":4,"entered":10,"returned":20}\n' >>"$dir/trace.8"
"$tool" --svg "$dir/picture" --out "$dir/events" "$dir/trace.8" >"$dir/log" 2>&1
"$tool" "$dir/trace.8" >"$dir/log" 2>&1
says '^MPI_A<b>&c"d\?\?\\ '
cp "$dir/picture" "$dir/log"
says '<title>MPI_A&lt;b&gt;&amp;c"d\?\?\\, call 0, 4 bytes, 0.0 us</title>'
cp "$dir/events" "$dir/log"
says '"name":"MPI_A<b>&c\\"d\?\?\\\\"'
if command -v python3 >/dev/null; then
    why=$(python3 -c 'import json, sys, xml.dom.minidom
xml.dom.minidom.parse(sys.argv[1])
json.load(open(sys.argv[2]))' "$dir/picture" "$dir/events" 2>&1 | tail -n 1)
    verdict "$label: texts in pictures and events" "$why"
fi
printf 'nothing\n' >"$dir/trace.9"
"$tool" "$dir/trace.9" >"$dir/log" 2>&1
says '^gpusym_trace: .*: this is no file that coll_gpusym_trace of this version has written$'
"$tool" >"$dir/log" 2>&1
says '^usage: gpusym_trace FILE'

echo "trace: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
