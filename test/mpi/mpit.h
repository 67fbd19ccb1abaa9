/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The component's variables by name, as a tool would use them: MPI_T's control variables (written between calls, on all
 * ranks alike) and performance variables (read).
 *
 * All functions are for one thread at a time, between MPI_Init and MPI_Finalize. MPI_T is started at the first call and
 * left on.
 */
#ifndef TEST_MPI_MPIT_H
#define TEST_MPI_MPIT_H

#include <stdbool.h>

#include "kernels/kernels.h"

/* Writes a control variable that is a number: "coll_gpusym_chunk". False: there is none of that name that can be
 * written so. */
bool mpit_set(const char *name, unsigned value);
/* The same for one of some words: "coll_gpusym_bcast_algorithm", "st". */
bool mpit_choose(const char *name, const char *word);
/* Reads a control variable that is a number or a flag. False: there is none. */
bool mpit_get(const char *name, unsigned *value);
/* Reads a counter of the component, "coll_gpusym_bcast_native_st": what it has risen since the first time it was read
 * here. False: there is none. */
bool mpit_counter(const char *name, unsigned long long *value);

/* The algorithms as these variables name them ("st", of GPUSYM_COLL_BCAST, by the code GPUSYM_F_RSXST_AGXST), by their
 * numbers in kernels.h. */
extern const struct mpit_algorithm {
    const char *name;
    enum gpusym_collective coll;
    enum gpusym_family family;
} mpit_algorithms[GPUSYM_ALG_COUNT];

/* Those of a collective ("bcast"), in short; no such variable ends the job with a line on stderr. */
void mpit_algorithm(const char *coll, const char *word);
unsigned long long mpit_count(const char *coll, const char *which); /* "native_st", "staged" */
/* mpit_set that ends the job with a line on stderr. */
void mpit_need(const char *name, unsigned value);

#endif
