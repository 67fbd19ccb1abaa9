#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Rules, on the simulator: a file decides what calls do, and gpusym_info --why says so; files that are missing, invalid, or not
# the same on all ranks leave the choice to the table; gpusym_tune writes a file that can be read.
#
#     test/rules.sh BUILDDIR
#
# The closing line is "N as expected, M not".
set -u
builddir=$(cd "${1:?usage: test/rules.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/output.sh
. "$GPUSYM_SRCDIR/test/output.sh" || exit 2
on_simulator
# shellcheck disable=SC2154  # test/mpirun.sh sets it
mpirun=("$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -n 3)
info=$builddir/info/gpusym_info

# calls WHAT RULES [ARGUMENT...]: as run, of all-reduces from 8 bytes to 1 MiB
calls() {
    run "$1" "${mpirun[@]}" --mca coll_gpusym_rules "${@:2}" "$builddir/examples/allreduce"
}

# closing: the last line, and the exit status
# shellcheck disable=SC2154  # test/verdict.sh counts
closing() {
    echo "$passed as expected, $failed not"
    [ "$failed" = 0 ]
    exit
}

cat >"$dir/rules.json" <<'END'
{
  "rule_file_version": 3,
  "module": "gpusym",
  "collectives": {
    "allreduce": [
      { "comm_size_max": 2, "rules": [ { "alg": "dbtree_ll" } ] },
      { "gpu": "simulated",
        "rules": [
          { "msg_size_max": 4096, "alg": "agxllmc_r" },
          { "msg_size_max": 4095, "alg": "ring_ll", "blocks": 2, "threads": 64 },
          { "msg_size_min": 262144, "msg_size_max": "inf", "type": "f32", "alg": "rsxld_agxst", "blocks": 3 } ] } ]
  }
}
END
table='^ +8 .* agxll_r$'

if [ "$GPUSYM_HAVE_JANSSON" != 1 ]; then
    calls 'without jansson' "$dir/rules.json"
    says 'rules.json: gpusym was built without jansson'
    says "$table"
    label='gpusym_tune without jansson'
    "${mpirun[@]}" "$builddir/bench/gpusym_tune" --out "$dir/tuned.json" >"$dir/log" 2>&1
    says '^this gpusym was built without jansson'
    closing
fi

# A file decides; the first rule needs multicast, which there is not. One of the user's own parameters goes before it.
calls 'a file' "$dir/rules.json" --mca coll_gpusym_verbose 2
says '^ 8 .* ring_ll$'
says '^ 512 .* ring_ll$'
says '^ 4096 .* agxll_r$'
says '^ 32768 .* agxll_r$'
says '^ 262144 .* rsxld_agxst$'
says '^ 1048576 .* rsxld_agxst$'
says 'MPI_COMM_WORLD.*: rank 1: 3 rules of .*/rules.json$'
run 'with multicast' env OMPI_MCA_coll_gpusym_multicast=1 "${mpirun[@]}" --mca coll_gpusym_rules "$dir/rules.json" "$builddir/examples/allreduce"
says '^ 8 .* agxllmc_r$'
says '^ 4096 .* agxllmc_r$'
# Where multicast is requested the table takes it for long messages of many ranks; a rule goes before that, and what forbids it.
many() {
    run "$1" env "${@:2}" "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -n 5 --mca coll gpusym --mca coll_gpusym_summary 1 \
        "$builddir/bench/gpusym_bench" --coll allreduce --bytes 2m --batches 7 --no-nccl --no-staged --no-in-place
}
echo '{ "rule_file_version": 3, "module": "gpusym", "collectives": { "allreduce": [ { "rules": [ { "alg": "rsxst_agxst" } ] } ] } }' >"$dir/other.json"
by_switch='^gpusym: allreduce: native .*rsxldmc_agxstmc [1-9]'
many 'multicast requested' OMPI_MCA_coll_gpusym_multicast=1
says "$by_switch"
many 'multicast not requested' OMPI_MCA_coll_gpusym_multicast=-1
says "$by_switch" 0
many 'multicast requested, and a rule' OMPI_MCA_coll_gpusym_multicast=1 OMPI_MCA_coll_gpusym_rules="$dir/other.json"
says "$by_switch" 0
many 'multicast requested, and the order of the ranks' OMPI_MCA_coll_gpusym_multicast=1 OMPI_MCA_coll_gpusym_reproducible=1
says "$by_switch" 0
many 'multicast requested, and a veto' OMPI_MCA_coll_gpusym_multicast=1 NCCL_NVLS_ENABLE=0
says "$by_switch" 0
calls 'an algorithm of the user' "$dir/rules.json" --mca coll_gpusym_algorithm allreduce:ring_simple
says '^ [0-9]+ .* ring_simple$' 7
run 'two ranks' "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" -n 2 --mca coll_gpusym_rules "$dir/rules.json" "$builddir/examples/allreduce"
says '^ [0-9]+ .* dbtree_ll$' 7
mkdir "$dir/folder"
cp "$dir/rules.json" "$dir/folder/sim-3.json"
calls 'a folder' "$dir/folder"
says '^ 8 .* ring_ll$'
mv "$dir/folder/sim-3.json" "$dir/folder/sim-4.json"
calls 'a folder without the file' "$dir/folder"
says "$table"
says 'cannot use the rules' 0

# Resident kernels: as a rule says, which a parameter goes before.
sed '/agxllmc_r/d; s/"alg": "ring_ll", "blocks": 2, "threads": 64/"resident_max": 100/' "$dir/rules.json" >"$dir/resident.json"
resident=(--mca coll_gpusym_linger 1000000 --mca coll_gpusym_summary 1)
calls 'resident kernels' none "${resident[@]}"
says '^gpusym: allreduce: native .*resident [1-9]'
most=$(sed -n 's/^gpusym: allreduce: native .*resident \([0-9]*\).*/\1/p' "$dir/log")
calls 'resident kernels for some' "$dir/resident.json" "${resident[@]}"
some=$(sed -n 's/^gpusym: allreduce: native .*resident \([0-9]*\).*/\1/p' "$dir/log")
verdict "resident kernels for some: fewer than ${most:-0}" "$([ "${some:-0}" -gt 0 ] && [ "$some" -lt "${most:-0}" ] || echo "${some:-0}")"
calls 'no resident kernels' "$dir/resident.json" "${resident[@]}" --mca coll_gpusym_resident_max 0
says '^gpusym: allreduce: native .*resident [1-9]' 0

# Files that cannot be used: one message, and the table.
calls 'a missing file' "$dir/none.json"
says 'cannot use the rules$'
says '/none.json: No such file or directory$'
says "$table"
sed 's/ring_ll/ring_lll/' "$dir/rules.json" >"$dir/bad.json"
calls 'an invalid file' "$dir/bad.json"
says 'cannot use the rules$'
says '/bad.json: collectives.allreduce.1..rules.1..alg: "ring_lll" is no algorithm of allreduce; those that there are: auto, '
says "$table"
sed 's/"module": /"module" /' "$dir/rules.json" >"$dir/bad.json"
calls 'no JSON' "$dir/bad.json"
says '/bad.json:3:[0-9]+: '
says "$table"

# Ranks with other rules: all use the table, and rank 0 names them.
run 'a rank without' "${mpirun[@]}" --mca coll_gpusym_rules "$dir/rules.json" "$GPUSYM_SRCDIR/test/onrank.sh" 2 \
    coll_gpusym_rules=none "$builddir/examples/allreduce"
says '^Not all ranks of MPI_COMM_WORLD .* have the rules of rank 0\.$'
says '^Others, or none, have these: 2 .none.$'
says "$table"
sed 's/"blocks": 2/"blocks": 1/' "$dir/rules.json" >"$dir/other.json"
run 'a rank with others' "${mpirun[@]}" --mca coll_gpusym_rules "$dir/rules.json" "$GPUSYM_SRCDIR/test/onrank.sh" 1 \
    coll_gpusym_rules="$dir/other.json" "$builddir/examples/allreduce"
says '^Others, or none, have these: 1$'
says "$table"
cp "$dir/rules.json" "$dir/same.json"
run 'a rank with the same in another file' "${mpirun[@]}" --mca coll_gpusym_rules "$dir/rules.json" "$GPUSYM_SRCDIR/test/onrank.sh" 1 \
    coll_gpusym_rules="$dir/same.json" "$builddir/examples/allreduce"
says '^ 8 .* ring_ll$'
says 'have the rules of rank 0' 0

# Everything is right whatever the rules say: collectives of all kinds, with a rule for each.
{
    echo '{ "rule_file_version": 3, "module": "gpusym", "collectives": {'
    separator=
    for pair in allgather:ring_simple allgatherv:ring_ll alltoall:st alltoallv:ll bcast:chain_ll gather:st reduce:chain_simple \
        reduce_scatter:ld reduce_scatter_block:ring_ll scan:st scatterv:st allreduce:dbtree_simple; do
        echo "$separator\"${pair%:*}\": [{ \"rules\": [{ \"alg\": \"${pair#*:}\", \"blocks\": 2, \"seg_size\": 4096, \"resident_max\": 100 }] }]"
        separator=,
    done
    echo '} }'
} >"$dir/every.json"
run 'every collective' "${mpirun[@]}" --mca coll_gpusym_rules "$dir/every.json" --mca coll_gpusym_linger 100 "$builddir/test/mpi/random_coll" --n 300
says 'cannot use the rules' 0

# What gpusym_info says of it.
export OMPI_MCA_coll_gpusym_rules=$dir/rules.json
run why "$info" --why allreduce 512 float 3
says '^ collectives.allreduce.1..rules.0. agxllmc_r passed over the ranks have no multicast object$'
says '^ collectives.allreduce.1..rules.1. ring_ll holds '
says '^ because .*/rules.json: collectives.allreduce.1..rules.1.$'
says '^ algorithm ring_ll$'
says '^ blocks 2$'
says '^ ring_ll taken collectives.allreduce.1..rules.1. says so$'
run 'why another type' "$info" --why allreduce 1m int 3
says '^ collectives.allreduce.1..rules.2. rsxld_agxst passed over it is for another operation or type, or for other buffers$'
says '^ because ' 0
run 'why with a parameter' env OMPI_MCA_coll_gpusym_algorithm=allreduce:ring_ll128 "$info" --why allreduce 512 float 3
says '^ collectives.allreduce.1..rules.1. ring_ll passed over the parameters name another algorithm$'
says '^ ring_ll128 taken coll_gpusym_algorithm names it$'
run 'why a bad file' env OMPI_MCA_coll_gpusym_rules="$dir/bad.json" "$info" --why allreduce 512 float 3
says '^ no rules: .*/bad.json:3:'
unset OMPI_MCA_coll_gpusym_rules

# gpusym_tune: what it writes is read without complaint, and followed. What it finds depends on the machine.
run tune "${mpirun[@]}" "$builddir/bench/gpusym_tune" --coll allreduce,alltoall --min 4k --max 64k --margin 0 --time-limit 60 --out "$dir/tuned.json"
says '^ allreduce 65536 [0-9.]+ [0-9.]+ (as the table|[a-z0-9_]+) '
says '^ alltoall 655[0-9]+ [0-9.]+ [0-9.]+ (as the table|[a-z0-9_]+) '
says '^# again: allreduce, (4096|16384|65536) bytes: table [0-9.]+ us, rules [0-9.]+ us, ' 3
says 'WRONG|was not followed' 0
says '^# [0-9]+ rules for 3 ranks on simulated GPU: .*/tuned.json$'
verdict 'tune: no draft is left' "$([ ! -e "$dir/tuned.json.tmp" ] || echo 'there is one')"
rules=$(grep -c '"alg"' "$dir/tuned.json")
verdict 'tune: the links' "$([ "$(grep -c '"gpu"' "$dir/tuned.json")" = "$(grep -c '"link": "nvlink"' "$dir/tuned.json")" ] || echo "not NVLinks")"
calls 'what was tuned' "$dir/tuned.json" --mca coll_gpusym_verbose 2
says 'cannot use the rules' 0
if [ "$rules" -gt 0 ]; then
    says "MPI_COMM_WORLD.*: rank 0: $rules rules of .*/tuned.json\$"
    calls 'what was tuned with other links' "$dir/tuned.json" --mca coll_gpusym_verbose 2 --mca coll_gpusym_sim_links 0-1:1
    says "MPI_COMM_WORLD.*: rank 0: 0 rules of .*/tuned.json\$"
fi
run 'tune without time' "${mpirun[@]}" "$builddir/bench/gpusym_tune" --coll bcast --max 64k --time-limit 0 --out "$dir/tuned.json"
says '^# there was no time for 8 of 8 sizes: --time-limit$'
says '^# 0 rules for 3 ranks '
run 'where ranks share GPUs' "${mpirun[@]}" --mca coll_gpusym_sim_gpus 1 "$builddir/bench/gpusym_tune" --coll bcast --max 64 --out "$dir/tuned.json"
says '^# kernels serve none of these calls'
label='tune into no folder'
"${mpirun[@]}" "$builddir/bench/gpusym_tune" --out "$dir/nowhere/tuned.json" >"$dir/log" 2>&1 </dev/null
says '/nowhere/tuned.json: No such file or directory$'
closing
