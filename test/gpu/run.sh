#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Tests and measures a kit (make kit KITDIR=...) on a machine that has GPUs and Open MPI 4.1, but needs no build tools:
#
#     test/gpu/run.sh [--device cuda|sim] [--stages LIST] [--coll LIST] [--bytes LIST] [--pack] KITDIR [RANKS...]
#
# Stages, separated by commas (default tests,sanitize,bench,overlap):
#   tests      the kernels of several ranks on one GPU; gpusym_info and its check; the test programs, shortened, on RANKS (default 1 2 4, as many as there are
#              GPUs), then two ranks that share a GPU, then ranks of which each sees only its own GPU; with the next
#              about 3 minutes
#   sanitize   short tests under compute-sanitizer's memcheck
#   racecheck  the same under its racecheck
#   full       the test programs at their own length, on RANKS
#   bench      the table of the collectives of --coll (default those that NCCL has, as MPI calls them) beside NCCL and
#              staging, on each of RANKS beyond 1; about a minute each
#   overlap    an all-reduce beside a kernel that computes; nonblocking and persistent beside blocking; calls of which one
#              rank is late; a minute
#   cg         examples/cg, examples/jacobi and examples/heat_rma, by gpusym and NCCL, on streams and in graphs, of three sizes
#              each; two minutes
#   halo       a halo exchange in three dimensions in several forms and by NCCL, checked, of faces from 4 KiB to 4 MiB
#   goals      all that bench/goals.csv has a goal for, beside NCCL, on the largest of RANKS, and one table of it; about two
#              minutes
#   p2p        messages between every pair of the largest of RANKS beside NCCL's, and small ones without resident kernels;
#              about a minute on 2
#   host       messages of host buffers, with gpusym over without it, in turns; a minute
#   hosts      two islands of one GPU each, in the place of two hosts: the test programs, a rank that dies; all-reduces over
#              shared memory and over TCP by UCX, beside NCCL restricted to the same; UCX's own bandwidth; the time of a first
#              call, and pinned memory; about three minutes
#   rings      rings, chains and trees by each protocol, beside what is chosen otherwise and NCCL's rings and trees, on
#              the largest of RANKS; about two minutes
#   sweep      algorithms x blocks x threads of --coll's at the sizes of --bytes, on the largest of RANKS
#   faults     ranks that die or disagree (test/faults/faults.sh)
# A line a test, the closing line is "N passed, M failed"; so says the exit status. All output is kept in $OUT, or
# ./gpu-results without it: tables as CSV, and logs/, or with --pack the one file logs.tar.gz. --device sim exercises
# this script where there is no GPU.
# NVLink multicast is kept off, here and in NCCL: a job that is killed can leave it broken for every user of the GPUs.
set -u

all_stages="tests sanitize racecheck full bench overlap cg halo goals p2p host hosts rings sweep faults"
usage="usage: test/gpu/run.sh [--device cuda|sim] [--stages LIST] [--coll LIST] [--bytes LIST] [--pack] KITDIR [RANKS...]
stages: $all_stages"
device=${GPUSYM_TEST_DEVICE:-cuda}
stages=tests,sanitize,bench,overlap
colls=allreduce,allgather,reduce_scatter_block,bcast,reduce,alltoall
sweep_bytes=8,4k,64k,1m,16m,256m
pack=no
while [ $# -gt 0 ]; do
    case $1 in
        --device) device=${2:?$usage} && shift 2 ;;
        --stages) stages=${2:?$usage} && shift 2 ;;
        --coll) colls=${2:?$usage} && shift 2 ;;
        --bytes) sweep_bytes=${2:?$usage} && shift 2 ;;
        --pack) pack=yes && shift ;;
        -*) echo "$usage" >&2 && exit 2 ;;
        *) break ;;
    esac
