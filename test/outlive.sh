#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs a program of an MPI job, and outlives it if it is killed, so that its peers find that out by themselves: mpirun, which
# would end them, does not see it. It ends with the job, which a peer aborts:
#
#     mpirun -n 2 test/outlive.sh PROGRAM [ARGUMENT...]
set -u

"$@"
rc=$?
[ "$rc" -le 128 ] || exec sleep 1000
exit "$rc"
