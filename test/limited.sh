# SPDX-License-Identifier: BSD-3-Clause
#
# A command with a time limit, and what its processes do when it is over. To be sourced by bash.
# shellcheck shell=bash

# Processes below this one, and itself.
family() {
    local child
    echo "$1"
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do family "$child"; done
}

# The stacks of a test that does not end: of those of its processes that have loaded gpusym, the first 16.
stacks() {
    local pid n=0
    command -v gdb >/dev/null || { echo "no gdb, so no stacks" && return; }
    for pid in $(family "$1"); do
        grep -qs 'gpusym.*\.so' "/proc/$pid/maps" && [ $((n += 1)) -le 16 ] || continue
        echo "==== process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-200)"
        timeout --kill-after=5 30 gdb -p "$pid" -batch -nx -ex 'thread apply all backtrace 16' 2>/dev/null </dev/null | grep -E '^(#|Thread)'
    done
}

# limited SECONDS LOG COMMAND...: its exit status; 124 if it had not ended by then, and was ended.
limited() {
    local limit=$1 log=$2 test clock ended='' rc
    shift 2
    : >"$log"
    timeout --kill-after=10 0 "$@" >>"$log" 2>&1 </dev/null & # no limit, but a group of processes that is ended as one
    test=$!
    sleep "$limit" &
    clock=$!
    trap 'kill "$test" "$clock" 2>/dev/null; exit 143' TERM
    wait -n -p ended "$test" "$clock"
    rc=$?
    if [ "$ended" = "$clock" ]; then
        stacks "$test" >>"$log" 2>&1
        kill "$test"
        wait "$test"
        rc=124
    else
        kill "$clock"
        wait "$clock"
    fi 2>/dev/null
    trap - TERM
    return $rc
}
