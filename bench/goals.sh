#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Measures all that bench/goals.csv has a goal for, on N GPUs of this host, and prints one table: goal, NCCL, gpusym, their
# ratio. Then what a resident kernel does to gaps between calls, and to a program that waits for the GPU.
#
#     bench/goals.sh [--device cuda|sim] [--bin DIR] [--out DIR] [--markdown] [--table] [RANKS]
#
#   --bin DIR    where the programs are: a kit's bin, a build folder; otherwise, or if one is not there, they come from PATH
#   --out DIR    where tables (CSV, with machine, commit and command), logs and the table printed are written; default .
#   --markdown   print the table as Markdown
#   --table      measure nothing: print the table of the files in --out
#   RANKS        default: as many as there are GPUs; on the simulator 4
#   MPIRUN       how mpirun is called: by default `mpirun --bind-to core`; of a build folder: as its tests call it
#
# About two minutes on 4 GPUs. Where there is no NCCL its column is empty. On the simulator the sizes are small, nothing is
# judged, and the times say nothing of a GPU. The exit status says whether all ran and every result was right, not whether
# goals were reached.
set -u

usage="usage: bench/goals.sh [--device cuda|sim] [--bin DIR] [--out DIR] [--markdown] [--table] [RANKS]"
here=$(cd "$(dirname "$0")" && pwd) || exit 2
device=${GPUSYM_TEST_DEVICE:-cuda}
bin=
out=.
style=plain
measuring=yes
while [ $# -gt 0 ]; do
    case $1 in
        --device) device=${2:?$usage} && shift 2 ;;
        --bin) bin=$(cd "${2:?$usage}" && pwd) || exit 2
            shift 2 ;;
        --out) out=${2:?$usage} && shift 2 ;;
        --markdown) style=markdown && shift ;;
        --table) measuring=no && shift ;;
        -*) echo "$usage" >&2 && exit 2 ;;
        *) break ;;
    esac
done
ranks=${1:-}
if [ -z "$ranks" ]; then
    ranks=4
    [ "$device" = sim ] || ranks=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
fi
[ "$ranks" -gt 0 ] || { echo "nvidia-smi lists no GPU here" >&2 && exit 2; }
mkdir -p "$out/logs" || exit 2
# The tables carry the command that made them: no folder of this machine in it.
cd "$out" || exit 2

if [ -n "${MPIRUN:-}" ]; then
    read -ra mpirun <<<"$MPIRUN"
elif [ -n "$bin" ] && [ -r "$bin/test/build.env" ]; then
    # shellcheck source=/dev/null
    . "$bin/test/build.env" || exit 2
    # shellcheck source=test/mpirun.sh
    . "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
    # shellcheck disable=SC2154  # test/mpirun.sh sets it
    mpirun=("$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}")
    export OMPI_MCA_opal_mca_base_component_path=$bin/components:$GPUSYM_OMPI_PATH_TAIL
else
    mpirun=(mpirun --bind-to core)
fi
# The goals are without NVLink multicast, which a job that is killed can leave broken for every user of the GPUs.
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} OMPI_MCA_coll_gpusym_multicast=${OMPI_MCA_coll_gpusym_multicast:-0}
mpirun+=(-n "$ranks" --mca coll gpusym --mca coll_gpusym_device "$device")

# ---- measuring ----

passed=0
failed=0

# The program NAME, in a kit, a build folder, or PATH.
program() {
    local at
    for at in "$bin/$1" "$bin/bench/$1" "$bin/examples/${1#example_}"; do
        [ -n "$bin" ] && [ -x "$at" ] && [ ! -d "$at" ] && echo "$at" && return
    done
    command -v "$1"
}

