/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Where ranks share a GPU, one of them, the leader, does a call for all of them, by one kernel that waits for nobody:
 * the GPU does not switch between processes, and the hosts order what comes before and after.  All inputs are there
 * when the leader launches, and nobody looks at the outputs before it says that they are there.
 *
 * A launch is a list of jobs (kernels/work.h), each of pieces of as many packs.  All packs of the launch stand in a
 * row, which is cut evenly: a block's share, or that of a group of threads, may end in the midst of a piece and begin
 * in another job.
 */
#ifndef GPUSYM_KERNELS_SYMM_LEAD_H
#define GPUSYM_KERNELS_SYMM_LEAD_H

#include "kernels/prim/move.h"
#include "kernels/prim/stream.h"

/* A part of a piece: packs [first, first + n), in `bytes` bytes of the whole piece, of the sources [s, s_end) from `in`
 * on in each one's input, for the destinations [d, d_end) from `out` on in each one's output. */
typedef struct {
    uint64_t first, n, bytes;
    uint64_t in, out;
    uint32_t s, s_end, d, d_end;
} gs_part_t;

/* Rank r's input, or its output, from off on; NULL: it has none. */
GS_FN char *gs_lead_at(const gpusym_work_t *w, bool out, uint32_t r, uint64_t off)
{
    char *p;
    if (NULL != w->lead.at) {
        p = (char *) gs_reach(w->lead.at[(out ? w->lead.nranks : 0u) + r]);
    } else {
        p = out ? (char *) w->peer_out[r] : (char *) w->peer_in[r];
    }
    return NULL != p ? p + off : NULL;
}

/* Whether all addresses of a part are aligned, so that its whole packs are loaded and stored as such. */
GS_FN bool gs_lead_aligned(const gpusym_work_t *w, const gs_part_t *part)
{
    uintptr_t low = 0;
    GS_NO_UNROLL
    for (uint32_t s = part->s; s < part->s_end; s++) {
        low |= (uintptr_t) gs_lead_at(w, false, s, part->in);
    }
    GS_NO_UNROLL
    for (uint32_t d = part->d; d < part->d_end; d++) {
        low |= (uintptr_t) gs_lead_at(w, true, d, part->out);
    }
    return 0 == (low & 15);
}

/* Pack i of a piece at p; even: it is whole, and p aligned. */
GS_FN gs_pack_t gs_lead_ld(const char *p, bool even, uint64_t bytes, uint64_t i)
{
    return even ? gs_ld16(p + 16 * i) : gs_ld_unaligned(p, gs_align(p), bytes, i);
}

GS_FN void gs_lead_st(char *p, bool even, uint64_t bytes, uint64_t i, gs_pack_t v)
{
    if (even) {
        gs_st16(p + 16 * i, v);
    } else {
        gs_st_unaligned(p, gs_align(p), bytes, i, v);
    }
}

/* Copies a part from one address to another.  Where both are off a pack by as much, all packs but the first and the
 * last are whole. */
GS_FN void gs_lead_copy(gs_ctx_t c, char *dst, const char *src, const gs_part_t *part)
{
    const uint64_t at = 16 * part->first, left = part->bytes - at, bytes = 16 * part->n < left ? 16 * part->n : left;
    const uint64_t skew = (uintptr_t) dst % 16 == (uintptr_t) src % 16 ? (0 - (uintptr_t) dst) % 16 : 0;
    const uint64_t head = skew < bytes ? skew : bytes;
    if (0 != head) {
        gs_copy(c, dst + at, src + at, head);
    }
    gs_copy(c, dst + at + head, src + at + head, bytes - head);
}

GS_FN void gs_lead_move(gs_ctx_t c, const gpusym_work_t *w, const gs_part_t *part)
{
    const char *src = gs_lead_at(w, false, part->s, part->in);
    char *dst = gs_lead_at(w, true, part->d, part->out);
    if (NULL != src && NULL != dst && src != dst) {
        gs_lead_copy(c, dst, src, part);
    }
}

