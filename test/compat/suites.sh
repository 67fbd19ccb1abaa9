#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs public test suites of point to point, unmodified, with every buffer taken for device memory by the simulator:
#
#     test/compat/suites.sh BUILDDIR [SUITE...]      mpich osu imb mpi4py; none named: all
#
# What passes without gpusym must pass with it; what does not is only named. The closing line is "N passed, M failed".
# Sources are fetched and built once, and kept in
# ${GPUSYM_COMPAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpusym}/suites/SUITE;
# sources that are there before are not fetched.
set -u

builddir=$(cd "${1:?usage: test/compat/suites.sh BUILDDIR [SUITE...]}" && pwd) || exit 2
shift
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(mpich osu imb mpi4py)
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/mpirun.sh
. "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL
cache=${GPUSYM_COMPAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpusym}/suites
results=$builddir/test/results/suites
mkdir -p "$cache" "$results" || exit 2
passed=0
failed=0

die() {
    printf 'suites.sh: %s\n' "$*" >&2
    exit 1
}

# fetched SUITE COMMAND...: the folder of its sources, made by the command if it is not there
fetched() {
    local suite=$1
    shift
    if [ ! -d "$cache/$suite" ]; then
        echo "fetching $suite"
        rm -rf "$cache/$suite.part"
        mkdir "$cache/$suite.part"
        (cd "$cache/$suite.part" && "$@") >"$results/$suite.fetch" 2>&1 ||
            die "$suite cannot be fetched: $results/$suite.fetch; or put its sources into $cache/$suite"
        mv "$cache/$suite.part" "$cache/$suite"
    fi
    cd "$cache/$suite" || exit 2
}

# built SUITE COMMAND: builds it in its folder, once. What of it cannot be built does not run.
built() {
    [ -e .built ] && return
    echo "building $1"
    bash -c "$2" >"$results/$1.build" 2>&1
    touch .built
}

# once gpusym|^gpusym RANKS SECONDS LOG COMMAND...
once() {
    local coll=$1 ranks=$2 seconds=$3 log=$4 environment=(OMPI_MCA_coll="$1")
    shift 4
    [ "$coll" != gpusym ] || environment+=(OMPI_MCA_coll_gpusym_device=sim OMPI_MCA_coll_gpusym_sim_host=1)
    # shellcheck disable=SC2154  # test/mpirun.sh sets it
    env "${environment[@]}" timeout --kill-after=10 "$seconds" "$GPUSYM_OMPI_MPIRUN" -n "$ranks" "${oversubscribe[@]}" \
        "$@" >"$log" 2>&1 </dev/null
}

# both JUDGE NAME RANKS SECONDS COMMAND...: without gpusym and with it. JUDGE LOG: whether what it says is right.
both() {
    local judge=$1 name=$2 ranks=$3 seconds=$4 log
    shift 4
    log=$results/$(tr -c 'A-Za-z0-9._\n-' _ <<<"$name")
    if ! once ^gpusym "$ranks" "$seconds" "$log.without" "$@" || ! $judge "$log.without"; then
        echo "none $name: fails without gpusym"
    elif once gpusym "$ranks" $((5 * seconds)) "$log" "$@" && $judge "$log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name, $ranks ranks: $log"
        tail -n 5 "$log" | sed 's/^/     | /'
    fi
}

# ---- MPICH: test/mpi/pt2pt, part, topo, threads/pt2pt ----

says_no_errors() {
    grep -q 'No Errors' "$1"
}

# A line of a testlist: PROGRAM RANKS [arg=... env=... mem=... ...]; those for other versions of a variable are one.
mpich_line() {
    local folder=$1 program=$2 ranks=$3 arguments=() word
    shift 3
    for word in "$@"; do
        case $word in
            arg=*) arguments+=("${word#arg=}") ;;
            env=* | mem=*) return ;; # MPICH's own parameters; more memory than a test may take
        esac
    done
    [ -x "$folder/$program" ] || return
    both says_no_errors "$folder/$program ${arguments[*]}" "$ranks" 30 "./$folder/$program" "${arguments[@]}"
}

