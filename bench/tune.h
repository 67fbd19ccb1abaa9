/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Tuning: which algorithm, blocks, threads, and resident kernels or not, are best for one message; and the file of
 * rules that says so.
 */
#ifndef BENCH_TUNE_H
#define BENCH_TUNE_H

#include <stdbool.h>
#include "bench/collectives.h"
#include "bench/variable.h"

/* What is forced; -1: as the table has it. */
typedef struct {
    int algorithm; /* enum gpusym_algorithm */
    int blocks, threads;
    int resident_max; /* coll_gpusym_resident_max */
} bench_setting_t;

extern const bench_setting_t bench_table; /* nothing is forced */

/* A message that is measured, and what was found. */
typedef struct {
    const bench_coll_t *coll;
    size_t count, bytes;
    bool measured, served; /* served: by kernels, of algorithms that can be forced */
    bench_setting_t best;  /* bench_table: nothing is better */
    double table_us, us;   /* side by side: by the table, and so */
    bool again;            /* ... and after the file had been written, of which: */
    double table_again, rules_again;
} bench_point_t;

/* The variables of one collective; MPI_T is open. Ends the job where they cannot be set. */
void bench_tune_open(const bench_coll_t *coll);
void bench_tune_close(void);

/* Measures a point, until `deadline` (MPI_Wtime(), rank 0's) at about: fills in all up to us. margin: a setting must be
 * so much faster than the table, 0.03. Collective. */
void bench_tune_point(bench_point_t *p, double margin, double deadline);
/* Measures it by the table, and by the rules of `ruled`, a communicator like MPI_COMM_WORLD. Returns whether the rules
 * can stay: the point's algorithm ran, gave the right result, and took at most 1/0.98 of the table's time. */
bool bench_tune_again(bench_point_t *p, MPI_Comm ruled);

/* The GPUs that were measured. */
typedef struct {
    char name[64];
    int cc;
    bool nvlink; /* between each two */
} bench_gpus_t;

/* Writes the rules of n points, by collective and rising bytes, to a file, which it replaces at the end. Returns how
 * many rules; -1: errno says why not. */
int bench_tune_write(const char *path, const bench_point_t *point, unsigned n, const bench_gpus_t *gpus);

#endif