done
for stage in ${stages//,/ }; do
    [[ " $all_stages " == *" $stage "* ]] || { echo "there is no stage $stage; $usage" >&2 && exit 2; }
done
kit=$(cd "${1:?$usage}" && pwd) || exit 2
shift
out=${OUT:-./gpu-results}
mkdir -p "$out/logs" && out=$(cd "$out" && pwd) || exit 2
chmod +x "$kit"/bin/* "$kit"/bench/*.sh "$kit"/test/faults/* || exit 2
# The tables carry the command that made them: no folder of this machine in it.
cd "$out" || exit 2

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
export GPUSYM_TEST_DEVICE=$device
# What the tables were measured with, as make kit wrote it down.
[ -n "${GPUSYM_COMMIT:-}" ] || { [ -r "$kit/commit" ] && GPUSYM_COMMIT=$(cat "$kit/commit") && export GPUSYM_COMMIT; }

gpus=4 # the simulator has as many as there are ranks
[ "$device" = sim ] || gpus=$(timeout 60 nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -gt 0 ] || { echo "nvidia-smi lists no GPU here" >&2 && exit 2; }
ranks=("$@")
if [ ${#ranks[@]} -eq 0 ]; then
    for n in 1 2 4; do
        [ "$n" -gt "$gpus" ] || ranks+=("$n")
    done
fi
most=1
for n in "${ranks[@]}"; do
    [ "$n" -le "$most" ] || most=$n
done

passed=0
failed=0
# By the environment: what a test gives with --mca then comes on top.
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_coll=gpusym
export OMPI_MCA_opal_mca_base_component_path=$kit/lib/openmpi:SYSTEM_DEFAULT OMPI_MCA_mca_base_component_show_load_errors=1
export OMPI_MCA_coll_gpusym_device=$device OMPI_MCA_coll_gpusym_multicast=0
common=()
bind_to=core
if [ "$device" = sim ] || [ "$(nproc)" -lt "$most" ]; then
    common=(--oversubscribe)
    bind_to=none
    export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
fi

# verdict PASS|FAIL|skip LABEL SECONDS WORDS
verdict() {
    printf '%-4s %-44s %4ss  %s\n' "$1" "$2" "$3" "$4"
    case $1 in
        PASS) passed=$((passed + 1)) ;;
        FAIL) failed=$((failed + 1)) ;;
    esac
}

wants() {
    [[ ,$stages, == *,$1,* ]]
}

# The program's own last line, not what mpirun says of an exit status.
closing_line() {
    { grep -E 'passed, [0-9]+ failed|^verified:|^\[  PASSED  \]' "$1" || grep -vE '^-*$' "$1"; } | tail -n 1
}

# launch LABEL LIMIT RANKS ARGUMENT...: mpirun with its log in $log; sets rc, took
launch() {
    local limit=$2 n=$3 start=$SECONDS
    log=$out/logs/${1//[^A-Za-z0-9._-]/-}.log
    shift 3
    timeout --kill-after=10 "$limit" mpirun -np "$n" --bind-to "$bind_to" "${common[@]}" "$@" >"$log" 2>&1 </dev/null
    rc=$?
    took=$((SECONDS - start))
}

# check LABEL LIMIT RANKS ARGUMENT...: one test; it must end well and say that something passed
check() {
    launch "$@"
    case $rc in
        0)
            if grep -Eq '[1-9][0-9]* passed, 0 failed|^verified: yes|^\[  PASSED  \] [1-9]' "$log"; then
                verdict PASS "$1" "$took" "$(closing_line "$log")"
                return
            fi
            verdict FAIL "$1" "$took" "no closing line"
            ;;
        77) verdict skip "$1" "$took" "it says that it cannot run here" && return ;;
        124 | 137) verdict FAIL "$1" "$took" "not ended after $2 s, or killed: $(closing_line "$log")" ;;
        *) verdict FAIL "$1" "$took" "exit status $rc: $(closing_line "$log")" ;;
    esac
    # without what mpirun says of an exit status
    sed '/^Primary job  terminated/,$d' "$log" | tail -n 15 | sed 's/^/     | /'
}

# ---- tests ----

# Memory of cuMemCreate, which peers map by a descriptor; and beside it what looks alike and has none of its own.
mapped=vmm,pieces
[ "$device" = sim ] && mapped=vmm
# The bytes of test/mpi/big: beyond 2^31 only where memory is plentiful.
big_bytes=2400000000
[ "$device" = sim ] && big_bytes=4m
# Shortened: for the stage tests; and on the simulator, which computes on the CPU, enough to try this script.
short=no
quick=()
few=()
churn=()
rounds=()
thin=()
fewer=(--thin 20)
calls=(--n 2000)
some=(--n 1000)
reused=(100000)
shorten() {
    short=yes
    quick=(--quick)
    few=(--n 200)
    churn=(--churn 500 --alive 60)
    rounds=(--rounds 8)
    thin=(--thin 64)
    fewer=(--thin 200)
    calls=(--n 500)
    some=(--n 100)
    reused=(10000)
    if [ "$device" = sim ]; then
        few=(--n 60)
        churn=(--churn 150 --alive 40)
        rounds=(--rounds 1)
        thin=(--thin 1024)
        fewer=(--thin 2000)
        calls=(--n 60)
        reused=(200)
    fi
}

# What every number of ranks is tested with: all collectives on every kind of memory.
every_collective() {
    local n=$1
    check "every, $n ranks" 60 "$n" "$kit/bin/every" "${thin[@]}"
    check "random_coll, $n ranks" 60 "$n" "$kit/bin/random_coll" "${calls[@]}"
    check "random_coll makes, $n ranks" 60 "$n" "$kit/bin/random_coll" --makes "${calls[@]}"
    check "sizes, $n ranks" 60 "$n" "$kit/bin/sizes"
    check "inflight, $n ranks" 60 "$n" "$kit/bin/inflight"
}

other_programs() {
    local n=$1
    check "example, $n ranks" 60 "$n" "$kit/bin/example_allreduce" --device "$device"
    check "allreduce, $n ranks" 120 "$n" "$kit/bin/allreduce" "${quick[@]}"
    check "random, $n ranks" 60 "$n" "$kit/bin/random" "${few[@]}"
    check "mixed, $n ranks" 120 "$n" "$kit/bin/mixed" "${rounds[@]}"
    # a rank's threads wait for each other: not on one core. Device memory only: what goes on to Open MPI 4.1.6's own
    # components crashes there with threads, also without gpusym
    bind_to=none check "threads, $n ranks" 60 "$n" "$kit/bin/threads" "${few[@]}" --kinds device
    check "comms, $n ranks" 120 "$n" "$kit/bin/comms" "${churn[@]}"
    check "pvars, $n ranks" 60 "$n" "$kit/bin/pvars"
    check "bits, $n ranks" 60 "$n" --mca coll_gpusym_reproducible 1 "$kit/bin/bits"
    check "zerocopy, $n ranks" 120 "$n" --mca coll_gpusym_reg_limit 3 "$kit/bin/zerocopy" --least 8m --most 16m --n 64
    check "zerocopy small, $n ranks" 120 "$n" --mca coll_gpusym_reg_limit 20 "$kit/bin/zerocopy" --most 512k --n 300
    check "zerocopy vmm, $n ranks" 120 "$n" --mca coll_gpusym_reg_limit 3 "$kit/bin/zerocopy" --least 8m --most 16m --n 64 \
        --kinds "$mapped"
    check "heaps, $n ranks" 60 "$n" "$kit/bin/heaps" --n 2 --slab 56m
    check "random_coll, virtual memory, $n ranks" 60 "$n" --mca coll_gpusym_heap_vmm 1 "$kit/bin/random_coll" \
        "${calls[@]}"
    check "allocmem, $n ranks" 60 "$n" "$kit/bin/allocmem"
    check "kinds, $n ranks" 60 "$n" env LD_PRELOAD="$kit/lib/libgpusym_kinds.so" "$kit/bin/kinds"
    check "rma, $n ranks" 60 "$n" "$kit/bin/rma"
    [ "$n" -gt 8 ] || check "random_rma, $n ranks" 60 "$n" "$kit/bin/random_rma" --n 200
    [ "$n" -gt 8 ] || check "threads_rma, $n ranks" 60 "$n" "$kit/bin/threads_rma"
    # windows of host memory: osc/rdma has no window of one rank, and random calls meet its own faults
    check "rma_host, $n ranks" 60 "$n" --mca osc gpusym,sm,pt2pt "$kit/bin/rma_host"
    [ "$n" -gt 8 ] ||
        check "random_rma host, $n ranks" 60 "$n" --mca osc gpusym,sm,pt2pt "$kit/bin/random_rma" --host --n 200
    check "pack, $n ranks" 60 "$n" "$kit/bin/pack" "${some[@]}"
    check "layout, $n ranks" 120 "$n" "$kit/bin/layout" --n 200
    check "packing, 1 rank" 60 1 "$kit/bin/packing" --mib 4
    [ "$n" = 1 ] || check "packing, $n ranks" 60 "$n" "$kit/bin/packing" --mib 4
    check "big, $n ranks" 120 "$n" "$kit/bin/big" --bytes "$big_bytes" --kinds device
    check "deep, $n ranks" 60 "$n" "$kit/bin/deep" --kinds host,device
    local way
    for way in plain atexit destructor thread left reset reset-again; do
        check "finalize $way, $n ranks" 60 "$n" "$kit/bin/finalize" $way
    done
}

# Messages between two ranks. Open MPI 4.1 writes behind a buffer that is too short for a message, if it copies from
# process to process by itself.
messages() {
    local n=$1
    local -x OMPI_MCA_btl_vader_single_copy_mechanism=none
    check "p2p, $n ranks" 120 "$n" "$kit/bin/p2p" "${fewer[@]}"
    check "p2p, pushed, $n ranks" 120 "$n" --mca coll_gpusym_p2p_push_min 1 "$kit/bin/p2p" "${fewer[@]}"
    check "p2p, no resident kernels, $n ranks" 120 "$n" --mca coll_gpusym_p2p_linger 0 "$kit/bin/p2p" "${fewer[@]}"
    [ "$n" -lt 2 ] || check "parts, $n ranks" 120 "$n" "$kit/bin/parts"
    [ "$n" != 2 ] || check "boxes, $n ranks" 60 "$n" "$kit/bin/boxes"
    [ "$n" != 2 ] || check "from_host, $n ranks" 60 "$n" "$kit/bin/from_host"
    check "reused, $n ranks" 120 "$n" "$kit/bin/reused" --n "${reused[@]}" --kinds device
    check "reused, all kinds, $n ranks" 60 "$n" "$kit/bin/reused" --n 1000
    [ "$n" -lt 2 ] || check "p2p_order, $n ranks" 120 "$n" "$kit/bin/p2p_order" "${calls[@]}"
    check "p2p_beside, $n ranks" 120 "$n" "$kit/bin/p2p_beside" --fuzz "${calls[1]}"
    bind_to=none check "p2p_beside threads, $n ranks" 120 "$n" "$kit/bin/p2p_beside" --threads 4 --fuzz "${calls[1]}"
}

# Ranks that do not each have a GPU of their own that all can see.
sharing() {
    local few_cases=(--quick --kinds device) one=(-x CUDA_VISIBLE_DEVICES=0)
    # One of them does it for all.
    [ "$device" = sim ] && one=(--mca coll_gpusym_sim_gpus 1)
    check "shared GPU, 2 ranks" 60 2 "${one[@]}" "$kit/bin/allreduce" "${few_cases[@]}"
    check "shared GPU, 2 ranks, heaps" 60 2 "${one[@]}" "$kit/bin/heaps" --n 2 --slab 56m
    check "shared GPU, 4 ranks, one-sided" 60 4 "${one[@]}" "$kit/bin/rma"
    check "shared GPU, 3 ranks, faulty kernel" 60 3 "${one[@]}" "$kit/test/faults/faulty"
    check "shared GPU, 3 ranks, faulty kernel, messages" 60 3 "${one[@]}" "$kit/test/faults/faulty" --messages
    check "shared GPU, 4 ranks, every collective" 120 4 "${one[@]}" "$kit/bin/random_coll" --n 200 --kinds device
    OMPI_MCA_btl_vader_single_copy_mechanism=none check "p2p, shared GPU, 2 ranks" 120 2 "${one[@]}" "$kit/bin/p2p" \
        "${fewer[@]}"
    [ "$most" -gt 1 ] || return
    # shellcheck disable=SC2016  # each rank's own shell is to expand it
    check "own GPU only, $most ranks" 60 "$most" bash -c \
        'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec "$@"' own "$kit/bin/allreduce" "${few_cases[@]}"
}

# The kernels of several ranks side by side on one GPU: what the simulator, whose blocks have one thread, cannot show.
kernels() {
    local of
    [ "$device" = sim ] && return # make check does it
    for of in kernels exchange on_stream; do
        [ ! -x "$kit/bin/test_$of" ] || check "kernels, one GPU: test_$of" 60 1 "$kit/bin/test_$of"
    done
}

tests_stage() {
    local n
    shorten
    kernels
    measure "gpusym_info" 60 1 "$kit/bin/gpusym_info"
    [ "$most" -lt 2 ] || measure "gpusym_info --check, $most ranks" 60 "$most" "$kit/bin/gpusym_info" --check
    for n in "${ranks[@]}"; do
        every_collective "$n"
    done
    other_programs "$most"
    messages "$most"
    [ "$most" -lt 2 ] || check "faulty kernel, $most ranks" 60 "$most" "$kit/test/faults/faulty" --messages
    sharing
}

full_stage() {
    local n
    if [ "$device" = sim ]; then
        shorten
    elif [ $short = yes ]; then # the stage tests has run
        short=no quick=() few=() churn=() rounds=() thin=() fewer=(--thin 20) calls=(--n 2000) some=(--n 1000)
    fi
    for n in "${ranks[@]}"; do
        every_collective "$n"
        other_programs "$n"
        messages "$n"
    done
    check "manycomms, $most ranks" 300 "$most" "$kit/bin/manycomms"
    sharing
}

# ---- compute-sanitizer ----

# API errors are not reported: asking the driver about a host pointer is one, and that is how one asks. No kernels stay:
# for memcheck, what was allocated after a kernel began is out of bounds, and such kernels are told of it.
find_sanitizer() {
    command -v compute-sanitizer && return
    local at
    for at in /usr/local/cuda/bin /usr/local/cuda/compute-sanitizer; do
        [ -x "$at/compute-sanitizer" ] && echo "$at/compute-sanitizer" && return
    done
}

# sanitize TOOL RANKS PROGRAM ARGUMENT...: every rank says how many errors it saw; each must say none.
sanitize() {
    local tool=$1 n=$2 program=$3 clean all words
    local -x OMPI_MCA_coll_gpusym_linger=0
    shift 3
    launch "$tool $program" 90 "$n" "$sanitizer" --tool "$tool" --report-api-errors no --target-processes application-only \
        --error-exitcode 86 "$kit/bin/$program" "$@"
    all=$(grep -c 'ERROR SUMMARY\|RACECHECK SUMMARY' "$log")
    clean=$(grep -Ec 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$log")
    words=$(grep 'ERROR SUMMARY\|RACECHECK SUMMARY' "$log" | sed 's/^=* *//' | sort | uniq -c | tr -s ' \n' ' ')
    if [ $rc -eq 0 ] && [ "$all" -ge "$n" ] && [ "$clean" -eq "$all" ]; then
        verdict PASS "$tool, $program, $n ranks" "$took" "$words"
        return
    fi
    verdict FAIL "$tool, $program, $n ranks" "$took" "exit status $rc;${words:- no summary: $(closing_line "$log")}"
    grep -m 12 '^=====' "$log" | sed 's/^/     | /'
}

