#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A manual page, on stdout, from what there is: the documents, bench/options.def, the comments of installed headers.
#
#     docs/man.sh PAGE [VERSION [DOCDIR]]      PAGE: gpusym.7, gpusym-parameters.7, gpusym_bench.1, gpusym_info.1,
#                                              gpusym_trace.1, gpusym_netperf.1, gpusym_tune.1,
#                                              gpusym.3gpusym, mpix_stream.3gpusym, or
#                                              FUNCTION.3gpusym: where functions share a comment, the others' pages
#                                              lead to that of the one it names.
#                                              DOCDIR: where the documents are installed
#     docs/man.sh --markdown PAGE              what it is made from
#
# SOURCE_DATE_EPOCH: seconds, in place of today's date. bash, awk and sed are sufficient.
set -u
export LC_ALL=C # every awk breaks lines alike
cd "$(dirname "$0")/.." || exit 1
pages='gpusym(7) gpusym-parameters(7) gpusym_bench(1) gpusym_info(1) gpusym_trace(1) gpusym_netperf(1) gpusym_tune(1) MPIX_Query_cuda_support(3gpusym) gpusym(3gpusym)'
pages="$pages gpusym_allreduce_on_stream(3gpusym) gpusym_stream_prepare(3gpusym) gpusym_stream_error(3gpusym)"
pages="$pages gpusym_start_on_stream(3gpusym) gpusym_group_start(3gpusym) gpusym_mem_register(3gpusym)"
pages="$pages mpix_stream(3gpusym)"
headers='pmpi/mpi-ext.h api/gpusym.h api/mpix_stream.h'

# section FILE HEADING: what stands beneath
section() {
    awk -v heading="## $2" '/^## / { inside = $0 == heading; next } inside' "$1"
}

# lines MACRO PROGRAM: how to call it
lines() {
    awk -F '"' -v macro="$1(" -v program="$2" 'index($0, macro) == 1 { print "    " program " " $2 }' bench/options.def
}

# options MACRO...: a table of these options
options() {
    printf '\n| option | meaning |\n|---|---|\n'
    awk -v macros=" $* " '
        /^[A-Z_0-9]+\(/ { entry = "" }
        { sub(/^ +/, entry == "" ? "" : " "); entry = entry $0 }
        /\)$/ {
            gsub(/" +"/, "", entry)
            gsub(/\|/, "\\|", entry)
            split(entry, part, "\"")
            if (index(macros, " " substr(part[1], 1, length(part[1]) - 1) " "))
                print "| `--" part[2] (part[4] == "" ? "" : " ") part[4] "` | " part[6] " |"
            entry = ""
        }' bench/options.def
}

# page_of FUNCTION: the name in the comment above its declaration, the first line of which is "NAME - what it does"
page_of() {
    # shellcheck disable=SC2086  # a list of words
    awk -v name="$1" '
        /^[[:space:]]*\/\*\*/ { page = $2 }
        /^ *(int )?[A-Za-z_]+\(/ { sub(/\(.*/, ""); sub(/^ *(int )?/, ""); if ($0 == name) print page }' $headers
}

# comment NAME: the comment that begins with this name, without its first line
comment() {
    awk -v name="$1" '
        /^[[:space:]]*\/\*\*/ { inside = $2 == name; next }
        /\*\// { if (inside) exit }
        inside { sub(/^[[:space:]]*\* ?/, ""); print }' "$header"
}

# declarations NAME: those between that comment and the next empty line
declarations() {
    awk -v name="$1" '
        function put(text,    parts, n, i, line) {
            gsub(/ +/, " ", text)
            n = split(text, parts, ", ")
            line = "   " parts[1]
            for (i = 2; i <= n; i++) {
                line = line ","
                if (length(line parts[i]) > 76) {
                    print line
                    line = "       "
                }
                line = line " " parts[i]
            }
            print line
        }
        /^[[:space:]]*\/\*\*/ { inside = $2 == name }
        /\*\// { after = inside; next }
        after && /^$/ { exit }
        after && !/^#/ && !/extern "C"/ { text = text " " $0 }
        after && /;/ { put(text); text = "" }' "$header"
}

what() {
    case $page in
        gpusym.7) echo 'MPI on GPU memory: plug-ins for Open MPI' ;;
        gpusym-parameters.7) echo 'parameters and counters of gpusym' ;;
        gpusym_bench.1) echo "measures MPI's collectives and messages on GPU memory" ;;
        gpusym_info.1) echo 'GPUs, links, parameters, algorithms and health of a machine' ;;
        gpusym_trace.1) echo 'what a trace of a job says of its collectives' ;;
        gpusym_netperf.1) echo "measures gpusym's transport between hosts" ;;
        gpusym_tune.1) echo 'measures which algorithms are best on a machine, and writes rules' ;;
        gpusym.3gpusym) echo 'collectives of MPI on CUDA streams' ;;
        *) sed -n "s,^[[:space:]]*/\*\* $name - ,,p" "$header" ;;
    esac
}

