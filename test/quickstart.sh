#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What quickstart asks, installs and starts, on machines that lack this and that:
#
#     test/quickstart.sh
#
# Programs of this script stand for a machine's: apt-get and sudo write down how they are called, gcc knows some
# headers, and there is no other Open MPI than the case says. Nothing is built: autogen.sh fails.
set -u
script=$(type -P script) # makes a terminal
export SHELL=$BASH
unset CC CPPFLAGS GPUSYM_CONFIGURE
top=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
# shellcheck source=test/verdict.sh
. "$top/test/verdict.sh" || exit 2

# A machine: programs of the system that every case has, and some of our own.
mkdir -p "$dir/system" "$dir/tree/test" "$dir/spack/bin" "$dir/other/bin"
for name in bash cat cut dirname env grep head mkdir nproc paste rm sed sleep sort tail tr wc; do
    ln -s "$(type -P $name)" "$dir/system/"
done
cp "$top/quickstart" "$dir/tree/"
cp "$top"/test/*.sh "$dir/tree/test/"
# program PATH LINE...
program() {
    { echo '#!/usr/bin/env bash' && printf '%s\n' "${@:2}"; } >"$dir/$1"
    chmod +x "$dir/$1"
}
program tree/autogen.sh 'echo autogen.sh was run; exit 1'
program spack/bin/ompi_info :
program other/bin/ompi_info :
# new_machine ID HEADER...: a user's id, and what gcc knows
new_machine() {
    rm -rf "${dir:?}/bin" "$dir/tree/_build" && mkdir "$dir/bin"
    for name in make autoconf automake libtoolize; do program bin/$name :; done
    program bin/id "echo $1"
    program bin/dpkg-query 'echo not-installed'
    # shellcheck disable=SC2016  # for that program
    program bin/apt-get 'echo "apt-get $*" >>"$GPUSYM_CALLS"'
    shift
    # shellcheck disable=SC2016
    program bin/gcc 'read -r line; case $line in '"$(printf '*"<%s>"*) ;; ' "$@")"'*) exit 1 ;; esac'
}
has_sudo() {
    # shellcheck disable=SC2016
    program bin/sudo 'echo "sudo $*" >>"$GPUSYM_CALLS"'
}

# has_build CMOCKA: a build for the Open MPI of spack, with cmocka (1) or without (0)
has_build() {
    mkdir -p "$dir/tree/_build/test"
    program tree/configure 'echo configure was run; exit 1'
    program tree/_build/config.status "echo \"'--prefix=/nowhere' '--with-ompi=$dir/spack'\""
    printf '%s\n' "GPUSYM_OMPI_INFO='$dir/spack/bin/ompi_info'" "GPUSYM_HAVE_CMOCKA='$1'" \
        >"$dir/tree/_build/test/build.env"
}

# expect WHAT STATUS CALL WORDS [--tty ANSWER] [OPTION...]: quickstart ends with this status and says these words, and
# CALL is among the calls of apt-get and sudo; -: there was none
expect() {
    local what=$1 status=$2 call=$3 words=$4 answer='' rc=0 bad=''
    shift 4
    : >"$dir/calls"
    if [ "${1:-}" = --tty ]; then
        answer=$2
        shift 2
        echo "$answer" | env PATH="$dir/bin:$dir/system" GPUSYM_CALLS="$dir/calls" "$script" -qec \
            "$dir/tree/quickstart $*" /dev/null >"$dir/log" 2>&1 || rc=$?
    else
        env PATH="$dir/bin:$dir/system" GPUSYM_CALLS="$dir/calls" "$dir/tree/quickstart" "$@" \
            >"$dir/log" 2>&1 </dev/null || rc=$?
    fi
    [ $rc = "$status" ] || bad="exit status $rc"
    grep -qE -- "$words" "$dir/log" || bad="$bad, no '$words'"
    if [ "$call" = - ]; then
        [ ! -s "$dir/calls" ] || bad="$bad, something was installed"
    else
        grep -qF -- "$call" "$dir/calls" || bad="$bad, no '$call'"
    fi
    verdict "$what" "${bad#, }" "$dir/log" "$dir/calls"
}
install='apt-get install -y --no-install-recommends'
ompi='libopenmpi-dev libpmix-dev openmpi-bin'
all='stdio.h ucp/api/ucp.h jansson.h cmocka.h'

# shellcheck disable=SC2086  # lists of words
{
    new_machine 0 stdio.h
    expect 'a dry run' 0 - "^==> packages to install: $ompi libucx-dev libjansson-dev\$" --dry-run
    expect 'a dry run does nothing' 0 - 'autogen.sh\): .*/tree/autogen.sh$' --dry-run check
    [ ! -e "$dir/tree/_build" ] || { echo 'FAIL a dry run has made _build' && failed=$((failed + 1)); }
    expect 'root is not asked' 1 "$install $ompi libucx-dev libjansson-dev" "^==> installing with apt-get: $ompi libucx-dev libjansson-dev\$"
    expect 'cmocka is for tests' 1 "$install $ompi libucx-dev libjansson-dev libcmocka-dev iproute2" 'autogen.sh was run' check

    new_machine 1000 stdio.h
    expect 'no root, no sudo' 77 - "^  apt-get install $ompi libucx-dev libjansson-dev\$"
    expect 'an Open MPI elsewhere may be named' 77 - '--with-ompi=DIR'
    expect '--with-ompi: its packages are not asked for' 1 - 'continuing without libucx-dev libjansson-dev; .*' --with-ompi="$dir/spack"
    expect '--with-ompi: no Open MPI there' 1 - 'there is no .*/tree/bin/ompi_info' --with-ompi="$dir/tree"
    ln -s "$dir/spack/bin/ompi_info" "$dir/bin/"
    expect 'an Open MPI in PATH: nor then' 1 - 'continuing without libucx-dev libjansson-dev; .*'
    new_machine 1000 $all
    program bin/dpkg-query 'echo installed'
    expect 'nothing is missing' 1 - 'autogen.sh was run' check
    new_machine 1000 stdio.h
    has_sudo
    expect 'no terminal: sudo is not called' 77 - 'or by sudo: .*/quickstart --yes$'
    expect '--yes: sudo is called' 1 "sudo -n env DEBIAN_FRONTEND=noninteractive $install $ompi" 'autogen.sh was' --yes
    if [ -n "$script" ]; then
        expect 'a terminal: asked, refused' 77 - '\[y/N\]' --tty n
        expect 'a terminal: asked, granted' 1 "sudo env DEBIAN_FRONTEND=noninteractive $install $ompi" '\[y/N\]' --tty y
    fi

    new_machine 1000 $all
    program bin/dpkg-query 'echo installed'
    has_build 0
    expect 'cmocka has come: the tests are configured anew' 1 - 'configure was run' check
    expect 'with the same Open MPI' 0 - "/configure --prefix=[^ ]* --with-ompi=$dir/spack " --dry-run check
    has_build 1
    expect 'no reason to configure' 0 - 'running the tests' check
    # There is nothing to count, which is known before make ends.
    # shellcheck disable=SC2016  # for that program
    program bin/make '[[ " $* " == *" -n "* ]] || sleep 0.5'
    [ -z "$script" ] || expect 'on a terminal the same' 0 - 'running the tests' --tty '' check
    expect 'another Open MPI than that of the build' 1 - 'rm -r _build' --with-ompi="$dir/other"
    rm "$dir/tree/configure"

    new_machine 0 $all
    for gpus in 0:4:sim 1:2:cuda 2:2:cuda 3:3:cuda 8:4:cuda; do
        IFS=: read -r n ranks device <<<"$gpus"
        [ "$n" = 0 ] && compgen -G '/dev/nvidia[0-9]*' >/dev/null && continue
        program bin/nvidia-smi "for ((i = 0; i < $n; i++)); do echo \"GPU \$i: one (UUID: \$i)\"; echo '  MIG 1g'; done"
        expect "$n GPUs: $ranks ranks" 0 - "mpirun -n $ranks .*device $device " --dry-run
    done
    expect 'a word too many' 1 - 'unknown option' --foo
    expect '--help' 0 - '--dry-run  ' --help
}
echo "$passed as expected, $failed not"
[ $failed -eq 0 ]
