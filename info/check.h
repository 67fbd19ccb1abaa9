/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The check of a job's GPUs and links.
 */
#ifndef INFO_CHECK_H
#define INFO_CHECK_H

#include "info/item.h"

/* Initialises MPI, and checks messages between all pairs of ranks, and all-reduces, on GPU memory. On rank 0 adds what
 * was found to a group. Returns whether all is right, the same on all ranks. Ends the job, with exit status 2, where
 * there is nothing to check. Collective, as is info_check_end(), which finalises MPI. */
bool info_check(info_item_t *root);
void info_check_end(void);

#endif
