#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The packages: built, installed in bare roots of Debian, run there, and removed:
#
#     test/packages.sh [bookworm] [trixie]        both, if none is named
#
# In a root of each Debian it makes the release's tarball and, of that, the Debian package, which lintian looks through; in
# bookworm also the RPM, whose files are compared with the Debian package's; in trixie REUSE's check, and the recipes' syntax. A
# second root has nothing but what the package brings along. The roots are test/compat/root.sh's, the tree is taken as it
# is. Needs root (or sudo), and the network. The kernels are not built: there is no nvcc in the roots.
# Ends with "N passed, M failed"; exit status 77: packages cannot be fetched.
# shellcheck disable=SC2317  # steps are called by name
set -u
me=packages.sh
# shellcheck source=test/compat/root.sh
. "$(dirname "$0")/compat/root.sh"
# shellcheck source=test/verdict.sh
. "$top/test/verdict.sh"

# ---- steps, inside a root: /gpusym is the tree, /packages what was built ----

build_tools() {
    # shellcheck disable=SC2046  # a list of words
    install_missing build-essential debhelper lintian $([ "$1" != bookworm ] || echo rpm) \
        $([ "$1" != trixie ] || echo reuse)
    fetch apt-get build-dep -y --no-install-recommends /gpusym || cannot_fetch "what gpusym's Debian package is built with"
}

make_tarball() {
    set -e
    rm -rf /packages
    mkdir /packages /gpusym/_build
    cd /gpusym/_build
    ../autogen.sh
    ../configure --without-cuda
    make dist
    cp gpusym-*.tar.gz /packages/
    make recipes URL=https://example.org/gpusym
    cp -r recipes /packages/
}

make_deb() {
    set -e
    cd /packages
    for tarball in gpusym-*.tar.gz; do
        name=${tarball%.tar.gz}
        cp "$tarball" "gpusym_${name#gpusym-}.orig.tar.gz"
        tar -xf "$tarball"
    done
    cd gpusym-*/
    DEB_BUILD_OPTIONS="nocheck parallel=$(nproc)" dpkg-buildpackage -us -uc
}

lint() {
    lintian --allow-root --fail-on error /packages/gpusym_*.changes
}

make_rpm() {
    rpmbuild -ta --nodeps --define "_topdir /packages/rpm" --define "_build_id_links none" \
        --define "_libdir /usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)" /packages/gpusym-*.tar.gz
}

# The RPM's files are those of the Debian package, but for what only that one has. Debian's rpmbuild compresses none.
compare_rpm() {
    rpm -qlp /packages/rpm/RPMS/*/gpusym-[0-9]*.rpm | sort >/packages/rpm.list
    dpkg-deb --fsys-tarfile /packages/gpusym_*.deb | tar -tf - | sed -n 's,^\./\(.*[^/]\)$,/\1,p' |
        grep -vE '/(changelog.Debian.gz|copyright|README.Debian)$|^/usr/share/lintian/' |
        sed '/[/]man[/]/s/[.]gz$//' | sort >/packages/deb.list
    # Of an RPM folders are listed, too.
    grep -vxFf <(sed 's,/[^/]*$,,' /packages/rpm.list | sort -u) /packages/rpm.list | diff /packages/deb.list -
}

check_reuse() {
    cd /gpusym && reuse lint # before there are files that are made
}

check_recipes() {
    python3 -c 'import ast, sys; [ast.parse(open(name).read()) for name in sys.argv[1:]]' /packages/recipes/* &&
        ! grep -rn '@[A-Z0-9]*@' /packages/recipes
}

install_alone() {
    apt-get update && apt-get install -y --no-install-recommends /packages/gpusym_*.deb &&
        dpkg -L gpusym >/packages/installed
}

# gpusym_bench is an MPI program, and comes with the package.
run_alone() {
    local log=/packages/alone
    # shellcheck disable=SC2034  # test/mpirun.sh reads it
    GPUSYM_OMPI_MAJOR=$(ompi_info --parsable | sed -n 's/^ompi:version:full:\([0-9]*\).*/\1/p')
    # shellcheck source=test/mpirun.sh
    . /gpusym/test/mpirun.sh
    mpirun -n 2 "${oversubscribe[@]}" --mca coll gpusym --mca coll_gpusym_device sim --mca coll_gpusym_summary 1 \
        gpusym_bench --coll allreduce --max 1024 >$log 2>&1
    local rc=$?
    cat $log
    [ $rc = 0 ] && grep -qE '^gpusym: allreduce: native [1-9]' $log
}