# sanitized TOOL
sanitized() {
    local n=2
    sanitizer=$(find_sanitizer)
    if [ "$device" = sim ] || [ -z "$sanitizer" ]; then
        verdict skip "compute-sanitizer" 0 "needs a GPU and compute-sanitizer"
        return
    fi
    [ "$gpus" -ge 2 ] || n=1
    sanitize "$1" "$n" random_coll --n 300 --kinds device
    sanitize "$1" "$n" allreduce --quick --kinds device
    sanitize "$1" 1 packing
    local -x OMPI_MCA_coll_gpusym_p2p_linger=0 OMPI_MCA_btl_vader_single_copy_mechanism=none
    sanitize "$1" "$n" p2p --thin 2000
    sanitize "$1" "$n" rma
    sanitize "$1" "$n" random_rma --n 50
}

sanitize_stage() {
    sanitized memcheck
}

racecheck_stage() {
    sanitized racecheck
}

# ---- measuring ----

# NCCL where the loader does not look: a Python package brings it along.
find_nccl() {
    local dir
    ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2' && return
    for dir in $(timeout 20 python3 -c 'import sys; print(*sys.path)' 2>/dev/null); do
        [ -e "$dir/nvidia/nccl/lib/libnccl.so.2" ] && echo "$dir/nvidia/nccl/lib" && return
    done
}

