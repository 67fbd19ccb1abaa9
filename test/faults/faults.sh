#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What goes wrong must end well: a right result, or a message that names rank and communicator within seconds.
#
#     test/faults/faults.sh BUILDDIR PART     (all of them, if none is named)
#
# PART: allreduce, collectives, each, multicast, channels, staged-copies, leaders, peers, late, stuck, streams, messages, windows, deaths, islands, hosts; of
# each and the last five also each-few and so on. With GPUs: allreduce, and islands-pair, which none of the others contains: two islands of
# one rank.
#
# Simulated faults (only on the simulator), ranks that call with different counts, ranks that are killed, ranks that have no
# gpusym or other parameters, ranks that come late or never, or stay in a call of the driver; never a hang, a wrong result, a crash or a process left over. The
# closing line is "faults: N passed, M failed".
#
# Nothing is judged by the clock: what happens, happens at an event, and a limit that ends a job is one that only a hang meets.
#
#   MPIRUN               how mpirun is called; else as test/mpirun.sh says
#   GPUSYM_MCA           more arguments for it
#   GPUSYM_TEST_DEVICE   sim (default) or cuda
#   GPUSYM_TEST_SLOW     a factor on all time limits (default 1)
set -u

builddir=$(cd "${1:?usage: test/faults/faults.sh BUILDDIR}" && pwd) || exit 2
victim=$builddir/test/faults/victim
late=$builddir/test/faults/late
outlive=$(cd "$(dirname "$0")/.." && pwd)/outlive.sh
messages=$builddir/test/faults/messages
if [ -n "${MPIRUN:-}" ]; then
    read -ra mpirun <<<"$MPIRUN"
else
    # shellcheck source=/dev/null
    . "$builddir/test/build.env" || exit 2
    # shellcheck source=test/mpirun.sh
    . "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
    # shellcheck disable=SC2154  # test/mpirun.sh sets it
    mpirun=("$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}")
    export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL
fi
read -ra more <<<"${GPUSYM_MCA:-}"
part=${2:-all}
device=${GPUSYM_TEST_DEVICE:-sim}
slow=${GPUSYM_TEST_SLOW:-1}
ranks=4
passed=0
failed=0
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# The launcher of Open MPI 5.0 may print bytes of value 0, where a process has died.
grep() { command grep -a "$@"; }

bare=("${mpirun[@]}" "${more[@]}")
mpirun+=(-n "$ranks" "${more[@]}" --mca coll gpusym --mca coll_gpusym_device "$device" --mca coll_gpusym_summary 1)
# Who ends in the midst of a call leaves its memory to the system.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
# A simulated fault counts the component's own allocations only: the program's are ordinary memory.
injected=(--mca coll_gpusym_sim_host 1 --mca coll_gpusym_timeout $((3 * slow)))
memory=(--kinds device)
[ "$device" = cuda ] || memory=(--device sim --kinds device)

# run ARGUMENT...: sets rc, seconds; the output goes to $dir/log
run() {
    local limit=$((60 * slow)) start=$SECONDS
    rm -f "$dir"/told.* "$dir/died"
    GPUSYM_FAULTS=$dir timeout --kill-after=5 "$limit" "${mpirun[@]}" "$@" >"$dir/log" 2>&1 </dev/null
    rc=$?
    seconds=$((SECONDS - start))
    in_time=$((seconds < limit)) # the exit status does not say: a killed rank's is 137, as that of timeout
}

# Processes of the last job that still run: all that it started have that in their environment.
left_over() {
    local file left=
    for file in $(grep -lsz "^GPUSYM_FAULTS=$dir\$" /proc/[0-9]*/environ); do
        file=${file#/proc/}
        left="$left ${file%/environ}"
    done
    echo "$left"
}

# Runs with N ranks: as_many N ARGUMENT...
as_many() {
    local -a saved=("${mpirun[@]}")
    mpirun=("${bare[@]}" -n "$1" --mca coll gpusym --mca coll_gpusym_device "$device")
    shift
    run "$@"
    mpirun=("${saved[@]}")
}

# What no run may show; prints it.
disgrace() {
    local left i
    [ "$in_time" -eq 1 ] || echo "not ended after $seconds s"
    grep -Eqw 'FAIL|FAILED' "$dir/log" && echo "a wrong result" # not MPI_ERR_PROC_FAILED
    grep -Eq 'Segmentation fault|Bus error|signal 11|signal 7|Sanitizer|Assertion' "$dir/log" && echo "a crash"
    for ((i = 0; i < 60 * slow; i++)); do # they end a little later than mpirun
        left=$(left_over)
        [ -z "$left" ] && return
        sleep $((i > 0))
    done
    echo "processes left over:$left"
    # shellcheck disable=SC2086  # a list
    kill -9 $left
}

# Numbers of the component's summary: native and staged calls of all ranks.
summary() {
    sed -n "s/.*gpusym: allreduce:.*$1 \([0-9]*\).*/\1/p" "$dir/log" | tail -n 1
}

all_right() {
    [ "$rc" -eq 0 ] && grep -Eq '^victim: [1-9][0-9]* passed, 0 failed' "$dir/log"
}

# A message in our words: of which rank, and of which communicator.
clear_error() {
    [ "$rc" -ne 0 ] && grep -Eqi 'rank [0-9]+' "$dir/log" && grep -q 'MPI_COMM_WORLD' "$dir/log"
}

# verdict NAME WHY: WHY empty is passed
verdict() {
    if [ -z "$2" ]; then
        passed=$((passed + 1))
        printf 'ok   %-40s %3ss  %s\n' "$1" "$seconds" "${3:-}"
        return
    fi
    failed=$((failed + 1))
    printf 'FAIL %-40s %3ss  %s\n' "$1" "$seconds" "${2//$'\n'/; }"
    tail -n 30 "$dir/log" | sed 's/^/     | /'
}

# Without a fault the calls run on the GPU: else the rest would show nothing.
no_fault() {
    local why
    run "${injected[@]}" "$victim" --device host --dir "$dir"
    why=$(disgrace)
    all_right || why="$why not right, exit status $rc"
    [ "$(summary native)" -gt 0 ] 2>/dev/null || why="$why no native calls"
    verdict "no fault" "$why" "native $(summary native)"
}

# fault FAULT staged|rings|either|error: what must come of it; rings: native calls, along rings
fault() {
    local why said
    run "${injected[@]}" --mca coll_gpusym_sim_fail "$1" "$victim" --device host --dir "$dir"
    why=$(disgrace)
    if all_right; then
        said="right, staged $(summary staged)"
        [ "$2" = error ] && why="$why a message was expected"
        if [ "$2" = rings ]; then
            said="right, native $(summary native), along rings"
            grep -Eq 'gpusym: allreduce: native [1-9][0-9]* \(ring' "$dir/log" || why="$why right, but not along rings"
        else
            [ "$(summary staged)" -gt 0 ] 2>/dev/null || why="$why right, but nothing was staged"
        fi
    elif clear_error; then
        said="message: $(grep -Eim1 'rank [0-9]+.*MPI_COMM_WORLD' "$dir/log")"
        case $2 in staged | rings) why="$why a right result was expected" ;; esac
    else
        why="$why neither right nor a message with rank and communicator, exit status $rc"
    fi
    verdict "fault $1" "$why" "${said:-}"
}

