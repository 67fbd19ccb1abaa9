/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The GPUs that this process uses for messages and one-sided calls, and their copiers (exec/copier.h).
 */
#ifndef GPUSYM_COMMON_GPUS_H
#define GPUSYM_COMMON_GPUS_H

#include "mca/common/gpusym/device/device.h"

/* How long their copiers wait for the next copy, in microseconds; -1: by the tuning table. */
extern int gpusym_p2p_linger;

/* Opens the GPU that owns mem, and tells the peers that this process uses it. Errors of gpu_open. Any thread. */
int gpusym_p2p_gpu_open(const gpusym_mem_t *mem, gpusym_gpu_t **gpu);
/* Returns the GPU that has been opened last; NULL: none yet, so that using one might make a context. */
gpusym_gpu_t *gpusym_p2p_gpu_last(void);
/* Whether GPUs reach the bytes from p on, which are host memory: the program has pinned or registered them. 0.2 us. */
bool gpusym_p2p_gpu_reaches(const void *p, size_t bytes);
/* Lets a GPU have a copier, or not, if another process uses it too, unless MPS lets their kernels run side by side:
 * looks at what the peers have told, now and then. Call it before a small copy. */
void gpusym_p2p_gpu_review(gpusym_gpu_t *gpu);
/* Whether another process used that GPU too, without MPS, when this process looked last: then none of its kernels may
 * wait for another process's. */
bool gpusym_p2p_gpu_takes_turns(void);
/* Forgets them. */
void gpusym_p2p_gpus_close(void);

#endif
