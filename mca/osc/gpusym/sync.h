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
int osc_gpusym_lock(int type, int target, int assertion, struct ompi_win_t *win);
int osc_gpusym_unlock(int target, struct ompi_win_t *win);
int osc_gpusym_lock_all(int assertion, struct ompi_win_t *win);
int osc_gpusym_unlock_all(struct ompi_win_t *win);
int osc_gpusym_sync(struct ompi_win_t *win);
int osc_gpusym_flush(int target, struct ompi_win_t *win);
int osc_gpusym_flush_all(struct ompi_win_t *win);

#endif
