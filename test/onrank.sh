#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs a program of an MPI job with other MCA parameters, or (in capitals) other variables, on one rank:
#
#     mpirun -n 3 test/onrank.sh RANK NAME=VALUE[,NAME=VALUE...] PROGRAM [ARGUMENT...]
set -u

rank=${1:?usage: test/onrank.sh RANK NAME=VALUE PROGRAM [ARGUMENT...]}
parameters=$2
shift 2
if [ "${OMPI_COMM_WORLD_RANK:?only below mpirun}" = "$rank" ]; then
    IFS=, read -ra pairs <<<"$parameters"
    for pair in "${pairs[@]}"; do
        case $pair in
            [A-Z]*) export "$pair" ;;
            *) export "OMPI_MCA_$pair" ;;
        esac
    done
fi
exec "$@"
