#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The examples of docs/contributing.md: each patch is applied to a copy of the sources, which is built, and the command
# behind the patch, "make check PATTERNS=...", passes there:
#
#     test/contributing.sh BUILDDIR [--apply]     --apply: that they can be applied, no more
#
# The copy is configured as BUILDDIR is, but without kernels for GPUs, and not optimised. Takes two minutes of CPU.
set -u
builddir=$(cd "${1:?usage: test/contributing.sh BUILDDIR [--apply]}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
if [ -e "$GPUSYM_SRCDIR/config.status" ]; then
    echo "the source folder has a build of its own, which a copy would have too"
    exit 77
fi
if [ "$GPUSYM_SANITIZERS" != no ]; then
    echo "the examples are tested without sanitizers"
    exit 77
fi
command -v patch >/dev/null || { echo "patch is missing" && exit 77; }
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
# shellcheck source=test/verdict.sh
. "$GPUSYM_SRCDIR/test/verdict.sh" || exit 2

mkdir "$dir/tree" "$dir/build"
tar -C "$GPUSYM_SRCDIR" --mode=u+w --exclude='./[_.]?*' --exclude='./gpusym-*' --exclude=./autom4te.cache -cf - . |
    tar -C "$dir/tree" -xf -

# N.patch and N.command of each example.
awk -v dir="$dir" '
    /^```diff$/ { file = dir "/" ++n ".patch"; next }
    /^```$/ { file = ""; next }
    file != "" { print >file }
    /^    make check PATTERNS=/ { sub(/^ */, ""); print >(dir "/" n ".command") }' "$GPUSYM_SRCDIR/docs/contributing.md"
n=$(find "$dir" -maxdepth 1 -name '*.patch' | wc -l)
why=
[ "$n" -ge 3 ] || why="$n patches"
for ((i = 1; i <= n; i++)); do
    [ "$(wc -l <"$dir/$i.command")" = 1 ] || why="$why, one command for patch $i"
    patch -d "$dir/tree" -p1 --fuzz=0 --batch <"$dir/$i.patch" >>"$dir/log" 2>&1 ||
        why="$why, patch $i cannot be applied"
done
verdict "$n patches can be applied" "$why" "$dir/log"
finish() {
    echo "$passed as expected, $failed not"
    [ $failed -eq 0 ]
    exit
}
[ "${2:-}" != --apply ] || finish

options=()
eval "options=($("$builddir/config.status" --config))"
build() {
    cd "$dir/build" || return
    "$dir/tree/configure" "${options[@]}" --with-cuda-arch=none --enable-werror CFLAGS='-O0 -g0' &&
        make -j"$(nproc)" check-programs
}
# The tests in the copy are on the simulator, whatever those are that this one is among.
unset MAKEFLAGS MFLAGS MAKELEVEL LD_PRELOAD GPUSYM_TEST_DEVICE GPUSYM_TEST_RANKS "${!OMPI_MCA_@}"
why=
[ $failed -ne 0 ] || build >"$dir/log" 2>&1 || why='it does not'
verdict 'with all of them it builds' "$why" "$dir/log"
for ((i = 1; i <= n && failed == 0; i++)); do
    why=
    (cd "$dir/build" && GPUSYM_TEST_FORM=short bash -c "$(cat "$dir/$i.command")") >"$dir/log" 2>&1 || why=failed
    # A pattern that no test has finds nothing, which is no pass.
    IFS="='" read -r _ _ names <"$dir/$i.command"
    for name in $names; do
        grep -qE "^ok   (unit/)?$name\>" "$dir/log" || why="$name has not passed"
    done
    verdict "$(cat "$dir/$i.command")" "$why" "$dir/log"
done
finish
