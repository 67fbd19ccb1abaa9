#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Tests and measures a kit (make kit KITDIR=...) on a machine that has GPUs and Open MPI 4.1, but needs no build tools:
#
#     test/gpu/run.sh [--device cuda|sim] [--stages LIST] [--bytes LIST] KITDIR [RANKS...]
#
# Stages, separated by commas (default tests,sanitize,bench):
#   tests      the test programs on RANKS (default 1 2 4, as many as there are GPUs), then two ranks that share a GPU,
#              then ranks of which each sees only its own GPU
#   sanitize   a short test under compute-sanitizer, memcheck and racecheck
#   bench      the table of MPI_Allreduce beside NCCL and staging, on each of RANKS beyond 1
#   sweep      algorithms x blocks x threads at the sizes of --bytes, on the largest of RANKS
#   faults     ranks that die or disagree (test/faults/faults.sh)
# A line a test, the closing line is "N passed, M failed"; so says the exit status. All output is kept in $OUT, or
# ./gpu-results without it, the tables also as CSV. --device sim exercises this script where there is no GPU.
# NVLink multicast is kept off, here and in NCCL: a job that is killed can leave it broken for every user of the GPUs.
set -u

usage="usage: test/gpu/run.sh [--device cuda|sim] [--stages tests,sanitize,bench,sweep,faults] [--bytes LIST] KITDIR [RANKS...]"
device=${GPUSYM_TEST_DEVICE:-cuda}
stages=tests,sanitize,bench
sweep_bytes=8,4k,64k,1m,16m,256m
while [ $# -gt 0 ]; do
    case $1 in
        --device) device=${2:?$usage} && shift 2 ;;
        --stages) stages=${2:?$usage} && shift 2 ;;
        --bytes) sweep_bytes=${2:?$usage} && shift 2 ;;
        -*) echo "$usage" >&2 && exit 2 ;;
        *) break ;;
    esac
done
for stage in ${stages//,/ }; do
    case $stage in
        tests | sanitize | bench | sweep | faults) ;;
        *) echo "there is no stage $stage; $usage" >&2 && exit 2 ;;
    esac
done
kit=$(cd "${1:?$usage}" && pwd) || exit 2
shift
out=${OUT:-./gpu-results}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
chmod +x "$kit"/bin/* "$kit"/test/faults/* || exit 2

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
export GPUSYM_TEST_DEVICE=$device

gpus=4 # the simulator has as many as there are ranks
[ "$device" = sim ] || gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
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
    { grep -E 'passed, [0-9]+ failed|^verified:' "$1" || grep -vE '^-*$' "$1"; } | tail -n 1
}

# launch LABEL LIMIT RANKS ARGUMENT...: mpirun with its log in $log; sets rc, took
launch() {
    local limit=$2 n=$3 start=$SECONDS
    log=$out/${1//[^A-Za-z0-9._-]/-}.log
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
            if grep -Eq '[1-9][0-9]* passed, 0 failed|^verified: yes' "$log"; then
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

# The bytes of test/mpi/big: beyond 2^31 only where memory is plentiful.
big_bytes=2400000000
[ "$device" = sim ] && big_bytes=4m
# The simulator computes on the CPU: enough to try this script.
few=()
churn=()
if [ "$device" = sim ]; then
    few=(--n 60)
    churn=(--churn 150 --alive 40)
fi

all_programs() {
    local n=$1
    check "example, $n ranks" 60 "$n" "$kit/bin/example_allreduce" --device "$device"
    check "allreduce, $n ranks" 120 "$n" "$kit/bin/allreduce"
    check "random, $n ranks" 60 "$n" "$kit/bin/random" "${few[@]}"
    check "mixed, $n ranks" 120 "$n" "$kit/bin/mixed"
    # a rank's threads wait for each other: not on one core
    bind_to=none check "threads, $n ranks" 60 "$n" "$kit/bin/threads" "${few[@]}"
    check "comms, $n ranks" 120 "$n" "$kit/bin/comms" "${churn[@]}"
    check "pvars, $n ranks" 60 "$n" "$kit/bin/pvars"
    check "big, $n ranks" 120 "$n" "$kit/bin/big" --bytes "$big_bytes" --kinds device
}

tests_stage() {
    local n quick=(--quick --kinds device) one=()
    for n in "${ranks[@]}"; do
        all_programs "$n"
    done
    # Kernels of one GPU that wait for each other: refused (staged), unless it is said that they run at the same time.
    one=(-x CUDA_VISIBLE_DEVICES=0)
    [ "$device" = sim ] && one=(--mca coll_gpusym_sim_gpus 1)
    check "shared GPU, 2 ranks" 60 2 "${one[@]}" "$kit/bin/allreduce" "${quick[@]}"
    check "shared GPU, 2 ranks, share_gpu 1" 120 2 "${one[@]}" --mca coll_gpusym_share_gpu 1 "$kit/bin/allreduce" \
        "${quick[@]}"
    [ "$most" -gt 1 ] || return
    # shellcheck disable=SC2016  # each rank's own shell is to expand it
    check "own GPU only, $most ranks" 60 "$most" bash -c \
        'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec "$@"' own "$kit/bin/allreduce" "${quick[@]}"
}

# ---- compute-sanitizer ----

# API errors are not reported: asking the driver about a host pointer is one, and that is how one asks.
find_sanitizer() {
    command -v compute-sanitizer && return
    local at
    for at in /usr/local/cuda/bin /usr/local/cuda/compute-sanitizer; do
        [ -x "$at/compute-sanitizer" ] && echo "$at/compute-sanitizer" && return
    done
}

# Every rank says how many errors it saw; each must say none.
sanitize() {
    local tool=$1 n=$2 clean all words
    launch "sanitize $tool" 60 "$n" "$sanitizer" --tool "$tool" --report-api-errors no --target-processes application-only \
        --error-exitcode 86 "$kit/bin/allreduce" --quick --kinds device
    all=$(grep -c 'ERROR SUMMARY\|RACECHECK SUMMARY' "$log")
    clean=$(grep -Ec 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$log")
    words=$(grep 'ERROR SUMMARY\|RACECHECK SUMMARY' "$log" | sed 's/^=* *//' | sort | uniq -c | tr -s ' \n' ' ')
    if [ $rc -eq 0 ] && [ "$all" -ge "$n" ] && [ "$clean" -eq "$all" ]; then
        verdict PASS "$tool, $n ranks" "$took" "$words"
        return
    fi
    verdict FAIL "$tool, $n ranks" "$took" "exit status $rc;${words:- no summary: $(closing_line "$log")}"
    grep -m 12 '^=====' "$log" | sed 's/^/     | /'
}

