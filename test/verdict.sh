# SPDX-License-Identifier: BSD-3-Clause
#
# The verdicts of a shell test that has several. To be sourced by bash; counts them in
#   passed, failed
# shellcheck shell=bash disable=SC2034
passed=0
failed=0

# verdict WHAT WHY [LOG...]: a line; WHY it is not as expected, empty if it is: then the ends of these files follow.
verdict() {
    if [ -z "$2" ]; then
        passed=$((passed + 1))
        echo "ok   $1"
    else
        failed=$((failed + 1))
        echo "FAIL $1: $2"
        [ $# -lt 3 ] || cat "${@:3}" | tail -n 25 | sed 's/^/     | /'
    fi
}
