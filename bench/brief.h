/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The table that gpusym_bench prints without arguments: the usual collectives at a few sizes, beside NCCL.
 */
#ifndef BENCH_BRIEF_H
#define BENCH_BRIEF_H

#include <stdbool.h>
#include <stddef.h>

#include "bench/ways.h"

/* Bytes of the largest message; with_gpu: not on the simulator. */
size_t bench_brief_max(bool with_gpu);

/* Measures, between bench_ways_open() and bench_ways_close(), and prints; `batches` a measurement. Returns the wrong
 * elements of all results. Collective. */
unsigned long long bench_brief(bool with_gpu, int batches);

#endif
