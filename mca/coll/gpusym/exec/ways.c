/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The native way of a communicator: see ways.h.
 */
#include "mca/coll/gpusym/exec/ways.h"

#include "mca/coll/gpusym/plan/zero_copy.h"
#include "mca/coll/gpusym/team/join.h"

/* Whether leaders do the call: side by side, what is not short, and all while a process may have others in flight, so
 * that kernels of one communicator do not hold the room that another's need. */
static bool is_led(const coll_gpusym_team_t *t, const coll_gpusym_task_t *task)
{
    if (!t->host.beside || NULL == task) {
        return t->host.led;
    }
    return !coll_gpusym_team_is_short(t, task->read.max_bytes) ||
           (0 == (task->read.all & GPUSYM_POST_QUIET) && coll_gpusym_zero_copy_led(task));
}

const coll_gpusym_way_t *coll_gpusym_native_way(coll_gpusym_engine_t *e, const coll_gpusym_task_t *task)
{
    coll_gpusym_team_t *t = e->team;
    if (t->host.leads_next) { /* all ranks have found so in the last call */
        t->host.leads_next = false;
        coll_gpusym_team_lead(t);
        coll_gpusym_residents_end(e->residents);
    }
    if (coll_gpusym_team_is_part(t)) {
        return &coll_gpusym_way_rails;
    }
    return is_led(t, task) ? &coll_gpusym_way_leaders : &coll_gpusym_way_kernel;
}
