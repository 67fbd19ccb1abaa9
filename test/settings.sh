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
# shellcheck source=test/mpirun.sh
. "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
for name in "${!OMPI_MCA_coll@}"; do
    unset "$name"
done
export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL
export OMPI_MCA_coll=gpusym OMPI_MCA_coll_gpusym_device=sim GPUSYM_TEST_DEVICE=sim OMPI_MCA_coll_gpusym_multicast=0
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
# shellcheck source=test/verdict.sh
. "$GPUSYM_SRCDIR/test/verdict.sh" || exit 2

# run WHAT RANKS TEST [ARGUMENT...]: the program's test goes well, with these arguments of mpirun
run() {
    local status
    label=$1
    # shellcheck disable=SC2154  # test/mpirun.sh sets it
    timeout $((120 * ${GPUSYM_TEST_SLOW:-1})) "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -n "$2" "${@:4}" \
        "$builddir/test/mpi/settings" --what "$3" >"$dir/log" 2>&1 </dev/null
    status=$?
    verdict "$label: it ends well" "$([ $status = 0 ] || echo "status $status")" "$dir/log"
}

# says REGEX [N]: N lines match, 1 if it is not given; spaces stand for any number of them
says() {
    local n
    n=$(grep -Ec -- "${1// / +}" "$dir/log")
    verdict "$label: ${2:-1} x $1" "$([ "$n" = "${2:-1}" ] || echo "$n")" "$dir/log"
}

run 'two ranks' 2 keys
run 'keys' 3 keys --mca coll_gpusym_verbose 2
says '^settings: [0-9]+ passed, 0 failed$'
says 'rank 1: gpusym_reduce_scatter_block=ring_simple$' 4
says 'rank 2: gpusym_copy_engines_only=true$'
says 'rank 0: gpusym_allreduce_algorithm=staged$'
run 'a parameter that says otherwise' 3 keys --mca coll_gpusym_algorithm allreduce:dbtree_ll,bcast:chain_ll

run 'changes' 3 changes
run 'changes, resident kernels' 3 changes --mca coll_gpusym_linger 100000
run 'changes, no resident kernels' 4 changes --mca coll_gpusym_linger 0

for seed in 1 2 3; do
    GPUSYM_TEST_SEED=$seed run "any order, seed $seed" 3 random
done
run 'any order, resident kernels' 2 random --mca coll_gpusym_linger 100000
run 'any order, with epochs that wrap' 3 random --mca coll_gpusym_epoch_first 2147483400

run 'bad values' 3 bad
says 'the info key gpusym_allreduce_algorithm has the value "ring_lll", which is not allowed\.$'
says 'the info key gpusym_max_blocks has the value "-1", which is not allowed\.$'
says '^Allowed: for allreduce: auto, staged, agxll_r, ' 2

run 'ranks that differ' 3 others --mca coll_gpusym_linger 100000
says '^The ranks of .* want different values of the info key$' 3
says '^ 0: rsxld_agxst, 1: ring_ll, 2: rsxld_agxst$'
says '^ 0: ring_ll, 1: rsxld_agxst, 2: rsxld_agxst$'
says '^ 0: not set, 1: true, 2: not set$'
says 'that of this key remains: ring_ll\.'

run 'names' 2 named --mca coll_gpusym_trace "$dir/trace" --mca coll_gpusym_blocks 4
cat "$dir"/trace* >"$dir/log"
label='the trace'
says '^\{"rank":.*"comm":"rows \(cid ' 2
says '"blocks":1[,}]' 2
says '"blocks":3[,}]' 2

# Where they cannot hold, they change nothing.
run 'shared GPUs' 3 named --mca coll_gpusym_sim_gpus 1 --mca coll_gpusym_verbose 2
says 'its settings do not hold: ranks share GPUs' 6
run 'islands' 4 named --mca coll_gpusym_node_size 2 --mca coll_gpusym_verbose 2
if ! grep -q 'has no network between islands' "$dir/log"; then
    says 'its settings do not hold: the communicator spans several islands' 8
fi

echo "$passed as expected, $failed not"
[ "$failed" = 0 ]
