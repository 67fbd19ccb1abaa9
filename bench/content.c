/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Inputs, and the check of results: see content.h.
 */
#include <stdint.h>
#include <string.h>

#include "bench/collectives.h"
#include "bench/content.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "test/mpi/mem.h"

#define PIECE ((size_t) 1 << 20) /* bytes made or verified at once on the host */

static uint32_t seed;
static void *piece;

void bench_content_open(void)
{
    piece = bench_host_alloc(PIECE);
}

void bench_content_close(void)
{
    bench_host_free(piece);
    piece = NULL;
}

void bench_content_seed(unsigned new_seed)
{
    seed = new_seed;
}

/* 32 random bits of element i. */
static uint32_t bits_of(size_t i, int group)
{
    uint32_t h = ((uint32_t) i + (uint32_t) group * 0x51ed270bu) * 0x9e3779b1u + seed;

    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    return h ^ (h >> 16);
}

/* Four bits for each rank of a group of eight. */
static int nibble(uint32_t bits, int r)
{
    return (int) (bits >> (4 * (r % 8)) & 15) - 8;
}

double bench_term_of(size_t i, int r)
{
    return nibble(bits_of(i, r / 8), r);
}

double bench_value_of(size_t i, int r)
{
    return bits_of(i, r) & 0xffffff;
}

double bench_sum_of(size_t i)
{
    uint32_t bits = 0;
    int sum = 0;

    for (int r = 0; r < bench_ranks; r++) {
        bits = 0 == r % 8 ? bits_of(i, r / 8) : bits;
        sum += nibble(bits, r);
    }
    return sum;
}

void bench_content_write(void *p, size_t n, bool is_double, double (*content)(size_t i, int r))
{
    const size_t size = is_double ? sizeof(double) : sizeof(float), most = PIECE / size;

    for (size_t first = 0, part; first < n; first += part) {
        part = n - first < most ? n - first : most;
        for (size_t i = 0; i < part; i++) {
            double value = content(first + i, bench_rank);

            if (is_double) {
                ((double *) piece)[i] = value;
            } else {
                ((float *) piece)[i] = (float) value;
            }
        }
        mem_write((char *) p + first * size, piece, part * size);
    }
}

void bench_content_poison(void *p, size_t bytes)
{
    memset(piece, 0xff, PIECE);
    for (size_t at = 0; at < bytes; at += PIECE) {
        mem_write((char *) p + at, piece, bytes - at < PIECE ? bytes - at : PIECE);
    }
}

void bench_content_copy(void *p, const void *from, size_t bytes)
{
    mem_write(p, from, bytes);
}

unsigned long long bench_content_wrong(const void *p, size_t n, bool is_double,
                                       double (*expected)(size_t i, size_t count), size_t count)
{
    const size_t size = is_double ? sizeof(double) : sizeof(float), most = PIECE / size;
    unsigned long long wrong = 0;

    for (size_t first = 0, part; first < n; first += part) {
        part = n - first < most ? n - first : most;
        mem_read(piece, (const char *) p + first * size, part * size);
        for (size_t i = 0; i < part; i++) {
            double got = is_double ? ((const double *) piece)[i] : (double) ((const float *) piece)[i];

            wrong += !(got == expected(first + i, count));
        }
    }
    return wrong;
}
