#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds this tree and runs its tests with another Debian's Open MPI, inside a root of that Debian:
#
#     test/compat/debian.sh trixie|sid [FORM]     trixie has Open MPI 5.0.7, sid 6.0
#
# FORM is the form of the tests (GPUSYM_TEST_FORM of test/run.sh): version, if none is given, those of make check, and of
# make check-long what depends on the version of Open MPI; ompi, what meets most of Open MPI's own code.
# The tree is taken as it is, committed or not. The root is made by debootstrap, once, and kept in
# ${GPUSYM_COMPAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpusym}/NAME; delete it to have it made anew.
# Needs root (or sudo), to make the root and to enter it. Ends with the tests' closing line, "N passed, M failed"; exit status 77:
# packages cannot be fetched.
#
#   GPUSYM_DEBIAN_MIRROR   where packages come from (default: where this machine's apt takes Debian's from)
set -eu
# libpmix-dev: libopenmpi-dev needs its headers for components, and since Open MPI 6 does not ask for it.
packages=(gcc libc6-dev make autoconf automake libtool libopenmpi-dev libpmix-dev openmpi-bin libcmocka-dev libucx-dev iproute2)

# shellcheck source=test/fetch.sh
. "$(dirname "$0")/../fetch.sh"

say() {
    printf '==> %s\n' "$*"
}

die() {
    printf 'debian.sh: %s\n' "$*" >&2
    exit 1
}

# Where this machine's apt takes Debian's packages from: by what the archives say of themselves or, before the first apt-get
# update, by their addresses. Nothing, if it takes none, as on Ubuntu.
debian_mirror() {
    {
        # shellcheck disable=SC2016  # apt's variable
        apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian'
        # shellcheck disable=SC2016
        apt-get indextargets --no-release-info --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/*$'
    } 2>/dev/null | grep '^http' | head -n 1
}

# Inside a mount namespace of our own: whatever is mounted here is gone when we end, however we end.
enter_root() {
    local root=$1
    mount --make-rprivate /
    # As a mount of its own, whose propagation the tests that make namespaces can set.
    mount --bind "$root" "$root"
    mount --rbind /dev "$root/dev"
    # Its own shared memory: the machine's may be too small, or hold another's files.
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t proc proc "$root/proc" 2>/dev/null || mount --rbind /proc "$root/proc"
    mount --rbind /sys "$root/sys"
    cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
    exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive "${@:2}"
}

apt_install() {
    apt-get update && apt-get install -y --no-install-recommends "$@"
}

# Inside the root: installs what is still missing, builds, tests.
build_and_test() {
    local form=$1 without='' wanted=("${@:2}") missing=() package jobs
    for package in "${wanted[@]}"; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    if [ ${#missing[@]} -gt 0 ]; then
        say "installing in the root: ${missing[*]}"
        fetch apt_install "${missing[@]}" >/tmp/apt.log 2>&1 || { tail -n 20 /tmp/apt.log && cannot_fetch "${missing[*]}"; }
    fi
    mkdir /gpusym/_build
    cd /gpusym/_build
    say "building with $(ompi_info --version | head -n 1), $(gcc --version | head -n 1)"
    jobs=$(($(nproc) + 2))
    # The unit tests know no MPI.
    [ "$form" != ompi ] || without=--without-cmocka
    { ../autogen.sh && ../configure --enable-werror $without && make -j"$jobs" check-programs; } >build.log 2>&1 ||
        { tail -n 40 build.log; die "the build failed"; }
    sed -n '/^gpusym [0-9]/,/^ *install to/p' build.log
    GPUSYM_TEST_FORM=$form exec make --no-print-directory check
}

case ${1:-} in
    --enter) enter_root "${@:2}" ;;
    --inside) build_and_test "${@:2}" ;;
esac

name=${1:-}
case $name in trixie | sid) ;; *) die "which Debian? trixie or sid" ;; esac
form=${2:-version}
top=$(cd "$(dirname "$0")/../.." && pwd)
cache=${GPUSYM_COMPAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpusym}
mirror=${GPUSYM_DEBIAN_MIRROR:-$(debian_mirror)}
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "needs root, and there is no sudo"
    exec sudo env GPUSYM_COMPAT_CACHE="$cache" GPUSYM_DEBIAN_MIRROR="$mirror" "$0" "$name" "$form"
fi
root=$cache/$name

if ! command -v debootstrap >/dev/null && [ ! -d "$root" ]; then
    command -v apt-get >/dev/null || die "debootstrap is missing; Fedora, RHEL: dnf install debootstrap"
    say "installing with apt-get: debootstrap"
    fetch apt_install debootstrap >/dev/null || cannot_fetch debootstrap
fi

make_root() {
    rm -rf "$root.part"
    debootstrap --variant=minbase --include="$(IFS=,; echo "${packages[*]}")" "$name" "$root.part" "$mirror"
}

# One at a time in a root.
mkdir -p "$cache"
exec 9>"$cache/$name.lock"
flock 9

if [ ! -d "$root" ]; then
    [ -n "$mirror" ] || die "this machine's apt has no packages of Debian; name a mirror: GPUSYM_DEBIAN_MIRROR=URL"
    say "making a root of Debian $name in $root (a few minutes)"
    fetch make_root >"$cache/$name.log" 2>&1 ||
        { tail -n 20 "$cache/$name.log" && cannot_fetch "a root of Debian $name; all of debootstrap's output is in $cache/$name.log"; }
    mv "$root.part" "$root"
fi

# What mpirun left of a run that was killed: its folder's name is a process id, which may come again.
rm -rf "$root"/tmp/prte* "$root"/tmp/ompi.* "$root"/tmp/pmix-*

say "copying the tree into $root/gpusym"
rm -rf "$root/gpusym"
mkdir "$root/gpusym"
cd "$top"
if [ -e .git ] && command -v git >/dev/null; then
    # Tracked or new, but not ignored; a file that was deleted and not yet committed is still listed.
    git -c safe.directory="$top" ls-files -co --exclude-standard -z |
        while IFS= read -r -d '' file; do if [ -e "$file" ]; then printf '%s\0' "$file"; fi; done |
        tar --null -T - -cf - | tar -xf - -C "$root/gpusym"
else
    tar --exclude='./_build*' --exclude='./_install*' -cf - . | tar -xf - -C "$root/gpusym"
fi

exec unshare --mount --pid --fork --kill-child "$top/test/compat/debian.sh" --enter "$root" \
    /bin/bash /gpusym/test/compat/debian.sh --inside "$form" "${packages[@]}"
