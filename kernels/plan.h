/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Cutting a launch: chunks and spans, what a slot has room for, and how many epochs a call of a family uses.
 * Pure C, no MPI, no CUDA.
 */
#ifndef GPUSYM_KERNELS_PLAN_H
#define GPUSYM_KERNELS_PLAN_H

#include "kernels/kernels.h"

/* Most channels of a schedule that a slot of that shape has room for, with the protocol of a family (CHAN_*); 0:
 * none. */
uint32_t gpusym_channels_max(unsigned family, unsigned schedule, const gpusym_work_t *w);
/* Whether a slot of that shape, with nranks, has room for the two-shot by LL128 lines. */
bool gpusym_ll128_fits(const gpusym_work_t *w);

/* Whether a slot of that shape has room for a call of such a family: a message of so many bytes, to be cut into slices
 * (`whole`), or segments of which the longest has so many. */
bool gpusym_copies_fit(unsigned family, const gpusym_work_t *w, bool whole, uint64_t bytes);

/* Cuts the message of a descriptor whose bytes (not 0), nranks, nblocks, slot shape and schedule are set, for a family,
 * in chunks of at most chunk_bytes a block (exchange kernels: of a segment, a block; 0: as large as the slot allows):
 * sets w->chunk, w->span and w->stage_bytes, makes w->nblocks smaller if the slot has no room for so many, and returns
 * the epochs that the call uses up, at least 1. All ranks compute the same. The next call's epoch is larger by at least
 * this. LL families take no chunk_bytes, and kernels that stage nothing none either. Two-shot by LL128 lines: a chunk
 * is what a warp takes of a slice at a time; w->nthreads, which must be set, may become smaller too. */
uint64_t gpusym_kernel_plan(unsigned family, gpusym_work_t *w, uint32_t chunk_bytes);

/* The same for a call on a stream and a rank that knows only its own segments, w->send and w->recv, of which w->bytes
 * is the longest, perhaps 0. The family: XLL where all go in LL lines, XST otherwise. It sets w->early too, and
 * w->lines in place of w->span. The epochs are those that its own segments take; chunks of at least 4 KiB take fewer
 * than an entry can tell. Ranks whose family is XST compute all else alike, whatever their bytes. */
unsigned gpusym_kernel_sized_family(const gpusym_work_t *w);
uint64_t gpusym_kernel_plan_sized(gpusym_work_t *w, uint32_t chunk_bytes);

/* Gives a run of a launch of GPUSYM_F_COPY, whose addresses and bytes are set, `blocks` blocks from `first` on. */
void gpusym_run_plan(gpusym_run_t *run, uint32_t first, uint32_t blocks);

/* Lays out n jobs of a launch of GPUSYM_F_LEAD or GPUSYM_F_LEAD_R, of which each has bytes, sources and destinations:
 * sets job[].first. Returns the packs of all. */
uint64_t gpusym_jobs_plan(gpusym_job_t *job, uint32_t n);

/* Largest message, or segment, that a rank can send in one epoch of an LL family through LL areas of ll_bytes. */
static inline uint64_t gpusym_ll_payload(uint32_t ll_bytes)
{
    return ll_bytes / 2;
}

#endif
