/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The symmetric heap: slabs of GPU memory of a process, of one size, which every peer that needs one maps once.  A slab
 * lies on memory of mem_alloc, or at addresses that are reserved for all slabs, on memory of vmm_map (device.h), which
 * multicast objects can bind.
 * Communicators get slots of them.  A slot has an offset of its owner's choice in one of every rank's slabs; the ranks
 * exchange these offsets, without a call to the GPU.
 */
#ifndef GPUSYM_COMMON_MEMORY_HEAP_H
#define GPUSYM_COMMON_MEMORY_HEAP_H

#include "mca/common/gpusym/device/device.h"

typedef struct gpusym_heap gpusym_heap_t;

/* Identifies a slab to peers. Plain bytes, to be sent to them. */
typedef struct {
    uint8_t nonce[16]; /* random, of this slab: the key of the peers' caches */
    gpusym_handle_t handle;
    uint64_t vmm; /* 1: it lies on memory of vmm_map; 0: on memory of mem_alloc */
} gpusym_heap_id_t;

#define GPUSYM_SLABS_MAX 64u

/*
 * Makes a heap of one slab of `size` bytes on gpu, zeroed, and exports it.  The caller destroys it.  most: slabs that
 * it may have, 1 to GPUSYM_SLABS_MAX.  vmm: on memory of vmm_map; if a slab cannot be made so, it and all later ones
 * lie on memory of mem_alloc.  On error nothing is held: GPUSYM_ERR_NO_MEMORY, or an error of mem_export.
 */
int gpusym_heap_create(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t size, unsigned most, bool vmm,
                       gpusym_heap_t **heap);
/* Unmaps all peers and frees the slabs.  No kernel may be using them.  NULL is accepted. */
void gpusym_heap_destroy(gpusym_heap_t *heap);

/* Returns the GPU of the slabs. */
gpusym_gpu_t *gpusym_heap_gpu(const gpusym_heap_t *heap);
/* Gets the id of a slab, by its number. */
void gpusym_heap_id(const gpusym_heap_t *heap, unsigned slab, gpusym_heap_id_t *id);
/* Gets the address at which a peer's slab is mapped here.  The first call for its nonce maps it; the mapping lasts
 * until gpusym_heap_destroy.  An own id gives the own slab.  size: its bytes, as its owner states them, the same in
 * every call.  Errors: GPUSYM_ERR_NO_MEMORY, those of mem_import; GPUSYM_ERR_CORRUPT: there are fewer bytes.
 * Thread-safe. */
int gpusym_heap_peer(gpusym_heap_t *heap, const gpusym_heap_id_t *id, uint64_t size, void **base);
/* Takes one successful gpusym_heap_peer back; the last one unmaps the slab.  No kernel may be using it. */
void gpusym_heap_unpeer(gpusym_heap_t *heap, const gpusym_heap_id_t *id);
/* Slots are offered on memory of mem_alloc from now on, for a communicator of which a rank cannot make or map other
 * memory.  A slab on memory of vmm_map stays for those that have slots of it, and is freed behind the last one, by a
 * later offer.  `most` counts the new slabs alone.  Idempotent. */
void gpusym_heap_refuse_vmm(gpusym_heap_t *heap);

/*
 * Slots.  A slab is divided, once, into slots of a few size classes: one of half the slab, two of an eighth, eight of
 * a 64th, and small ones.  A slot never changes its place or its inner borders.  The places of flags and LL lines
 * therefore hold old flags and old LL lines only, which epochs tell from new ones: a slot that changes hands needs no
 * clearing and no call to the GPU.
 *
 * The ranks of a communicator must use the same size class: each offers one slot of every class that one of its slabs
 * has, and keeps the one of the largest class that all have offered.  Thread-safe.
 */
#define GPUSYM_SLOT_CLASSES 4u
#define GPUSYM_SLOT_NONE UINT64_MAX

/* One slot per size class, reserved for a communicator. */
typedef struct {
    uint64_t slab; /* number of the slab */
    uint64_t
        off[GPUSYM_SLOT_CLASSES]; /* offset in the slab, in bytes; GPUSYM_SLOT_NONE: no slot of this class is free */
} gpusym_slot_offer_t;

