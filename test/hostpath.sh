#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# How many instructions gpusym adds to a collective on host buffers, beyond the module that does it without gpusym:
# counted by valgrind's callgrind on rank 0 of 2, on a machine (or as if on one) without GPUs, and on the simulator. And
# that MPI_Init makes nothing on a device and asks nobody: it finds out whether there is a driver, and where there is one
# maps the pages of the processes of this host.
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

command -v valgrind >/dev/null || { echo "no valgrind here" && exit 77; }
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
[ "$GPUSYM_SANITIZERS" = no ] || { echo "not with sanitizers: they add their own" && exit 77; }
# shellcheck source=test/mpirun.sh
. "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL OMPI_MCA_coll=gpusym
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# One part of a profile: "the sum for a call". Of an edge the instructions of what is called are in its last field.
# shellcheck disable=SC2016  # awk's own
added='
    function ours(object) { return object ~ /gpusym[^\/]*\.so$/ }
    function libc(object) { return object ~ /\/(libc|libpthread|ld-linux)[^\/]*$/ }
    /^ob=/ { object = substr($0, 4) }
    /^fn=/ { called = object; name = substr($0, 4); counts = name !~ /^(sim_query|table_find|cuda_query|make_progress|internal_progress|hook_(i?(send|recv)(_init)?|start))($|\x27)/ }
    /^cob=/ { called = substr($0, 5) }
    /^calls=/ {
        getline
        if (counts && ours(object) && libc(called)) sum += $NF
        called = object
        next
    }
    /^[0-9+*-]/ && counts && ours(object) { sum += $2 }
    END { printf "%.0f", sum / calls }'

# run DEVICE: a profile for MPI_Init, $dir/DEVICE.1, and one a collective from .2 on; their names in $dir/DEVICE
run() {
    local profile=(valgrind --tool=callgrind --compress-strings=no --compress-pos=no --callgrind-out-file="$dir/$1"
        --toggle-collect=initialise --toggle-collect=measured --dump-after=initialise --dump-after=counted)
    # shellcheck disable=SC2154  # test/mpirun.sh sets it
    CUDA_VISIBLE_DEVICES='' OMPI_MCA_coll_gpusym_device=$1 timeout 100 "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}" \
        -n 1 "${profile[@]}" "$program" "$calls" : -n 1 "$program" "$calls" >"$dir/out" 2>"$dir/log" </dev/null ||
        { tail -n 20 "$dir/log" && echo "hostpath failed with device $1" && exit 1; }
    sed -n 's/^collective //p' "$dir/out" >"$dir/$1.names"
}

failed=0
fail() {
    echo "$*"
    failed=1
}

# What no MPI_Init may do: anything on a device, connections between ranks.
forbidden='gpusym_heap|gpusym_lane|gpusym_rollcall|gpusym_topo'

run auto
run sim
for device in auto sim; do
    grep -q '^ob=.*mca_coll_gpusym' "$dir/$device.1" || fail "gpusym was not loaded by MPI_Init, device $device"
    opened=$(grep -Eo "^fn=($forbidden)[a-z_]*" "$dir/$device.1" | sort -u | tr '\n' ' ')
    [ -z "$opened" ] || fail "in MPI_Init, device $device: $opened"
done
echo "in MPI_Init: $(awk -v calls=1 "$added" "$dir/auto.1") instructions, none of them of the heap or its peers"
printf '%-24s %16s %16s\n' 'instructions a call' 'without device' 'with a device'
i=1
while read -r name; do
    i=$((i + 1))
    without=$(awk -v calls="$calls" "$added" "$dir/auto.$i")
    with=$(awk -v calls="$calls" "$added" "$dir/sim.$i")
    printf '%-24s %16s %16s\n' "$name" "$without" "$with"
    [ "$without" -gt 0 ] || fail "$name: gpusym was not there"
    [ "$without" -le $most_without ] || fail "$name: without a device more than $most_without"
    case $name in
        neighbor_* | ineighbor_* | alltoallw | ialltoallw) most=$most_full ;;
        *) most=$most_with ;;
    esac
    [ "$with" -le "$most" ] || fail "$name: with a device more than $most"
done <"$dir/auto.names"
[ $i -gt 40 ] || fail "only $((i - 1)) collectives were counted"
[ $failed -eq 0 ] && echo "at most $most_without without a device, $most_with with one, $most_full off the short path"
exit $failed
