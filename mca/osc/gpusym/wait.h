/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Waits of one-sided calls: with Open MPI's progress, until the others have done something, or one has died. One that
 * takes long is told to the user: after coll_gpusym_warn seconds, then after twice that time, and so on.
 */
#ifndef OSC_GPUSYM_WAIT_H
#define OSC_GPUSYM_WAIT_H

#include "mca/common/gpusym/shm/gauges.h"
#include "mca/osc/gpusym/window.h"

typedef struct {
    bool (*ended)(void *arg); /* whether the wait has; NULL: it has once it misses no rank. Called often */
    bool (*misses)(void *arg, uint32_t rank); /* whether it waits for that rank; NULL: that is not known */
    void *arg;                                /* of both */
    gpusym_window_for_t what;
    uint32_t target;
} osc_gpusym_wait_t;

/* Waits. MPI_ERR_OTHER, with a message: a rank has died. */
int osc_gpusym_window_wait(osc_gpusym_window_t *w, const osc_gpusym_wait_t *wait);
/* Whether it has ended. */
bool osc_gpusym_wait_ended(const osc_gpusym_window_t *w, const osc_gpusym_wait_t *wait);
/* Looks whether the others live. MPI_ERR_OTHER: one has died, which is said once a process. */
int osc_gpusym_window_look(osc_gpusym_window_t *w);

/* Takes a ticket of target's queue, and waits for its turn: of lockers (LOCK), of accumulates (ACCUMULATE), or of
 * origins of its mailbox (ANSWER). After an error nobody gets a turn any more. */
int osc_gpusym_get_turn(osc_gpusym_window_t *w, osc_gpusym_queue_t *q, gpusym_window_for_t what, uint32_t target);
/* Waits until this rank gets target's lock, of which a queue does not keep it. */
int osc_gpusym_await_lock(osc_gpusym_window_t *w, uint32_t target, bool exclusive);
/* A barrier of all ranks. */
int osc_gpusym_window_barrier(osc_gpusym_window_t *w);

/* Makes progress in a call that need not wait: a program that makes only such calls must not keep others waiting for
 * memory that this rank owns. */
void osc_gpusym_window_progress(const osc_gpusym_window_t *w);

#endif
