/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A call of several islands on this rank's rails.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_RAILS_H
#define MCA_COLL_GPUSYM_EXEC_RAILS_H

#include "mca/coll/gpusym/plan/rails.h"

/* A plan in progress. Zeroed before its first use. */
typedef struct {
    coll_gpusym_rails_plan_t *plan; /* owned; NULL: none */
    uint32_t begun;                 /* legs */
    uint32_t ended;                 /* of them, as bits */
    bool held;                      /* no output is written before coll_gpusym_rails_release */
} coll_gpusym_rails_t;

/* Moves all legs on; the first poll begins them. 1: they have ended; 0: they are under way; negative: an error, as
 * gpusym_rail_poll. Never waits. */
int coll_gpusym_rails_poll(coll_gpusym_rails_t *r);
/* Lets a held plan go on to its end. */
void coll_gpusym_rails_release(coll_gpusym_rails_t *r);
/* Gives up a held plan, as all ranks do. Whether no kernel of it runs any more. Its messages may be under way until the
 * next plan begins: a rank that waits for this one in the fallback takes none of them. Never waits. */
bool coll_gpusym_rails_drop(coll_gpusym_rails_t *r);
/* Frees the plan: its legs have ended or been given up, or the rails been stopped
 * (coll_gpusym_hosts_stop). */
void coll_gpusym_rails_end(coll_gpusym_rails_t *r);

#endif
