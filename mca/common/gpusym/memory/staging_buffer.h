/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Staging buffers: host memory of a process that the processes of its host map, for data that GPUs cannot exchange. The
 * owner's GPU copies into a staging buffer, and a peer's GPU copies, or loads, out of it.
 *
 * A process has one staging buffer. It is a share (share.h), made when it is first needed. The owner's slab
 * (shm/pages.h) names it, so that peers find it without a message.
 */
#ifndef GPUSYM_COMMON_MEMORY_STAGING_BUFFER_H
#define GPUSYM_COMMON_MEMORY_STAGING_BUFFER_H

#include "mca/common/gpusym/memory/share.h"
#include "mca/common/gpusym/shm/pages.h"

/* Bytes of a staging buffer that calls may take, and of the longest segments in which they copy. */
#define GPUSYM_STAGING_BUFFER_BYTES (18ull << 20)
#define GPUSYM_STAGING_BUFFER_CHUNK (1ull << 20)
/* What a call holds while it waits for ranks to come ends here, in bytes from the staging buffer's first one. So what
 * waits for no rank that is yet to come always finds room in the end. */
#define GPUSYM_STAGING_BUFFER_WAITING (GPUSYM_SHARE_FIRST + (16ull << 20))

/* A staging buffer as it is mapped in this process. Cached; valid until gpusym_staging_buffers_close. All functions are
 * thread-safe. */
typedef gpusym_share_t gpusym_staging_buffer_t;

/* Returns the staging buffer of this process, and makes it at the first call.  It needs the slab (gpusym_pages_open).
 * GPUSYM_ERR_NO_MEMORY, GPUSYM_ERR_NOT_AVAILABLE, with errno: there is none, now and later. */
int gpusym_staging_buffer_own(gpusym_staging_buffer_t **staging);
/* Returns the staging buffer of a process, mapped at the first call; this process may be that one.
 * GPUSYM_ERR_NOT_AVAILABLE: it has made none yet. GPUSYM_ERR_UNREACHABLE, GPUSYM_ERR_NO_MEMORY, with errno: it cannot
 * be mapped. */
int gpusym_staging_buffer_of(gpusym_peer_t *peer, gpusym_staging_buffer_t **staging);

/* Registers a staging buffer with the GPUs of this process, once: from then on they copy it fast, and reach it at *dev
 * (its first byte); NULL: it is not registered. See gpusym_share_register. */
int gpusym_staging_buffer_register(gpusym_staging_buffer_t *staging, const gpusym_device_t *dev, gpusym_gpu_t *gpu,
                                   void **at);
/* Returns the address for the CPU, and for copies, of `bytes` bytes that begin off bytes into a staging buffer. NULL:
 * they do not lie in it: an offset that a peer has told, and memory that was overwritten since. */
void *gpusym_staging_buffer_at(const gpusym_staging_buffer_t *staging, uint64_t off, uint64_t bytes);

/* Returns how many bytes of a staging buffer follow off; 0: off is not in it. */
uint64_t gpusym_staging_buffer_room(const gpusym_staging_buffer_t *staging, uint64_t off);

/* Allocates a range of the staging buffer of this process, which gpusym_staging_buffer_own has returned: page-aligned,
 * undefined, at *off bytes. Never waits. GPUSYM_ERR_NO_MEMORY: none of that size is free. Return it by
 * gpusym_staging_buffer_put, when no peer accesses it any more. */
int gpusym_staging_buffer_get(uint64_t bytes, uint64_t *off);
void gpusym_staging_buffer_put(uint64_t off);
/* Notes that a range is not returned, since a peer may access it for ever; and whether there is such a one. */
void gpusym_staging_buffer_lose(void);
bool gpusym_staging_buffer_is_worn(void);

/* Ends registrations, unmaps all staging buffers and frees the own one.  No copy may be under way.  Idempotent. */
void gpusym_staging_buffers_close(const gpusym_device_t *dev);

#endif
