# SPDX-License-Identifier: BSD-3-Clause
#
# What is fetched from elsewhere (packages), by scripts that go on or end where it cannot be had. To be sourced by bash.
# shellcheck shell=bash

# fetch COMMAND...: up to three times, until it succeeds.
fetch() {
    local try
    for try in 1 2 3; do
        "$@" && return
        [ "$try" = 3 ] || sleep $((5 * try))
    done
    return 1
}

# cannot_fetch WHAT: ends the script as one that cannot run here, which says why in its last line.
cannot_fetch() {
    echo "cannot be fetched, tried three times: $1"
    exit 77
}
