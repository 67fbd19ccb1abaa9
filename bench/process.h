/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What this process holds.
 */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include <stddef.h>

/* Bytes of memory that are resident, of all kinds, and open descriptors; 0 where /proc does not tell. */
size_t bench_resident_memory(void);
size_t bench_open_descriptors(void);

#endif