# dies NAME ARGUMENT...: rank 1 dies; all end, and somebody says which rank it was. EVENT@1, as an argument: it dies there.
dies() {
    local name=$1 why
    local -a event=()
    shift
    if [[ $1 == *@1 ]]; then
        event=(--mca coll_gpusym_sim_fail "die:$1")
        name="$name, $1"
        shift
    fi
    run "${event[@]}" "$victim" "${memory[@]}" --dir "$dir" --calls 100000 --rank 1 "$@"
    why=$(disgrace)
    [ "$rc" -ne 0 ] || why="$why exit status 0"
    [ -e "$dir/died" ] || why="$why rank 1 did not die"
    grep -Eqi 'rank 1([^0-9]|$)|\[\[[0-9]+,[0-9]+\],1\]' "$dir/log" || why="$why no message names rank 1"
    verdict "$name" "$why"
}

# survive [EVENT@1] ARGUMENT...: mpirun does not end the job when a rank dies: the others must find out by themselves, however
# long a call may take
survive() {
    local why name="alone after a death, $*"
    local -a event=()
    if [[ $1 == *@1 ]]; then
        event=(--mca coll_gpusym_sim_fail "die:$1")
        shift
    fi
    run -enable-recovery --mca coll_gpusym_timeout 0 "${event[@]}" "$victim" "${memory[@]}" --dir "$dir" --calls 100000 --rank 1 "$@"
    why=$(disgrace)
    [ -e "$dir/died" ] || why="$why rank 1 did not die"
    grep -q 'waits for rank 1,' "$dir/log" || why="$why no message of ours names rank 1"
    verdict "$name" "$why" "$(grep -m1 'waits for rank 1,' "$dir/log")"
}

mismatch() {
    local why
    run --mca coll_gpusym_timeout $((3 * slow)) "$victim" "${memory[@]}" --dir "$dir" --calls 6 --rank 1 "$@"
    why=$(disgrace)
    clear_error || why="$why no message with rank and communicator, exit status $rc"
    verdict "another count on rank 1, $*" "$why" "$(grep -Eim1 'rank [0-9]+.*MPI_COMM_WORLD' "$dir/log")"
}

# Every collective, one after the other, on memory that counts as the program's or as the simulator's: see injected.
# Zero copy needs the latter.
collectives() {
    local fault=$1 where=$2 mode=$3
    case $where in
        host) set -- "${injected[@]}" "$victim" --device host ;;
        *) set -- --mca coll_gpusym_timeout $((3 * slow)) "$victim" --device sim --kinds device ;;
    esac
    run --mca coll_gpusym_sim_fail "$fault" "$@" --dir "$dir" --coll all --mode "$mode" --calls 3 --most 20000
}

# A fault in the midst of them: a right result or a clear error.
fault_in_all() {
    local why said
    collectives "$@"
    why=$(disgrace)
    if all_right; then
        said="right, allreduce native $(summary native), staged $(summary staged)"
        [[ $1 != hang:* ]] || why="$why a message was expected"
    elif clear_error; then
        said="message: $(grep -Eim1 'rank [0-9]+.*MPI_COMM_WORLD' "$dir/log")"
    else
        why="$why neither right nor a message with rank and communicator, exit status $rc"
    fi
    verdict "$3, fault $1" "$why" "${said:-}"
}

# Calls of a collective by an algorithm, from the summary; nothing if there were none.
calls_by() {
    sed -n "s/.*gpusym: $1: native [0-9]* (\([^)]*, \)\?$2 \([0-9]*\)[,)].*/\2/p" "$dir/log" | tail -n 1
}

# Algorithms that need multicast, by name.  multicast NAME yes|no|failed|no-run ARGUMENT...: whether they run; no: no
# object is requested either; failed: one is, and cannot be had. VARIABLE=value, as the first argument: for the environment.
multicast() {
    local name=$1 expect=$2 why pair got forced=(allreduce=rsxldmc_agxstmc allgather=stmc reduce_scatter_block=ldmc
                                                 reduce_scatter=ldmc)
    local -a more_mca=()
    shift 2
    [[ $name != *LL* ]] || forced=(allreduce=agxllmc_r allgather=llmc)
    for pair in "${forced[@]}"; do
        more_mca+=(--mca "coll_gpusym_${pair%%=*}_algorithm" "${pair#*=}")
    done
    (
        if [[ ${1:-} == *=* ]]; then
            export "${1?}"
            shift
        fi
        run --mca coll_gpusym_verbose 2 --mca coll_gpusym_timeout 10 "${more_mca[@]}" "$@" "$victim" --device sim \
            --kinds device --dir "$dir" --coll all --calls 3 --most 20000
        printf '%s %s %s\n' "$rc" "$seconds" "$in_time" >"$dir/ran"
    )
    read -r rc seconds in_time <"$dir/ran"
    why=$(disgrace)
    all_right || why="$why not right, exit status $rc"
    for pair in "${forced[@]}"; do
        got=$(calls_by "${pair%%=*}" "${pair#*=}")
        [ "$expect" != yes ] || [ "${got:-0}" -gt 0 ] || why="$why $pair did not run"
        [ "$expect" = yes ] || [ -z "$got" ] || why="$why $pair ran"
        grep -q "gpusym: ${pair%%=*}: native [1-9][0-9]* .*staged 0," "$dir/log" ||
            why="$why ${pair%%=*}: not all on the GPU"
    done
    case $expect in
        yes) grep -q 'multicast is used' "$dir/log" || why="$why nobody says that multicast is used" ;;
        failed) grep -q 'no multicast: rank [0-9]* could not' "$dir/log" || why="$why nobody says why there is no multicast" ;;
        no-run) ;;
        *) ! grep -Eq 'multicast is used|no multicast: rank [0-9]* could not' "$dir/log" || why="$why an object was requested" ;;
    esac
    verdict "multicast: $name" "$why" "$(calls_by "${forced[0]%%=*}" "${forced[0]#*=}")"
}

