/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The processes of MPI jobs on this host that use gpusym, as /proc shows them. None is stopped, and none gets a signal.
 */
#ifndef INFO_RANKS_H
#define INFO_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "mca/common/gpusym/shm/pages.h"

/* One process. */
typedef struct {
    int32_t pid;
    int world_rank;      /* in MPI_COMM_WORLD of its job; -1: not known */
    char job[128];       /* alike in all processes of a job */
    char command[32];    /* its name */
    char state;          /* as in /proc/PID/stat: R, S, D, T, Z; ?: not known */
    gpusym_look_t look;  /* its pages; closed: it has not called a collective with other ranks yet */
    double shared_bytes; /* host memory that gpusym has taken there by files that it shares */
} info_rank_t;

typedef struct {
    info_rank_t *rank;
    unsigned n;
} info_ranks_t;

/*
 * Finds the processes of one job, sorted by their ranks; the caller frees them.  pid: of one of them, or of a process
 * that has started them (mpirun); NULL: of this user's only job here.  Returns NULL, or what is wrong, valid until the
 * next call; *several: because there are several jobs, whose processes have then been found.
 */
const char *info_ranks_find(const char *pid, info_ranks_t *ranks, bool *several);
void info_ranks_free(info_ranks_t *ranks);

#endif
