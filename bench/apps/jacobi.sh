#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# NVIDIA's multi-gpu-programming-models: Jacobi iterations by MPI with gpusym, beside the same program by NCCL:
#
#     bench/apps/jacobi.sh FOLDER
#
# FOLDER has the repository as its user built it: mpi/jacobi and mpi_overlap/jacobi with gpusym's mpi-ext.h (guide.md,
# "On a cluster"), nccl/jacobi and nccl_overlap/jacobi. SIZES: edges of the square mesh (1024 4096 16384). See
# common.sh for the rest. The program compares every point with what one GPU computes, and exits with 1 if one differs.
# The way "gpusym, staged" sends all messages through host memory.
set -u
name=jacobi
folder=$(cd "${1:?usage: bench/apps/jacobi.sh FOLDER}" && pwd) || exit 2
# shellcheck source=bench/apps/common.sh
. "$(dirname "$0")/common.sh"

one() {
    local size=${1%%^*} form=mpi environment=()
    case $2 in
        *NCCL*) form=nccl ;;
    esac
    case $2 in
        *overlap*) form+=_overlap ;;
        *staged*) environment=(OMPI_MCA_coll_gpusym_p2p=staged) ;;
    esac
    [ -x "$folder/$form/jacobi" ] || { why="there is no $form/jacobi" command='' log=/dev/null && return; }
    run "$2" "${environment[@]}" -- "$folder/$form/jacobi" -nx "$size" -ny "$size" -niter 1000 -nccheck 100 -csv
    command=${command/ jacobi / $form/jacobi }
    # nx, ny, iterations, check, ranks, 1, seconds, seconds of one GPU
    value=$(awk -F', ' -v form=$form '$1 == form {print $8 * 1000}' "$log")
    [ -n "$why" ] || alone+=" $(awk -F', ' -v form=$form '$1 == form {print $9 * 1000}' "$log")"
}

unit=us
begin "multi-gpu-programming-models $(version_of "$folder"), time of an iteration, mean of 1000, norm every 100"
ways=(gpusym "gpusym, staged" "gpusym, overlap")
# NCCL wants a GPU for each rank.
[ "$ranks" -gt "$gpus" ] || ways+=(NCCL "NCCL, overlap")
for size in ${SIZES:-1024 4096 16384}; do
    alone=
    compare "$size^2" "${ways[@]}"
    [ -n "${alone// /}" ] || continue
    # shellcheck disable=SC2086  # a list
    IFS=, read -r value least most <<<"$(middle $alone)"
    echo "$size^2,\"one GPU\",1,1,$value,$unit,$least,$most,$repeats,,\"in the same runs\"" >>"$table"
    printf '%-34s %-24s %12s %-4s\n' "$size^2" "one GPU" "$value" "$unit"
done
finish
