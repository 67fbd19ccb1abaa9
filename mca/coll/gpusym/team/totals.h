/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Sums over the processes of MPI_COMM_WORLD, at its end: every process sends rank 0 what it has counted.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_TOTALS_H
#define MCA_COLL_GPUSYM_TEAM_TOTALS_H

#include <stdbool.h>
#include <stdint.h>

/* A length that a GPU's name and place fit into. */
#define COLL_GPUSYM_GPU_TEXT 112

typedef struct {
    unsigned ranks, answered;       /* of MPI_COMM_WORLD; of those, that are counted here */
    unsigned hosts, gpus;           /* of those that are counted, different ones */
    char gpu[COLL_GPUSYM_GPU_TEXT]; /* the name of one of these GPUs; "": none was used */
    bool gpus_differ;               /* others have other names */
    unsigned nvalues;
    unsigned long long *sum, *least, *most; /* [nvalues] over the ranks; owned by this struct */
} coll_gpusym_totals_t;

/*
 * Adds up what each process of MPI_COMM_WORLD has counted: value[n], the same n on all. gpu: name and place of the GPU
 * that this process has used, "NVIDIA H200, 0000:1b:00.0", or "". Collective over the processes whose summary is on;
 * the others, and those that have died, are not waited for. Call it once, from MPI_Finalize, while MPI still works.
 * True in rank 0, with *totals, to be freed: the others have only told it.
 */
bool coll_gpusym_totals_gather(const char *gpu, const unsigned long long *value, unsigned n,
                               coll_gpusym_totals_t *totals);
void coll_gpusym_totals_free(coll_gpusym_totals_t *totals);

#endif
