/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The native way of a communicator.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_WAYS_H
#define MCA_COLL_GPUSYM_EXEC_WAYS_H

#include "mca/coll/gpusym/exec/way.h"

/* Returns the way that a native call goes now, the same on all ranks: the set-up, or an earlier call, may have changed
 * it. task: of a call that all ranks have posted; NULL: it is not posted yet, and may go another way then. No call is
 * posted, or the team has just been set up. */
const coll_gpusym_way_t *coll_gpusym_native_way(coll_gpusym_engine_t *e, const coll_gpusym_task_t *task);

#endif
