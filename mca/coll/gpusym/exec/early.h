/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Early launches: a call that is like the communicator's last one, and is not blocking, is launched as soon as this
 * rank has posted it. Its kernel finds out by itself whether all ranks are in the call, and if not retires with nothing
 * done (kernels/symm/enter.h); then it is launched as any other.
 *
 * All ranks do so, or none: else the kernels of those that do wait for nothing. So they tell each other, in the entries
 * of the next call, what has become of the last one. Where no rank does anything else meanwhile, calls are not launched
 * early: their kernels take longer.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_EARLY_H
#define MCA_COLL_GPUSYM_EXEC_EARLY_H

#include "mca/coll/gpusym/exec/launch.h"
#include "mca/coll/gpusym/plan/task.h"
#include "tuning/resident.h"

/* A communicator's. Zeroed before its first use. */
typedef struct {
    gpusym_tuning_early_t worth; /* alike on all ranks */
    uint32_t tells;              /* GPUSYM_POST_EARLY and the three behind it: of this rank's last call */
    /* The last call that can be launched so; seq 0: there is none. */
    uint64_t seq;
    unsigned coll;
    uint32_t hash, layout; /* as posted */
    uint64_t bytes, most;  /* of this rank; of all */
    uint64_t all, own;     /* signature of all ranks' buffers, and of this rank's */
    bool in_place, zero_copy;
    int algorithm;
    unsigned kernel;
    uint64_t epochs;
    gpusym_work_t work;
} coll_gpusym_early_t;

/* What the entry of a call tells of the last one. */
static inline uint32_t coll_gpusym_early_tells(const coll_gpusym_early_t *e)
{
    return e->tells;
}
/* All ranks have told, and agree on a call. */
void coll_gpusym_early_told(coll_gpusym_early_t *e, const coll_gpusym_task_t *task);
/* Whether a call that this rank has just posted may be launched now, if it is like another one. linger_ns: how long a
 * kernel may wait for nothing. */
bool coll_gpusym_early_may(const coll_gpusym_early_t *e, const coll_gpusym_task_t *task, uint64_t linger_ns);
/* Whether a resident kernel may get a call when this rank has posted it, and do it again from the beginning: what it
 * stores before all ranks are in the call is in no input. */
bool coll_gpusym_early_begins(const coll_gpusym_task_t *task);
/* Whether such a call is to be launched early and not by a resident kernel. */
bool coll_gpusym_early_prefers(const coll_gpusym_early_t *e, const coll_gpusym_task_t *task, uint64_t linger_ns);
/* Launches it, if it is like the last one. The call then goes on as if it were not, and l->resident.how is ENTERS. */
void coll_gpusym_early_launch(coll_gpusym_early_t *e, coll_gpusym_task_t *task, coll_gpusym_launch_t *l,
                              uint64_t linger_ns);
/* Whether its kernel has retired with nothing done: then l is as before, and the call is to be launched. */
bool coll_gpusym_early_left(coll_gpusym_early_t *e, coll_gpusym_launch_t *l);
/* A call has ended. */
void coll_gpusym_early_ended(coll_gpusym_early_t *e, const coll_gpusym_task_t *task);
/* Its kernel has done the call: takes its epochs. False: that failed. */
bool coll_gpusym_early_done(coll_gpusym_early_t *e, const coll_gpusym_task_t *task);
/* Remembers a call that all ranks have agreed on, which has been launched by plan p, and not to serve other ones. */
void coll_gpusym_early_note(coll_gpusym_early_t *e, const coll_gpusym_task_t *task, const coll_gpusym_plan_t *p);

#endif
