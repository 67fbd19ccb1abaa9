/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym's parameters, set between calls: MPI_T control variables of type int. MPI_T is open: bench_counters_open().
 */
#ifndef BENCH_VARIABLE_H
#define BENCH_VARIABLE_H

#include <limits.h>
#include <mpi.h>
#include <stdbool.h>

/* Left as it is: choices of an algorithm may be negative. */
#define BENCH_AS_IT_IS INT_MIN

typedef struct {
    char name[128]; /* "coll_gpusym_linger"; by the caller, before bench_variable_open() */
    MPI_T_cvar_handle handle;
    MPI_T_enum choices;
} bench_variable_t;

/* Ends the job where there is no such variable. To be closed. */
void bench_variable_open(bench_variable_t *v);
void bench_variable_close(bench_variable_t *v);
/* Sets *value to that of a name in an enumerated variable; false if it has no such name. */
bool bench_variable_choice(const bench_variable_t *v, const char *wanted, int *value);
/* On every rank, collective. Returns whether MPI_T has set it, and reads it back to see; says in a comment line if not.
 */
bool bench_variable_set(const bench_variable_t *v, int value);

/* The value of a variable by name, as this rank has it; `otherwise` where there is no such variable. */
int bench_variable_value(const char *name, int otherwise);

#endif
