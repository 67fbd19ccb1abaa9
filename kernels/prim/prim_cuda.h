/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The primitives on a GPU (sm_70 and later).  Included by prim.h only.
 *
 * Memory model: "Memory Consistency Model" of the PTX ISA document.  Data go by weak loads and
 * stores between barriers, LL lines by relaxed 16-byte accesses of system scope, flags by
 * release stores and acquire loads of system scope, which order the whole block's accesses through bar.sync.
 */
#ifndef GPUSYM_KERNELS_PRIM_CUDA_H
#define GPUSYM_KERNELS_PRIM_CUDA_H

#include <cuda_fp16.h>

#define GS_FN static __device__ __forceinline__
#define GS_OUTLINE static __device__ __noinline__
#define GS_UNROLL _Pragma("unroll")
#define GS_NO_UNROLL _Pragma("unroll 1")
#define GS_SHARED __shared__

/* 16 loads of 16 bytes in flight a thread: with 256 threads an SM has 64 KiB under way, more than its share of an
 * NVLink port needs (2 us of latency times 3 GB/s), within 128 registers a thread. */
#define GS_PACKS GPUSYM_MOVE_PACKS
#define GS_RANKS 4u

GS_FN gs_pack_t gs_ld16(const void *p)
{
    gs_pack_t v;
    asm volatile("ld.global.v2.u64 {%0,%1}, [%2];" : "=l"(v.w[0]), "=l"(v.w[1]) : "l"(p) : "memory");
    return v;
}

GS_FN void gs_st16(void *p, gs_pack_t v)
{
    asm volatile("st.global.v2.u64 [%0], {%1,%2};" ::"l"(p), "l"(v.w[0]), "l"(v.w[1]) : "memory");
}

GS_FN void gs_ll_st(void *line, uint64_t d, uint32_t e)
{
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1,%2,%3,%2};" ::"l"(line), "r"((uint32_t) d), "r"(e),
                 "r"((uint32_t) (d >> 32))
                 : "memory");
}

GS_FN bool gs_ll_ld(const void *line, uint32_t e, uint64_t *d)
{
    uint32_t lo, hi, e0, e1;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(lo), "=r"(e0), "=r"(hi), "=r"(e1)
                 : "l"(line)
                 : "memory");
    *d = lo | (uint64_t) hi << 32;
    return e0 == e && e1 == e;
}

typedef struct {
    uint32_t lo, e0, hi, e1;
} gs_line_t;

/* Without a branch, so that several are in flight together. */
GS_FN gs_line_t gs_ll_peek(const void *line, bool want)
{
    gs_line_t raw = {0, 0, 0, 0}; /* 0 is no epoch */
    asm volatile("{\n\t"
                 ".reg .pred p;\n\t"
                 "setp.ne.u32 p, %5, 0;\n\t"
                 "@p ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];\n\t"
                 "}"
                 : "+r"(raw.lo), "+r"(raw.e0), "+r"(raw.hi), "+r"(raw.e1)
                 : "l"(line), "r"((uint32_t) want)
                 : "memory");
    return raw;
}

GS_FN bool gs_ll_whole(const gs_line_t *raw, uint32_t e, uint64_t *d)
{
    *d = raw->lo | (uint64_t) raw->hi << 32;
    return raw->e0 == e && raw->e1 == e;
}

GS_FN void gs_flag_post(uint32_t *p, uint32_t v)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

