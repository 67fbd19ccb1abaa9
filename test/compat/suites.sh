#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs public test suites, unmodified, with every buffer taken for device memory by the simulator:
#
#     test/compat/suites.sh BUILDDIR FOLDER [SUITE...]
#
# FOLDER has what its user built with this Open MPI's mpicc, each as its own instructions say; a suite that is not there
# does not run:
#     FOLDER/mpich     MPICH's test/mpi, without CUDA: suites mpich-coll, mpich-comm, mpich-errors and mpich-threadscoll of
#                      collectives; mpich-pt2pt, mpich-types, mpich-topo, mpich-threads, and mpich-part, which needs MPI 4;
#                      and one-sided calls, mpich-rma, and mpich-rmahost with host memory (of commit 6a79bf6575c3)
#     FOLDER/osu       OSU micro-benchmarks 7.4 without CUDA: suite osu
#     FOLDER/imb       IMB-MPI1 with -DCHECK, and IMB-MT: suite imb
#     FOLDER/mpi4py    the sources of mpi4py, with a Python environment venv that has it installed: suite mpi4py
#
# What passes without gpusym must pass with it; what does not pass without it is only named. With it each program's
# collective calls that gpusym served, and its messages of device memory, are counted; the closing lines are "N calls, M
# messages of device memory" (by rank 0 of each) and "N passed, M failed, K skipped". SUITES_TIME (60): the seconds that a program may take without gpusym; with it, five
# times as many.
# shellcheck disable=SC2317  # suites and judges are called by name
set -u

die() {
    printf 'suites.sh: %s\n' "$*" >&2
    exit 1
}

# once gpusym|^gpusym RANKS LOG COMMAND...
once() {
    local coll=$1 ranks=$2 log=$3 environment=(OMPI_MCA_coll="$1") seconds=$limit
    shift 3
    if [ "$coll" = gpusym ]; then
        environment+=(OMPI_MCA_coll_gpusym_device=sim OMPI_MCA_coll_gpusym_sim_host="$device" OMPI_MCA_coll_gpusym_summary=1)
        seconds=$((5 * limit))
    fi
    # shellcheck disable=SC2154  # test/mpirun.sh sets it
    env "${environment[@]}" timeout --kill-after=10 "$seconds" "$GPUSYM_OMPI_MPIRUN" -n "$ranks" "${oversubscribe[@]}" \
        "$@" >"$log" 2>&1 </dev/null
}

# How many collective calls a log says that kernels or copies through host memory served for rank 0.
count_calls() {
    grep -E '^gpusym: [a-z_]+: native ' "$1" | sed -E 's/.*: native ([0-9]+).* staged ([0-9]+)[ ,].*/\1 \2/' |
        awk '{n += $1 + $2} END {print n + 0}'
}

# How many messages a log says that rank 0 sent from device memory or received into it.
count_messages() {
    grep '^gpusym: p2p:' "$1" | tr -c '0-9\n' ' ' | awk '{for (i = 1; i <= NF; i++) n += $i} END {print n + 0}'
}

# both JUDGE NAME RANKS COMMAND...: without gpusym and with it. JUDGE LOG: whether what it says is right.
both() {
    local judge=$1 name=$2 ranks=$3 log
    shift 3
    log=$results/$(tr -c 'A-Za-z0-9._\n-' _ <<<"$name")
    if ! once ^gpusym "$ranks" "$log.without" "$@" || ! $judge "$log.without"; then
        skipped=$((skipped + 1))
        echo "skip $name, $ranks ranks: does not pass without gpusym"
    elif once gpusym "$ranks" "$log" "$@" && $judge "$log"; then
        passed=$((passed + 1))
        calls=$((calls + $(count_calls "$log"))) messages=$((messages + $(count_messages "$log")))
        echo "PASS $name, $ranks ranks: $(count_calls "$log") calls, $(count_messages "$log") messages"
    else
        failed=$((failed + 1))
        echo "FAIL $name, $ranks ranks: $log"
        tail -n 5 "$log" | sed 's/^/     | /'
    fi
}

# ---- MPICH: folders of test/mpi ----

says_no_errors() {
    grep -q 'No Errors' "$1"
}

# mpich_line FOLDER PROGRAM RANKS [arg=... env=... mem=... ...]: a line of a testlist
mpich_line() {
    local folder=$1 program=$2 ranks=$3 arguments=() word
    shift 3
    for word in "$@"; do
        case $word in
            arg=-testsize=*) arguments+=(-testsize=2) ;; # a sample: all take an hour
            arg=*) arguments+=("${word#arg=}") ;;
            env=* | mem=*) return ;; # MPICH's own parameters; more memory than a test may take
        esac
    done
    [ -x "$folder/$program" ] || return
    both says_no_errors "$folder/$program ${arguments[*]}" "$ranks" "${before[@]}" "./$folder/$program" "${arguments[@]}"
}

# mpich_list FOLDER LIST
mpich_list() {
    local program ranks rest
    [ -e "mpich/$1/$2" ] || return
    cd mpich || exit 2
    while read -r program ranks rest; do
        # shellcheck disable=SC2086  # words are meant
        [[ ! $ranks =~ ^[0-9]+$ ]] || mpich_line "$1" "$program" "$ranks" $rest
    done <"$1/$2"
    cd .. || exit 2
}

