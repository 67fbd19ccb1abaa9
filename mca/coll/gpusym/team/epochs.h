/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The epochs of a team, by which its kernels tell new flags and lines from old ones.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_EPOCHS_H
#define MCA_COLL_GPUSYM_TEAM_EPOCHS_H

#include "mca/coll/gpusym/team/state.h"

/* Takes `epochs` epochs for the call in flight, as many on all ranks. 1: *first is the first one; 0: the counter would
 * wrap, and the slots are being cleared: to be called again; negative: that failed. Waits for no rank. */
int coll_gpusym_team_epochs(coll_gpusym_team_t *team, uint64_t epochs, uint32_t *first);

#endif
