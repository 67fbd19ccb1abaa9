#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The scripts of bench/apps with stand-ins for nvidia-smi, mpirun and the programs: whether they see a result that is
# wrong, a run that fails and one that does not end, and what they write of runs that are right; and plot.py's tables.
#
#     test/apps.sh
set -u
src=$(cd "$(dirname "$0")/.." && pwd) || exit 2
# shellcheck source=test/verdict.sh
. "$src/test/verdict.sh"
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/bin" "$dir/heffte" "$dir/hypre" "$dir"/jacobi/{mpi,mpi_overlap,nccl,nccl_overlap}

# script FILE: from standard input
script() {
    { echo '#!/usr/bin/env bash' && cat; } >"$1" && chmod +x "$1"
}

script "$dir/bin/nvidia-smi" <<'END'
case $* in
    -L) for ((i = 0; i < GPUS; i++)); do echo "GPU $i: Pretended"; done ;;
    *gpu_name* | *=name*) echo Pretended ;;
    *) echo 1.2.3 ;;
esac
END
# One rank in the place of all; without gpusym its settings must be gone.
script "$dir/bin/mpirun" <<'END'
[ "$1" != --version ] || { echo "mpirun (Pretended MPI) 1" && exit; }
case $OMPI_MCA_coll in
    gpusym) echo 'gpusym: alltoall: native 3, staged 2 (forced 2), forwarded 0' &&
        echo 'gpusym: p2p: sent_direct 1, sent_staged 30, received_to_host 5, received_staged 400' ;;
    ^gpusym) [ -z "${OMPI_MCA_opal_mca_base_component_path:-}${OMPI_MCA_mca_base_env_list_internal:-}" ] || exit 9 ;;
    *) exit 8 ;;
esac
[ "$1 $2 $3 $4" = "-np $WANTED --bind-to core" ] || exit 7
shift 4
exec "$@"
END
script "$dir/heffte/speed3d_c2c" <<'END'
case $* in *-no-gpu-aware*) seconds=0.5 ;; *) seconds=0.00$((2 + RANDOM % 2)) ;; esac
[ "$MODE" != hangs ] || sleep 30
[ "$MODE" != dies ] || exit 3
[ "$MODE" = silent ] || echo "Time per run: $seconds (s)"
[ "$MODE" = unchecked ] || echo "Max error:    1e-15"
[ "$MODE" != wrong ] || echo "ERROR: observed error after heFFTe benchmark exceeds the tolerance"
END
script "$dir/hypre/ij" <<'END'
iterations=12
case $*:$MODE in *'-gpu_mpi 0:differs') iterations=13 ;; esac
printf '%s phase times:\nAMG:\n  wall clock time = %s seconds\n  cpu clock time  = 9 seconds\n' \
    Setup 1 Solve 2 Setup 0.3 Solve 0.4
[ "$MODE" != unsolved ] || residual=1e-3
printf 'Iterations = %d\nFinal Relative Residual Norm = %s\n' $iterations "${residual:-9e-9}"
END
for form in mpi mpi_overlap nccl nccl_overlap; do
    script "$dir/jacobi/$form/jacobi" <<END
[ "\$MODE:$form" != wrong:nccl ] || exit 1
echo "$form, \$2, \$4, 1000, 100, 4, 1, 0.25, 0.75"
END
done
export PATH=$dir/bin:$PATH
export OMPI_MCA_opal_mca_base_component_path=/somewhere OMPI_MCA_mca_base_env_list_internal=LD_PRELOAD=something.so

# ends STATUS MODE GPUS APP [VARIABLE=VALUE...]: what a script ends with; its output in $dir/said, files in $dir/out
ends() {
    local status=$1 mode=$2 gpus=$3 app=$4 rc
    shift 4
    rm -rf "$dir/out"
    env OUT="$dir/out" MODE="$mode" GPUS="$gpus" WANTED=$((gpus < 2 ? 2 : gpus)) REPEATS=3 APP_VERSION=1.0 "$@" \
        timeout 60 bash "$src/bench/apps/$app.sh" "$dir/$app" >"$dir/said" 2>&1
    rc=$?
    if [ $rc = "$status" ]; then why=; else why="exit status $rc, not $status"; fi
}

# holds FILE REGEX...: each must match a line
holds() {
    local file=$1 regex
    shift
    for regex; do
        [ -n "$why" ] || grep -Eq -- "$regex" "$file" || why="no line matches $regex"
    done
}

