/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the ranks of a running job do, and for whom they wait: read from the pages that they share, without stopping
 * them.
 */
#ifndef INFO_JOB_H
#define INFO_JOB_H

#include "info/item.h"

/* Adds what is known of a job's processes on this host. pid: as of info_ranks_find() (ranks.h). NULL, or what is wrong,
 * valid until the next call: then there is nothing to print, but a list of jobs if there are several. */
const char *info_job_tell(info_item_t *root, const char *pid);

#endif
