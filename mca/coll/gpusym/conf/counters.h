/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How calls were served: counters, as MPI_T performance variables and in the summary.
 */
#ifndef MCA_COLL_GPUSYM_CONF_COUNTERS_H
#define MCA_COLL_GPUSYM_CONF_COUNTERS_H

#include "kernels/kernels.h"
#include "mca/coll/gpusym/args/args.h"

/* Calls of one collective since MPI_Init, in this process; counted with relaxed atomics. Nothing but numbers of one
 * type: the summary adds them up over the ranks. */
typedef struct {
    unsigned long long native;                      /* ran on the GPU */
    unsigned long long algorithm[GPUSYM_ALG_COUNT]; /* of those, by algorithm */
    unsigned long long copied;                      /* of those, one-rank communicators: a copy */
    unsigned long long led;                         /* of those, by the leaders of GPUs that ranks share */
    unsigned long long rails;                       /* of those, between islands */
    unsigned long long zero_copy;                   /* of the native ones: straight between users' buffers */
    unsigned long long resident; /* of the native ones: by a kernel that was there, without a launch */
    unsigned long long early;    /* of the native ones: launched when this rank posted them */
    unsigned long long late;     /* of the native ones: launched, the kernel that had them before had retired */
    unsigned long long staged;   /* staged through host memory */
    unsigned long long reason[COLL_GPUSYM_REASONS]; /* of those, by reason */
    unsigned long long cut;                         /* of the staged ones: in pieces */
    unsigned long long moved;                       /* of the staged ones: by windows */
    unsigned long long forwarded;                   /* host buffers: forwarded untouched */
    /* Calls with a buffer on a GPU, only where coll_gpusym_summary is set: */
    unsigned long long bytes; /* the larger buffer's, from the first byte that is used to the last */
    unsigned long long timed; /* blocking ones */
    unsigned long long ns;    /* in these */
} coll_gpusym_counters_t;

/* The numbers in the counters of all collectives. */
#define COLL_GPUSYM_COUNTERS_WORDS \
    ((unsigned) (COLL_GPUSYM_COLLS * sizeof(coll_gpusym_counters_t) / sizeof(unsigned long long)))

/* By enum coll_gpusym_coll. Hidden, so that every call reaches them by one instruction. */
extern coll_gpusym_counters_t coll_gpusym_counters[COLL_GPUSYM_COLLS] __attribute__((visibility("hidden")));

static inline void coll_gpusym_count(unsigned long long *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* Registers the performance variables, as the component's. Open MPI error code. */
int coll_gpusym_counters_register(const mca_base_component_t *component);
/* Prints a line for each collective that was called, and one for each reason why calls were staged, with what can be
 * done about it. By collective: sums over the ranks, the least and the most of a rank. To stderr. */
void coll_gpusym_counters_print(const coll_gpusym_counters_t *sum, const coll_gpusym_counters_t *least,
                                const coll_gpusym_counters_t *most);
/* Sets all to 0. */
void coll_gpusym_counters_clear(void);

#endif
