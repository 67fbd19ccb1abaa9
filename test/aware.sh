#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A program finds out whether MPI accepts GPU memory, when it is compiled and when it runs, with nothing but what
# "./quickstart env" prints:
#
#     test/aware.sh BUILDDIR
#
# A folder of links to the build stands for the installation. The program is test/mpi/aware.c.
set -u
builddir=$(cd "${1:?usage: test/aware.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/mpirun.sh
. "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
# shellcheck source=test/env.sh
. "$GPUSYM_SRCDIR/test/env.sh" || exit 2
if [ "$GPUSYM_SANITIZERS" != no ]; then
    echo "the program of a user has no sanitizer"
    exit 77
fi
device=${OMPI_MCA_coll_gpusym_device:-sim}
for name in "${!OMPI_MCA_coll@}" OMPI_MCA_opal_mca_base_component_path CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH; do
    unset "$name"
done
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
# shellcheck source=test/verdict.sh
. "$GPUSYM_SRCDIR/test/verdict.sh" || exit 2

mkdir -p "$dir/prefix/lib/openmpi" "$dir/prefix/include/gpusym"
ln -s "$GPUSYM_SRCDIR/pmpi/mpi-ext.h" "$dir/prefix/include/gpusym/"
for name in "$builddir"/components/*.so "$builddir"/.libs/libgpusym_mpi.so; do
    [ ! -e "$name" ] || ln -s "$(readlink -f "$name")" "$dir/prefix/lib/openmpi/$(basename "$name")"
done

# expect WHAT COMMAND...
expect() {
    local what=$1 why=
    shift
    "$@" >"$dir/log" 2>&1 </dev/null || why=$*
    verdict "$what" "$why" "$dir/log"
}

source=$GPUSYM_SRCDIR/test/mpi/aware.c
flags=(-Wall -Wextra -Wpedantic -Werror)
# A user's own settings stay.
mkdir "$dir/own"
export CPATH=$dir/own C_INCLUDE_PATH=$dir/own
eval "$(print_env "$dir/prefix")"
eval "$(print_env "$dir/prefix")" # a second time changes nothing
expect 'compiled with mpicc' "$GPUSYM_OMPI_MPICC" "${flags[@]}" -DSUPPORT=1 "$source" -o "$dir/aware"
expect 'other folders stay' test "$CPATH" = "$dir/prefix/include/gpusym:$dir/own"
read -ra compile <<<"$("$GPUSYM_OMPI_MPICC" --showme:compile)"
for compiler in g++ clang nvcc; do
    command -v $compiler >/dev/null || continue
    case $compiler in
        g++) flags=(-x c++ -fsyntax-only) ;;
        clang) flags=(-fsyntax-only) ;;
        nvcc) flags=(-x cu -c -o "$dir/aware.o") ;;
    esac
    # clang may stand for another machine's.
    if [ $compiler != clang ] || echo '#include <stdio.h>' | clang -E -x c - >"$dir/log" 2>&1; then
        expect "compiled with $compiler" $compiler "${flags[@]}" "${compile[@]}" -DSUPPORT=1 "$source"
    fi
done
run=("$GPUSYM_OMPI_MPIRUN" -n 2 "${oversubscribe[@]}")
use=(--mca coll gpusym --mca coll_gpusym_device)
expect 'a device' "${run[@]}" "${use[@]}" "$device" "$dir/aware" 1
expect 'no device' "${run[@]}" "${use[@]}" none "$dir/aware" 0
expect 'without gpusym' "${run[@]}" --mca coll ^gpusym --mca coll_gpusym_device "$device" "$dir/aware" 0
# What mpirun of Open MPI 4.1 does not take together with mca_base_env_list.
has_variable=(sh -c "[ \"\$GPUSYM_AWARE\" = 1 ] && exec $dir/aware 1")
expect 'mpirun -x' "${run[@]}" -x GPUSYM_AWARE=1 "${use[@]}" "$device" "${has_variable[@]}"
if [ "$GPUSYM_OMPI_MAJOR" = 4 ]; then
    expect 'without messages' "${run[@]}" "${use[@]}" "$device" --mca coll_gpusym_p2p off "$dir/aware" 0
    # Variables that the user sets by that parameter.
    unset OMPI_MCA_mca_base_env_list_internal
    export OMPI_MCA_mca_base_env_list=GPUSYM_AWARE=1
    eval "$(print_env "$dir/prefix")"
    eval "$(print_env "$dir/prefix")"
    expect 'mca_base_env_list' "${run[@]}" "${use[@]}" "$device" "${has_variable[@]}"
fi
echo "$passed as expected, $failed not"
[ $failed -eq 0 ]
