#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs random programs for hours, with seeds and parameters that are drawn anew in each round:
#
#     test/soak.sh [--build DIR] [--seed N] [--only PATTERN] [--inject WHAT] HOURS|--once
#
#   HOURS           as 8 or 0.25: a round that has begun by then is ended. --once: one short round
#   --build DIR     the build tree (default: this folder)
#   --seed N        of the first round (default: a fresh one); the next has the next number
#   --only PATTERN  of the programs below
#   --inject WHAT   something is left behind, so the run must fail: heap, resident, mapping, descriptor or device: kept by the
#                   programs in each of their rounds; file, process: by a run of one
#
# A round is one run of each program: collectives, messages beside them, one-sided calls, communicators that are made and
# freed, several hosts (test/mpi/hosts.sh), a rank that is killed, and where Open MPI has ULFM, ranks that die and
# communicators that are revoked in a job that goes on. The ranks, the kinds of memory, GPUs that are shared, islands and
# further parameters are drawn.
#
# Checked are all results; what each process holds from round to round within a program (test/mpi/soak.h); behind each
# program, the files that it has left in shared memory and in TMPDIR, and its processes. What fails is told with the seed
# and the command that runs it again, and the rest goes on. The closing line is
# "soak: R rounds, P programs, N operations, M mismatches, memory A to B KiB, device memory A to B KiB; F failed": the sums
# over the programs of what one of their processes held at most, resident and on simulated GPUs, early and late.
set -u

usage="usage: test/soak.sh [--build DIR] [--seed N] [--only PATTERN] [--inject WHAT] HOURS|--once"
builddir=. seed=$((($(date +%s) * 100 + $$ % 100) % 1000000000)) only='*' inject='' hours=''
while [ $# -gt 0 ]; do
    case $1 in
        --build) builddir=${2:?$usage} && shift 2 ;;
        --seed) seed=${2:?$usage} && shift 2 ;;
        --only) only=${2:?$usage} && shift 2 ;;
        --inject) inject=${2:?$usage} && shift 2 ;;
        --once) hours=0 && shift ;;
        *) hours=$1 && shift ;;
    esac
done
[[ $hours =~ ^[0-9]*\.?[0-9]+$ ]] || { echo "$usage" >&2 && exit 2; }
builddir=$(cd "$builddir" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
srcdir=$GPUSYM_SRCDIR
# shellcheck source=test/mpirun.sh
. "$srcdir/test/mpirun.sh"
# shellcheck source=test/limited.sh
. "$srcdir/test/limited.sh"
export GPUSYM_TEST_DEVICE=${GPUSYM_TEST_DEVICE:-sim}
export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL
export OMPI_MCA_coll=gpusym OMPI_MCA_coll_gpusym_device=$GPUSYM_TEST_DEVICE
end_at=$(awk -v h="$hours" -v now="$(date +%s)" 'BEGIN { print int(now + 3600 * h) }')
limit=$((600 * ${GPUSYM_TEST_SLOW:-1}))
amount=1 soaks=9 # of operations in a round of a program; its rounds
if [ "$hours" = 0 ]; then limit=$((60 * ${GPUSYM_TEST_SLOW:-1})); else amount=4 soaks=15; fi

# Where Open MPI keeps the memory that processes share, and its other files: what is left there is the run's.
place=$(mktemp -d) || exit 2
shared=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "$place")" gpusym-soak.XXXXXX) || exit 2
log=$place.log
backing=()
for word in btl_vader btl_sm osc_sm osc_rdma; do backing+=(--mca "${word}_backing_directory" "$shared"); done
# What gpusym has of the C library is counted, apart from what Open MPI has.
preload=()
[ "$GPUSYM_SANITIZERS" != no ] || preload=("LD_PRELOAD=$builddir/test/mpi/.libs/libheld.so")
trap 'rm -rf "$place" "$shared" "$log"' EXIT
trap 'exit 143' INT TERM

rounds=0 programs=0 operations=0 mismatches=0 failed=0
memory=(0 0) device=(0 0) # before and after

