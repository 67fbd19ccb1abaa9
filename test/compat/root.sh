#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Roots of Debian to build and test in, for the scripts that do. To be sourced by bash; these set
#   me       the script's name, for its messages
# and this sets top, the source tree. The roots are made by debootstrap, once, and kept in
# ${GPUSYM_COMPAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpusym}; delete one to have it made anew. What is mounted in a root is
# gone when the command that runs there ends, however it ends.
#
#   GPUSYM_DEBIAN_MIRROR   where packages come from (default: where this machine's apt takes Debian's from)
# shellcheck shell=bash
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=test/fetch.sh
. "$top/test/fetch.sh"

say() {
    printf '==> %s\n' "$*"
}

die() {
    printf '%s: %s\n' "${me:-root.sh}" "$*" >&2
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

# Inside a mount namespace of our own.
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

# "${into[@]}" ROOT COMMAND...: runs it there, as root of this machine
# shellcheck disable=SC2034
into=(unshare --mount --pid --fork --kill-child "${BASH:-bash}" "$top/test/compat/root.sh" --enter)

# as_root SCRIPT ARGUMENT...: goes on only as root; starts the script by sudo otherwise. Sets cache and mirror.
as_root() {
    cache=${GPUSYM_COMPAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpusym}
    mirror=${GPUSYM_DEBIAN_MIRROR:-$(debian_mirror)}
    [ "$(id -u)" != 0 ] || return 0
    command -v sudo >/dev/null || die "needs root, and there is no sudo"
    exec sudo env GPUSYM_COMPAT_CACHE="$cache" GPUSYM_DEBIAN_MIRROR="$mirror" "$@"
}

apt_install() {
    apt-get update && apt-get install -y --no-install-recommends "$@"
}

# install_missing PACKAGE...: those that this machine, or this root, lacks
install_missing() {
    local package missing=()
    for package; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing: ${missing[*]}"
    fetch apt_install "${missing[@]}" >/tmp/apt.log 2>&1 || { tail -n 20 /tmp/apt.log && cannot_fetch "${missing[*]}"; }
}

# On a terminal, again and again: what debootstrap does.
show_log() {
    while sleep 1 && kill -0 $$; do
        printf '\r\033[K    %s' "$(tail -n 1 "$1" | cut -c1-70)"
    done
}

make_root() {
    rm -rf "$root.part"
    debootstrap --variant=minbase ${2:+--include="$2"} "$1" "$root.part" "$mirror"
}

# have_root NAME DEBIAN [PACKAGE...]: the root NAME, of that Debian with these packages, as $root; made if it is not there.
# Nobody else has it until the script ends.
have_root() {
    local name=$1 debian=$2 packages shows=''
    shift 2
    packages=$(IFS=,; echo "$*")
    root=$cache/$name
    if ! command -v debootstrap >/dev/null && [ ! -d "$root" ]; then
        command -v apt-get >/dev/null || die "debootstrap is missing; Fedora, RHEL: dnf install debootstrap"
        say "installing with apt-get: debootstrap"
        fetch apt_install debootstrap >/dev/null || cannot_fetch debootstrap
    fi
    mkdir -p "$cache"
    exec 9>"$cache/$name.lock"
    flock 9
    [ ! -d "$root" ] || return 0
    [ -n "$mirror" ] || die "this machine's apt has no packages of Debian; name a mirror: GPUSYM_DEBIAN_MIRROR=URL"
    say "making a root of Debian $debian in $root (a few minutes)"
    if [ -t 1 ]; then
        show_log "$cache/$name.log" 2>/dev/null &
        shows=$!
    fi
    fetch make_root "$debian" "$packages" >"$cache/$name.log" 2>&1 ||
        { tail -n 20 "$cache/$name.log" && cannot_fetch "a root of Debian $debian; all of debootstrap's output is in $cache/$name.log"; }
    if [ -n "$shows" ]; then
        kill "$shows"
        wait "$shows" 2>/dev/null || true
        printf '\r\033[K'
    fi
    mv "$root.part" "$root"
}

# copy_tree FOLDER: the tree as it is, committed or not, into a new folder
copy_tree() {
    say "copying the tree into $1"
    rm -rf "$1"
    mkdir "$1"
    if [ -e "$top/.git" ] && command -v git >/dev/null; then
        # Tracked or new, but not ignored; a file that was deleted and not yet committed is still listed.
        git -C "$top" -c safe.directory="$top" ls-files -co --exclude-standard -z |
            (cd "$top" && while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done) |
            tar -C "$top" --null -T - -cf - | tar -xf - -C "$1"
    else
        tar -C "$top" --exclude='./_build*' --exclude='./_install*' -cf - . | tar -xf - -C "$1"
    fi
}

if [ "${1:-}" = --enter ] && [ "${BASH_SOURCE[0]}" = "$0" ]; then
    set -eu
    enter_root "${@:2}"
fi
