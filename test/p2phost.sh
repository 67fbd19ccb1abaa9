#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What gpusym adds to messages of host buffers, in instructions, beyond the PML that serves them without gpusym: counted
# by valgrind's callgrind on rank 0 of 2, on a machine (or as if on one) without GPUs, and on the simulator.
#
#     test/p2phost.sh BUILDDIR            counts
#     test/p2phost.sh BUILDDIR --time     prints times with gpusym over those without: medians of runs in turns. No time
#                                         makes it fail
#
# Counted are the instructions in our libraries and in what they call of libc, completion callbacks included. Not
# counted: the PML; the device's answer, whose memory a buffer is; our place in MPI's progress, whose number of calls
# depends on how long a rank waits. Exit status 77: there is no valgrind.
set -u

builddir=$(cd "${1:?usage: test/p2phost.sh BUILDDIR [--time]}" && pwd) || exit 2
program=$builddir/test/mpi/hostpath_p2p
calls=96
# Most instructions of a send and a receive of buffers in the heap: blocking; nonblocking, with their completion. The
# goals are 60 and 80.
most_blocking=60
most_nonblocking=80

# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/mpirun.sh
. "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# measure COLL DEVICE: "NAME NANOSECONDS" lines
measure() {
    # shellcheck disable=SC2154  # test/mpirun.sh sets it
    OMPI_MCA_coll=$1 OMPI_MCA_coll_gpusym_device=$2 timeout 100 "$GPUSYM_OMPI_MPIRUN" \
        "${oversubscribe[@]}" -n 2 "$program" 200 time </dev/null | sed -n 's/^case //p'
}

if [ "${2:-}" = --time ]; then
    for _ in 1 2 3 4 5 6 7 8 9; do
        measure ^gpusym sim | sed 's/$/ without/'
        measure gpusym sim | sed 's/$/ with/'
    done | sort -k1,1 -k3,3 -k2,2g | awk -f "$GPUSYM_SRCDIR/test/turns.awk" | sort |
        awk -F, '{ printf "%-20s %10.1f ns without, %10.1f with: %.3f\n", $1, $2, $3, $4 }'
    exit
fi

uncounted='sim_query|table_find|cuda_query|[a-z_]*progress'
# shellcheck source=test/callgrind.sh
. "$GPUSYM_SRCDIR/test/callgrind.sh" || exit 2

profile auto case counted
profile sim case counted
printf '%-24s %16s %16s\n' 'instructions a pair' 'without device' 'with a device'
i=0
while read -r name; do
    i=$((i + 1))
    without=$(added "$dir/auto.$i")
    with=$(added "$dir/sim.$i")
    printf '%-24s %16s %16s\n' "$name" "$without" "$with"
    [ "$without" -eq 0 ] || fail "$name: without a device more than none"
    case $name in
        *_static | *_mapped) continue ;; # it takes longer to know what they are
        *isend_irecv*) most=$most_nonblocking ;;
        *) most=$most_blocking ;;
    esac
    [ "$with" -gt 0 ] || fail "$name: gpusym was not there"
    [ "$with" -le "$most" ] || fail "$name: with a device more than $most"
done <"$dir/auto.names"
[ $i -gt 8 ] || fail "only $i cases were counted"
[ $failed -eq 0 ] && echo "at most $most_blocking blocking, $most_nonblocking nonblocking, none without a device"
exit $failed