ends 0 right 1 heffte SIZES=256
holds "$dir/said" '^6 passed, 0 failed$'
holds "$dir/out/heffte.csv" '^# 2 ranks on 1 x Pretended, driver 1.2.3' '^# bench/apps/heffte.sh: heFFTe 1.0, ' \
    '^256\^3 a2av,"gpusym",2,1,[23],ms,[23],[23],3,432,"mpirun -np 2 .*--mca coll gpusym speed3d_c2c .* -a2av -mps' \
    '^256\^3 p2p_pl,"its own staging",2,1,500,ms,500,500,3,,"mpirun -np 2 --bind-to core speed3d_c2c .* -no-gpu-aware'
verdict "heffte: 2 ranks on one GPU" "$why" "$dir/said"
while IFS=, read -r mode reason; do
    ends 1 "$mode" 1 heffte SIZES=256
    holds "$dir/said" "^FAIL heffte, 256\^3 a2a, gpusym: $reason" '^0 passed, 6 failed$'
    verdict "heffte: $mode" "$why" "$dir/said"
done <<'END'
wrong,ERROR: observed error
unchecked,it does not tell the error
silent,no result in its output
dies,exit status 3
END
ends 1 hangs 1 heffte SIZES=256 REPEATS=1 LIMIT=0.1
holds "$dir/said" '^FAIL heffte, 256\^3 a2a, gpusym: not ended after 0.1 s'
verdict "heffte: hangs" "$why" "$dir/said"

ends 0 right 4 hypre SIZES=64
holds "$dir/out/hypre.csv" '^64\^3 setup,"gpusym",4,4,300,ms' '^64\^3 solve,"its own staging",4,4,400,ms' \
    ' -n 64 64 64 -P 2 2 1 .* -gpu_mpi 1"$' '^# 64\^3: 12 iterations$'
verdict "hypre: 4 GPUs" "$why" "$dir/said"
for mode in differs unsolved; do
    ends 1 $mode 4 hypre SIZES=64
    holds "$dir/said" '^FAIL hypre, 64\^3 s[eo].*, its own staging: '
    verdict "hypre: $mode" "$why" "$dir/said"
done

ends 0 right 4 jacobi SIZES=1024
holds "$dir/out/jacobi.csv" '^1024\^2,"one GPU",1,1,750,us' \
    '^1024\^2,"NCCL, overlap",4,4,250,us.*nccl_overlap/jacobi ' \
    '^1024\^2,"gpusym, staged",4,4,250,us,.*"OMPI_MCA_coll_gpusym_p2p=staged mpirun .*mpi/jacobi '
verdict "jacobi: 4 GPUs" "$why" "$dir/said"
ends 1 wrong 4 jacobi SIZES=1024
holds "$dir/said" '^FAIL jacobi, 1024\^2, NCCL: exit status 1' '^4 passed, 1 failed$'
verdict "jacobi: a wrong result" "$why" "$dir/said"
ends 0 wrong 1 jacobi SIZES=1024
holds "$dir/said" '^3 passed, 0 failed$'
verdict "jacobi: no NCCL on one GPU" "$why" "$dir/said"
ends 77 right 0 jacobi
verdict "no GPU" "$why" "$dir/said"

# A page whose table is of other figures, and of another length.
mkdir "$dir/plots"
ends 0 right 4 hypre SIZES="64 128"
cat >"$dir/page.md" <<'END'
before
<!-- out/hypre.csv -->

| old |
|---|
| old |
| old |

behind
END
why=
python3 "$src/bench/apps/plot.py" "$dir/page.md" >"$dir/said" 2>&1 || why="plot.py fails"
[ -n "$why" ] || diff - "$dir/page.md" >>"$dir/said" <<'END' || why="another page than expected"
before
<!-- out/hypre.csv -->

| ms | gpusym | its own staging |
|---|---|---|
| 64^3 setup | 300 | 300 |
| 64^3 solve | 400 | 400 |
| 128^3 setup | 300 | 300 |
| 128^3 solve | 400 | 400 |

behind
END
if ! grep -q 'matplotlib is missing' "$dir/said"; then
    [ -s "$dir/plots/hypre.png" ] || why=${why:-no picture}
fi
verdict "plot.py: table and picture" "$why" "$dir/said"

echo "apps: $passed passed, $failed failed"
[ "$failed" = 0 ]
