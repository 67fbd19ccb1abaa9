/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Registration: the program's buffers that a process lets its peers map, and its mappings of theirs, for zero copy.
 *
 * A process lists its buffers in a table in its pages (shm/pages.h), which peers read.  A key names an entry; it goes
 * to the peers with a call.  A peer maps the allocation at the first use of a key, and keeps the mapping.  A buffer
 * that is freed and allocated again at the same address is another allocation (device.h: its id) with another key, so
 * no peer uses an old mapping for it.
 *
 * A freed buffer stays mapped by peers, and so holds its GPU memory, until its owner notices (at its next new buffers,
 * each of which checks 64 others, or in gpusym_reg_sweep) and they do (at their next new key, or in gpusym_reg_sweep).
 * gpusym_reg_sweep runs when a communicator is freed and when GPU memory runs out (alloc.h).  The size of the table
 * bounds the rest.
 *
 * All functions are thread-safe.  Pages and device must be open; call gpusym_reg_close before closing them.
 */
#ifndef GPUSYM_COMMON_MEMORY_REG_H
#define GPUSYM_COMMON_MEMORY_REG_H

#include "mca/common/gpusym/device/device.h"
#include "mca/common/gpusym/shm/pages.h"

/* Entries of a table. */
#define GPUSYM_REG_MAX 256u

/* Number of entries that this process uses, at most GPUSYM_REG_MAX: the buffers that peers can have mapped at a time.
 * 0: no zero copy.  May change at any time; applies from the next new buffer on. */
extern unsigned gpusym_reg_limit;
/* Whether peers may map allocations that are part of a block, with all of that block.  May change at any time. */
extern bool gpusym_reg_parts;

/* Owner: returns whether peers may map that memory. */
bool gpusym_reg_allows(const gpusym_range_t *range);

/*
 * Owner: gets the key of the allocation that holds [p, p + bytes), and the offset of p in it, in bytes.  Makes an entry
 * if there is none, in place of the least recently used one if the table is full.  gpu: the owner of the memory.  The
 * entry stays until gpusym_reg_put was called as often as gpusym_reg_get; call gpusym_reg_put when no peer's work can
 * use the buffer any more.  The key is not 0, and valid as long as the entry.  About 0.1 us, besides mem_range, for a
 * buffer that has an entry. Errors, on all of which the caller continues without zero copy: GPUSYM_ERR_NOT_AVAILABLE:
 * peers cannot map this buffer, zero copy is off, or all entries are in use; GPUSYM_ERR_UNREACHABLE, GPUSYM_ERR and
 * others: from mem_export.
 */
int gpusym_reg_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const void *p, uint64_t bytes, uint32_t *key,
                   uint64_t *off);
/* Owner: as gpusym_reg_get, for an allocation that has an entry, without a call to the device.  id: of the memory at p
 * (gpusym_mem_t.id).  False: there is no entry, or id is 0; gpusym_reg_get may make one. */
bool gpusym_reg_find(uint64_t id, const void *p, uint64_t bytes, uint32_t *key, uint64_t *off);
/* Owner: ends one use of a key from gpusym_reg_get or gpusym_reg_find.  Makes no call to the device. */
void gpusym_reg_put(uint32_t key);

/*
 * Peer: gets the address at which the allocation of a peer's key is mapped for gpu, and its size in bytes.  The first
 * call maps it, after unmapping what peers no longer list, and may wait for the GPU, as mem_import does.  The mapping
 * is valid until the owner puts the key.  An own key gives own memory. Errors: GPUSYM_ERR_BAD_PARAM: not a key;
 * GPUSYM_ERR_UNREACHABLE: the owner no longer has that entry, or it cannot be mapped here (which is remembered);
 * GPUSYM_ERR_CORRUPT: the entry holds values that its owner has not written, or a size that the device has not mapped;
 * GPUSYM_ERR_NO_MEMORY.
 */
int gpusym_reg_map(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_peer_t *peer, uint32_t key, void **base,
                   uint64_t *size);
/* Peer: checks the size in bytes that a peer states of memory which has been imported at base, of this table or not.
 * GPUSYM_ERR_CORRUPT: the device has mapped less.  GPUSYM_ERR_UNREACHABLE: it knows no memory there. */
int gpusym_reg_check(const gpusym_device_t *dev, const void *base, uint64_t size);

/* Owner and peer: drops entries of freed buffers, and unmaps what peers no longer list.  Call it when no work runs that
 * peers wait for: mem_unimport may wait for that work.  Returns the number of exports and mappings that ended.  About
 * 0.2 us per entry, if there is nothing to do. */
unsigned gpusym_reg_sweep(const gpusym_device_t *dev);

/* Unmaps all peers' buffers and empties the table: all keys become invalid.  No work may be using them.  Idempotent. */
void gpusym_reg_close(const gpusym_device_t *dev);

#endif