of_allreduce() {
    if [ "$device" = sim ]; then
        no_fault
        for what in alloc export; do
            fault "$what:1" staged
            fault "$what:1@0" staged
            fault "$what:1@1" staged
        done
        # One pair of ranks without a link leaves a ring; two opposite ones do; a rank that has but one link does not.
        fault "import:1@0" rings
        fault "import:1@1" rings
        fault "import:2@1" rings
        fault "import:2@0,import:3@1" rings
        fault "import:1@0,import:2@0" staged
        fault "import:1" staged
        for what in hostalloc:1 hostalloc:1@1 launch:1 launch:2@1 launch:5@2; do
            fault "$what" either
        done
        fault "hang:1@0" error
        fault "hang:4@1" error
    fi
    for call in 0 1 2 5; do
        dies "killed instead of call $call" --kill "$call"
    done
    if [ "$device" = sim ]; then
        for what in alloc:1 export:1 import:2 launch:1 launch:4 launch:60; do
            dies "killed in a call" "$what@1" --most 3000
        done
        OMPI_MCA_coll_gpusym_linger=1000000 dies "killed in a call of a resident kernel" doorbell:3@1 --most 3000
        OMPI_MCA_coll_gpusym_linger=300000 dies "killed between entry and verdict" entry:3@1 --coll allreduce --mode persistent
    fi
    # Open MPI 5 and later have no such option for a job that was not made to recover.
    if "${mpirun[0]}" --version 2>/dev/null | grep -Eq '\((Open MPI|OpenRTE)\) 4\.'; then
        survive --kill 1
        survive --kill 5
        [ "$device" != sim ] || survive launch:7@1 --most 3000
        [ "$device" != sim ] ||
            OMPI_MCA_coll_gpusym_linger=300000 survive entry:3@1 --coll allreduce --mode persistent
    fi
    mismatch --mismatch 1
    mismatch --mismatch 2
}

of_collectives() {
    local mode what
    for mode in blocking nonblocking persistent; do
        for what in alloc:1 alloc:1@1 hostalloc:1@1 hostalloc:2@2; do
            fault_in_all "$what" host "$mode"
        done
        # Three imports a rank are of the peers' heaps, the next of their buffers; of exports the first is of the heap.
        for what in import:1@1 import:4@2 import:5 export:1@1 export:2@1 export:3 bind:1 launch:1 launch:7@2 launch:30@1; do
            fault_in_all "$what" device "$mode"
        done
        fault_in_all hang:1@0 device "$mode"
        fault_in_all hang:20@1 device "$mode"
    done
}

# Whether rank 1 makes an n-th call of a kind, where nothing fails: it dies there. has_call MODE KIND N
has_call() {
    collectives "die:$2:$3@1" device "$1"
    [ -e "$dir/died" ]
}

# How many calls of a kind rank 1 makes: count_calls MODE KIND
count_calls() {
    local low=0 high=1 middle
    while has_call "$@" $high; do
        low=$high
        high=$((2 * high))
    done
    while [ $((high - low)) -gt 1 ]; do
        middle=$(((low + high) / 2))
        if has_call "$@" $middle; then low=$middle; else high=$middle; fi
    done
    echo $low
}

# each few|all MODE KIND...: each call of these kinds fails in turn, on rank 1, in all collectives; few: some of them
each() {
    local which=$1 mode=$2 what n most step
    shift 2
    for what; do
        most=$(count_calls "$mode" "$what")
        step=$([ "$which" = all ] && echo 1 || echo $((most / 3 + 1)))
        seconds=0
        verdict "$mode, $what: $most calls" "$([ "$most" -gt 0 ] || echo "none can fail")"
        for ((n = 1; n <= most; n += step)); do
            fault_in_all "$what:$n@1" device "$mode"
        done
    done
}

# By kernels, and through the host.
of_each() {
    local coll
    local -a colls=(allgather allgatherv alltoall alltoallv alltoallw bcast gather gatherv scatter scatterv allreduce reduce
                    reduce_scatter reduce_scatter_block scan exscan)
    each "$1" blocking alloc export import hostalloc stream open graph launch
    for coll in "${colls[@]}"; do
        export "OMPI_MCA_coll_gpusym_${coll}_algorithm=staged"
    done
    each "$1" nonblocking hostalloc stream open copy
    for coll in "${colls[@]}"; do
        unset "OMPI_MCA_coll_gpusym_${coll}_algorithm"
    done
}

of_multicast() {
    multicast "used" yes
    multicast "used, LL" yes
    multicast "tried, and used" yes --mca coll_gpusym_multicast 1
    multicast "rank 0 cannot make the object" failed --mca coll_gpusym_sim_fail multicast:1@0
    multicast "rank 0 cannot add its GPU" failed --mca coll_gpusym_sim_fail multicast:2@0
    multicast "one rank cannot open the object" failed --mca coll_gpusym_sim_fail multicast:1@1
    multicast "one rank cannot add its GPU" failed --mca coll_gpusym_sim_fail multicast:2@2
    multicast "one rank gets wrong bits" failed --mca coll_gpusym_multicast 1 --mca coll_gpusym_sim_fail switch:20@1
    multicast "a trial does not end on one rank" failed --mca coll_gpusym_multicast 1 --mca coll_gpusym_sim_fail hang:3@1
    multicast "one rank cannot launch a trial" failed --mca coll_gpusym_multicast 1 --mca coll_gpusym_sim_fail launch:3@2
    multicast "one rank cannot bind" failed --mca coll_gpusym_sim_fail bind:1@1
    multicast "one rank cannot bind, LL" failed --mca coll_gpusym_sim_fail bind:1@2
    multicast "rank 0 cannot bind" failed --mca coll_gpusym_sim_fail bind:1@0
    multicast "no rank can bind" failed --mca coll_gpusym_sim_fail bind:1
    multicast "NCCL_NVLS_ENABLE=0" no NCCL_NVLS_ENABLE=0
    multicast "NVSHMEM_DISABLE_NVLS=1" no NVSHMEM_DISABLE_NVLS=1
    multicast "TORCH_SYMM_MEM_DISABLE_MULTICAST=1" no TORCH_SYMM_MEM_DISABLE_MULTICAST=1
    multicast "coll_gpusym_multicast=0" no --mca coll_gpusym_multicast 0
    multicast "reproducible" no-run --mca coll_gpusym_reproducible 1
}

