/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Where the field of examples/halo and its packed faces are, and the launch of its kernels: on a GPU by the CUDA
 * driver, which is opened at run time; elsewhere (the simulator, whose device memory the CPU cannot touch, or host
 * memory) on a copy.
 */
#ifndef EXAMPLES_HALO_DEVICE_H
#define EXAMPLES_HALO_DEVICE_H

#include "examples/halo_kernels.h"

/* Memory for a problem whose n is set; sets field, send and receive. bench_start() was called. Ends the job where that
 * cannot be. */
void halo_device_open(halo_args_t *problem);
void halo_device_close(halo_args_t *problem);

/* Starts kernel HALO_<id>; in order after those started before. */
void halo_launch(int id, const halo_args_t *a);
/* Until all that was started is done: MPI knows nothing of our stream. */
void halo_wait(void);

#endif
