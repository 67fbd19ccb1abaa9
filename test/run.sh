#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs the unit tests and the mpirun tests of a build tree, which need not be installed:
#
#     test/run.sh BUILDDIR [PATTERN...]      (make check, check-timed and check-long call it; PATTERN: only tests whose name matches)
#
# A test that fails is run once more, alone, after all others. If it passes then, it counts as passed, and a line says
# "flaky: NAME". More than three that fail at first are a failure whatever comes of them, and are not repeated.
# One that does not end is a failure of that run; its log ends with the stacks of its processes, where there is gdb. After ten
# such the rest is not run.
#
# Before the closing line stand the machine's load and, of each test that failed or was flaky, its name, its command and the end
# of its log. The closing line is "N passed, M failed": cmocka's tests and one for each mpirun; so says the exit status.
# Each test's output is kept in BUILDDIR/test/results/, of one that was repeated the first as NAME.first.log.
#
#   GPUSYM_TEST_FORM     short (default): make check;  timed: make check-timed, what judges by the clock, one test at a time;
#                        long: make check-long, all that the short form leaves out but these;  whole: every test but these once,
#                        in its longest form;  version: of another Open MPI than that of the other forms, the short form, and in
#                        their longest the tests of what Open MPI's versions do differently;  ompi: the short form of the
#                        tests that meet most of Open MPI's own code
#   GPUSYM_TEST_DEVICE   sim (default) or cuda: what the mpirun tests use as GPUs
#   GPUSYM_TEST_RANKS    "1 2 4": in place of the lists of ranks in the table
#   GPUSYM_TEST_SLOW     a factor on all time limits (default: as much as this machine is busy at the start; times 5 with sanitizers)
#   GPUSYM_TEST_JOBS     how many tests run side by side (default: half as many as cores, 2 at least; on GPUs 1)
set -u

