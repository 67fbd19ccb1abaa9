# SPDX-License-Identifier: BSD-3-Clause
#
# What a shell sets so that its compilers and its mpirun use a gpusym that is installed: for quickstart, for the module
# file, and for the tests. To be sourced by bash behind a build's test/build.env.
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

# settings COMPONENTDIR BINDIR INCLUDEDIR: the list, a line each:
#   set NAME VALUE
#   front NAME FOLDERS       at the head of a list like PATH
#   preload LIBRARY          by all ranks
settings() {
    local bin
    if [ "$1" != "$GPUSYM_OMPI_PKGLIBDIR" ]; then # else Open MPI finds all by itself
        echo "set OMPI_MCA_opal_mca_base_component_path $1:$GPUSYM_OMPI_PATH_TAIL"
        # The programs of the build, and Open MPI's where the shell's are others.
        bin=$(dirname "$GPUSYM_OMPI_INFO")
        [ "$(type -P ompi_info)" != "$GPUSYM_OMPI_INFO" ] || bin=
        echo "front PATH $2${bin:+:$bin}"
    fi
    # gpusym/mpi-ext.h is found before Open MPI's. A compiler looks into the folders of CPATH behind those of -I; but it
    # leaves out an -I of a folder that is among its own, as those of C_INCLUDE_PATH are, which come last.
    echo "front CPATH $3"
    if [ -n "$GPUSYM_OMPI_INCDIRS" ]; then
        echo "front C_INCLUDE_PATH $GPUSYM_OMPI_INCDIRS"
        echo "front CPLUS_INCLUDE_PATH $GPUSYM_OMPI_INCDIRS"
    fi
    [ "$GPUSYM_OMPI_MAJOR" != 4 ] || echo "preload $1/libgpusym_mpi.so"
}

# print_preload LIBRARY: the command by which mpirun of Open MPI 4.1 has the ranks preload it. Where mca_base_env_list is set
# mpirun refuses -x. It does not with the parameter in which it keeps what files for --tune say; but it refuses both
# parameters at once.
print_preload() {
    local value
    value=$("$GPUSYM_OMPI_INFO" --param mca base --level 9 --parsable 2>/dev/null |
        sed -nE 's/^mca:mca:base:param:mca_base_env_list:value:"?([^"]*)"?$/\1/p')
    if [ -n "$value" ]; then
        printf 'export OMPI_MCA_mca_base_env_list=%q\n' "$(preloading "$1" "$value")"
    else
        printf 'export OMPI_MCA_mca_base_env_list_internal=%q\n' \
            "$(preloading "$1" "${OMPI_MCA_mca_base_env_list_internal:-}")"
    fi
}

# print_env PREFIX: the list as commands for a shell
print_env() {
    local action name value
    settings "$1/lib/openmpi" "$1/bin" "$1/include/gpusym" | while read -r action name value; do
        # shellcheck disable=SC2016  # the shell that evaluates this expands it
        case $action:$name in
            set:*) printf 'export %s=%q\n' "$name" "$value" ;;
            front:PATH) printf 'export PATH=%q:"$PATH"\n' "$value" ;;
            front:*) printf 'export %s=%q\n' "$name" "$(front "$value" "${!name:-}")" ;;
            preload:*) print_preload "$name" ;;
        esac
    done
}

# print_module COMPONENTDIR BINDIR INCLUDEDIR: the list as commands of a module file. The last one decides as print_preload
# does, and at unloading as it did at loading.
print_module() {
    local action name value
    settings "$@" | while read -r action name value; do
        case $action in
            set) echo "setenv $name {$value}" ;;
            front) echo "prepend-path $name {$value}" ;;
            preload)
                # shellcheck disable=SC2016  # Tcl's
                printf '%s\n' 'if {[info exists env(OMPI_MCA_mca_base_env_list)] &&' \
                    '        ![info exists env(OMPI_MCA_mca_base_env_list_internal)]} {' \
                    "    append-path -d {;} OMPI_MCA_mca_base_env_list {LD_PRELOAD=$name}" \
                    '} elseif {[info exists env(LD_PRELOAD)] && $env(LD_PRELOAD) ne {}} {' \
                    "    setenv OMPI_MCA_mca_base_env_list_internal \"LD_PRELOAD=$name:\$env(LD_PRELOAD)\"" \
                    '} else {' \
                    "    setenv OMPI_MCA_mca_base_env_list_internal {LD_PRELOAD=$name}" \
                    '}'
                ;;
        esac
    done
}
