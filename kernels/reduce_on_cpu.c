/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions in host memory: see kernels.h.  Numbers are reduced in blocks of a fixed size, which compilers make
 * vectors of; all else by the simulator's kernel.  Both have the operations of prim/reduce.h.
 */
#include <stddef.h>
#include <string.h>

#include "kernels/kernels_sim_family.h"
#include "kernels/plan.h"

#define BLOCK 64u

#define CASE(name, ID)                                       \
    case GPUSYM_OP_##ID:                                     \
        for (uint32_t k = 0; k < BLOCK / sizeof *a; k++) {   \
            a[k] = gs_op_##name(GPUSYM_OP_##ID, a[k], b[k]); \
        }                                                    \
        break;

/* Reduces up to a block from `off` on, and the whole of the sources. */
#define NUMBERS(name, T)                                                                                            \
    GS_FN void block_##name(uint32_t op, const void *const *src, uint32_t n, char *dst, uint64_t off, size_t bytes) \
    {                                                                                                               \
        T a[BLOCK / sizeof(T)] = {0}, b[BLOCK / sizeof(T)] = {0};                                                   \
        memcpy(a, (const char *) src[0] + off, bytes);                                                              \
        for (uint32_t s = 1; s < n; s++) {                                                                          \
            memcpy(b, (const char *) src[s] + off, bytes);                                                          \
            switch (op) {                                                                                           \
                CASE(name, SUM)                                                                                     \
                CASE(name, PROD)                                                                                    \
                CASE(name, MIN)                                                                                     \
                CASE(name, MAX)                                                                                     \
                CASE(name, LAND)                                                                                    \
                CASE(name, LOR)                                                                                     \
                CASE(name, LXOR)                                                                                    \
            }                                                                                                       \
        }                                                                                                           \
        memcpy(dst + off, a, bytes);                                                                                \
    }                                                                                                               \
    static void reduce_##name(uint32_t op, const void *const *src, uint32_t n, char *dst, uint64_t bytes)           \
    {                                                                                                               \
        uint64_t off = 0;                                                                                           \
        for (; bytes - off >= BLOCK; off += BLOCK) {                                                                \
            block_##name(op, src, n, dst, off, BLOCK);                                                              \
        }                                                                                                           \
        if (off < bytes) {                                                                                          \
            block_##name(op, src, n, dst, off, (size_t) (bytes - off));                                             \
        }                                                                                                           \
    }
NUMBERS(i8, int8_t)
NUMBERS(u8, uint8_t)
NUMBERS(i16, int16_t)
NUMBERS(u16, uint16_t)
NUMBERS(i32, int32_t)
NUMBERS(u32, uint32_t)
NUMBERS(i64, int64_t)
NUMBERS(u64, uint64_t)
NUMBERS(f32, float)
NUMBERS(f64, double)

static void (*const numbers[])(uint32_t, const void *const *, uint32_t, char *, uint64_t) = {
    [GPUSYM_T_I8] = reduce_i8,   [GPUSYM_T_U8] = reduce_u8,   [GPUSYM_T_I16] = reduce_i16, [GPUSYM_T_U16] = reduce_u16,
    [GPUSYM_T_I32] = reduce_i32, [GPUSYM_T_U32] = reduce_u32, [GPUSYM_T_I64] = reduce_i64, [GPUSYM_T_U64] = reduce_u64,
    [GPUSYM_T_F32] = reduce_f32, [GPUSYM_T_F64] = reduce_f64, [GPUSYM_T_COUNT] = NULL};

bool gpusym_kernel_reduces_fast_on_cpu(unsigned op, unsigned type)
{
    return NULL != numbers[type] && GPUSYM_OP_BAND != op && GPUSYM_OP_BOR != op && GPUSYM_OP_BXOR != op;
}

void gpusym_kernel_reduce_on_cpu(unsigned op, unsigned type, const void *const *src, uint32_t n, void *dst,
                                 uint64_t bytes)
{
    if (gpusym_kernel_reduces_fast_on_cpu(op, type)) {
        numbers[type](op, src, n, dst, bytes);
        return;
    }
    uint64_t done[1 + GPUSYM_TIME_BEGIN];
    gpusym_slot_head_t head = {.ended = 0};
    gpusym_work_t w;
    memset(&w, 0, offsetof(gpusym_work_t, job) + sizeof w.job[0]); /* what follows is of other kernels */
    memcpy(w.peer_in, src, n * sizeof *src);
    w.peer_out[0] = dst;
    w.peer[0] = &head;
    w.op = op;
    w.type = type;
    w.nranks = n;
    w.nblocks = w.nthreads = 1;
    w.done = done;
    w.job[0] = (gpusym_job_t){.form = GPUSYM_JOB_REDUCE, .bytes = bytes, .src_end = (uint16_t) n, .dst_end = 1};
    w.lead.njobs = 1;
    w.lead.nranks = (uint16_t) n;
    w.lead.packs = gpusym_jobs_plan(w.job, 1);
    gpusym_kernel_sim(gpusym_kernel_find(GPUSYM_F_LEAD_R, op, type), &w, 0);
}