# force ring|dbtree simple|ll|ll128: the algorithm of all that have it; of the others a ring or a chain
force() {
    local coll shape
    for coll in allreduce allgather allgatherv reduce_scatter reduce_scatter_block bcast reduce; do
        case $1:$coll in
            dbtree:allreduce | dbtree:bcast | dbtree:reduce) shape=dbtree ;;
            *:bcast | *:reduce) shape=chain ;;
            *) shape=ring ;;
        esac
        export "OMPI_MCA_coll_gpusym_${coll}_algorithm=${shape}_$2"
    done
}

# Ranks wait for neighbours, not for all: rings and trees, by a protocol with flags and by one without.
of_channels() {
    local shape protocol
    for shape in ring dbtree; do
        [ $shape = ring ] && protocol=simple || protocol=ll128
        force $shape $protocol
        run "${injected[@]}" "$victim" --device host --dir "$dir"
        verdict "$shape, no fault" "$(disgrace; all_right && [ -n "$(calls_by allreduce ${shape}_$protocol)" ] || echo "not right, or no ${shape}_$protocol")" \
            "native $(summary native)"
        fault_in_all hang:20@1 device nonblocking
        fault_in_all launch:7@2 device persistent
        fault_in_all import:5@2 device blocking
        dies "killed, $shape" --kill 5
    done
}

# Staged copies through host memory, and reductions in segments.
of_staged_copies() {
    local coll what
    local -a colls=(allgather allgatherv bcast alltoall alltoallv gather gatherv scatter scatterv allreduce scan)
    for coll in "${colls[@]}"; do
        export "OMPI_MCA_coll_gpusym_${coll}_algorithm=staged"
    done
    export OMPI_MCA_coll_gpusym_piece=4096
    run "$victim" "${memory[@]}" --dir "$dir" --coll all --calls 3 --most 300000
    verdict "staged copies, no fault" "$(disgrace; all_right && grep -q 'by_windows [1-9]' "$dir/log" && grep -q 'in_pieces [1-9]' "$dir/log" || echo "not right, or not by staged copies")"
    for what in copy:3@1 copy:40@0 stream:3@2 hostalloc:1 hostalloc:2@1; do
        fault_in_all "$what" device blocking
        fault_in_all "$what" device nonblocking
    done
    dies "killed in an alltoall by staged copies" copy:9@1 --coll alltoall --most 300000
    dies "killed in a bcast by staged copies" copy:4@1 --coll bcast --most 300000 --mode nonblocking
    dies "killed in a scan in segments" copy:30@1 --coll scan --most 300000
    if "${mpirun[0]}" --version 2>/dev/null | grep -Eq '\((Open MPI|OpenRTE)\) 4\.'; then
        survive copy:12@1 --coll allgather --most 300000
    fi
    for coll in "${colls[@]}"; do
        unset "OMPI_MCA_coll_gpusym_${coll}_algorithm"
    done
    unset OMPI_MCA_coll_gpusym_piece
}

# odd NAME WHY MODE VARIABLE=VALUE...: rank 1 has that in its environment, and host buffers; the others' are device memory.
# All is right, staged, and one rank says why, once.
odd() {
    local name=$1 because=$2 mode=$3 why said
    local -a saved=("${mpirun[@]}") args=(--dir "$dir" --coll all --mode "$mode" --calls 3 --most 3000 --seed 7)
    shift 3
    # Not as several programs of one mpirun: Open MPI 5.0.7's crashes at three of them.
    {
        # shellcheck disable=SC2016  # for the script that this writes
        printf '#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMIX_RANK}" != 1 ] || exec env'
        printf ' %q' "$@" "$victim" --device "$device" --kinds host "${args[@]}"
        printf '\nexec'
        printf ' %q' "$victim" "${memory[@]}" "${args[@]}"
    } >"$dir/by_rank"
    chmod +x "$dir/by_rank"
    mpirun=("${bare[@]}" -n "$ranks")
    run "$dir/by_rank"
    mpirun=("${saved[@]}")
    why=$(disgrace)
    all_right || why="$why not right, exit status $rc"
    grep -Eq 'gpusym: bcast: native 0, staged [1-9][0-9]* (\[[^]]*\] )?\(peers' "$dir/log" || why="$why not staged for that reason"
    said=$(grep -c 'do not all have the same gpusym' "$dir/log")
    [ "$said" -eq 1 ] || why="$why told $said times"
    grep -Eq "^ *$because" "$dir/log" || why="$why nobody says: $because"
    verdict "$name, $mode" "$why" "$(grep -Em1 "^ *$because" "$dir/log")"
}

