/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a call of a communicator of several islands is for its rails (rail/rail.h).
 *
 * A message that goes to all, or is reduced, is divided among the rails: the owner of a rail loads the inputs of all
 * members of its island, and stores to all of their outputs. What is of one rank goes by the rail of that rank, and
 * what goes from each rank to each by the rail among all ranks.
 */
#ifndef MCA_COLL_GPUSYM_PLAN_RAILS_H
#define MCA_COLL_GPUSYM_PLAN_RAILS_H

#include "mca/coll/gpusym/plan/zero_copy.h"
#include "mca/common/gpusym/rail/call.h"

/* Rails that a rank uses in a call, at most: those that it owns. */
#define COLL_GPUSYM_LEGS_MAX GPUSYM_TEAM_MAX

typedef struct coll_gpusym_rails_plan coll_gpusym_rails_plan_t;

/* This rank's part in a call on one rail. */
typedef struct {
    const coll_gpusym_rails_plan_t *plan;
    uint32_t rail; /* as of coll_gpusym_hosts_rail() */
    gpusym_rail_call_t call;
} coll_gpusym_leg_t;

struct coll_gpusym_rails_plan {
    const coll_gpusym_team_t *team;
    bool direct;             /* no leg goes along a path: it may begin before the islands have agreed */
    gpusym_table_row_t *row; /* [ranks of the communicator] what goes between this rank and each; NULL: not needed */
    uint32_t nlegs;
    coll_gpusym_leg_t leg[COLL_GPUSYM_LEGS_MAX];
    /* The members' buffers, in their order; of a broadcast the root's as the one input. Of a scan all, with those that
     * are not there; of others those that are. */
    uint32_t nin, nout;
    const void *in[GPUSYM_TEAM_MAX];
    void *out[GPUSYM_TEAM_MAX];
    /* The same at the slices of a message, [leg][further buffer]. */
    const void *more_in[COLL_GPUSYM_LEGS_MAX][GPUSYM_TEAM_MAX];
    void *more_out[COLL_GPUSYM_LEGS_MAX][GPUSYM_TEAM_MAX];
};

/* Whether rails do such calls. The same on all ranks. */
bool coll_gpusym_rails_may(const coll_gpusym_args_t *a);
/* Whether the rails that all members have can do this call of an island whose ranks are all native. All entries have
 * been read. */
bool coll_gpusym_rails_can(const coll_gpusym_task_t *task);
/* Makes the plan of a call that all islands do; all: the members' buffers. NULL: no memory. The caller frees it, once
 * the calls of its legs have ended. */
coll_gpusym_rails_plan_t *coll_gpusym_rails_make(const coll_gpusym_task_t *task, const coll_gpusym_led_buffers_t *all);
void coll_gpusym_rails_free(coll_gpusym_rails_plan_t *plan);

#endif
