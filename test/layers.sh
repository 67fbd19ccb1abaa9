#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Holds the tables of docs/architecture.md, "Rooms" and "Doors", against the sources and the objects of a build:
#
#     test/layers.sh BUILDDIR [SRCDIR]      SRCDIR: other sources than those that BUILDDIR was configured for
#
# A room is a set of files. It may use the rooms that its row names and, through them, those that they name. Checked are
#   includes   of every source, header, .def and .cu file
#   symbols    of the objects: a file uses the file that defines what it needs. Objects of test/ are not looked at
#   circles    between the files of one folder, by includes and symbols together; x.c, x.h and x.def count as one file
#   rooms      every file belongs to one, every row of the table has files, and rows name only rows below them
#   doors      a header of another project is included only by the rooms that the table of doors names
#   alone      no file but one, and tests, names the driver's call that makes multicast objects
#
# Prints one line for each violation, then how much was looked at. Exit status: 0 no violation; 1 some; 2 cannot check.
set -u
export LC_ALL=C

builddir=${1:?usage: test/layers.sh BUILDDIR [SRCDIR]}
builddir=$(cd "$builddir" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
srcdir=$(cd "${2:-$GPUSYM_SRCDIR}" && pwd) || exit 2
document=$srcdir/docs/architecture.md
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

# table NAME: the rows of a table, from the line "<!-- NAME -->" to the line "<!-- end of NAME -->", without its head,
# cells separated by tabs.
table() {
    sed -n "/^<!-- $1 -->$/,/^<!-- end of $1 -->$/p" "$document" |
        sed -n '/^|[-|]*|$/,$ { s/^| *\(.*[^ ]\) *|$/\1/; t cells
            d
            : cells
            s/ *| */\t/gp; }' | grep -v '^-*$' | sed '/^[-\t|]*$/d' | tr -d '\140'
}
table rooms >"$work/rooms"
table doors >"$work/doors"
if [ ! -s "$work/rooms" ] || [ ! -s "$work/doors" ]; then
    echo "$document has no tables of rooms and doors"
    exit 2
fi

# Sources, relative to the top. What stands at the top itself is generated; so is what is in builds and in a release's folder.
(cd "$srcdir" && find -L . \( -path './[_.]?*' -o -path './gpusym-*' -o -path ./build-aux -o -path ./autom4te.cache \) -prune -o \
    -type f \( -name '*.[ch]' -o -name '*.def' -o -name '*.cu' \) -print) |
    sed -n 's,^\./\(.*/.*\),\1,p' | sort >"$work/sources"