# Windows of MPI_Win_create, and dynamic ones, are gpusym's: their memory is taken for device memory, or requested. Without
# gpusym 4.1 has no component for them here, but one that is not chosen by itself.
mpich_rma() {
    local library=$results/dynamic.so
    [ "$GPUSYM_OMPI_MAJOR" != 4 ] || export OMPI_MCA_osc=gpusym,pt2pt,sm
    "$GPUSYM_OMPI_MPICC" -shared -fPIC -o "$library" "$GPUSYM_SRCDIR/test/compat/dynamic.c" ||
        die "dynamic.c cannot be built"
    before=(env LD_PRELOAD="$library")
    mpich_list rma testlist
    before=()
    unset OMPI_MCA_osc
}

# ---- OSU micro-benchmarks, which check their data ----

says_pass() {
    grep -q 'Pass' "$1" && ! grep -qi 'fail' "$1"
}

# Not osu_latency_mt, which does not call MPI_Finalize, nor osu_bw_fan_in and osu_bw_fan_out, which want several nodes.
suite_osu() {
    local program folder=osu/c/mpi/pt2pt
    for program in $folder/standard/osu_{latency,bw,bibw,multi_lat,mbw_mr} \
        $folder/persistent/osu_{latency,bw,bibw}_persistent; do
        both says_pass "$program" 2 "$program" -c -i 5 -x 1 -m 1:1048576
    done
}

# ---- IMB-MPI1 and IMB-MT, which check their data ----

# The last column is that of the defects.
says_no_defects() {
    grep -q 'defects$' "$1" && awk '/^ +[0-9]/ {rows++; bad += $NF != 0} END {exit !rows || bad}' "$1"
}

says_no_failures() {
    ! grep -q 'CHECK FAILURES' "$1" && grep -qE '^ +[0-9]+ +[0-9]+ ' "$1"
}

suite_imb() {
    local name
    for name in PingPong PingPing Sendrecv Exchange; do
        both says_no_defects "IMB-MPI1 $name" 2 imb/IMB-MPI1 -msglog 1:20 -iter 20 "$name"
    done
    for name in PingPongMT PingPingMT SendRecvMT ExchangeMT UniBandMT BiBandMT; do
        both says_no_failures "IMB-MT $name" 2 env OMP_NUM_THREADS=2 imb/IMB-MT -thread_level multiple -check true \
            -repeat 20 -warmup 2 -window_size 8 -count 1,8,1024,65536 "$name"
    done
}

# ---- mpi4py ----

# testTestSomeRecv wants one MPI_Testsome to return each receive whose MPI_Ssend has returned. MPI promises only that
# these have begun, and a message of device memory is then still being copied.
says_ok() {
    [ "$(grep -cE '^(OK|FAILED)' "$1")" = 2 ] && ! grep -E '^(ERROR|FAIL):' "$1" | grep -qv '^FAIL: testTestSomeRecv '
}

suite_mpi4py() {
    local file name
    for file in mpi4py/test/test_{cco,p2p}_*.py mpi4py/test/test_{msgspec,status,request}.py; do
        name=$(basename "$file" .py)
        # shellcheck disable=SC2016  # for the shell of the rank
        both says_ok "mpi4py $name" 2 bash -c '"$@" || true' bash \
            mpi4py/venv/bin/python mpi4py/test/main.py -i "$name"
    done
}

main() {
    local usage="usage: test/compat/suites.sh BUILDDIR FOLDER [SUITE...]" builddir suite
    builddir=$(cd "${1:?$usage}" && pwd) || exit 2
    cd "${2:?$usage}" || exit 2
    shift 2
    [ $# -gt 0 ] || set -- mpich-coll mpich-comm mpich-errors mpich-threadscoll mpich-pt2pt mpich-types mpich-part mpich-topo mpich-threads mpich-rma mpich-rmahost osu imb mpi4py
    # shellcheck source=/dev/null
    . "$builddir/test/build.env" || exit 2
    # shellcheck source=test/mpirun.sh
    . "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
    export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL
    results=$builddir/test/results/suites limit=${SUITES_TIME:-60}
    passed=0 failed=0 skipped=0 calls=0 messages=0 device=1 before=()
    mkdir -p "$results" || exit 2
    for suite in "$@"; do
        [ -e "${suite%%-*}" ] || {
            echo "none $suite: no ${suite%%-*} in $PWD"
            continue
        }
        case $suite in
            mpich-errors) mpich_list errors/coll testlist ;;
            mpich-threadscoll) mpich_list threads/coll testlist && mpich_list threads/comm testlist ;;
            mpich-types) mpich_list coll testlist.dtp && mpich_list pt2pt testlist.dtp && mpich_list part testlist.dtp ;;
            mpich-rma) mpich_rma ;;
            mpich-rmahost)
                device=0
                mpich_rma
                device=1
                ;;
            mpich-threads) mpich_list threads/pt2pt testlist ;;
            mpich-coll | mpich-comm | mpich-pt2pt | mpich-part | mpich-topo) mpich_list "${suite#mpich-}" testlist ;;
            osu | imb | mpi4py) "suite_$suite" ;;
            *) die "no suite $suite" ;;
        esac
    done
    echo "$calls calls, $messages messages of device memory"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ] && [ $passed -gt 0 ]
    exit
}

main "$@"
