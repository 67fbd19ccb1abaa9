/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym's performance variables, read to say which algorithm ran, or which way messages took.
 */
#ifndef BENCH_COUNTERS_H
#define BENCH_COUNTERS_H

#include <stddef.h>

/* After MPI_Init, once; and before MPI_Finalize. */
void bench_counters_open(void);
void bench_counters_close(void);

/* Of which collective, by its name in gpusym's variables ("reduce_scatter_block"); returns how many variables it has, 0
 * where gpusym was not selected or does not count that collective. */
int bench_counters_of(const char *collective);
/* The same of messages of this process, direction "sent" or "received": "direct", "staged". */
int bench_counters_of_messages(const char *direction);
/* From now on; what has risen since then: "agxll_r", "staged:mixed", several with + between them, "" if nothing. This
 * rank's. */
void bench_counters_start(void);
void bench_counters_say(char *text, size_t size);

#endif
