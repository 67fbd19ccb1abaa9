#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Values that a parameter cannot have: each is named as the user wrote it, with what is allowed, and the default is taken.
#
#     test/values.sh BUILDDIR
#
# All parameters that are no strings, in the environment and in a file (ompi_info reads both as a program does); some on mpirun's
# command line, where the message names the process.
set -u
builddir=$(cd "${1:?usage: test/values.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/mpirun.sh
. "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL
info=$GPUSYM_OMPI_INFO
program=$builddir/examples/allreduce
# shellcheck disable=SC2154  # test/mpirun.sh sets it
set -- "$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}"
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
passed=0
failed=0

# expect WHAT NAME VALUE LOG: the log says so, with what is allowed
expect() {
    if grep -Fq "The MCA parameter $2 cannot be \"$3\"." "$4" && grep -q '^Allowed: .' "$4" &&
        grep -q '^Used instead: .' "$4"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $1: $2 \"$3\" is not named"
        tail -n 8 "$4" | sed 's/^/     | /'
    fi
}

ask() {
    LD_PRELOAD=${GPUSYM_TEST_PRELOAD:-} "$info" --param coll gpusym --level 9 --parsable >"$1" 2>&1
}

for name in "${!OMPI_MCA_coll_gpusym_@}"; do
    unset "$name"
done
ask "$dir/all"
if grep -q 'cannot be' "$dir/all"; then
    echo "FAIL: a default is refused"
    failed=1
fi
mapfile -t numbers < <(sed -nE '/:type:string$/d; s/^mca:coll:gpusym:param:(coll_gpusym_[a-z0-9_]+):type:.*$/\1/p' "$dir/all")
[ ${#numbers[@]} -gt 30 ] || { echo "FAIL: $info knows no parameters of coll/gpusym"; exit 1; }
# All at once. Where 1 is in range, so is what Open MPI makes of "1x": the text alone tells.
for value in abc 1x '' -7 99999999999999999999999 1e999 nan; do
    (
        for name in "${numbers[@]}"; do
            export "OMPI_MCA_$name=$value"
        done
        ask "$dir/log"
    )
    for name in "${numbers[@]}"; do
        expect environment "$name" "$value" "$dir/log"
    done
    [ -n "$value" ] || continue # Open MPI's own parser cannot read a line without a value
    printf "%s = $value\n" "${numbers[@]}" >"$dir/params"
    OMPI_MCA_mca_base_param_files=$dir/params ask "$dir/log"
    for name in "${numbers[@]}"; do
        expect file "$name" "$value" "$dir/log"
    done
done
# What is right is not refused.
for value in heap_size=64M heap_size=0x4000000 timeout=2.5 timeout=1e3 summary=yes summary=0 graph=false blocks=010 priority=-1 \
    net_devices=ucx net_devices=mlx5_0:1,eth0 net_devices=none; do
    env LD_PRELOAD="${GPUSYM_TEST_PRELOAD:-}" "OMPI_MCA_coll_gpusym_${value%%=*}=${value#*=}" "$info" --param coll gpusym --level 9 --parsable >"$dir/log" 2>&1
    if grep -q 'cannot be' "$dir/log"; then
        failed=$((failed + 1))
        echo "FAIL: $value is refused"
    else
        passed=$((passed + 1))
    fi
done
# The common library's own names; both names set: the component's holds.
library() {
    local want=$1
    shift
    env LD_PRELOAD="${GPUSYM_TEST_PRELOAD:-}" "$@" "$info" --param coll gpusym --level 9 --parsable >"$dir/log" 2>&1
    if grep -q "^mca:coll:gpusym:param:coll_gpusym_heap_size:value:$want\$" "$dir/log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $*: heap_size is not $want"
    fi
}
library 8388608 OMPI_MCA_opal_common_gpusym_heap_size=8M
library 4194304 OMPI_MCA_opal_common_gpusym_heap_size=8M OMPI_MCA_coll_gpusym_heap_size=4M
library 58720256 OMPI_MCA_opal_common_gpusym_heap_size=abc
expect environment opal_common_gpusym_heap_size abc "$dir/log"
for value in timeout=abc blocks=1x zero_copy=maybe allreduce_algorithm=fast algorithm=allreduce:fast algorithm=allmend:ll device=gpu heap_size=-1 summary= \
    net_devices=auto,eth0 net_devices=eth0,,lo "net_devices=eth0 lo"; do
    timeout 30 "$@" -n 2 --mca coll gpusym --mca "coll_gpusym_${value%%=*}" "${value#*=}" "$program" \
        >"$dir/log" 2>&1 </dev/null
    expect "command line" "coll_gpusym_${value%%=*}" "${value#*=}" "$dir/log"
    # Two processes of one node: one says it.
    [ "$(grep -c '^gpusym, process [01] on ' "$dir/log")" = 1 ] && continue
    failed=$((failed + 1))
    echo "FAIL command line: $value: not once a node"
    grep '^gpusym, process' "$dir/log" | sed 's/^/     | /'
done
echo "$passed as expected, $failed not"
[ "$failed" -eq 0 ]
