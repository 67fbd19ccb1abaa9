#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Tuner plug-ins, on the simulator: what one answers is done, and asked for once; what cannot be followed is reported, and the
# table chooses; ranks that have none, or another; gpusym_info --why names it.
#
#     test/tuner.sh BUILDDIR
#
# The closing line is "N as expected, M not".
set -u
builddir=$(cd "${1:?usage: test/tuner.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/output.sh
. "$GPUSYM_SRCDIR/test/output.sh" || exit 2
on_simulator
tuner=$builddir/test/faults/.libs/libtuner.so
example=$builddir/examples/.libs/libtuner.so

# calls WHAT ANSWER [ARGUMENT...]: all-reduces from 8 bytes to 1 MiB on 3 ranks, by plug-in $tuner, which answers so
calls() {
    # shellcheck disable=SC2154  # test/mpirun.sh sets it
    TEST_TUNER=$2 run "$1" "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -x TEST_TUNER -n 3 --mca coll_gpusym_summary 1 \
        --mca coll_gpusym_tuner "$tuner" "${@:3}" "$builddir/examples/allreduce"
}

calls 'an answer' ring_ll:2 --mca coll_gpusym_verbose 2 --mca coll_gpusym_trace "$dir/trace"
says '^tuner: init MPI_COMM_WORLD .*: 3 ranks, simulated GPU'
says '^tuner: choose allreduce, 8 to 15 bytes of f32, sum$'
says '^tuner: choose allreduce, ' "$(grep -c '^tuner: choose allreduce' "$dir/log")"
verdict 'no class is asked for twice' "$(grep '^tuner: choose' "$dir/log" | sort | uniq -d)"
says '^tuner: finalize$'
says 'MPI_COMM_WORLD.*: rank 2: tuner test: allreduce from 8 bytes of f32: ring_ll, blocks 2,'
says '^gpusym: allreduce: native [0-9]+ \(ring_ll [0-9]+\)'
says ': wrong' 0
cat "$dir"/trace* >"$dir/log"
label='the trace'
verdict 'all by two blocks' "$(grep '"coll":"allreduce"' "$dir/log" | grep -v '"blocks":2' | head -1)"
calls 'algorithms of the user' ring_ll --mca coll_gpusym_algorithm allreduce:dbtree_ll
says '^gpusym: allreduce: native [0-9]+ \(dbtree_ll [0-9]+\)'
calls 'an algorithm that lacks something' agxllmc_r
says 'cannot follow the tuner$' 0
says '^gpusym: allreduce: .*agxllmc_r' 0
calls 'no answer' -
says 'cannot follow the tuner$' 0

# What cannot be is reported once, and changes nothing.
for bad in 'ring_lll;ring_lll is no algorithm of allreduce' '-:9999;9999 blocks, of 4 at most' \
    '-:1:33;33 threads, which is no multiple of 32' 'error;error 3'; do
    calls "the answer ${bad%;*}" "${bad%;*}"
    says 'cannot follow the tuner$'
    says "${bad#*;}"
    says '^gpusym: allreduce: native [0-9]+'
done
calls 'init fails' init
says 'test: error 7 of init$'
says '^tuner: (choose|finalize)' 0
calls 'another version' version
says '/libtuner.so: it is of version 99 of gpusym_tuner.h, not 1$'
calls 'no name' nameless
says '/libtuner.so: its gpusym_tuner has no name$'
tuner=$builddir/test/faults/.libs/libblind.so
calls 'no plug-in' -
says '/libblind.so: it defines no gpusym_tuner$'
tuner=$dir/none.so
calls 'no library' -
says '/none.so: cannot open shared object file'
tuner=$builddir/test/faults/.libs/libtuner.so

# Ranks that have none, or another.
run 'a rank without' env TEST_TUNER=ring_ll "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -x TEST_TUNER -n 3 --mca coll_gpusym_summary 1 \
    --mca coll_gpusym_tuner "$tuner" "$GPUSYM_SRCDIR/test/onrank.sh" 2 coll_gpusym_tuner= "$builddir/examples/allreduce"
says '^Not all ranks of MPI_COMM_WORLD .* have the tuner plug-in of rank 0\.$'
says '^Rank 0 has one; ranks that differ: 2 \(none\)$'
says '^tuner: choose' 0
run 'rank 0 without' env TEST_TUNER=ring_ll "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -x TEST_TUNER -n 3 \
    --mca coll_gpusym_tuner "$tuner" "$GPUSYM_SRCDIR/test/onrank.sh" 0 coll_gpusym_tuner= "$builddir/examples/allreduce"
says '^Rank 0 has none; ranks that differ: 1, 2$'
run 'another' env TEST_TUNER=ring_ll "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -x TEST_TUNER -n 3 \
    --mca coll_gpusym_tuner "$tuner" "$GPUSYM_SRCDIR/test/onrank.sh" 1 coll_gpusym_tuner="$example" "$builddir/examples/allreduce"
says '^Rank 0 has one; ranks that differ: 1$'

# All kinds of calls, on many communicators.
run 'random collectives' "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -n 3 --mca coll_gpusym_tuner "$example" \
    --mca coll_gpusym_linger 100 "$builddir/test/mpi/random_coll" --n 300
run 'settings' env TEST_TUNER=ring_simple "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -x TEST_TUNER -n 3 \
    --mca coll_gpusym_tuner "$tuner" "$builddir/test/mpi/settings" --what changes

export OMPI_MCA_coll_gpusym_tuner=$tuner TEST_TUNER=ring_ll:2
info=$builddir/info/gpusym_info
run 'why' "$info" --why allreduce 512 float 3
says '^ because the tuner plug-in test says so$'
says '^ ring_ll taken the tuner plug-in says so$'
OMPI_MCA_coll_gpusym_algorithm=allreduce:dbtree_ll run 'why, the user' "$info" --why allreduce 512 float 3
says '^ dbtree_ll taken coll_gpusym_algorithm names it'
TEST_TUNER=ring_lll run 'why, a bad answer' "$info" --why allreduce 512 float 3
says '^ no answer of the tuner: test, of allreduce, 512 to 1023 bytes of f32: ring_lll is no algorithm'
OMPI_MCA_coll_gpusym_tuner=$example run 'why, the example' "$info" --why allreduce 64m float 3
says '^ ring_simple taken the tuner plug-in says so'

echo "$passed as expected, $failed not"
[ "$failed" = 0 ]