# draw WORD...: one of them
draw() {
    local words=("$@")
    drawn=${words[RANDOM % ${#words[@]}]}
}

# tell NAME WHY COMMAND...: it is run again without the folder of this run.
tell() {
    local again
    again=" $(printf '%q ' "${@:3}")"
    # shellcheck disable=SC2001  # a class is meant
    again=$(sed 's| --mca [a-z_]*_backing_directory [^ ]*||g' <<<"$again")
    failed=$((failed + 1))
    echo "FAIL $1: $2"
    {
        grep -m 8 FAIL "$log"
        tail -n 40 "$log"
    } | sed 's/^/     | /'
    echo "     again:"
    echo "     cd $builddir && env $(env | grep -E '^(OMPI_(MCA|ALLOW)|PRTE_|GPUSYM_TEST_)' | sort | tr '\n' ' ')$again"
}

# The processes of a run, by their environment: those of hosts too.
processes_of() {
    local file pid
    for file in $(grep -lsz "^GPUSYM_SOAK_RUN=$1$" /proc/[0-9]*/environ); do
        pid=${file#/proc/}
        echo "${pid%/environ}"
    done
}

# What a run has left: nothing, within 5 s; its processes are ended.
left_by() {
    local try pids=() files='' pid
    for ((try = 0; try < 50; try++)); do
        mapfile -t pids < <(processes_of "$1")
        # Folders are mpirun's, which keeps some for its next run.
        files=$(find "$place" "$shared" ! -type d -printf ' %p')
        [ ${#pids[@]} -gt 0 ] || [ -n "$files" ] || return 0
        sleep 0.1
    done
    [ -z "$files" ] || echo "files are left:$files"
    for pid in "${pids[@]}"; do
        echo "process $pid is left: $(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-120)"
        kill -KILL "$pid"
    done
    find "$place" "$shared" ! -type d -delete
}

# The sums of a log: operations, checks that failed, memory.
add_up() {
    local o f a b c d
    read -r o f a b c d < <(awk '
        / rounds, [0-9]+ operations, / {
            for (i = 1; i <= NF; i++) {
                if ($i == "operations,") o += $(i - 1)
                if ($i == "resident") { a += $(i + 1); b += $(i + 3) }
                if ($i == "device") { c += $(i + 1); d += $(i + 3) }
            }
            told = 1
        }
        /^[a-z_0-9]+: [0-9]+ passed, [0-9]+ failed/ { p += $2; f += $4 }
        END { printf "%d %d %d %d %d %d\n", told ? o : p + f, f, a, b, c, d }' "$log")
    operations=$((operations + o)) mismatches=$((mismatches + f))
    memory=($((memory[0] + a)) $((memory[1] + b))) device=($((device[0] + c)) $((device[1] + d)))
}

# run NAME EXPECT COMMAND...: EXPECT is ok, or fail: a run that ends with an error
run() {
    local name=$1 expect=$2 rc mark=$$.$programs.$seed why='' left
    shift 2
    # shellcheck disable=SC2053  # a pattern is meant
    [[ $name == $only ]] || return 0
    limited "$limit" "$log" env "GPUSYM_SOAK_RUN=$mark" "TMPDIR=$place" "$@"
    rc=$?
    if [ $rc -eq 77 ]; then
        echo "skip $name: $(tail -n 1 "$log")"
        return
    fi
    programs=$((programs + 1))
    case $inject in
        file) : >"$shared/left" ;;
        process) env "GPUSYM_SOAK_RUN=$mark" sleep 600 & ;;
    esac
    add_up
    case $expect:$rc in
        *:124) why="not ended after $limit s" ;;
        ok:0) ;;
        ok:*) why="exit status $rc" ;;
        fail:0) why="exit status 0, a failure was expected" ;;
    esac
    # test/mpi/hosts.sh says what is left on its hosts.
    left=$(left_by "$mark" && grep -E '^hosts: .* still has' "$log")
    why=$why${why:+${left:+; }}$left
    if [ -n "$why" ]; then
        tell "$name" "$why" "$@"
    else
        echo "ok   $name, $(tail -n 200 "$log" | grep -E -m 1 ' operations, | passed, |^hosts' || echo "as expected")"
    fi
}

# The parameters of a run, and kinds of memory. $parameters are those of mpirun's command line.
draw_parameters() {
    local word
    parameters=()
    draw "$@"
    for word in $drawn; do parameters+=(--mca "${word%%=*}" "${word#*=}"); done
    draw "" "" "--kinds host" "--kinds device" "--kinds host,device"
    read -ra kinds <<<"$drawn"
}

coll_sets=("" "coll_gpusym_zero_copy_min=1" "coll_gpusym_sim_gpus=1" "coll_gpusym_sim_gpus=2" "coll_gpusym_node_size=1"
    "coll_gpusym_node_size=2" "coll_gpusym_node_size=2 coll_gpusym_sim_gpus=1" "coll_gpusym_reg_limit=0"
    "coll_gpusym_linger=2000" "coll_gpusym_piece=100" "coll_gpusym_sim_links=0-1:0" "coll_gpusym_multicast=1"
    "coll_gpusym_algorithm=allreduce:staged,alltoall:staged,alltoallv:staged,bcast:staged,allgather:staged"
    "coll_gpusym_epoch_first=2147483300" "coll_gpusym_heap_size=4M coll_gpusym_heap_slabs=1")
p2p_sets=("" "coll_gpusym_sim_gpus=1" "coll_gpusym_linger=3000" "coll_gpusym_reg_limit=0" "coll_gpusym_p2p=staged"
    "coll_gpusym_sim_links=0-1:0" "coll_gpusym_node_size=2" "coll_gpusym_p2p_linger=20000")

# mpirun of a program of the build tree with N ranks and the drawn parameters.
job() {
    local n=$1
    shift
    command=("$GPUSYM_OMPI_MPIRUN" -n "$n" "${oversubscribe[@]}" "${parameters[@]}" "${backing[@]}"
        env "${preload[@]}" "$builddir/test/$1" "${@:2}")
}

soak_options() {
    soak=(--seed $((seed + RANDOM)) --soak "$soaks")
    case $inject in heap | resident | mapping | descriptor | device) soak+=(--leak "$inject") ;; esac
}

