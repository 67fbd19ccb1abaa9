# SPDX-License-Identifier: BSD-3-Clause
#
# What the scripts of this folder share. To be sourced by bash, after `name`, the name of the script.
#
# A script names its cases and the ways of each, and defines
#   one CASE WAY   runs WAY once, by run; sets value, in `unit`, or why, what is wrong
# A way whose name begins with gpusym runs with gpusym, as the environment finds it (eval "$(./quickstart env)"); all
# others run without. Settings, by the environment:
#   RANKS      ranks; default: as many as there are GPUs, 2 at least
#   REPEATS    runs of each way, which take turns; the median counts (3)
#   LIMIT      seconds that a run may take (120)
#   APP_VERSION  what the program is, where its folder does not tell
#   OUT        the folder for NAME.csv and logs/ (./apps-results)
# NVLink multicast is kept off, here and in NCCL: a job that is killed can leave it broken for every user of the GPUs.
# shellcheck shell=bash disable=SC2154,SC2034
set -u
bench_apps=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=test/verdict.sh
. "$bench_apps/../../test/verdict.sh"

gpus=$(timeout 60 nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -gt 0 ] || { echo "$name.sh: nvidia-smi lists no GPU here" >&2 && exit 77; }
ranks=${RANKS:-$((gpus < 2 ? 2 : gpus))}
repeats=${REPEATS:-3}
limit=${LIMIT:-120}
unit=
out=${OUT:-./apps-results}
mkdir -p "$out/logs" && out=$(cd "$out" && pwd) || exit 2
table=$out/$name.csv

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
export OMPI_MCA_coll_gpusym_multicast=0 OMPI_MCA_coll_gpusym_summary=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader

# version_of FOLDER: the commit of a folder that is a clone.
version_of() {
    if [ -n "${APP_VERSION:-}" ]; then
        echo "$APP_VERSION"
    elif [ -e "$1/.git" ]; then
        git -C "$1" rev-parse --short HEAD
    else
        echo "of unknown version"
    fi
}

# begin WHAT: the head of the table, with what was measured on what.
begin() {
    local commit=${GPUSYM_COMMIT:-$(git -C "$bench_apps" describe --always --dirty --exclude='*' 2>/dev/null)}
    local gpu driver
    gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
    {
        echo "# bench/apps/$name.sh: $1"
        echo "# gpusym ${commit:-of unknown commit}, $(mpirun --version | head -n 1), $(date -u +%Y-%m-%d)"
        echo "# $ranks ranks on $gpus x $gpu, driver $driver, $(nproc) cores, NVLink multicast off"
        echo "# median of $repeats runs of each way, in turns; staged: calls and messages that gpusym staged"
        echo "case,way,ranks,gpus,value,unit,least,most,runs,staged,command"
    } >"$table"
    head -n 4 "$table"
    printf '%-34s %-24s %12s %-4s %9s\n' case way value unit staged
}

# run WAY [VARIABLE=VALUE...] -- [MPIRUN'S OPTION...] PROGRAM ARGUMENT...: its output in $log; sets rc, command
run() {
    local way=$1 environment=() word
    shift
    while [ "$1" != -- ]; do
        environment+=("$1")
        shift
    done
    shift
    command="${environment[*]}${environment[*]:+ }mpirun -np $ranks --bind-to core"
    case $way in
        gpusym*)
            command+=" --mca coll gpusym"
            environment+=(OMPI_MCA_coll=gpusym)
            ;;
        *) environment=(-u OMPI_MCA_opal_mca_base_component_path -u OMPI_MCA_mca_base_env_list_internal
            "${environment[@]}" OMPI_MCA_coll=^gpusym) ;;
    esac
    for word in "$@"; do
        case $word in
            /*) command+=" ${word##*/}" ;; # no folder of this machine
            *) command+=" $word" ;;
        esac
    done
    log=$out/logs/$(tr -c 'A-Za-z0-9.\n' - <<<"$name-$case-$way").log
    env "${environment[@]}" timeout --kill-after=10 "$limit" mpirun -np "$ranks" --bind-to core "$@" >"$log" 2>&1 \
        </dev/null
    rc=$?
    case $rc in
        0) why= ;;
        124 | 137) why="not ended after $limit s" ;;
        *) why="exit status $rc" ;;
    esac
}

# run_once KEY WAY ...: run, unless this turn has run WAY of KEY already, for another case.
declare -A had=()
run_once() {
    local key="$1 $turn"
    shift
    if [ -z "${had[$1 $key]:-}" ]; then
        run "$@"
        [ -z "$why" ] || return
        had[$1 $key]=$(mktemp "$out/logs/$name-XXXXXX") && cp "$log" "${had[$1 $key]}"
        had["command $1 $key"]=$command
    fi
    log=${had[$1 $key]} command=${had["command $1 $key"]}
}

# How much gpusym staged, by the summary in a log.
staged_of() {
    grep '^gpusym: ' "$1" | grep -oE '[a-z_]*staged [0-9]+' | awk '{n += $2} END {print n + 0}'
}

# middle VALUE...: median, least, most
middle() {
    printf '%s\n' "$@" | sort -g | awk '{v[NR] = $1} END {m = int((NR + 1) / 2)
        printf "%g,%g,%g\n", NR % 2 ? v[m] : (v[m] + v[m + 1]) / 2, v[1], v[NR]}'
}

# compare CASE WAY...
compare() {
    local case=$1 way turn three staged
    local -A values=() failures=() commands=() stageds=()
    shift
    for ((turn = 0; turn < repeats; turn++)); do
        for way in "$@"; do
            [ -z "${failures[$way]:-}" ] || continue
            value='' why=''
            one "$case" "$way"
            [ -n "$why$value" ] || why="no result in its output"
            failures[$way]=$why
            values[$way]+=" $value"
            commands[$way]=$command
            stageds[$way]=$(staged_of "$log")
            [ -z "$why" ] || verdict "$name, $case, $way" "$why" "$log"
        done
    done
    for way in "$@"; do
        [ -z "${failures[$way]}" ] || continue
        # shellcheck disable=SC2086  # a list
        three=$(middle ${values[$way]})
        IFS=, read -r value least most <<<"$three"
        passed=$((passed + 1))
        staged=
        [[ $way != gpusym* ]] || staged=${stageds[$way]}
        echo "$case,\"$way\",$ranks,$gpus,$value,$unit,$least,$most,$repeats,$staged,\"${commands[$way]}\"" >>"$table"
        printf '%-34s %-24s %12s %-4s %9s\n' "$case" "$way" "$value" "$unit" "${staged:--}"
    done
}

finish() {
    echo "$table"
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
    exit
}