# measure LABEL LIMIT RANKS ARGUMENT...: the program's table is shown; right results are the test
measure() {
    launch "$@"
    sed '/^-*$/d; /^Primary job  terminated/,$d' "$log"
    case $rc in
        0) verdict PASS "$1" "$took" "$(grep -E '^# every|^verified' "$log")" ;;
        77) verdict skip "$1" "$took" "it says that it cannot run here" ;;
        *) verdict FAIL "$1" "$took" "exit status $rc" ;;
    esac
}

bench_stage() {
    local n sizes=(--min 64 --max 256m --step 8)
    [ "$device" = sim ] && sizes=(--min 64 --max 32k --step 8)
    for n in "${ranks[@]}"; do
        [ "$n" -gt 1 ] || [ "$most" -eq 1 ] || continue
        measure "bench, $n ranks" 150 "$n" "$kit/bin/gpusym_bench" --device "$device" --coll "$colls" "${sizes[@]}" \
            --no-in-place --csv "collectives-float-$n-ranks.csv" --json "collectives-float-$n-ranks.json"
    done
}

overlap_stage() {
    local max=(--max 128m)
    [ "$device" = sim ] && max=(--max 4k)
    measure "overlap, $most ranks" 60 "$most" "$kit/bin/overlap" --device "$device" "${max[@]}" \
        --csv "overlap-$most-ranks.csv"
    measure "trace_cost, $most ranks" 60 "$most" --mca coll_gpusym_trace "$out/trace-%r" "$kit/bin/trace_cost" \
        --device "$device" --csv "trace-cost-$most-ranks.csv"
    rm -f "$out"/trace-[0-9]*
    measure "late, $most ranks" 60 "$most" "$kit/bin/late" --device "$device" --csv "late-$most-ranks.csv"
    [ "$device" = sim ] || max=(--max 16m)
    measure "persistent, $most ranks" 60 "$most" "$kit/bin/gpusym_bench" --device "$device" --mode all --no-nccl --no-staged \
        --no-in-place --step 8 "${max[@]}" --csv "persistent-$most-ranks.csv"
}

