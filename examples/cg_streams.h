/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Faces and sums of examples/cg by gpusym's collectives on streams (api/gpusym.h): they are queued like kernels, and no
 * rank waits on the host.
 */
#ifndef EXAMPLES_CG_STREAMS_H
#define EXAMPLES_CG_STREAMS_H

#include <stdbool.h>

#include "examples/cg_kernels.h"

/* Communicators for a problem, if wanted. Collective. Where gpusym refuses, says why in a comment line. */
void cg_streams_open(const cg_args_t *a, bool wanted);
void cg_streams_close(void);
/* Alike on all ranks. */
bool cg_streams_there(void);

/* As a cg_way_t's, on a stream. */
void cg_streams_halo(const cg_args_t *a, void *stream);
void cg_streams_sum(double *own, double *all, int n, void *stream);

#endif
