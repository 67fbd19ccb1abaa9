/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Synchronisation: the functions of ompi_osc_base_module_t. Errors: MPI_ERR_RMA_SYNC: the epochs of this rank do not
 * permit the call, or the window has no_locks; MPI_ERR_RMA_CONFLICT: it holds that lock; MPI_ERR_OTHER: a rank has
 * died; those of copies that a call ends.
 *
 * Locks are got in the order in which they are asked for, at the target: an exclusive one waits for all that have come
 * before it, a shared one for the exclusive ones among them, whichever host they are of. But a process that holds a
 * lock of any window goes ahead of those that wait: with a queue for it, two that hold shared locks and each ask for
 * the other's could be kept apart by two that wait for exclusive ones. So who waits in a queue holds nothing.
 *
 * MPI_Win_lock_all takes the locks of all ranks at once or none. While it waits it holds turns of queues, which it
 * takes in the order of ranks, and no lock. Then
 * - nobody waits for a turn for ever: who has one waits for a lock, or for turns of higher ranks; who has a lock waits
 *   for no turn;
 * - nobody is overtaken without end but by processes that go ahead. Among these there is no order: they get a lock
 *   when they find it free, and those of all ranks when they find all free at once.
 */
#ifndef OSC_GPUSYM_SYNC_H
#define OSC_GPUSYM_SYNC_H

#include "mca/osc/gpusym/window.h"

int osc_gpusym_fence(int assertion, struct ompi_win_t *win);
int osc_gpusym_start(struct ompi_group_t *group, int assertion, struct ompi_win_t *win);
int osc_gpusym_complete(struct ompi_win_t *win);
int osc_gpusym_post(struct ompi_group_t *group, int assertion, struct ompi_win_t *win);
int osc_gpusym_wait(struct ompi_win_t *win);
int osc_gpusym_test(struct ompi_win_t *win, int *flag);
/* Counts a lock, or the locks of all ranks, that this process has got, or has released: in another component's window,
 * too. */
void osc_gpusym_count_lock(bool got);
int osc_gpusym_lock(int type, int target, int assertion, struct ompi_win_t *win);
int osc_gpusym_unlock(int target, struct ompi_win_t *win);
int osc_gpusym_lock_all(int assertion, struct ompi_win_t *win);
int osc_gpusym_unlock_all(struct ompi_win_t *win);
int osc_gpusym_sync(struct ompi_win_t *win);
int osc_gpusym_flush(int target, struct ompi_win_t *win);
int osc_gpusym_flush_all(struct ompi_win_t *win);

#endif
