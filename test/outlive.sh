#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs a program of an MPI job, and outlives it by a few seconds if it is killed, so that its peers find that out before
# mpirun does, which ends them:
#
#     mpirun -n 2 test/outlive.sh PROGRAM [ARGUMENT...]
set -u

"$@"
rc=$?
[ "$rc" -le 128 ] || sleep 10
exit "$rc"