# The mpirun tests, a line each:
#   name | ranks | seconds | expect | MCA parameters | program and arguments
# ranks     a list: the test is run once for each;  =N: N whatever GPUSYM_TEST_RANKS says;  -: without mpirun;
#           behind a +: only in the long form
# seconds   time limit
# expect    ok: exit status 0;  fail: another one, but within the time limit;  after either, :REGEX that a line of the
#           output must match, :!REGEX that none may. Exit status 77 is "cannot run here": neither passed nor failed.
# MCA       name=value ...; besides them coll=gpusym and coll_gpusym_device=..., unless given here. A line that names
#           a parameter sim_... is only for the simulator; one that says from=5, for Open MPI 5 and later; to=4: up to 4; one that says
#           form=timed judges by the clock, and is run in that form alone, in its longest form
# program   in the build tree, or a command found in PATH; @SRC@ and @BUILD@ are the two trees, @INFO@ is ompi_info,
#           @KINDS@ is libgpusym_kinds, @MPI@ libgpusym_mpi, @STORM@ test/mpi/storm.c, @BLIND@ test/faults/blind.c,
#           @THREADLESS@ test/faults/threadless.c, for LD_PRELOAD, and @PRELOAD@ what the sanitizers want there.
#           {A|B} is A in the short form and B in the long one; a line that has it is run in both
# A line "barrier": what is behind it uses what was before.
tests() {
    cat <<'EOF'
# What a user sees.
params       | -         | 30  | ok:coll_gpusym_priority        |                                         | env LD_PRELOAD=@PRELOAD@ @INFO@ --param coll gpusym --level 9
params-docs  | -         | 30  | ok                             |                                         | @SRC@/test/params.sh @INFO@
params-values | -        | 120 | ok:as expected, 0 not$         |                                         | @SRC@/test/values.sh @BUILD@
# The multimem instructions in the fatbin, where there is one and the toolkit's disassembler.
sass         | -         | 60  | ok                             |                                         | @SRC@/test/sass.sh @BUILD@
# The rooms and arrows of docs/architecture.md hold; the check finds planted violations.
layers       | -         | 60  | ok: 0 violations$              |                                         | @SRC@/test/layers.sh @BUILD@
layers-self  | -         | 60  | ok:, 0 not found$              |                                         | @SRC@/test/layers_selftest.sh @BUILD@
# The step lists of rings, chains and trees, for up to 4096 ranks.
schedule     | -         | 120 | ok:all right                   |                                         | test/schedule/check
# The engine between up to so many hosts, in the time of a model.
scale        | -         | 120 | ok:every call has ended, in no less than its bound |                     | test/scale/scale --hosts 2,3,4,7,8,32,64,{100|100,256} --bytes 8,1k,4k,64k,1m,{8m|8m,256m}
example      | 1,4+2,8   | 60  | ok:verified: yes               |                                         | examples/allreduce
summary      | 2         | 60  | ok:allreduce: native [1-9]     | coll_gpusym_summary=1                   | examples/allreduce
pvars        | 1,2+4     | 60  | ok                             |                                         | test/mpi/pvars
# All of MPI on host buffers: with only gpusym named, with every buffer taken for device memory, and with no device.
allmpi       | 1,3+2,4,8 | 60  | ok                             |                                         | test/mpi/allmpi
allmpi-dev   | 4+1       | 60  | ok                             | coll_gpusym_sim_host=1                  | test/mpi/allmpi
allmpi-none  | 2         | 60  | ok                             | coll_gpusym_device=none                 | test/mpi/allmpi
# Every type x operation x count x alignment x in place or not.
allreduce    | 2+1,4     | 120 | ok                             |                                         | test/mpi/allreduce {--quick|}
allreduce-1Mi | +=2      | 300 | ok                             |                                         | test/mpi/allreduce --quick --big --kinds device
allreduce-q  | 3,5+7   | 120 | ok                             |                                         | test/mpi/allreduce --quick
agxll_r      | 3+2       | 120 | ok                             | coll_gpusym_allreduce_algorithm=agxll_r | test/mpi/allreduce --quick
rsxld_agxst  | 3+2       | 120 | ok                             | coll_gpusym_allreduce_algorithm=rsxld_agxst | test/mpi/allreduce --quick
rsxst_agxst  | 3+2       | 120 | ok                             | coll_gpusym_allreduce_algorithm=rsxst_agxst | test/mpi/allreduce --quick
rsxll128_agxll128 | 3+2  | 120 | ok                             | coll_gpusym_allreduce_algorithm=rsxll128_agxll128 | test/mpi/allreduce --quick
rsxll128-big | 2+4       | 120 | ok                             | coll_gpusym_allreduce_algorithm=rsxll128_agxll128 coll_gpusym_heap_size=1M | test/mpi/big {--bytes 8000000|}
staged       | 2+4       | 120 | ok                             | coll_gpusym_allreduce_algorithm=staged  | test/mpi/allreduce --quick
# Ranks share GPUs: a leader a GPU does it.
led-allreduce | 2+4      | 120 | ok:allreduce: native [1-9][0-9]* .led [1-9].*staged [0-9]+ .user_op [0-9]+, type [0-9]+.,| coll_gpusym_sim_gpus=1 coll_gpusym_summary=1 | test/mpi/allreduce --quick
led-allreduce-2 | =4     | 120 | ok                             | coll_gpusym_sim_gpus=2                  | test/mpi/allreduce --quick
led-every    | 3+2       | 180 | ok                             | coll_gpusym_sim_gpus=1                  | test/mpi/every --thin {2500|100}
led-every-2  | +=4       | 180 | ok                             | coll_gpusym_sim_gpus=2                  | test/mpi/every --thin 200
led-coll     | 2,4+3,8   | 120 | ok:alltoallv: native [1-9][0-9]* .*led [1-9] | coll_gpusym_sim_gpus=1 coll_gpusym_summary=1 | test/mpi/random_coll --n {800|3000}
led-coll-2   | 3,4+5     | 120 | ok                             | coll_gpusym_sim_gpus=2                  | test/mpi/random_coll --n {800|3000}
led-coll-3   | +=8       | 120 | ok                             | coll_gpusym_sim_gpus=3                  | test/mpi/random_coll --n 1000
led-large    | =3        | 120 | ok                             | coll_gpusym_sim_gpus=2                  | test/mpi/random_coll --n {300|800} --max 100k
led-threads  | 3+2       | 120 | ok                             | coll_gpusym_sim_gpus=1                  | test/mpi/random_coll --threads 3 --n {300|1500}
led-makes    | =3        | 120 | ok                             | coll_gpusym_sim_gpus=2                  | test/mpi/random_coll --makes --n {500|3000}
led-inflight | 3+4       | 120 | ok                             | coll_gpusym_sim_gpus=2                  | test/mpi/inflight
led-pack     | =3        | 120 | ok                             | coll_gpusym_sim_gpus=2                  | test/mpi/pack --n 100
led-mixed    | =3        | 120 | ok                             | coll_gpusym_sim_gpus=2                  | test/mpi/mixed
led-comms    | =4        | 120 | ok                             | coll_gpusym_sim_gpus=2                  | test/mpi/comms
led-deep     | =4        | 60  | ok                             | form=timed coll_gpusym_sim_gpus=2 | test/mpi/deep --n {2000|15000} --kinds host,device
led-finalize | =3        | 60  | ok:1 passed                    | coll_gpusym_sim_gpus=1                  | test/mpi/finalize {left|atexit}
led-reset    | =3        | 60  | ok:1 passed                    | coll_gpusym_sim_gpus=1                  | test/mpi/finalize reset
led-broken   | =3        | 60  | ok                             | coll_gpusym_sim_gpus=1 coll_gpusym_sim_fail=launch:10@0 coll_gpusym_sim_host=1 | test/mpi/broken
# ... which comes out in the midst of it, and in communicators whose ranks share none.
led-crowd    | =4        | 60  | ok:another process uses the GPU | coll_gpusym_sim_gpus=2 coll_gpusym_verbose=1 | test/mpi/crowd
# ... where nothing can be mapped: through windows.
led-window   | 3+4       | 120 | ok:allreduce: native [1-9].*led [1-9] | coll_gpusym_sim_gpus=1 coll_gpusym_reg_limit=0 coll_gpusym_summary=1 | test/mpi/random_coll --n {500|2000}
led-import   | =3        | 120 | ok:cannot map a peer's buffer  | coll_gpusym_sim_gpus=1 coll_gpusym_sim_fail=import:1@0 coll_gpusym_verbose=1 | test/mpi/random_coll --n 300
# Islands: parts of one host, in the place of hosts; of one rank, of ranks that share a GPU, and more than 32 ranks.
islands      | 4+3,5     | 120 | ok:member 1 of 2: it is set up | coll_gpusym_node_size=2 coll_gpusym_verbose=1 | test/mpi/random_coll --n {400|2000}
islands-1    | =3        | 120 | ok:island 2 of 3, member 0 of 1: it is set up | coll_gpusym_node_size=1 coll_gpusym_verbose=1 | test/mpi/random_coll --n {200|2000}
islands-led  | =4        | 120 | ok:island 1 of 2, .*it is set up | coll_gpusym_node_size=2 coll_gpusym_sim_gpus=1 coll_gpusym_verbose=1 | test/mpi/random_coll --n 200
islands-mc   | +=5       | 120 | ok:island 1 of 2, .*it is set up | coll_gpusym_node_size=3 coll_gpusym_multicast=1 coll_gpusym_verbose=1 | test/mpi/random_coll --n 500
islands-makes | +=3      | 120 | ok:island 1 of 2, .*it is set up | coll_gpusym_node_size=2 coll_gpusym_verbose=1 | test/mpi/random_coll --makes --n 1000
islands-threads | =2     | 120 | ok                             | coll_gpusym_node_size=1                 | test/mpi/random_coll --threads 3 --n 200
islands-comms | =3       | 120 | ok:allreduce: .*between_islands [1-9] | coll_gpusym_node_size=2 coll_gpusym_summary=1 | test/mpi/comms
islands-many | +=3       | 120 | ok                             | coll_gpusym_node_size=2 coll_adapt_priority=-1 | test/mpi/manycomms --n 5000
islands-flight | =3      | 120 | ok                             | coll_gpusym_node_size=2                 | test/mpi/inflight
islands-host | =4        | 120 | ok:!it is set up               | coll_gpusym_node_size=2 coll_gpusym_verbose=1 | test/mpi/random_coll --n {400|2000} --kinds host
islands-idle | 2,3+4     | 60  | ok:alltoallv: native [1-9][0-9]* | coll_gpusym_node_size=1 coll_gpusym_summary=1 | test/mpi/idle
pidns        | 2+4       | 60  | ok:verified: yes                 | btl=self,tcp btl_tcp_if_include=lo | @SRC@/test/pidns.sh @BUILD@/examples/allreduce
pidns-random | =3        | 60  | ok                             | btl=self,tcp btl_tcp_if_include=lo | @SRC@/test/pidns.sh @BUILD@/test/mpi/random_coll --n {200|1000}
islands-none | =3        | 60  | ok:: native .*no_net [1-9]   | coll_gpusym_node_size=2 coll_gpusym_net_devices=none coll_gpusym_summary=1 | test/mpi/random_coll --n 200
islands-unreachable | =3 | 60  | ok:: native .*no_net [1-9]   | coll_gpusym_node_size=1 coll_gpusym_summary=1 | @SRC@/test/onrank.sh 1 GPUSYM_UCX_TLS=self @BUILD@/test/mpi/random_coll --n 200
islands-threadless | =3  | 60  | ok:: native .*no_net [1-9]   | coll_gpusym_node_size=1 coll_gpusym_summary=1 | @SRC@/test/onrank.sh 1 LD_PRELOAD=@THREADLESS@ @BUILD@/test/mpi/random_coll --n 200
islands-left | =3        | 60  | ok:1 passed                    | coll_gpusym_node_size=2                 | test/mpi/finalize left
islands-closing | =3     | 60  | ok                             | coll_gpusym_node_size=2 coll_gpusym_sim_fail=launch:6@2 | test/mpi/closing
islands-40   | +=40      | 120 | ok:allreduce: native .*rails [1-9] | coll_gpusym_summary=1 | examples/allreduce
random       | 3+2,4     | 120 | ok                             |                                         | test/mpi/random --n 300
random-8     | +=8       | 120 | ok                             |                                         | test/mpi/random --n 60
# The epochs' counting wraps round in the midst of it.
wrap         | 2+4       | 120 | ok                             | coll_gpusym_epoch_first=2147483300      | test/mpi/random --n 100
# ... where a rank that waits for the others to clear their flags goes on with what else it has to do.
steps        | =2,3      | 60  | ok:24 passed, 0 failed         | coll_gpusym_epoch_first=2147483640      | test/mpi/steps
# Long messages; in a heap so small that they take many rounds.
big          | 2+4       | 120 | ok                             |                                         | test/mpi/big
big-rounds   | 4         | 120 | ok                             | coll_gpusym_heap_size=1M                | test/mpi/big
# Host buffers on some ranks, device buffers on others.
mixed        | 2+1,3     | 120 | ok                             |                                         | test/mpi/mixed
mixed-4      | +=4       | 180 | ok                             |                                         | test/mpi/mixed --rounds 2
mixed-8      | +=8       | 180 | ok                             |                                         | test/mpi/mixed --rounds 2 --kinds host,device
threads      | 2+1,4     | 120 | ok                             |                                         | test/mpi/threads
comms        | 2+4       | 120 | ok                             |                                         | test/mpi/comms
# Every collective: the product of small cases; random ones, 25,000 in all; in flight; in threads; many communicators.
every        | 2+1,3,4   | 180 | ok                             |                                         | test/mpi/every --thin {2500|150}
random_coll  | 2,3+4     | 120 | ok                             |                                         | test/mpi/random_coll --n {1500|5000}
random_coll-9 | 5,8+6,7,9 | 120 | ok                            |                                         | test/mpi/random_coll --n {500|1500}
# Each algorithm forced, for what has it (multicast: where there is none for an operation, the table's).
forced-ll    | 3         | 120 | ok                             | coll_gpusym_allgather_algorithm=ll coll_gpusym_allgatherv_algorithm=ll coll_gpusym_reduce_scatter_algorithm=ll coll_gpusym_reduce_scatter_block_algorithm=ll coll_gpusym_bcast_algorithm=ll coll_gpusym_reduce_algorithm=ll coll_gpusym_alltoall_algorithm=ll coll_gpusym_alltoallv_algorithm=ll coll_gpusym_alltoallw_algorithm=ll coll_gpusym_neighbor_allgather_algorithm=ll coll_gpusym_neighbor_allgatherv_algorithm=ll coll_gpusym_neighbor_alltoall_algorithm=ll coll_gpusym_neighbor_alltoallv_algorithm=ll coll_gpusym_neighbor_alltoallw_algorithm=ll coll_gpusym_gather_algorithm=ll coll_gpusym_gatherv_algorithm=ll coll_gpusym_scatter_algorithm=ll coll_gpusym_scatterv_algorithm=ll coll_gpusym_scan_algorithm=ll coll_gpusym_exscan_algorithm=ll coll_gpusym_allreduce_algorithm=agxll_r | test/mpi/random_coll --n 400
forced-st    | 3         | 120 | ok                             | coll_gpusym_allgather_algorithm=st coll_gpusym_allgatherv_algorithm=st coll_gpusym_reduce_scatter_algorithm=st coll_gpusym_reduce_scatter_block_algorithm=st coll_gpusym_bcast_algorithm=st coll_gpusym_reduce_algorithm=st coll_gpusym_alltoall_algorithm=st coll_gpusym_alltoallv_algorithm=st coll_gpusym_alltoallw_algorithm=st coll_gpusym_neighbor_allgather_algorithm=st coll_gpusym_neighbor_allgatherv_algorithm=st coll_gpusym_neighbor_alltoall_algorithm=st coll_gpusym_neighbor_alltoallv_algorithm=st coll_gpusym_neighbor_alltoallw_algorithm=st coll_gpusym_gather_algorithm=st coll_gpusym_gatherv_algorithm=st coll_gpusym_scatter_algorithm=st coll_gpusym_scatterv_algorithm=st coll_gpusym_scan_algorithm=st coll_gpusym_exscan_algorithm=st coll_gpusym_allreduce_algorithm=rsxld_agxst | test/mpi/random_coll --n 400
forced-ld    | 3         | 120 | ok                             | coll_gpusym_reduce_scatter_algorithm=ld coll_gpusym_reduce_scatter_block_algorithm=ld coll_gpusym_allreduce_algorithm=rsxst_agxst | test/mpi/random_coll --n 400
forced-mc    | 3+4       | 120 | ok                             | coll_gpusym_allreduce_algorithm=rsxldmc_agxstmc coll_gpusym_allgather_algorithm=stmc coll_gpusym_reduce_scatter_algorithm=ldmc coll_gpusym_reduce_scatter_block_algorithm=ldmc | test/mpi/random_coll --n 400
forced-llmc  | 4         | 120 | ok                             | coll_gpusym_allreduce_algorithm=agxllmc_r coll_gpusym_allgather_algorithm=llmc coll_gpusym_reduce_scatter_algorithm=ldmc coll_gpusym_reduce_scatter_block_algorithm=ldmc | test/mpi/random_coll --n 400
# Rings, chains and trees, each protocol: of the collectives that have them, of which no call may have had another; -direct:
# straight between users' buffers.
ce           | 3,5+2,8   | 120 | ok                             | coll_gpusym_allreduce_algorithm=ce coll_gpusym_allgather_algorithm=ce coll_gpusym_allgatherv_algorithm=ce coll_gpusym_reduce_scatter_algorithm=ce coll_gpusym_reduce_scatter_block_algorithm=ce coll_gpusym_bcast_algorithm=ce coll_gpusym_reduce_algorithm=ce coll_gpusym_alltoall_algorithm=ce coll_gpusym_alltoallv_algorithm=ce coll_gpusym_chunk=512 coll_gpusym_zero_copy_min=1 | test/mpi/random_coll --kinds device --n 150
ce-big       | 2+4       | 120 | ok                             | coll_gpusym_allreduce_algorithm=ce      | test/mpi/big
ce-broken    | =3        | 60  | ok                             | coll_gpusym_sim_fail=launch:9@1 coll_gpusym_sim_host=1 coll_gpusym_allreduce_algorithm=ce coll_gpusym_chunk=512 coll_gpusym_zero_copy_min=1 | test/mpi/broken
ring-simple  | 5+2,8     | 120 | ok                             | coll_gpusym_allreduce_algorithm=ring_simple coll_gpusym_allgather_algorithm=ring_simple coll_gpusym_allgatherv_algorithm=ring_simple coll_gpusym_reduce_scatter_algorithm=ring_simple coll_gpusym_reduce_scatter_block_algorithm=ring_simple coll_gpusym_bcast_algorithm=chain_simple coll_gpusym_reduce_algorithm=chain_simple coll_gpusym_chunk=512 | test/mpi/random_coll --kinds device --n 120 --ran ring_simple,chain_simple
ring-ll      | 3+6       | 120 | ok                             | coll_gpusym_allreduce_algorithm=ring_ll coll_gpusym_allgather_algorithm=ring_ll coll_gpusym_allgatherv_algorithm=ring_ll coll_gpusym_reduce_scatter_algorithm=ring_ll coll_gpusym_reduce_scatter_block_algorithm=ring_ll coll_gpusym_bcast_algorithm=chain_ll coll_gpusym_reduce_algorithm=chain_ll | test/mpi/random_coll --kinds device --n 120 --ran ring_ll,chain_ll
ring-ll128   | 4+9       | 120 | ok                             | coll_gpusym_allreduce_algorithm=ring_ll128 coll_gpusym_allgather_algorithm=ring_ll128 coll_gpusym_allgatherv_algorithm=ring_ll128 coll_gpusym_reduce_scatter_algorithm=ring_ll128 coll_gpusym_reduce_scatter_block_algorithm=ring_ll128 coll_gpusym_bcast_algorithm=chain_ll128 coll_gpusym_reduce_algorithm=chain_ll128 coll_gpusym_chunk=512 | test/mpi/random_coll --kinds device --n 120 --ran ring_ll128,chain_ll128
ring-direct  | 3+7       | 120 | ok                             | coll_gpusym_allreduce_algorithm=ring_simple coll_gpusym_allgather_algorithm=ring_simple coll_gpusym_allgatherv_algorithm=ring_simple coll_gpusym_reduce_scatter_algorithm=ring_simple coll_gpusym_reduce_scatter_block_algorithm=ring_simple coll_gpusym_bcast_algorithm=chain_simple coll_gpusym_reduce_algorithm=chain_simple coll_gpusym_zero_copy_min=1 coll_gpusym_chunk=512 | test/mpi/random_coll --kinds device --n 120 --max 20k --ran ring_simple,chain_simple
tree-simple  | 3+9       | 120 | ok                             | coll_gpusym_allreduce_algorithm=dbtree_simple coll_gpusym_bcast_algorithm=dbtree_simple coll_gpusym_reduce_algorithm=dbtree_simple coll_gpusym_chunk=512 | test/mpi/random_coll --kinds device --n 60 --ran dbtree_simple
tree-ll      | 7+2       | 120 | ok                             | coll_gpusym_allreduce_algorithm=dbtree_ll coll_gpusym_bcast_algorithm=dbtree_ll coll_gpusym_reduce_algorithm=dbtree_ll coll_gpusym_chunk=256 | test/mpi/random_coll --kinds device --n 60 --ran dbtree_ll
tree-ll128   | 5+8       | 120 | ok                             | coll_gpusym_allreduce_algorithm=dbtree_ll128 coll_gpusym_bcast_algorithm=dbtree_ll128 coll_gpusym_reduce_algorithm=dbtree_ll128 | test/mpi/random_coll --kinds device --n 60 --ran dbtree_ll128
tree-direct  | 4+6       | 120 | ok                             | coll_gpusym_allreduce_algorithm=dbtree_simple coll_gpusym_bcast_algorithm=dbtree_simple coll_gpusym_reduce_algorithm=dbtree_simple coll_gpusym_zero_copy_min=1 | test/mpi/random_coll --kinds device --n 60 --max 20k --ran dbtree_simple
ring-threads | =3        | 120 | ok                             | coll_gpusym_allreduce_algorithm=ring_ll128 coll_gpusym_allgather_algorithm=ring_ll128 coll_gpusym_allgatherv_algorithm=ring_ll128 coll_gpusym_reduce_scatter_algorithm=ring_ll128 coll_gpusym_reduce_scatter_block_algorithm=ring_ll128 coll_gpusym_bcast_algorithm=chain_ll128 coll_gpusym_reduce_algorithm=chain_ll128 | test/mpi/random_coll --kinds device --threads 3 --n 60 --ran ring_ll128,chain_ll128
random_coll-large | =2   | 120 | ok                             |                                         | test/mpi/random_coll --n {500|2500} --max 100k
random_coll-threads | 3+2 | 120 | ok                            |                                         | test/mpi/random_coll --threads 3 --n 700
# Communicators are made while calls are in flight, MPI_Comm_idup beside them; stock Open MPI confuses the two.
random_coll-makes | 3+2,5 | 120 | ok                             |                                         | test/mpi/random_coll --makes --n 3000
# ... and where nothing tells Open MPI's calls from the program's but the memory.
nameless     | 2+3       | 60  | ok                             |                                         | test/mpi/nameless
random_coll-makes-host | =3 | 120 | ok                           |                                         | test/mpi/random_coll --makes --n 2000 --kinds host
# What is in flight does not make progress dear.
deep         | =4        | 60  | ok                             | form=timed | test/mpi/deep --n {5000|15000} --kinds host,device
inflight     | 1,3+2,4   | 120 | ok                             |                                         | test/mpi/inflight
# Resident kernels, which retire as the next call comes: by their time, and where the simulator says so.
linger       | 2+1,3     | 60  | ok                             | form=timed coll_gpusym_linger=300 | test/mpi/linger --n 1500
linger-long  | 3+1,2     | 60  | ok                             | form=timed coll_gpusym_linger=3000 | test/mpi/linger --n 150
linger-late  | =3        | 60  | ok:calls of resident kernels, [1-9] | form=timed coll_gpusym_linger=20000 coll_gpusym_sim_fail=doorbell:1@0,doorbell:6@0,doorbell:13@0,doorbell:20@0,doorbell:31@0,doorbell:5@1,doorbell:14@1,bell:8@2,bell:20@2 | test/mpi/linger --n 100
# Reductions through the host in pieces: lengths around them, in place, all roots; with memory that is not pinned; random.
cut          | 2,3+4     | 120 | ok:allreduce: .*, in_pieces [1-9] | coll_gpusym_piece=68 coll_gpusym_summary=1 | test/mpi/every --mode blocking --thin {400|50}
cut-later    | 3+2       | 120 | ok:allreduce: .*, in_pieces [1-9] | coll_gpusym_piece=68 coll_gpusym_summary=1 | test/mpi/every --mode nonblocking --thin {400|50}
cut-again    | =3        | 120 | ok:reduce_scatter: .*, in_pieces [1-9] | coll_gpusym_piece=68 coll_gpusym_summary=1 | test/mpi/every --mode persistent --thin {1000|100}
cut-inflight | =3        | 120 | ok                             | coll_gpusym_piece=100                   | test/mpi/inflight
cut-broken   | =3        | 60  | ok                             | accelerator=null coll_gpusym_piece=65536 coll_gpusym_sim_fail=copy:40@1 coll_gpusym_sim_host=1 | test/mpi/broken --pieces
cut-broken-blocking | =3        | 60  | ok                             | accelerator=null coll_gpusym_piece=65536 coll_gpusym_sim_fail=copy:40@1 coll_gpusym_sim_host=1 | test/mpi/broken --blocking-pieces
# A rank that cannot stage: the others are in the call, which is whole or in pieces, and fails on all of them.
stagefail-blocking | =3 | 60 | ok:3 passed, 0 failed | accelerator=null coll_gpusym_piece=0 coll_gpusym_sim_fail=hostalloc:1@1,copy:1@1,copy:4@1,copy:9@1,copy:14@1,copy:23@1,copy:32@1,open:2@1,open:31@1,open:60@1 | test/mpi/stagefail blocking
stagefail-blocking-cut | =3 | 60 | ok:3 passed, 0 failed | accelerator=null coll_gpusym_piece=65536 coll_gpusym_sim_fail=hostalloc:1@1,copy:1@1,copy:4@1,copy:9@1,copy:14@1,copy:23@1,copy:32@1,open:2@1,open:31@1,open:60@1 | test/mpi/stagefail blocking
stagefail-nonblocking | =3 | 60 | ok:3 passed, 0 failed | accelerator=null coll_gpusym_piece=0 coll_gpusym_sim_fail=hostalloc:1@1,copy:1@1,copy:4@1,copy:9@1,copy:14@1,copy:23@1,copy:32@1,open:2@1,open:31@1,open:60@1 | test/mpi/stagefail nonblocking
stagefail-nonblocking-cut | =3 | 60 | ok:3 passed, 0 failed | accelerator=null coll_gpusym_piece=65536 coll_gpusym_sim_fail=hostalloc:1@1,copy:1@1,copy:4@1,copy:9@1,copy:14@1,copy:23@1,copy:32@1,open:2@1,open:31@1,open:60@1 | test/mpi/stagefail nonblocking
stagefail-persistent | =3 | 60 | ok:3 passed, 0 failed | accelerator=null coll_gpusym_piece=0 coll_gpusym_sim_fail=hostalloc:1@1,copy:1@1,copy:4@1,copy:9@1,copy:14@1,copy:23@1,copy:32@1,open:2@1,open:31@1,open:60@1 | test/mpi/stagefail persistent
stagefail-persistent-cut | =3 | 60 | ok:3 passed, 0 failed | accelerator=null coll_gpusym_piece=65536 coll_gpusym_sim_fail=hostalloc:1@1,copy:1@1,copy:4@1,copy:9@1,copy:14@1,copy:23@1,copy:32@1,open:2@1,open:31@1,open:60@1 | test/mpi/stagefail persistent
stagefail-right | =3 | 60 | ok:3 passed, 0 failed | accelerator=null coll_gpusym_piece=0 coll_gpusym_sim_fail=hostalloc:1@1,stream:1@1,hostalloc:2@1,stream:2@1,hostalloc:3@1,stream:3@1,hostalloc:5@1,stream:5@1,hostalloc:8@1,stream:8@1 | test/mpi/stagefail blocking --right
stagefail-right-cut | =3 | 60 | ok:3 passed, 0 failed | accelerator=null coll_gpusym_piece=65536 coll_gpusym_sim_fail=hostalloc:1@1,stream:1@1,hostalloc:2@1,stream:2@1,hostalloc:3@1,stream:3@1,hostalloc:5@1,stream:5@1,hostalloc:8@1,stream:8@1 | test/mpi/stagefail nonblocking --right
# ... where none can be told in time, or there is no memory at all: the job ends, with the reason.
stagefail-mixed-blocking | =3 | 60 | fail:The job is aborted | accelerator=null coll_gpusym_sim_fail=copy:1@1 | test/mpi/stagefail blocking --mixed
stagefail-mixed-nonblocking | =3 | 60 | fail:The job is aborted | accelerator=null coll_gpusym_sim_fail=copy:1@1 | test/mpi/stagefail nonblocking --mixed
stagefail-mixed-persistent | =3 | 60 | fail:The job is aborted | accelerator=null coll_gpusym_sim_fail=copy:1@1 | test/mpi/stagefail persistent --mixed
stagefail-islands-blocking | =3 | 60 | fail:The job is aborted | accelerator=null coll_gpusym_node_size=2 coll_gpusym_sim_fail=copy:1@1 | test/mpi/stagefail blocking --one
stagefail-islands-nonblocking | =3 | 60 | fail:The job is aborted | accelerator=null coll_gpusym_node_size=2 coll_gpusym_sim_fail=open:1@1 | test/mpi/stagefail nonblocking --one
stagefail-islands-persistent | =3 | 60 | fail:The job is aborted | accelerator=null coll_gpusym_node_size=2 coll_gpusym_sim_fail=copy:1@1 | test/mpi/stagefail persistent --one
stagefail-inter-blocking | =3 | 60 | fail:The job is aborted | accelerator=null coll_gpusym_sim_fail=copy:1@1 | test/mpi/stagefail blocking --inter
stagefail-inter-nonblocking | =3 | 60 | fail:The job is aborted | accelerator=null coll_gpusym_sim_fail=copy:1@1 | test/mpi/stagefail nonblocking --inter
stagefail-inter-persistent | =3 | 60 | fail:The job is aborted | accelerator=null coll_gpusym_sim_fail=copy:1@1 | test/mpi/stagefail persistent --inter
stagefail-full-blocking | =3 | 60 | fail:The job is aborted | accelerator=null coll_gpusym_piece=0 coll_gpusym_sim_host=1 | test/mpi/stagefail blocking --full
stagefail-full-nonblocking | =3 | 60 | fail:The job is aborted | accelerator=null coll_gpusym_piece=0 coll_gpusym_sim_host=1 | test/mpi/stagefail nonblocking --full
stagefail-full-blocking-cut | =3 | 60 | fail:The job is aborted | accelerator=null coll_gpusym_piece=16777216 coll_gpusym_sim_host=1 | test/mpi/stagefail blocking --full
stagefail-full-nonblocking-cut | =3 | 60 | ok:1 passed, 0 failed | accelerator=null coll_gpusym_piece=16777216 coll_gpusym_sim_host=1 | test/mpi/stagefail nonblocking --full
cut-unpinned | =3        | 120 | ok:scan: .*, in_pieces [1-9]   | coll_gpusym_piece=40 coll_gpusym_pinned_max=0 coll_gpusym_summary=1 | test/mpi/every --mode blocking --thin {1000|100}
turns        | 2         | 120 | ok                             | coll_gpusym_pinned_max=8M coll_gpusym_piece=0 coll_gpusym_allreduce_algorithm=staged | test/mpi/big
cut-random   | 3+5       | 120 | ok                             | coll_gpusym_piece=100                   | test/mpi/random_coll --n {500|3000}
# Moves through windows of host memory: the product, random ones in flight on several communicators, long messages, more sent
# than taken; where GPUs do not reach each other; where GPUs cannot register the windows.
moves        | 2,3+4     | 120 | ok:allgather: .*, by_windows [1-9] | coll_gpusym_summary=1 coll_gpusym_allgather_algorithm=staged coll_gpusym_allgatherv_algorithm=staged coll_gpusym_bcast_algorithm=staged coll_gpusym_alltoall_algorithm=staged coll_gpusym_alltoallv_algorithm=staged coll_gpusym_gather_algorithm=staged coll_gpusym_gatherv_algorithm=staged coll_gpusym_scatter_algorithm=staged coll_gpusym_scatterv_algorithm=staged | test/mpi/every --thin {4000|200}
moves-random | 3+2,5,8   | 120 | ok:alltoallv: .*, by_windows [1-9] | coll_gpusym_summary=1 coll_gpusym_allgather_algorithm=staged coll_gpusym_allgatherv_algorithm=staged coll_gpusym_bcast_algorithm=staged coll_gpusym_alltoall_algorithm=staged coll_gpusym_alltoallv_algorithm=staged coll_gpusym_gather_algorithm=staged coll_gpusym_gatherv_algorithm=staged coll_gpusym_scatter_algorithm=staged coll_gpusym_scatterv_algorithm=staged | test/mpi/random_coll --n {900|5000} --kinds device
moves-mixed  | =3        | 120 | ok                             | coll_gpusym_allgather_algorithm=staged coll_gpusym_allgatherv_algorithm=staged coll_gpusym_bcast_algorithm=staged coll_gpusym_alltoall_algorithm=staged coll_gpusym_alltoallv_algorithm=staged coll_gpusym_gather_algorithm=staged coll_gpusym_gatherv_algorithm=staged coll_gpusym_scatter_algorithm=staged coll_gpusym_scatterv_algorithm=staged | test/mpi/random_coll --n {500|3000}
moves-large  | 3+4       | 120 | ok:gather: .*, by_windows [1-9] | coll_gpusym_summary=1 coll_gpusym_allgather_algorithm=staged coll_gpusym_allgatherv_algorithm=staged coll_gpusym_bcast_algorithm=staged coll_gpusym_alltoall_algorithm=staged coll_gpusym_alltoallv_algorithm=staged coll_gpusym_gather_algorithm=staged coll_gpusym_gatherv_algorithm=staged coll_gpusym_scatter_algorithm=staged coll_gpusym_scatterv_algorithm=staged | test/mpi/random_coll --n {300|400} --kinds device --max 1000000
moves-sizes  | =3        | 120 | ok                             | coll_gpusym_allgather_algorithm=staged coll_gpusym_allgatherv_algorithm=staged coll_gpusym_bcast_algorithm=staged coll_gpusym_alltoall_algorithm=staged coll_gpusym_alltoallv_algorithm=staged coll_gpusym_gather_algorithm=staged coll_gpusym_gatherv_algorithm=staged coll_gpusym_scatter_algorithm=staged coll_gpusym_scatterv_algorithm=staged | test/mpi/sizes --most 3000 --staged
moves-memory | =3        | 120 | ok                             | coll_gpusym_sim_fail=alloc:2@1,alloc:3@1,alloc:4@1 coll_gpusym_allgather_algorithm=staged coll_gpusym_allgatherv_algorithm=staged coll_gpusym_bcast_algorithm=staged coll_gpusym_alltoall_algorithm=staged coll_gpusym_alltoallv_algorithm=staged coll_gpusym_gather_algorithm=staged coll_gpusym_gatherv_algorithm=staged coll_gpusym_scatter_algorithm=staged coll_gpusym_scatterv_algorithm=staged | test/mpi/sizes --most 40 --staged
moves-unpinned | =3      | 120 | ok                             | coll_gpusym_sim_fail=hostalloc:4@1 coll_gpusym_allgather_algorithm=staged coll_gpusym_allgatherv_algorithm=staged coll_gpusym_bcast_algorithm=staged coll_gpusym_alltoall_algorithm=staged coll_gpusym_alltoallv_algorithm=staged coll_gpusym_gather_algorithm=staged coll_gpusym_gatherv_algorithm=staged coll_gpusym_scatter_algorithm=staged coll_gpusym_scatterv_algorithm=staged | test/mpi/random_coll --n {200|1000} --kinds device
moves-threads | =2       | 120 | ok                             | coll_gpusym_allgather_algorithm=staged coll_gpusym_allgatherv_algorithm=staged coll_gpusym_bcast_algorithm=staged coll_gpusym_alltoall_algorithm=staged coll_gpusym_alltoallv_algorithm=staged coll_gpusym_gather_algorithm=staged coll_gpusym_gatherv_algorithm=staged coll_gpusym_scatter_algorithm=staged coll_gpusym_scatterv_algorithm=staged | test/mpi/random_coll --threads 3 --n 300 --kinds device
linger-mixed | =3        | 60  | ok                             | coll_gpusym_linger=500                  | test/mpi/every --coll allreduce --mode blocking --thin {60|10}
linger-every | +=3       | 120 | ok                             | coll_gpusym_linger=500 coll_gpusym_allreduce_algorithm=agxll_r | test/mpi/every --thin 800
linger-coll  | =3        | 120 | ok                             | coll_gpusym_linger=500 coll_gpusym_allreduce_algorithm=agxll_r | test/mpi/random_coll --n 800
linger-comms | =2        | 120 | ok                             | coll_gpusym_linger=500 coll_gpusym_allreduce_algorithm=agxll_r | test/mpi/comms
linger-flight | =2       | 120 | ok                             | coll_gpusym_linger=500 coll_gpusym_allreduce_algorithm=agxll_r | test/mpi/inflight
# Persistent calls have a graph, where one can be made.
graph-not    | =3        | 120 | ok:are launched without a graph: injected fault graph:2 | coll_gpusym_sim_fail=graph:2@1 coll_gpusym_verbose=1 | test/mpi/inflight
graph-off    | +=3       | 120 | ok                             | coll_gpusym_graph=0                     | test/mpi/inflight
manycomms    | 2+3       | 120 | ok                             |                                         | test/mpi/manycomms {--n 3000|}
# The measuring programs run, and find every element right; their times mean nothing here.
bench        | =3        | 120 | ok:every element of every result is right | coll_gpusym_sim_gpus=0       | bench/gpusym_bench --device sim --coll all --mode all --min 64 --max {64|4k} --step 64 --batches 7 --csv @BUILD@/test/results/bench.csv --json @BUILD@/test/results/bench.json
bench-root   | +=4       | 60  | ok:every element of every result is right | coll_gpusym_sim_gpus=0       | bench/gpusym_bench --device sim --coll reduce,bcast,scatterv,gather --root 2 --type int8 --op prod --min 1 --max 1k --step 32
bench-sweep  | =2        | 60  | ok:every element of every result is right | coll_gpusym_sim_gpus=0       | bench/gpusym_bench --device sim --sweep --bytes 64,4k --algorithms auto,agxll_r,rsxst_agxst --blocks 1,2
# Messages: a pair, and every pair.
bench-p2p    | =2        | 60  | ok:every element of every result is right |                              | bench/gpusym_bench p2p --device sim --max 4k --step 64 --batches 7 --messages 500 --csv @BUILD@/test/results/bench-p2p.csv --json @BUILD@/test/results/bench-p2p.json
bench-p2p-3  | +=3       | 60  | ok:every element of every result is right |                              | bench/gpusym_bench p2p --device sim --bytes 8,64k --only first,pingpong,window,both
# All that has a goal is measured; what the table makes of it.
goals        | -         | 120 | ok:^the tables are right       |                                         | @SRC@/test/goals.sh @BUILD@
# The transport between hosts, beside UCX alone: inside a host, and as between two.
netperf      | =2        | 120 | ok:every byte of every checked message is right |                              | bench/gpusym_netperf --max {256k|64m} --batches 3
netperf-between | 2+3    | 120 | ok:as between hosts: tcp       |                                         | bench/gpusym_netperf --between --pairs --max {256k|16m} --batches 3 --csv @BUILD@/test/results/netperf.csv
barrier
bench-files  | -         | 30  | ok:the same [49][05] rows           |                                         | @SRC@/test/bench.sh @BUILD@
# A solver with its vectors on the GPU: right by gpusym and staged, and with the bits of sums in the order of the ranks.
cg           | 1,3+2,4   | 60  | ok:verified: yes               | coll_gpusym_sim_gpus=0                  | examples/cg --device sim
# The bits of sums and products: the same from every algorithm, chunk, number of blocks, way and cut.
bits         | 2+3,4     | 120 | ok:multicast. no               | coll_gpusym_reproducible=1              | test/mpi/bits
bits-mc      | +=3       | 120 | ok:multicast. yes              | coll_gpusym_multicast=1                 | test/mpi/bits
# Straight between users' buffers, which come and go; few are listed, or a peer cannot map one.
zerocopy     | 3+2       | 180 | ok:40 buffers, [1-9].* 40 by zero copy | coll_gpusym_reg_limit=3                 | test/mpi/zerocopy --n 250
zerocopy-4   | +=4       | 180 | ok                             |                                         | test/mpi/zerocopy --n 150
zerocopy-vmm | =3        | 180 | ok                             |                                         | test/mpi/zerocopy --n 150 --kinds vmm
zerocopy-not | =3        | 120 | ok:zero copy is disabled       | coll_gpusym_sim_fail=import:3@1 coll_gpusym_verbose=1 | test/mpi/zerocopy --import-fails --n 100
# GPUs that do not all reach each other, or not by NVLink: along rings where there are some, else staged.
links-4      | =4        | 120 | ok                             | coll_gpusym_sim_links=0-2:0,1-3:0       | test/mpi/links --reach rings
links-5      | =5        | 120 | ok                             | coll_gpusym_sim_links=0-1:0,2-4:0,3-1:8 | test/mpi/links --reach rings
links-6      | +=6       | 120 | ok                             | coll_gpusym_sim_links=0-4:0,0-5:0,1-3:0,1-4:0,1-5:0,2-3:0,2-4:0 | test/mpi/links --reach rings
links-pci    | +=4       | 120 | ok                             | coll_gpusym_sim_links=0-1:3,0-2:1,0-3:1,1-2:1,1-3:1,2-3:3 | test/mpi/links --reach all --no-ll128
links-slow   | +=4       | 120 | ok                             | coll_gpusym_sim_links=0-2:0,1-3:1       | test/mpi/links --reach rings --no-ll128
links-none-3 | =3        | 120 | ok                             | coll_gpusym_sim_links=0-1:0             | test/mpi/links --reach none
links-none-6 | +=6       | 120 | ok                             | coll_gpusym_sim_links=0-4:0,0-5:0,1-3:0,1-4:0,1-5:0,2-3:0,2-4:0,2-5:0 | test/mpi/links --reach none
links-random | 4+6       | 120 | ok                             | coll_gpusym_sim_links=0-1:0,2-3:0       | test/mpi/random_coll --n 400
# One message, in every way: memory, sizes, datatypes, modes, ways to receive. Also with every buffer taken for device memory,
# staged, where GPUs do not reach each other, and beside a rank where it is off or gpusym is not there.
p2p          | 2+1,3,4   | 120 | ok                             |                                         | test/mpi/p2p --thin {80|40}
p2p-direct   | 2         | 60  | ok:p2p: sent_direct [1-9].*sent_staged 0, received_direct [1-9].*received_to_host 0, received_piped 0, received_staged 0$ | coll_gpusym_summary=1 | test/mpi/p2p --kinds device,vmm --modes send,isend,ssend,rsend,sendrecv,exchange,send_init --sizes 8193,65536,1048577 --thin 4
p2p-7        | 2         | 60  | ok                             |                                         | test/mpi/p2p --sizes 6,7,8 --thin {20|8}
p2p-host     | 2+1,3     | 120 | ok                             | coll_gpusym_sim_host=1                  | test/mpi/p2p --thin {200|100}
p2p-staged   | 2+3       | 120 | ok:p2p: sent_direct 0, .*received_direct 0, | coll_gpusym_p2p=staged coll_gpusym_summary=1 | test/mpi/p2p --thin {200|100}
p2p-links    | 2+3       | 120 | ok                             | coll_gpusym_sim_links=0-1:0             | test/mpi/p2p --thin {200|100}
p2p-shared   | =3        | 120 | ok                             | coll_gpusym_sim_gpus=1                  | test/mpi/p2p --thin {200|100}
p2p-push     | 2+3       | 120 | ok:sent_pushed [1-9]           | form=timed coll_gpusym_p2p_push_min=1 coll_gpusym_summary=1 | test/mpi/p2p --thin {200|100}
p2p-import   | =2        | 120 | ok                             | coll_gpusym_sim_fail=import:1@1         | test/mpi/p2p --thin {200|100}
p2p-off      | =3        | 120 | ok                             |                                         | @SRC@/test/onrank.sh 1 coll_gpusym_p2p=off @BUILD@/test/mpi/p2p --host-rank 1 --thin {200|100}
p2p-other    | =3        | 120 | ok                             |                                         | @SRC@/test/onrank.sh 2 coll=^gpusym @BUILD@/test/mpi/p2p --host-rank 2 --thin {200|100}
# A rank that cannot map its peers' memory, not even that by which they agree.
p2p-blind    | =3        | 120 | ok:with rank [02] of MPI_COMM_WORLD are staged: its pages cannot be mapped | coll_gpusym_verbose=1 | env LD_PRELOAD=@BLIND@ GPUSYM_BLIND=1 @BUILD@/test/mpi/p2p --thin {600|100}
p2p_beside-blind | +=3   | 120 | ok                             |                                         | env LD_PRELOAD=@BLIND@ GPUSYM_BLIND=1 @BUILD@/test/mpi/p2p_beside --rounds 200 --fuzz 3000
p2p-none     | +=2       | 120 | ok                             | coll=^gpusym                            | test/mpi/p2p --kinds host --thin 5
# What a program may expect of messages beyond their bytes: order, truncation, cancelling, buffers that come and go.
p2p_order    | 2+3       | 120 | ok                             |                                         | test/mpi/p2p_order --n {2000|4000} --flood {5000|8000}
p2p_order-host | 2       | 120 | ok                             | coll_gpusym_sim_host=1                  | test/mpi/p2p_order --n {1000|6000}
p2p_order-staged | 2     | 120 | ok                             | coll_gpusym_p2p=staged                  | test/mpi/p2p_order --n {1000|6000}
p2p_order-off | 2        | 120 | ok                             |                                         | @SRC@/test/onrank.sh 1 coll_gpusym_p2p=staged @BUILD@/test/mpi/p2p_order --n {1000|6000}
# Messages beside collectives, and random ones; in threads; under signals.
p2p_beside   | 2+3,4     | 120 | ok                             |                                         | test/mpi/p2p_beside --fuzz {2000|7000}
p2p_beside-linger | 3    | 120 | ok                             | coll_gpusym_linger=3000                 | test/mpi/p2p_beside --rounds 300 --fuzz {500|7000}
p2p_beside-off | =3      | 120 | ok                             |                                         | @SRC@/test/onrank.sh 1 coll_gpusym_p2p=off @BUILD@/test/mpi/p2p_beside --host-rank 1 --rounds 200 --fuzz {500|7000}
p2p_beside-links | +=3   | 120 | ok                             | coll_gpusym_sim_links=0-1:0,1-2:0       | test/mpi/p2p_beside --rounds 200 --fuzz 5000
p2p_beside-pipes | +=2   | 120 | ok                             | coll_gpusym_reg_limit=0                 | test/mpi/p2p_beside --rounds 200 --fuzz 5000
p2p_threads  | 2+3       | 120 | ok                             |                                         | test/mpi/p2p_beside --threads 4 --fuzz {2000|7000}
# Of which the PML below refuses to send a part.
p2p-refused  | =2        | 60  | ok                             |                                         | test/mpi/refused
p2p_storm    | =2        | 60  | ok:storm. [1-9]                |                                         | env LD_PRELOAD=@STORM@ @BUILD@/test/mpi/p2p --thin 300
# By an ob1 that knows GPU memory, and btl/gpunvl: messages that ob1 serves (it asks about a buffer's address alone, which must
# lie in GPU memory; that of 5.0.7 sends wrong data buffered); memory that cannot be mapped; the transport alone, its ring
# full; a rank whose messages gpusym serves; order and the like; packing, files and windows; a peer that dies.
btl          | 2+3       | 240 | ok:btl/gpunvl: gets [1-9]      | from=5 btl=self,sm,gpunvl coll_gpusym_p2p=off coll_gpusym_verbose=1 | test/mpi/p2p --shapes contiguous,vector,indexed,struct --modes send,ssend,rsend,isend,issend,irsend,send_init,ssend_init,rsend_init,sendrecv,exchange --thin {200|100}
btl-links    | 2+3       | 240 | ok:btl/gpunvl: gets [0-9]+ of [0-9]+ bytes, [1-9] | from=5 btl=self,sm,gpunvl coll_gpusym_p2p=off coll_gpusym_verbose=1 coll_gpusym_sim_links=0-1:0 | test/mpi/p2p --shapes contiguous,vector,indexed,struct --modes send,ssend,rsend,isend,issend,irsend,send_init,ssend_init,rsend_init,sendrecv,exchange --thin {200|100}
btl-import   | =2        | 120 | ok:btl/gpunvl: gets [0-9]+ of [0-9]+ bytes, [1-9] | from=5 btl=self,sm,gpunvl coll_gpusym_p2p=off coll_gpusym_verbose=1 coll_gpusym_sim_fail=import:1@1 | test/mpi/p2p --shapes contiguous,vector,indexed,struct --modes send,ssend,rsend,isend,issend,irsend,send_init,ssend_init,rsend_init,sendrecv,exchange --thin {200|100}
btl-alone    | 2+3       | 120 | ok:btl/gpunvl: gets [1-9].* [1-9][0-9]* queued | from=5 btl=self,gpunvl btl_gpunvl_ring_size=128K coll_gpusym_p2p=off coll_gpusym_verbose=1 | test/mpi/p2p --shapes contiguous,vector,indexed,struct --modes send,ssend,rsend,isend,issend,irsend,send_init,ssend_init,rsend_init,sendrecv,exchange --thin {200|100}
btl-other    | =3        | 120 | ok:rank 1 of MPI_COMM_WORLD is not reached: it has not published itself | from=5 btl=self,sm,gpunvl coll_gpusym_p2p=off coll_gpusym_verbose=1 | @SRC@/test/onrank.sh 1 coll_gpusym_p2p=auto @BUILD@/test/mpi/p2p --shapes contiguous,vector,indexed,struct --modes send,ssend,rsend,isend,issend,irsend,send_init,ssend_init,rsend_init,sendrecv,exchange --thin {200|100}
btl-order    | 2+3       | 120 | ok:btl/gpunvl: gets [1-9]      | from=5 btl=self,sm,gpunvl coll_gpusym_p2p=off coll_gpusym_verbose=1 | test/mpi/p2p_order --n {1000|4000} --flood {5000|8000} --only order_blocking,flood,cancel,request_free,stale,intercommunicator,proc_null,to_itself
btl-threads  | 2+3       | 120 | ok:btl/gpunvl: gets [1-9]      | from=5 to=5 btl=self,sm,gpunvl coll_gpusym_p2p=off coll_gpusym_verbose=1 | test/mpi/p2p_beside --by-address --threads 4 --fuzz {2000|7000}
btl-accel    | 2         | 120 | ok:btl/gpunvl: gets [1-9]      | from=5 btl=self,sm,gpunvl coll_gpusym_p2p=off coll_gpusym_verbose=1 | test/mpi/accel
btl-killed   | =2        | 60  | fail:The process of rank 1 of MPI_COMM_WORLD .pid [0-9]+. has ended while | form=timed from=5 btl=self,sm,gpunvl coll_gpusym_p2p=off | @SRC@/test/outlive.sh @BUILD@/test/mpi/killed
btl-unused   | =2        | 60  | ok:btl/gpunvl: not used        | btl=^tcp coll_gpusym_verbose=1          | test/mpi/p2p --thin 1000
# What gpusym adds to a call on host buffers, in instructions.
hostpath     | -         | 120 | ok:^at most                    |                                         | @SRC@/test/hostpath.sh @BUILD@
p2phost      | -         | 120 | ok:^at most                    |                                         | @SRC@/test/p2phost.sh @BUILD@
# What a process takes of a GPU's memory.
freed        | 2+3       | 60  | ok:0 after these were freed    | coll_gpusym_sim_gpus=0                  | test/mpi/freed
footprint    | 2+4       | 60  | ok:MiB of GPU memory           | coll_gpusym_sim_gpus=0                  | test/mpi/footprint
# GPU memory by MPI_Alloc_mem.
allocmem     | 1,3+2     | 60  | ok                             |                                         | test/mpi/allocmem
# What takes GPU memory without a message: packing, files and the like (Open MPI 5 and 6); with the hook of messages and
# without; where gpusym is left out. The component's functions one by one.
accel        | 1,2+3     | 120 | ok                             |                                         | test/mpi/accel
accel-off    | 1,2       | 120 | ok                             | coll_gpusym_p2p=off                     | test/mpi/accel
accel-pre    | 1,2       | 120 | ok                             |                                         | env LD_PRELOAD=@MPI@ @BUILD@/test/mpi/accel --preloaded
accel-absent | 2         | 60  | ok                             | coll=^gpusym                            | test/mpi/accel --absent
accel_table  | 1,2       | 60  | ok                             |                                         | test/mpi/accel_table
# The same, and windows, with libgpusym_kinds loaded and without; a rank that has no GPU memory.
kinds        | 1,3+2,4   | 120 | ok                             |                                         | env LD_PRELOAD=@KINDS@ @BUILD@/test/mpi/kinds
kinds-long   | +=3       | 120 | ok                             |                                         | env LD_PRELOAD=@KINDS@ @BUILD@/test/mpi/kinds --rounds 1000
kinds-plain  | 3+1       | 120 | ok                             |                                         | test/mpi/kinds --plain
kinds-fails  | =3        | 60  | ok:has host memory, since not all ranks | coll_gpusym_sim_fail=alloc:1@1 osc_base_verbose=1 | env LD_PRELOAD=@KINDS@ @BUILD@/test/mpi/kinds --fails
# Under a storm of signals, as of a profiler's or a program's timer: the same, in the midst of every system call.
storm        | =3        | 60  | ok:storm. [1-9]                 |                                         | env LD_PRELOAD=@STORM@ GPUSYM_STORM_START=init @BUILD@/test/mpi/allmpi
storm-restart | =3       | 60  | ok:storm. [1-9]                 |                                         | env LD_PRELOAD=@STORM@ GPUSYM_STORM_RESTART=1 @BUILD@/test/mpi/random_coll --n 200
storm-coll   | =3        | 60  | ok:storm. [1-9]                 |                                         | env LD_PRELOAD=@STORM@ @BUILD@/test/mpi/random_coll --n 200
storm-vmm    | =3        | 60  | ok:storm. [1-9]                 |                                         | env LD_PRELOAD=@STORM@ @BUILD@/test/mpi/zerocopy --n 40 --kinds vmm
storm-comms  | =2        | 60  | ok:storm. [1-9]                 |                                         | env LD_PRELOAD=@STORM@ @BUILD@/test/mpi/comms
storm-threads | =2       | 60  | ok:storm. [1-9]                 |                                         | env LD_PRELOAD=@STORM@ @BUILD@/test/mpi/threads
# Vectors, packed by the GPU.
pack         | 3+2,4     | 120 | ok                             |                                         | test/mpi/pack --n {200|600}
# Datatypes of all shapes, packed and unpacked between device memory and packed memory.
layout       | =1        | 120 | ok                             |                                         | test/mpi/layout --n {200|600}
packing      | =1,3      | 60  | ok                             |                                         | test/mpi/packing
# Datatypes whose parts lie in several allocations.
parts        | 2,3       | 60  | ok                             |                                         | test/mpi/parts --thin {3|1}
# ... where there is no room for the memory from the first to the last.
parts-room   | 2,3       | 60  | ok                             |                                         | test/mpi/parts --room 8192 --thin {5|1}
parts-staged | 2         | 60  | ok                             | coll_gpusym_p2p=staged                  | test/mpi/parts --thin {7|1}
parts-pre    | 2         | 60  | ok                             | to=4                                    | env LD_PRELOAD=@MPI@ @BUILD@/test/mpi/parts --preloaded
# Who is whose neighbour, and by which edge: small rings, borders, repeated neighbours.
neighbors    | 1,2,3+4   | 120 | ok                             |                                         | test/mpi/neighbors
neighbors-st | 2+3       | 120 | ok                             | coll_gpusym_zero_copy_min=1 coll_gpusym_neighbor_allgather_algorithm=st coll_gpusym_neighbor_allgatherv_algorithm=st coll_gpusym_neighbor_alltoall_algorithm=st coll_gpusym_neighbor_alltoallv_algorithm=st coll_gpusym_neighbor_alltoallw_algorithm=st | test/mpi/neighbors --most 800
# A cube is transposed, by datatypes on both sides.
transpose    | 1,2,3+4   | 60  | ok:1 passed, 0 failed          |                                         | test/mpi/transpose
transpose-st | 2         | 60  | ok:1 passed, 0 failed          | coll_gpusym_zero_copy_min=1 coll_gpusym_alltoallw_algorithm=st | test/mpi/transpose --n 24
# More is sent than is taken, or less; negative counts, also where Open MPI leaves looking for them to us.
sizes        | 3+2,4     | 120 | ok                             |                                         | test/mpi/sizes
led-sizes    | 3+2,4     | 120 | ok                             | coll_gpusym_sim_gpus=1                  | test/mpi/sizes --most 3000
led-sizes-2  | =4        | 120 | ok                             | coll_gpusym_sim_gpus=2                  | test/mpi/sizes --most 3000
sizes-unchecked | =3     | 120 | ok                             | mpi_param_check=0 coll_gpusym_zero_copy_min=1 | test/mpi/sizes --most 3000
# MPI_Finalize at odd times, with things left over, after the GPU was reset.
finalize-plain       | =3 | 60  | ok:1 passed    | coll_gpusym_linger=300000               | test/mpi/finalize plain
finalize-atexit      | =3 | 60  | ok:1 passed    | coll_gpusym_linger=300000               | test/mpi/finalize atexit
finalize-destructor  | =3 | 60  | ok:1 passed    | coll_gpusym_linger=300000               | test/mpi/finalize destructor
finalize-thread      | =3 | 60  | ok:1 passed    | coll_gpusym_linger=300000               | test/mpi/finalize thread
finalize-left        | =3 | 60  | ok:1 passed    | coll_gpusym_linger=300000               | test/mpi/finalize left
finalize-reset       | =3 | 60  | ok:1 passed    | coll_gpusym_linger=300000               | test/mpi/finalize reset
finalize-reset-again | =3 | 60  | ok:1 passed    | coll_gpusym_linger=300000               | test/mpi/finalize reset-again
finalize-never       | =3 | 60  | fail           | coll_gpusym_linger=300000               | test/mpi/finalize never
# Descriptors run out, at each thing that needs one; with 3, Open MPI may have one more open at that moment.
fd-0         | =3        | 60  | ok:.ulimit -n.: rank 1: Too many open files | coll_gpusym_p2p=off coll_gpusym_sim_gpus=0 coll_gpusym_verbose=1 | test/mpi/descriptors --left 0
fd-1         | =3        | 60  | ok:.ulimit -n.: rank 1: Too many open files | coll_gpusym_p2p=off coll_gpusym_sim_gpus=0 coll_gpusym_verbose=1 | test/mpi/descriptors --left 1
fd-2         | =3        | 60  | ok:.ulimit -n.: rank 1: Too many open files | coll_gpusym_p2p=off coll_gpusym_sim_gpus=0 coll_gpusym_verbose=1 | test/mpi/descriptors --left 2
fd-0-all     | =3        | 60  | ok:.ulimit -n.: rank 0: Too many open files | coll_gpusym_p2p=off coll_gpusym_sim_gpus=0 coll_gpusym_verbose=1 | test/mpi/descriptors --left 0 --all
fd-3         | =3        | 60  | ok:Too many open files         | coll_gpusym_p2p=off coll_gpusym_sim_gpus=0 coll_gpusym_verbose=1 | test/mpi/descriptors --left 3
fd-4         | =3        | 60  | ok:cannot map the memory .*Too many open files | coll_gpusym_p2p=off coll_gpusym_sim_gpus=0 coll_gpusym_verbose=1 | test/mpi/descriptors --left 4
# Messages of GPU memory have the pages mapped in MPI_Init.
fd-0-p2p     | =3        | 60  | ok:no heap of .*Too many open files | coll_gpusym_sim_gpus=0 coll_gpusym_verbose=1 | test/mpi/descriptors --left 0
fd-1-p2p     | =3        | 60  | ok:cannot map the memory .*Too many open files | coll_gpusym_sim_gpus=0 coll_gpusym_verbose=1 | test/mpi/descriptors --left 1
fd-20        | =3        | 60  | ok                             | coll_gpusym_sim_gpus=0 coll_gpusym_verbose=1 | test/mpi/descriptors --left 20 --native
# Injected faults, mismatched calls, killed ranks.
broken       | =3        | 60  | ok                             | coll_gpusym_sim_fail=launch:10@1 coll_gpusym_sim_host=1 | test/mpi/broken
broken-linger | =3       | 60  | ok                             | coll_gpusym_sim_fail=launch:10@1 coll_gpusym_sim_host=1 coll_gpusym_linger=500 | test/mpi/broken
broken-mt    | =3        | 60  | ok                             | coll_gpusym_sim_fail=launch:10@1 coll_gpusym_sim_host=1 | test/mpi/broken --threads
broken-host  | =3        | 60  | ok                             | coll_gpusym_sim_fail=launch:10@1 | test/mpi/broken --host
# A rank writes over the memory by which ranks agree.
scribble     | =3        | 120 | ok:memory by which rank 1 and its peers agree | form=timed coll_gpusym_timeout=5 coll_gpusym_zero_copy_min=4096 coll_gpusym_sim_gpus=0 | test/mpi/scribble
faults       | -         | 300 | ok                             |                                         | @SRC@/test/faults/faults.sh @BUILD@ allreduce
faults-all   | +-        | 400 | ok                             |                                         | @SRC@/test/faults/faults.sh @BUILD@ collectives
faults-mc    | +-        | 120 | ok                             |                                         | @SRC@/test/faults/faults.sh @BUILD@ multicast
faults-chan  | -         | 300 | ok                             |                                         | @SRC@/test/faults/faults.sh @BUILD@ channels
faults-windows | -       | 300 | ok                             |                                         | @SRC@/test/faults/faults.sh @BUILD@ windows
faults-leaders | -       | 180 | ok                             |                                         | @SRC@/test/faults/faults.sh @BUILD@ leaders
faults-peers | -         | 180 | ok                             |                                         | @SRC@/test/faults/faults.sh @BUILD@ peers
faults-p2p   | -         | 300 | ok                             |                                         | @SRC@/test/faults/faults.sh @BUILD@ {messages-few|messages}
faults-deaths | -        | 400 | ok                             | form=timed                              | @SRC@/test/faults/faults.sh @BUILD@ deaths
faults-islands | -       | 120 | ok                             | form=timed | @SRC@/test/faults/faults.sh @BUILD@ islands
faults-hosts | -         | 180 | ok                             | form=timed | @SRC@/test/faults/faults.sh @BUILD@ hosts
faults-late  | +-        | 180 | ok                             | form=timed | @SRC@/test/faults/faults.sh @BUILD@ late
# Several hosts, which test/mpi/hosts.sh makes. Their ranks meet by TCP, and those of a host as ever: every collective, as random
# ones, blocking and not, in threads, with mixed kinds of memory, on unequal hosts, by slow wires; messages; host buffers.
# Without coll/adapt where memory must not grow: that of Open MPI 5.0.7 keeps the modules of communicators that coll/han makes.
hosts-every  | +-        | 300 | ok:allgather: .*rails [1-9]     | coll_gpusym_summary=1                   | @SRC@/test/mpi/hosts.sh 2 2 --build @BUILD@ -- @BUILD@/test/mpi/every --thin 2000
hosts-2x2    | -         | 60  | ok:allreduce: .*rails [1-9]     | coll_gpusym_summary=1                   | @SRC@/test/mpi/hosts.sh 2 2 --build @BUILD@ -- @BUILD@/test/mpi/random_coll --n {600|4000}
hosts-123    | -         | 60  | ok:island 2 of 3, member 2 of 3: it is set up | coll_gpusym_verbose=1 | @SRC@/test/mpi/hosts.sh 3 1,2,3 --build @BUILD@ -- @BUILD@/test/mpi/random_coll --n {400|4000}
hosts-4x1    | -         | 60  | ok:island 3 of 4, member 0 of 1: it is set up | coll_gpusym_verbose=1 | @SRC@/test/mpi/hosts.sh 4 1 --build @BUILD@ -- @BUILD@/test/mpi/random_coll --n {400|4000}
hosts-robin  | -         | 60  | ok:island 2 of 3, member 2 of 3: it is set up | coll_gpusym_verbose=1 | @SRC@/test/mpi/hosts.sh 3 1,2,3 --round-robin --build @BUILD@ -- @BUILD@/test/mpi/random_coll --n {400|4000}
hosts-large  | +-        | 60  | ok                             |                                         | @SRC@/test/mpi/hosts.sh 2 2,1 --mtu 9000 --build @BUILD@ -- @BUILD@/test/mpi/random_coll --n 600 --max 100k
hosts-threads | -        | 60  | ok                             | to=5                                    | @SRC@/test/mpi/hosts.sh 2 2,1 --build @BUILD@ -- @BUILD@/test/mpi/random_coll --threads 3 --n {100|1000}
hosts-mixed  | +-        | 120 | ok                             |                                         | @SRC@/test/mpi/hosts.sh 2 2 --build @BUILD@ -- @BUILD@/test/mpi/mixed
hosts-inflight | +-      | 60  | ok                             |                                         | @SRC@/test/mpi/hosts.sh 2 1,2 --round-robin --build @BUILD@ -- @BUILD@/test/mpi/inflight
hosts-comms  | +-        | 60  | ok                             | coll_adapt_priority=-1                  | @SRC@/test/mpi/hosts.sh 2 2 --build @BUILD@ -- @BUILD@/test/mpi/comms
hosts-many   | +-        | 180 | ok                             | coll_adapt_priority=-1                  | @SRC@/test/mpi/hosts.sh 2 2 --build @BUILD@ -- @BUILD@/test/mpi/manycomms
hosts-led    | -         | 60  | ok                             | coll_gpusym_sim_gpus=1                  | @SRC@/test/mpi/hosts.sh 2 2 --build @BUILD@ -- @BUILD@/test/mpi/random_coll --n {200|3000}
hosts-allmpi | -         | 60  | ok                             |                                         | @SRC@/test/mpi/hosts.sh 3 1,2,3 --build @BUILD@ -- @BUILD@/test/mpi/allmpi
hosts-p2p    | -         | 120 | ok:p2p: sent_direct [1-9].*sent_staged [1-9] | coll_gpusym_summary=1     | @SRC@/test/mpi/hosts.sh 2 2,1 --build @BUILD@ -- @BUILD@/test/mpi/p2p --thin {400|80}
hosts-beside | -         | 60  | ok                             |                                         | @SRC@/test/mpi/hosts.sh 2 1,2 --build @BUILD@ -- @BUILD@/test/mpi/p2p_beside --rounds 50 --fuzz {300|2000}
hosts-slow   | -         | 60  | ok                             |                                         | @SRC@/test/mpi/hosts.sh 3 1,1,2 --delay 2ms --rate 100mbit --build @BUILD@ -- @BUILD@/test/mpi/random_coll --n {100|1000}
# A port of the switch is dead for a second, a rank is killed; the hosts are gone with the run, however it ends.
hosts-cut    | -         | 60  | ok:^hosts: uncut host2         | form=timed coll_han_priority=-1 | @SRC@/test/mpi/hosts.sh 2 2 --cut 2@0.5 --uncut 2@1.2 --build @BUILD@ -- @BUILD@/test/mpi/random_coll --n 6000
hosts-killed | -         | 60  | fail:^hosts: host3 sent        |                                         | @SRC@/test/mpi/hosts.sh 3 1,2,3 --build @BUILD@ -- @BUILD@/test/faults/victim --kinds device --rank 1 --kill 3
# The engine between hosts, over UCX, without MPI's calls: every element of every result; on a slow wire too.
hosts-rail   | -         | 60  | ok:every element of every result is right | | @SRC@/test/mpi/hosts.sh 3 1 --build @BUILD@ --mca coll ^gpusym -- @BUILD@/bench/wire --device sim --rail --coll allreduce,allgather,reduce_scatter_block,bcast,alltoall --bytes 8,4k,100k,{1m|8m} --calls 1
hosts-rail-slow | -      | 60  | ok:every element of every result is right | | @SRC@/test/mpi/hosts.sh 4 1 --build @BUILD@ --rate 100mbit --delay 2ms --mca coll ^gpusym -- @BUILD@/bench/wire --device sim --rail --coll allreduce,bcast,alltoall --bytes 8,70k,{300k|2m} --calls 1
# The measuring between hosts runs; its figures mean nothing here.
hosts-bench  | +-        | 120 | ok:^hosts: [56] passed, 0 failed |                                         | @SRC@/bench/hosts.sh --bin @BUILD@ --out @BUILD@/test/results/hosts --short --calls 2
hosts-end    | -         | 60  | ok: 0 failed$                  | form=timed | @SRC@/test/mpi/hosts_end.sh @BUILD@
# Processes that come later, by MPI_Comm_spawn and by a port.
spawn        | 2+1,3     | 60  | ok:child 1: right              | coll_gpusym_sim_host=1 btl=self,tcp btl_tcp_if_include=lo     | test/mpi/spawn --native
spawn-none   | 2         | 60  | ok:child 1: right              | coll=^gpusym btl=self,tcp btl_tcp_if_include=lo               | test/mpi/spawn
EOF
}

