/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies between boxes (gpusym_box_t): messages between two processes that are neither packed nor unpacked, pulled from
 * mapped memory.  As copies of runs (copy.h): the kernel waits for nothing, each block writes a completion word.
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

/* Copies the units of a block: a unit for each thread, then the next so many. unit: a constant to the compiler. */
GS_FN void gs_box_copy(gs_ctx_t c, const gpusym_box_run_t *run, uint32_t unit)
{
    const uint32_t units = run->bytes / unit, step = run->blocks * c.nthreads;
    GS_NO_UNROLL
    for (uint32_t i = (c.block - run->first) * c.nthreads + c.thread; i < units; i += GS_PACKS * step) {
        gs_pack_t v[GS_PACKS] = {{{0, 0}}};
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * step < units) {
                v[u] = gs_ld_unit((const char *) run->in + gs_box_offset(&run->from, i + u * step, unit), unit);
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

/* In units of the largest power of two that suits both boxes. */
GS_FN void gs_boxes(gs_ctx_t c, const gpusym_work_t *w)
{
    uint32_t i = 0;
    GS_NO_UNROLL
    while (c.block - w->box[i].first >= w->box[i].blocks) {
        i++;
    }
    const gpusym_box_run_t *run = &w->box[i];
    uint32_t low = (uint32_t) (uintptr_t) run->in | (uint32_t) (uintptr_t) run->out | run->bytes | run->from.bytes |
                   run->to.bytes | 16;
    GS_UNROLL
    for (uint32_t d = 0; d < 3; d++) {
        low |= run->from.stride[d] | run->to.stride[d];
    }
    const uint32_t unit = low & (0 - low);
    if (16 == unit) {
        gs_box_copy(c, run, 16);
    } else if (8 == unit) {
        gs_box_copy(c, run, 8);
    } else if (4 == unit) {
        gs_box_copy(c, run, 4);
    } else if (2 == unit) {
        gs_box_copy(c, run, 2);
    } else {
        gs_box_copy(c, run, 1);
    }
    gs_block_sync(c);
    if (0 == c.thread) {
        gs_done_at(w, w->done + c.block, w->done_seq, GPUSYM_STATUS_OK);
    }
}

#endif
