/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Staged copies between GPU memory and host memory that is not pinned, through chunks of pinned memory: the CPU copies
 * one chunk while the GPU copies others: parts of one run of bytes (copy.h), or what its user packs. Polled; no
 * function waits.
 */
#ifndef GPUSYM_COMMON_EXEC_STAGED_H
#define GPUSYM_COMMON_EXEC_STAGED_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "mca/common/gpusym/exec/copy.h"

/* Chunks whose copies by the GPU are under way at a time, at most. */
#define GPUSYM_STAGED_CHUNKS 4u

/* Its user sets all that stands before `started`; the rest is zeroed. It stays in place until the copy has ended. */
typedef struct {
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu; /* which copies */
    char *on_gpu;      /* memory that gpu reaches: its own or a peer's mapping; with `engine`, any GPU's */
    char *on_host;
    size_t bytes; /* not 0 */
    char *chunks; /* pinned memory of gpusym_staged_room(bytes, chunk) bytes */
    size_t chunk; /* bytes of a chunk */
    bool to_host; /* from the GPU to the host */
    bool engine;  /* by copy engines alone */
    /* What copies between the chunk in place i (below GPUSYM_STAGED_CHUNKS) and the bytes from `at` on, in place of
     * gpusym_copy_start_rows, and then of gpusym_copy_poll; on_gpu is not read. NULL: one run of bytes. */
    int (*start)(void *user, uint32_t i, char *chunk, size_t at, size_t length);
    int (*poll)(void *user, uint32_t i);
    void *user;
    size_t started; /* bytes whose copies by the GPU have been started */
    size_t ended;   /* bytes whose chunks are free again */
    int error;      /* why no further copy is started */
    gpusym_copy_t copy[GPUSYM_STAGED_CHUNKS];
} gpusym_staged_t;

/* Pinned memory for `bytes` bytes by chunks of `chunk` bytes. */
static inline size_t gpusym_staged_room(size_t bytes, size_t chunk)
{
    return bytes < GPUSYM_STAGED_CHUNKS * chunk ? bytes : GPUSYM_STAGED_CHUNKS * chunk;
}

static inline uint32_t gpusym_staged_place(const gpusym_staged_t *s, size_t at)
{
    return at / s->chunk % GPUSYM_STAGED_CHUNKS;
}

static inline size_t gpusym_staged_length(const gpusym_staged_t *s, size_t at)
{
    return s->bytes - at < s->chunk ? s->bytes - at : s->chunk;
}

/* Starts the copy of the next chunk by the GPU; its place is free. */
static inline void gpusym_staged_next(gpusym_staged_t *s)
{
    const size_t at = s->started, length = gpusym_staged_length(s, at);
    const uint32_t i = gpusym_staged_place(s, at);
    char *chunk = s->chunks + i * s->chunk;
    if (!s->to_host) {
        memcpy(chunk, s->on_host + at, length);
    }
    if (NULL != s->start) {
        s->error = s->start(s->user, i, chunk, at, length);
        s->started += GPUSYM_SUCCESS == s->error ? length : 0;
        return;
    }
    const gpusym_copy_rows_t run = {.dst = s->to_host ? chunk : s->on_gpu + at,
                                    .src = s->to_host ? s->on_gpu + at : chunk,
                                    .width = length,
                                    .height = 1,
                                    .far = true,
                                    .engine = s->engine};
    s->error = gpusym_copy_start_rows(s->dev, s->gpu, &run, &s->copy[i]);
    s->started += GPUSYM_SUCCESS == s->error ? length : 0;
}

/* Whether a further chunk has a place. */
static inline bool gpusym_staged_goes_on(const gpusym_staged_t *s)
{
    return GPUSYM_SUCCESS == s->error && s->started < s->bytes &&
           s->started - s->ended < GPUSYM_STAGED_CHUNKS * s->chunk;
}

/* Starts it. Errors are told by gpusym_staged_poll. */
static inline void gpusym_staged_start(gpusym_staged_t *s)
{
    while (gpusym_staged_goes_on(s)) {
        gpusym_staged_next(s);
    }
}

/* Takes what has come of one chunk at most, so that a CPU which polls several copies serves them all. Returns 1 if all
 * bytes are in place, 0 if not, or the device's error, once no copy is under way any more. */
static inline int gpusym_staged_poll(gpusym_staged_t *s)
{
    const uint32_t i = gpusym_staged_place(s, s->ended);
    const size_t length = gpusym_staged_length(s, s->ended);
    int done = 0;
    if (s->ended < s->started) {
        done = NULL != s->poll ? s->poll(s->user, i) : gpusym_copy_poll(&s->copy[i]);
    }
    if (0 != done) {
        if (s->to_host && 0 < done && GPUSYM_SUCCESS == s->error) {
            memcpy(s->on_host + s->ended, s->chunks + i * s->chunk, length);
        }
        s->ended += length;
        s->error = 0 > done && GPUSYM_SUCCESS == s->error ? done : s->error;
    }
    if (gpusym_staged_goes_on(s)) {
        gpusym_staged_next(s);
    }
    if (s->ended < s->started) {
        return 0;
    }
    return GPUSYM_SUCCESS != s->error ? s->error : s->ended == s->bytes;
}

#endif