/* One source's pack goes to all destinations. The threads' packs [from, end) of the part, all even or none. */
GS_FN void gs_lead_spread_packs(gs_ctx_t c, const gpusym_work_t *w, const gs_part_t *part, const char *src,
                                uint64_t from, uint64_t end, bool even)
{
    for (uint64_t i = from + c.thread; i < end; i += c.nthreads * GS_PACKS) {
        gs_pack_t v[GS_PACKS] = {{{0, 0}}};
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * c.nthreads < end) {
                v[u] = gs_lead_ld(src, even, part->bytes, i + u * c.nthreads);
            }
        }
        GS_NO_UNROLL
        for (uint32_t d = part->d; d < part->d_end; d++) {
            char *dst = gs_lead_at(w, true, d, part->out);
            GS_UNROLL
            for (uint32_t u = 0; u < GS_PACKS; u++) {
                if (NULL != dst && dst != src && i + u * c.nthreads < end) {
                    gs_lead_st(dst, even, part->bytes, i + u * c.nthreads, v[u]);
                }
            }
        }
    }
}

/* Where the packs of a part that are even end: those behind are ragged, or all are. */
GS_FN uint64_t gs_lead_even(const gpusym_work_t *w, const gs_part_t *part)
{
    const uint64_t end = part->first + part->n, whole = part->bytes / 16;
    if (!gs_lead_aligned(w, part)) {
        return part->first;
    }
    return whole < end ? whole : end;
}

GS_FN void gs_lead_spread(gs_ctx_t c, const gpusym_work_t *w, const gs_part_t *part)
{
    const char *src = gs_lead_at(w, false, part->s, part->in);
    const uint64_t even = gs_lead_even(w, part);
    if (NULL != src) {
        gs_lead_spread_packs(c, w, part, src, part->first, even, true);
        gs_lead_spread_packs(c, w, part, src, even, part->first + part->n, false);
    }
}

/* What stands at two places changes them. */
GS_FN void gs_lead_swap(gs_ctx_t c, const gpusym_work_t *w, const gs_part_t *part)
{
    char *a = gs_lead_at(w, true, part->s, part->in), *b = gs_lead_at(w, true, part->d, part->out);
    if (part->s >= part->d || NULL == a || NULL == b) {
        return;
    }
    const bool aligned = 0 == (((uintptr_t) a | (uintptr_t) b) & 15);
    for (uint64_t i = part->first + c.thread; i < part->first + part->n; i += c.nthreads) {
        const bool even = aligned && 16 * i + 16 <= part->bytes;
        const gs_pack_t of_a = gs_lead_ld(a, even, part->bytes, i), of_b = gs_lead_ld(b, even, part->bytes, i);
        gs_lead_st(a, even, part->bytes, i, of_b);
        gs_lead_st(b, even, part->bytes, i, of_a);
    }
}

/* Reduces the packs [from, end) of the sources, in rank order.  A pack is loaded from every source before any of it is
 * stored, by one thread: inputs and outputs may be the same memory. */