GS_FN uint32_t gs_flag_get(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

GS_FN void gs_ll_order(const void *line)
{
    (void) gs_flag_get((const uint32_t *) line + 1);
}

GS_FN void gs_local_st(uint32_t *p, uint32_t v)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

GS_FN uint32_t gs_local_ld(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

#if defined(GS_STREAM_UNIT)
#define GS_ON_STREAM(w) true
#else
#define GS_ON_STREAM(w) false
#endif

GS_FN void gs_stream_order(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory"); /* it may have been launched before that */
#endif
}

GS_FN void gs_stream_next(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

GS_FN bool gs_enter_fails(void)
{
    return false;
}

GS_FN gs_count_t *gs_block_own(void)
{
    __shared__ gs_count_t own;
    return &own;
}

GS_FN gs_places_t *gs_block_places(void)
{
    __shared__ gs_places_t places;
    return &places;
}

GS_FN void gs_block_sync(gs_ctx_t c)
{
    (void) c;
    __syncthreads();
}

GS_FN uint32_t gs_block_worst(gs_ctx_t c, uint32_t status)
{
    /* One barrier when all is well; the rest only once something has failed. */
    if (!__syncthreads_or((int) status)) {
        return 0;
    }
    __shared__ uint32_t worst;
    if (0 == c.thread) {
        worst = 0;
    }
    __syncthreads();
    atomicMax(&worst, status);
    __syncthreads();
    status = worst;
    __syncthreads();
    return status;
}

#define GS_WARP 32u
#define GS_BLOCKS_TOGETHER 1

/* Nothing but GPUSYM_STATUS_OK is common: one vote then. */
GS_FN uint32_t gs_warp_worst(uint32_t status)
{
    if (!__any_sync(0xffffffffu, 0 != status)) {
        return 0;
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, status);
#else
    for (int lanes = GS_WARP / 2; lanes > 0; lanes /= 2) {
        status = max(status, __shfl_xor_sync(0xffffffffu, status, lanes));
    }
    return status;
#endif
}

/*
 * A warp stores four lines of 128 bytes with one instruction, and NVLink carries each as one packet: a reader of the
 * flag in its last 8 bytes sees the line.  (So does NCCL, LL128; no promise of the PTX memory model: used on NVLink
 * alone.)
 */
GS_FN void gs_ll128_st(char *group, uint32_t lane, gs_pack_t v, uint32_t e, uint64_t *half)
{
    const uint64_t other = __shfl_up_sync(0xffffffffu, v.w[1], 8); /* lanes 15, 31: of the pack of 7, 23 */
    (void) half;
    if (7 == lane % 8) {
        v.w[0] = 7 == lane % 16 ? v.w[0] : other;
        v.w[1] = e;
    }
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1,%2};" ::"l"(group + 16 * lane), "l"(v.w[0]), "l"(v.w[1])
                 : "memory");
}

#define GS_GROUPS 4u

typedef struct {
    gs_pack_t v;
} gs_raw_t;

GS_FN gs_raw_t gs_ll128_ld(const char *group, uint32_t lane)
{
    gs_raw_t r;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1}, [%2];"
                 : "=l"(r.v.w[0]), "=l"(r.v.w[1])
                 : "l"(group + 16 * lane)
                 : "memory");
    return r;
}

GS_FN bool gs_ll128_whole(gs_raw_t *r, uint32_t lane, uint32_t e)
{
    const bool missing = 7 == lane % 8 && r->v.w[1] != e;
    const uint64_t other = __shfl_down_sync(0xffffffffu, r->v.w[0], 8);
    if (7 == lane % 16) {
        r->v.w[1] = other;
    }
    return !__any_sync(0xffffffffu, missing);
}

/* A named barrier (0 is __syncthreads), which also votes. */
GS_FN bool gs_part_any(gs_ctx_t c, bool x)
{
    uint32_t any;
    asm volatile("{\n\t"
                 ".reg .pred p, q;\n\t"
                 "setp.ne.u32 p, %1, 0;\n\t"
                 "barrier.cta.red.or.pred q, 1, %2, p;\n\t"
                 "selp.u32 %0, 1, 0, q;\n\t"
                 "}"
                 : "=r"(any)
                 : "r"((uint32_t) x), "r"(c.nthreads)
                 : "memory");
    return 0 != any;
}

/* Loads have ended when their values are there, which the barrier before it has waited for: no fence, which would wait
 * for this thread's stores to peers as well. */
GS_FN void gs_flag_free(uint32_t *p, uint32_t v)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

GS_FN uint64_t gs_now_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

GS_FN bool gs_aborted(const gpusym_work_t *w)
{
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(w->abort) : "memory");
    return 0 != v;
}

GS_FN bool gs_takes_turn(uint32_t k)
{
    const uint32_t warps = (blockDim.x + GS_WARP - 1) / GS_WARP;
    return k % (gridDim.x * warps) == blockIdx.x * warps + threadIdx.x / GS_WARP;
}

GS_FN void gs_pause(void)
{
}

GS_FN uint32_t gs_log2(uint32_t x)
{
    return 31u - (uint32_t) __clz((int) x);
}

