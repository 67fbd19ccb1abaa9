#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# PyLops-MPI on CuPy arrays: a least-squares inversion by MPI with gpusym, beside PyLops-MPI's own ways without
# GPU-aware MPI: pickled objects through the host, and NCCL:
#
#     bench/apps/pylops.sh FOLDER [BUILD]
#
# FOLDER has the packages pylops, pylops_mpi and pyproximal as pip downloads them; pip installs them into BUILD
# (FOLDER/build), unless they are there already. Nothing is fetched. mpi4py and CuPy must be installed, or in
# PYTHONPATH.
# SIZES: elements of the model (65536 1048576 16777216). See common.sh for the rest.
# pylops_cgls.py runs 20 iterations, and compares each element of the result with the model that made the data.
set -u
name=pylops
folder=$(cd "${1:?usage: bench/apps/pylops.sh FOLDER [BUILD]}" && pwd) || exit 2
build=${2:-$folder/build}
# shellcheck source=bench/apps/common.sh
. "$(dirname "$0")/common.sh"
if [ ! -e "$build/pylops_mpi" ]; then
    python3 -m pip install --quiet --no-index --no-deps --no-build-isolation --no-cache-dir --target "$build" \
        "$folder"/py*.whl || exit 1
fi
build=$(cd "$build" && pwd) || exit 2
export PYTHONPATH=$build${PYTHONPATH:+:$PYTHONPATH} PYTHONWARNINGS=ignore

one() {
    local environment=(PYLOPS_MPI_CUDA_AWARE=0)
    local arguments=(--size "${1%% *}")
    case $2 in
        gpusym*) environment=(PYLOPS_MPI_CUDA_AWARE=1) ;;
        NCCL) arguments+=(--nccl) ;;
    esac
    run "$2" "${environment[@]}" -- python3 "$bench_apps/pylops_cgls.py" "${arguments[@]}"
    [ -n "$why" ] || grep -q '^right$' "$log" || why="the result is not right"
    value=$(awk '$2 == "ms" {print $1}' "$log")
}

unit=ms
version=$(python3 -c 'import pylops_mpi; print(pylops_mpi.__version__)' 2>/dev/null) || exit 77
begin "PyLops-MPI $version, CGLS, time of an iteration, mean of 20"
ways=(gpusym "its own staging")
# NCCL wants a GPU for each rank.
[ "$ranks" -gt "$gpus" ] || ways+=(NCCL)
for size in ${SIZES:-65536 1048576 16777216}; do
    compare "$size elements" "${ways[@]}"
done
finish
