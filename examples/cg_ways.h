/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the ranks of examples/cg tell each other, in each of the ways that are compared: outer planes of a vector, and
 * sums. The data are in GPU memory before and after, whatever the way.
 */
#ifndef EXAMPLES_CG_WAYS_H
#define EXAMPLES_CG_WAYS_H

#include <stdbool.h>

#include "examples/cg_kernels.h"

typedef struct {
    const char *name;
    bool (*there)(void); /* alike on all ranks */
    bool graphs;         /* all is queued on streams, so that iterations can be replayed as a graph: do so */
    /* `faces` to the neighbours' `halo`. */
    void (*halo)(const cg_args_t *a);
    /* The sum over the ranks of `n` doubles at `own` to `all`, both in GPU memory. */
    void (*reduce)(double *own, double *all, int n);
    /* The same in two parts, beside which a kernel may run that uses neither; one at a time. */
    void (*begin)(double *own, double *all, int n);
    void (*end)(void);
} cg_way_t;

/* Numbered from 0, NULL past the end. */
const cg_way_t *cg_way(int number);

/* For one problem, after cg_device_open(); NCCL, and collectives on streams, if wanted. Collective. */
void cg_ways_open(const cg_args_t *a, bool with_nccl, bool with_streams);
void cg_ways_close(void);

#endif
