/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The origin's side of messages (message.h): access to memory of ranks of other hosts, and their locks. The owner must
 * be in a call of MPI from time to time.
 *
 * Data go through a few buffers, so a call may wait until others have been answered. Calls that bring nothing back
 * return when their data are on the way; osc_gpusym_remote_flush waits for the answers. MPI error codes of all that
 * wait: MPI_ERR_OTHER: a rank has died, or a message failed.
 */
#ifndef OSC_GPUSYM_REMOTE_H
#define OSC_GPUSYM_REMOTE_H

#include "mca/osc/gpusym/elements.h"
#include "mca/osc/gpusym/message.h"

/* Whether the ranks of a window are on several hosts; whether one of them is on this one. */
static inline bool osc_gpusym_spans_hosts(const osc_gpusym_window_t *w)
{
    return NULL != w->remote;
}
static inline bool osc_gpusym_is_near(const osc_gpusym_window_t *w, int rank)
{
    return w->part[rank].near;
}

/* Makes what messages need, in a window that is served, and whose ranks are on several hosts. MPI error code. */
int osc_gpusym_remote_open(osc_gpusym_window_t *w);
/* `failed` as of osc_gpusym_serve_close; else all requests have been answered. */
void osc_gpusym_remote_close(osc_gpusym_window_t *w, bool failed);

typedef struct {
    osc_gpusym_kind_t kind; /* READ, WRITE, COMBINE, FETCH or SWAP */
    int target;
    const osc_gpusym_elements_t *at;   /* the target's */
    const osc_gpusym_elements_t *from; /* the origin's; NULL: the call has none. Of SWAP: run of two elements */
    const osc_gpusym_elements_t *to;   /* the result's; NULL: the call has none */
    ompi_datatype_t *basic;            /* of COMBINE and FETCH; else NULL */
    struct ompi_op_t *op;              /* the same */
} osc_gpusym_access_t;

/* Carries out a call on elements that are far, of the same sizes; the origin of a FETCH may be shorter. What it brings
 * back is there on return; errors of others may be told by osc_gpusym_end_copies, but for dynamic windows, where this
 * waits for the answer, which says whether the memory is attached. */
int osc_gpusym_remote_access(osc_gpusym_window_t *w, const osc_gpusym_access_t *call);
/* Waits until a rank (-1: all) has answered all requests of this one. */
int osc_gpusym_remote_flush(osc_gpusym_window_t *w, int target);

/* Requests LOCK or TURN of another host's rank, and waits for the answer. ahead: see osc_gpusym_try_lock. */
int osc_gpusym_remote_lock(osc_gpusym_window_t *w, int target, osc_gpusym_kind_t kind, osc_gpusym_held_t held,
                           bool ahead);
/* Tries to get shared locks of all ranks of other hosts but `but`; got[n]: sets it for those that it has got. */
int osc_gpusym_remote_try_locks(osc_gpusym_window_t *w, int but, bool ahead, bool *got);
/* Tells a rank of another host of UNLOCK, PASS, POST or COMPLETE. osc_gpusym_remote_flush waits for the answer. */
int osc_gpusym_remote_tell(osc_gpusym_window_t *w, int target, osc_gpusym_kind_t kind, osc_gpusym_held_t held);

#endif
