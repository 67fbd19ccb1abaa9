/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the measuring programs share: options, the device, the files.
 */
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include <stdbool.h>
#include <stddef.h>

#include "bench/output.h"
#include "bench/ranks.h"

#define BENCH_LIST_MAX 64 /* items of an option's list */

/* This process's number on its host. Collective. */
int bench_rank_on_host(void);

/* MPI_Init, and remembers the command line before getopt sorts it. */
void bench_init(int *argc, char ***argv);

/* Prints program and version, and ends the process, if "--version" is among the arguments. Before bench_init(). */
void bench_version(const char *program, int argc, char **argv);
/* Returns the device that this mpirun's gpusym serves, by coll_gpusym_device: "cuda", "sim", or "host" where that is
 * none. The default of --device. After bench_init(). */
const char *bench_device(void);

/* An entry of options.def as one of getopt_long's, and as a statement that prints it for --help. */
#define BENCH_GETOPT(name, argument, letter, text) {name, sizeof(argument) > 1, NULL, letter},
#define BENCH_PRINT(name, argument, letter, text) bench_print_option(name, argument, text);
void bench_print_option(const char *name, const char *argument, const char *text);

/* The options that all have. bench_common_option() takes one; false: it is none of these. */
typedef struct {
    const char *device;     /* "cuda", "sim", or "host": ordinary memory, no GPU */
    const char *csv, *json; /* files; NULL: none */
    size_t min, max, step;  /* sizes in bytes; a factor */
    int batches;            /* a measurement */
} bench_common_t;
bool bench_common_option(bench_common_t *common, int c, char *value, const char *usage);
/* Whether they can be, for elements of so many bytes. */
bool bench_common_good(const bench_common_t *common, size_t element);

/* Opens the device, of GPU number `rank on its host`, and the files. Collective. Ends the job where the device is not
 * there or a file cannot be written. `bench` is the program's name as the files tell it, `what` one line on what it
 * measures. */
void bench_start(const char *bench, const bench_common_t *common, const char *what);

/* Closes what the two above have opened, then MPI_Finalize. Collective. */
void bench_end(void);

/* "64", "4k", "1m", "2g"; ends the job if it is none, showing `usage`. */
size_t bench_number(const char *text, const char *usage);
/* Cuts a list at its commas, in place; returns how many items there are, at least 1. */
int bench_cut(char *list, const char *items[BENCH_LIST_MAX], const char *usage);

#endif
