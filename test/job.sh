#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# gpusym_info --job: a rank that is late is named, with the call; a job in which nothing waits; a job that has ended; process
# ids that are wrong; JSON.
#
#     test/job.sh BUILDDIR
#
# The closing line is "N as expected, M not".
set -u
builddir=$(cd "${1:?usage: test/job.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/output.sh
. "$GPUSYM_SRCDIR/test/output.sh" || exit 2
on_simulator
export OMPI_MCA_coll_gpusym_sim_host=1
info=$builddir/info/gpusym_info

# begin MODE: a job of 3 ranks that stands still; $job is the process id of its mpirun
begin() {
    rm -f "$dir/go"
    # shellcheck disable=SC2154  # test/mpirun.sh sets it
    "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -n 3 "$builddir/test/faults/standstill" "$1" "$dir/go" >"$dir/job" 2>&1 </dev/null &
    job=$!
}

# end: it goes on, and ends well
end() {
    local status
    touch "$dir/go"
    wait "$job"
    status=$?
    verdict "$1: the job ends well" "$(grep -q '^standstill: right$' "$dir/job" && [ $status = 0 ] || echo "status $status")" "$dir/job"
}

# ask STATUS WORD...: what it says is in $dir/log
ask() {
    local status
    label="${*:2}"
    timeout 60 "$info" "${@:2}" >"$dir/out" 2>"$dir/err" </dev/null
    status=$?
    cat "$dir/out" "$dir/err" >"$dir/log"
    verdict "$label: status $1" "$([ $status = "$1" ] || echo $status)" "$dir/log"
}

# await REGEX: asks until a line matches, for 30 s
await() {
    for ((i = 0; i < 300; i++)); do
        timeout 60 "$info" --job "$job" 2>/dev/null </dev/null | grep -Eq -- "$1" && return
        sleep 0.1
    done
}

begin late
await '^late +rank 2 '
ask 0 --job "$job"
says '^late rank 2 \(pid [0-9]+\) of MPI_COMM_WORLD .*, in MPI_Allreduce, call 5, behind by 1$'
says '^ MPI_COMM_WORLD .* [01] 3 [0-9]+ 5 MPI_Allreduce 4000 posted .* 2 \(pid [0-9]+\)$' 2
if [ "$GPUSYM_HAVE_JANSSON" = 1 ] && command -v python3 >/dev/null; then
    ask 0 --job "$job" --json
    verdict "$label: parses" "$(python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
sys.exit(not (len(j["calls"]) == 3 and sorted(c["call"] for c in j["calls"]) == [4, 5, 5]))' "$dir/out" 2>&1 || echo no)" "$dir/out"
fi
end late
ask 1 --job "$job"
says "^gpusym_info: there is no process $job on this host\$"

begin calm
await '^late +no rank: no call waits'
sleep 3
ask 0 --job "$job"
says '^late no rank: no call waits$'
says ' 4 MPI_Allreduce - does not wait' 3
end calm

ask 1 --job 8x
says '^gpusym_info: "8x" is no process id$'
ask 1 --job $$
says "^gpusym_info: process $$ is of no job that uses gpusym"
echo "$passed as expected, $failed not"
[ "$failed" -eq 0 ]
