/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * An arena: hands out ranges of [0, size), first fit, and merges freed neighbours.  Not thread-safe.
 */
#ifndef GPUSYM_COMMON_SHM_ARENA_H
#define GPUSYM_COMMON_SHM_ARENA_H

#include <stdint.h>

typedef struct gpusym_arena gpusym_arena_t;

/* Makes an arena of size bytes whose ranges begin at multiples of align (a power of two).  The caller destroys it.
 * NULL: there is no host memory. */
gpusym_arena_t *gpusym_arena_create(uint64_t size, uint64_t align);
/* Frees an arena, with all of its ranges.  NULL is accepted. */
void gpusym_arena_destroy(gpusym_arena_t *arena);
/* Allocates a range of `size` bytes, rounded up to align, at *off.  GPUSYM_ERR_NO_MEMORY: none is free;
 * GPUSYM_ERR_BAD_PARAM: size is 0. */
int gpusym_arena_alloc(gpusym_arena_t *arena, uint64_t size, uint64_t *off);
/* Frees the range at off.  GPUSYM_ERR_BAD_PARAM: there is no such range. */
int gpusym_arena_free(gpusym_arena_t *arena, uint64_t off);
/* Gives up all behind the first `size` bytes.  GPUSYM_ERR_BAD_PARAM: some of that is used; nothing has changed. */
int gpusym_arena_cut(gpusym_arena_t *arena, uint64_t size);

#endif