body() {
    case $page in
        gpusym.7)
            printf '## Synopsis\n\n    mpirun --mca coll gpusym ./app\n\n## Description\n'
            awk '/^## / { exit } /^    / { next } { print }' README.md
            printf '\n## Running a program\n'
            section README.md 'Running a program'
            printf '\n## Files\n'
            # shellcheck disable=SC2016  # Markdown's backquotes
            section README.md 'Where to go on' | grep -v '^| `man '
            # shellcheck disable=SC2016  # Markdown's backquotes
            [ -z "$docdir" ] || printf 'The documents are in `%s`.\n' "$docdir"
            ;;
        gpusym-parameters.7)
            printf '## Synopsis\n\n    mpirun --mca NAME VALUE ...\n\n## Description\n'
            cat docs/parameters.md
            ;;
        gpusym_bench.1)
            printf '## Synopsis\n\n' && lines BENCH_LINE gpusym_bench
            printf '\n## Description\n\n| program | what |\n|---|---|\n' && sed -n '/^| `gpusym_bench/p' bench/README.md
            echo && sed -n '/^Without arguments/,/^$/p' bench/README.md
            printf '\n## Examples\n\n' && sed -n '/^    .*gpusym_bench/p' bench/README.md
            printf '\n## Options\n' && options BENCH_INFO BENCH_COMMON BENCH_TABLES
            printf '\n### Collectives\n' && options BENCH_COLL
            printf '\n### Sweeps\n' && options BENCH_SWEEP
            printf '\n### gpusym_bench p2p\n' && options BENCH_P2P
            for heading in 'The columns of gpusym_bench' 'The rows and columns of gpusym_bench p2p' 'The method'; do
                printf '\n## %s\n' "$heading" && section bench/README.md "$heading"
            done
            ;;
        gpusym_info.1)
            printf '## Synopsis\n\n' && lines INFO_LINE gpusym_info
            printf '\n## Description\n' && section docs/guide.md 'What gpusym finds: gpusym_info'
            printf '\n## Options\n' && options BENCH_INFO INFO
            ;;
        gpusym_trace.1)
            printf '## Synopsis\n\n' && lines TRACE_LINE gpusym_trace
            printf '\n## Description\n' && section docs/guide.md 'Where the time goes: gpusym_trace'
            printf '\n## Options\n' && options BENCH_INFO TRACE
            ;;
        gpusym_netperf.1)
            printf '## Synopsis\n\n' && lines NETPERF_LINE gpusym_netperf
            printf '\n## Description\n' && section bench/README.md gpusym_netperf
            printf '\n## Options\n' && options BENCH_INFO NETPERF
            ;;
        gpusym_tune.1)
            printf '## Synopsis\n\n' && lines TUNE_LINE gpusym_tune
            printf '\n## Description\n' && section bench/README.md gpusym_tune
            printf '\n## Rules\n' && section docs/algorithms.md Rules
            printf '\n## Options\n' && options BENCH_INFO TUNE
            ;;
        gpusym.3gpusym)
            printf '## Synopsis\n\n    #include <gpusym.h>\n\n'
            # shellcheck disable=SC2016  # for the reader's shell
            printf '    mpicc ... $(pkg-config --cflags --libs gpusym)\n\n## Description\n'
            cat docs/streams.md
            ;;
        *)
            printf '## Synopsis\n\n    #include <%s>\n\n' "${header##*/}" && declarations "$name"
            printf '\n## Description\n\n' && comment "$name"
            ;;
    esac
    printf '\n## See also\n\n'
    for other in $pages; do
        [ "$other" = "$name($number)" ] || printf '**%s**(%s ' "${other%(*}" "${other#*(}"
    done | sed 's/) /), /g; s/, $/\n/'
}

markdown=
[ "${1:-}" != --markdown ] || { markdown=1 && shift; }
page=${1:?usage: docs/man.sh [--markdown] PAGE [VERSION [DOCDIR]]}
docdir=${3:-}
name=${page%.*}
number=${page##*.}
if [ "$number" = 3gpusym ]; then
    to=$(page_of "$name")
    [ -z "$to" ] || [ "$to" = "$name" ] || { echo ".so man3/$to.3gpusym" && exit; }
    # shellcheck disable=SC2086  # a list of words
    header=$(grep -l "/\*\* $name - " $headers)
fi
case " $pages " in *" $name($number) "*) ;; *) echo "there is no page $page" >&2 && exit 2 ;; esac
if [ -n "$markdown" ]; then
    printf '# %s\n\n%s.\n\n' "$name($number)" "$(what)"
    body
else
    body | awk -v name="$name" -v section="$number" -v what="$(what)" -v source="gpusym ${2:-}" \
        -v date="$(date -u ${SOURCE_DATE_EPOCH:+-d "@$SOURCE_DATE_EPOCH"} +%Y-%m-%d)" -f docs/man.awk
fi
