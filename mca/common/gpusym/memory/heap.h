/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The symmetric heap: one slab of GPU memory a process, mapped once by every peer that needs it.
 * Communicators get slots in it: a slot lies at an offset of its owner's choice in every rank's slab, the
 * ranks tell each other where, and no GPU call is made for it.
 */
#ifndef GPUSYM_COMMON_MEMORY_HEAP_H
#define GPUSYM_COMMON_MEMORY_HEAP_H

#include "mca/common/gpusym/device/device.h"

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
/* Where a peer's slab is mapped here: mapped at the first call for its nonce, kept until destroy.
 * Our own id gives our own slab. Thread-safe. */
int gpusym_heap_peer(gpusym_heap_t *heap, const gpusym_heap_id_t *id, void **base);

/*
 * Slots. The slab is cut once and for all into slots of a few classes: one of half the slab, two of an eighth, eight of
 * a 64th, and small ones. A slot keeps its place and its inner borders for ever, so that what lies where flags and LL
 * lines are looked for are always old flags and old LL lines, which epochs tell from new ones: nothing is cleared when
 * a slot changes hands, and no GPU call is made.
 *
 * The ranks of a communicator must use the same class: each offers one of every class it has left, and keeps that
 * of the largest class that all have offered. Thread-safe.
 */
#define GPUSYM_SLOT_CLASSES 4u
#define GPUSYM_SLOT_NONE UINT64_MAX

typedef struct {
    uint64_t off[GPUSYM_SLOT_CLASSES]; /* in the slab; GPUSYM_SLOT_NONE: none left of this class */
} gpusym_slot_offer_t;

/* Reserves one slot of every class. */
void gpusym_heap_slot_offer(gpusym_heap_t *heap, gpusym_slot_offer_t *offer);
/* Gives all of an offer back but the one of class `keep` (-1: all). */
void gpusym_heap_slot_settle(gpusym_heap_t *heap, const gpusym_slot_offer_t *offer, int keep);
/* Gives a slot back. epoch: the first one that its communicator had not used yet. */
void gpusym_heap_slot_free(gpusym_heap_t *heap, uint64_t off, uint32_t epoch);
/* A new communicator starts at the largest floor among its ranks, above all that old flags hold. At least 1. */
uint32_t gpusym_heap_epoch_floor(gpusym_heap_t *heap);
/* Bytes of the slab. */
uint64_t gpusym_heap_size(const gpusym_heap_t *heap);

/* Bytes of a slot, and how many there are, of a class in a slab of heap_size bytes; 0 if it has none. Pure. */
uint64_t gpusym_slot_size(uint64_t heap_size, unsigned class);
uint32_t gpusym_slot_count(uint64_t heap_size, unsigned class);
/* Whether a slot of that class begins at off, in such a slab. Pure. */
bool gpusym_slot_is(uint64_t heap_size, unsigned class, uint64_t off);

/*
 * How a slot is divided for a team of nranks: the same on all ranks. The borders between flags, LL lines and staging
 * depend on the slot's size alone. Sets ll_off, ll_bytes, ll128_off, ll128_room, flag_rows, stage_off, stage_room of w
 * and returns the largest number of blocks that a launch in this slot may use (at most max_blocks); 0 if the slot is too small.
 */
uint32_t gpusym_slot_layout(uint64_t size, uint32_t nranks, uint32_t max_blocks, gpusym_work_t *w);

#endif
