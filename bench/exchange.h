/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages between two ranks, again and again: by MPI, and by NCCL. The other ranks take part in nothing but barriers.
 */
#ifndef BENCH_EXCHANGE_H
#define BENCH_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>

#define BENCH_WINDOW 64 /* messages of a window */

/* How messages follow each other. */
typedef enum {
    BENCH_PINGPONG,  /* there, and back when it has arrived: MPI_Send, MPI_Recv */
    BENCH_ONEWAY,    /* from `from` to `to`: MPI_Send, MPI_Recv */
    BENCH_WINDOW_OF, /* the same, BENCH_WINDOW messages at once: MPI_Isend, MPI_Irecv, MPI_Waitall */
    BENCH_BOTH,      /* in both directions at once: MPI_Isend, MPI_Irecv, MPI_Waitall */
    BENCH_FORMS
} bench_form_t;

/* By what. */
typedef enum {
    BENCH_BY_MPI,
    BENCH_BY_NCCL,   /* ncclSend, ncclRecv; both ranks wait for their stream at each message, or window: only then may a
                      * program touch the data */
    BENCH_BY_STREAM, /* the same, one behind the other on the stream, without waiting */
    BENCH_BYS
} bench_by_t;

typedef struct {
    bench_form_t form;
    bench_by_t by;
    int from, to;   /* ranks of MPI_COMM_WORLD */
    size_t bytes;   /* of a message: a multiple of 4 */
    char *out, *in; /* this rank's: what it sends, message k of a window at k * bytes; what it receives, likewise */
} bench_exchange_t;

typedef struct {
    double us;                /* of one message; of a window: its time / BENCH_WINDOW. Median; negative: not measured */
    double gbs;               /* 10^9 bytes per second, of all messages, in all directions */
    unsigned long long wrong; /* bytes of wrong words of 4 bytes, over all ranks */
} bench_speed_t;

/* Bytes of `out` and `in`. */
size_t bench_exchange_size(bench_form_t form, size_t bytes);

/* Fills what a rank sends, with a content of that rank: `size` bytes at `out`. Once; it fits every exchange. */
void bench_exchange_fill(char *out, size_t size);

/* Measures an exchange: one, whose result is compared, then batches, of which the last is compared. Collective, on all
 * ranks. Nothing is measured, and us is negative, where there is no NCCL. */
bench_speed_t bench_exchange_measure(bench_exchange_t *e, int batches);

/* The first one: us is the time of this one call. */
bench_speed_t bench_exchange_once(bench_exchange_t *e);

/* A while, so that the first measurement does not pay for coming out of idleness. Collective. */
void bench_exchange_warm_up(bench_exchange_t *e);

/* n exchanges, not timed and not compared. Every rank, but without a barrier. */
void bench_exchange_repeat(bench_exchange_t *e, size_t n);

#endif