/*
 * Before the completion word: the output must be there for all that the host starts next.  Where that output is this
 * GPU's own memory, everyone reaches it through this GPU's second-level cache (its kernels, copy engines, and peers
 * and the CPU over the bus), so that a fence of GPU scope is enough, and it does not wait for the acknowledgement of
 * LL lines still on their way to peers, which nobody needs: 0.7 us of 11.1 at 8 bytes (4 x H200).
 * Host or managed memory needs system scope.
 */
GS_FN void gs_fence_out(const gpusym_work_t *w)
{
    if (w->out_local) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    } else {
        asm volatile("fence.acq_rel.sys;" ::: "memory");
    }
}

GS_FN void gs_fence_system(void)
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

GS_FN bool gs_last_keeps(gs_ctx_t c, const gpusym_work_t *w, uint32_t status)
{
    uint32_t *ticket = (uint32_t *) w->peer[w->rank];
    if (0 != status) {
        atomicMax(ticket + 1, status);
    }
    /* Releases this block's stores to the reader of the count; the last block acquires them all. */
    gs_fence_out(w);
    if (atomicAdd(ticket, 1u) != c.nblocks - 1) {
        return false;
    }
    gs_fence_out(w);
    atomicExch(ticket, 0u);
    return true;
}

/* One round trip to the ticket, whose upper half says how many blocks have failed. The fence releases this block's
 * stores; the last block acquires all of them as it tells the host (gs_done_at). A launch on a stream of which the host
 * is not told has none: what its blocks have stored is there for the stream's next launch, and nobody looks before. It
 * would wait for stores that are on their way to peers: 0.8 us. */
GS_FN bool gs_last_block(gs_ctx_t c, const gpusym_work_t *w, uint32_t *status)
{
    uint32_t *ticket = (uint32_t *) w->peer[w->rank];
    const uint32_t failed = 0 != *status ? 1u << 16 : 0;
    if (1 == c.nblocks) {
        return true;
    }
    if (0 != failed) {
        atomicMax(ticket + 1, *status);
    }
    if (0 != failed || !GS_ON_STREAM(w) || NULL != w->done) {
        gs_fence_out(w);
    }
    const uint32_t before = atomicAdd(ticket, 1u + failed);
    if ((before & 0xffffu) != c.nblocks - 1) {
        return false;
    }
    gs_local_st(ticket, 0);
    if (0 != (before >> 16 | failed)) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        *status = atomicExch(ticket + 1, 0u);
    }
    return true;
}

GS_FN void gs_done_at(const gpusym_work_t *w, uint64_t *done, uint32_t seq, uint32_t status)
{
    gs_fence_out(w);
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(done), "l"((uint64_t) seq << 32 | status) : "memory");
}

GS_FN void gs_time(const gpusym_work_t *w, uint32_t which, uint32_t seq)
{
    if (0 != w->timed) {
        asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(w->done + which), "l"(GPUSYM_TIME(seq, gs_now_ns()))
                     : "memory");
    }
}

/* By one store: the fence would wait for one before it, the host for one behind it. */
GS_FN void gs_done_timed(const gpusym_work_t *w, uint32_t seq, uint32_t status, uint64_t end)
{
    gs_fence_out(w);
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(w->done), "l"((uint64_t) seq << 32 | status),
                 "l"(GPUSYM_TIME(seq, end))
                 : "memory");
}

/*
 * Strong loads, of what other kernels or the host have written since this kernel began: they pass by the first-level
 * cache, where old values may lie.  What they load was written before the host's command; their address comes out of
 * the doorbell, or they wait at a barrier for the thread that has read it, so that none is made before.  A fence would
 * do the same, and take longer.
 */
GS_FN gs_pack_t gs_ld16_strong(const void *p)
{
    gs_pack_t v;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1}, [%2];" : "=l"(v.w[0]), "=l"(v.w[1]) : "l"(p) : "memory");
    return v;
}

GS_FN uint64_t gs_ld_strong(const void *p, uint32_t size)
{
    uint64_t v;
    uint32_t u;
    if (8 == size) {
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
        return v;
    }
    if (4 == size) {
        asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(u) : "l"(p) : "memory");
    } else if (2 == size) {
        asm volatile("ld.relaxed.sys.global.u16 %0, [%1];" : "=r"(u) : "l"(p) : "memory");
    } else {
        asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(u) : "l"(p) : "memory");
    }
    return u;
}

/* One load across PCIe fetches the whole command. */
GS_FN void gs_doorbell_poll(const gpusym_work_t *w, uint64_t doorbell[2])
{
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1}, [%2];"
                 : "=l"(doorbell[0]), "=l"(doorbell[1])
                 : "l"(w->doorbell)
                 : "memory");
}