cg_stage() {
    local n sizes=(64 128 256)
    [ "$device" = sim ] && sizes=(16)
    for n in "${sizes[@]}"; do
        measure "cg $n, $most ranks" 60 "$most" "$kit/bin/example_cg" --device "$device" --n "$n" --csv "cg-$n-$most-ranks.csv"
    done
    # The smallest also beside a serial computation: all are compared with each other.
    sizes=(256 1024 4096)
    [ "$device" = sim ] && sizes=(16)
    for n in "${sizes[@]}"; do
        local check=(--check)
        [ "$n" -le 256 ] || check=()
        measure "jacobi $n, $most ranks" 60 "$most" "$kit/bin/example_jacobi" --device "$device" --n "$n" "${check[@]}" \
            --csv "jacobi-$n-$most-ranks.csv"
        measure "heat_rma $n, $most ranks" 60 "$most" "$kit/bin/example_heat_rma" --device "$device" --n "$n" "${check[@]}" \
            --csv "heat_rma-$n-$most-ranks.csv"
    done
}

# The largest faces: of blocks of 3 GB, of which each rank computes what should be in them on the CPU.
halo_stage() {
    local face faces=(4k 64k 1m 4m)
    [ "$device" = sim ] && faces=(4k)
    for face in "${faces[@]}"; do
        measure "halo $face, $most ranks" 180 "$most" "$kit/bin/example_halo" --device "$device" --face "$face" --check \
            --csv "halo-$face-$most-ranks.csv"
    done
}