/* Reserves one slot of every size class, of the slab that has the largest one; where no slab has one of the largest
 * class, another slab is made, if there may be one more and there is memory.  Where no slab is left, none of any. */
void gpusym_heap_slot_offer(gpusym_heap_t *heap, gpusym_slot_offer_t *offer);
/* The same, but another slab is made only where none has any. */
void gpusym_heap_slot_offer_sparing(gpusym_heap_t *heap, gpusym_slot_offer_t *offer);
/* The same, of a certain slab. */
void gpusym_heap_slot_offer_of(gpusym_heap_t *heap, uint64_t slab, gpusym_slot_offer_t *offer);
/* Frees all slots of an offer except the one of size class `keep` (-1: all). */
void gpusym_heap_slot_settle(gpusym_heap_t *heap, const gpusym_slot_offer_t *offer, int keep);
/* Frees a slot.  epoch: the first one that its communicator has not used.  line: that of the communicator in this
 * process's pages, retired before: the slot is handed out once all peers have retired theirs or have ended: their
 * kernels may still write flags of the last call until then; 0: no peer writes to the slot. */
void gpusym_heap_slot_free(gpusym_heap_t *heap, uint64_t slab, uint64_t off, uint32_t epoch, uint64_t line);
/* Takes over a multicast object that slots of the heap are bound to, to free it when a slot that is freed with that
 * line can be handed out: peers' kernels may still read through it.  gpusym_heap_slot_offer frees those that have come
 * so far, and so does gpusym_heap_mc_sweep, before a line is retired that may be one of theirs again;
 * gpusym_heap_destroy frees the rest. */
void gpusym_heap_mc_free(gpusym_heap_t *heap, gpusym_mc_t *mc, uint64_t line);
void gpusym_heap_mc_sweep(gpusym_heap_t *heap);

/* A multicast object that a whole slab of each of its ranks is bound to, from its start on. */
typedef struct {
    gpusym_mc_t *mc;
    void *mp;         /* where the slab begins, for the multimem primitives */
    uint64_t id;      /* random, the same on all of its ranks; 0: there is none */
    uint32_t members; /* how many these are */
} gpusym_heap_mc_t;
/* Gives a slab its object, for all communicators of the same ranks whose slots lie there: it is freed with the slab's
 * memory.  False: it has one, and this one remains the caller's.  Thread-safe. */
bool gpusym_heap_mc_keep(gpusym_heap_t *heap, uint64_t slab, const gpusym_heap_mc_t *mc);
/* Gets the object of a slab.  Thread-safe. */
void gpusym_heap_mc_get(gpusym_heap_t *heap, uint64_t slab, gpusym_heap_mc_t *mc);
/* Returns an epoch, at least 1, above all that the flags of free slots hold.  A new communicator starts at the largest
 * of its ranks. */
uint32_t gpusym_heap_epoch_floor(gpusym_heap_t *heap);
/* Returns the size of a slab in bytes. */
uint64_t gpusym_heap_size(const gpusym_heap_t *heap);
/* Returns how many slabs there are. */
unsigned gpusym_heap_slabs(gpusym_heap_t *heap);

/* Return the size in bytes, and the number, of the slots of a size class in a slab of heap_size bytes; 0: it has none.
 * Pure. */
uint64_t gpusym_slot_size(uint64_t heap_size, unsigned size_class);
uint32_t gpusym_slot_count(uint64_t heap_size, unsigned size_class);
/* Returns whether a slot of that size class begins at off in such a slab.  Pure. */
bool gpusym_slot_is(uint64_t heap_size, unsigned size_class, uint64_t off);

/*
 * Divides a slot of `size` bytes for a team of nranks, alike on all ranks.  The borders between flags, LL lines and
 * chunk buffers depend on the size alone.  Sets ll_off, ll_bytes, ll128_off, ll128_room, flag_rows, stage_off and
 * stage_room of w, in bytes (flag_rows: rows).  Returns the largest number of blocks, at most max_blocks, that a launch
 * in this slot may use; 0: the slot is too small.
 */
uint32_t gpusym_slot_layout(uint64_t size, uint32_t nranks, uint32_t max_blocks, gpusym_work_t *w);

#endif
