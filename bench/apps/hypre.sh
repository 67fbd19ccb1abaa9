#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# hypre's test program ij, a Laplacian on a cube by conjugate gradients with AMG, on GPUs: with gpusym and hypre's
# -gpu_mpi 1, beside -gpu_mpi 0, hypre's own copies to the host, on Open MPI alone:
#
#     bench/apps/hypre.sh FOLDER
#
# FOLDER has hypre as its user built it, with CUDA and GPU-aware MPI. SIZES: edges of the cube (64 128 256). See
# common.sh for the rest. ij does setup and solution twice, the second counts. A run counts only if the residual is
# below 1e-8, in as many iterations as the first run of that size took.
set -u
name=hypre
folder=$(cd "${1:?usage: bench/apps/hypre.sh FOLDER}" && pwd) || exit 2
# shellcheck source=bench/apps/common.sh
. "$(dirname "$0")/common.sh"
program=$(find "$folder" -name ij -type f -perm -u+x | head -n 1)
[ -n "$program" ] || { echo "hypre.sh: there is no ij in $folder" >&2 && exit 2; }

grid=("$ranks" 1 1)
case $ranks in
    4) grid=(2 2 1) ;;
    8) grid=(2 2 2) ;;
esac

one() {
    local size=${1%%^*} phase=${1##* } aware=0 found
    case $2 in
        gpusym*) aware=1 ;;
    esac
    run_once "$size" "$2" -- "$program" -n "$size" "$size" "$size" -P "${grid[@]}" -solver 1 -tol 1e-8 -second_time 1 \
        -gpu_mpi $aware
    found=$(awk '/^Iterations = / {n = $3} /^Final Relative Residual Norm = / {r = $6}
        END {if (r + 0 > 0 && r <= 1e-8) print n}' "$log")
    [ -n "$why" ] || [ -n "$found" ] || why="not solved"
    iterations=${iterations:-$found}
    [ -n "$why" ] || [ "$found" = "$iterations" ] || why="$found iterations, not $iterations"
    value=$(awk -v phase="$phase" '/phase times:/ {on = tolower($1) == phase} on && /wall clock time/ {t = $(NF - 1)}
        END {print t * 1000}' "$log")
}

unit=ms
begin "hypre $(version_of "$folder"), ij, AMG-PCG to 1e-8"
for size in ${SIZES:-64 128 256}; do
    iterations=
    for phase in setup solve; do
        compare "$size^3 $phase" gpusym "its own staging"
    done
    echo "# $size^3: $iterations iterations" | tee -a "$table"
done
finish