# measure NAME LIMIT PROGRAM ARGUMENT...: a table goals-NAME-RANKS-ranks.csv; its log beside it
measure() {
    local name=$1 limit=$2 path start=$SECONDS rc
    local csv=goals-$name-$ranks-ranks.csv log=logs/goals-$1.log
    rm -f "$csv"
    path=$(program "$3") || { echo "# $name: skipped, program $3 not found" && return; }
    shift 3
    timeout --kill-after=10 "$limit" "${mpirun[@]}" "$path" --device "$device" "$@" --csv "$csv" >"$log" 2>&1 </dev/null
    rc=$?
    if [ $rc -eq 0 ] && grep -Eq '^# every element of every result is right|^verified: yes' "$log"; then
        passed=$((passed + 1))
        echo "# $name: $((SECONDS - start)) s, every result is right"
    else
        failed=$((failed + 1))
        echo "# $name: FAILED, exit status $rc after $((SECONDS - start)) s; the end of $out/$log:"
        sed '/^Primary job  terminated/,$d' "$log" | tail -n 15 | sed 's/^/     | /'
    fi
}

# The sizes of a collective's goals, of at most MAX bytes.
sizes() {
    awk -F, -v most="$1" '$1 == "allreduce" && $2 <= most { printf "%s%s", s, $2; s = "," }' "$here/goals.csv"
}

measure_all() {
    local most=$((512 << 20)) others=$((128 << 20)) n=128 gaps=0,5,10,20,50,100,200 lingers=0,10,20,50,100,200 batches=9
    [ "$device" = sim ] && most=$((32 << 10)) others=4096 n=16 gaps=0,20 lingers=0,50 batches=7
    measure allreduce 120 gpusym_bench --bytes "$(sizes "$most")" --no-staged --no-in-place --batches "$batches"
    measure others 180 gpusym_bench --bytes "$(sizes "$others")" --no-staged --no-in-place --batches "$batches" \
        --coll allgather,reduce_scatter_block,bcast,reduce,alltoall
    measure linger 60 gpusym_bench --sweep --bytes 8 --lingers "$lingers" --gaps "$gaps" --batches "$batches"
    measure blocks 60 gpusym_bench --sweep --bytes "$most" --blocks 0,16 --batches "$batches"
    measure beside 60 beside
    measure cg 60 example_cg --n "$n" --solver classic --reduce gpusym,nccl
}

# ---- the table ----

