/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How to call gpusym_bench, from options.def.
 */
#ifndef BENCH_USAGE_H
#define BENCH_USAGE_H

/* The command lines, a line each. */
extern const char bench_usage[];

/* Prints what --help prints: these, and every option. */
void bench_help(void);

#endif
