/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * An arena: ranges of [0, size), first fit, neighbours merged when freed. Not thread-safe.
 */
#ifndef GPUSYM_COMMON_SHM_ARENA_H
#define GPUSYM_COMMON_SHM_ARENA_H

#include <stdint.h>

typedef struct gpusym_arena gpusym_arena_t;

/* size bytes, ranges begin at multiples of align (a power of two). NULL if there is no memory. */
gpusym_arena_t *gpusym_arena_create(uint64_t size, uint64_t align);
void gpusym_arena_destroy(gpusym_arena_t *arena);
/* A range of `size` bytes (rounded up to align) at *off. GPUSYM_ERR_NO_MEMORY if none is free. */
int gpusym_arena_alloc(gpusym_arena_t *arena, uint64_t size, uint64_t *off);
/* Gives back a range by its offset. GPUSYM_ERR_BAD_PARAM: no such range. */
int gpusym_arena_free(gpusym_arena_t *arena, uint64_t off);

#endif
