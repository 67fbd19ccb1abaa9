#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# configure takes all of Open MPI's programs from one folder, whatever else is in PATH:
#
#     test/configure.sh BUILDDIR
#
# Folders of programs that do nothing stand for installations. Their ompi_info names a version that gpusym does not
# know, at which configure ends: what it had found until then is in config.log.
set -u
builddir=$(cd "${1:?usage: test/configure.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
if [ -e "$GPUSYM_SRCDIR/config.status" ]; then
    echo "the source folder has a build of its own, beside which configure does not run"
    exit 77
fi
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
# shellcheck source=test/verdict.sh
. "$GPUSYM_SRCDIR/test/verdict.sh" || exit 2

# folder NAME PROGRAM...: an installation
folder() {
    local program
    mkdir -p "$dir/$1/bin"
    for program in "${@:2}"; do
        printf '#!/bin/sh\necho ompi:version:full:0.0.0\n' >"$dir/$1/bin/$program"
        chmod +x "$dir/$1/bin/$program"
    done
}
folder debian ompi_info mpicc mpicc.openmpi mpirun mpirun.openmpi mpiexec
folder module ompi_info mpicc mpirun
folder mpich mpicc mpirun
folder half ompi_info mpicc

# found NAME: the path that configure has found for GPUSYM_OMPI_NAME
found() {
    sed -n "s/^ac_cv_path_GPUSYM_OMPI_$1=//p" "$dir/build/config.log" | tr -d \'
}

# expect WHAT "INFO MPICC MPIRUN" WORDS PATH OPTION...: these programs are found, - for none, and configure prints these
# words. The cache has what does not depend on PATH.
expect() {
    local what=$1 wanted words=$3 path=$4 name want bad=
    read -ra wanted <<<"$2"
    shift 4
    rm -rf "$dir/build" && mkdir "$dir/build"
    [ ! -e "$dir/cache" ] || sed -i '/GPUSYM_OMPI/d' "$dir/cache"
    (cd "$dir/build" && PATH=$path:$PATH "$GPUSYM_SRCDIR/configure" --cache-file="$dir/cache" "$@" >log 2>&1)
    for name in INFO MPICC MPIRUN; do
        want=$dir/${wanted[0]}
        [ "${wanted[0]}" != - ] || want=
        wanted=("${wanted[@]:1}")
        [ "$(found "$name")" = "$want" ] || bad="$bad $name=$(found "$name")"
    done
    grep -qF -- "$words" "$dir/build/log" || bad="$bad no '$words'"
    verdict "$what" "$bad" "$dir/build/log"
}

says() {
    echo "checking for the folder of Open MPI's programs... $dir/$1/bin"
}
expect 'the system before a module' 'debian/bin/ompi_info debian/bin/mpicc.openmpi debian/bin/mpirun.openmpi' \
    "$(says debian)" "$dir/debian/bin:$dir/module/bin"
expect 'a module before the system, behind another MPI' 'module/bin/ompi_info module/bin/mpicc module/bin/mpirun' \
    "$(says module)" "$dir/mpich/bin:$dir/module/bin:$dir/debian/bin"
expect '--with-ompi' 'module/bin/ompi_info module/bin/mpicc module/bin/mpirun' "$(says module)" "$dir/debian/bin" \
    --with-ompi="$dir/module"
expect 'no mpirun beside ompi_info' 'half/bin/ompi_info half/bin/mpicc -' "found in $dir/half/bin, beside ompi_info" \
    "$dir/half/bin:$dir/debian/bin"
expect '--with-ompi without Open MPI' '- - -' "found in $dir/none/bin" "$dir/debian/bin" --with-ompi="$dir/none"
echo "$passed as expected, $failed not"
[ $failed -eq 0 ]