# A copy of the component that says it is another version.
other_version() {
    local version other
    version=$(sed -n 's/^#define GPUSYM_VERSION "\(.*\)"/\1/p' "$builddir/config.h")
    other=${version%?}x
    mkdir -p "$dir/components"
    cp -L "$builddir"/components/*.so "$dir/components/"
    LC_ALL=C sed -i "s/$version/$other/g" "$dir/components/mca_coll_gpusym.so"
    odd "another version" "rank 1 has gpusym $other, rank 0 has $version" blocking \
        "OMPI_MCA_opal_mca_base_component_path=$dir/components:$GPUSYM_OMPI_PATH_TAIL"
    other_version_messages
}

# Messages to and from that rank are staged; they are as right as others.
other_version_messages() {
    local why
    as_many 3 --mca coll_gpusym_verbose 2 "$GPUSYM_SRCDIR/test/onrank.sh" 1 \
        "opal_mca_base_component_path=$dir/components:$GPUSYM_OMPI_PATH_TAIL" "$builddir/test/mpi/p2p" "${memory[@]:0:2}" --thin 2000
    why=$(disgrace)
    [ "$rc" -eq 0 ] && grep -Eq '^p2p: [1-9][0-9]* passed, 0 failed' "$dir/log" || why="$why not right, exit status $rc"
    [ "$(grep -c 'are staged: it has a different version of gpusym' "$dir/log")" -eq 4 ] || why="$why not staged for that reason"
    verdict "another version, messages" "$why" "$(grep -m1 'are staged: it has a different' "$dir/log")"
}

# Ranks that share GPUs, two each: rank 1 leads rank 3.
of_leaders() {
    local call what
    mpirun+=(--mca coll_gpusym_sim_gpus 2)
    run "$victim" "${memory[@]}" --dir "$dir" --coll all --calls 3 --most 30000
    verdict "leaders, no fault" "$(disgrace; all_right && grep -q 'led [1-9]' "$dir/log" || echo "not right, or not led")"
    for what in launch:1@1 launch:4@1 hang:2@1 hang:3@0; do
        fault "$what" error
    done
    for what in import:1@1 import:2@0,import:3@0 export:2@3; do # through staging buffers
        run "${injected[@]}" --mca coll_gpusym_sim_fail "$what" "$victim" --device host --dir "$dir"
        verdict "leaders, fault $what" "$(disgrace; all_right || echo "not right")"
    done
    for call in 0 1 5; do
        dies "a leader killed instead of call $call" --kill "$call"
    done
    dies "a leader killed in any collective" launch:20@1 --coll all --most 30000
    dies "a leader killed in nonblocking ones" launch:9@1 --coll all --mode nonblocking --most 3000
    mpirun+=(--mca coll_gpusym_reg_limit 0)
    dies "a leader killed, staging buffers" launch:6@1 --most 3000
    fault stall:1@3 error # in the copy to a staging buffer, and from it
    fault stall:2@3 error
    if "${mpirun[0]}" --version 2>/dev/null | grep -Eq '\((Open MPI|OpenRTE)\) 4\.'; then
        survive --kill 5
        survive launch:8@1 --most 3000
    fi
    mismatch --mismatch 1
}

of_peers() {
    local mode
    export OMPI_MCA_coll=gpusym OMPI_MCA_coll_gpusym_device=$device OMPI_MCA_coll_gpusym_summary=1
    for mode in blocking nonblocking persistent; do
        odd "a rank without gpusym" "rank 1 has no gpusym" $mode OMPI_MCA_coll=^gpusym
        odd "a rank of a lower priority" "rank 1 has coll_gpusym_priority 5, rank 0 has coll_gpusym_priority 90" $mode \
            OMPI_MCA_coll_gpusym_priority=5
    done
    odd "a rank without device" "rank 1 has coll_gpusym_device none, rank 0 has coll_gpusym_device" blocking \
        OMPI_MCA_coll_gpusym_device=none
    odd "a rank of a negative priority" "rank 1 has coll_gpusym_priority -1," blocking OMPI_MCA_coll_gpusym_priority=-1
    odd "a rank with other blocks" "rank 1 has coll_gpusym_blocks 4, rank 0 has coll_gpusym_blocks 0" blocking \
        OMPI_MCA_coll_gpusym_blocks=4
    odd "a rank with another algorithm" "rank 1 has coll_gpusym_bcast_algorithm st, rank 0 has .* auto" nonblocking \
        OMPI_MCA_coll_gpusym_bcast_algorithm=st
    [ -z "${GPUSYM_OMPI_PATH_TAIL:-}" ] || other_version
    unset OMPI_MCA_coll OMPI_MCA_coll_gpusym_device OMPI_MCA_coll_gpusym_summary
}

# comes BEFORE CALLS MODE: the last rank comes to a call once those that wait have said three times that they do; CALLS: what it
# has made there. All goes on.
comes() {
    local why lines says
    run "${injected[@]}" --mca coll_gpusym_warn 0.5 "$late" --before "$1" --until "$dir/log" --mode "$3"
    why=$(disgrace)
    [ "$rc" -eq 0 ] && [ "$(grep -c 'late: rank . as expected' "$dir/log")" -eq "$ranks" ] || why="$why exit status $rc"
    lines=$(grep -c ' has waited ' "$dir/log")
    [ "$lines" -ge 3 ] || why="$why said $lines times"
    says="has waited .* for rank $((ranks - 1)) \\(pid [0-9]+\\), which has made $2.* last seen in MPI_"
    [ "$(grep -Ec "$says" "$dir/log")" -eq "$lines" ] || why="$why not for the right rank, or not where it was"
    verdict "late to call $1, $3" "$why" "$(grep -Em1 "$says" "$dir/log" | cut -c1-100)..."
}

# too_late BEFORE MODE: it comes once the others have an error, by coll_gpusym_timeout_host: so does it.
too_late() {
    local why
    run "${injected[@]}" --mca coll_gpusym_timeout_host 1 "$late" --before "$1" --until told --mode "$2" --expect error
    why=$(disgrace)
    [ "$rc" -eq 0 ] && [ "$(grep -c 'late: rank . as expected' "$dir/log")" -eq "$ranks" ] || why="$why exit status $rc"
    grep -q 'coll_gpusym_timeout_host allows' "$dir/log" || why="$why nobody says which limit"
    grep -Eq "^rank $((ranks - 1)) \\(pid" "$dir/log" || why="$why nobody says for which rank"
    verdict "too late to call $1, $2" "$why" "$(grep -Em1 "^rank $((ranks - 1)) " "$dir/log" | cut -c1-80)..."
}

# never MODE: the last rank dies before the communicator's first call, and mpirun goes on. The others find that out.
never() {
    local why
    run -enable-recovery --mca coll_gpusym_sim_host 1 --mca coll_gpusym_timeout 0 "$late" --mode "$1" --expect error
    why=$(disgrace)
    [ "$(grep -c 'late: rank . as expected' "$dir/log")" -eq $((ranks - 1)) ] || why="$why not as expected"
    grep -q "waits for rank $((ranks - 1))," "$dir/log" || why="$why no message of ours names the rank"
    verdict "dead before the first call, $1" "$why" "$(grep -m1 'waits for rank' "$dir/log")"
}

of_late() {
    local mode
    for mode in blocking nonblocking; do
        comes 0 "none here," $mode
        comes 3 "3 such calls here," $mode
    done
    comes 0 "none here," persistent
    too_late 0 blocking
    too_late 2 blocking
    too_late 3 nonblocking
    if "${mpirun[0]}" --version 2>/dev/null | grep -Eq '\((Open MPI|OpenRTE)\) 4\.'; then
        for mode in blocking nonblocking persistent dup; do
            never $mode
        done
    fi
}

# stuck EVENT WORDS UNTIL ARGUMENT...: the last rank stays in that call of its driver, until the others have an error (told),
# have said three times that they wait (said; they get none), or for ever: they say so in these words, and which rank it is.
stuck() {
    local why event=$1 words=$2 until=$3 n=$ranks
    local -a ends=(--expect error)
    shift 3
    case $until in
        told) ends+=(--until told) ;;
        said) ends=(--until "$dir/log") ;;
        *) n=$((ranks - 1)) ;;
    esac
    run --mca coll_gpusym_sim_host 1 --mca coll_gpusym_sim_fail "stay:$event:1+@$((ranks - 1))" "$@" "${ends[@]}" --stuck
    why=$(disgrace)
    grep -q "^late: rank $((ranks - 1)) is stuck" "$dir/log" || why="$why it was not stuck"
    [ "$(grep -c 'late: rank . as expected' "$dir/log")" -eq $n ] || why="$why not as expected"
    [ $n -lt "$ranks" ] || [ "$rc" -eq 0 ] || why="$why exit status $rc"
    grep -Eq "$words" "$dir/log" || why="$why nobody says $words"
    verdict "stuck in a call of the driver, $event, $until" "$why" "$(grep -Em1 "$words" "$dir/log" | cut -c1-80)"
}

of_stuck() {
    local last=$((ranks - 1)) waits
    local -a staged=(--mca coll_gpusym_allreduce_algorithm staged)
    waits="^rank $last \\(pid|waits for rank $last "
    stuck launch "waited for rank $last for more than 1 seconds" told --mca coll_gpusym_timeout 1 "$late" --before 0
    # The limit of a nonblocking call begins when all have launched it.
    stuck launch "has waited .* s in MPI_Allreduce, call 3 here, for rank $last \\(pid" said --mca coll_gpusym_warn 0.5 "$late" \
        --before 2 --mode nonblocking
    stuck launch "$waits" told --mca coll_gpusym_timeout_host 1 --mca coll_gpusym_timeout 1 "$late" --before 2 --mode nonblocking
    stuck launch "waited for rank $last for more than 1 seconds" ever --mca coll_gpusym_timeout 1 "$late" --before 0
    # In set-up nobody has launched a kernel yet.
    stuck import "has waited .* s in MPI_Allreduce.* for rank $last \(pid" said --mca coll_gpusym_warn 0.5 "$late"
    stuck import "$waits" told --mca coll_gpusym_timeout_host 1 "$late"
    stuck alloc "$waits" told --mca coll_gpusym_timeout_host 1 "$late"
    stuck export "$waits" ever --mca coll_gpusym_timeout_host 1 "$late"
    # In a staged call, before any rank is in Open MPI's.
    stuck copy "call 3 here, for rank $last .* is copying its data to the host" said --mca coll_gpusym_warn 0.5 "${staged[@]}" "$late" \
        --before 2
    stuck copy "call 3 here, for rank $last .* is copying its data to the host" said --mca coll_gpusym_warn 0.5 "${staged[@]}" "$late" \
        --before 2 --mode nonblocking
    stuck copy "$waits.* is copying its data to the host" told --mca coll_gpusym_timeout_host 1 "${staged[@]}" "$late" --before 2
}

# The last rank dies while calls on the others' streams wait for it, and mpirun does not see that.
of_streams() {
    local last=$((ranks - 1)) why form
    for form in "" --graph; do
        # shellcheck disable=SC2086  # nothing, or an option
        run --mca coll_gpusym_timeout 0 "$outlive" "$builddir/test/faults/streams" --device sim $form
        why=$(disgrace)
        grep -q "^streams: rank $last dies" "$dir/log" || why="$why it did not die"
        [ "$(grep -c '^streams: rank . as expected' "$dir/log")" -eq "$last" ] || why="$why not as expected"
        grep -q "a rank has died, or the GPU reports an error (rank $last)" "$dir/log" || why="$why nobody says which rank"
        verdict "a rank dies, calls on streams wait${form:+, $form}" "$why" "$(grep -om1 'a rank has died.*' "$dir/log")"
    done
}

# message_dies NAME WHAT-IS-EXPECTED WHO STATE ARGUMENT...: rank 1 dies, the sender or the receiver of a message in that state.
# Rank 0 gets an error that names it, or right data; it and rank 2 exchange messages as before.
message_dies() {
    local name="message $3 dies: $1" expect=$2 who=$3 state=$4 why faults=die:copy:1+,die:launch:1+
    local -a parameters=()
    shift 4
    while [[ ${1:-} == *=* ]]; do
        case $1 in
            sim_fail=*) faults+=,${1#*=} ;;
            *) parameters+=(--mca "coll_gpusym_${1%%=*}" "${1#*=}") ;;
        esac
        shift
    done
    as_many 3 -enable-recovery "${parameters[@]}" --mca coll_gpusym_sim_fail "$faults" "$messages" "${memory[@]}" --die "$state" \
        --who "$who" "$@"
    why=$(disgrace)
    [ "$(grep -c '^messages: rank [02] as expected' "$dir/log")" -eq 2 ] || why="$why a survivor is not as expected"
    grep -Eq "has died, ($expect)$" "$dir/log" || why="$why not $expect"
    if grep -q "has died, an error" "$dir/log"; then
        pid=$(sed -n 's/^messages: pid \([0-9]*\) has died.*/\1/p' "$dir/log")
        grep -q "the process of that rank (pid ${pid:-none}) has died" "$dir/log" || why="$why the error does not name the dead"
    fi
    why="$why$(left_in_shm)"
    verdict "$name" "$why" "$(grep -m1 'has died, ' "$dir/log" | sed 's/.*died, //')"
}