GS_FN bool gs_command_translate(gs_message_t *m)
{
    (void) m;
    return true;
}

GS_FN void *gs_reach(const void *p)
{
    return (void *) p;
}

/*
 * Clusters (sm_90 and later).
 */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define GS_CLUSTERS true
#define GS_CLUSTER(text) text
#else
#define GS_CLUSTERS false
#define GS_CLUSTER(text) "trap;"
#endif

GS_FN gs_ctx_t gs_cluster_threads(gs_ctx_t c)
{
    const gs_ctx_t all = {c.block * c.nthreads + c.thread, c.nblocks * c.nthreads, 0, 1};
    return all;
}

GS_FN void gs_cluster_sync(void)
{
    asm volatile(GS_CLUSTER("barrier.cluster.arrive.release;")::: "memory");
    asm volatile(GS_CLUSTER("barrier.cluster.wait.acquire;")::: "memory");
}

/* What a block's threads are told by those of the cluster: that the condition of gs_part_all() was false in one of
 * them; their worst status. Both only grow, and a kernel of which one is not 0 leaves: so neither is cleared, and one
 * that is told behind the next barrier is another. */
static __shared__ uint32_t gs_cluster_told[2];

/* Tells all blocks of the cluster. */
GS_FN void gs_cluster_tell(uint32_t which, uint32_t value)
{
    const uint32_t own = (uint32_t) __cvta_generic_to_shared(&gs_cluster_told[which]);
    for (uint32_t block = 0; block < gridDim.x; block++) {
        asm volatile(GS_CLUSTER("{.reg .u32 p;"
                                "mapa.shared::cluster.u32 p, %0, %1;"
                                "red.relaxed.cluster.shared::cluster.max.u32 [p], %2;}")
                     :
                     : "r"(own), "r"(block), "r"(value)
                     : "memory");
    }
}

GS_FN bool gs_cluster_begin(gs_ctx_t c)
{
    if (0 == c.thread) {
        gs_cluster_told[0] = gs_cluster_told[1] = 0;
    }
    gs_cluster_sync();
    return true;
}

GS_FN uint32_t gs_cluster_worst(gs_ctx_t c, uint32_t status)
{
    (void) c;
    if (0 != status) {
        gs_cluster_tell(1, status);
    }
    gs_cluster_sync();
    return gs_cluster_told[1];
}

/*
 * A part of a resident kernel: a warp, a block, or a cluster, which has more threads than a block may have.
 */
GS_FN void gs_part_sync(gs_ctx_t part)
{
    if (GS_CLUSTERS && part.nthreads > GPUSYM_THREADS_MAX) {
        gs_cluster_sync();
    } else if (GS_WARP != part.nthreads) {
        (void) gs_part_any(part, false);
    } else {
        __syncwarp();
    }
}

GS_FN bool gs_part_all(gs_ctx_t part, bool x)
{
    if (GS_CLUSTERS && part.nthreads > GPUSYM_THREADS_MAX) {
        if (!x) {
            gs_cluster_tell(0, 1);
        }
        gs_cluster_sync();
        return 0 == gs_cluster_told[0];
    }
    if (GS_WARP != part.nthreads) {
        return !gs_part_any(part, !x);
    }
    x = 0 != __all_sync(0xffffffffu, x);
    __syncwarp(); /* the vote alone orders no accesses to memory */
    return x;
}

/* Written by thread 0, while the others sleep in gs_command_receive() or have all passed a barrier since they read
 * it. */
static __shared__ gs_command_t gs_shared_command;

GS_FN void gs_command_publish(const gs_command_t *r)
{
    gs_shared_command.seq = r->seq;
    gs_shared_command.epoch = r->epoch;
    gs_shared_command.m = r->m;
    gs_shared_command.skip = r->skip;
}

GS_FN void gs_command_receive(gs_ctx_t part, gs_command_t *r)
{
    gs_part_sync(part);
    r->seq = gs_shared_command.seq;
    r->epoch = gs_shared_command.epoch;
    r->m = gs_shared_command.m;
    r->skip = gs_shared_command.skip;
}

/* Each thread writes one other block's copy of the command: its block reads it behind the barrier, and comes to the
 * next barrier before it is written again. */