builddir=${1:?usage: test/run.sh BUILDDIR [PATTERN...]}
builddir=$(cd "$builddir" && pwd) || exit 2
# What has been built but for the tests has no such program.
if [ -z "${GPUSYM_TEST_SLICED:-}" ] && [ -x "$builddir/test/slice" ]; then
    GPUSYM_TEST_SLICED=1 exec "$builddir/test/slice" "$0" "$@"
fi
shift
patterns=("$@")
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
srcdir=$GPUSYM_SRCDIR
results=$builddir/test/results
mkdir -p "$results" || exit 2

form=${GPUSYM_TEST_FORM:-short}
case $form in short | timed | long | whole | version | ompi) ;; *)
    echo "GPUSYM_TEST_FORM is short, timed, long, whole, version or ompi" >&2
    exit 2
    ;;
esac
device=${GPUSYM_TEST_DEVICE:-sim}
export GPUSYM_TEST_DEVICE=$device
case $form in # of the unit tests
    version | ompi) export GPUSYM_TEST_FORM=short ;;
    *) export GPUSYM_TEST_FORM=$form ;;
esac

# Half as many tests as cores side by side, at least two, since most of a short one is the waiting of mpirun's start. One where
# GPUs are shared; and of those that judge by the clock.
cores=$(getconf _NPROCESSORS_ONLN)
lanes=${GPUSYM_TEST_JOBS:-$((cores > 4 ? cores / 2 : 2))}
if [ "$form" = timed ] || { [ "$device" != sim ] && [ -z "${GPUSYM_TEST_JOBS:-}" ]; }; then lanes=1; fi