# table STYLE: plain or markdown, of the files that are there.
table() {
    local files=() name
    for name in allreduce others linger blocks beside cg; do
        [ -r "goals-$name-$ranks-ranks.csv" ] && files+=("goals-$name-$ranks-ranks.csv")
    done
    [ ${#files[@]} -gt 0 ] || { echo "$out has no tables of $ranks ranks" >&2 && return 1; }
    awk -F, -v style="$1" -v ranks="$ranks" -v device="$device" "$table_program" "${files[@]}" "$here/goals.csv"
}

# Files by what their names say, the goals last. Empty fields were not measured.
# shellcheck disable=SC2016  # awk's own
table_program='
    function better(a, b) { return a == "" ? b : b == "" ? a : a + 0 < b + 0 ? a : b }
    function field(name) { return name in at ? $(at[name]) : "" }
    function number(x) { return x == "" ? "-" : sprintf(x + 0 < 10 ? "%.2f" : x + 0 < 100 ? "%.1f" : "%.0f", x) }
    function size(bytes) {
        if (bytes == "" || bytes + 0 < 1024) return bytes == "" ? "" : bytes " B"
        if (bytes < 1048576) return sprintf("%.4g KiB", bytes / 1024)
        return sprintf("%.4g MiB", bytes / 1048576)
    }
    # A line of n cells; the first, and so many of the last as `left` says, are to the left.
    function line(n, width,    i, text) {
        text = style == "markdown" ? "|" : ""
        for (i = 1; i <= n; i++)
            if (style == "markdown") text = text " " cell[i] " |"
            else text = text sprintf((i == 1 || i > n - left ? "%-" : "%") width[i] "s  ", cell[i])
        sub(/ +$/, "", text)
        print text
    }
    function rule(n,    i, text) {
        if (style != "markdown") return
        text = "|"
        for (i = 1; i <= n; i++) text = text "---|"
        print text
    }
    function title(text) { print "\n" text (style == "markdown" ? "\n" : "") }
    # Whether a goal is reached: unknown where there is no figure, or on another machine than the goals are for.
    function reached(us, goal, unit) {
        if (us == "" || goal == "" || !judged) return "-"
        return (unit == "share" ? us + 0 >= goal + 0 : us + 0 <= goal + 0) ? "yes" : "no"
    }
    function row(label, bytes, unit, goal, nccl, us, how,    ratio) {
        ratio = us == "" || nccl == "" || us + 0 <= 0 ? "-" : sprintf("%.2f", nccl / us)
        cell[1] = label; cell[2] = size(bytes); cell[3] = unit
        cell[4] = number(goal); cell[5] = number(nccl); cell[6] = number(us)
        cell[7] = ratio; cell[8] = reached(us, goal, unit); cell[9] = how
        if (cell[8] == "yes") yes++
        else if (cell[8] == "no") no++
        line(9, wide)
    }

    FNR == 1 { kind = FILENAME; sub(/.*\//, "", kind); sub(/^goals-/, "", kind); sub(/-.*/, "", kind); delete at
               goals = FILENAME ~ /goals\.csv$/ }
    /^# GPU of rank 0:/ { gpu = substr($0, 18) }
    /^# date:/ && date == "" { date = substr($0, 9) }
    /^# commit:/ {
        if (commit != "" && commit != substr($0, 11)) mixed = 1
        commit = substr($0, 11)
    }
    kind == "allreduce" && /^# [A-Za-z_]+: -?[0-9.]+$/ { split(substr($0, 3), part, ": "); fact[part[1]] = part[2] }
    /^#/ { next }
    !("seen" in at) { for (i = 1; i <= NF; i++) at[$i] = i; at["seen"] = 0
                      if (goals) head(); next }

    kind == "allreduce" || kind == "others" {
        key = field("collective") SUBSEP field("bytes")
        time[key] = field("us") == "" ? field("in_place_us") : field("us")
        nccl[key] = better(field("nccl_us"), field("nccl_symmetric_us"))
        if (nccl[key] != "") have_nccl = 1
        ran[key] = field("algorithm")
        list[field("collective"), ++rows[field("collective")]] = field("bytes")
    }
    kind == "linger" {
        resident[field("linger_us"), field("gap_us")] = field("us")
        if (!(field("linger_us") in has_linger)) { has_linger[field("linger_us")]; linger[++lingers] = field("linger_us") }
        if (!(field("gap_us") in has_gap)) { has_gap[field("gap_us")]; gap[++gaps] = field("gap_us") }
    }
    kind == "blocks" { by_blocks[field("blocks")] = field("us"); blocks_bytes = field("bytes") }
    kind == "beside" && field("what") == "axpy" && field("linger_us") != "0" { beside = field("over_linger_0") }
    kind == "beside" && field("what") == "synchronize" {
        waits[++nwaits] = field("linger_us"); waited[nwaits] = field("us")
    }
    kind == "beside" && field("what") == "iteration" { iteration[field("linger_us")] = field("us") }
    kind == "cg" && field("solver") == "classic" { cg[field("way")] = field("us_per_iteration") }

    function head() {
        # The goals are those of one machine.
        judged = device == "cuda" && ranks == 4 && gpu ~ /H200/
        if (device == "sim") print "THE SIMULATOR: these times say nothing of a GPU, and no goal is judged"
        else if (!judged) print "the goals are for 4 ranks on NVIDIA H200: here none is judged"
        if (!have_nccl) print "NCCL was not measured (no GPU, or no libnccl.so.2): its columns are empty"
        print ranks " ranks; GPU of rank 0: " gpu "; commit " (mixed ? "differs from table to table" : commit) "; " date
        if (style == "markdown") print ""
        split("41 9 5 8 8 8 6 7 14", wide, " ")
        left = 1
        split("what,size,unit,goal,NCCL,gpusym,ratio,reached,how", cell, ",")
        line(9, wide)
        rule(9)
    }
    function of_fact(name) { return name in fact ? fact[name] : "" }
    function sum(a, b) { return a == "" || b == "" ? "" : a + b }
    goals && $2 == "all" {
        for (r = 1; r <= rows[$1]; r++) {
            key = $1 SUBSEP list[$1, r]
            row($1, list[$1, r], $3, nccl[key], nccl[key], time[key], ran[key])
        }
        if (!rows[$1]) row($1, "", $3, "", "", "", "")
        next
    }
    goals {
        key = $1 SUBSEP $2
        label = $5 == "" ? $1 : $5
        eight = "allreduce" SUBSEP 8
        if ($1 == "allreduce") row(label, $2, $3, $4, nccl[key], time[key], ran[key])
        else if ($1 == "launch") row(label, $2, $3, $4, nccl[eight], resident["0", "0"], "")
        else if ($1 == "blocks")
            row(label, blocks_bytes, $3, $4, "", by_blocks["16"] > 0 ? by_blocks["0"] / by_blocks["16"] : "", "")
        else if ($1 == "first_call")
            row(label, $2, $3, $4, sum(of_fact("nccl_init_ms"), of_fact("nccl_first_call_ms")),
                of_fact("gpusym_first_call_ms"), "")
        else if ($1 == "memory") row(label, $2, $3, $4, of_fact("nccl_memory_MiB"), of_fact("gpusym_memory_MiB"), "")
        else if ($1 == "second_ms") row(label, $2, $3, $4, "", of_fact("gpusym_second_communicator_ms"), "")
        else if ($1 == "second_MiB") row(label, $2, $3, $4, "", of_fact("gpusym_second_communicator_MiB"), "")
        else if ($1 == "beside") row(label, device == "sim" ? "" : $2, $3, $4, "", beside, "")
        else if ($1 == "cg") row(label, $2, $3, $4, cg["nccl"], cg["gpusym"], "")
        else { print "goals.csv: what is " $1 "?" > "/dev/stderr"; exit 1 }
    }

    END {
        left = 0
        split("8 8 8 8 8 8 8 8 8 8 8 8", wide, " ")
        if (lingers > 0) {
            title("allreduce of 8 B, us, with so many us of work on the host before each call, by coll_gpusym_linger:")
            cell[1] = "linger"
            for (g = 1; g <= gaps; g++) cell[g + 1] = gap[g]
            line(gaps + 1, wide); rule(gaps + 1)
            for (l = 1; l <= lingers; l++) {
                cell[1] = linger[l]
                for (g = 1; g <= gaps; g++) cell[g + 1] = number(resident[linger[l], gap[g]])
                line(gaps + 1, wide)
            }
        }
        if (nwaits > 0) {
            title("cudaDeviceSynchronize right after it; iter: two of them and such a wait; us, by coll_gpusym_linger:")
            cell[1] = "linger"
            for (w = 1; w <= nwaits; w++) cell[w + 1] = waits[w]
            line(nwaits + 1, wide); rule(nwaits + 1)
            cell[1] = "us"
            for (w = 1; w <= nwaits; w++) cell[w + 1] = number(waited[w])
            line(nwaits + 1, wide)
            cell[1] = "iter"
            for (w = 1; w <= nwaits; w++) cell[w + 1] = number(iteration[waits[w]])
            line(nwaits + 1, wide)
        }
        title("ratio: NCCL / gpusym; -: not measured" (judged ? "; " yes + 0 " goals reached, " no + 0 " not" : ""))
    }'

if [ $measuring = yes ]; then
    measure_all
fi
table plain >"goals-$ranks-ranks.txt" || exit 1
table markdown >"goals-$ranks-ranks.md" || exit 1
if [ $style = markdown ]; then
    cat "goals-$ranks-ranks.md"
else
    cat "goals-$ranks-ranks.txt"
fi
if [ $measuring = yes ]; then
    echo "goals: $passed passed, $failed failed"
    [ $failed -eq 0 ] && [ $passed -gt 0 ]
fi
