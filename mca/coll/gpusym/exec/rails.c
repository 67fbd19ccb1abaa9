/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls on rails: see rails.h.
 */
#include "mca/coll/gpusym/exec/rails.h"

#include "mca/coll/gpusym/team/rails.h"

/* Legs are of different rails: none waits for another. */
static int poll_legs(coll_gpusym_rails_t *r)
{
    const coll_gpusym_rails_plan_t *p = r->plan;
    if (0 == r->begun && !coll_gpusym_hosts_quiet(p->team)) {
        return 0;
    }
    for (; r->begun < p->nlegs; r->begun++) {
        coll_gpusym_leg_t *leg = &r->plan->leg[r->begun];
        leg->call.held = r->held;
        const int rc = gpusym_rail_start(coll_gpusym_hosts_rail(p->team, leg->rail), &leg->call);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
    }
    for (uint32_t i = 0; i < p->nlegs; i++) {
        if (0 != (r->ended >> i & 1)) {
            continue;
        }
        const int rc = gpusym_rail_poll(coll_gpusym_hosts_rail(p->team, p->leg[i].rail));
        if (rc < 0) {
            return rc;
        }
        r->ended |= (uint32_t) rc << i;
    }
    return r->ended == (1ull << p->nlegs) - 1;
}

int coll_gpusym_rails_poll(coll_gpusym_rails_t *r)
{
    const coll_gpusym_team_t *t = r->plan->team;
    if (0 == r->plan->nlegs) {
        return 1;
    }
    if (!coll_gpusym_hosts_lock(t)) {
        return 0;
    }
    const int rc = poll_legs(r);
    coll_gpusym_hosts_unlock(t);
    return rc;
}

void coll_gpusym_rails_release(coll_gpusym_rails_t *r)
{
    const coll_gpusym_rails_plan_t *p = r->plan;
    for (uint32_t i = 0; i < r->begun; i++) {
        gpusym_rail_release(coll_gpusym_hosts_rail(p->team, p->leg[i].rail));
    }
    r->held = false;
}

bool coll_gpusym_rails_drop(coll_gpusym_rails_t *r)
{
    const coll_gpusym_rails_plan_t *p = r->plan;
    bool dropped = true;
    if (!coll_gpusym_hosts_lock(p->team)) {
        return false;
    }
    for (uint32_t i = 0; i < r->begun; i++) {
        dropped = gpusym_rail_drop(coll_gpusym_hosts_rail(p->team, p->leg[i].rail)) && dropped;
    }
    coll_gpusym_hosts_unlock(p->team);
    return dropped;
}

void coll_gpusym_rails_end(coll_gpusym_rails_t *r)
{
    coll_gpusym_rails_free(r->plan);
    r->plan = NULL;
}
