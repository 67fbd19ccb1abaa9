/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The list of a communicator's calls that are not over. They stand there in MPI's order, and only the first is polled;
 * what the fallback then does with it goes on beside the list.
 */
#ifndef MCA_COLL_GPUSYM_CALL_LIST_H
#define MCA_COLL_GPUSYM_CALL_LIST_H

#include <pthread.h>

#include "mca/coll/gpusym/call/call.h"
#include "mca/common/gpusym/lock.h"

/* The lock covers all engines' lists, and the requests (request.c); held by one thread at a time while it makes
 * progress. One thread alone only notes that it has it. */
extern struct coll_gpusym_lists {
    pthread_mutex_t mutex;
    bool held;
} coll_gpusym_lists;

static inline void coll_gpusym_list_lock(void)
{
    gpusym_lock(&coll_gpusym_lists.mutex);
    coll_gpusym_lists.held = true;
}

/* False: a thread has the lock, this one perhaps: what is called with it may make progress of its own. */
static inline bool coll_gpusym_list_trylock(void)
{
    if (gpusym_threads ? 0 != pthread_mutex_trylock(&coll_gpusym_lists.mutex) : coll_gpusym_lists.held) {
        return false;
    }
    coll_gpusym_lists.held = true;
    return true;
}

static inline void coll_gpusym_list_unlock(void)
{
    coll_gpusym_lists.held = false;
    gpusym_unlock(&coll_gpusym_lists.mutex);
}

/* Whether no call of the communicator is in flight. Only the calling thread may add one now: MPI orders a
 * communicator's collectives. */
static inline bool coll_gpusym_list_empty(const coll_gpusym_engine_t *e)
{
    return NULL == __atomic_load_n(&e->first, __ATOMIC_ACQUIRE);
}

/* The engines whose lists progress polls, by active_next. With the lock held. */
coll_gpusym_engine_t *coll_gpusym_list_active(void);
/* Appends a call to its engine's list. With the lock held. */
void coll_gpusym_list_append(coll_gpusym_call_t *call);
/* Takes the first call out; returns the next one, NULL: none. With the lock held. */
coll_gpusym_call_t *coll_gpusym_list_pop(coll_gpusym_engine_t *e);
/* The program sets a key of the communicator (team/settings.h), for calls that it makes from now on. The lock is not
 * held. */
void coll_gpusym_list_set(coll_gpusym_engine_t *e, unsigned key, int value);
/* Appends a blocking call, and polls until it is over, or the fallback's. The lock is not held. */
void coll_gpusym_list_wait(coll_gpusym_call_t *call);
/* Polls until no call of the communicator is in flight. The lock is not held. */
void coll_gpusym_list_drain(const coll_gpusym_engine_t *e);

#endif
