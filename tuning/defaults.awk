# SPDX-License-Identifier: BSD-3-Clause
#
# C of tuning/defaults.json, for tuning.c: an array of default_t for each collective, and a list of these. It reads what that
# file has, a line at a time, and refuses any other line: test_rules_file compares the result with what the reader of rules makes
# of the file.
#
#     awk -f defaults.awk defaults.json
function fail(why) {
    printf "%s:%d: %s\n", FILENAME, FNR, why >"/dev/stderr"
    failed = 1
    exit 1
}
# The value of a key in the line; "" if it has none.
function value(key,    at, rest) {
    at = index($0, "\"" key "\": ")
    if (at == 0)
        return ""
    rest = substr($0, at + length(key) + 4)
    sub(/^"/, "", rest)
    match(rest, /^[a-z0-9_]+/)
    return substr(rest, 1, RLENGTH)
}
# The line without a key and its value.
function drop(key) {
    sub("\"" key "\": (\"[^\"]*\"|[0-9]+|true|false)(, )?", "", line)
}
function limit(text, otherwise) {
    return text == "" || text == "inf" ? otherwise : text "u"
}
function flag(text) {
    return text == "" ? "-1" : text == "true" ? "1" : "0"
}
{ line = $0 }
/^[{}]$|^  [}]$|^  "(rule_file_version|module|comment)": [^{]*,$|^  "collectives": [{]$/ { next }
/^    "[a-z0-9_]+": \[$/ {
    coll = $1
    gsub(/[":]/, "", coll)
    printf "static const default_t %s_defaults[] = {\n", coll
    list = list sprintf("    [GPUSYM_COLL_%s] = {%s_defaults, sizeof %s_defaults / sizeof *%s_defaults},\n", toupper(coll), coll, coll, coll)
    next
}
/^    \],?$/ { print "};"; coll = ""; next }
/^      [{] "comm_size_min": [0-9]+, "comm_size_max": ([0-9]+|"inf"), "rules": \[$/ {
    ranks = limit(value("comm_size_min")) ", " limit(value("comm_size_max"), "UINT32_MAX")
    next
}
/^      \] [}],?$/ { next }
/^        [{] .*"alg": "[a-z0-9_]+".* [}],?$/ {
    block = index($0, "\"block_size_") ? "block" : "msg"
    printf "    {GPUSYM_ALG_%s_%s, %s, %s, %s, %s, %s, %s, %s},\n", toupper(coll), toupper(value("alg")), ranks,
        limit(value(block "_size_min"), "0"), limit(value(block "_size_max"), "UINT64_MAX"), block == "block" ? "true" : "false",
        flag(value("zero_copy")), limit(value("blocks"), "0"), limit(value("threads"), "0")
    drop(block "_size_min"); drop(block "_size_max"); drop("alg"); drop("zero_copy"); drop("blocks"); drop("threads"); drop("comment")
    if (line !~ /^        [{] *,? *[}],?$/)
        fail("a key that is not known here")
    next
}
{ fail("a line that is not known here") }
END {
    if (failed)
        exit 1
    printf "static const struct {\n    const default_t *rule;\n    unsigned n;\n} defaults[GPUSYM_COLL_COUNT] = {\n%s};\n", list
}