GS_FN void gs_lead_reduce_packs(gs_ctx_t c, gs_kernel_t kernel, const gs_part_t *part, uint64_t from, uint64_t end,
                                bool even)
{
    const gpusym_work_t *const w = kernel.w;
    for (uint64_t i = from + c.thread; i < end; i += c.nthreads * GS_PACKS) {
        gs_acc_t acc[GS_PACKS] = {{{0, 0, 0, 0}}};
        GS_NO_UNROLL
        for (uint32_t s0 = part->s; s0 < part->s_end; s0 += GS_RANKS) {
            gs_pack_t v[GS_RANKS][GS_PACKS] = {{{{0, 0}}}};
            GS_UNROLL
            for (uint32_t g = 0; g < GS_RANKS; g++) {
                if (s0 + g < part->s_end) {
                    const char *src = gs_lead_at(w, false, s0 + g, part->in);
                    GS_UNROLL
                    for (uint32_t u = 0; u < GS_PACKS; u++) {
                        if (i + u * c.nthreads < end) {
                            v[g][u] = gs_lead_ld(src, even, part->bytes, i + u * c.nthreads);
                        }
                    }
                }
            }
            GS_UNROLL
            for (uint32_t g = 0; g < GS_RANKS; g++) {
                GS_UNROLL
                for (uint32_t u = 0; u < GS_PACKS; u++) {
                    if (0 == g && s0 == part->s) {
                        acc[u] = gs_acc_start(gs_acc_type(kernel), v[g][u]);
                    } else if (s0 + g < part->s_end && gs_acc_wanted(kernel, i + u * c.nthreads < end)) {
                        gs_acc_op(kernel, &acc[u], v[g][u]);
                    }
                }
            }
        }
        GS_NO_UNROLL
        for (uint32_t d = part->d; d < part->d_end; d++) {
            char *dst = gs_lead_at(w, true, d, part->out);
            GS_UNROLL
            for (uint32_t u = 0; u < GS_PACKS; u++) {
                if (NULL != dst && i + u * c.nthreads < end) {
                    gs_lead_st(dst, even, part->bytes, i + u * c.nthreads, gs_acc_end(gs_acc_type(kernel), &acc[u]));
                }
            }
        }
    }
}

GS_FN void gs_lead_reduce(gs_ctx_t c, gs_kernel_t kernel, const gs_part_t *part)
{
    const uint64_t even = gs_lead_even(kernel.w, part);
    gs_lead_reduce_packs(c, kernel, part, part->first, even, true);
    gs_lead_reduce_packs(c, kernel, part, even, part->first + part->n, false);
}

/* Every source's output gets what the sources up to it (own: and it itself) are reduced to, of the packs [from, end). A
 * source's pack is loaded before its output, which may be the same memory, is stored. */
GS_FN void gs_lead_scan_packs(gs_ctx_t c, gs_kernel_t kernel, const gs_part_t *part, bool own, uint64_t from,
                              uint64_t end, bool even)
{
    const gpusym_work_t *const w = kernel.w;
    for (uint64_t i = from + c.thread; i < end; i += c.nthreads * GS_PACKS) {
        gs_acc_t acc[GS_PACKS] = {{{0, 0, 0, 0}}};
        GS_NO_UNROLL
        for (uint32_t s = part->s; s < part->s_end; s++) {
            const char *src = gs_lead_at(w, false, s, part->in);
            char *dst = own || s > part->s ? gs_lead_at(w, true, s, part->out) : NULL;
            gs_pack_t v[GS_PACKS] = {{{0, 0}}};
            GS_UNROLL
            for (uint32_t u = 0; u < GS_PACKS; u++) {
                if (NULL != src && i + u * c.nthreads < end) { /* the last one of an exscan has none */
                    v[u] = gs_lead_ld(src, even, part->bytes, i + u * c.nthreads);
                }
            }
            GS_UNROLL
            for (uint32_t u = 0; u < GS_PACKS; u++) {
                if (!own && NULL != dst && i + u * c.nthreads < end) {
                    gs_lead_st(dst, even, part->bytes, i + u * c.nthreads, gs_acc_end(gs_acc_type(kernel), &acc[u]));
                }
                if (s == part->s) {
                    acc[u] = gs_acc_start(gs_acc_type(kernel), v[u]);
                } else if (gs_acc_wanted(kernel, i + u * c.nthreads < end)) {
                    gs_acc_op(kernel, &acc[u], v[u]);
                }
                if (own && NULL != dst && i + u * c.nthreads < end) {
                    gs_lead_st(dst, even, part->bytes, i + u * c.nthreads, gs_acc_end(gs_acc_type(kernel), &acc[u]));
                }
            }
        }
    }
}