sanitize_stage() {
    local n=2
    sanitizer=$(find_sanitizer)
    if [ "$device" = sim ] || [ -z "$sanitizer" ]; then
        verdict skip "compute-sanitizer" 0 "needs a GPU and compute-sanitizer"
        return
    fi
    [ "$gpus" -ge 2 ] || n=1
    sanitize memcheck "$n"
    sanitize racecheck "$n"
}

# ---- measuring ----

# NCCL where the loader does not look: a Python package brings it along.
find_nccl() {
    local dir
    ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2' && return
    for dir in $(python3 -c 'import sys; print(*sys.path)' 2>/dev/null); do
        [ -e "$dir/nvidia/nccl/lib/libnccl.so.2" ] && echo "$dir/nvidia/nccl/lib" && return
    done
}

# measure LABEL LIMIT RANKS ARGUMENT...: the program's table is shown; right results are the test
measure() {
    launch "$@"
    grep -vE '^-+$' "$log"
    case $rc in
        0) verdict PASS "$1" "$took" "$(grep '^# every' "$log")" ;;
        *) verdict FAIL "$1" "$took" "exit status $rc" ;;
    esac
}

bench_stage() {
    local n max=()
    [ "$device" = sim ] && max=(--max 256k)
    for n in "${ranks[@]}"; do
        [ "$n" -gt 1 ] || [ "$most" -eq 1 ] || continue
        measure "bench, $n ranks" 120 "$n" "$kit/bin/allreduce_nccl" --device "$device" "${max[@]}" \
            --csv "$out/allreduce-$n.csv"
    done
}

sweep_algorithms=agxll_r,rsxld_agxst,rsxst_agxst
sweep_blocks=8,16,32,64,128
sweep_threads=256,512

# Where MPI_T cannot set the parameters: a run for each combination.
sweep_by_runs() {
    local a b t rows=$out/sweep-$most.csv wrong=0
    : >"$rows"
    for a in ${sweep_algorithms//,/ }; do
        for b in ${sweep_blocks//,/ }; do
            for t in ${sweep_threads//,/ }; do
                launch "sweep $a $b $t" 60 "$most" --mca coll_gpusym_allreduce_algorithm "$a" \
                    --mca coll_gpusym_blocks "$b" --mca coll_gpusym_threads "$t" "$kit/bin/allreduce_nccl" \
                    --device "$device" --sweep --bytes "$sweep_bytes" --csv "$out/sweep.part"
                [ $rc -eq 0 ] || { wrong=$((wrong + 1)) && echo "# $a $b $t: exit status $rc"; }
                [ -s "$rows" ] || grep '^# ' "$out/sweep.part" >"$rows"
                # the columns asked, blocks and threads were left to us
                awk -F, -v OFS=, -v a="$a" -v b="$b" -v t="$t" \
                    '/^[0-9]/ { $2 = a; $4 = b; $5 = t; print }' "$out/sweep.part" | tee -a "$rows.new"
            done
        done
    done
    { echo "bytes,asked,ran,blocks,threads,us,busbw_GBs,wrong" && cat "$rows.new"; } >>"$rows"
    rm -f "$rows.new" "$out/sweep.part"
    if [ $wrong -eq 0 ]; then
        verdict PASS "sweep, $most ranks" "$((SECONDS - $1))" "a run for each combination"
    else
        verdict FAIL "sweep, $most ranks" "$((SECONDS - $1))" "$wrong combinations"
    fi
}

sweep_stage() {
    local start=$SECONDS
    [ "$device" = sim ] && sweep_bytes=64,4k sweep_blocks=1,2 sweep_threads=64,128
    launch "sweep" 300 "$most" "$kit/bin/allreduce_nccl" --device "$device" --sweep --bytes "$sweep_bytes" \
        --algorithms "$sweep_algorithms" --blocks "$sweep_blocks" --threads "$sweep_threads" \
        --csv "$out/sweep-$most.csv"
    if [ $rc -ne 0 ] && grep -q 'cannot be set by MPI_T' "$log"; then
        grep -m 1 'cannot be set by MPI_T' "$log"
        sweep_by_runs "$start"
        return
    fi
    grep -vE '^-+$' "$log"
    if [ $rc -eq 0 ]; then
        verdict PASS "sweep, $most ranks" "$took" "$(grep '^# every' "$log")"
    else
        verdict FAIL "sweep, $most ranks" "$took" "exit status $rc"
    fi
}

faults_stage() {
    local start=$SECONDS log=$out/faults.log
    MPIRUN="mpirun --bind-to $bind_to ${common[*]}" timeout --kill-after=10 300 "$kit/test/faults/faults.sh" "$kit" >"$log" 2>&1 </dev/null
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
for stage in tests sanitize bench sweep faults; do
    if wants $stage; then
        "${stage}_stage"
    fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
