/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Shares: host memory that a process makes for a purpose, for itself and the processes of its host, and that its GPUs
 * copy.  Each is a sealed memory file (shm/segment.h), of which nothing remains when processes die.  It is sparse: only
 * what was touched takes memory, until a GPU registers it.
 *
 * All functions want the lock of the purpose to be held.
 */
#ifndef GPUSYM_COMMON_MEMORY_SHARE_H
#define GPUSYM_COMMON_MEMORY_SHARE_H

#include "mca/common/gpusym/device/device.h"
#include "mca/common/gpusym/shm/arena.h"
#include "mca/common/gpusym/shm/segment.h"

/* Offsets below are the segment's head. Ranges are whole pages. */
#define GPUSYM_SHARE_FIRST 4096u

/* A share as it is mapped in this process.  Valid until gpusym_shares_close. */
typedef struct gpusym_share {
    gpusym_segment_id_t id;
    char *base;
    char *dev;         /* base for the GPU; NULL: it is not registered */
    gpusym_gpu_t *gpu; /* by which it is */
    bool tried;        /* to register it */
    int refused;       /* why it cannot be: an error of host_register */
    struct gpusym_share *next;
} gpusym_share_t;

/* All shares of a purpose. The first fields are set by its user, and do not change; the rest is zeroed. */
typedef struct {
    const char *name;      /* of the memory file */
    uint64_t magic, bytes; /* of each: the same in all processes */
    const char *what;      /* for a verbose line: what is slow while it is not registered */
    gpusym_share_t *first; /* all that are mapped here */
    gpusym_share_t *own;   /* one of them; NULL: none yet */
    gpusym_arena_t *arena; /* of the own one, from GPUSYM_SHARE_FIRST on */
    int refused, error;    /* why there is no own one, with errno; GPUSYM_SUCCESS: it has not been tried */
} gpusym_shares_t;

/* Makes the own share, at the first call.  GPUSYM_ERR_NO_MEMORY, GPUSYM_ERR_NOT_AVAILABLE, with errno: there is none,
 * now and later. */
int gpusym_shares_make(gpusym_shares_t *all);
/* Gets a share by its id, mapped at the first call; it may be the own one.  GPUSYM_ERR_UNREACHABLE,
 * GPUSYM_ERR_NO_MEMORY, with errno: it cannot be mapped. */
int gpusym_shares_map(gpusym_shares_t *all, const gpusym_segment_id_t *id, gpusym_share_t **share);
/* Registers a share with the GPUs of this process, once: from then on they copy it fast, and reach it at share->dev.
 * About 2 ms at the first call for 16 MiB.  An error of host_register: it cannot be registered, now and later; GPUs
 * copy it all the same, slowly. */
int gpusym_share_register(const gpusym_shares_t *all, gpusym_share_t *share, const gpusym_device_t *dev,
                          gpusym_gpu_t *gpu);
/* Allocates a range of the own share, page-aligned, undefined, at *off bytes.  GPUSYM_ERR_NOT_AVAILABLE: there is no
 * own one; GPUSYM_ERR_NO_MEMORY: none of that size is free. */
int gpusym_shares_get(gpusym_shares_t *all, uint64_t bytes, uint64_t *off);
void gpusym_shares_put(gpusym_shares_t *all, uint64_t off);
/* Ends registrations, unmaps all shares and frees the own one.  No copy may be under way.  Idempotent. */
void gpusym_shares_close(gpusym_shares_t *all, const gpusym_device_t *dev);

#endif
