#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Whether nothing is left of the hosts of test/mpi/hosts.sh after they were ended in the midst of a program:
#
#     test/mpi/hosts_end.sh BUILDDIR
#
# The closing line is "hosts_end: N passed, M failed"; exit status 77: hosts cannot be made here.
set -u
set -m # a process group each

builddir=$(cd "${1:?usage: test/mpi/hosts_end.sh BUILDDIR}" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd) || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
export TMPDIR=$dir
# shellcheck source=test/verdict.sh
. "$here/../verdict.sh" || exit 2

# Processes of this test's runs, by the folder that all of them have in their environment.
left_over() {
    grep -lsz "^TMPDIR=$dir/" /proc/[0-9]*/environ
}

# wait_for COMMAND...: until it succeeds, for as long as nothing but a hang takes
wait_for() {
    local end=$((SECONDS + 60 * ${GPUSYM_TEST_SLOW:-1}))
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

both_run() {
    [ "$(grep -cs '^host' "$dir/log")" = 2 ]
}

nothing_runs() {
    [ -z "$(left_over)" ]
}

has_ended() {
    ! kill -0 "$1" 2>/dev/null
}

# ends SIGNAL: hosts.sh gets it while a program runs on two hosts
ends() {
    local why='' run
    rm -f "$dir/log"
    # Who was started in the background ignores SIGINT, and so do the children; a trap cannot undo that.
    env --default-signal=INT "$here/hosts.sh" 2 1 --build "$builddir" -- sh -c 'hostname; sleep 1000' >"$dir/log" 2>&1 &
    run=$!
    wait_for both_run || why='the program did not begin'
    [ -n "$(left_over)" ] || why="$why its processes cannot be seen"
    kill -"$1" $run
    wait_for nothing_runs || why="$why still there: $(left_over | tr '\n' ' ')"
    # Who makes the run's folder removes it last.
    wait_for has_ended $run || why="$why hosts.sh is still there"
    { kill -KILL $run; wait $run; } 2>/dev/null
    # Who is killed cannot remove the empty folder over which the run's own was mounted.
    [ "$1" = KILL ] || ! compgen -G "$dir/tmp.*" >/dev/null || why="$why a folder is left"
    verdict "SIG$1" "$why" "$dir/log"
}

"$here/hosts.sh" 1 1 --build "$builddir" -- true >"$dir/log" 2>&1
if [ $? -eq 77 ]; then
    tail -n 1 "$dir/log"
    exit 77
fi
for signal in TERM INT HUP KILL; do
    ends $signal
done
echo "hosts_end: $passed passed, $failed failed"
[ $failed -eq 0 ]