suite_mpich() {
    fetched mpich git clone --depth 1 https://github.com/pmodels/mpich .
    # shellcheck disable=SC2016  # for the shell that builds
    built mpich 'cd test/mpi && MPICH_CONFDB=$PWD/../../confdb ./autogen.sh && ./configure CC=mpicc --disable-fortran --disable-cxx --without-cuda &&
        for folder in pt2pt part topo threads/pt2pt; do make -k -C $folder check TESTS=; done'
    cd test/mpi || exit 2
    for folder in pt2pt part topo threads/pt2pt; do
        while read -r program ranks rest; do
            # shellcheck disable=SC2086  # words are meant
            [[ ! $ranks =~ ^[0-9]+$ ]] || mpich_line $folder "$program" "$ranks" $rest
        done < <(cat $folder/testlist $folder/testlist.dtp 2>/dev/null)
    done
}

# ---- OSU micro-benchmarks 7.4, which check their data ----

says_pass() {
    grep -q 'Pass' "$1" && ! grep -qi 'fail' "$1"
}

suite_osu() {
    local name=osu-micro-benchmarks-7.4
    fetched osu bash -c "curl -fsSL https://mvapich.cse.ohio-state.edu/download/mvapich/$name.tar.gz | tar xz --strip-components=1"
    built osu './configure CC=mpicc CXX=mpicxx && make -C c/util && make -C c/mpi/pt2pt'
    for program in c/mpi/pt2pt/standard/osu_{latency,bw,bibw,multi_lat,mbw_mr,latency_mt} \
        c/mpi/pt2pt/persistent/osu_{latency,bw,bibw}_persistent c/mpi/pt2pt/congestion/osu_bw_fan_{in,out}; do
        case $program in *_mt) set -- -t 2:2 ;; *) set -- ;; esac
        both says_pass "$program" 2 60 "$program" -c -i 10 -x 2 -m 1:1048576 "$@"
    done
}

# ---- IMB-MPI1 and IMB-P2P, which check their data ----

says_no_defects() {
    ! grep -qiE 'error|defect.*[1-9]' "$1"
}

suite_imb() {
    fetched imb git clone --depth 1 https://github.com/intel/mpi-benchmarks .
    # shellcheck disable=SC2016  # for the shell that builds
    built imb 'for name in MPI1 P2P; do make -C src_cpp clean; make -C src_cpp IMB-$name TARGET=$name CC=mpicc CXX=mpicxx \
        CPPFLAGS=-DOMPI_SKIP_MPICXX CXXFLAGS="-DCHECK -DOMPI_SKIP_MPICXX"; cp src_cpp/IMB-$name .; done'
    for name in PingPong PingPing Sendrecv Exchange; do
        both says_no_defects "IMB-MPI1 $name" 2 60 ./IMB-MPI1 -msglog 1:20 -iter 20 $name
    done
    for name in PingPong Unirandom Corandom Birandom Sendrecv_Replace Stencil2D Stencil3D; do
        [ -x ./IMB-P2P ] || { echo "none IMB-P2P: these sources have none" && break; }
        both says_no_defects "IMB-P2P $name" 2 60 ./IMB-P2P -msglog 1:20 -iter 20 $name
    done
}

# ---- mpi4py ----

says_ok() {
    ! grep -qE '^(FAILED|ERROR|FAIL)' "$1" && grep -q '^OK' "$1"
}

suite_mpi4py() {
    fetched mpi4py bash -c 'python3 -m pip download --no-deps --no-binary mpi4py mpi4py==4.0.3 && tar xzf mpi4py-*.tar.gz --strip-components=1'
    built mpi4py 'python3 -m venv venv && MPICC=mpicc venv/bin/pip install .'
    for file in test/test_p2p_*.py test/test_msgspec.py test/test_status.py test/test_request.py; do
        both says_ok "mpi4py $(basename "$file" .py)" 2 60 venv/bin/python test/main.py -i "$(basename "$file" .py)"
    done
}

for suite in "${suites[@]}"; do
    case $suite in mpich | osu | imb | mpi4py) ;; *) die "no suite $suite" ;; esac
    "suite_$suite"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
