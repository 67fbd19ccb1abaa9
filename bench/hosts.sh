#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Measures collectives between hosts, which test/mpi/hosts.sh makes on this machine, and prints them beside their bounds:
#
#     bench/hosts.sh [--bin DIR] [--out DIR] [--ways LIST] [--only LIST] [--calls N] [--short] [--markdown] [--table]
#
#   --bin DIR    the build tree (default: this folder)
#   --out DIR    where hosts.csv (every row, with commit and commands), hosts.txt (the tables) and logs/ are written; default .
#   --ways LIST  of gpusym (simulated GPUs), rail (the same by the engine between hosts alone, without MPI's calls: one
#                rank a host), tuned and han (Open MPI's own, on host memory); default all
#   --only LIST  of wide (large messages, 100 Mbit/s), far (small ones, 20 ms from host to host); default both
#   --calls N    a measurement, of which the best counts; three times as many where delay is the limit: their median; default 5
#   --short      small messages, for a test: the figures mean nothing
#   --markdown   print the tables as Markdown
#   --table      measure nothing: print the tables of hosts.csv in --out
#
# 15 minutes; the machine may be busy, as the network is far slower than it. Needs root or user namespaces, and /dev/net/tun.
# The exit status says whether all ran and every result was right; 77: no hosts can be made here.
set -u

usage="usage: bench/hosts.sh [--bin DIR] [--out DIR] [--ways LIST] [--only LIST] [--calls N] [--short] [--markdown] [--table]"
here=$(cd "$(dirname "$0")" && pwd) || exit 2
bin=. out=. ways=gpusym,rail,tuned,han only=wide,far calls=5 style=plain measuring=yes short=
while [ $# -gt 0 ]; do
    case $1 in
        --bin) bin=${2:?$usage} && shift 2 ;;
        --out) out=${2:?$usage} && shift 2 ;;
        --ways) ways=${2:?$usage} && shift 2 ;;
        --only) only=${2:?$usage} && shift 2 ;;
        --calls) calls=${2:?$usage} && shift 2 ;;
        --short) short=yes && shift ;;
        --markdown) style=markdown && shift ;;
        --table) measuring=no && shift ;;
        *) echo "$usage" >&2 && exit 2 ;;
    esac
done
bin=$(cd "$bin" && pwd) || exit 2
mkdir -p "$out/logs" && cd "$out" || exit 2

# What is measured: kind | hosts | ranks on each | collectives | bytes | what is asked of gpusym: of wide the time over its
# bound, of far the delays that a call takes.
cases() {
    if [ -n "$short" ]; then
        cat <<'END'
wide | 2 | 2 | allreduce,bcast | 64k | 1.08
far  | 2 | 1 | allreduce       | 8   | 1.3
END
        return
    fi
    cat <<'END'
wide | 2 | 1 | allreduce                             | 32m           | 1.05
wide | 3 | 1 | allreduce                             | 32m           | 1.05
wide | 4 | 1 | allreduce                             | 32m           | 1.05
wide | 2 | 2 | allreduce                             | 32m           | 1.08
wide | 3 | 2 | allreduce                             | 32m           | 1.08
wide | 4 | 2 | allreduce                             | 32m           | 1.08
wide | 4 | 1 | allgather,reduce_scatter_block,bcast,alltoall | 16m   | 1.12
wide | 4 | 2 | allgather,reduce_scatter,bcast,alltoall | 16m         | 1.12
far  | 4 | 1 | allreduce                             | 8,64,512,4k   | 1.3
far  | 4 | 2 | allreduce                             | 8,64,512,4k   | 1.3
far  | 4 | 1 | bcast                                 | 8             | 2.3
far  | 4 | 2 | bcast                                 | 8             | 2.3
END
}
rate=100 # Mbit/s
delay=20 # ms

passed=0
failed=0
GPUSYM_COMMIT=${GPUSYM_COMMIT:-$(git -C "$here" describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null)}
export GPUSYM_COMMIT

# measure WAY KIND HOSTS RANKS COLLECTIVES SIZES ASKED: rows of hosts.csv; the log beside it
measure() {
    local way=$1 kind=$2 name=$1-$2-$3x$4-${5//,/-} start=$SECONDS rc
    local network=(--rate "${rate}mbit" --mtu 9000) mca=(--mca coll ^gpusym) device=host
    local calls=$calls
    [ "$kind" = wide ] || { network=(--delay "${delay}ms") && calls=$((3 * calls)); }
    case $way in
        gpusym) mca=(--mca coll gpusym --mca coll_gpusym_device sim) device=sim ;;
        rail) device='sim --rail' ;;
        han) mca+=(--mca coll_han_priority 100) ;;
    esac
    # shellcheck disable=SC2206  # the device's options are words
    local command=("$3" "$4" "${network[@]}" "${mca[@]}" -- bench/wire --device $device --coll "$5" --bytes "$6" --calls "$calls")
    rm -f part.csv
    (cd "$bin" && timeout --kill-after=10 900 "$here/../test/mpi/hosts.sh" "${command[@]}" --csv "$OLDPWD/part.csv") \
        >"logs/hosts-$name.log" 2>&1 </dev/null
    rc=$?
    if [ $rc -eq 77 ]; then
        tail -n 1 "logs/hosts-$name.log"
        exit 77
    fi
    if [ $rc -ne 0 ] || ! grep -q '^# every element of every result is right' "logs/hosts-$name.log"; then
        failed=$((failed + 1))
        echo "# $name: FAILED, exit status $rc; the end of $out/logs/hosts-$name.log:"
        tail -n 15 "logs/hosts-$name.log" | sed 's/^/     | /'
        return
    fi
    passed=$((passed + 1))
    echo "# $name: $((SECONDS - start)) s, every result is right"
    {
        if [ "$passed" = 1 ]; then
            sed -n '/^# \(date\|MPI\|commit\): /p' part.csv
            echo "way,kind,asked,$(grep -m 1 -v '^#' part.csv)"
        fi
        echo "# test/mpi/hosts.sh ${command[*]}"
        awk -v head="$way,$kind,$7" '/^#/ { next } seen++ { print head "," $0 }' part.csv
    } >>hosts.csv
    rm -f part.csv
}

