/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the records of calls (record.h) add up to, for MPI_T performance variables and metrics: bytes, time in the call,
 * time in which it waited for peers. Records are taken for that while a variable has a handle, or metrics are written.
 */
#ifndef MCA_COLL_GPUSYM_TRACE_SUMS_H
#define MCA_COLL_GPUSYM_TRACE_SUMS_H

#include "mca/coll/gpusym/args/args.h"
#include "mca/coll/gpusym/trace/record.h"

/* Calls of one collective in one form, on GPU memory, that have ended while they were added up. */
typedef struct {
    unsigned long long calls;
    unsigned long long bytes;   /* of this rank's larger buffer */
    unsigned long long ns;      /* from the call of MPI until it returned, or the request was complete */
    unsigned long long waiting; /* of these, ns from when the peers saw the call until all of them were in it */
} coll_gpusym_sum_t;

/* By enum coll_gpusym_coll, enum coll_gpusym_form; read and written by relaxed atomics. */
extern coll_gpusym_sum_t coll_gpusym_sums[COLL_GPUSYM_COLLS][COLL_GPUSYM_FORMS];

/* Takes records and adds them up from now on, until a call of the second function for each one of the first. False:
 * there is no memory. Any thread. */
bool coll_gpusym_sums_want(void);
void coll_gpusym_sums_spare(void);
/* Adds a call that has ended, if that is wanted. */
void coll_gpusym_sums_add(const coll_gpusym_record_t *r);
/* Registers the performance variables, as the component's; a handle wants the sums. Open MPI error code. */
int coll_gpusym_sums_register(const mca_base_component_t *component);
/* Nobody wants them any more, and all are 0. No thread is in a call. */
void coll_gpusym_sums_clear(void);

#endif
