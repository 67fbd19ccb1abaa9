/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What stands in the buffers: a pure function of (seed, element, rank), whole numbers. Terms of sums are from -8 to 7,
 * so that every order of summing gives the same sum exactly; values that are only moved have 24 bits, so that one in
 * the wrong place is seen.
 */
#ifndef BENCH_CONTENT_H
#define BENCH_CONTENT_H

#include <stdbool.h>
#include <stddef.h>

/* Of all that follows. */
void bench_content_seed(unsigned seed);
/* Element i of rank r's input; the sum of all ranks' terms i. */
double bench_term_of(size_t i, int r);
double bench_value_of(size_t i, int r);
double bench_sum_of(size_t i);

/* n elements of memory of any kind, through a piece of host memory that bench_content_open() makes
 * (collectives.h): our rank's input; NaNs; those that are not as expected(i, count) says. */
void bench_content_write(void *p, size_t n, bool is_double, double (*content)(size_t i, int r));
void bench_content_poison(void *p, size_t bytes);
void bench_content_copy(void *p, const void *from, size_t bytes);
unsigned long long bench_content_wrong(const void *p, size_t n, bool is_double,
                                       double (*expected)(size_t i, size_t count), size_t count);

#endif
