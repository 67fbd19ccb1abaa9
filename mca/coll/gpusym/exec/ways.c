/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The native way of a communicator: see ways.h.
 */
#include "mca/coll/gpusym/exec/ways.h"

#include "mca/coll/gpusym/team/join.h"

const coll_gpusym_way_t *coll_gpusym_native_way(coll_gpusym_engine_t *e)
{
    coll_gpusym_team_t *t = e->team;
    if (t->host.leads_next) { /* all ranks have found so in the last call */
        t->host.leads_next = false;
        coll_gpusym_team_lead(t);
        coll_gpusym_residents_end(e->residents);
    }
    return coll_gpusym_team_is_part(t) ? &coll_gpusym_way_rails
           : t->host.led               ? &coll_gpusym_way_leaders
                                       : &coll_gpusym_way_kernel;
}