GS_FN void gs_cluster_publish(gs_ctx_t c, const gs_command_t *r)
{
    const uint32_t own = (uint32_t) __cvta_generic_to_shared(&gs_shared_command);
    if (0 != c.thread && c.thread < c.nblocks) {
        asm volatile(GS_CLUSTER("{.reg .u32 p;"
                                "mapa.shared::cluster.u32 p, %0, %1;"
                                "st.shared::cluster.u32 [p + %7], %2;"
                                "st.shared::cluster.u64 [p + %8], %3;"
                                "st.shared::cluster.u64 [p + %9], %4;"
                                "st.shared::cluster.u64 [p + %10], %5;"
                                "st.shared::cluster.u32 [p + %11], %6;}")
                     :
                     : "r"(own), "r"(c.thread), "r"(r->epoch), "l"((uint64_t) r->m.in), "l"((uint64_t) r->m.out),
                       "l"(r->m.bytes), "r"(r->skip), "n"(offsetof(gs_command_t, epoch)),
                       "n"(offsetof(gs_command_t, m.in)), "n"(offsetof(gs_command_t, m.out)),
                       "n"(offsetof(gs_command_t, m.bytes)), "n"(offsetof(gs_command_t, skip))
                     : "memory");
    }
    gs_cluster_sync();
}

GS_FN void gs_cluster_receive(gs_ctx_t c, gs_command_t *r)
{
    (void) c;
    gs_cluster_sync();
    r->epoch = gs_shared_command.epoch;
    r->m = gs_shared_command.m;
    r->skip = gs_shared_command.skip;
}

/*
 * Multicast (sm_90 and later; PTX of CUDA 12.2, for .acc::f32).  Where it is not, a kernel that wants it ends with an
 * error: the host never launches one there, since such a GPU makes no multicast object.
 */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1202
#define GS_MULTIMEM(text) text
#else
#define GS_MULTIMEM(text) "trap;"
#define GS_NO_MULTIMEM
#endif

GS_FN uint32_t gs_mc_ready(const gpusym_work_t *w)
{
#ifdef GS_NO_MULTIMEM
    (void) w;
    return GPUSYM_STATUS_NO_MULTICAST;
#else
    return NULL != w->mc ? GPUSYM_STATUS_OK : GPUSYM_STATUS_NO_MULTICAST;
#endif
}

/* Stores move bits, whatever the type is called. */
GS_FN void gs_mc_ll_st(void *line, uint64_t d, uint32_t e)
{
    asm volatile(GS_MULTIMEM("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1,%2,%3,%2};")::"l"(line),
                 "r"((uint32_t) d), "r"(e), "r"((uint32_t) (d >> 32))
                 : "memory");
}

GS_FN void gs_mc_st16(void *p, gs_pack_t v)
{
    asm volatile(GS_MULTIMEM("multimem.st.weak.global.v4.f32 [%0], {%1,%2,%3,%4};")::"l"(p), "r"((uint32_t) v.w[0]),
                 "r"((uint32_t) (v.w[0] >> 32)), "r"((uint32_t) v.w[1]), "r"((uint32_t) (v.w[1] >> 32))
                 : "memory");
}

GS_FN void gs_mc_red_max(void *p, uint32_t v)
{
    asm volatile(GS_MULTIMEM("multimem.red.release.sys.global.max.u32 [%0], %1;")::"l"(p), "r"(v) : "memory");
}

/* A multicast address is another address of the same memory: accesses by the one are ordered to those by the other only
 * by this fence. */
GS_FN void gs_mc_fence(void)
{
    asm volatile("fence.proxy.alias;" ::: "memory");
}

/* clang-format off */
/* The m packs, each by asm text; where there are fewer than GS_PACKS, the first again: loads without branches. */
#define GS_MC_EACH(...)                                             \
    GS_UNROLL for (uint32_t u = 0; u < GS_PACKS; u++)               \
    {                                                               \
        const char *a = p + (size_t)(u < m ? u : 0) * step;         \
        __VA_ARGS__                                                 \
    }                                                               \
    return;
/* A pack as four registers of one load; as two of 8 bytes, or four of 4 bytes, each a load of its own. */
#define GS_MC_V4(how)                                                                                               \
    GS_MC_EACH(uint32_t r0 = 0, r1 = 0, r2 = 0, r3 = 0;                                                             \
               asm volatile(GS_MULTIMEM("multimem.ld_reduce.weak.global." how " {%0,%1,%2,%3}, [%4];")              \
                            : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3) : "l"(a) : "memory");                          \
               v[u].w[0] = r0 | (uint64_t)r1 << 32; v[u].w[1] = r2 | (uint64_t)r3 << 32;)