# The same where mpirun ends the job, and says of which rank.
message_ends() {
    local why who=$1 state=$2
    shift 2
    as_many 3 "$messages" "${memory[@]}" --die "$state" --who "$who" "$@"
    why=$(disgrace)
    [ "$rc" -ne 0 ] || why="$why exit status 0"
    grep -Eqi 'rank 1([^0-9]|$)|\[\[?[^ ]*,1\]' "$dir/log" || why="$why no message names rank 1"
    verdict "message $who dies: $state" "$why$(left_in_shm)"
}

left_in_shm() {
    local left
    left=$(find /dev/shm -name '*gpusym*' 2>/dev/null)
    [ -z "$left" ] || echo " left in /dev/shm: $left"
}

# series PROGRAM RANKS THINGS TOLD N FAULTS [NAME=VALUE...]: it does a series of things (messages, calls), of which at most as
# many fail as there are faults (N). Whoever fails tells what matches TOLD.
series() {
    local name=$1 ranks=$2 things=$3 told=$4 most=$5 faults=$6 why parameter
    local -a parameters=(--mca coll_gpusym_sim_fail "$6")
    shift 6
    for parameter in "$@"; do
        parameters+=(--mca "coll_gpusym_${parameter%%=*}" "${parameter#*=}")
    done
    as_many "$ranks" "${parameters[@]}" "$builddir/test/faults/$name" --device sim --kinds device,vmm,host,registered --failures "$most"
    why=$(disgrace)
    [ "$rc" -eq 0 ] && grep -q "$things right, .* all as expected" "$dir/log" || why="$why exit status $rc"
    grep -q " $things right, 0 failed" "$dir/log" || grep -Eq "$told" "$dir/log" || why="$why nothing that matches $told"
    verdict "$name${*:+, $*}, faults $faults" "$why" "$(sed -n "s/^$name: \([0-9]* $things right, [0-9]* failed\).*/\1/p" "$dir/log")"
}