# file TAB header, as written.
(cd "$srcdir" && xargs grep -HE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' /dev/null <"$work/sources") |
    sed -E 's/^([^:]*):[^"<]*["<]([^">]*)[">].*/\1\t\2/' >"$work/includes"

# What names that call. Where it may be made is looked at in one function.
maker=mca/common/gpusym/device/cuda/multicast.c
(cd "$srcdir" && grep -v '^test/' "$work/sources" | xargs grep -l cuMulticastCreate /dev/null) | grep -vx "$maker" >"$work/alone"

# object TAB source. Of several objects of one source the newest counts, others may be left from before a move. The
# simulator's kernels are many objects of one source.
(cd "$builddir" && find -L . -mindepth 2 -name '*.o' -not -path './test/*' -printf '%T@ %P\n') | sort -n | cut -d' ' -f2- |
    awk -v OFS='\t' '
        NR == FNR { there[$0]; next }
        {
            dir = $0; sub(/(\/\.libs)?\/[^\/]*$/, "", dir)
            base = $0; sub(/.*\//, "", base); sub(/\.o$/, "", base)
            if (dir == "kernels/sim") { print $0, "kernels/kernels_sim_family.c"; next }
            sub(/.*-/, "", base)
            if ((dir "/" base ".c") in there) newest[dir "/" base ".c"] = $0
        }
        END { for (source in newest) print newest[source], source }' "$work/sources" - | sort >"$work/objects"
[ -s "$work/objects" ] || { echo "no objects in $builddir"; exit 2; }

# source TAB D (defines) or U (needs) TAB symbol
(cd "$builddir" && cut -f1 "$work/objects" | xargs "${NM:-nm}" -A -g) |
    awk -v OFS='\t' '
        NR == FNR { source[$1] = $2; next }
        {
            at = index($0, ":")
            n = split(substr($0, at + 1), word, " ")
            kind = word[n - 1]
            if (kind ~ /^[ABCDRTVWGSu]$/) kind = "D"
            else if (kind != "U") next
            print source[substr($0, 1, at - 1)], kind, word[n]
        }' "$work/objects" - | sort -u >"$work/symbols"

cat >"$work/check.awk" <<'AWK'
function violation(text) { if (!said[text]++) { print text; violations++ } }

# The room of a path: the row with the longest pattern that matches. A pattern is a folder with "/" behind, or a file.
function room_of(path,    i, best, length_best, p) {
    best = 0; length_best = -1
    for (i = 1; i <= patterns; i++) {
        p = pattern[i]
        if ((p == path || (p ~ /\/$/ && index(path, p) == 1)) && length(p) > length_best) {
            best = i; length_best = length(p)
        }
    }
    if (best) pattern_used[best] = 1
    return best ? pattern_room[best] : ""
}

function folder_of(path) { sub(/\/[^\/]*$/, "", path); return path }
function stem_of(path) { sub(/\.[a-z]*$/, "", path); return path }
function name_of(path) { sub(/.*\//, "", path); return path }

# One file uses another: across rooms it must be allowed, inside a folder it is an edge for the search of circles.
function use(from, to, how,    a, b, x, y) {
    a = room[from]; b = room[to]
    if (a != "" && b != "" && a != b && !((a, b) in may))
        violation("arrow: " from " (" a ") " how " (" b ")")
    x = stem_of(from); y = stem_of(to)
    if (x != y && folder_of(x) == folder_of(y) && !((x, y) in edge)) {
        edge[x, y] = name_of(from) " " how
        next_of[x] = next_of[x] y "\n"
        stems[x]; stems[y]
    }
}

# The shortest circle through a stem, breadth first, and only once for each set of files.
function circle(start,    queue, head, tail, x, y, i, n, list, came, path, text) {
    head = tail = 1; queue[1] = start
    while (head <= tail) {
        x = queue[head++]
        n = split(next_of[x], list, "\n")
        for (i = 1; i < n; i++) {
            y = list[i]
            if (y == start) {
                path = name_of(start); text = ""
                for (;;) {
                    in_circle[x]
                    path = name_of(x) " -> " path
                    text = edge[x, y] (text == "" ? "" : "; ") text
                    if (x == start) break
                    y = x
                    x = came[x]
                }
                violation("circle: " folder_of(start) ": " path " (" text ")")
                return
            }
            if (!(y in came)) { came[y] = x; queue[++tail] = y }
        }
    }
}

FILENAME == rooms_file {
    names = ++rooms; row_of[$1] = rooms; row_name[rooms] = $1; row_uses[rooms] = $3
    n = split($2, list, /, */)
    for (i = 1; i <= n; i++) { pattern[++patterns] = list[i]; pattern_room[patterns] = $1 }
    next
}
FILENAME == doors_file {
    n = split($1, list, /, */)
    m = split($2, guests, /, */)
    for (i = 1; i <= n; i++) {
        door[++doors] = list[i]
        for (j = 1; j <= m; j++) { guest[doors, guests[j]]; door_guests[doors] = door_guests[doors] guests[j] "\n" }
    }
    next
}
FILENAME == sources_file {
    if (!settled++) settle()
    files++
    room[$1] = room_of($1)
    if (room[$1] == "") violation("room: " $1 " belongs to no room")
    next
}
FILENAME == includes_file {
    includes++
    target = ($2 in room) ? $2 : folder_of($1) "/" $2
    if (target in room) {
        use($1, target, "includes " target)
        next
    }
    for (i = 1; i <= doors; i++)
        if (door[i] == $2 || (door[i] ~ /\/$/ && index($2, door[i]) == 1)) {
            if (room[$1] != "" && !((i, room[$1]) in guest))
                violation("door: " $1 " (" room[$1] ") includes " $2 ", which is not for that room")
            break
        }
    next
}
FILENAME == alone_file {
    violation("alone: " $1 " names cuMulticastCreate, which is for " maker)
    next
}
FILENAME == symbols_file {
    if ($2 == "D") { symbols++; definers[$3] = definers[$3] $1 "\n"; defines[$1, $3] }
    else { needs++; need_file[needs] = $1; need_symbol[needs] = $3 }
    next
}

# What follows from the table of rooms. From the last row up: a row names rows below it only, whose uses are known.
function settle(    i, j, n, k, list, who) {
    for (i = rooms; i >= 1; i--) {
        n = split(row_uses[i], list, /, */)
        for (j = 1; j <= n; j++) {
            who = list[j]
            if (!(who in row_of)) violation("table: " row_name[i] " uses " who ", which is no room")
            else if (row_of[who] <= i) violation("table: " row_name[i] " uses " who ", which does not stand below it")
            else {
                may[row_name[i], who]
                for (k = row_of[who] + 1; k <= rooms; k++)
                    if ((who, row_name[k]) in may) may[row_name[i], row_name[k]]
            }
        }
    }
    for (i = 1; i <= doors; i++) {
        n = split(door_guests[i], list, "\n")
        for (j = 1; j < n; j++)
            if (!(list[j] in row_of)) violation("table: " door[i] " is for " list[j] ", which is no room")
    }
}

END {
    # A symbol that several files define (a program's stand-in for a library) is its own folder's, if that defines it, else
    # that of a room that may be used.
    for (i = 1; i <= needs; i++) {
        from = need_file[i]; s = need_symbol[i]
        if (!(s in definers) || (from, s) in defines) continue
        n = split(definers[s], list, "\n")
        best = list[1]
        for (j = 1; j < n; j++)
            if (folder_of(list[j]) == folder_of(from)) { best = list[j]; break }
            else if (room[list[j]] == room[from] || (room[from], room[list[j]]) in may) best = list[j]
        use(from, best, "needs " s " of " best)
    }
    n = 0
    for (s in stems) sorted[++n] = s
    for (i = 2; i <= n; i++) {
        s = sorted[i]
        for (j = i - 1; j >= 1 && sorted[j] > s; j--) sorted[j + 1] = sorted[j]
        sorted[j + 1] = s
    }
    for (i = 1; i <= n; i++)
        if (!(sorted[i] in in_circle)) circle(sorted[i])
    for (i = 1; i <= patterns; i++)
        if (!pattern_used[i]) violation("table: " pattern_room[i] " has no file " pattern[i])
    printf "%d rooms, %d files, %d includes, %d symbols: %d violations\n", rooms, files, includes, symbols, violations
    exit violations > 0
}
AWK
awk -F'\t' -v rooms_file="$work/rooms" -v doors_file="$work/doors" -v sources_file="$work/sources" \
    -v includes_file="$work/includes" -v symbols_file="$work/symbols" -v alone_file="$work/alone" -v maker="$maker" \
    -f "$work/check.awk" "$work/rooms" "$work/doors" "$work/sources" "$work/includes" "$work/alone" "$work/symbols"