goals_stage() {
    local start=$SECONDS log=$out/logs/goals.log
    MPIRUN="mpirun --bind-to $bind_to ${common[*]}" timeout --kill-after=10 400 "$kit/bench/goals.sh" --device "$device" \
        --bin "$kit/bin" --out "$out" "$most" 2>&1 </dev/null | tee "$log"
    if grep -Eq '^goals: [1-9][0-9]* passed, 0 failed' "$log"; then
        verdict PASS "goals, $most ranks" $((SECONDS - start)) "$(closing_line "$log")"
    else
        verdict FAIL "goals, $most ranks" $((SECONDS - start)) "$(closing_line "$log")"
    fi
}

# Every size on two ranks; few on more, of which every pair is measured.
p2p_stage() {
    local sizes=(--messages 1m) small=(--only pingpong --max 64k)
    [ "$most" -gt 1 ] || { verdict skip "p2p" 0 "messages require two ranks" && return; }
    [ "$most" -eq 2 ] || sizes+=(--bytes "8,4k,64k,1m,16m,256m")
    [ "$device" = sim ] && sizes=(--max 4k --step 64 --messages 500) small=(--only pingpong --bytes 8)
    measure "p2p, $most ranks" 150 "$most" "$kit/bin/gpusym_bench" p2p --device "$device" "${sizes[@]}" \
        --csv "p2p-$most-ranks.csv"
    measure "p2p, no resident kernels" 60 2 --mca coll_gpusym_p2p_linger 0 "$kit/bin/gpusym_bench" p2p --device "$device" \
        "${small[@]}" --no-nccl --csv p2p-linger-0-2-ranks.csv
}

# Blocking and nonblocking messages of heap, static and mapped buffers.
host_stage() {
    local turn csv=host-ratio.csv turns=9
    [ "$most" -gt 1 ] || { verdict skip "host" 0 "messages require two ranks" && return; }
    [ "$device" = sim ] && turns=1
    : >host-times.txt
    for ((turn = 0; turn < turns; turn++)); do
        launch "host, without" 60 2 --mca coll ^gpusym "$kit/bin/hostpath_p2p" 200 time
        sed -n 's/^case \(.*\)/\1 without/p' "$log" >>host-times.txt
        launch "host, with" 60 2 "$kit/bin/hostpath_p2p" 200 time
        sed -n 's/^case \(.*\)/\1 with/p' "$log" >>host-times.txt
    done
    {
        echo "# times of a pair of calls on host buffers in ns: medians of $turns runs in turns, of each the least of 30 batches"
        echo "# $(mpirun --version | head -n 1), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), commit ${GPUSYM_COMMIT:-unknown}"
        echo "case,without gpusym,with it,ratio"
        sort -k1,1 -k3,3 -k2,2g host-times.txt | awk -f "$kit/test/turns.awk" | sort
    } >"$csv"
    rm -f host-times.txt
    cat "$csv"
    if [ "$(grep -c '^[a-z].*,[0-9.]*$' "$csv")" -gt 8 ]; then
        verdict PASS "host" 0 "$(grep -c ',' "$csv") lines"
    else
        verdict FAIL "host" 0 "no times"
    fi
}

