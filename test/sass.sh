#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Whether the multicast kernels in a build's fatbin are made of multimem instructions, on each GPU that has them:
#
#     test/sass.sh BUILDDIR
#
# No machine with a multicast object is needed, only the CUDA toolkit's cuobjdump and nvdisasm: in PATH, in
# /usr/local/cuda/bin, or CUOBJDUMP=/where/cuobjdump. Exit status 77: they, or the fatbin, or GPUs from sm_90 on in it,
# are missing.
set -u

builddir=${1:?usage: test/sass.sh BUILDDIR}
fatbin=$builddir/kernels/kernels.fatbin
PATH=$PATH:/usr/local/cuda/bin
cuobjdump=${CUOBJDUMP:-$(command -v cuobjdump)}
# cuobjdump looks for it in PATH
PATH=$PATH:$(dirname "${cuobjdump:-.}")

skip() {
    echo "$*: nothing to look at"
    exit 77
}
[ -f "$fatbin" ] || skip "no $fatbin"
[ -x "$cuobjdump" ] || skip "no cuobjdump"
command -v nvdisasm >/dev/null || skip "no nvdisasm"

failed=0
checked=0

# expect TEXT KERNEL WHAT...: each of the instructions WHAT (regular expressions) stands in that kernel.
expect() {
    local text=$1 kernel=$2 what
    shift 2
    for what; do
        checked=$((checked + 1))
        if ! grep -Eq "$what" <<<"$text"; then
            echo "$where: gpusym_${kernel}_ANY has no $what"
            failed=$((failed + 1))
        fi
    done
}

# What the switch reduces, as the assembler spells it; the 16-bit floats are accumulated in fp32 (F32ADD, HPADD).
reduced=('LDGMC\.E\.ADD\.F32x4\.' 'LDGMC\.E\.ADD\.F64\.' 'LDGMC\.E\.(F32|HP)ADD\.F16x8\.' 'LDGMC\.E\.(F32|HP)ADD\.BF16x8\.'
    'LDGMC\.E\.ADD\.32\.' 'LDGMC\.E\.ADD\.64\.' 'LDGMC\.E\.AND\.64\.' 'LDGMC\.E\.OR\.64\.' 'LDGMC\.E\.XOR\.64\.')
for extreme in MIN MAX; do
    for type in 32 64 S32 S64 F16x8 BF16x8; do
        reduced+=("LDGMC\\.E\\.$extreme\\.$type\\.")
    done
done

# A multicast store is an ordinary store to the assembler; a barrier's arrival is a reduction of system scope.
archs=$("$cuobjdump" -lelf "$fatbin" | sed -n 's/.*\.sm_\([0-9]*\)[a-z]*\.cubin.*/\1/p' | sort -un)
some=0
for arch in $archs; do
    [ "$arch" -ge 90 ] || continue
    where=sm_$arch
    some=1
    for kernel in RSXLDMC_AGXSTMC XLDMC_R; do
        text=$("$cuobjdump" -sass -arch "$where" -fun "gpusym_${kernel}_ANY" "$fatbin")
        expect "$text" $kernel "${reduced[@]}" 'REDG\.E\.MAX\.STRONG\.SYS'
    done
    text=$("$cuobjdump" -sass -arch "$where" -fun gpusym_XSTMC_ANY "$fatbin")
    expect "$text" XSTMC 'REDG\.E\.MAX\.STRONG\.SYS'
done
[ $some = 1 ] || skip "no GPU from sm_90 on in $fatbin"

# In the PTX, stores have their own name.
ptx=$("$cuobjdump" -ptx "$fatbin" |
    awk '/^\.visible \.entry/ { sub(/\(.*/, "", $3); name = $3 } /multimem/ { print name, $0 }')
if [ -n "$ptx" ]; then
    where=PTX
    for kernel in AGXLLMC_R XLLMC; do
        expect "$(grep "^gpusym_${kernel}_ANY " <<<"$ptx")" $kernel 'multimem\.st\.relaxed\.sys\.global\.v4\.f32'
    done
    for kernel in RSXLDMC_AGXSTMC XSTMC; do
        expect "$(grep "^gpusym_${kernel}_ANY " <<<"$ptx")" $kernel \
            'multimem\.st\.weak\.global\.v4\.f32' 'multimem\.red\.release\.sys\.global\.max\.u32'
    done
    if grep -v '^gpusym_[A-Z_]*MC[A-Z_]*_ANY ' <<<"$ptx"; then
        echo "PTX: multimem where it should not be"
        failed=$((failed + 1))
    fi
fi
echo "sm_$(tr '\n' ' ' <<<"$archs"): $checked instructions looked for, $failed missing"
[ $failed = 0 ]
