# SPDX-License-Identifier: BSD-3-Clause
#
# Reads test/tests.table for test/run.sh: prints its rows, a line each, with sets put in place of their names.
function fail(why) {
    printf "%s:%d: %s\n", FILENAME, FNR, why > "/dev/stderr"
    bad = 1
    exit 1
}
# The words of a text, with $NAME and $NAME:VALUE replaced.
function expand(text,    n, word, i, out, at, name, value, set) {
    n = split(text, word, /[ \t]+/)
    for (i = 1; i <= n; i++) {
        if (word[i] !~ /^\$/) {
            out = out " " word[i]
            continue
        }
        at = index(word[i], ":")
        name = at ? substr(word[i], 2, at - 2) : substr(word[i], 2)
        value = at ? substr(word[i], at + 1) : ""
        if (!(name in sets)) fail("there is no set " name)
        set = sets[name]
        if ((set ~ /%/) != (at > 0)) fail("set " name (at ? " takes no value" : " needs a value"))
        gsub(/%/, value, set)
        out = out " " set
    }
    gsub(/, /, ",", out)
    return substr(out, 2)
}
function row(    n, field, i, name) {
    if (line == "") return
    if (line ~ /^set /) {
        n = index(line, "=")
        name = substr(line, 5, n - 5)
        gsub(/[ \t]/, "", name)
        sets[name] = expand(substr(line, n + 1))
        sub(/^ +/, "", sets[name])
    } else if (line == "barrier") {
        print line
    } else {
        n = split(line, field, / *[|] */)
        if (n < 6) fail("a row has six fields: " line)
        for (i = 7; i <= n; i++) field[6] = field[6] "|" field[i] # of {A|B}
        print field[1] "|" field[2] "|" field[3] "|" field[4] "|" expand(field[5]) "|" expand(field[6])
    }
    line = ""
}
/^#/ { next }
/^[ \t]+[^ \t]/ { sub(/^[ \t]+/, ""); line = line " " $0; next }
{ row(); line = $0; sub(/[ \t]+$/, "", line) }
END { if (!bad) row() }
