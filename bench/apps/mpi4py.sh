#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# mpi4py on CuPy arrays with gpusym, beside the same calls on NumPy arrays, into which and from which a program copies:
#
#     bench/apps/mpi4py.sh FOLDER [BUILD]
#
# FOLDER has the source of mpi4py; it is built with pip into BUILD (FOLDER.build), unless it is there already. Nothing
# is fetched: Cython, setuptools and wheel must be installed, and CuPy. See common.sh for the rest.
# First mpi4py's own demonstration of CuPy runs; then mpi4py_cupy.py measures, and checks every element.
set -u
name=mpi4py
folder=$(cd "${1:?usage: bench/apps/mpi4py.sh FOLDER [BUILD]}" && pwd) || exit 2
build=${2:-$folder.build}
# shellcheck source=bench/apps/common.sh
. "$(dirname "$0")/common.sh"
if [ ! -e "$build/mpi4py" ]; then
    echo "building mpi4py: a few minutes"
    python3 -m pip install --no-index --no-deps --no-build-isolation --no-cache-dir --target "$build" "$folder" \
        >"$out/logs/mpi4py-build.log" 2>&1 || { tail -n 20 "$out/logs/mpi4py-build.log" && exit 1; }
fi
build=$(cd "$build" && pwd) || exit 2
export PYTHONPATH=$build${PYTHONPATH:+:$PYTHONPATH} PYTHONWARNINGS=ignore

# One run of mpi4py_cupy.py measures all sizes of a way; its lines are "CALL BYTES US".
one() {
    local arrays=numpy
    case $2 in
        gpusym*) arrays=cupy ;;
    esac
    run_once all "$2" -- python3 "$bench_apps/mpi4py_cupy.py" $arrays
    value=$(awk -v want="$1" '$1 " " $2 == want {print $3}' "$log")
}

unit=us
cupy=$(python3 -c 'import cupy; print(cupy.__version__)') || exit 77
begin "mpi4py $(sed -n 's/^Version: //p' "$folder/PKG-INFO"), CuPy $cupy, time of a call"
case=demonstration
all_ranks=$ranks ranks=2 # of which the demonstration sends a message from one to the other: more would wait for one too
run gpusym -- python3 "$folder/demo/cuda-aware-mpi/use_cupy.py"
verdict "mpi4py's demo/cuda-aware-mpi/use_cupy.py" "$why" "$log"
ranks=$all_ranks
for call in Allreduce Sendrecv Alltoall; do
    for bytes in 8 65536 1048576 67108864; do
        compare "$call $bytes" gpusym "through NumPy"
    done
done
finish
