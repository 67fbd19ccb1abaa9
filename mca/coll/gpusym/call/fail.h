/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls that fail: what the user is told, and how the peers get to know.
 */
#ifndef MCA_COLL_GPUSYM_CALL_FAIL_H
#define MCA_COLL_GPUSYM_CALL_FAIL_H

#include "mca/coll/gpusym/exec/way.h"

/* Whether a peer has died or given up, or a line was overwritten: run->failure says so then. number: of the call, also
 * before it is posted. About 1 us for each rank. */
bool coll_gpusym_find_lost(coll_gpusym_run_t *run, uint64_t number);
/* The call has failed on this rank, as run->failure says: reports it, sets run->error, and tells the peers. Every
 * further call of the communicator is refused. */
void coll_gpusym_fail(coll_gpusym_run_t *run, uint64_t number);

#endif