measure_all() {
    local way kind hosts ranks colls sizes asked
    if [ ! -e "$bin/components/libgpusym_net_ucx.so" ]; then
        ways=$(tr , '\n' <<<"$ways" | grep -vx rail | paste -sd,) # built without UCX
    fi
    rm -f hosts.csv
    while IFS='| ' read -r kind hosts ranks colls sizes asked; do
        [[ ,$only, == *,$kind,* ]] || continue
        for way in ${ways//,/ }; do
            # Han is for several ranks on a host; with one, tuned serves. A rail has one.
            [ "$way:$ranks" = han:1 ] || { [ "$way" = rail ] && [ "$ranks" != 1 ]; } || measure "$way" "$kind" "$hosts" "$ranks" "$colls" "$sizes" "$asked"
        done
    done < <(cases)
}

# shellcheck disable=SC2016  # awk's own
table_program='
    function size(b) { return b < 1024 ? b " B" : b < 1048576 ? b / 1024 " KiB" : b / 1048576 " MiB" }
    function ratio(a, b) { return b + 0 > 0 ? sprintf("%.3f", a / b) : "-" }
    # Cells are separated by |.
    function line(text,    n, i, out, c) {
        n = split(text, c, "|")
        out = style == "markdown" ? "|" : ""
        for (i = 1; i <= n; i++)
            out = out (style == "markdown" ? " " c[i] " |" : sprintf((i < 3 ? "%-" : "%") (i == 1 ? 15 : i == 2 ? 7 : 10) "s ", c[i]))
        sub(/ +$/, "", out)
        print out
        if (rules-- > 0 && style == "markdown") { out = "|"; for (i = 1; i <= n; i++) out = out "---|"; print out }
    }
    function judge(way, value, asked) { return way != "gpusym" && way != "rail" ? "" : value + 0 <= asked + 0 ? "yes" : "no" }
    BEGIN { FS = "," }
    /^# (date|MPI|commit): / { print substr($0, 3) }
    /^#/ { next }
    !columns { for (i = 1; i <= NF; i++) at[$i] = i; columns = 1; next }
    {
        what = $at["collective"]; where = $at["hosts"] " x " $at["ranks"] / $at["hosts"]; way = $at["way"]
        best = $at["best_us"] / 1e3; median = $at["median_us"] / 1e3
        if ($at["kind"] != kind) {
            kind = $at["kind"]; rules = 1
            print ""
            if (kind == "wide") {
                print rate " Mbit/s, MTU 9000: best of the calls over the least that " rate " Mbit/s allow; bytes on the wires over the least"
                if (style == "markdown") print ""
                line("collective|way|hosts|bytes|best ms|bound ms|ratio|asked|reached|median ms|busiest|all wires|load")
            } else {
                print delay " ms from host to host: median of the calls, in such delays"
                if (style == "markdown") print ""
                line("collective|way|hosts|bytes|median ms|delays|asked|reached|best ms|load")
            }
        }
        if (kind == "wide") {
            bound = $at["busiest_bytes_least"] * 8 / rate / 1e3
            line(what "|" way "|" where "|" size($at["bytes"]) sprintf("|%.0f|%.0f|", best, bound) ratio(best, bound) "|" $at["asked"] "|" \
                judge(way, best / bound, $at["asked"]) sprintf("|%.0f|", median) ratio($at["busiest_bytes"], $at["busiest_bytes_least"]) "|" \
                ratio($at["sent_bytes"], $at["sent_bytes_least"]) "|" $at["load"])
        } else
            line(what "|" way "|" where "|" size($at["bytes"]) sprintf("|%.1f|%.2f|", median, median / delay) $at["asked"] "|" \
                judge(way, median / delay, $at["asked"]) sprintf("|%.1f|", best) $at["load"])
    }'

[ "$measuring" = no ] || measure_all
[ -r hosts.csv ] || { echo "hosts.sh: no hosts.csv in $out" >&2 && exit 1; }
awk -v style="$style" -v rate="$rate" -v delay="$delay" "$table_program" hosts.csv | tee hosts.txt
[ "$measuring" = no ] || echo "hosts: $passed passed, $failed failed"
[ $failed -eq 0 ]