# on_islands PROGRAM ARGUMENT...: a test of two islands, none of whose calls may be staged for want of a network
on_islands() {
    check "islands: ${*//,/ }" 60 2 --mca coll_gpusym_summary 1 --mca coll_gpusym_verbose 2 "$kit/bin/$1" "${@:2}"
    if [ $rc -eq 0 ] && { ! grep -Eq 'native [1-9].*rails [1-9]' "$log" || grep -Eq 'no_net [1-9]' "$log"; }; then
        verdict FAIL "islands: ${*//,/ }, way" 0 "the calls were not between islands: $(grep -m 1 'gpusym: allreduce' "$log")"
    fi
}

# Two islands by one way, beside NCCL and UCX: wire NAME TRANSPORTS-OF-UCX VARIABLE=VALUE... (NCCL's)
wire() {
    local name=$1 ucx=$2 bytes=8,512,4k,32k,256k,2m,16m,64m most=64m batches=5
    shift 2
    [ "$device" = sim ] && bytes=8,4k,64k most=256k batches=3
    local -x GPUSYM_UCX_TLS=$ucx
    # NCCL's threads, which move its data, want cores of their own.
    bind_to=none measure "hosts, $name" 90 2 env "$@" "$kit/bin/gpusym_bench" --device "$device" --coll allreduce --bytes "$bytes" \
        --batches 7 --no-staged --no-in-place --csv "hosts-$name-2-ranks.csv"
    measure "hosts, netperf, $name" 90 2 "$kit/bin/gpusym_netperf" --max "$most" --batches "$batches" \
        --csv "hosts-netperf-$name.csv"
}

# The memory that each process has pinned, as the last log tells.
pinned_memory() {
    local pinned
    pinned=$(sed -n 's/.* \([0-9]*\) bytes pinned for messages between hosts.*/\1/p' "$log" | sort -n | tail -n 1)
    if [ "${pinned:-0}" -gt 0 ] && [ "$pinned" -le $((32 << 20)) ]; then
        verdict PASS "islands: pinned memory" 0 "$pinned bytes in a process"
    else
        verdict FAIL "islands: pinned memory" 0 "${pinned:-unknown} bytes in a process; at most $((32 << 20)) are allowed"
    fi
}

hosts_stage() {
    local -x OMPI_MCA_coll_gpusym_node_size=1
    local start faults=$out/logs/hosts-faults.log
    [ "$most" -gt 1 ] || { verdict skip "hosts" 0 "islands require two ranks" && return; }
    shorten
    on_islands every "${thin[@]}"
    on_islands random_coll "${calls[@]}" --kinds device
    pinned_memory
    on_islands random_coll "${calls[@]}" --kinds host,device
    on_islands inflight
    start=$SECONDS
    MPIRUN="mpirun --bind-to $bind_to ${common[*]}" timeout --kill-after=10 150 "$kit/test/faults/faults.sh" "$kit" \
        islands-pair >"$faults" 2>&1 </dev/null
    if grep -Eq '^faults: [1-9][0-9]* passed, 0 failed' "$faults"; then
        verdict PASS "islands: faults" $((SECONDS - start)) "$(closing_line "$faults")"
    else
        verdict FAIL "islands: faults" $((SECONDS - start)) "$(closing_line "$faults")"
        grep -A 10 '^FAIL' "$faults" | head -n 40 | sed 's/^/     | /'
    fi
    wire posix posix,self NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1
    wire tcp tcp,self NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo
    hosts_table
}

# The end of a program of awk, which prints time[order[1 .. count], sizes[1 .. rows]].
print_times='
        END {
            printf "%-22s", "allreduce, us"
            for (r = 1; r <= rows; r++) printf "%10s", sizes[r]
            for (c = 1; c <= count; c++) {
                printf "\n%-22s", order[c]
                for (r = 1; r <= rows; r++) printf "%10s", time[order[c], sizes[r]]
            }
            print ""
        }'

# One table of the all-reduces of hosts_stage, in microseconds.
hosts_table() {
    awk -F, '
        /^#/ { next }
        $1 == "collective" { way = FILENAME; gsub(/^hosts-|-2-ranks.csv$/, "", way); for (i = 1; i <= NF; i++) at[$i] = i; next }
        {
            if (!($2 in size)) { size[$2] = 1; sizes[++rows] = $2 }
            time["gpusym, " way, $2] = $(at["us"]); time["NCCL, " way, $2] = $(at["nccl_us"])
            if (way != last) { order[++count] = "gpusym, " way; order[++count] = "NCCL, " way; last = way }
        }
        '"$print_times" hosts-posix-2-ranks.csv hosts-tcp-2-ranks.csv
}