#define GS_MC_64(how)                                                                                               \
    GS_MC_EACH(uint64_t r0 = 0, r1 = 0;                                                                             \
               asm volatile(GS_MULTIMEM("multimem.ld_reduce.weak.global." how " %0, [%2];\n\t"                      \
                                        "multimem.ld_reduce.weak.global." how " %1, [%2+8];")                       \
                            : "+l"(r0), "+l"(r1) : "l"(a) : "memory");                                              \
               v[u].w[0] = r0; v[u].w[1] = r1;)
#define GS_MC_32(how)                                                                                               \
    GS_MC_EACH(uint32_t r0 = 0, r1 = 0, r2 = 0, r3 = 0;                                                             \
               asm volatile(GS_MULTIMEM("multimem.ld_reduce.weak.global." how " %0, [%4];\n\t"                      \
                                        "multimem.ld_reduce.weak.global." how " %1, [%4+4];\n\t"                    \
                                        "multimem.ld_reduce.weak.global." how " %2, [%4+8];\n\t"                    \
                                        "multimem.ld_reduce.weak.global." how " %3, [%4+12];")                      \
                            : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3) : "l"(a) : "memory");                          \
               v[u].w[0] = r0 | (uint64_t)r1 << 32; v[u].w[1] = r2 | (uint64_t)r3 << 32;)
/* MIN and MAX of the types that have them. */
#define GS_MC_EXTREME(how)                  \
    switch (type) {                         \
    case GPUSYM_T_I32: GS_MC_32(how ".s32") \
    case GPUSYM_T_U32: GS_MC_32(how ".u32") \
    case GPUSYM_T_I64: GS_MC_64(how ".s64") \
    case GPUSYM_T_U64: GS_MC_64(how ".u64") \
    case GPUSYM_T_F16: GS_MC_V4(how ".v4.f16x2") \
    case GPUSYM_T_BF16: GS_MC_V4(how ".v4.bf16x2") \
    default: return;                        \
    }

/* What there is, gpusym_family_valid() says. Sums of signed integers are those of unsigned ones; bits are bits. */
GS_FN void gs_mc_ld_reduce(uint32_t op, uint32_t type, const char *p, uint32_t step, uint32_t m, gs_pack_t *v)
{
    switch (op) {
    case GPUSYM_OP_BAND: GS_MC_64("and.b64")
    case GPUSYM_OP_BOR: GS_MC_64("or.b64")
    case GPUSYM_OP_BXOR: GS_MC_64("xor.b64")
    case GPUSYM_OP_MIN: GS_MC_EXTREME("min")
    case GPUSYM_OP_MAX: GS_MC_EXTREME("max")
    default: break;
    }
    switch (type) {
    case GPUSYM_T_I32:
    case GPUSYM_T_U32: GS_MC_32("add.u32")
    case GPUSYM_T_I64:
    case GPUSYM_T_U64: GS_MC_64("add.u64")
    case GPUSYM_T_F32: GS_MC_V4("add.v4.f32")
    case GPUSYM_T_F64: GS_MC_64("add.f64")
    case GPUSYM_T_F16: GS_MC_V4("add.acc::f32.v4.f16x2")
    case GPUSYM_T_BF16: GS_MC_V4("add.acc::f32.v4.bf16x2")
    default: return;
    }
}
/* clang-format on */
#undef GS_MC_EACH
#undef GS_MC_V4
#undef GS_MC_64
#undef GS_MC_32
#undef GS_MC_EXTREME

GS_FN float gs_as_f32(uint32_t u)
{
    return __uint_as_float(u);
}
GS_FN uint32_t gs_as_u32(float f)
{
    return __float_as_uint(f);
}
GS_FN double gs_as_f64(uint64_t u)
{
    return __longlong_as_double((long long) u);
}
GS_FN uint64_t gs_as_u64(double f)
{
    return (uint64_t) __double_as_longlong(f);
}
GS_FN float gs_f16_to_f32(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}
GS_FN uint16_t gs_f32_to_f16(float f)
{
    return __half_as_ushort(__float2half_rn(f));
}

#endif
