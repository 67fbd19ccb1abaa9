/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Where the vectors of examples/cg are, and the launch of its kernels: on a GPU by the CUDA driver, which is opened at
 * run time; elsewhere (the simulator, whose device memory the CPU cannot touch, or host memory) on a copy.
 */
#ifndef EXAMPLES_CG_DEVICE_H
#define EXAMPLES_CG_DEVICE_H

#include "examples/cg_kernels.h"

/* Memory for one problem, of which n, nz and items are set; sets base. bench_start() was called. Ends the job where
 * that cannot be. Zeroes what a launch expects to be 0. Opens stream.h, too. */
void cg_device_open(cg_args_t *problem);
void cg_device_close(cg_args_t *problem);

/* Starts kernel CG_<id> on stream_handle(); where there are no kernels, waits for what that has, and runs it. */
void cg_launch(int id, const cg_args_t *a);

#endif
