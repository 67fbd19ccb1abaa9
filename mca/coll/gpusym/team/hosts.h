/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the ranks of a communicator of several islands share beyond their island, from its bootstrap to its end:
 * addresses (worker.h), agreement on calls (islands.h), the watch over each other (watch.h), rails (rails.h).
 */
#ifndef MCA_COLL_GPUSYM_TEAM_HOSTS_H
#define MCA_COLL_GPUSYM_TEAM_HOSTS_H

#include "mca/coll/gpusym/team/state.h"
#include "mca/coll/gpusym/team/worker.h"

/* Begins the agreement between the islands. cards: of all ranks of the communicator, owned from now on. Every rank has
 * a net. GPUSYM_SUCCESS, or this rank cannot take part: GPUSYM_ERR_UNREACHABLE: the network does not lead to another
 * leader; GPUSYM_ERR_NOT_AVAILABLE: no thread that answers for it can be started. */
int coll_gpusym_hosts_open(coll_gpusym_team_t *t, coll_gpusym_host_card_t *cards);
/* Takes memory of the net for this rank's rails, and opens them. Returns COLL_GPUSYM_HOSTS_RAILS, COLL_GPUSYM_HOSTS_ALL
 * of rails.h, for those it has. */
unsigned coll_gpusym_hosts_reserve(coll_gpusym_team_t *t);
/* Before the team is freed. used: all ranks have opened it: the net still answers for it. */
void coll_gpusym_hosts_close(coll_gpusym_team_t *t, bool used);

/* At the end of the process: no communicator is left. Closes its net. */
void coll_gpusym_hosts_fini(void);

#endif
