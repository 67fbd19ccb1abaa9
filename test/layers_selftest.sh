#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Whether test/layers.sh finds what it is there to find: plants one violation of each kind in a copy of the sources and of
# the build's objects, and requires the line that names it.
#
#     test/layers_selftest.sh BUILDDIR
set -u
export LC_ALL=C

builddir=$(cd "${1:?usage: test/layers_selftest.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
srcdir=$(cd "$GPUSYM_SRCDIR" && pwd) || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
src=$work/src
build=$work/build
failed=0
planted=0

# copy_files FROM TO FIND-WORDS...: what find finds in FROM, by its path there, as links.
copy_files() {
    local from=$1 to=$2
    shift 2
    (cd "$from" && find . \( -path './[_.]?*' -o -path './gpusym-*' \) -prune -o -type f "$@" -printf '%P\n') |
        while IFS= read -r file; do
            mkdir -p "$to/${file%/*}" && ln -s "$from/$file" "$to/$file" || exit 1
        done
}
copy_files "$srcdir" "$src" -path './*/*' \( -name '*.[ch]' -o -name '*.def' -o -name '*.cu' -o -name architecture.md \)
copy_files "$builddir" "$build" -name '*.o' -not -path './test/*'
mkdir -p "$build/test"
cp "$builddir/test/build.env" "$build/test/"

# plant FILE: standard input, as a source; a .c file is compiled too, as an object of its folder.
plant() {
    local object=$build/${1%/*}/.libs/planted-${1##*/}
    mkdir -p "${src:?}/${1%/*}"
    cat >"$src/$1"
    added+=("$src/$1")
    if [[ $1 == *.c ]]; then
        object=${object%.c}.o
        mkdir -p "${object%/*}"
        added+=("$object")
        ${CC:-gcc} -I"$src" -c -o "$object" "$src/$1" || exit 2
    fi
}

# found WHAT REGEX: what has been planted is reported in a line that REGEX matches; takes it away.
added=()
found() {
    planted=$((planted + 1))
    "$srcdir/test/layers.sh" "$build" "$src" >"$work/out"
    if ! grep -Eq -- "$2" "$work/out"; then
        echo "$1 was not found: no line matches '$2' in"
        sed 's/^/    /' "$work/out"
        failed=$((failed + 1))
    fi
    rm -f "${added[@]}"
    added=()
}

# A symbol that tuning/ defines.
symbol=$("${NM:-nm}" -g "$build"/tuning/.libs/*.o | awk '$2 == "T" { print $3; exit }')
[ -n "$symbol" ] || { echo "tuning/ defines no symbol"; exit 2; }

plant kernels/planted.h <<<'#include "tuning/tuning.h"'
found "an include up" '^arrow: kernels/planted\.h \(kernels\) includes tuning/tuning\.h \(tuning\)$'

plant kernels/planted.c <<<"extern int $symbol(void); int planted(void); int planted(void) { return $symbol(); }"
found "a symbol up" "^arrow: kernels/planted\\.c \\(kernels\\) needs $symbol of tuning/[a-z_]+\\.c \\(tuning\\)$"

plant kernels/planted_a.h <<<'#include "planted_b.h"'
plant kernels/planted_b.h <<<'#include "kernels/planted_c.h"'
plant kernels/planted_c.h <<<'  #  include "kernels/planted_a.h"'
found "a circle of includes" '^circle: kernels: planted_a -> planted_b -> planted_c -> planted_a '

plant kernels/planted_a.c <<<'extern int planted_b; extern int planted_a; int planted_a; int *planted_b_at = &planted_b;'
plant kernels/planted_b.c <<<'extern int planted_a; extern int planted_b; int planted_b; int *planted_a_at = &planted_a;'
found "a circle of symbols" '^circle: kernels: planted_a -> planted_b -> planted_a \(planted_a\.c needs planted_b of kernels/planted_b\.c; '

plant kernels/planted_b.h <<<'int planted_b(void);'
plant kernels/planted_a.c <<<'#include "kernels/planted_b.h"
int planted_a(void) { return 1; }'
plant kernels/planted_a.h <<<'int planted_a(void);'
plant kernels/planted_b.c <<<'int planted_a(void); int planted_b(void); int planted_b(void) { return planted_a(); }'
found "a circle of an include and a symbol" '^circle: kernels: planted_a -> planted_b -> planted_a '

plant planted/planted.c <<<'int planted;'
found "a file without a room" '^room: planted/planted\.c belongs to no room$'

plant tuning/planted.h <<<'#include <cuda.h>'
found "a header of another project" '^door: tuning/planted\.h \(tuning\) includes cuda\.h'

plant mca/common/gpusym/device/cuda/planted.h <<<'#define MAKE cu.cuMulticastCreate'
found "a second maker of multicast objects" '^alone: mca/common/gpusym/device/cuda/planted\.h names cuMulticastCreate'

page=$(readlink "$src/docs/architecture.md")
# page_with SED-COMMAND: the page, changed.
page_with() {
    rm "$src/docs/architecture.md"
    sed "$1" "$page" >"$src/docs/architecture.md"
}
# shellcheck disable=SC2016
page_with 's,^| `kernels` | `kernels/` | [^|]*|,| `kernels` | `kernels/` | `tuning` |,'
found "an arrow up in the table" '^table: kernels uses tuning, which does not stand below it$'
# shellcheck disable=SC2016
page_with 's,^| `tuning` | `tuning/`,&\, `tuning/gone.c`,'
found "a row's file that is not there" '^table: tuning has no file tuning/gone\.c$'

echo "$planted violations planted, $failed not found"
[ $failed = 0 ]
