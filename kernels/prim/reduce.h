/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The operations on packs.  op and type are constants in a specialised kernel, where all but one
 * branch vanishes, and GS_ANY in the generic one, which reads them from its descriptor.
 *
 * Order: acc = op(acc, v), with the ranks taken in rising order by every algorithm here, so that
 * a result's bits depend on the inputs and the rank count alone.  Signed sums and products are
 * computed unsigned: they wrap.  fp16 and bf16 are accumulated in fp32 and rounded once.
 */
#ifndef GPUSYM_KERNELS_REDUCE_H
#define GPUSYM_KERNELS_REDUCE_H

#include "kernels/prim/prim.h"

/* A pack under reduction: two words, or eight fp32 in four words for the 16-bit floats. */
typedef struct {
    uint64_t w[4];
} gs_acc_t;

GS_FN bool gs_wide(uint32_t type)
{
    return GPUSYM_T_F16 == type || GPUSYM_T_BF16 == type;
}

/* bfloat16 is the upper half of binary32. */
GS_FN float gs_bf16_to_f32(uint16_t h)
{
    return gs_as_f32((uint32_t) h << 16);
}

GS_FN uint16_t gs_f32_to_bf16(float f)
{
    const uint32_t u = gs_as_u32(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t) (u >> 16 | 0x40u);
    }
    return (uint16_t) ((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* Scalar operations, one function a C type.  W: an unsigned type at least as wide as int. */
#define GS_INT_OP(name, T, W)                   \
    GS_FN T gs_op_##name(uint32_t op, T a, T b) \
    {                                           \
        switch (op) {                           \
        case GPUSYM_OP_SUM:                     \
            return (T) ((W) a + (W) b);         \
        case GPUSYM_OP_PROD:                    \
            return (T) ((W) a * (W) b);         \
        case GPUSYM_OP_MIN:                     \
            return a < b ? a : b;               \
        case GPUSYM_OP_MAX:                     \
            return a > b ? a : b;               \
        case GPUSYM_OP_LAND:                    \
            return (T) (0 != a && 0 != b);      \
        case GPUSYM_OP_LOR:                     \
            return (T) (0 != a || 0 != b);      \
        case GPUSYM_OP_LXOR:                    \
            return (T) ((0 != a) != (0 != b));  \
        default:                                \
            return a;                           \
        }                                       \
    }
GS_INT_OP(i8, int8_t, uint32_t)
GS_INT_OP(u8, uint8_t, uint32_t)
GS_INT_OP(i16, int16_t, uint32_t)
GS_INT_OP(u16, uint16_t, uint32_t)
GS_INT_OP(i32, int32_t, uint32_t)
GS_INT_OP(u32, uint32_t, uint32_t)
GS_INT_OP(i64, int64_t, uint64_t)
GS_INT_OP(u64, uint64_t, uint64_t)
#undef GS_INT_OP

#define GS_FLOAT_OP(name, T)                    \
    GS_FN T gs_op_##name(uint32_t op, T a, T b) \
    {                                           \
        switch (op) {                           \
        case GPUSYM_OP_SUM:                     \
            return a + b;                       \
        case GPUSYM_OP_PROD:                    \
            return a * b;                       \
        case GPUSYM_OP_MIN:                     \
            return a < b ? a : b;               \
        case GPUSYM_OP_MAX:                     \
            return a > b ? a : b;               \
        default:                                \
            return a;                           \
        }                                       \
    }
GS_FLOAT_OP(f32, float)
GS_FLOAT_OP(f64, double)
#undef GS_FLOAT_OP

/* Whether MINLOC or MAXLOC keeps a = (va, ia): the better value, and of equal ones the lower index. */
#define GS_KEEP(op, va, ia, vb, ib) \
    ((GPUSYM_OP_MINLOC == (op) ? (va) < (vb) : (va) > (vb)) || ((va) == (vb) && (ia) <= (ib)))

/* One word (8 bytes) of lanes of BITS bits; from/to turn a lane's bits into the C type and back. */
#define GS_WORD_LANES(name, T, U, BITS, PRAGMA, from, to)                         \
    GS_FN uint64_t gs_word_##name(uint32_t op, uint64_t a, uint64_t b)            \
    {                                                                             \
        uint64_t r = 0;                                                           \
        PRAGMA for (uint32_t s = 0; s < 64; s += BITS)                            \
        {                                                                         \
            const T v = gs_op_##name(op, from((U) (a >> s)), from((U) (b >> s))); \
            r |= (uint64_t) (U) to(v) << s;                                       \
        }                                                                         \
        return r;                                                                 \
    }
#define GS_SAME(x) (x)
GS_WORD_LANES(i8, int8_t, uint8_t, 8, GS_NO_UNROLL, (int8_t), GS_SAME)
GS_WORD_LANES(u8, uint8_t, uint8_t, 8, GS_NO_UNROLL, GS_SAME, GS_SAME)
GS_WORD_LANES(i16, int16_t, uint16_t, 16, GS_NO_UNROLL, (int16_t), GS_SAME)
GS_WORD_LANES(u16, uint16_t, uint16_t, 16, GS_NO_UNROLL, GS_SAME, GS_SAME)
GS_WORD_LANES(i32, int32_t, uint32_t, 32, GS_UNROLL, (int32_t), GS_SAME)
GS_WORD_LANES(u32, uint32_t, uint32_t, 32, GS_UNROLL, GS_SAME, GS_SAME)
GS_WORD_LANES(i64, int64_t, uint64_t, 64, GS_UNROLL, (int64_t), GS_SAME)
GS_WORD_LANES(u64, uint64_t, uint64_t, 64, GS_UNROLL, GS_SAME, GS_SAME)
GS_WORD_LANES(f32, float, uint32_t, 32, GS_UNROLL, gs_as_f32, gs_as_u32)
GS_WORD_LANES(f64, double, uint64_t, 64, GS_UNROLL, gs_as_f64, gs_as_u64)
#undef GS_WORD_LANES

GS_FN uint64_t gs_word_c32(uint32_t op, uint64_t a, uint64_t b)
{
    const float ar = gs_as_f32((uint32_t) a), ai = gs_as_f32((uint32_t) (a >> 32));
    const float br = gs_as_f32((uint32_t) b), bi = gs_as_f32((uint32_t) (b >> 32));
    const float r = GPUSYM_OP_PROD == op ? ar * br - ai * bi : ar + br;
    const float i = GPUSYM_OP_PROD == op ? ar * bi + ai * br : ai + bi;
    return gs_as_u32(r) | (uint64_t) gs_as_u32(i) << 32;
}

GS_FN uint64_t gs_word_p_f32_i32(uint32_t op, uint64_t a, uint64_t b)
{
    return GS_KEEP(op, gs_as_f32((uint32_t) a), (int32_t) (a >> 32), gs_as_f32((uint32_t) b), (int32_t) (b >> 32)) ? a
                                                                                                                   : b;
}

GS_FN uint64_t gs_word_p_f32_f32(uint32_t op, uint64_t a, uint64_t b)
{
    return GS_KEEP(op, gs_as_f32((uint32_t) a), gs_as_f32((uint32_t) (a >> 32)), gs_as_f32((uint32_t) b),
                   gs_as_f32((uint32_t) (b >> 32)))
               ? a
               : b;
}

GS_FN uint64_t gs_word_p_i32_i32(uint32_t op, uint64_t a, uint64_t b)
{
    return GS_KEEP(op, (int32_t) a, (int32_t) (a >> 32), (int32_t) b, (int32_t) (b >> 32)) ? a : b;
}

GS_FN uint64_t gs_word_p_i16_i32(uint32_t op, uint64_t a, uint64_t b)
{
    return GS_KEEP(op, (int16_t) a, (int32_t) (a >> 32), (int16_t) b, (int32_t) (b >> 32)) ? a : b;
}

/* Types of 16 bytes: the whole pack is one element. */
GS_FN void gs_acc_pair(gs_acc_t *acc, gs_pack_t v, bool keep)
{
    acc->w[0] = keep ? acc->w[0] : v.w[0];
    acc->w[1] = keep ? acc->w[1] : v.w[1];
}

GS_FN void gs_acc_c64(uint32_t op, gs_acc_t *acc, gs_pack_t v)
{
    const double ar = gs_as_f64(acc->w[0]), ai = gs_as_f64(acc->w[1]);
    const double br = gs_as_f64(v.w[0]), bi = gs_as_f64(v.w[1]);
    acc->w[0] = gs_as_u64(GPUSYM_OP_PROD == op ? ar * br - ai * bi : ar + br);
    acc->w[1] = gs_as_u64(GPUSYM_OP_PROD == op ? ar * bi + ai * br : ai + bi);
}

/* Two 16-bit floats of a word, number k of four pairs, as two fp32 in a word. */
GS_FN uint64_t gs_widen(uint32_t type, uint32_t two)
{
    const uint16_t lo = (uint16_t) two, hi = (uint16_t) (two >> 16);
    const float a = GPUSYM_T_F16 == type ? gs_f16_to_f32(lo) : gs_bf16_to_f32(lo);
    const float b = GPUSYM_T_F16 == type ? gs_f16_to_f32(hi) : gs_bf16_to_f32(hi);
    return gs_as_u32(a) | (uint64_t) gs_as_u32(b) << 32;
}

GS_FN uint32_t gs_narrow(uint32_t type, uint64_t two)
{
    const float a = gs_as_f32((uint32_t) two), b = gs_as_f32((uint32_t) (two >> 32));
    const uint16_t lo = GPUSYM_T_F16 == type ? gs_f32_to_f16(a) : gs_f32_to_bf16(a);
    const uint16_t hi = GPUSYM_T_F16 == type ? gs_f32_to_f16(b) : gs_f32_to_bf16(b);
    return lo | (uint32_t) hi << 16;
}

/* The first operand. */
GS_FN gs_acc_t gs_acc_start(uint32_t type, gs_pack_t v)
{
    gs_acc_t acc;
    if (gs_wide(type)) {
        acc.w[0] = gs_widen(type, (uint32_t) v.w[0]);
        acc.w[1] = gs_widen(type, (uint32_t) (v.w[0] >> 32));
        acc.w[2] = gs_widen(type, (uint32_t) v.w[1]);
        acc.w[3] = gs_widen(type, (uint32_t) (v.w[1] >> 32));
    } else {
        acc.w[0] = v.w[0];
        acc.w[1] = v.w[1];
        acc.w[2] = acc.w[3] = 0;
    }
    return acc;
}

/* The result. */
GS_FN gs_pack_t gs_acc_end(uint32_t type, const gs_acc_t *acc)
{
    gs_pack_t v;
    if (gs_wide(type)) {
        v.w[0] = gs_narrow(type, acc->w[0]) | (uint64_t) gs_narrow(type, acc->w[1]) << 32;
        v.w[1] = gs_narrow(type, acc->w[2]) | (uint64_t) gs_narrow(type, acc->w[3]) << 32;
    } else {
        v.w[0] = acc->w[0];
        v.w[1] = acc->w[1];
    }
    return v;
}

/* acc = op(acc, v), op and type constants (a specialised kernel), or not. */
GS_FN void gs_acc_apply(uint32_t op, uint32_t type, gs_acc_t *acc, gs_pack_t v)
{
#define GS_WORDS(ID, name)                                 \
    case GPUSYM_T_##ID:                                    \
        acc->w[0] = gs_word_##name(op, acc->w[0], v.w[0]); \
        acc->w[1] = gs_word_##name(op, acc->w[1], v.w[1]); \
        return;
    switch (op) { /* bits are bits, whatever the type */
    case GPUSYM_OP_BAND:
        acc->w[0] &= v.w[0];
        acc->w[1] &= v.w[1];
        return;
    case GPUSYM_OP_BOR:
        acc->w[0] |= v.w[0];
        acc->w[1] |= v.w[1];
        return;
    case GPUSYM_OP_BXOR:
        acc->w[0] ^= v.w[0];
        acc->w[1] ^= v.w[1];
        return;
    default:
        break;
    }
    switch (type) {
        GS_WORDS(I8, i8)
        GS_WORDS(U8, u8)
        GS_WORDS(I16, i16)
        GS_WORDS(U16, u16)
        GS_WORDS(I32, i32)
        GS_WORDS(U32, u32)
        GS_WORDS(I64, i64)
        GS_WORDS(U64, u64)
        GS_WORDS(F32, f32)
        GS_WORDS(F64, f64)
        GS_WORDS(C32, c32)
        GS_WORDS(P_F32_I32, p_f32_i32)
        GS_WORDS(P_F32_F32, p_f32_f32)
        GS_WORDS(P_I32_I32, p_i32_i32)
        GS_WORDS(P_I16_I32, p_i16_i32)
    case GPUSYM_T_C64:
        gs_acc_c64(op, acc, v);
        return;
    case GPUSYM_T_P_F64_I32:
        gs_acc_pair(acc, v,
                    GS_KEEP(op, gs_as_f64(acc->w[0]), (int32_t) acc->w[1], gs_as_f64(v.w[0]), (int32_t) v.w[1]));
        return;
    case GPUSYM_T_P_I64_I32:
        gs_acc_pair(acc, v, GS_KEEP(op, (int64_t) acc->w[0], (int32_t) acc->w[1], (int64_t) v.w[0], (int32_t) v.w[1]));
        return;
    case GPUSYM_T_P_F64_F64:
        gs_acc_pair(acc, v,
                    GS_KEEP(op, gs_as_f64(acc->w[0]), gs_as_f64(acc->w[1]), gs_as_f64(v.w[0]), gs_as_f64(v.w[1])));
        return;
    case GPUSYM_T_F16:
    case GPUSYM_T_BF16: {
        const gs_acc_t b = gs_acc_start(type, v);
        GS_UNROLL
        for (int k = 0; k < 4; k++) {
            acc->w[k] = gs_word_f32(op, acc->w[k], b.w[k]);
        }
        return;
    }
    default:
        return;
    }
#undef GS_WORDS
}

/* The generic kernels' operation: one copy of the whole choice, called. */
GS_OUTLINE gs_acc_t gs_acc_any(uint32_t op, uint32_t type, gs_acc_t acc, gs_pack_t v)
{
    gs_acc_apply(op, type, &acc, v);
    return acc;
}

#if !defined(__CUDACC__)
/* Multicast on the simulator. */
GS_OUTLINE gs_pack_t gs_reduce_packs(uint32_t op, uint32_t type, const gs_pack_t *v, uint32_t n)
{
    gs_pack_t none = {{0, 0}};
    gs_acc_t acc = gs_acc_start(type, n > 0 ? v[0] : none);
    for (uint32_t r = 1; r < n; r++) {
        gs_acc_apply(op, type, &acc, v[r]);
    }
    return gs_acc_end(type, &acc);
}
#endif

/* Read operation and type from the descriptor. */
#define GS_ANY 0xffffffffu

/* A kernel: the descriptor of the launch, and what the kernel was compiled for. Passed by value to functions that are
 * inlined, where operation and type are constants. */
typedef struct {
    const gpusym_work_t *w;
    uint32_t op, type; /* or both GS_ANY */
    bool reduces;      /* else packs are moved as they are */
    uint32_t epoch;    /* w->epoch; of a call on a stream, in families that have kernels for that, the GPU's */
    uint32_t entries;  /* 0, or 1 plus the set of the entries that a call on a stream awaits as it ends */
    bool loaded;       /* `ahead` is what this thread sends first: loaded by gs_stream_begin() */
    gs_pack_t ahead;
    bool early; /* as gs_wait_line() takes it */
} gs_kernel_t;

GS_FN void gs_acc_op(gs_kernel_t kernel, gs_acc_t *acc, gs_pack_t v)
{
    if (GS_ANY == kernel.op) {
        *acc = gs_acc_any(kernel.w->op, kernel.w->type, *acc, v);
    } else {
        gs_acc_apply(kernel.op, kernel.type, acc, v);
    }
}

/* Whether a pack is to be reduced that is there or not: where operation and type are constants a test takes as long;
 * else a thread would call for each of its GS_PACKS, of which it has but one in a short message. */
GS_FN bool gs_acc_wanted(gs_kernel_t kernel, bool there)
{
    return GS_ANY != kernel.op || there;
}

/* Whether and how packs are widened. */
GS_FN uint32_t gs_acc_type(gs_kernel_t kernel)
{
    return GS_ANY == kernel.op ? kernel.w->type : kernel.type;
}

#endif
