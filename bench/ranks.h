/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The ranks of a measuring program, and what they tell each other. One thread, no collective of MPI but MPI_Barrier:
 * nothing that is to be measured is set up by the measuring.
 */
#ifndef BENCH_RANKS_H
#define BENCH_RANKS_H

#include <mpi.h>
#include <stdbool.h>

/* Exit statuses beside 0 and 1 (wrong results). */
enum { BENCH_USAGE = 2, BENCH_NOT_SETTABLE = 3 /* MPI_T refuses to set parameters */, BENCH_SKIP = 77 };

/* Of MPI_COMM_WORLD; set by bench_init(). */
extern int bench_rank, bench_ranks;
/* Of this program's own messages and barriers; from bench_start() on. */
extern MPI_Comm bench_world;

/* A line on stderr and the end of the job. */
__attribute__((format(printf, 1, 2), noreturn)) void bench_die(const char *format, ...);

/* Wrong arguments, which all ranks have: a text on stderr, once, MPI_Finalize, and exit status BENCH_USAGE. Before
 * bench_start(); collective. */
__attribute__((format(printf, 1, 2), noreturn)) void bench_refuse(const char *format, ...);

/* Collective exchanges of one number: every rank gets the maximum, or the sum, of all ranks' values; whether all say
 * yes. bench_share(): rank 0's bytes to all. */
double bench_max(double value);
double bench_sum(double value);
bool bench_agree(bool yes);
void bench_share(void *data, int bytes);

#endif
