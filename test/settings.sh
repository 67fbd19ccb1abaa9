#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Settings of communicators by info keys, on the simulator: counters, what MPI_Comm_get_info says, messages, the trace.
#
#     test/settings.sh BUILDDIR
#
# The closing line is "N as expected, M not".
set -u
builddir=$(cd "${1:?usage: test/settings.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/output.sh
. "$GPUSYM_SRCDIR/test/output.sh" || exit 2
on_simulator

# keys WHAT RANKS TEST [ARGUMENT...]: the program's test goes well, with these arguments of mpirun
keys() {
    # shellcheck disable=SC2154  # test/mpirun.sh sets it
    run "$1" "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -n "$2" "${@:4}" "$builddir/test/mpi/settings" --what "$3"
}

keys 'two ranks' 2 keys
keys 'keys' 3 keys --mca coll_gpusym_verbose 2
says '^settings: [0-9]+ passed, 0 failed$'
says 'rank 1: gpusym_reduce_scatter_block=ring_simple$' 4
says 'rank 2: gpusym_copy_engines_only=true$'
says 'rank 0: gpusym_allreduce_algorithm=staged$'
keys 'a parameter that says otherwise' 3 keys --mca coll_gpusym_algorithm allreduce:dbtree_ll,bcast:chain_ll

keys 'changes' 3 changes
keys 'changes, resident kernels' 3 changes --mca coll_gpusym_linger 100000
keys 'changes, no resident kernels' 4 changes --mca coll_gpusym_linger 0

for seed in 1 2 3; do
    GPUSYM_TEST_SEED=$seed keys "any order, seed $seed" 3 random
done
keys 'any order, resident kernels' 2 random --mca coll_gpusym_linger 100000
keys 'any order, with epochs that wrap' 3 random --mca coll_gpusym_epoch_first 2147483400

keys 'bad values' 3 bad
says 'the info key gpusym_allreduce_algorithm has the value "ring_lll", which is not allowed\.$'
says 'the info key gpusym_max_blocks has the value "-1", which is not allowed\.$'
says '^Allowed: for allreduce: auto, staged, agxll_r, ' 2

keys 'ranks that differ' 3 others --mca coll_gpusym_linger 100000
says '^The ranks of .* want different values of the info key$' 3
says '^ 0: rsxld_agxst, 1: ring_ll, 2: rsxld_agxst$'
says '^ 0: ring_ll, 1: rsxld_agxst, 2: rsxld_agxst$'
says '^ 0: not set, 1: true, 2: not set$'
says 'that of this key remains: ring_ll\.'

keys 'names' 2 named --mca coll_gpusym_trace "$dir/trace" --mca coll_gpusym_blocks 4
cat "$dir"/trace* >"$dir/log"
label='the trace'
says '^\{"rank":.*"comm":"rows \(cid ' 2
says '"blocks":1[,}]' 2
says '"blocks":3[,}]' 2

# Where they cannot hold, they change nothing.
keys 'shared GPUs' 3 named --mca coll_gpusym_sim_gpus 1 --mca coll_gpusym_verbose 2
says 'its settings do not hold: ranks share GPUs' 6
keys 'islands' 4 named --mca coll_gpusym_node_size 2 --mca coll_gpusym_verbose 2
if ! grep -q 'has no network between islands' "$dir/log"; then
    says 'its settings do not hold: the communicator spans several islands' 8
fi

echo "$passed as expected, $failed not"
[ "$failed" = 0 ]
