/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The rules of a communicator (tuning/rules.h): every rank opens its own, and these hold only if all have the same.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_RULES_H
#define MCA_COLL_GPUSYM_TEAM_RULES_H

#include "mca/coll/gpusym/team/state.h"

/* Opens the rules for this rank's GPU. Returns their hash, to be sent to all ranks; 0: there are none. Rank 0 reports
 * to the user if its file cannot be read. */
uint64_t coll_gpusym_rules_open(coll_gpusym_team_t *t, const char *gpu, int cc);
/* hash: of rank 0; those of the other ranks follow, `stride` bytes apart. Drops the rules where they differ, which rank
 * 0 reports to the user. */
void coll_gpusym_rules_agree(coll_gpusym_team_t *t, const uint64_t *hash, size_t stride);
/* With the links agreed on: the rules hold from now on. */
void coll_gpusym_rules_settle(coll_gpusym_team_t *t);

#endif