# How much more time tests need than on a machine of their own, from how much longer a process computes here, now: 1 to 5.
measure_slowness() {
    local LC_ALL=C TIMEFORMAT='%R %U %S' i
    {
        time for ((i = 0; i < 400000; i++)); do :; done
    } 2>&1 | awk '{ factor = $1 / ($2 + $3 + 0.001); factor = factor < 1.5 ? 1 : int(2 * factor + 0.5); print (factor > 5 ? 5 : factor) }'
}
slow_given=${GPUSYM_TEST_SLOW:-}
set_slow() {
    slow=${slow_given:-$(measure_slowness)}
    [ -n "$slow_given" ] || [ "$GPUSYM_SANITIZERS" = no ] || slow=$((5 * slow))
    export GPUSYM_TEST_SLOW=$slow
}
set_slow
# Where this machine is busy, who waits sleeps for moments.
if [ "$slow" -gt 1 ] && [ "$device" = sim ] && [ "$GPUSYM_SANITIZERS" = no ] && [ -e "$builddir/test/.libs/libnap.so" ]; then
    export LD_PRELOAD=$builddir/test/.libs/libnap.so
fi

# shellcheck source=test/mpirun.sh
. "$srcdir/test/mpirun.sh"
# The component and its library from the build tree.
export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL

# The sanitizers' library must come first in a process whose program was built without them: ompi_info, but no shell.
export GPUSYM_TEST_PRELOAD=
case $GPUSYM_SANITIZERS in
    address)
        # An error aborts. A leak leaves the exit status as it is: Open MPI has its own; leaks() finds ours.
        # Stacks are unwound in full: Open MPI has no frame pointers everywhere, and what it leaks would be taken for ours.
        export ASAN_OPTIONS=abort_on_error=1:exitcode=0:protect_shadow_gap=0:detect_leaks=1:fast_unwind_on_malloc=0
        export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
        GPUSYM_TEST_PRELOAD=$(${CC:-gcc} -print-file-name=libasan.so)
        ;;
    thread)
        # A report fails the test by its exit status. Scripts and mpirun fork and go on.
        export TSAN_OPTIONS=suppressions=$srcdir/test/tsan.supp:exitcode=66:die_after_fork=0:history_size=7
        # UCX hooks madvise(), and takes a lock there; a thread that ends calls it after the sanitizer has forgotten it.
        export UCX_MEM_EVENTS=n
        GPUSYM_TEST_PRELOAD=$(${CC:-gcc} -print-file-name=libtsan.so)
        ;;
esac

# What the sanitizers report goes to a file for each process, since the ranks' lines would mix in one; and from there, at the
# test's end, behind its log.
asan_options=${ASAN_OPTIONS:-}
tsan_options=${TSAN_OPTIONS:-}
reports_beside() {
    [ "$GPUSYM_SANITIZERS" = no ] && return
    rm -f "$1".report.*
    export ASAN_OPTIONS=$asan_options:log_path=$1.report TSAN_OPTIONS=$tsan_options:log_path=$1.report
}
reports_behind() {
    local file
    for file in "$1".report.*; do
        [ -e "$file" ] && cat "$file" >>"$1" && rm -f "$file"
    done
}

