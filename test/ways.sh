#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# docs/architecture.md against the code: the table of ways, made from the tables of exec/*.c and the comments of exec/way.h;
# and the states in the drawing against those of call/call.h.
#
#     test/ways.sh            prints what differs, < in the document, > in the code; so says the exit status
#     test/ways.sh --print    prints the table
set -u
export LC_ALL=C
top=$(cd "$(dirname "$0")/.." && pwd)
coll=$top/mca/coll/gpusym
document=$top/docs/architecture.md

table() {
    echo '| way | what it is | instead of it | functions |'
    echo '|---|---|---|---|'
    # shellcheck disable=SC2016  # awk's
    awk '
        FILENAME ~ /way\.h$/ {
            if (/^\/\* .*\*\/$/) { comment = substr($0, 4, length($0) - 6) }
            else if (/^extern const coll_gpusym_way_t /) { name = $4; sub(/.*_way_/, "", name); what[name] = comment; order[++n] = name }
            next
        }
        /^static const coll_gpusym_way_t \*const instead\[\]/ { list = ""; reading = 1 }
        reading {
            line = $0
            while (match(line, /&coll_gpusym_way_[a-z_]+/)) {
                list = list (list == "" ? "" : ", ") "`" substr(line, RSTART + 17, RLENGTH - 17) "`"
                line = substr(line, RSTART + RLENGTH)
            }
            if (/;/) reading = 0
            next
        }
        /^const coll_gpusym_way_t coll_gpusym_way_/ { name = $3; sub(/.*_way_/, "", name); inside = 1; next }
        inside && /^};/ { inside = 0; list = ""; next }
        inside && /\.instead = / { instead[name] = list; next }
        inside && match($0, /\.[a-z_]+ = /) {
            field = substr($0, RSTART + 1, RLENGTH - 4)
            if (field != "takes_host" && field != "name") functions[name] = functions[name] (functions[name] == "" ? "" : ", ") "`" field "`"
        }
        END {
            for (i = 1; i <= n; i++)
                print "| `" order[i] "` | " what[order[i]] " | " (instead[order[i]] == "" ? "-" : instead[order[i]]) " | " functions[order[i]] " |"
        }' "$coll/exec/way.h" "$coll"/exec/way_*.c "$coll/exec/whole.c"
}

# block NAME: the lines of the document between "<!-- NAME -->" and "<!-- end of NAME -->".
block() {
    sed -n "/^<!-- $1 -->$/,/^<!-- end of $1 -->$/p" "$document" | sed '1d;$d'
}

if [ "${1:-}" = --print ]; then
    table
    exit 0
fi
[ "$(table | grep -c '^| `')" -ge 6 ] || { echo "no ways found in the code"; exit 1; }
# shellcheck disable=SC2312  # a block that is missing differs
diff <(block ways) <(table) || exit 1
states=$(sed -n 's/^    COLL_GPUSYM_CALL_\([A-Z]*\),.*/\1/p' "$coll/call/call.h" | sort -u)
diff <(block states | grep -oE '\b[A-Z]{3,}\b' | sort -u) <(echo "$states") || exit 1
