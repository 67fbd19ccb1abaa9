/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The primitives on the simulator: one CPU thread does all the work of a block, so the block's
 * barriers are nothing, and what crosses ranks crosses threads or processes through shared
 * memory.  Included by prim.h only.
 */
#ifndef GPUSYM_KERNELS_PRIM_SIM_H
#define GPUSYM_KERNELS_PRIM_SIM_H

#include <sched.h>
#include <string.h>
#include <time.h>

#define GS_FN static inline __attribute__((always_inline, unused))
#define GS_OUTLINE static __attribute__((noinline, unused))
#define GS_SHARED
#define GS_PACKS 2u /* what is left of a stretch when a thread takes several packs: tested here too */
#define GS_RANKS 4u
#if defined(__clang__)
#define GS_UNROLL _Pragma("unroll")
#define GS_NO_UNROLL _Pragma("nounroll")
#else
#define GS_UNROLL _Pragma("GCC unroll 16")
#define GS_NO_UNROLL _Pragma("GCC unroll 1")
#endif

GS_FN gs_pack_t gs_ld16(const void *p)
{
    gs_pack_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

GS_FN void gs_st16(void *p, gs_pack_t v)
{
    memcpy(p, &v, sizeof v);
}

/* Eight bytes are stored whole on every CPU that we run on, and each half of a line has a flag of its own. */
GS_FN void gs_ll_st(void *line, uint64_t d, uint32_t e)
{
    __atomic_store_n((uint64_t *) line, (uint64_t) e << 32 | (uint32_t) d, __ATOMIC_RELEASE); /* for gs_ll_order */
    __atomic_store_n((uint64_t *) line + 1, (uint64_t) e << 32 | d >> 32, __ATOMIC_RELAXED);
}

GS_FN bool gs_ll_ld(const void *line, uint32_t e, uint64_t *d)
{
    const uint64_t a = __atomic_load_n((const uint64_t *) line, __ATOMIC_RELAXED);
    const uint64_t b = __atomic_load_n((const uint64_t *) line + 1, __ATOMIC_RELAXED);
    *d = (uint32_t) a | b << 32;
    return (uint32_t) (a >> 32) == e && (uint32_t) (b >> 32) == e;
}

GS_FN void gs_ll_order(const void *line)
{
    (void) __atomic_load_n((const uint64_t *) line, __ATOMIC_ACQUIRE);
}

typedef struct {
    const void *line; /* NULL: not wanted */
} gs_line_t;

GS_FN gs_line_t gs_ll_peek(const void *line, bool want)
{
    const gs_line_t raw = {want ? line : NULL};
    return raw;
}

GS_FN bool gs_ll_whole(const gs_line_t *raw, uint32_t e, uint64_t *d)
{
    return NULL != raw->line && gs_ll_ld(raw->line, e, d);
}

GS_FN void gs_flag_post(uint32_t *p, uint32_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

GS_FN uint32_t gs_flag_get(const uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

GS_FN void gs_local_st(uint32_t *p, uint32_t v)
{
    gs_flag_post(p, v);
}

GS_FN uint32_t gs_local_ld(const uint32_t *p)
{
    return gs_flag_get(p);
}

#define GS_ON_STREAM(w) ((w)->early >= GPUSYM_STREAM_BEGINS)

GS_FN void gs_stream_order(void)
{
}

GS_FN void gs_stream_next(void)
{
}

GS_FN gs_count_t *gs_block_own(void)
{
    return (gs_count_t *) (void *) gpusym_kernel_sim_own();
}

GS_FN gs_places_t *gs_block_places(void)
{
    return (gs_places_t *) (void *) (gpusym_kernel_sim_own() + 3);
}

GS_FN void gs_block_sync(gs_ctx_t c)
{
    (void) c;
}

GS_FN uint32_t gs_block_worst(gs_ctx_t c, uint32_t status)
{
    (void) c;
    return status;
}

#define GS_WARP 1u
#define GS_BLOCKS_TOGETHER 0

GS_FN uint32_t gs_warp_worst(uint32_t status)
{
    return status;
}

/* A reader may poll a line while its writer stores it, and drops what it has read when the flag is not the expected
 * one. So lines are accessed as whole 8-byte words, each atomic on its own; only the flags order anything. */
GS_FN void gs_word_st(char *p, uint64_t v)
{
    __atomic_store_n((uint64_t *) p, v, __ATOMIC_RELAXED);
}

GS_FN uint64_t gs_word_ld(const char *p)
{
    return __atomic_load_n((const uint64_t *) p, __ATOMIC_RELAXED);
}

/* One thread is all lanes, one after the other: the flag of a line is stored after what lies before it. */
GS_FN void gs_ll128_st(char *group, uint32_t lane, gs_pack_t v, uint32_t e, uint64_t *half)
{
    char *p = group + 16 * lane;
    if (7 != lane % 8) {
        gs_word_st(p, v.w[0]);
        gs_word_st(p + 8, v.w[1]);
        return;
    }
    if (7 == lane % 16) {
        *half = v.w[1];
    }
    gs_word_st(p, 7 == lane % 16 ? v.w[0] : *half);
    __atomic_store_n((uint64_t *) (p + 8), e, __ATOMIC_RELEASE);
}

#define GS_GROUPS 2u

typedef struct {
    gs_pack_t v;
    uint64_t e[2]; /* flags of the lines that it lies in */
} gs_raw_t;

GS_FN gs_raw_t gs_ll128_ld(const char *group, uint32_t lane)
{
    const char *line = group + 128 * (lane / 8), *next = line + (7 == lane % 16 ? 128 : 0);
    gs_raw_t r;
    r.e[0] = __atomic_load_n((const uint64_t *) (line + 120), __ATOMIC_ACQUIRE);
    r.e[1] = __atomic_load_n((const uint64_t *) (next + 120), __ATOMIC_ACQUIRE);
    r.v.w[0] = gs_word_ld(group + 16 * lane);
    r.v.w[1] = gs_word_ld(next != line ? next + 112 : group + 16 * lane + 8); /* across two lines: the other half */
    return r;
}

GS_FN bool gs_ll128_whole(gs_raw_t *r, uint32_t lane, uint32_t e)
{
    (void) lane;
    return e == r->e[0] && e == r->e[1];
}

GS_FN bool gs_part_any(gs_ctx_t c, bool x)
{
    (void) c;
    return x;
}

GS_FN void gs_flag_free(uint32_t *p, uint32_t v)
{
    gs_flag_post(p, v);
}

GS_FN uint64_t gs_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

GS_FN bool gs_aborted(const gpusym_work_t *w)
{
    return 0 != __atomic_load_n(w->abort, __ATOMIC_RELAXED);
}

GS_FN bool gs_takes_turn(uint32_t k)
{
    (void) k; /* the word is in the cores' memory */
    return true;
}

GS_FN void gs_pause(void)
{
    sched_yield(); /* tests run more ranks than there are cores */
}

GS_FN uint32_t gs_log2(uint32_t x)
{
    return 31u - (uint32_t) __builtin_clz(x);
}

GS_FN bool gs_last_keeps(gs_ctx_t c, const gpusym_work_t *w, uint32_t status)
{
    uint32_t *ticket = (uint32_t *) w->peer[w->rank];
    ticket[1] = status > ticket[1] ? status : ticket[1]; /* one thread runs all blocks of a launch */
    if (++ticket[0] != c.nblocks) {
        return false;
    }
    ticket[0] = 0;
    return true;
}

GS_FN bool gs_last_block(gs_ctx_t c, const gpusym_work_t *w, uint32_t *status)
{
    uint32_t *ticket = (uint32_t *) w->peer[w->rank];
    if (!gs_last_keeps(c, w, *status)) {
        return false;
    }
    *status = ticket[1];
    ticket[1] = 0;
    return true;
}

GS_FN void gs_fence_system(void)
{
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
}

GS_FN void gs_fence_out(const gpusym_work_t *w)
{
    (void) w;
    gs_fence_system();
}

GS_FN void gs_done_at(const gpusym_work_t *w, uint64_t *done, uint32_t seq, uint32_t status)
{
    (void) w;
    __atomic_store_n(done, (uint64_t) seq << 32 | status, __ATOMIC_RELEASE);
}

GS_FN void gs_time(const gpusym_work_t *w, uint32_t which, uint32_t seq)
{
    if (0 != w->timed) {
        __atomic_store_n(w->done + which, GPUSYM_TIME(seq, gs_now_ns()), __ATOMIC_RELAXED);
    }
}

GS_FN void gs_done_timed(const gpusym_work_t *w, uint32_t seq, uint32_t status, uint64_t end)
{
    __atomic_store_n(w->done + GPUSYM_TIME_END, GPUSYM_TIME(seq, end), __ATOMIC_RELAXED);
    gs_done_at(w, w->done, seq, status);
}

GS_FN gs_pack_t gs_ld16_strong(const void *p)
{
    return gs_ld16(p);
}

GS_FN uint64_t gs_ld_strong(const void *p, uint32_t size)
{
    return 8 == size   ? *(const uint64_t *) p
           : 4 == size ? *(const uint32_t *) p
           : 2 == size ? *(const uint16_t *) p
                       : *(const uint8_t *) p;
}

GS_FN void gs_doorbell_poll(const gpusym_work_t *w, uint64_t doorbell[2])
{
    doorbell[0] = __atomic_load_n(&w->doorbell[0], __ATOMIC_ACQUIRE);
    doorbell[1] = __atomic_load_n(&w->doorbell[1], __ATOMIC_ACQUIRE);
}

/* The command has the pointers of the simulated GPU, which the hook of kernels.h translates. */
GS_FN bool gs_command_translate(gs_message_t *m)
{
    const gs_message_t remote = *m; /* a rank may have no input, or no output */
    if (NULL != gpusym_kernel_sim_late && gpusym_kernel_sim_late()) {
        return false;
    }
    m->in = NULL != remote.in ? gpusym_kernel_sim_reach(remote.in) : NULL;
    m->out = NULL != remote.out ? gpusym_kernel_sim_reach(remote.out) : NULL;
    return (NULL == m->in) == (NULL == remote.in) && (NULL == m->out) == (NULL == remote.out);
}

/* A fault that the simulator injects (kernels.h). */
GS_FN bool gs_enter_fails(void)
{
    return NULL != gpusym_kernel_sim_leaves && gpusym_kernel_sim_leaves();
}

GS_FN void *gs_reach(const void *p)
{
    return NULL != p ? gpusym_kernel_sim_reach(p) : NULL;
}

GS_FN void gs_part_sync(gs_ctx_t part)
{
    (void) part;
}

GS_FN bool gs_part_all(gs_ctx_t part, bool x)
{
    (void) part;
    return x;
}

/* The one thread has what it says. */
GS_FN void gs_command_publish(const gs_command_t *r)
{
    (void) r;
}

GS_FN void gs_command_receive(gs_ctx_t part, gs_command_t *r)
{
    (void) part;
    (void) r;
}

/* The one thread of the first block of a cluster does all: the others leave at once. */
#define GS_CLUSTERS true

GS_FN gs_ctx_t gs_cluster_threads(gs_ctx_t c)
{
    const gs_ctx_t all = {0, 1, 0, 1};
    (void) c;
    return all;
}

GS_FN bool gs_cluster_begin(gs_ctx_t c)
{
    return 0 == c.block;
}

GS_FN void gs_cluster_sync(void)
{
}

GS_FN uint32_t gs_cluster_worst(gs_ctx_t c, uint32_t status)
{
    (void) c;
    return status;
}

GS_FN void gs_cluster_publish(gs_ctx_t c, const gs_command_t *r)
{
    (void) c;
    (void) r;
}

GS_FN void gs_cluster_receive(gs_ctx_t c, gs_command_t *r)
{
    (void) c;
    r->m.bytes = 0;
}

/* Multicast: by the hook of kernels.h, a store to each member's memory. */
GS_FN uint32_t gs_mc_ready(const gpusym_work_t *w)
{
    void *member[GPUSYM_TEAM_MAX];
    return NULL != gpusym_kernel_sim_mc_members && NULL != w->mc &&
                   (int) w->nranks == gpusym_kernel_sim_mc_members(w->mc, member, GPUSYM_TEAM_MAX)
               ? GPUSYM_STATUS_OK
               : GPUSYM_STATUS_NO_MULTICAST;
}

GS_FN void gs_mc_ll_st(void *line, uint64_t d, uint32_t e)
{
    void *member[GPUSYM_TEAM_MAX];
    const int n = gpusym_kernel_sim_mc_members(line, member, GPUSYM_TEAM_MAX);
    for (int r = 0; r < n; r++) {
        gs_ll_st(member[r], d, e);
    }
}

GS_FN void gs_mc_st16(void *p, gs_pack_t v)
{
    void *member[GPUSYM_TEAM_MAX];
    const int n = gpusym_kernel_sim_mc_members(p, member, GPUSYM_TEAM_MAX);
    for (int r = 0; r < n; r++) {
        gs_st16(member[r], v);
    }
}

/* Only one thread of one rank ever raises a flag. */
GS_FN void gs_mc_red_max(void *p, uint32_t v)
{
    void *member[GPUSYM_TEAM_MAX];
    const int n = gpusym_kernel_sim_mc_members(p, member, GPUSYM_TEAM_MAX);
    for (int r = 0; r < n; r++) {
        if (gs_flag_get((const uint32_t *) member[r]) < v) {
            gs_flag_post((uint32_t *) member[r], v);
        }
    }
}

GS_FN void gs_mc_fence(void)
{
}

/* n packs reduced in order (reduce.h). */
static gs_pack_t gs_reduce_packs(uint32_t op, uint32_t type, const gs_pack_t *v, uint32_t n);

/* In the order of the ranks, as no switch promises. */
GS_FN void gs_mc_ld_reduce(uint32_t op, uint32_t type, const char *p, uint32_t step, uint32_t m, gs_pack_t *v)
{
    for (uint32_t u = 0; u < m; u++) {
        void *member[GPUSYM_TEAM_MAX];
        gs_pack_t in[GPUSYM_TEAM_MAX];
        const int n = gpusym_kernel_sim_mc_members(p + (size_t) u * step, member, GPUSYM_TEAM_MAX);
        for (int r = 0; r < n; r++) {
            in[r] = gs_ld16(member[r]);
        }
        v[u] = gs_reduce_packs(op, type, in, n > 0 ? (uint32_t) n : 0);
    }
}

GS_FN float gs_as_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
GS_FN uint32_t gs_as_u32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
GS_FN double gs_as_f64(uint64_t u)
{
    double f;
    memcpy(&f, &u, sizeof f);
    return f;
}
GS_FN uint64_t gs_as_u64(double f)
{
    uint64_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* IEEE binary16 to binary32, exact. */
GS_FN float gs_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t) (h & 0x8000u) << 16, exp = h >> 10 & 31u, man = h & 0x3ffu;
    if (31 == exp) {
        return gs_as_f32(sign | 0x7f800000u | man << 13);
    }
    if (0 == exp) { /* zero or subnormal: man * 2^-24 is exact in binary32 */
        const float f = (float) man * 0x1p-24f;
        return gs_as_f32(sign | gs_as_u32(f));
    }
    return gs_as_f32(sign | (exp + 112) << 23 | man << 13);
}

/* binary32 to IEEE binary16, to nearest, ties to even. */
GS_FN uint16_t gs_f32_to_f16(float f)
{
    const uint32_t u = gs_as_u32(f), sign = u >> 16 & 0x8000u, abs = u & 0x7fffffffu;
    if (abs > 0x7f800000u) {
        return (uint16_t) (sign | 0x7fffu);
    }
    if (abs >= 0x477ff000u) { /* rounds to 65536 or more */
        return (uint16_t) (sign | 0x7c00u);
    }
    if (abs < 0x38800000u) { /* below 2^-14: the addition rounds at the right place (0.5 has an ulp of 2^-24) */
        return (uint16_t) (sign | (gs_as_u32(gs_as_f32(abs) + 0.5f) - 0x3f000000u));
    }
    return (uint16_t) (sign | ((abs + 0xfffu + (abs >> 13 & 1u)) - 0x38000000u) >> 13);
}

#endif