# What other packages own is theirs again, as it was.
purge() {
    local left
    apt-get purge -y gpusym || return
    left=$({
        while read -r name; do
            [ -d "$name" ] || [ ! -e "$name" ] || dpkg -S "$name" >/dev/null 2>&1 || echo "$name"
        done </packages/installed
        find / -xdev \( -path /gpusym -o -path /packages -o -path /proc -o -path /sys \) -prune -o -iname '*gpusym*' -print
        dpkg-divert --list gpusym | grep gpusym
        # shellcheck disable=SC2046  # names
        dpkg --verify $(dpkg-query -W -f '${Package}\n' 'openmpi*' 'libopenmpi*' 'libpmix*') 2>/dev/null
    } | sort -u)
    [ -z "$left" ] || { echo "left: $left" && return 1; }
}

compiled_program() {
    fetch apt_install gcc libc6-dev libopenmpi-dev /packages/gpusym_*.deb && bash /gpusym/debian/tests/smoke
}

# A program that asks whether MPI is GPU-aware. By the module; on Open MPI 4.1 also by the set of parameters.
aware() {
    local run
    fetch apt_install environment-modules >/dev/null || return
    # shellcheck disable=SC2034  # as above
    GPUSYM_OMPI_MAJOR=$(ompi_info --parsable | sed -n 's/^ompi:version:full:\([0-9]*\).*/\1/p')
    # shellcheck source=test/mpirun.sh
    . /gpusym/test/mpirun.sh
    run=(timeout --kill-after=10 120 mpirun -n 2 "${oversubscribe[@]}" --mca coll_gpusym_device sim)
    cd /packages || return
    set +u
    # shellcheck source=/dev/null
    . /usr/share/modules/init/bash
    module load /usr/share/gpusym/modulefile
    mpicc -DSUPPORT=1 /gpusym/test/mpi/aware.c -o aware && "${run[@]}" --mca coll gpusym ./aware 1 || return
    module unload /usr/share/gpusym/modulefile
    [ "$GPUSYM_OMPI_MAJOR" != 4 ] || { ! "${run[@]}" --mca coll gpusym ./aware 1 && "${run[@]}" --tune gpusym ./aware 1; }
}

# A package for another Open MPI.
refused() {
    ! apt-get install -y --no-install-recommends /packages/other/gpusym_*.deb && dpkg -s gpusym | grep -q '^Status: .*installed'
}

case ${1:-} in
    --inside)
        "${@:2}"
        exit
        ;;
esac

# ---- outside ----

# step WHAT FUNCTION ARGUMENT...: in the root; a function that cannot fetch packages ends the script
step() {
    local what=$1 rc=0
    shift
    "${into[@]}" "$root" /bin/bash /gpusym/test/packages.sh --inside "$@" >"$out/log" 2>&1 </dev/null || rc=$?
    if [ $rc = 77 ]; then
        tail -n 3 "$out/log"
        exit 77
    fi
    verdict "$debian: $what" "$([ $rc = 0 ] || echo "exit status $rc")" "$out/log"
    return $rc
}

built() {
    have_root "$debian-packages" "$debian"
    copy_tree "$root/gpusym"
    step 'what it is built with' build_tools "$debian" || return
    [ "$debian" != trixie ] || step 'REUSE' check_reuse
    step 'the tarball' make_tarball && step 'the package' make_deb || return
    step 'lintian' lint
    if [ "$debian" = bookworm ]; then
        step 'the RPM' make_rpm && step "the RPM's files" compare_rpm
    else
        step 'the recipes' check_recipes
    fi
    mkdir "$out/$debian" && cp "$root"/packages/gpusym_*.deb "$out/$debian/"
}

installed() {
    local bare other
    have_root "$debian-bare" "$debian"
    bare=$root
    root=$cache/$debian-clean
    rm -rf "$root"
    cp -a "$bare" "$root"
    copy_tree "$root/gpusym"
    mkdir -p "$root/packages/other"
    cp "$out/$debian"/*.deb "$root/packages/"
    step 'installed, with what it depends on' install_alone || return
    step 'it runs' run_alone
    step 'links of the documents' eval 'bash /gpusym/test/links.sh /usr/share/doc/gpusym'
    step 'purged, nothing is left' purge
    step 'a program is compiled and run' compiled_program
    step 'a program asks for GPU memory' aware
    for other in bookworm trixie; do
        if [ $other != "$debian" ] && [ -d "$out/$other" ]; then
            cp "$out/$other"/*.deb "$root/packages/other/"
            step "the package of $other is refused" refused
        fi
    done
    rm -rf "$root"
}

for debian; do
    case $debian in bookworm | trixie) ;; *) die "which Debian? bookworm or trixie" ;; esac
done
as_root "$0" "$@"
[ $# -gt 0 ] || set -- bookworm trixie
out=$(mktemp -d) || exit 2
trap 'rm -rf "$out"' EXIT
for debian; do built; done
for debian; do [ ! -d "$out/$debian" ] || installed; done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
