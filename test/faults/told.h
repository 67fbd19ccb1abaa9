/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How ranks tell each other, without MPI, that they have come to a point: by files in GPUSYM_FAULTS, which
 * test/faults/faults.sh sets. To be included in one file of a program.
 */
#ifndef TEST_FAULTS_TOLD_H
#define TEST_FAULTS_TOLD_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *told_path(int rank)
{
    static char path[4096];
    const char *dir = getenv("GPUSYM_FAULTS");
    snprintf(path, sizeof path, "%s/told.%d", NULL != dir ? dir : ".", rank);
    return path;
}

static void tell(int rank)
{
    FILE *f = fopen(told_path(rank), "w");
    if (NULL == f || 0 != fclose(f)) {
        fprintf(stderr, "cannot write %s\n", told_path(rank));
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
}

/* Waits until `least` of nranks ranks have told. */
static void wait_for_told(int nranks, int least)
{
    int told;
    do {
        usleep(1000);
        told = 0;
        for (int r = 0; r < nranks; r++) {
            told += 0 == access(told_path(r), F_OK);
        }
    } while (told < least);
}

#endif
