/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies between boxes (gpusym_box_t): messages between two processes that are neither packed nor unpacked, pulled from
 * mapped memory.  As copies of runs (copy.h): the kernel waits for nothing, each block writes a completion word.  And
 * lists of them, which a resident kernel copies.
 */
#ifndef GPUSYM_KERNELS_SYMM_BOX_H
#define GPUSYM_KERNELS_SYMM_BOX_H

#include "kernels/symm/pack.h"

/* Where unit i of the packed order lies from the first byte of a box. */
GS_FN uint64_t gs_box_offset(const gpusym_box_t *b, uint32_t i, uint32_t unit)
{
    const uint32_t columns = b->bytes / unit;
    if (i < columns) {
        return (uint64_t) i * unit;
    }
    const uint32_t row = i / columns, plane = row / b->n[0], more = plane / b->n[1];
    return (uint64_t) (i - row * columns) * unit + (uint64_t) (row - plane * b->n[0]) * b->stride[0] +
           (uint64_t) (plane - more * b->n[1]) * b->stride[1] + (uint64_t) more * b->stride[2];
}

/* Loads a unit. strong: also what has been written since the kernel began. */
GS_FN gs_pack_t gs_box_load(const char *p, uint32_t unit, bool strong)
{
    if (!strong || 16 == unit) {
        return strong ? gs_ld16_strong(p) : gs_ld_unit(p, unit);
    }
    const gs_pack_t v = {{gs_ld_strong(p, unit), 0}};
    return v;
}

/* Copies the units of a thread: unit `at`, then each that is `step` further. unit, strong: constants to the
 * compiler. */
GS_FN void gs_box_copy(const gpusym_box_run_t *run, uint32_t at, uint32_t step, uint32_t unit, bool strong)
{
    const uint32_t units = run->bytes / unit;
    GS_NO_UNROLL
    for (uint32_t i = at; i < units; i += GS_PACKS * step) {
        gs_pack_t v[GS_PACKS] = {{{0, 0}}};
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * step < units) {
                v[u] =
                    gs_box_load((const char *) run->in + gs_box_offset(&run->from, i + u * step, unit), unit, strong);
            }
        }
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * step < units) {
                gs_st_unit((char *) run->out + gs_box_offset(&run->to, i + u * step, unit), unit, v[u]);
            }
        }
    }
}

/* The same, in its units. */
GS_FN void gs_box_copy_any(const gpusym_box_run_t *run, uint32_t at, uint32_t step, bool strong)
{
    if (16 == run->unit) {
        gs_box_copy(run, at, step, 16, strong);
    } else if (8 == run->unit) {
        gs_box_copy(run, at, step, 8, strong);
    } else if (4 == run->unit) {
        gs_box_copy(run, at, step, 4, strong);
    } else if (2 == run->unit) {
        gs_box_copy(run, at, step, 2, strong);
    } else {
        gs_box_copy(run, at, step, 1, strong);
    }
}

GS_FN void gs_boxes(gs_ctx_t c, const gpusym_work_t *w)
{
    uint32_t i = 0;
    GS_NO_UNROLL
    while (c.block - w->box[i].first >= w->box[i].blocks) {
        i++;
    }
    const gpusym_box_run_t *run = &w->box[i];
    gs_box_copy_any(run, (c.block - run->first) * c.nthreads + c.thread, run->blocks * c.nthreads, false);
    gs_block_sync(c);
    if (0 == c.thread) {
        gs_done_at(w, w->done + c.block, w->done_seq, GPUSYM_STATUS_OK);
    }
}

/* The threads of each entry of a list of n: whole warps, as many as there are for each, or one. */
GS_FN uint32_t gs_list_share(uint32_t nthreads, uint32_t n)
{
    const uint32_t share = nthreads / GS_WARP / n * GS_WARP;
    return 0 != share ? share : 1;
}

/* Copies a list of n entries, by all threads of the block. A word for each thread: loads of one address by several
 * threads are a round trip across PCIe each. */
GS_OUTLINE void gs_box_list(gs_ctx_t part, const gpusym_box_run_t *list, uint32_t n)
{
    GS_SHARED union {
        gpusym_box_run_t run[GPUSYM_LIST_MAX];
        uint64_t word[sizeof(gpusym_box_run_t) * GPUSYM_LIST_MAX / 8];
    } all;
    const uint32_t share = gs_list_share(part.nthreads, n);
    GS_NO_UNROLL
    for (uint32_t i = part.thread; i < n * sizeof *list / 8; i += part.nthreads) {
        all.word[i] = gs_ld_strong((const char *) list + 8 * i, 8);
    }
    gs_part_sync(part);
    GS_NO_UNROLL
    for (uint32_t i = part.thread / share; i < n; i += part.nthreads / share) {
        gpusym_box_run_t run = all.run[i];
        run.in = gs_reach(run.in);
        run.out = gs_reach(run.out);
        gs_box_copy_any(&run, part.thread % share, share, true);
    }
    gs_part_sync(part); /* all is stored before thread 0 tells so */
}

#endif
