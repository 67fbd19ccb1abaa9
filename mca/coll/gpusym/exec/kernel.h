/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernel of a call, from its launch to its completion word: for ways that launch one.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_KERNEL_H
#define MCA_COLL_GPUSYM_EXEC_KERNEL_H

#include "mca/coll/gpusym/exec/way.h"

/* Polls a kernel that was launched or sent its command. DONE: it has written its completion word, and the lane is given
 * back, unless `keeps`: for copies behind it. WAITS, FAILED. */
coll_gpusym_turn_t coll_gpusym_kernel_poll(coll_gpusym_run_t *run, bool keeps);
/* As coll_gpusym_way_t.check while it runs: the GPU, and coll_gpusym_timeout. */
coll_gpusym_turn_t coll_gpusym_kernel_check(coll_gpusym_run_t *run, uint64_t now_ns);
/* As coll_gpusym_way_t.stop: it may be using the user's buffers. */
bool coll_gpusym_kernel_stop(coll_gpusym_run_t *run, bool recalled, bool due);
/* Gives up its lane and scratch memory for good. */
void coll_gpusym_kernel_abandon(coll_gpusym_run_t *run);
/* The copies that are queued on the lane: WAITS; DONE, FAILED: the lane is given back. */
coll_gpusym_turn_t coll_gpusym_kernel_copies(coll_gpusym_run_t *run);
/* As coll_gpusym_way_t.check and .stop while they run; run->since_ns was zeroed when they began. */
coll_gpusym_turn_t coll_gpusym_kernel_check_copies(coll_gpusym_run_t *run, uint64_t now_ns);
bool coll_gpusym_kernel_stop_copies(coll_gpusym_run_t *run);
/* As coll_gpusym_way_t.count: what kernels of ours have done. */
void coll_gpusym_kernel_count(const coll_gpusym_run_t *run, coll_gpusym_counters_t *counters);

#endif
