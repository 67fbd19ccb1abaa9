#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs a program of an MPI job in a pid namespace of its own that keeps this one's /proc, as some container runtimes
# make them: process 1 of a host on which other ranks are process 1 too.
#
#     mpirun -n 3 --mca btl self,tcp test/pidns.sh PROGRAM [ARGUMENT...]
#
# Exit status 77: such namespaces cannot be made here.
set -u

if ! unshare --pid --fork true 2>/dev/null; then
    echo "test/pidns.sh: no pid namespace can be made here"
    exit 77
fi
exec unshare --pid --fork --kill-child "$@"
