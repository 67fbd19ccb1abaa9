# SPDX-License-Identifier: BSD-3-Clause
#
# What a shell sets so that its compilers and its mpirun use a gpusym that is installed beneath a prefix: for
# quickstart, and for the tests. To be sourced by bash behind a build's test/build.env.
# shellcheck shell=bash

# front FOLDERS LIST: a list like PATH, with FOLDERS at its head
front() {
    case $2: in
        "$1":*) printf '%s\n' "$2" ;;
        *) printf '%s\n' "$1${2:+:$2}" ;;
    esac
}

# preloading LIBRARY LIST: NAME=VALUE;NAME=VALUE..., in which LD_PRELOAD has LIBRARY
preloading() {
    case ";$2" in
        *"$1"*) printf '%s\n' "$2" ;;
        *";LD_PRELOAD="*) printf '%s\n' "${2/LD_PRELOAD=/LD_PRELOAD=$1:}" ;;
        *) printf '%s\n' "${2:+$2;}LD_PRELOAD=$(front "$1" "${LD_PRELOAD:-}")" ;;
    esac
}

# print_env PREFIX: commands for a shell
print_env() {
    local prefix=$1 library=$1/lib/openmpi/libgpusym_mpi.so bin value
    printf 'export OMPI_MCA_opal_mca_base_component_path=%q\n' "$prefix/lib/openmpi:$GPUSYM_OMPI_PATH_TAIL"
    # The programs of the build, and Open MPI's where the shell's are others.
    bin=$(dirname "$GPUSYM_OMPI_INFO")
    [ "$(type -P ompi_info)" != "$GPUSYM_OMPI_INFO" ] || bin=
    # shellcheck disable=SC2016  # the shell that evaluates this expands it
    printf 'export PATH=%q:"$PATH"\n' "$prefix/bin${bin:+:$bin}"
    # gpusym/mpi-ext.h is found before Open MPI's. A compiler looks into the folders of CPATH behind those of -I; but it
    # leaves out an -I of a folder that is among its own, as those of C_INCLUDE_PATH are, which come last.
    printf 'export CPATH=%q\n' "$(front "$prefix/include/gpusym" "${CPATH:-}")"
    if [ -n "$GPUSYM_OMPI_INCDIRS" ]; then
        printf 'export C_INCLUDE_PATH=%q\n' "$(front "$GPUSYM_OMPI_INCDIRS" "${C_INCLUDE_PATH:-}")"
        printf 'export CPLUS_INCLUDE_PATH=%q\n' "$(front "$GPUSYM_OMPI_INCDIRS" "${CPLUS_INCLUDE_PATH:-}")"
    fi
    # mpirun of Open MPI 4.1 has the ranks preload libgpusym_mpi. Where mca_base_env_list is set it refuses -x. It does
    # not with the parameter in which it keeps what files for --tune say; but it refuses both parameters at once.
    [ "$GPUSYM_OMPI_MAJOR" = 4 ] || return 0
    value=$("$GPUSYM_OMPI_INFO" --param mca base --level 9 --parsable 2>/dev/null |
        sed -nE 's/^mca:mca:base:param:mca_base_env_list:value:"?([^"]*)"?$/\1/p')
    if [ -n "$value" ]; then
        printf 'export OMPI_MCA_mca_base_env_list=%q\n' "$(preloading "$library" "$value")"
    else
        printf 'export OMPI_MCA_mca_base_env_list_internal=%q\n' \
            "$(preloading "$library" "${OMPI_MCA_mca_base_env_list_internal:-}")"
    fi
}
