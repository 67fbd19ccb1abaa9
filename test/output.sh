# SPDX-License-Identifier: BSD-3-Clause
#
# For tests of what programs say, on the simulator's GPUs. To be sourced by bash after a build's test/build.env, with the
# build's folder in builddir; has test/mpirun.sh, test/verdict.sh, no parameters from outside, and
#   dir    a folder that goes when the test ends
#   label  what the last run was, for its verdicts
# shellcheck shell=bash
# shellcheck source=test/mpirun.sh
. "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
# shellcheck source=test/verdict.sh
. "$GPUSYM_SRCDIR/test/verdict.sh" || exit 2
for name in "${!OMPI_MCA_coll@}"; do
    unset "$name"
done
# shellcheck disable=SC2154  # who sources this sets it
export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# on_simulator: from now on mpirun runs gpusym, on the simulator
on_simulator() {
    export OMPI_MCA_coll=gpusym OMPI_MCA_coll_gpusym_device=sim GPUSYM_TEST_DEVICE=sim OMPI_MCA_coll_gpusym_multicast=0
}

# run WHAT COMMAND...: what it says is in $dir/log; it ends well
run() {
    local status
    label=$1
    timeout $((120 * ${GPUSYM_TEST_SLOW:-1})) "${@:2}" >"$dir/log" 2>&1 </dev/null
    status=$?
    verdict "$label: it ends well" "$([ $status = 0 ] || echo "status $status")" "$dir/log"
}

# says REGEX [N]: N lines match, 1 if it is not given; spaces stand for any number of them
says() {
    local n
    n=$(grep -Ec -- "${1// / +}" "$dir/log")
    verdict "$label: ${2:-1} x $1" "$([ "$n" = "${2:-1}" ] || echo "$n")" "$dir/log"
}