# ---- a test, and what is said of it ----

# The end of a log, of a test that failed.
show() {
    [ -s "$1" ] || return 0
    tail -n 25 "$1" | sed 's/^/     | /'
    echo "     all of it: $1"
}

# report ok|FAIL|skip LABEL SECONDS LOG [WORDS]: a line; of a test that failed the end of LOG and, for the end of all,
# what belongs to it in the file $failures. The command is $command_line.
report() {
    printf '%-4s %-60s %4ss%s\n' "$1" "$2" "$3" "${5:+  ($5)}"
    [ "$1" = FAIL ] || return 0
    show "$4"
    printf '%s\t%s\t%s\t%s\n' "$2" "${5:-failed}" "$4" "$command_line" >>"$failures"
}

# Processes below this one, and itself.
family() {
    local child
    echo "$1"
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do family "$child"; done
}

# The stacks of a test that does not end: of those of its processes that have loaded gpusym, the first 16.
stacks() {
    local pid n=0
    command -v gdb >/dev/null || { echo "no gdb, so no stacks" && return; }
    for pid in $(family "$1"); do
        grep -qs 'gpusym.*\.so' "/proc/$pid/maps" && [ $((n += 1)) -le 16 ] || continue
        echo "==== process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-200)"
        timeout --kill-after=5 30 gdb -p "$pid" -batch -nx -ex 'thread apply all backtrace 16' 2>/dev/null </dev/null | grep -E '^(#|Thread)'
    done
}

