#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs a command on a busy machine:
#
#     test/busy.sh N COMMAND [ARGUMENT...]
#
# Beside N processes that compute all the time. They are of this command's session: Linux divides the CPU among sessions first
# (sched_autogroup_enabled), and beside N sessions of their own the command would have one part of N + 1, however many
# processes it has. Exit status: the command's.
set -u
if [ $# -lt 2 ] || [[ ! $1 =~ ^[0-9]+$ ]]; then
    echo "usage: test/busy.sh N COMMAND [ARGUMENT...]" >&2
    exit 2
fi
spinning=()
trap 'kill "${spinning[@]}" 2>/dev/null; wait "${spinning[@]}" 2>/dev/null' EXIT
trap 'exit 143' INT TERM
for ((i = 0; i < $1; i++)); do
    (while :; do :; done) &
    spinning+=($!)
done
shift
"$@"
