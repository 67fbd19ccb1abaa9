#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What a program gets that uses libgpusym: headers for C and C++, flags by pkg-config from an installation, and the
# example of docs/streams.md, which is compiled and linked, with a stand-in for CUDA's header:
#
#     test/api.sh BUILDDIR
set -u
builddir=$(cd "${1:?usage: test/api.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/verdict.sh
. "$GPUSYM_SRCDIR/test/verdict.sh" || exit 2
command -v pkg-config >/dev/null || { echo 'pkg-config is missing' && exit 77; }
if [ "$GPUSYM_SANITIZERS" != no ]; then
    echo 'a program is linked without sanitizers'
    exit 77
fi
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# try WHAT COMMAND...
try() {
    local what=$1 why=
    shift
    "$@" >"$dir/log" 2>&1 </dev/null || why="exit status $?"
    verdict "$what" "$why" "$dir/log"
}

try 'installed' make -C "$builddir" install-libLTLIBRARIES install-includeHEADERS install-pkgconfigDATA DESTDIR="$dir"
export PKG_CONFIG_SYSROOT_DIR=$dir
PKG_CONFIG_LIBDIR=$(dirname "$(find "$dir" -name gpusym.pc)")
export PKG_CONFIG_LIBDIR
read -ra cflags < <(pkg-config --cflags gpusym)
read -ra libs < <(pkg-config --libs gpusym)
try 'its version' test "$(pkg-config --modversion gpusym)" = "$GPUSYM_VERSION"

# The flags of mpicc for MPI's headers: a C++ compiler gets them by mpicc, too.
read -ra mpi < <("$GPUSYM_OMPI_MPICC" --showme:compile)
strict=(-Wall -Wextra -Wpedantic -Wstrict-prototypes -Werror -fsyntax-only)
for header in gpusym.h gpusym_tuner.h mpix_stream.h; do
    printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' $header $header >"$dir/main.c"
    try "$header in C" "${CC:-cc}" -std=c99 "${strict[@]}" -isystem "${mpi[0]#-I}" "${mpi[@]}" "${cflags[@]}" "$dir/main.c"
    if command -v c++ >/dev/null; then
        try "$header in C++" c++ -x c++ -std=c++11 "${strict[@]/-Wstrict-prototypes/-Wextra}" -isystem "${mpi[0]#-I}" "${mpi[@]}" \
            "${cflags[@]}" -DOMPI_SKIP_MPICXX=1 "$dir/main.c"
    fi
done

mkdir "$dir/stub"
cat >"$dir/stub/cuda_runtime.h" <<'END'
#include <stddef.h>
typedef struct stream *cudaStream_t;
typedef struct graph *cudaGraph_t;
typedef struct exec *cudaGraphExec_t;
enum { cudaMemcpyDeviceToHost = 2, cudaStreamCaptureModeThreadLocal = 1 };
static inline int cudaSetDevice(int device) { return device; }
static inline int cudaStreamCreate(cudaStream_t *stream) { return NULL == stream; }
static inline int cudaStreamDestroy(cudaStream_t stream) { return NULL == stream; }
static inline int cudaStreamSynchronize(cudaStream_t stream) { return NULL == stream; }
static inline int cudaMalloc(void **p, size_t size) { return NULL == p || 0 == size; }
static inline int cudaFree(void *p) { return NULL == p; }
static inline int cudaMemset(void *p, int value, size_t size) { return NULL == p || 0 == size + (size_t) value; }
static inline int cudaMemcpy(void *to, const void *from, size_t size, int kind)
{
    return to == from || 0 == size + (size_t) kind;
}
static inline int cudaStreamBeginCapture(cudaStream_t stream, int mode) { return NULL == stream || 0 == mode; }
static inline int cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) { return NULL == stream || !graph; }
static inline int cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    return NULL == exec || NULL == graph || 0 == flags;
}
static inline int cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) { return !exec || !stream; }
static inline int cudaGraphExecDestroy(cudaGraphExec_t exec) { return NULL == exec; }
static inline int cudaGraphDestroy(cudaGraph_t graph) { return NULL == graph; }
END
awk '/^    #include <cuda_runtime.h>/ { inside = 1 }
    inside && /^[^ ]/ { exit }
    inside { sub(/^    /, ""); print }' "$GPUSYM_SRCDIR/docs/streams.md" >"$dir/sums.c"
try 'the example of docs/streams.md' "$GPUSYM_OMPI_MPICC" -Wall -Wextra -Werror -I"$dir/stub" "$dir/sums.c" \
    -o "$dir/sums" "${cflags[@]}" "${libs[@]}"

# A program's library comes before those of components: a name in both would be taken from the wrong one.
names() {
    "${NM:-nm}" -D --defined-only "$1" | sed 's/.* //' | sort -u
}
try 'no name is that of a component' test -z \
    "$(comm -12 <(names "$builddir/.libs/libgpusym.so") <(names "$builddir/.libs/libmca_common_gpusym.so"))"
try 'it needs no library of ours' test -z \
    "$(readelf -d "$builddir/.libs/libgpusym.so" | grep NEEDED | grep gpusym)"
echo "$passed as expected, $failed not"
[ $failed -eq 0 ]
