#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What gpusym says, on the simulator: the summary, verbose lines, errors to the user, the benchmark.
#
#     test/said.sh BUILDDIR
#
# The closing line is "said: N passed, M failed".
set -u
builddir=$(cd "${1:?usage: test/said.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/mpirun.sh
. "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL
export OMPI_MCA_coll=gpusym OMPI_MCA_coll_gpusym_device=sim GPUSYM_TEST_DEVICE=sim
# shellcheck disable=SC2154  # test/mpirun.sh sets it
mpirun=("$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}")
said=$builddir/test/mpi/said
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
# shellcheck source=test/verdict.sh
. "$GPUSYM_SRCDIR/test/verdict.sh" || exit 2

# run WHAT ARGUMENT...: four ranks; what they say is in $dir/log
run() {
    label=$1
    shift
    timeout $((60 * ${GPUSYM_TEST_SLOW:-1})) "${mpirun[@]}" -n 4 "$@" >"$dir/log" 2>&1 </dev/null
}

# says REGEX [N]: N lines match, 1 if it is not given
says() {
    local n
    n=$(grep -Ec -- "$1" "$dir/log")
    verdict "$label: ${2:-1} x $1" "$([ "$n" = "${2:-1}" ] || echo "$n")" "$dir/log"
}

# The summary: sums over the ranks, and how they differ.
run summary --mca coll_gpusym_summary 1 "$said" --what sums
says '^gpusym: [0-9.]+[^ ]*, Open MPI [0-9.]+[^ ]*, 4 ranks on 1 host, 4 x simulated GPU$'
says '^gpusym: allreduce: native 20 \(.*\), staged 30 \[0 to 10 a rank\] \(user_op 30\), forwarded .*; [0-9.]+ KiB, [0-9.]+ us a blocking call$'
says '^gpusym: staged, user_op: the operation is user-defined\. To do: .'
says '^gpusym: alltoall' 0
run "summary, no calls" --mca coll_gpusym_summary 1 "$said"
says '^gpusym: .*, 4 ranks on 1 host, no GPU was used$'
says '^gpusym: alltoall' 0
run "summary, no device" --mca coll_gpusym_summary 1 --mca coll_gpusym_device none "$builddir/test/mpi/big" --bytes 1k --kinds host
says '^gpusym: .*, 4 ranks on 1 host, no device: coll_gpusym_device is none$'
run "summary, one rank without" --mca coll_gpusym_summary 1 "$GPUSYM_SRCDIR/test/onrank.sh" 2 coll_gpusym_summary=0 "$said"
says '^gpusym: .*, 4 ranks on 1 host, of which 3 are counted, '
run "summary, rank 0 without" --mca coll_gpusym_summary 1 "$GPUSYM_SRCDIR/test/onrank.sh" 0 coll_gpusym_summary=0 "$said"
says '^gpusym: ' 0

# Verbose lines name the process by its rank; level 1 is one line.
run "verbose 1" --mca coll_gpusym_verbose 1 "$said" --what sums
says '^\[[^]]*:rank 0\] gpusym: .*, Open MPI .*, 4 ranks; device: the simulator; collectives: served; messages of GPU memory: served$'
says '^\[[^]]*\] gpusym: '
run "verbose 5" --mca coll_gpusym_verbose 5 "$said" --what sums
for rank in 0 1 2 3; do
    says "^\[[^]]*:rank $rank\] gpusym: MPI_COMM_WORLD .*: 4 ranks, priority 90$"
done

# Errors: once a node; what the user wrote, what is allowed, which name is near.
run "bad value" --mca coll_gpusym_blocks 1x "$said"
says '^The MCA parameter coll_gpusym_blocks cannot be "1x"\.$'
says '^Allowed: 0 to [0-9]+ blocks\.$'
run "two bad values" --mca coll_gpusym_blocks 1x --mca coll_gpusym_threads 7 "$said"
says '^The MCA parameter coll_gpusym_(blocks|threads) cannot be' 2
run "misspelled on the command line" --mca coll_gpusym_sumary 1 "$said"
says '^There is no MCA parameter coll_gpusym_sumary:$'
says '^Is coll_gpusym_summary meant\?$'
OMPI_MCA_opal_common_gpusym_heapsize=8M run "misspelled in the environment" "$said"
says '^There is no MCA parameter opal_common_gpusym_heapsize:$'
says '^Is opal_common_gpusym_heap_size meant\?$'
printf 'coll_gpusym_zero_cpy = 0\n# coll_gpusym_comment = 1\n' >"$dir/params"
OMPI_MCA_mca_base_param_files=$dir/params run "misspelled in a file" "$said"
says '^There is no MCA parameter coll_gpusym_zero_cpy:$'
says "^$dir/params sets it, without any effect\.$"
says '^Is coll_gpusym_zero_copy meant\?$'
says '^There is no MCA parameter' 1
run "mismatch" "$said" --what mismatch
says '^do not make the same calls\.  Call 4 on this communicator is the first that$'
says '^    rank [0-9]+: MPI_Bcast, 8 bytes$'
says '^    rank [0-9]+: MPI_Allreduce, 8 bytes$'

# The benchmark: arguments, version, the device of this mpirun.
run "bench, wrong argument" "$builddir/bench/gpusym_bench" --coll nothing
says '^--coll nothing: allreduce, '
says 'MPI_ABORT' 0
run "bench, no arguments" "$builddir/bench/gpusym_bench"
says '^# NO GPU: the simulator '
says '^ +bytes +allreduce +allgather +reduce_scatter +bcast +reduce +alltoall$'
says '^ +1048576( +[0-9.]+){6}$'
says '^# every element of every result is right$'
label="bench, version"
"$builddir/bench/gpusym_bench" --version >"$dir/log" 2>&1
says '^gpusym_bench \(gpusym\) [0-9]+\.[0-9]+\.[0-9]+'

# Counters are for experts.
label=ompi_info
LD_PRELOAD=${GPUSYM_TEST_PRELOAD:-} "$GPUSYM_OMPI_INFO" --param coll gpusym --level 8 >"$dir/log" 2>&1
says 'coll_gpusym_allreduce_native' 0
echo "said: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
