#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# heFFTe's benchmark speed3d_c2c (cuFFT, double) with gpusym, beside heFFTe's own staging on Open MPI alone:
#
#     bench/apps/heffte.sh FOLDER
#
# FOLDER has heFFTe as its user built it, with CUDA. SIZES: edges of the cube (256 512). See common.sh for the rest.
# heFFTe compares every element with the input after all transforms; a run counts only if it says so.
set -u
name=heffte
folder=$(cd "${1:?usage: bench/apps/heffte.sh FOLDER}" && pwd) || exit 2
# shellcheck source=bench/apps/common.sh
. "$(dirname "$0")/common.sh"
program=$(find "$folder" -name speed3d_c2c -type f | head -n 1)
[ -n "$program" ] || { echo "heffte.sh: there is no speed3d_c2c in $folder" >&2 && exit 2; }

one() {
    local size=${1%%^*} exchange=${1##* } options=() runs=20
    case $2 in
        *staging) options=(-no-gpu-aware) runs=3 ;;
    esac
    run "$2" -- "$program" cufft double "$size" "$size" "$size" "-$exchange" "${options[@]}" -mps "-nruns$runs"
    [ -n "$why" ] || ! grep -q ERROR "$log" || why=$(grep ERROR "$log")
    [ -n "$why" ] || grep -q '^Max error: ' "$log" || why="it does not tell the error"
    value=$(awk '/^Time per run:/ {print $4 * 1000}' "$log")
}

unit=ms
begin "heFFTe $(version_of "$folder"), time of one transform, forward or backward"
for size in ${SIZES:-256 512}; do
    for exchange in a2a a2av p2p_pl; do
        compare "$size^3 $exchange" gpusym "its own staging"
    done
done
finish
