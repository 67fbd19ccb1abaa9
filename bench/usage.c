/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How to call gpusym_bench: see usage.h.
 */
#include "bench/usage.h"

#include <stdio.h>

#include "bench/job.h"

const char bench_usage[] =
#define BENCH_LINE(arguments, text) "gpusym_bench " arguments "\n       "
#include "bench/options.def"
    "gpusym_bench --help, --version";

void bench_help(void)
{
    puts("usage:");
#define BENCH_LINE(arguments, text) puts("  gpusym_bench " arguments "\n      " text);
#include "bench/options.def"
    puts("\nOptions:");
#define BENCH_INFO BENCH_PRINT
#define BENCH_COMMON BENCH_PRINT
#define BENCH_TABLES BENCH_PRINT
#include "bench/options.def"
    puts("\nOptions of collectives:");
#define BENCH_COLL BENCH_PRINT
#include "bench/options.def"
    puts("\nOptions of sweeps:");
#define BENCH_SWEEP BENCH_PRINT
#include "bench/options.def"
    puts("\nOptions of gpusym_bench p2p:");
#define BENCH_P2P BENCH_PRINT
#include "bench/options.def"
}
