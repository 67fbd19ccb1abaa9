/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which buffers of its program a process lets its peers map, and their mappings of them: what zero copy needs.
 *
 * A process lists its buffers in a table in its pages (rollcall.h), where peers read it; an entry has a name, the
 * key, that goes to them with a call. A peer maps the allocation when it first meets a key and keeps the mapping for
 * the next call. Freed and allocated again at the same address, a buffer is another allocation (device.h: its id), so
 * another key: no peer ever takes its old mapping for it.
 *
 * What is freed stays mapped by peers, and so keeps its GPU memory, until its owner notices (at its next new buffer,
 * or in gpusym_reg_sweep) and they do (at their next new key, or in gpusym_reg_sweep). gpusym_reg_sweep is called when a
 * communicator is freed and when GPU memory runs out (alloc.h). The table is small, which bounds the rest.
 *
 * All functions are thread-safe. Pages and device must be open; gpusym_reg_close comes before they are closed.
 */
#ifndef GPUSYM_COMMON_MEMORY_REG_H
#define GPUSYM_COMMON_MEMORY_REG_H

#include "mca/common/gpusym/device/device.h"
#include "mca/common/gpusym/shm/pages.h"

/* Entries of a table. */
#define GPUSYM_REG_MAX 64u

/* How many of them this process uses, at most GPUSYM_REG_MAX: so many buffers can peers have mapped at a time. 0:
 * none, no zero copy. May be changed at any time; counts from the next new buffer. */
extern unsigned gpusym_reg_limit;

/*
 * Owner: the key of the allocation that holds [p, p + bytes), and where in it p is, *off bytes from its base. Makes
 * the entry if there is none, in place of the one that was used longest ago when the table is full. gpu: the one that
 * owns the memory. The entry stays until as many gpusym_reg_put as there were gpusym_reg_get; the caller puts when no
 * peer's work can use the buffer any more. The key is not 0 and holds as long as the entry does.
 * GPUSYM_ERR_NOT_AVAILABLE: this buffer cannot be mapped by peers, or zero copy is off, or all entries are in use;
 * GPUSYM_ERR_UNREACHABLE, GPUSYM_ERR and others: what mem_export says. The caller does without, in all cases. About
 * 0.1 us besides mem_range's for a buffer that has an entry.
 */
int gpusym_reg_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const void *p, uint64_t bytes, uint32_t *key,
                   uint64_t *off);
/* Owner: the same for an allocation that has an entry: id is that of the memory at p (gpusym_mem_t.id), so that the
 * device need not be asked again. False, also for id 0: it has none, or is not known; gpusym_reg_get may make it one. */
bool gpusym_reg_find(uint64_t id, const void *p, uint64_t bytes, uint32_t *key, uint64_t *off);
/* Owner: ends the use of a key that gpusym_reg_get gave. Makes no call to the device. */
void gpusym_reg_put(uint32_t key);

/*
 * Peer: where the base of the allocation with that key of that peer is mapped for gpu, and its size in bytes. Mapped at
 * the first call, after unmapping what peers no longer list; from then on found. Holds as long as the owner keeps its
 * entry, that is until it puts the key. A key of our own gives our own memory. GPUSYM_ERR_BAD_PARAM: no key at all;
 * GPUSYM_ERR_UNREACHABLE: the owner no longer has that entry, or it cannot be mapped here (which is remembered);
 * GPUSYM_ERR_CORRUPT: it holds what the owner has not written; GPUSYM_ERR_NO_MEMORY. A first call may wait for the GPU,
 * as mem_import does.
 */
int gpusym_reg_map(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_peer_t *peer, uint32_t key, void **base,
                   uint64_t *size);

/* Owner and peer: drops entries of buffers that were freed, and unmaps what peers no longer list. To be called now
 * and then when no work runs that peers wait for (mem_unimport may wait for it). Returns how many exports and mappings
 * have ended. About 0.2 us an entry, if there is nothing to do. */
unsigned gpusym_reg_sweep(const gpusym_device_t *dev);

/* Unmaps all, and empties the table: keys given so far are void. No work may be using them. Idempotent. */
void gpusym_reg_close(const gpusym_device_t *dev);

#endif