message_faults() {
    series messages 2 messages 'Rank [01] of .*, in a message .* with rank [01]' "$@"
}

window_faults() {
    series windows 3 calls 'Rank [012] of a window on .*, in a one-sided call' "$@"
}

window_faults_few() {
    window_faults 6 copy:1@0,copy:5@1,launch:1@2,launch:5@0,import:1@1,alloc:1@2
    window_faults 6 copy:1@0,copy:5@1,launch:1@2,launch:5@0,hostalloc:1@1,stream:2@2 p2p_linger=20000
    window_faults 6 copy:1@0,copy:5@1,launch:1@2,launch:5@0,hostalloc:2@1,stream:1@2 node_size=1
}

window_faults_more() {
    local what n way
    for what in import export alloc hostalloc launch copy stream; do
        for n in 1 3 7; do
            for way in p2p_linger=0 p2p_linger=20000 node_size=1 sim_gpus=1; do
                window_faults 2 "$what:$n@0,$what:$((n + 1))@1" "$way"
            done
        done
    done
}

deaths_few() {
    message_dies "pulled" "an error" receiver moving
    message_dies "in a pipe" "an error" sender moving reg_limit=0 --events 2
    message_dies "buffered, data follow" "an error" sender buffered --bytes 5000
    message_dies "from the host" "an error" sender moving --from-host --events 2
    message_dies "behind a full table" "an error" receiver full
    message_dies "behind a full table" "an error|right data" sender full
}

deaths_more() {
    local who expect
    for who in sender receiver; do
        message_dies "offered" "an error" $who offered
        # A sender that does not answer at once is not asked any longer.
        [ $who = sender ] && expect="an error|right data" || expect="an error"
        message_dies "pushed" "$expect" $who moving p2p_push_min=1
        message_dies "claimed" "an error" $who claimed
        message_dies "in a pipe to the host" "an error" $who moving reg_limit=0 --to-host --events 2
        message_dies "offered from the host" "an error" $who offered --from-host
        message_dies "claimed from the host" "an error" $who claimed --pinned
        message_dies "pushed from the host" "an error|right data" $who moving --pinned
        message_dies "in a pipe by GPU memory" "an error" $who moving sim_fail=import:1@0,import:1@1 --events 2
        message_dies "no links" "an error" $who moving sim_links=0-1:0 --events 2
        [ $who = sender ] && expect="right data" || expect="an error"
        message_dies "pulled" "$expect" $who moving
        message_dies "pulled to the host" "$expect" $who moving --to-host
        message_dies "buffered in the entry" "$expect" $who buffered --bytes 300
        message_dies "buffered, data follow at once" "$expect" $who buffered --bytes 2000
    done
    message_dies "in a pipe" "an error" receiver moving reg_limit=0
    message_dies "from the host" "an error" receiver moving --from-host
    message_dies "buffered, data follow" "an error" receiver buffered --bytes 5000
}

faults_few() {
    message_faults 8 import:1@1,export:2@0,alloc:1@1,launch:1@0,copy:2@0,hostalloc:2@0,stream:1@1,launch:3@1
}

faults_more() {
    local what n
    message_faults 4 launch:2@0,copy:2@1,hostalloc:1@0,stream:1@1 reg_limit=0
    for what in import export alloc hostalloc launch copy stream; do
        for n in 1 3; do
            message_faults 2 "$what:$n@0,$what:$((n + 1))@1"
            message_faults 2 "$what:$n@0,$what:$((n + 1))@1" reg_limit=0
            message_faults 2 "$what:$n@0,$what:$((n + 1))@1" p2p_push_min=1
        done
        message_faults 2 "$what:2@0,$what:1@1" sim_links=0-1:0
        message_faults 2 "$what:2@0,$what:1@1" p2p_linger=3000
    done
}

# Where mpirun goes on when a rank dies, and where it does not: Open MPI 5 and later have no such option.
of_deaths() {
    local who
    if "${mpirun[0]}" --version 2>/dev/null | grep -Eq '\((Open MPI|OpenRTE)\) 4\.'; then
        deaths_few
        [ "$1" != all ] || deaths_more
    else
        for who in sender receiver; do
            message_ends $who claimed
            message_ends $who offered
        done
    fi
}

# ends_lost NAME SURVIVORS WHO ARGUMENT...: a rank or a host is lost. As many ranks as survivors find that out; all say WHO is
# lost, a regular expression, as far as mpirun passes it on; nothing is left.
ends_lost() {
    local name=$1 survivors=$2 who=$3 why said
    shift 3
    run "$@" --survivors "$survivors"
    why=$(disgrace)
    [ "$(grep -Ec '^lost: rank [0-9]+ as expected, an error' "$dir/log")" -eq "$survivors" ] || why="$why not as expected"
    said=$(grep -Ec "$who" "$dir/log")
    [ "$said" -ge "$(told_by "$survivors")" ] || why="$why the lost is named by $said ranks"
    ! grep '^hosts: .* still has' "$dir/log" || why="$why something is left"
    verdict "$name" "$why$(left_in_shm)"
}

