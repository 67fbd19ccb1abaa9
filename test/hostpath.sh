#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# How many instructions gpusym adds to a collective on host buffers, beyond the module that does it without gpusym:
# counted by valgrind's callgrind on rank 0 of 2, on a machine (or as if on one) without GPUs, and on the simulator. And
# that MPI_Init makes nothing on a device and asks nobody: it finds out whether there is a driver, and where there is one
# maps the pages of the processes of this host.
#
# Then of an all-reduce on GPU memory the instructions of its trace (coll_gpusym_trace) that delay it: all but those that
# it has while the GPU works (exec/traced.h).
#
#     test/hostpath.sh BUILDDIR
#
# Counted are the instructions in our two libraries and in what they call of libc. Not counted: the previous module; the
# device's answer, whose memory a buffer is (on a GPU that is the driver's); our place in MPI's progress, where the
# previous module waits for other ranks; and the messages that it sends, which have a count of their own. Exit status 77: there is no valgrind.
set -u

builddir=$(cd "${1:?usage: test/hostpath.sh BUILDDIR}" && pwd) || exit 2
program=$builddir/test/mpi/hostpath
calls=96
# Most instructions a call: without a device, of every collective; with one, of those that take the short path, and of
# the others: neighbours, and types for each peer.
most_without=60
most_with=170
most_full=1000
# The same of a trace.
most_traced=130

# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/mpirun.sh
. "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

uncounted='sim_query|table_find|cuda_query|make_progress|internal_progress|hook_(i?(send|recv)(_init)?|start)|i?(send|recv)_internal'
# shellcheck source=test/callgrind.sh
. "$GPUSYM_SRCDIR/test/callgrind.sh" || exit 2

# What no MPI_Init may do: anything on a device, connections between ranks.
forbidden='gpusym_heap|gpusym_lane|gpusym_agreement|gpusym_topo'

# A profile for MPI_Init, .1, and one a collective.
profile auto collective initialise counted
profile sim collective initialise counted
for device in auto sim; do
    grep -q '^ob=.*mca_coll_gpusym' "$dir/$device.1" || fail "gpusym was not loaded by MPI_Init, device $device"
    opened=$(grep -Eo "^fn=($forbidden)[a-z_]*" "$dir/$device.1" | sort -u | tr '\n' ' ')
    [ -z "$opened" ] || fail "in MPI_Init, device $device: $opened"
done
echo "in MPI_Init: $(added "$dir/auto.1" 1) instructions, none of them of the heap or its peers"
printf '%-24s %16s %16s\n' 'instructions a call' 'without device' 'with a device'
i=1 n=0
while read -r name; do
    i=$((i + 1))
    without=$(added "$dir/auto.$i")
    with=$(added "$dir/sim.$i")
    printf '%-24s %16s %16s\n' "$name" "$without" "$with"
    [ "$without" -gt 0 ] || fail "$name: gpusym was not there"
    [ "$without" -le $most_without ] || fail "$name: without a device more than $most_without"
    case $name in
        neighbor_* | ineighbor_* | alltoallw | ialltoallw) most=$most_full ;;
        *) most=$most_with ;;
    esac
    [ "$with" -le "$most" ] || fail "$name: with a device more than $most"
done <"$dir/auto.names"
# By the names of its functions, with what they call of libc, which is clocks.
export OMPI_MCA_coll_gpusym_trace=$dir/trace OMPI_MCA_coll_gpusym_linger=100000
arguments=(gpu)
off=()
for name in posted awaits there launched runs; do
    off+=("coll_gpusym_traced_note_$name")
done
only='coll_gpusym_(traced|trace|sums|events)_[a-z_]*|block_noted|start_noted|take_record|end_(record|incomplete)|describe'
profile sim collective counted
for form in blocking nonblocking persistent; do
    n=$((n + 1))
    traced=$(added "$dir/sim.$n")
    printf '%-24s %33s\n' "traced, $form" "$traced"
    [ "$traced" -gt 0 ] || fail "$form: no trace was there"
    [ "$traced" -le "$most_traced" ] || fail "$form: a trace delays it by more than $most_traced"
done
[ $i -gt 40 ] || fail "only $((i - 1)) collectives were counted"
[ $failed -eq 0 ] && echo "at most $most_without without a device, $most_with with one, $most_full off the short path"
exit $failed
