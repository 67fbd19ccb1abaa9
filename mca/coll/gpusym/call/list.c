/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The lists of calls: see list.h.
 */
#include "mca/coll/gpusym/call/list.h"
#include "mca/common/gpusym/gpusym.h"

#include <sched.h>

#include "opal/runtime/opal_progress.h"

/* Polls of a completion word before the CPU is shared: about 20 us, more than a small all-reduce takes. */
#define SPINS 1000u

struct coll_gpusym_lists coll_gpusym_lists = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static coll_gpusym_engine_t *active; /* under the lock */

coll_gpusym_engine_t *coll_gpusym_list_active(void)
{
    return active;
}

void coll_gpusym_list_append(coll_gpusym_call_t *call)
{
    coll_gpusym_engine_t *e = call->run.engine;
    e->host_only = false;
    if (NULL == e->active_link) {
        e->active_next = active;
        e->active_link = &active;
        if (NULL != active) {
            active->active_link = &e->active_next;
        }
        active = e;
    }
    __atomic_store_n(e->last, call, __ATOMIC_RELAXED); /* coll_gpusym_list_empty() reads it without the lock */
    e->last = &call->next;
}

/* The engine's list is about to be empty: progress() need not poll it. With the lock held. */
static void deactivate_engine(coll_gpusym_engine_t *e)
{
    if (NULL != e->active_link) {
        *e->active_link = e->active_next;
        if (NULL != e->active_next) {
            e->active_next->active_link = e->active_link;
        }
        e->active_link = NULL;
    }
}

/* The list is about to be empty. Only now may later calls go to the fallback at once: they overtake no call. */
static void note_emptied(coll_gpusym_engine_t *e)
{
    e->last = &e->first;
    if (e->team->none) {
        coll_gpusym_forward_all(e->fallback);
    }
}

coll_gpusym_call_t *coll_gpusym_list_pop(coll_gpusym_engine_t *e)
{
    coll_gpusym_call_t *next = e->first->next;
    if (NULL == next) {
        note_emptied(e);
        deactivate_engine(e);
    }
    /* Last, and release: a thread that finds the list empty, without the lock, has what its calls have done, and may
     * change it. */
    __atomic_store_n(&e->first, next, __ATOMIC_RELEASE);
    return next;
}

void coll_gpusym_list_set(coll_gpusym_engine_t *e, unsigned key, int value)
{
    coll_gpusym_list_lock();
    const uint16_t newest = NULL != e->wish ? e->wish->number : (uint16_t) COLL_GPUSYM_WISH_NONE;
    bool in_flight = false;
    for (coll_gpusym_call_t *call = e->first; NULL != call; call = call->next) {
        call->run.wish = 0 != call->run.wish ? call->run.wish : newest;
        in_flight = in_flight || call->run.wish == newest;
    }
    coll_gpusym_wish_set(&e->wish, in_flight, key, value);
    coll_gpusym_list_unlock();
}

/* Behind others in its communicator's list. */
static void wait_queued(coll_gpusym_call_t *call)
{
    coll_gpusym_engine_t *e = call->run.engine;
    bool over = false;

    coll_gpusym_list_lock();
    coll_gpusym_list_append(call);
    coll_gpusym_list_unlock();
    while (!over) {
        opal_progress();
        coll_gpusym_list_lock();
        if (e->first == call && coll_gpusym_call_poll(call)) {
            coll_gpusym_list_pop(e);
            over = true;
        }
        coll_gpusym_list_unlock();
        if (!over) {
            sched_yield();
        }
    }
}

/* With nothing before it. It stands in the list, so that whatever is started meanwhile, by the progress that it makes,
 * comes behind it. The lock is not needed: only the thread that may make the communicator's next call changes the list,
 * and progress() leaves a blocking call alone. */
static void wait_alone(coll_gpusym_call_t *call)
{
    coll_gpusym_engine_t *e = call->run.engine;
    const gpusym_device_t *dev = gpusym_current.dev;
    /* The simulator's kernels run on the same cores: let them. */
    uint32_t spins = NULL != dev && !dev->simulated ? 0 : SPINS;

    e->host_only = false;
    e->last = &call->next;
    __atomic_store_n(&e->first, call, __ATOMIC_RELEASE);
    while (!coll_gpusym_call_poll(call)) {
        if (spins < SPINS) {
            spins++;
            opal_atomic_rmb();
            continue;
        }
        opal_progress();
        sched_yield();
    }
    if (NULL == call->next) {
        note_emptied(e);
        __atomic_store_n(&e->first, NULL, __ATOMIC_RELEASE);
        return;
    }
    coll_gpusym_list_lock();
    coll_gpusym_list_pop(e);
    coll_gpusym_list_unlock();
}

void coll_gpusym_list_wait(coll_gpusym_call_t *call)
{
    if (coll_gpusym_list_empty(call->run.engine)) {
        wait_alone(call);
    } else {
        wait_queued(call);
    }
}

void coll_gpusym_list_drain(const coll_gpusym_engine_t *e)
{
    while (!coll_gpusym_list_empty(e)) {
        opal_progress();
    }
}