# Of so many ranks that say the same: Open MPI 5 and later count repetitions, whatever they are told.
told_by() {
    case ${GPUSYM_OMPI_MAJOR:-4} in # a kit is for Open MPI 4.1
        4) echo "$1" ;;
        *) echo 1 ;;
    esac
}

# Rank 2 is the leader of an island, rank 3 is not. test/outlive.sh keeps mpirun from ending the survivors, whose calls may take
# as long as they want. few|all HOST ARGUMENT...: for mpirun.
ranks_lost() {
    local which=$1 where=$2 lost
    shift 2
    export OMPI_MCA_coll_gpusym_timeout=0
    lost=("$outlive" "$builddir/test/faults/lost" --device sim)
    ends_lost "a leader killed" 5 "$(named 2 "$where")" "$@" "${lost[@]}" --kill 2
    ends_lost "a member killed in a call, nonblocking" 5 "$(named 3 "$where")" --mca coll_gpusym_sim_fail die:launch:6@3 "$@" \
        "${lost[@]}" --at 0 --count 1000000 --mode nonblocking
    if [ "$which" = all ]; then
        ends_lost "a member killed" 5 "$(named 3 "$where")" "$@" "${lost[@]}" --kill 3
        ends_lost "a leader killed, nonblocking" 5 "$(named 2 "$where")" "$@" "${lost[@]}" --kill 2 --mode nonblocking
        ends_lost "a member killed, nonblocking" 5 "$(named 3 "$where")" "$@" "${lost[@]}" --kill 3 --mode nonblocking
        ends_lost "a leader killed in a call" 5 "$(named 2 "$where")" --mca coll_gpusym_sim_fail die:launch:40@2 "$@" \
            "${lost[@]}" --at 0 --count 1000000
    fi
    unset OMPI_MCA_coll_gpusym_timeout
}

# named RANK HOST: how errors name it.
named() {
    echo "rank $1 on host $2 is lost|host $2[)] waits for rank $1,"
}

# Islands of one host.
of_islands() {
    export OMPI_MCA_orte_base_help_aggregate=0
    mpirun=("${bare[@]}" -n 6 --mca coll gpusym --mca coll_gpusym_device sim --mca coll_gpusym_node_size 2)
    ranks_lost "$1" "$(hostname)"
}

# Two ranks, each of which is an island.
of_pair() {
    local mode simulated=()
    [ "$device" != sim ] || simulated=(--device sim)
    export OMPI_MCA_orte_base_help_aggregate=0 OMPI_MCA_coll_gpusym_timeout=0
    mpirun=("${bare[@]}" -n 2 --mca coll gpusym --mca coll_gpusym_device "$device" --mca coll_gpusym_node_size 1)
    for mode in blocking nonblocking; do
        ends_lost "one of two killed, $mode" 1 "$(named 1 "$(hostname)")" "$outlive" "$builddir/test/faults/lost" \
            "${simulated[@]}" --kill 1 --mode $mode
    done
    unset OMPI_MCA_orte_base_help_aggregate OMPI_MCA_coll_gpusym_timeout
}

# Hosts that test/mpi/hosts.sh makes; a port of their switch goes dead, for good or for 4 s.
of_hosts() {
    local lost=("$builddir/test/faults/lost" --device sim) why
    export OMPI_MCA_orte_base_help_aggregate=0 OMPI_MCA_coll=gpusym OMPI_MCA_coll_gpusym_device=sim
    mpirun=("$GPUSYM_SRCDIR/test/mpi/hosts.sh" 3 2 --build "$builddir")
    # From Open MPI 5 on btl/tcp ends the processes whose connection to a killed one is closed, with gpusym or without.
    [ "$1" != all ] || [ "$GPUSYM_OMPI_MAJOR" -ne 4 ] || ranks_lost all host2 --
    ends_lost "a port dead" 6 "rank [0-5] on host host[1-3] is lost" --mca coll_gpusym_timeout 5 -- "${lost[@]}" --cut 2
    [ "$1" = all ] || return
    ends_lost "a port dead, nonblocking, to the end" 6 "rank [0-5] on host host[1-3] is lost" --mca coll_gpusym_timeout 5 -- \
        "${lost[@]}" --cut 3 --count 300000 --mode nonblocking --end finalize
    [ "$rc" -eq 0 ] || verdict "the end after a port was dead" "exit status $rc"
    run -- "${lost[@]}" --cut 2 --after 4000 --expect right --end finalize
    why=$(disgrace)
    [ "$rc" -eq 0 ] && [ "$(grep -Ec '^lost: rank . as expected, no error' "$dir/log")" -eq 6 ] || why="$why not right"
    verdict "a port dead for 4 s" "$why"
}

# Whether hosts can be made; the last line says why not.
have_hosts() {
    "$GPUSYM_SRCDIR/test/mpi/hosts.sh" 1 1 --build "$builddir" -- true >"$dir/log" 2>&1
    [ $? -ne 77 ] || { tail -n 1 "$dir/log"; false; }
}

if [[ $part == hosts* ]]; then
    have_hosts || exit 77
fi
case $part in
    all | allreduce) of_allreduce ;;
    islands-pair) of_pair ;;
esac
if [ "$device" = sim ]; then
    case $part in
        all | collectives) of_collectives ;;
    esac
    case $part in
        all | each) of_each all ;;
        each-few) of_each few ;;
    esac
    case $part in
        all | multicast) of_multicast ;;
    esac
    case $part in
        all | channels) of_channels ;;
    esac
    case $part in
        all | staged-copies) of_staged_copies ;;
    esac
    case $part in
        all | leaders) (of_leaders; echo "$passed $failed" >"$dir/both") && read -r passed failed <"$dir/both" ;;
    esac
    case $part in
        all | peers) of_peers ;;
    esac
    case $part in
        all | late) of_late ;;
    esac
    case $part in
        all | stuck) of_stuck ;;
    esac
    case $part in
        all | streams) of_streams ;;
    esac
    case $part in
        all | messages) faults_few; faults_more ;;
        messages-few) faults_few ;;
    esac
    case $part in
        all | windows) window_faults_few; window_faults_more ;;
        windows-few) window_faults_few ;;
    esac
    case $part in
        all | deaths) of_deaths all ;;
        deaths-few) of_deaths few ;;
        islands) of_islands all ;;
        islands-few) of_islands few ;;
        hosts) of_hosts all ;;
        hosts-few) of_hosts few ;;
    esac
fi

echo "faults: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
