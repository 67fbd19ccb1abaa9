#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs an MPI job in a cgroup with a memory limit, and removes that cgroup:
#
#     test/mpi/cgroup.sh BYTES RANKS BUILDDIR PROGRAM [ARGUMENT...]
#
# The exit status is mpirun's; 77: no such cgroup can be made here, and the last line says why.
set -u

limit=${1:?}
ranks=${2:?}
build=$(cd "${3:?}" && pwd) || exit 2
shift 3
# shellcheck source=/dev/null
. "$build/test/build.env" || exit 2
# shellcheck source=test/mpirun.sh
. "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
export OMPI_MCA_opal_mca_base_component_path=$build/components:$GPUSYM_OMPI_PATH_TAIL

cannot() {
    printf 'no cgroup with a memory limit can be made here: %s\n' "$*"
    exit 77
}

[ "$GPUSYM_SANITIZERS" = no ] || cannot "sanitizers take more memory"
# Version 2, or the hierarchy of version 1.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    root=/sys/fs/cgroup file=memory.max
    grep -qw memory $root/cgroup.subtree_control || cannot "$root/cgroup.subtree_control has no memory"
else
    root=/sys/fs/cgroup/memory file=memory.limit_in_bytes
fi
group=$root/gpusym-test.$$
why=$(mkdir "$group" 2>&1) || cannot "$why"
# Processes may be gone a little later than mpirun.
trap 'until rmdir "$group" 2>/dev/null || [ $((++tries)) -gt 100 ]; do sleep 0.1; done' EXIT
tries=0
why=$({ echo "$limit" >"$group/$file"; } 2>&1) || cannot "$why"

# shellcheck disable=SC2016  # there
bash -c 'echo $$ >"$1/cgroup.procs" || exit 77; shift; exec "$@"' - "$group" \
    "$GPUSYM_OMPI_MPIRUN" -n "$ranks" "${oversubscribe[@]}" "$@"
