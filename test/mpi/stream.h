/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A stream of random numbers of a seed: the same on every rank that began with the same seed.
 */
#ifndef TEST_MPI_STREAM_H
#define TEST_MPI_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "test/mpi/ref.h"

typedef struct {
    uint64_t seed, n;
} stream_t;

static inline uint64_t stream_next(stream_t *s)
{
    return ref_mix(s->seed + ref_mix(s->n++));
}

/* 0 .. n - 1 */
static inline uint64_t stream_below(stream_t *s, uint64_t n)
{
    return stream_next(s) % n;
}

/* 1 .. most, each power of two as likely as the others. */
static inline size_t stream_log_uniform(stream_t *s, size_t most)
{
    unsigned bits = 0;
    size_t n;

    while (most >> bits > 1) {
        bits++;
    }
    n = (size_t) 1 << stream_below(s, bits + 1);
    n += stream_below(s, n);
    return n > most ? most : n;
}

#endif
