/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One checked call of any MPI collective, blocking, nonblocking or persistent: its buffers in memory of any kind,
 * with guard zones and poison, its data and what must come out, byte for byte. The collectives are those of
 * colls.def; the data those of ref.h; the tally that of check.h.
 *
 * What rank s sends to rank d is elements of s's contribution that only d gets; so what any rank must receive
 * can be computed from the seed, and nothing is asked of the MPI library.
 */
#ifndef TEST_MPI_COLL_H
#define TEST_MPI_COLL_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "test/mpi/check.h"
#include "test/mpi/coll_layout.h"

/* Whether the call is valid MPI and this MPI library can do it; sets call->overflow. The same on all ranks of the job
 * where the calls are (of all parts of a split too). */
bool coll_possible(coll_call_t *call);

/* One thread's buffers, for calls one after the other and at the same time. Zeroed before its first use. */
typedef struct coll_store coll_store_t;
coll_store_t *coll_store_new(void);
/* Frees the memory that no call uses, so that the next calls have new. */
void coll_store_forget(coll_store_t *store);
/* No call may be left. */
void coll_store_free(coll_store_t *store);

typedef struct coll_run coll_run_t;
/* Makes the buffers, from the store. Ends the process where there is no memory. */
coll_run_t *coll_make(coll_store_t *store, const coll_call_t *call);
/* A persistent call: makes its request, inactive. Any rank may wait there for all others, as MPI allows; so on all
 * ranks in the same order. Of other modes: does nothing. */
void coll_init(coll_run_t *run);
/* Fills the buffers, other data at every start, and calls. A blocking call has ended when it returns; otherwise
 * *coll_request is active. Again only for persistent calls, and after coll_check; they are made by coll_init before,
 * or by the first start. */
void coll_start(coll_run_t *run);
/* The same for many persistent calls, by MPI_Startall; each must have been started once by coll_start. */
void coll_startall(coll_run_t **runs, int n);
/* For MPI_Wait and its kin. MPI_REQUEST_NULL after a blocking call. */
MPI_Request *coll_request(coll_run_t *run);
/* After the call's end: whether every byte of both buffers is right; prints the first that is not, in the name of t. */
bool coll_check(check_t *t, coll_run_t *run);
/* Gives the buffers back to the store, and frees a persistent request. */
void coll_drop(coll_run_t *run);

/* From now on coll_once does something else for so many microseconds, behind the start of each call. */
void coll_work(double us);
/* make, start (persistent: `starts` times), wait, check and drop, and the tally of t. */
void coll_once(check_t *t, coll_store_t *store, const coll_call_t *call, int starts);

/* The call in words, into buf; returns buf. */
const char *coll_text(const coll_call_t *call, char *buf, size_t size);

#endif