run_collectives() {
    local threads=(--threads 3)
    [ "$GPUSYM_OMPI_MAJOR" -lt 6 ] || threads=() # messages among threads stand still in btl/sm (docs/guide.md, Limits)
    draw_parameters "${coll_sets[@]}"
    soak_options
    draw 2 3 4 5 6
    job "$drawn" mpi/random_coll --n $((150 * amount)) "${kinds[@]}" "${soak[@]}"
    run collectives ok "${command[@]}"
    draw_parameters "${coll_sets[@]}"
    soak_options
    draw 2 3 4
    job "$drawn" mpi/random_coll --n $((100 * amount)) --makes "${kinds[@]}" "${soak[@]}"
    run makes ok "${command[@]}"
    draw_parameters "" "coll_gpusym_sim_gpus=1" "coll_gpusym_zero_copy_min=1"
    soak_options
    job 2 mpi/random_coll --n $((60 * amount)) "${threads[@]}" "${kinds[@]}" "${soak[@]}"
    run threads ok "${command[@]}"
}

run_messages() {
    draw_parameters "${p2p_sets[@]}"
    soak_options
    draw 2 3 4 5
    job "$drawn" mpi/p2p_beside --rounds $((50 * amount)) --fuzz $((240 * amount)) "${kinds[@]}" "${soak[@]}"
    run messages ok "${command[@]}"
}

run_windows() {
    draw_parameters "" "coll_gpusym_sim_gpus=1" "coll_gpusym_sim_gpus=2" "coll_gpusym_p2p_linger=20000" "coll_gpusym_sim_links=0-1:0"
    soak_options
    draw 2 3 4 6
    job "$drawn" mpi/random_rma --n $((20 * amount)) "${soak[@]}"
    run windows ok "${command[@]}"
}

# They judge what they hold themselves.
run_communicators() {
    draw_parameters "" "coll_gpusym_sim_gpus=1" "coll_gpusym_node_size=2" "coll_gpusym_heap_size=4M coll_gpusym_heap_slabs=1"
    draw 2 3 4
    job "$drawn" mpi/manycomms --seed $((seed + RANDOM)) --n $((200 * amount)) --batch 20 --alive 40
    run communicators ok "${command[@]}"
}

# Open MPI 5.0.7's coll/adapt keeps the modules of communicators that coll/han makes.
run_hosts() {
    draw_parameters "" "" "coll_gpusym_sim_gpus=1" "coll_gpusym_piece=100"
    soak_options
    draw 1 2 1,2 2,1
    run hosts ok "$srcdir/test/mpi/hosts.sh" 2 "$drawn" --build "$builddir" --mca coll_adapt_priority -1 "${parameters[@]}" \
        -- env "${preload[@]}" "$builddir/test/mpi/random_coll" --n $((50 * amount)) "${kinds[@]}" "${soak[@]}"
}

# The job ends by it; nothing of it is left.
run_killed() {
    local n
    draw_parameters "" "coll_gpusym_sim_gpus=1" "coll_gpusym_node_size=2" "coll_gpusym_zero_copy_min=1"
    draw 2 3 4
    n=$drawn
    job "$n" faults/victim --kinds device --calls 30 --seed $((seed + RANDOM)) --rank $((RANDOM % n)) --kill $((1 + RANDOM % 20))
    run killed fail "${command[@]}"
}

run_ulfm() {
    local form coll kind
    [ "$GPUSYM_OMPI_FT" = 1 ] || return 0
    draw_parameters "" "coll_gpusym_sim_gpus=2" "coll_gpusym_node_size=2"
    parameters+=(--with-ft ulfm --mca async_mpi_finalize 1) # else MPI_Finalize of 5.0.7 may wait for the dead
    draw blocking nonblocking persistent
    form=$drawn
    draw allreduce bcast alltoall
    coll=$drawn
    draw "" --host
    kind=$drawn
    [ -z "$kind" ] || form=blocking # of others Open MPI 5.0.7 loses errors
    draw 3 4
    # shellcheck disable=SC2086  # nothing, or one word
    job "$drawn" mpi/ulfm --case death --form "$form" --coll "$coll" $kind
    run deaths ok "${command[@]}"
    # shellcheck disable=SC2086
    job "$drawn" mpi/ulfm --case revoke --rounds $((3 * amount)) --form "$form" --coll "$coll" $kind
    run revoked ok "${command[@]}"
}

while :; do
    RANDOM=$((seed % 32768))
    echo "---- round $rounds, seed $seed"
    run_collectives
    run_messages
    run_windows
    run_communicators
    run_hosts
    run_killed
    run_ulfm
    rounds=$((rounds + 1)) seed=$((seed + 1))
    [ "$(date +%s)" -lt "$end_at" ] || break
done
echo "soak: $rounds rounds, $programs programs, $operations operations, $mismatches mismatches," \
    "memory $((memory[0] / 1024)) to $((memory[1] / 1024)) KiB," \
    "device memory $((device[0] / 1024)) to $((device[1] / 1024)) KiB; $failed failed"
[ $failed -eq 0 ] && [ $programs -gt 0 ]
