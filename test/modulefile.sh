#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The module file sets what "./quickstart env" prints, and takes it back, by the Environment Modules of this machine:
#
#     test/modulefile.sh BUILDDIR
set -u
builddir=$(cd "${1:?usage: test/modulefile.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/env.sh
. "$GPUSYM_SRCDIR/test/env.sh" || exit 2
# shellcheck source=test/verdict.sh
. "$GPUSYM_SRCDIR/test/verdict.sh" || exit 2
for init in "${MODULESHOME:-/nowhere}/init/bash" /usr/share/modules/init/bash /usr/share/lmod/lmod/init/bash; do
    [ ! -e "$init" ] || break
done
[ -e "$init" ] || { echo "neither Environment Modules nor Lmod is here" && exit 77; }
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
for name in "${!OMPI_MCA_@}" "${!GPUSYM_TEST_@}" CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH LD_PRELOAD; do unset "$name"; done

# It is made for a prefix with this name, whatever that of the build is.
prefix=/opt/gpusym
print_module $prefix/lib/openmpi $prefix/bin $prefix/include/gpusym >"$dir/settings"
sed -e "/@SETTINGS@/{r $dir/settings" -e 'd}' "$GPUSYM_SRCDIR/packaging/modulefile.in" >"$dir/gpusym"

# What "module" itself keeps is not compared.
variables() {
    env | grep -vE '^(_|SHLVL|MODULE.*|LOADEDMODULES|_LMFILES_|__MODULES.*|__LMOD.*|_ModuleTable.*|LMOD_.*|BASH_.*|FPATH|MANPATH)=' |
        grep -vE '^[ }]' | sort
}
# loaded COMMAND: the variables after it, by a module; "module" may read unset variables
loaded() {
    set +u
    # shellcheck source=/dev/null
    . "$init"
    eval "$1"
    variables
}
same() {
    verdict "$1" "$(diff "$dir/want" "$dir/have")"
}
load="module load $dir/gpusym"
for own in 'unset A' 'export LD_PRELOAD= CPATH=/own:/other' 'export OMPI_MCA_mca_base_env_list=A=b'; do
    (eval "$own" && eval "$(print_env $prefix)" && loaded :) >"$dir/want" 2>&1
    (eval "$own" && loaded "$load") >"$dir/have" 2>&1
    same "load, $own"
    (eval "$own" && loaded :) >"$dir/want" 2>&1
    (eval "$own" && loaded "$load; module unload $dir/gpusym") >"$dir/have" 2>&1
    same "unload, $own"
done
(loaded "$load; module show $dir/gpusym") >"$dir/have" 2>&1
verdict 'it says what it is' "$(grep -q 'MPI on GPU memory' "$dir/have" || echo 'no whatis')" "$dir/have"
verdict 'that of the build is filled in' "$(grep '@[A-Z_]*@' "$builddir/modulefile" 2>&1)"
echo "$passed as expected, $failed not"
[ $failed -eq 0 ]
