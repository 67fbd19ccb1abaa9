/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What this process holds of the system: whether what was made and freed many times has left something behind.
 */
#ifndef TEST_MPI_USAGE_H
#define TEST_MPI_USAGE_H

#include <stdbool.h>

typedef struct {
    long fds;   /* open descriptors */
    long maps;  /* mappings */
    long bytes; /* resident memory */
} usage_t;

usage_t usage_now(void);
/* Whether nothing but slack was added from before to after; if not, says what, in the name of a test. */
bool usage_same(const char *name, int rank, const usage_t *before, const usage_t *after);

#endif
