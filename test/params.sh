#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# docs/parameters.md against what Open MPI says of the component: name, default, level, meaning and synonym of every parameter;
# the counters of messages; and docs/troubleshooting.md against the lists of reasons and messages.
#
#     test/params.sh OMPI_INFO [DOCUMENT]     OMPI_INFO is called as the environment says, which must name the component
#
#   GPUSYM_TEST_PRELOAD   libraries that ompi_info needs before it can load the component: the sanitizers'
#
# Prints the lines that differ, < from the document, > as they should be; so says the exit status.
set -u
info=${1:?usage: test/params.sh OMPI_INFO [DOCUMENT]}
document=${2:-$(dirname "$0")/../docs/parameters.md}

# Defaults are compared, not what this run has set.
for name in "${!OMPI_MCA_coll_gpusym_@}"; do
    unset "$name"
done

dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# A row of the document for each parameter; values that hold a colon may come in quotes.
LD_PRELOAD=${GPUSYM_TEST_PRELOAD:-} "$info" --param coll gpusym --level 9 --parsable >"$dir/info"
sed -nE 's/^mca:coll:gpusym:param:(coll_gpusym_[a-z0-9_]+):(value|level|help):"?(.*[^"])?"?$/\1\t\2\t\3/p' "$dir/info" |
    awk -F'\t' '
        { said[$1, $2] = $3; names[$1] }
        END {
            for (n in names) {
                value = said[n, "value"]
                if (value ~ /^[0-9]+\.0+$/)
                    sub(/\.0+$/, "", value)
                value = value == "" ? "(empty)" : "`" value "`"
                print "| `" n "` | " value " | " said[n, "level"] " | " said[n, "help"] " |"
            }
        }' | LC_ALL=C sort >"$dir/said"
# A row for each parameter that is a synonym of one of the common library.
# shellcheck disable=SC2016  # Markdown's backquotes
sed -nE 's/^mca:coll:gpusym:param:(coll_gpusym_[a-z0-9_]+):synonym_of:name:(.*)$/| `\1` | `\2` |/p' "$dir/info" >>"$dir/said"
LC_ALL=C sort -o "$dir/said" "$dir/said"
# The counters' rows have other columns.
# shellcheck disable=SC2016  # Markdown's backquotes
grep -E '^\| `coll_gpusym_[a-z0-9_]+` \| ([^|]+ \| [0-9] \| |`opal_)' "$document" | LC_ALL=C sort >"$dir/written"

if [ ! -s "$dir/said" ]; then
    echo "$info knows no parameter of coll/gpusym"
    exit 1
fi
diff "$dir/written" "$dir/said" || exit 1
# docs/troubleshooting.md has each reason for staging, as the component's list says it, and each message of conf/help.def.
coll=$(dirname "$0")/../mca/coll/gpusym
missing=$({
    # shellcheck disable=SC2016  # Markdown's backquotes
    sed -nE 's/^GPUSYM_REASON\([A-Z_]+, ([a-z_]+), "(.*)",$/| `\1` | \2 |/p' "$coll/args/coll_gpusym.def"
    # shellcheck disable=SC2016
    sed -nE 's/^GPUSYM_HELP\("([a-z-]+)",$/`\1`/p' "$coll/conf/help.def"
} | while IFS= read -r text; do
    grep -Fq -- "$text" "$(dirname "$document")/troubleshooting.md" || echo "docs/troubleshooting.md lacks: $text"
done)
# The counters of messages.
# shellcheck disable=SC2016
missing+=$(sed -nE 's/^PML_GPUSYM_(COUNTER|REASON)\([A-Z_]+, ([a-z_]+), "(.*)"\)$/| `coll_gpusym_p2p_\2` | \3 |/p' \
    "$coll/../../pml/gpusym/counters.def" | while IFS= read -r text; do
    grep -Fxq -- "$text" "$document" || echo "$document lacks: $text"
done)
[ -z "$missing" ] || { echo "$missing" && exit 1; }
echo "$(grep -vc 'opal_common' "$dir/said") parameters, $(grep -c 'opal_common' "$dir/said") of them of the common library, as documented"
