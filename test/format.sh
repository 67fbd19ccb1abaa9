#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Whether the C and CUDA sources are formatted as .clang-format says, by clang-format 14, which Debian 12 has:
#
#     test/format.sh [--fix]        --fix: formats them
#
# The lists of .def files are tables, and stay as they are; so does what stands between "clang-format off" and "on" in the
# others. Prints the files that differ, with how many lines do. CLANG_FORMAT: the program, if not found.
# Exit status: 0 none; 1 some; 2 cannot check; 77 cannot check, since the program cannot be fetched.
set -u
cd "$(dirname "$0")/.." || exit 2
version=14
fix=0
case ${1:-} in '') ;; --fix) fix=1 ;; *) echo "usage: test/format.sh [--fix]" >&2; exit 2 ;; esac

# is_right PROGRAM: whether it is there, and of that version: others format otherwise.
is_right() {
    [[ $("$1" --version 2>/dev/null) == *"version $version."* ]]
}

find_program() {
    local program
    for program in ${CLANG_FORMAT:+"$CLANG_FORMAT"} clang-format-$version clang-format; do
        is_right "$program" && echo "$program" && return
    done
    return 1
}

if ! find_program >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing with apt-get: clang-format-$version"
    # shellcheck source=test/fetch.sh
    . test/fetch.sh
    fetch eval "apt-get update && apt-get install -y --no-install-recommends clang-format-$version" >/dev/null 2>&1 ||
        cannot_fetch clang-format-$version
fi
program=$(find_program) || {
    echo "clang-format $version is missing (Debian 12: apt-get install clang-format-$version)"
    exit 2
}

# What is in builds and in a release's folder is not ours to format.
mapfile -t files < <(find . \( -path './[_.]?*' -o -path './gpusym-*' -o -path ./build-aux -o -path ./autom4te.cache \) -prune -o \
    -type f \( -name '*.[ch]' -o -name '*.cu' \) -path './*/*' -print | sort)
if [ $fix = 1 ]; then
    exec "$program" -i "${files[@]}"
fi

differing=0
for file in "${files[@]}"; do
    lines=$("$program" "$file" | diff "$file" - | grep -c '^<')
    [ "$lines" = 0 ] && continue
    differing=$((differing + 1))
    echo "${file#./}: $lines lines"
done
echo "$differing of ${#files[@]} files differ"
# Comments are not reflowed, since that would join their lists.
long=$(awk 'length > 120 { print FILENAME ":" FNR ": more than 120 columns" }' "${files[@]}")
[ -z "$long" ] || echo "$long"
[ $differing = 0 ] && [ -z "$long" ]
