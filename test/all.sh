#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# All that there is to test, one after the other, on a machine that does nothing else; what a change must pass is .ci/run:
#
#     test/all.sh [PART...]       all parts, if none is named
#
#   check, long, timed    the forms of test/run.sh, in _build
#   trixie, sid           Open MPI 5 and 6, in roots of Debian: test/compat/debian.sh
#   packages              the packages, built, installed and run: test/packages.sh
#   busy                  check beside twice as many computing processes as there are cores: test/busy.sh
#   address, thread       make check, built with these sanitizers, in _build-address, _build-thread
#
# The logs, and the table of results that this ends with, are kept in _all/COMMIT. Exit status: 0 if all parts have passed.
set -u
cd "$(dirname "$0")/.." || exit 1
export GPUSYM_CONFIGURE="--enable-werror ${GPUSYM_CONFIGURE:-}"

sanitized() {
    local dir=_build-$1
    { [ -e configure ] || ./autogen.sh; } && mkdir -p "$dir" && cd "$dir" &&
        { [ -e config.status ] || ../configure --enable-sanitizers="$1" --with-cuda-arch=none; } &&
        make -j"$(nproc)" && make check
}

run_part() {
    case $1 in
        check) ./quickstart check ;;
        busy) test/busy.sh $((2 * $(nproc))) ./quickstart check ;;
        long | timed) ./quickstart "check-$1" ;;
        trixie | sid) test/compat/debian.sh "$1" ;;
        packages) test/packages.sh ;;
        address | thread) sanitized "$1" ;;
    esac
}

[ $# -gt 0 ] || set -- check long timed busy trixie sid packages address thread
for part; do
    case $part in
        check | long | timed | busy | trixie | sid | packages | address | thread) ;;
        *) echo "usage: test/all.sh [check] [long] [timed] [busy] [trixie] [sid] [packages] [address] [thread]" >&2 && exit 2 ;;
    esac
done
commit=$(git describe --always --dirty --abbrev=10 --exclude='*' 2>/dev/null || echo unknown)
dir=_all/$commit
mkdir -p "$dir" || exit 1
bad=0
for part; do
    start=$SECONDS
    echo "==> $part"
    (run_part "$part") >"$dir/$part.log" 2>&1 </dev/null
    rc=$?
    closing=$(grep -aE '^[0-9]+ passed, [0-9]+ failed$' "$dir/$part.log" | tail -n 1)
    [ $rc -eq 0 ] || bad=$((bad + 1))
    {
        printf '%-8s %5s s  exit status %-3s  %s\n' "$part" $((SECONDS - start)) $rc "${closing:-no closing line}"
        grep -aE '^flaky: ' "$dir/$part.log"
        sed -n '/^load: /,$ s/^FAIL /         FAIL /p' "$dir/$part.log"
    } | tee "$dir/$part.result"
done
{
    printf '%s, %s, %s\n' "$commit" "$(date -u +%F)" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | uniq -c | sed 's/^ *//')"
    for part in check long timed busy trixie sid packages address thread; do cat "$dir/$part.result" 2>/dev/null; done
} >"$dir/table"
echo
cat "$dir/table"
exit $((bad > 0))
