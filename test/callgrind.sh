# SPDX-License-Identifier: BSD-3-Clause
#
# How many instructions our libraries add to a call, counted by valgrind's callgrind. To be sourced by bash behind
# test/mpirun.sh, with
#   program, calls   what rank 0 of 2 runs under callgrind, and how many calls it makes between two dumps
#   dir              a folder for the profiles
#   uncounted        an extended regular expression: functions of ours that do not count
# and, which are empty behind it:
#   only             the same: of those that do
#   arguments        an array: what the program gets behind the number of calls
#   off              an array: functions within which nothing is counted
# shellcheck shell=bash disable=SC2034,SC2154

command -v valgrind >/dev/null || { echo "no valgrind here" && exit 77; }
[ "$GPUSYM_SANITIZERS" = no ] || { echo "not with sanitizers: they add their own" && exit 77; }

# added PROFILE [CALLS]: the instructions of our libraries, and of what they call of libc, for each of CALLS (default: all).
# Of an edge the instructions of what is called are in its last field.
added() {
    # shellcheck disable=SC2016  # awk's own
    awk -v calls="${2:-$calls}" -v uncounted="^($uncounted)(\$|')" -v only="^(${only:-.*})(\$|')" '
        function ours(object) { return object ~ /gpusym[^\/]*\.so$/ }
        function libc(object) { return object ~ /\/(libc|libpthread|ld-linux)[^\/]*$/ }
        /^ob=/ { object = substr($0, 4) }
        /^fn=/ { called = object; name = substr($0, 4); counts = name !~ uncounted && name ~ only }
        /^cob=/ { called = substr($0, 5) }
        /^calls=/ {
            getline
            if (counts && ours(object) && libc(called)) sum += $NF
            called = object
            next
        }
        /^[0-9+*-]/ && counts && ours(object) { sum += $2 }
        END { printf "%.0f", sum / calls }' "$1"
}

# profile DEVICE WORD FUNCTION...: makes the profiles $dir/DEVICE.1, .2 and so on, one each time that a FUNCTION returns,
# of what runs in the functions called measured and, if dumped, initialise; $dir/DEVICE.names has what the program
# prints behind WORD: the names of the profiles.
profile() {
    local device=$1 word=$2 dumped collected=(--toggle-collect=measured "${off[@]/#/--toggle-collect=}")
    local options=(--compress-strings=no --compress-pos=no --callgrind-out-file="$dir/$1")
    for dumped in "${@:3}"; do
        options+=(--dump-after="$dumped")
        [ "$dumped" != initialise ] || collected+=(--toggle-collect=initialise)
    done
    CUDA_VISIBLE_DEVICES='' OMPI_MCA_coll=gpusym OMPI_MCA_coll_gpusym_device=$device timeout 100 "$GPUSYM_OMPI_MPIRUN" \
        "${oversubscribe[@]}" -n 1 valgrind --tool=callgrind "${options[@]}" "${collected[@]}" "$program" "$calls" "${arguments[@]}" \
        : -n 1 "$program" "$calls" "${arguments[@]}" >"$dir/out" 2>"$dir/log" </dev/null ||
        { tail -n 20 "$dir/log" && echo "$program failed with device $device" && exit 1; }
    sed -n "s/^$word //p" "$dir/out" >"$dir/$device.names"
}

only= arguments=() off=()
failed=0
fail() {
    echo "$*"
    failed=1
}
