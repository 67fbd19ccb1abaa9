/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The tuner plug-in of a communicator (tuning/gpusym_tuner.h): every rank loads it; rank 0 asks it, once for each
 * collective, type, operation and size class, and tells the others, by one exchange in the first such call. Answers are
 * kept, the same on all ranks.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_TUNER_H
#define MCA_COLL_GPUSYM_TEAM_TUNER_H

#include "mca/coll/gpusym/team/state.h"

/* Loads the plug-in that coll_gpusym_tuner names. Returns a hash of its name, to be sent to all ranks; 0: there is
 * none, which each rank reports if one is named. gpu, cc: of this rank's GPU. */
uint64_t coll_gpusym_tuner_open(coll_gpusym_team_t *t, const char *gpu, int cc);
/* hash: of rank 0; those of the other ranks follow, `stride` bytes apart. Drops the plug-in where they differ, which
 * rank 0 reports. */
void coll_gpusym_tuner_agree(coll_gpusym_team_t *t, const uint64_t *hash, size_t stride);
/* With the links agreed on: initializes it, on rank 0. */
void coll_gpusym_tuner_settle(coll_gpusym_team_t *t);

/* Makes sure of the answer for such a call, agreed: of `bytes` in the longest segment, or the message. 1: it is there;
 * 0: the ranks exchange it; negative: that failed. Never waits. The team has a tuner. */
int coll_gpusym_tuner_need(coll_gpusym_team_t *t, unsigned coll, unsigned op, unsigned type, uint64_t bytes);
/* Adds the answer, if a call can follow it, to what the user forces. */
void coll_gpusym_tuner_apply(const coll_gpusym_team_t *t, const gpusym_tuning_call_t *call,
                             gpusym_tuning_forced_t *forced);
/* Finalizes it; NULL is fine. */
void coll_gpusym_tuner_free(coll_gpusym_tuner_t *tuner);

#endif
