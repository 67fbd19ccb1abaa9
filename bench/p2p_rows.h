/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of messages: one row a measurement.
 */
#ifndef BENCH_P2P_ROWS_H
#define BENCH_P2P_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "bench/exchange.h"

#define BENCH_P2P_WAY_BYTES 128

typedef struct {
    const char *what;
    int from, to;                      /* ranks; negative: of all ranks */
    size_t bytes;                      /* of a message; 0: of no message */
    int from_kind, to_kind;            /* of their memory, as test/mpi/mem.h counts; -1: of none */
    bench_speed_t speeds[BENCH_BYS];   /* us negative: not measured */
    double amount;                     /* of what is no time; negative: none */
    const char *unit;                  /* of amount; "" without */
    char way[2 * BENCH_P2P_WAY_BYTES]; /* how the sender and the receiver count these messages */
} bench_p2p_row_t;

/* An empty row. */
bench_p2p_row_t bench_p2p_row(const char *what, int from, int to, size_t bytes);

/* The head of the table. judged: whether the goals are those of this machine; resident: whether resident kernels copy
 * small messages. */
void bench_p2p_head(bool judged, bool resident);

/* Rank 0 prints a row; ignored on other ranks. Returns the wrong bytes in it. */
unsigned long long bench_p2p_print(const bench_p2p_row_t *row);

#endif
