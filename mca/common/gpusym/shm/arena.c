/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranges: see arena.h.
 */
#include "mca/common/gpusym/shm/arena.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/log.h"

/* An array of ranges that covers [0, size) without gaps, in rising order. */
typedef struct {
    uint64_t off, size;
    bool used;
} range_t;

struct gpusym_arena {
    uint64_t align;
    range_t *range;
    size_t count, room;
};

gpusym_arena_t *gpusym_arena_create(uint64_t size, uint64_t align)
{
    gpusym_arena_t *arena = calloc(1, sizeof *arena);
    if (NULL == arena) {
        gpusym_log_no_memory("an arena");
        return NULL;
    }
    arena->room = 16;
    arena->range = calloc(arena->room, sizeof *arena->range);
    if (NULL == arena->range) {
        gpusym_log_no_memory("an arena");
        free(arena);
        return NULL;
    }
    arena->align = align;
    arena->range[0] = (range_t){0, size / align * align, false};
    arena->count = 1;
    return arena;
}

void gpusym_arena_destroy(gpusym_arena_t *arena)
{
    if (NULL != arena) {
        free(arena->range);
        free(arena);
    }
}

/* Returns the index of the used range at off, or count. */
static size_t find_used(const gpusym_arena_t *arena, uint64_t off)
{
    size_t i = 0;
    while (i < arena->count && !(arena->range[i].used && arena->range[i].off == off)) {
        i++;
    }
    return i;
}

/* Splits range i after `size` bytes, fewer than it has; the rest becomes the free range i + 1. */
static int split_range(gpusym_arena_t *arena, size_t i, uint64_t size)
{
    if (arena->count == arena->room) {
        range_t *more = realloc(arena->range, 2 * arena->room * sizeof *more);
        if (NULL == more) {
            gpusym_log_no_memory("an arena");
            return GPUSYM_ERR_NO_MEMORY;
        }
        arena->range = more;
        arena->room *= 2;
    }
    memmove(&arena->range[i + 2], &arena->range[i + 1], (arena->count - i - 1) * sizeof *arena->range);
    arena->range[i + 1] = (range_t){arena->range[i].off + size, arena->range[i].size - size, false};
    arena->range[i].size = size;
    arena->count++;
    return GPUSYM_SUCCESS;
}

/* Merges range i with range i + 1 if both are free. */
static void merge_next(gpusym_arena_t *arena, size_t i)
{
    if (i + 1 < arena->count && !arena->range[i].used && !arena->range[i + 1].used) {
        arena->range[i].size += arena->range[i + 1].size;
        memmove(&arena->range[i + 1], &arena->range[i + 2], (arena->count - i - 2) * sizeof *arena->range);
        arena->count--;
    }
}

int gpusym_arena_alloc(gpusym_arena_t *arena, uint64_t size, uint64_t *off)
{
    size = (size + arena->align - 1) / arena->align * arena->align;
    for (size_t i = 0; 0 != size && i < arena->count; i++) {
        if (arena->range[i].used || arena->range[i].size < size) {
            continue;
        }
        if (arena->range[i].size > size && GPUSYM_SUCCESS != split_range(arena, i, size)) {
            return GPUSYM_ERR_NO_MEMORY;
        }
        arena->range[i].used = true;
        *off = arena->range[i].off;
        return GPUSYM_SUCCESS;
    }
    return 0 == size ? GPUSYM_ERR_BAD_PARAM : GPUSYM_ERR_NO_MEMORY;
}

int gpusym_arena_free(gpusym_arena_t *arena, uint64_t off)
{
    const size_t i = find_used(arena, off);
    if (i == arena->count) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    arena->range[i].used = false;
    merge_next(arena, i);
    if (i > 0) {
        merge_next(arena, i - 1);
    }
    return GPUSYM_SUCCESS;
}

int gpusym_arena_cut(gpusym_arena_t *arena, uint64_t size)
{
    range_t *last = &arena->range[arena->count - 1];
    size = size / arena->align * arena->align;
    if (0 == size || last->off + last->size <= size) {
        return 0 == size ? GPUSYM_ERR_BAD_PARAM : GPUSYM_SUCCESS;
    }
    if (last->used || last->off > size) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    last->size = size - last->off;
    arena->count -= 0 == last->size;
    return GPUSYM_SUCCESS;
}
