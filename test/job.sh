#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# gpusym_info --job: a rank that is late is named, with the call, also between islands and on one of several communicators;
# ranks that wait for each other; a rank that does not launch a call; a job in which nothing waits; a kernel that does not end; memory and resident kernels;
# several jobs; a job that has ended; process ids of ranks, of other programs and users, and wrong ones; JSON.
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
export OMPI_MCA_coll_gpusym_linger=1000000 OMPI_MCA_coll_gpusym_p2p_linger=1000000 # 1 s, the most
info=$builddir/info/gpusym_info

# begin MODE [RANKS [ARGUMENT...]]: a job, of 3 ranks, that stands still; $job is the process id of its mpirun
begin() {
    rm -f "$dir/go"
    # shellcheck disable=SC2154  # test/mpirun.sh sets it
    "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -n "${2:-3}" "${@:3}" "$builddir/test/faults/standstill" "$1" "$dir/go" \
        >"$dir/job" 2>&1 </dev/null &
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

# await REGEX [N]: asks until N lines match (default: any), for 30 s; the answer is in $dir/log
await() {
    local i n
    for ((i = 0; i < 300; i++)); do
        timeout 60 "$info" --job "$job" >"$dir/log" 2>/dev/null </dev/null
        n=$(grep -Ec -- "$1" "$dir/log")
        [ "$n" -eq 0 ] || [ "$n" != "${2:-$n}" ] || return
        sleep 0.1
    done
}

# tells REGEX [N]: as says, of what it says within 30 s: each rank tells of itself when it gets there
tells() {
    await "${1// / +}" "${2:-1}"
    says "$@"
}

# pid_of RANK: the process id of a rank, as the last answer has it in the table of processes
pid_of() {
    sed -n '/^processes:/,/^$/p' "$dir/out" | awk -v rank="$1" '$2 == rank { print $3 }'
}

begin late
await '^late +rank 2 '
ask 0 --job "$job"
says '^late rank 2 \(pid [0-9]+\) of MPI_COMM_WORLD .*, in MPI_Allreduce, call 5, behind by 1$'
tells '^ MPI_COMM_WORLD .* [01] 3 [0-9]+ 5 MPI_Allreduce 400 posted .* 2 \(pid [0-9]+\)$' 2
# The heap has a slot of half its size; each rank maps the heaps of the other two, and what it has of their buffers.
says '^ [^ ]+ [0-2] [0-9]+ standstill [A-Z] [0-9.]+ 56 28 [0-9.]+ [2-9] (112|1[1-9][0-9](\.[0-9])?)$' 3
ask 0 --job "$(pid_of 1)"
says '^late rank 2 \(pid [0-9]+\) of MPI_COMM_WORLD .*, in MPI_Allreduce, call 5, behind by 1$'
if [ "$GPUSYM_HAVE_JANSSON" = 1 ] && command -v python3 >/dev/null; then
    ask 0 --job "$job" --json
    verdict "$label: parses" "$(python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
copiers = [k for k in j["resident_kernels"] if k["kernel"].startswith("copier of GPU")]
calls = sorted(c["call"] for c in j["calls"])
done = [(k["operations"], k["seconds"]) for k in copiers]
memory = [(p["heap_used_mib"], p["pinned_mib"], p["mappings"]) for p in j["processes"]]
if calls != [4, 5, 5] or len(done) != 3 or min(done) <= (1, 0):
    print("calls", calls, "copiers", done)
if not all(heap == 28 and pinned > 0 and maps >= 2 for heap, pinned, maps in memory):
    print("memory", memory)
' "$dir/out" 2>&1)" "$dir/out"
fi
end late
ask 1 --job "$job"
says "^gpusym_info: there is no process $job on this host\$"

begin calm
await ' MPI_Allreduce of MPI_COMM_WORLD .* idle '
await ' MPI_Allreduce of MPI_COMM_WORLD .* not running +2'
ask 0 --job "$job"
says '^late no rank: no call waits$'
tells ' 4 MPI_Allreduce - does not wait' 3
tells '^ [0-2] [0-9]+ MPI_Allreduce of MPI_COMM_WORLD .* not running [1-9][0-9.]* 4$' 3
tells '^ [0-2] [0-9]+ copier of GPU [0-2] not running [1-9][0-9.]* [0-9]+$' 3
# Another job beside it.
calm=$job
"$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -n 2 "$builddir/test/faults/standstill" calm "$dir/go" >"$dir/other" 2>&1 </dev/null &
job=$!
await '^late +no rank: no call waits'
ask 0 --job "$job"
pid=$(pid_of 1)
ask 1 --job
says '^gpusym_info: this user has several jobs: which one\? gpusym_info --job PID takes the id of a process of one$'
says "^ [^ ]+ 1 $pid standstill "
verdict "$label: jobs are told apart" "$(awk -v pid="$pid" '$3 == pid { mine = $1 } $4 == "standstill" { job[$3] = $1; n[$1]++ }
    END { if (n[mine] != 2 || length(n) < 2) print "not" }' "$dir/log")" "$dir/log"
ask 1 --job $$
says '^gpusym_info: that process has started several jobs: which one\? gpusym_info --job PID takes the id of a process of one$'
touch "$dir/go"
wait "$job"
job=$calm
end calm

begin halves 4
await '^ +half .* 0 +2 .* MPI_Allreduce '
await '^late +rank 3 '
ask 0 --job "$job"
says '^late rank 3 \(pid [0-9]+\) of MPI_COMM_WORLD .*, in MPI_Allreduce, call [0-9]+, behind by 1$'
tells '^ MPI_COMM_WORLD .* [02] 4 [0-9]+ [0-9]+ MPI_Allreduce 400 posted .* 1 \(pid [0-9]+\), 3 \(pid [0-9]+\)$' 2
tells '^ half .* 0 2 [0-9]+ 1 MPI_Allreduce .* not posted .* 1$' # that one has no line there yet
end halves

begin cross
await '^late +ranks wait for each other'
ask 0 --job "$job"
says '^late ranks wait for each other, in different calls$'
tells '^ MPI_COMM_WORLD .* 0 3 [0-9]+ [0-9]+ MPI_Allreduce 400 posted .* 1 \(pid [0-9]+\), 2 \(pid [0-9]+\)$'
tells '^ other .* [12] 3 [0-9]+ 2 MPI_Allreduce 400 posted .* 0 \(pid [0-9]+\)$' 2
end cross

begin window
await '^late +rank 2 .* of a window'
ask 0 --job "$job"
says '^late rank 2 \(pid [0-9]+\) of a window on MPI COMM.*, which others wait for to call MPI_Win_fence or MPI_Win_free$'
tells '^ MPI COMM.* [01] 3 [0-9]+ [0-9.]+ 2 \(pid [0-9]+\) call MPI_Win_fence or MPI_Win_free$' 2
end window
begin chain
await '^late +rank 1 '
ask 0 --job "$job"
says '^late rank 1 of rest .*, of another host or without a call there, in MPI_Allreduce, call 1$'
tells '^ MPI COMM.* 0 3 [0-9]+ [0-9.]+ 1 \(pid [0-9]+\) call MPI_Win_post$'
end chain

begin late 4 --mca coll_gpusym_node_size 2
await '^late +rank 3 '
ask 0 --job "$job"
says '^late rank 3 \(pid [0-9]+\) of MPI_COMM_WORLD .*, in MPI_Allreduce, call 6, behind by 1$'
tells '^ MPI_COMM_WORLD .* 0 4 [0-9]+ 6 MPI_Allreduce 400 agrees rails [0-9.]+ 2 \(pid [0-9]+\)$'
tells '^ MPI_COMM_WORLD .* 1 4 [0-9]+ 6 MPI_Allreduce 400 agrees rails [0-9.]+ 0 \(pid [0-9]+\)$'
tells '^ MPI_COMM_WORLD .* 2 4 [0-9]+ 6 MPI_Allreduce 400 posted rails [0-9.]+ 3 \(pid [0-9]+\)$'
end islands

# A rank that has posted a nonblocking call, and stays in a call of its driver that is to launch it.
GPUSYM_FAULTS=$dir "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -n 3 --mca coll_gpusym_linger 0 \
    --mca coll_gpusym_sim_fail stay:launch:1+@2 \
    "$builddir/test/faults/late" --before 2 --mode nonblocking --until "$dir/said" --stuck >"$dir/job" 2>&1 </dev/null &
job=$!
await '^late +rank 2 .* which has not launched it$'
ask 0 --job "$job"
says '^late rank 2 \(pid [0-9]+\) of .*, in MPI_Allreduce, call 3, which has not launched it$'
tells ' [01] 3 [0-9]+ 3 MPI_Allreduce 4000 runs kernel [0-9.]+ 2 \(pid [0-9]+\)$' 2
printf '%s\n' ' has waited ' ' has waited ' ' has waited ' >"$dir/said"
wait "$job"
verdict "stuck: the job ends well" "$([ $? = 0 ] || echo no)" "$dir/job"

# A kernel that does not end, which nobody calls late. mpirun ends such a job.
begin late 2 --mca coll_gpusym_sim_fail freeze:1@1 --mca coll_gpusym_timeout 0
await ' MPI_Allreduce of MPI_COMM_WORLD .* busy +[2-9]'
ask 0 --job "$job"
says '^late no rank: the calls run$'
tells '^ [01] [0-9]+ MPI_Allreduce of MPI_COMM_WORLD .* busy [1-9][0-9.]* 1$' 2
tells '^ MPI_COMM_WORLD .* [01] 2 [0-9]+ 1 MPI_Allreduce 400 runs kernel [1-9][0-9.]* -$' 2
kill "$job"
wait "$job"

ask 1 --job 8x
says '^gpusym_info: "8x" is no process id$'
ask 1 --job $$
says "^gpusym_info: process $$ is of no job that uses gpusym"
# A user asks for a process of another one: root's, or, where this is root, of this test.
nobody=()
[ "$(id -u)" != 0 ] || nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
of=$([ "$(id -u)" = 0 ] && echo $$ || echo 1)
if "${nobody[@]}" test -x "$info" 2>/dev/null && [ "$(stat -c %u "/proc/$of")" != "$("${nobody[@]}" id -u)" ]; then
    "${nobody[@]}" "$info" --job "$of" >"$dir/log" 2>&1 </dev/null
    verdict "another user's: status 1" "$([ $? = 1 ] || echo no)" "$dir/log"
    label="another user's"
    says "^gpusym_info: process $of is another user's \\(root, uid 0\\), whose processes this one may not read: ask as that user, or as root\$"
fi
echo "$passed as expected, $failed not"
[ "$failed" -eq 0 ]
