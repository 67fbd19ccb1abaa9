/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rounds of a random program in one process, each with a seed of its own, and whether what the process holds of the
 * system stays what it is:
 *
 *     --soak ROUNDS    (default: 1, of which nothing is judged but results)
 *     --leak heap|resident|mapping|descriptor|device    each round keeps some: the program must fail
 *
 * Judged are memory that the program and gpusym have of the C library, where test/mpi/held.c is loaded, resident
 * memory, mappings, descriptors and memory of the simulated GPU: median and least of what rounds of the last third held
 * by those of the second third, where both have risen. Caches grow in the first.
 */
#ifndef TEST_MPI_SOAK_H
#define TEST_MPI_SOAK_H

#include <stdbool.h>
#include <stdint.h>

#define SOAK_USAGE "[--soak ROUNDS] [--leak heap|resident|mapping|descriptor|device]"
#define SOAK_LEAST 6 /* rounds of which usage is judged */

typedef struct soak soak_t;

/* Takes both options: before check_arguments_end. The first round has that seed. Owned by the caller until soak_end. */
soak_t *soak_begin(const char *name, uint64_t seed);
/* Of the next round. The same on all ranks. */
uint64_t soak_seed(const soak_t *s);
/* Collective over MPI_COMM_WORLD: a round of so many operations has ended, with so many checks right and wrong at its
 * rank 0. False: that was the last. */
bool soak_next(soak_t *s, long operations, long passed, long failed);
/* Collective over MPI_COMM_WORLD. Judges, prints "NAME: N passed, M failed" of the checks and, of several rounds, what
 * they held. Returns the failures, one more where that has grown, alike on every rank; frees s. */
long soak_end(soak_t *s);

#endif
