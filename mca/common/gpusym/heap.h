/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The symmetric heap: one slab of GPU memory a process, mapped once by every peer that needs it.
 * Communicators get slots in it: a slot lies at an offset of its owner's choice in every rank's slab, the
 * ranks tell each other where, and no GPU call is made for it.
 *
 * The arena below is the pure part: it hands out ranges of offsets.
 */
#ifndef GPUSYM_COMMON_HEAP_H
#define GPUSYM_COMMON_HEAP_H

#include <pthread.h>

#include "mca/common/gpusym/device.h"

/* ---- arena: ranges of [0, size), first fit, neighbours merged when freed. Not thread-safe. ---- */
typedef struct gpusym_arena gpusym_arena_t;

/* size bytes, ranges begin at multiples of align (a power of two). NULL if there is no memory. */
gpusym_arena_t *gpusym_arena_create(uint64_t size, uint64_t align);
void gpusym_arena_destroy(gpusym_arena_t *arena);
/* A range of `size` bytes (rounded up to align) at *off. GPUSYM_ERR_NO_MEMORY if none is free. */
int gpusym_arena_alloc(gpusym_arena_t *arena, uint64_t size, uint64_t *off);
/* Gives back the end of a range, from size (rounded up) on. GPUSYM_ERR_BAD_PARAM: no such range, or it is smaller. */
int gpusym_arena_shrink(gpusym_arena_t *arena, uint64_t off, uint64_t size);
/* Gives back a range by its offset. GPUSYM_ERR_BAD_PARAM: no such range. */
int gpusym_arena_free(gpusym_arena_t *arena, uint64_t off);
/* Bytes of the largest free range, and of all ranges handed out. */
uint64_t gpusym_arena_largest(const gpusym_arena_t *arena);
uint64_t gpusym_arena_used(const gpusym_arena_t *arena);

/* ---- the heap of a process ---- */
typedef struct gpusym_heap gpusym_heap_t;

/* A slab as its peers know it: plain bytes, to be sent to them. */
typedef struct {
    uint8_t nonce[16]; /* of this slab, random: the key of the peers' caches */
    gpusym_handle_t handle;
} gpusym_heap_id_t;

/*
 * Makes a slab of `size` bytes on gpu, zeroed, and names it. On error nothing is held.
 * GPUSYM_ERR_NO_MEMORY, or what export says.
 */
int gpusym_heap_create(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t size, gpusym_heap_t **heap);
/* Unmaps all peers and frees the slab. No kernel may be using it. NULL is fine. */
void gpusym_heap_destroy(gpusym_heap_t *heap);

gpusym_gpu_t *gpusym_heap_gpu(const gpusym_heap_t *heap);
void gpusym_heap_id(const gpusym_heap_t *heap, gpusym_heap_id_t *id);
/* Where offset off of our own slab lies. */
void *gpusym_heap_at(const gpusym_heap_t *heap, uint64_t off);
/* Where a peer's slab is mapped here: mapped at the first call for its nonce, kept until destroy.
 * Our own id gives our own slab. Thread-safe. */
int gpusym_heap_peer(gpusym_heap_t *heap, const gpusym_heap_id_t *id, void **base);

/*
 * Slots. A slot's size comes from a few tiers, large for the first communicators and small for the
 * many after them. slot_offer takes the largest tier still to be had; when the ranks have
 * agreed on the smallest of their offers, slot_trim gives the rest back. Thread-safe.
 */
#define GPUSYM_SLOT_MIN (64u * 1024)
int gpusym_heap_slot_offer(gpusym_heap_t *heap, uint64_t *off, uint64_t *size);
int gpusym_heap_slot_trim(gpusym_heap_t *heap, uint64_t off, uint64_t size);
/* Gives a slot back. epoch: the first one that its communicator had not used yet. The memory is not cleared: */
void gpusym_heap_slot_free(gpusym_heap_t *heap, uint64_t off, uint32_t epoch);
/* ... a new communicator starts at the largest floor among its ranks, above all that old flags hold. At least 1. */
uint32_t gpusym_heap_epoch_floor(gpusym_heap_t *heap);

/*
 * How a slot is divided for a team of n ranks: all ranks compute the same from the same size.
 * Sets ll_off, ll_bytes, stage_off, stage_bytes of w and returns the largest number of blocks that
 * a launch in this slot may use (at most max_blocks); 0 if the slot is too small for n.
 */
uint32_t gpusym_slot_layout(uint64_t size, uint32_t nranks, uint32_t max_blocks, gpusym_work_t *w);

#endif