# limited SECONDS LOG COMMAND...: its exit status; 124 if it had not ended by then, and was ended.
limited() {
    local limit=$1 log=$2 test clock ended='' rc
    shift 2
    : >"$log"
    timeout --kill-after=10 0 "$@" >>"$log" 2>&1 </dev/null & # no limit, but a group of processes that is ended as one
    test=$!
    sleep "$limit" &
    clock=$!
    trap 'kill "$test" "$clock" 2>/dev/null; exit 143' TERM
    wait -n -p ended "$test" "$clock"
    rc=$?
    if [ "$ended" = "$clock" ]; then
        stacks "$test" >>"$log" 2>&1
        kill "$test"
        wait "$test"
        rc=124
    else
        kill "$clock"
        wait "$clock"
    fi 2>/dev/null
    trap - TERM
    return $rc
}

wanted() {
    [ ${#patterns[@]} -eq 0 ] && return 0
    local pattern
    for pattern in "${patterns[@]}"; do
        # shellcheck disable=SC2053  # a pattern is meant
        [[ $1 == $pattern ]] && return 0
    done
    return 1
}

# Every test in a cmocka program counts; one that ends without having said so failed.
unit_test() {
    local name=$1 program=$builddir/test/unit/$1 log=$results/unit-$1.log
    local start=$SECONDS rc line state leaked all=0 bad=0
    command_line=$program
    if [ ! -x "$program" ]; then
        echo "$program was not built" >"$log"
        report FAIL "unit/$name" 0 "$log"
        return
    fi
    limited $((300 * slow)) "$log" env CMOCKA_MESSAGE_OUTPUT=tap "$program"
    rc=$?
    while IFS= read -r line; do
        state=ok
        [[ $line == "not ok "* ]] && state=FAIL
        [[ $line == *"# SKIP"* ]] && state=skip
        line=${line#not }
        line=${line#ok }
        line=${line#*[0-9] }
        line=${line#- }
        all=$((all + 1))
        [ $state = FAIL ] && bad=$((bad + 1))
        report $state "unit/$name: $line" $((SECONDS - start)) "$log"
    done < <(grep -E '^(not )?ok [0-9]+' "$log")
    leaked=$(leaks "$log")
    if [ $rc -eq 124 ]; then
        report FAIL "unit/$name" $((SECONDS - start)) "$log" "not ended after $((300 * slow)) s"
    elif [ $all -eq 0 ] || { [ $rc -ne 0 ] && [ $bad -eq 0 ]; }; then
        report FAIL "unit/$name" $((SECONDS - start)) "$log" "exit status $rc"
    elif [ -n "$leaked" ]; then
        report FAIL "unit/$name" $((SECONDS - start)) "$log" "${leaked//$'\n'/; }"
    fi
}

# leaks LOG: of what AddressSanitizer's leak checker says, what was allocated by code of ours, a line each. The first
# frame is the sanitizer's own, the next the allocation's, unless that is a constructor of Open MPI's headers.
leaks() {
    [ "$GPUSYM_SANITIZERS" = address ] || return 0
    awk '
        / leak of / { at = 1; next }
        at && /^ *#[0-9]+ / && !/libsanitizer|opal_object\.h/ {
            at = 0
            if (/(gpusym|kernels|tuning|pmpi|test|examples|bench)\/[a-z0-9_\/]+\.(c|h|def):/) print "leaked by " $4 " " $5
        }' "$1" | sort -u
}

# judge EXPECT STATUS LOG: prints why not, or nothing.
judge() {
    local want=${1%%:*} regex=
    [[ $1 == *:* ]] && regex=${1#*:}
    case $want in
        ok) [ "$2" -eq 0 ] || echo "exit status $2" ;;
        fail) [ "$2" -ne 0 ] || echo "exit status 0, a failure was expected" ;;
        *) echo "the table says '$1'" ;;
    esac
    if [[ $regex == !* ]]; then
        ! grep -E -m 1 -- "${regex#!}" "$3" || echo "that line matches '${regex#!}'"
    elif [ -n "$regex" ]; then
        grep -Eq -- "$regex" "$3" || echo "no line matches '$regex'"
    fi
    leaks "$3"
}

# run_test NAME RANKS SECONDS EXPECT MCA COMMAND...
run_test() {
    local name=$1 ranks=$2 limit=$(($3 * slow)) expect=$4 parameters=$5 label log start rc why parameter
    local mca=() environment=() whole
    shift 5
    label=$name
    [ "$ranks" = - ] || label="$name, $ranks ranks"
    log=$results/$name-$ranks.log
    [[ " $parameters" == *" coll="* ]] || parameters="coll=gpusym $parameters"
    [[ " $parameters" == *" coll_gpusym_device="* ]] || parameters="$parameters coll_gpusym_device=$device"
    for parameter in $parameters; do
        mca+=(--mca "${parameter%%=*}" "${parameter#*=}")
        environment+=("OMPI_MCA_$parameter")
    done
    start=$SECONDS
    reports_beside "$log"
    if [ "$ranks" = - ]; then
        whole=(env "${environment[@]}" "$@")
    else
        whole=("$GPUSYM_OMPI_MPIRUN" -n "$ranks" "${oversubscribe[@]}" "${mca[@]}" "$@")
    fi
    command_line=${whole[*]}
    limited "$limit" "$log" "${whole[@]}"
    rc=$?
    reports_behind "$log"
    case $rc in
        77) report skip "$label" $((SECONDS - start)) "$log" "$(tail -n 1 "$log")" ;;
        124) report FAIL "$label" $((SECONDS - start)) "$log" "not ended after $limit s" ;;
        *)
            why=$(judge "$expect" $rc "$log")
            report "$([ -z "$why" ] && echo ok || echo FAIL)" "$label" $((SECONDS - start)) "$log" "${why//$'\n'/; }"
            ;;
    esac
}

