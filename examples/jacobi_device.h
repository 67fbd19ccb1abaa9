/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Where the fields of examples/jacobi are, and the launch of its kernels: on a GPU by the CUDA driver, which is opened
 * at run time; on the simulator, whose device memory the CPU cannot touch, by copies and a call of the CPU, which are
 * queued on the stream; with host memory at once.
 */
#ifndef EXAMPLES_JACOBI_DEVICE_H
#define EXAMPLES_JACOBI_DEVICE_H

#include "examples/jacobi_kernels.h"

/* Memory for one problem, of which n, first, whole and items are set; sets base. Opens stream.h, too. bench_start() was
 * called. Ends the job where that cannot be. */
void jacobi_device_open(jacobi_args_t *problem);
void jacobi_device_close(jacobi_args_t *problem);

/* Queues kernel JACOBI_<id> on stream_handle(), which may be captured, for the problem that is open. */
void jacobi_launch(int id, const jacobi_args_t *a);

#endif