GS_FN void gs_lead_scan(gs_ctx_t c, gs_kernel_t kernel, const gs_part_t *part, bool own)
{
    const uint64_t even = gs_lead_even(kernel.w, part);
    gs_lead_scan_packs(c, kernel, part, own, part->first, even, true);
    gs_lead_scan_packs(c, kernel, part, own, even, part->first + part->n, false);
}

/* Sets the ranks and offsets of piece k of a job. */
GS_FN void gs_lead_piece(const gpusym_job_t *job, uint32_t k, gs_part_t *part)
{
    const uint32_t nd = (uint32_t) job->dst_end - job->dst_first;
    const bool pairs = GPUSYM_JOB_MOVE == job->form || GPUSYM_JOB_SWAP == job->form;
    part->bytes = job->bytes;
    part->s = job->src_first;
    part->s_end = job->src_end;
    part->d = job->dst_first;
    part->d_end = job->dst_end;
    if (pairs || GPUSYM_JOB_REDUCE_EACH == job->form) {
        part->d += k % nd;
        part->d_end = part->d + 1;
        k /= nd;
    }
    if (pairs || GPUSYM_JOB_SPREAD == job->form) {
        part->s += k;
        part->s_end = part->s + 1;
    }
    part->in = job->in_off + part->d * job->in_step;
    part->out = job->out_off + part->s * job->out_step;
}

GS_FN void gs_lead_do(gs_ctx_t c, gs_kernel_t kernel, uint32_t form, const gs_part_t *part)
{
    if (kernel.reduces) {
        if (GPUSYM_JOB_SCAN == form || GPUSYM_JOB_EXSCAN == form) {
            gs_lead_scan(c, kernel, part, GPUSYM_JOB_SCAN == form);
        } else {
            gs_lead_reduce(c, kernel, part);
        }
    } else if (GPUSYM_JOB_SPREAD == form) {
        gs_lead_spread(c, kernel.w, part);
    } else if (GPUSYM_JOB_SWAP == form) {
        gs_lead_swap(c, kernel.w, part);
    } else {
        gs_lead_move(c, kernel.w, part);
    }
}

/* The job that pack `at` of the launch belongs to. */
GS_FN uint32_t gs_lead_find(const gpusym_lead_t *lead, const gpusym_job_t *jobs, uint64_t at)
{
    uint32_t low = 0, high = lead->njobs;
    GS_NO_UNROLL
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (jobs[middle].first <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

GS_FN void gs_lead(gs_ctx_t c, gs_kernel_t kernel)
{
    const gpusym_lead_t *const lead = &kernel.w->lead;
    const gpusym_job_t *const jobs = NULL != lead->jobs ? lead->jobs : kernel.w->job;
    const uint32_t size = 0 != lead->group && c.nthreads > lead->group ? lead->group : c.nthreads;
    const uint32_t parts = c.nthreads / size;
    const gs_ctx_t mine = {c.thread % size, size, c.block, c.nblocks};
    const uint64_t even = (lead->packs + c.nblocks * parts - 1) / (c.nblocks * parts), span = GPUSYM_SPAN(even, 1u);
    uint64_t at = (c.block * parts + c.thread / size) * span;
    const uint64_t end = at + span < lead->packs ? at + span : lead->packs;
    uint32_t j = at < end ? gs_lead_find(lead, jobs, at) : 0;

    GS_NO_UNROLL
    while (at < end) {
        const gpusym_job_t *job = &jobs[j];
        const uint64_t packs = (job->bytes + 15) / 16, skipped = at - job->first,
                       stop = j + 1 < lead->njobs ? jobs[j + 1].first : lead->packs;
        gs_part_t part;
        part.first = skipped % packs;
        part.n = packs - part.first < end - at ? packs - part.first : end - at;
        gs_lead_piece(job, (uint32_t) (skipped / packs), &part);
        gs_lead_do(mine, kernel, (uint32_t) job->form, &part);
        at += part.n;
        j += at >= stop;
    }
    gs_finish(c, kernel.w, GPUSYM_STATUS_OK);
}

#endif