# ranks_of RANKS COMMAND: those of a line's ranks, or "-", for which this form runs the command.
ranks_of() {
    local short=${1%%+*} long=
    [[ $1 != *+* ]] || long=${1#*+}
    case $form in
        short) long= ;;
        long) [[ $2 == *'{'*'|'*'}'* ]] || short= ;;
    esac
    if [ -n "$short$long" ] && [ -n "${GPUSYM_TEST_RANKS:-}" ] && [[ $1 == *[0-9]* && $1 != *=* ]]; then
        echo "$GPUSYM_TEST_RANKS"
    else
        short=$short,$long
        short=${short//=/}
        echo "${short//,/ }"
    fi
}

# command_of COMMAND: {A|B} is A or B.
command_of() {
    # shellcheck disable=SC2001  # a group is meant
    if [ "$form" = short ]; then
        sed 's/{\([^{}|]*\)|[^{}|]*}/\1/g' <<<"$1"
    else
        sed 's/{[^{}|]*|\([^{}|]*\)}/\1/g' <<<"$1"
    fi
}

# What meets most of Open MPI's own code: its functions on host memory and messages, which its versions do differently; the
# form that the forms for other versions of Open MPI run of a test, empty: none.
form_of() {
    case $form:$1 in
        version:* | ompi:*) ;;
        *) echo "$form" && return ;;
    esac
    case $form:$1 in
        *:allmpi* | *:threads | *:comms | *:manycomms | *:random_coll-makes*) ;;
        *:accel* | *:kinds* | *:spawn* | *:p2p | *:p2p_order | *:btl*) ;;
        *:islands-* | *:hosts-every | *:hosts-led | *:hosts-comms | *:hosts-allmpi) ;;
        ompi:params-docs | ompi:pvars | ompi:example | ompi:every | ompi:random_coll | ompi:inflight | ompi:allocmem) ;;
        ompi:finalize-* | ompi:hosts-2x2 | ompi:mixed | ompi:islands | ompi:neighbors | ompi:sizes) ;;
        ompi:*) return ;;
        *) echo short && return ;;
    esac
    [ "$form" = ompi ] && echo short || echo whole
}

# A line of the table, for each of its numbers of ranks.
table_line() {
    local name=$1 ranks limit=$3 expect=$4 parameters=$5 program
    local -a command
    local form=$form
    if [[ " $parameters " == *" form=timed "* ]]; then
        [ "$form" = timed ] || return 0
        parameters=${parameters/form=timed/}
    else
        [ "$form" != timed ] || return 0
    fi
    form=$(form_of "$1")
    [ -n "$form" ] || return 0
    ranks=$(ranks_of "$2" "$6")
    [ -n "${ranks// /}" ] || return 0
    read -ra command <<<"$(command_of "$6")"
    command=("${command[@]//@SRC@/$srcdir}")
    command=("${command[@]//@BUILD@/$builddir}")
    command=("${command[@]//@INFO@/$GPUSYM_OMPI_INFO}")
    command=("${command[@]//@PRELOAD@/$GPUSYM_TEST_PRELOAD}")
    command=("${command[@]//@KINDS@/${GPUSYM_TEST_PRELOAD:+$GPUSYM_TEST_PRELOAD:}$builddir/.libs/libgpusym_kinds.so}")
    command=("${command[@]//@MPI@/${GPUSYM_TEST_PRELOAD:+$GPUSYM_TEST_PRELOAD:}$builddir/.libs/libgpusym_mpi.so}")
    command=("${command[@]//@BLIND@/${GPUSYM_TEST_PRELOAD:+$GPUSYM_TEST_PRELOAD:}$builddir/test/faults/.libs/libblind.so}")
    command=("${command[@]//@THREADLESS@/${GPUSYM_TEST_PRELOAD:+$GPUSYM_TEST_PRELOAD:}$builddir/test/faults/.libs/libthreadless.so}")
    command=("${command[@]//@STORM@/${GPUSYM_TEST_PRELOAD:+$GPUSYM_TEST_PRELOAD:}$builddir/test/mpi/.libs/libstorm.so}")
    program=${command[0]}
    if [[ $program == */* ]]; then
        [[ $program == /* ]] || command[0]=$builddir/$program
        if [ "$program" = bench/gpusym_netperf ] && [ "${GPUSYM_HAVE_UCX:-1}" = 0 ]; then
            add_skipped "$name" "built without UCX"
            return
        fi
        if [ ! -x "${command[0]}" ]; then
            add_job cannot_run "$name" "${command[0]} was not built"
            return
        fi
    fi
    if [[ $parameters == *sim_* ]] && [ "$device" != sim ]; then
        add_skipped "$name" "only for the simulator"
        return
    fi
    if [[ " $parameters" =~ " from="([0-9]+) ]]; then
        parameters=${parameters/from=[0-9]/}
        if [ "$GPUSYM_OMPI_MAJOR" -lt "${BASH_REMATCH[1]}" ]; then
            add_skipped "$name" "only for Open MPI ${BASH_REMATCH[1]} and later"
            return
        fi
    fi
    if [[ " $parameters" =~ " to="([0-9]+) ]]; then
        parameters=${parameters/to=[0-9]/}
        if [ "$GPUSYM_OMPI_MAJOR" -gt "${BASH_REMATCH[1]}" ]; then
            add_skipped "$name" "only for Open MPI up to ${BASH_REMATCH[1]}"
            return
        fi
    fi
    # Open MPI 6.0.0rc2, with gpusym or without: messages among threads stand still in btl/sm (README, Limitations).
    if [ "$GPUSYM_OMPI_MAJOR" -ge 6 ] && [[ $name == *threads ]]; then
        parameters+=" btl=self,tcp btl_tcp_if_include=lo"
    fi
    for n in $ranks; do
        add_job run_test "$name" "$n" "$limit" "$expect" "$parameters" "${command[@]}"
    done
}

# cannot_run NAME WHY
cannot_run() {
    command_line=$1
    echo "$2" >"$results/$1.log"
    report FAIL "$1" 0 "$results/$1.log"
}

# ---- all of them ----

# A job is what runs one or more tests, as a command of this shell. It is run in a shell of its own; jobs run side by side.
jobs=() # "barrier": wait for all before
passed=0
failed=0
skipped=0
said=$results/said
rm -rf "$said" && mkdir "$said" || exit 2

add_job() {
    jobs+=("$(printf '%q ' "$@")")
}

add_skipped() {
    add_job report skip "$1" 0 "" "$2"
}

# count NUMBER: adds up what job NUMBER said, and prints it.
count() {
    local file=$said/$1
    cat "$file"
    passed=$((passed + $(grep -c '^ok  ' "$file")))
    failed=$((failed + $(grep -c '^FAIL' "$file")))
    skipped=$((skipped + $(grep -c '^skip' "$file")))
}

# run_job NUMBER: in a shell of its own
run_job() {
    failures=$said/$1.failed
    command_line=
    eval "${jobs[$1]}" >"$said/$1" 2>&1
}

# A job has ended; it is one that failed, or what it said counts. One that fails counts as what its repetition says.
failing=()
hung=0 # so many have not ended
running=() # the number of the job of each process
await_one() {
    local pid=
    wait -n -p pid "${!running[@]}"
    local number=${running[$pid]}
    unset "running[$pid]"
    if [ -s "$said/$number.failed" ] && [ "$repeating" = 0 ]; then
        cat "$said/$number"
        failing+=("$number")
        hung=$((hung + $(grep -c '^FAIL.*(not ended after' "$said/$number")))
    else
        count "$number"
    fi
}

# The jobs with these numbers, that many at a time.
run_jobs() {
    local width=$1 number done=0
    shift
    for number; do
        if [ $hung -ge 10 ]; then
            echo "$hung tests have not ended: the rest is not run"
            break
        fi
        while [ ${#running[@]} -ge "$width" ] || { [ "${jobs[number]}" = "barrier " ] && [ ${#running[@]} -gt 0 ]; }; do
            await_one
        done
        [ $((done += 1)) -ne $((($# + 1) / 2)) ] || [ "$repeating" = 1 ] || load_middle=$(load)
        [ "${jobs[number]}" != "barrier " ] || continue
        run_job "$number" &
        running[$!]=$number
    done
    while [ ${#running[@]} -gt 0 ]; do await_one; done
}

load() {
    cut -d' ' -f1 /proc/loadavg
}

# tell FAIL|flaky: FILE: the tests of a file that report() wrote, with their commands and the ends of their logs
tell() {
    local label why log line
    while IFS=$'\t' read -r label why log line; do
        printf '%s %s\n     %s\n     $ %s\n' "$1" "$label" "$why" "$line"
        [ ! -r "$log" ] || tail -n 20 "$log" | sed 's/^/     | /'
    done <"$2"
}

# Once more, alone. Both logs are kept.
repeat() {
    local number label why log line
    [ ${#failing[@]} -gt 0 ] || return 0
    if [ ${#failing[@]} -gt 3 ]; then
        echo "more than 3 tests failed: none is repeated"
        for number in "${failing[@]}"; do count "$number" >/dev/null; done
        return
    fi
    echo "---- once more, alone: ${#failing[@]} that failed"
    [ -n "$slow_given" ] || set_slow
    for number in "${failing[@]}"; do
        while IFS=$'\t' read -r label why log line; do
            [ ! -e "$log" ] || mv "$log" "${log%.log}.first.log"
            printf '%s\t%s\t%s\t%s\n' "$label" "$why" "${log%.log}.first.log" "$line"
        done <"$said/$number.failed" >"$said/$number.first"
        rm "$said/$number.failed"
        run_jobs 1 "$number"
    done
}

stop_all() {
    trap - INT TERM
    kill "${!running[@]}" 2>/dev/null
    wait
    exit 143
}
trap stop_all INT TERM

# The unit tests that have a long form (long_form() of test/unit/random.h), and those that have tests for the timed one.
long_units="test_channels test_kernels"
timed_units="test_carry test_channels test_exchange test_kernels test_resident test_worker"

if [ "$GPUSYM_HAVE_CMOCKA" = 1 ]; then
    while read -r name; do
        case $form in
            timed) [[ " $timed_units " == *" $name "* ]] || continue ;;
            long) [[ " $long_units " == *" $name "* ]] || continue ;;
            ompi) continue ;;
        esac
        wanted "$name" && add_job unit_test "$name"
    done <"$builddir/test/unit.list"
fi
while IFS='|' read -r name ranks limit expect parameters command; do
    read -r name <<<"$name"
    case $name in
        '' | '#'*) continue ;;
        barrier) add_job barrier && continue ;;
    esac
    wanted "$name" || continue
    read -r ranks <<<"$ranks"
    read -r limit <<<"$limit"
    read -r expect <<<"$expect"
    read -r parameters <<<"$parameters"
    table_line "$name" "$ranks" "$limit" "$expect" "$parameters" "$command"
done < <(tests)

load_start=$(load)
load_middle=$load_start
echo "Open MPI $GPUSYM_OMPI_VERSION, device $device, $cores cores, $form form, $lanes at a time, time limits times $slow"
[ "$GPUSYM_HAVE_CMOCKA" = 1 ] || echo "unit tests: off, cmocka was not found"
repeating=0
run_jobs "$lanes" "${!jobs[@]}"
repeating=1
repeat

[ $skipped -eq 0 ] || echo "$skipped not run here"
echo "load: $load_start at the start, $load_middle in the middle, $(load) at the end"
for number in "${failing[@]}"; do
    if [ -s "$said/$number.failed" ]; then
        tell FAIL "$said/$number.failed"
    else
        tell flaky: "$said/$number.first"
    fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