# The same sizes for all; NCCL_ALGO and NCCL_PROTO hold for a process.
rings_stage() {
    local algo proto csv max=128m bytes=8,64,512,4k,32k,256k,2m,16m,128m
    local colls=allreduce,allgather,reduce_scatter_block,bcast,reduce
    [ "$device" = sim ] && max=4k bytes=8,64,512,4k
    measure "rings, $most ranks" 240 "$most" "$kit/bin/gpusym_bench" --device "$device" --coll "$colls" --sweep \
        --bytes "$bytes" --csv "rings-$most-ranks.csv" \
        --algorithms auto,ring_simple,ring_ll,ring_ll128,chain_simple,chain_ll,chain_ll128,dbtree_simple,dbtree_ll,dbtree_ll128
    measure "rings, NCCL" 60 "$most" "$kit/bin/gpusym_bench" --device "$device" --coll "$colls" --no-staged --no-in-place \
        --min 8 --max "$max" --step 8 --csv "rings-nccl-$most-ranks.csv"
    for algo in Ring Tree; do
        for proto in Simple LL LL128; do
            csv=rings-nccl-$algo-$proto-$most-ranks.csv
            NCCL_ALGO=$algo NCCL_PROTO=$proto measure "rings, NCCL $algo $proto" 60 "$most" "$kit/bin/gpusym_bench" \
                --device "$device" --no-staged --no-in-place --min 8 --max "$max" --step 8 --csv "${csv,,}"
        done
    done
    rings_table
}

# One table of the all-reduces of rings_stage, in microseconds.
rings_table() {
    awk -F, -v n="$most" '
        /^#/ { next }
        $1 == "collective" { delete at; for (i = 1; i <= NF; i++) at[$i] = i; next }
        $1 == "allreduce" {
            who = FILENAME
            sub(/^rings-/, "", who); sub("-?" n "-ranks.csv$", "", who)
            if ("asked" in at) { who = $(at["asked"]); us = $(at["us"]) } else { us = $(at["nccl_us"]) }
            if (!(who in seen)) { seen[who] = 1; order[++count] = who }
            if (!($2 in size)) { size[$2] = 1; sizes[++rows] = $2 }
            time[who, $2] = us
        }
        '"$print_times" "rings-$most-ranks.csv" rings-nccl-*"$most-ranks.csv"
}

# Those of all collectives: each leaves out what it does not have.
sweep_algorithms=agxll_r,rsxld_agxst,rsxst_agxst,ll,ld,st
sweep_blocks=8,16,32,64,128
sweep_threads=256,512

sweep_stage() {
    [ "$device" = sim ] && sweep_bytes=64,4k sweep_blocks=1,2 sweep_threads=64,128
    measure "sweep, $most ranks" 540 "$most" "$kit/bin/gpusym_bench" --device "$device" --coll "$colls" --sweep \
        --bytes "$sweep_bytes" --algorithms "$sweep_algorithms" --blocks "$sweep_blocks" --threads "$sweep_threads" \
        --csv "sweep-$most-ranks.csv"
}

faults_stage() {
    local start=$SECONDS log=$out/logs/faults.log
    MPIRUN="mpirun --bind-to $bind_to ${common[*]}" timeout --kill-after=10 300 "$kit/test/faults/faults.sh" "$kit" \
        >"$log" 2>&1 </dev/null
    if grep -Eq '^faults: [1-9][0-9]* passed, 0 failed' "$log"; then
        verdict PASS faults $((SECONDS - start)) "$(closing_line "$log")"
    else
        verdict FAIL faults $((SECONDS - start)) "$(closing_line "$log")"
        grep -A 10 '^FAIL' "$log" | head -n 40 | sed 's/^/     | /'
    fi
}

# ---- all of it ----

echo "device $device, $gpus GPUs, $(nproc) cores, $(mpirun --version | head -n 1), ranks ${ranks[*]}; logs in $out"
nccl_dir=$(find_nccl)
[ -z "$nccl_dir" ] || export LD_LIBRARY_PATH=$nccl_dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for stage in $all_stages; do
    if wants "$stage"; then
        begun=$SECONDS
        "${stage}_stage"
        echo "# $stage: $((SECONDS - begun)) s"
    fi
done
if [ $pack = yes ]; then
    tar -C "$out" -czf "$out/logs.tar.gz" logs && rm -rf "$out/logs"
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
