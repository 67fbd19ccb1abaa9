/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/memory/heap.c: the arena against a model, the slab and its slots on the simulated
 * GPU, the division of a slot.  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/plan.h"
#include "mca/common/gpusym/device/select.h"
#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/memory/heap.h"
#include "mca/common/gpusym/shm/arena.h"
#include "mca/common/gpusym/shm/pages.h"
#include "test/unit/random.h"

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)

/* ---- arena ---- */

#define ALIGN 256u
#define UNITS 400u

/* The model: who has each unit of ALIGN bytes; 0: nobody. */
typedef struct {
    unsigned owner[UNITS];
    unsigned next; /* owner's number */
} model_t;

/* The first free run of at least n units, or UNITS. */
static unsigned first_fit(const model_t *m, unsigned n)
{
    for (unsigned i = 0, run = 0; i < UNITS; i++) {
        run = m->owner[i] ? 0 : run + 1;
        if (run == n) {
            return i + 1 - n;
        }
    }
    return UNITS;
}

static bool begins(const model_t *m, unsigned i)
{
    return 0 != m->owner[i] && (0 == i || m->owner[i - 1] != m->owner[i]);
}

static unsigned length(const model_t *m, unsigned i)
{
    unsigned n = 1;
    while (i + n < UNITS && m->owner[i + n] == m->owner[i]) {
        n++;
    }
    return n;
}

static void one_alloc(gpusym_arena_t *arena, model_t *m)
{
    const uint64_t size = 1 + next_random() % (next_random() % 8 ? 20 * ALIGN : UNITS * ALIGN);
    const unsigned units = (unsigned) ((size + ALIGN - 1) / ALIGN), want = first_fit(m, units);
    uint64_t off = 12345;
    const int rc = gpusym_arena_alloc(arena, size, &off);
    if (UNITS == want) {
        assert_int_equal(rc, GPUSYM_ERR_NO_MEMORY);
        return;
    }
    OK(rc);
    assert_int_equal(off, (uint64_t) want * ALIGN);
    m->next++;
    for (unsigned i = 0; i < units; i++) {
        m->owner[want + i] = m->next;
    }
}

/* Frees at a random place, also where nothing begins. */
static void one_release(gpusym_arena_t *arena, model_t *m)
{
    const unsigned at = (unsigned) (next_random() % UNITS);
    const int rc = gpusym_arena_free(arena, (uint64_t) at * ALIGN);
    if (!begins(m, at)) {
        assert_int_equal(rc, GPUSYM_ERR_BAD_PARAM);
        return;
    }
    OK(rc);
    for (unsigned i = 0, n = length(m, at); i < n; i++) {
        m->owner[at + i] = 0;
    }
}

static void arena_does_what_its_model_does(void **state)
{
    (void) state;
    for (unsigned round = 0; round < 20; round++) {
        model_t m = {{0}, 0};
        gpusym_arena_t *arena = gpusym_arena_create(UNITS * ALIGN + round, ALIGN); /* an odd end is no use */
        assert_non_null(arena);
        for (unsigned i = 0; i < 4000; i++) {
            const unsigned what = (unsigned) (next_random() % 8);
            if (what < 2) {
                one_alloc(arena, &m);
            } else {
                one_release(arena, &m);
            }
        }
        for (unsigned i = 0; i < UNITS; i++) {
            if (begins(&m, i)) {
                OK(gpusym_arena_free(arena, (uint64_t) i * ALIGN));
            }
        }
        uint64_t off;
        OK(gpusym_arena_alloc(arena, UNITS * ALIGN, &off)); /* all is one range again */
        assert_int_equal(off, 0);
        gpusym_arena_destroy(arena);
    }
}

/* What is behind a cut is not handed out, and nothing in use is cut off. */
static void arena_is_cut(void **state)
{
    (void) state;
    uint64_t off;
    gpusym_arena_t *arena = gpusym_arena_create(16 * ALIGN, ALIGN);
    assert_non_null(arena);
    OK(gpusym_arena_alloc(arena, 5 * ALIGN, &off));
    assert_int_equal(gpusym_arena_cut(arena, 4 * ALIGN), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_arena_cut(arena, 0), GPUSYM_ERR_BAD_PARAM);
    OK(gpusym_arena_cut(arena, 20 * ALIGN));
    OK(gpusym_arena_cut(arena, 8 * ALIGN + 1));
    assert_int_equal(gpusym_arena_alloc(arena, 4 * ALIGN, &off), GPUSYM_ERR_NO_MEMORY);
    OK(gpusym_arena_cut(arena, 5 * ALIGN));
    assert_int_equal(gpusym_arena_alloc(arena, 1, &off), GPUSYM_ERR_NO_MEMORY);
    OK(gpusym_arena_free(arena, 0));
    OK(gpusym_arena_alloc(arena, 5 * ALIGN, &off));
    assert_int_equal(off, 0);
    gpusym_arena_destroy(arena);
}

static void arena_ends(void **state)
{
    (void) state;
    uint64_t off, last = 0;
    gpusym_arena_t *arena = gpusym_arena_create(1 << 20, 4096);
    assert_non_null(arena);
    assert_int_equal(gpusym_arena_alloc(arena, (1 << 20) + 1, &off), GPUSYM_ERR_NO_MEMORY);
    for (unsigned i = 0; i < 256; i++) {
        OK(gpusym_arena_alloc(arena, 1, &off));
        assert_true(0 == i || off == last + 4096);
        last = off;
    }
    assert_int_equal(gpusym_arena_alloc(arena, 1, &off), GPUSYM_ERR_NO_MEMORY);
    OK(gpusym_arena_free(arena, 4096 * 100));
    assert_int_equal(gpusym_arena_free(arena, 4096 * 100), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_arena_free(arena, 4096 * 101 + 1), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_arena_free(arena, 1 << 20), GPUSYM_ERR_BAD_PARAM);
    OK(gpusym_arena_alloc(arena, 4096, &off));
    assert_int_equal(off, 4096 * 100);
    assert_int_not_equal(gpusym_arena_alloc(arena, UINT64_MAX, &off), GPUSYM_SUCCESS); /* rounding up overflows */
    assert_int_not_equal(gpusym_arena_alloc(arena, UINT64_MAX - 4096, &off), GPUSYM_SUCCESS);
    gpusym_arena_destroy(arena);
}

/* ---- the heap, on the simulated GPU ---- */

static const gpusym_device_t *dev;
static gpusym_gpu_t *gpu;

/* Mappings of simulated memory in this process. */
static unsigned mappings(void)
{
    unsigned n = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (NULL != fgets(line, sizeof line, maps)) {
        n += NULL != strstr(line, "gpusym-device");
    }
    fclose(maps);
    return n;
}

/* Of the heaps below, as far as they can. */
static bool vmm;

static int device_up(void **state)
{
    const char *why = NULL;
    (void) state;
    vmm = false;
    dev = gpusym_device_select(GPUSYM_DEVICE_SIM, &why);
    if (NULL == dev || GPUSYM_SUCCESS != dev->gpu_open(NULL, &gpu)) {
        print_error("no simulated GPU: %s\n", NULL != why ? why : "gpu_open");
        return 1;
    }
    return 0;
}

static int device_up_vmm(void **state)
{
    const int rc = device_up(state);
    vmm = true;
    return rc;
}

static int device_down(void **state)
{
    (void) state;
    gpusym_device_close();
    gpusym_sim_params.fail = NULL;
    return 0;
}

/* What the device memory at p holds, as a byte repeated; fails if it does not. */
static void assert_holds(void *p, uint8_t byte, size_t size)
{
    uint8_t *copy = malloc(size);
    assert_non_null(copy);
    OK(dev->copy(gpu, copy, p, size));
    for (size_t i = 0; i < size; i++) {
        assert_int_equal(copy[i], byte);
    }
    free(copy);
}

static void fill(void *p, uint8_t byte, size_t size)
{
    uint8_t *copy = malloc(size);
    assert_non_null(copy);
    memset(copy, byte, size);
    OK(dev->copy(gpu, p, copy, size));
    free(copy);
}

/* Where offset off of the heap's own slab lies. */
static void *heap_at(gpusym_heap_t *heap, uint64_t off)
{
    gpusym_heap_id_t id;
    void *base;
    gpusym_heap_id(heap, 0, &id);
    OK(gpusym_heap_peer(heap, &id, gpusym_heap_size(heap), &base));
    return (char *) base + off;
}

/* Bytes in slots that are reserved or taken: all but those that can be reserved. */
static uint64_t heap_used(gpusym_heap_t *heap)
{
    const uint64_t size = gpusym_heap_size(heap);
    uint32_t most = 0, n = 0;
    uint64_t used = 0;
    bool any = true;
    for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
        most = gpusym_slot_count(size, c) > most ? gpusym_slot_count(size, c) : most;
        used += gpusym_slot_count(size, c) * gpusym_slot_size(size, c);
    }
    gpusym_slot_offer_t *offer = calloc(most + 1, sizeof *offer);
    assert_non_null(offer);
    for (; any && n <= most; n++) {
        any = false;
        gpusym_heap_slot_offer(heap, &offer[n]);
        for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
            any = any || GPUSYM_SLOT_NONE != offer[n].off[c];
            used -= GPUSYM_SLOT_NONE != offer[n].off[c] ? gpusym_slot_size(size, c) : 0;
        }
    }
    while (n > 0) {
        gpusym_heap_slot_settle(heap, &offer[--n], -1);
    }
    free(offer);
    return used;
}

static void a_slab_is_zeroed_and_known_by_its_id(void **state)
{
    (void) state;
    const unsigned before = mappings();
    gpusym_heap_t *heap;
    gpusym_heap_id_t id;
    gpusym_mem_t mem;
    void *base;
    OK(gpusym_heap_create(dev, gpu, 1 << 20, 1, vmm, &heap));
    assert_ptr_equal(gpusym_heap_gpu(heap), gpu);
    assert_ptr_equal((char *) heap_at(heap, 4096), (char *) heap_at(heap, 0) + 4096);
    dev->query(heap_at(heap, (1 << 20) - 1), &mem);
    assert_int_equal(mem.kind, GPUSYM_MEM_DEVICE);
    assert_holds(heap_at(heap, 0), 0, 1 << 20);
    gpusym_heap_id(heap, 0, &id);
    OK(gpusym_heap_peer(heap, &id, gpusym_heap_size(heap), &base));
    assert_ptr_equal(base, heap_at(heap, 0));
    gpusym_heap_destroy(heap);
    assert_int_equal(mappings(), before);
    gpusym_heap_destroy(NULL);
}

/* More peers than fit the first table of them. */
static void peers_are_mapped_once(void **state)
{
    (void) state;
    enum { PEERS = 20 };
    const unsigned before = mappings();
    gpusym_heap_t *heap[PEERS];
    gpusym_heap_id_t id[PEERS];
    void *base[PEERS], *again;
    for (unsigned i = 0; i < PEERS; i++) {
        OK(gpusym_heap_create(dev, gpu, 128 << 10, 1, vmm, &heap[i]));
        gpusym_heap_id(heap[i], 0, &id[i]);
        fill(heap_at(heap[i], 0), (uint8_t) (i + 1), 128 << 10);
        for (unsigned k = 0; k < i; k++) {
            assert_memory_not_equal(id[i].nonce, id[k].nonce, sizeof id[i].nonce);
        }
    }
    for (unsigned i = 0; i < PEERS; i++) {
        OK(gpusym_heap_peer(heap[0], &id[i], gpusym_heap_size(heap[0]), &base[i]));
        assert_holds(base[i], (uint8_t) (i + 1), 128 << 10);
    }
    const unsigned mapped = mappings();
    for (unsigned i = 0; i < PEERS; i++) {
        OK(gpusym_heap_peer(heap[0], &id[i], gpusym_heap_size(heap[0]), &again));
        assert_ptr_equal(again, base[i]);
    }
    assert_int_equal(mappings(), mapped);
    fill((char *) base[1] + 4096, 99, 64); /* both are the same memory */
    assert_holds(heap_at(heap[1], 4096), 99, 64);
    for (unsigned i = 0; i < PEERS; i++) {
        gpusym_heap_destroy(heap[i]);
    }
    assert_int_equal(mappings(), before);
}

typedef struct {
    gpusym_heap_t *heap;
    const gpusym_heap_id_t *id;
    unsigned n;
    void *base[8];
} mapper_t;

static void *map_all(void *arg)
{
    mapper_t *m = arg;
    for (unsigned i = 0; i < m->n; i++) {
        if (GPUSYM_SUCCESS != gpusym_heap_peer(m->heap, &m->id[i], gpusym_heap_size(m->heap), &m->base[i])) {
            m->base[i] = NULL;
        }
    }
    return NULL;
}

static void threads_find_the_same_mapping(void **state)
{
    (void) state;
    gpusym_heap_t *heap[8];
    gpusym_heap_id_t id[8];
    mapper_t m[4];
    pthread_t thread[4];
    for (unsigned i = 0; i < 8; i++) {
        OK(gpusym_heap_create(dev, gpu, 64 << 10, 1, vmm, &heap[i]));
        gpusym_heap_id(heap[i], 0, &id[i]);
    }
    for (unsigned t = 0; t < 4; t++) {
        m[t] = (mapper_t){.heap = heap[0], .id = id, .n = 8};
        assert_int_equal(pthread_create(&thread[t], NULL, map_all, &m[t]), 0);
    }
    for (unsigned t = 0; t < 4; t++) {
        assert_int_equal(pthread_join(thread[t], NULL), 0);
    }
    for (unsigned i = 0; i < 8; i++) {
        for (unsigned t = 0; t < 4; t++) {
            assert_non_null(m[t].base[i]);
            assert_ptr_equal(m[t].base[i], m[0].base[i]);
        }
        gpusym_heap_destroy(i ? heap[i] : NULL);
    }
    gpusym_heap_destroy(heap[0]);
}

static void a_wrong_id_is_refused(void **state)
{
    (void) state;
    gpusym_heap_t *heap, *gone;
    gpusym_heap_id_t id, old;
    void *base;
    OK(gpusym_heap_create(dev, gpu, 64 << 10, 1, vmm, &heap));
    OK(gpusym_heap_create(dev, gpu, 64 << 10, 1, vmm, &gone));
    gpusym_heap_id(gone, 0, &old);
    memset(&id, 0x77, sizeof id);
    assert_int_not_equal(gpusym_heap_peer(heap, &id, gpusym_heap_size(heap), &base), GPUSYM_SUCCESS);
    gpusym_heap_destroy(gone);
    assert_int_not_equal(gpusym_heap_peer(heap, &old, gpusym_heap_size(heap), &base), GPUSYM_SUCCESS);
    assert_int_not_equal(gpusym_heap_peer(heap, &old, gpusym_heap_size(heap), &base),
                         GPUSYM_SUCCESS); /* the failure is not kept */
    gpusym_heap_destroy(heap);
}

/* A peer's slab has as many bytes as it says, or is not mapped. */
static void a_slab_is_as_long_as_its_owner_says(void **state)
{
    (void) state;
    const uint64_t size = 1 << 20;
    gpusym_heap_t *heap, *other;
    gpusym_heap_id_t id, own;
    void *base;
    OK(gpusym_heap_create(dev, gpu, size, 1, vmm, &heap));
    OK(gpusym_heap_create(dev, gpu, size, 1, vmm, &other));
    gpusym_heap_id(heap, 0, &own);
    gpusym_heap_id(other, 0, &id);
    const unsigned before = mappings();
    assert_int_equal(gpusym_heap_peer(heap, &own, size + 1, &base), GPUSYM_ERR_CORRUPT);
    assert_int_equal(gpusym_heap_peer(heap, &id, size + 1, &base), GPUSYM_ERR_CORRUPT);
    assert_int_equal(gpusym_heap_peer(heap, &id, UINT64_MAX, &base), GPUSYM_ERR_CORRUPT);
    assert_int_equal(mappings(), before);
    OK(gpusym_heap_peer(heap, &id, size, &base));
    assert_int_equal(gpusym_heap_peer(heap, &id, size + 1, &base), GPUSYM_ERR_CORRUPT); /* mapped, it is no longer */
    gpusym_heap_unpeer(heap, &id); /* of the one call that succeeded */
    assert_int_equal(mappings(), before);
    gpusym_heap_destroy(heap);
    gpusym_heap_destroy(other);
}

/* Injected faults at each step of making a slab, and at mapping one. */
static void nothing_is_held_after_an_error(void **state)
{
    (void) state;
    static const char *const faults[] = {"alloc:1", "export:1", "import:1"};
    for (size_t i = 0; i < 3; i++) {
        gpusym_heap_t *heap = NULL, *other;
        gpusym_heap_id_t id;
        void *base;
        device_down(NULL);
        gpusym_sim_params.fail = faults[i];
        assert_int_equal(device_up(NULL), 0);
        const unsigned before = mappings();
        if (i < 2) {
            assert_int_not_equal(gpusym_heap_create(dev, gpu, 1 << 20, 1, vmm, &heap), GPUSYM_SUCCESS);
            assert_int_equal(mappings(), before);
        }
        OK(gpusym_heap_create(dev, gpu, 1 << 20, 1, vmm, &heap));
        OK(gpusym_heap_create(dev, gpu, 1 << 20, 1, vmm, &other));
        gpusym_heap_id(other, 0, &id);
        if (2 == i) {
            assert_int_not_equal(gpusym_heap_peer(heap, &id, gpusym_heap_size(heap), &base), GPUSYM_SUCCESS);
        }
        OK(gpusym_heap_peer(heap, &id, gpusym_heap_size(heap), &base));
        gpusym_heap_destroy(heap);
        gpusym_heap_destroy(other);
        assert_int_equal(mappings(), before);
    }
}

/* ---- slots ---- */

/* Offers at once in the tests below. */
#define OFFERS 2000

static const uint64_t heap_sizes[] = {64 << 20, 52 << 20,  32 << 20, 4 << 20,
                                      1 << 20,  192 << 10, 64 << 10, (3 << 20) + 12345};
#define HEAP_SIZES (sizeof heap_sizes / sizeof heap_sizes[0])

/* Largest class first, at least one slot in all, and no more than the slab holds. */
static void classes_share_the_slab(void **state)
{
    (void) state;
    for (size_t i = 0; i < HEAP_SIZES + 1000; i++) {
        const uint64_t size = i < HEAP_SIZES ? heap_sizes[i] : (64 << 10) + next_random() % (1ull << (17 + i % 20));
        uint64_t sum = 0, before = UINT64_MAX;
        for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
            const uint64_t each = gpusym_slot_size(size, c);
            const uint32_t n = gpusym_slot_count(size, c);
            assert_int_equal(0 == each, 0 == n);
            assert_int_equal(each % 256, 0);
            if (0 != n) {
                assert_true(each < before);
                before = each;
            }
            sum += each * n;
        }
        assert_true(0 != sum && sum <= size);
        assert_true(sum >= size / 2);
    }
    assert_true(gpusym_slot_size(64 << 20, 0) == 32 << 20 && gpusym_slot_count(64 << 20, 0) == 1);
    assert_true(gpusym_slot_size(64 << 20, 1) == 8 << 20 && gpusym_slot_count(64 << 20, 1) == 2);
    assert_true(gpusym_slot_size(64 << 20, 2) == 1 << 20 && gpusym_slot_count(64 << 20, 2) == 8);
    assert_true(gpusym_slot_count(64 << 20, 3) >= 64);
}

/* Offsets of slots: those of all, and no others. */
static void a_slot_begins_where_slots_do(void **state)
{
    (void) state;
    for (size_t i = 0; i < HEAP_SIZES; i++) {
        uint64_t at = 0;
        for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
            const uint64_t each = gpusym_slot_size(heap_sizes[i], c);
            for (uint32_t k = 0; k < gpusym_slot_count(heap_sizes[i], c); k++, at += each) {
                for (unsigned d = 0; d < GPUSYM_SLOT_CLASSES; d++) {
                    assert_int_equal(gpusym_slot_is(heap_sizes[i], d, at), c == d);
                }
                assert_false(gpusym_slot_is(heap_sizes[i], c, at + 1) || gpusym_slot_is(heap_sizes[i], c, at + 4096));
            }
            assert_false(gpusym_slot_is(heap_sizes[i], c, at));
            assert_false(gpusym_slot_is(heap_sizes[i], c, heap_sizes[i]));
            assert_false(gpusym_slot_is(heap_sizes[i], c, GPUSYM_SLOT_NONE));
        }
        assert_false(gpusym_slot_is(heap_sizes[i], GPUSYM_SLOT_CLASSES, 0));
    }
}

/* A slot that was handed out. */
typedef struct {
    uint64_t off, size;
} slot_t;

static bool offers_any(const gpusym_slot_offer_t *offer)
{
    for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
        if (GPUSYM_SLOT_NONE != offer->off[c]) {
            return true;
        }
    }
    return false;
}

/* The largest class offered, as ranks that have the same left would keep. */
static int largest(const gpusym_slot_offer_t *offer)
{
    int c = 0;
    while (GPUSYM_SLOT_NONE == offer->off[c]) {
        c++;
    }
    return c;
}

/* Communicators until the heap is full: each slot within it, none over another, none larger than the one before. */
static unsigned take_all(gpusym_heap_t *heap, slot_t *slot)
{
    const uint64_t size = gpusym_heap_size(heap);
    uint64_t used = heap_used(heap);
    gpusym_slot_offer_t offer;
    unsigned n = 0;
    for (gpusym_heap_slot_offer(heap, &offer); offers_any(&offer); gpusym_heap_slot_offer(heap, &offer), n++) {
        const int keep = largest(&offer);
        gpusym_heap_slot_settle(heap, &offer, keep);
        assert_true(n < OFFERS);
        slot[n] = (slot_t){offer.off[keep], gpusym_slot_size(size, (unsigned) keep)};
        used += slot[n].size;
        assert_int_equal(heap_used(heap), used);
        assert_int_equal(slot[n].off % 256, 0);
        assert_true(slot[n].off + slot[n].size <= size);
        assert_true(0 == n || slot[n].size <= slot[n - 1].size);
        for (unsigned k = 0; k < n; k++) {
            assert_true(slot[n].off + slot[n].size <= slot[k].off || slot[k].off + slot[k].size <= slot[n].off);
        }
    }
    gpusym_heap_slot_settle(heap, &offer, -1);
    assert_int_equal(heap_used(heap), used);
    return n;
}

static void every_slot_is_had_once_and_comes_back(void **state)
{
    (void) state;
    static slot_t slot[OFFERS], again[OFFERS];
    for (size_t i = 0; i < HEAP_SIZES; i++) {
        gpusym_heap_t *heap;
        unsigned all = 0;
        OK(gpusym_heap_create(dev, gpu, heap_sizes[i], 1, vmm, &heap));
        assert_int_equal(gpusym_heap_size(heap), heap_sizes[i]);
        assert_int_equal(heap_used(heap), 0);
        for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
            all += gpusym_slot_count(heap_sizes[i], c);
        }
        assert_int_equal(take_all(heap, slot), all);
        for (unsigned k = 0; k < all; k++) {
            gpusym_heap_slot_free(heap, 0, slot[(k * 7 + 3) % all].off, 1, 0); /* some twice, which changes nothing */
        }
        for (unsigned k = 0; k < all; k++) {
            gpusym_heap_slot_free(heap, 0, slot[k].off, 1, 0);
        }
        assert_int_equal(heap_used(heap), 0);
        assert_int_equal(take_all(heap, again), all); /* the same slots: places and borders are for ever */
        assert_memory_equal(slot, again, all * sizeof *slot);
        gpusym_heap_destroy(heap);
    }
}

/* What is not kept can be had by others at once; what is reserved cannot. */
static void an_offer_reserves(void **state)
{
    (void) state;
    const uint64_t size = 4 << 20;
    gpusym_heap_t *heap;
    gpusym_slot_offer_t a, b, c;
    uint64_t reserved = 0;
    OK(gpusym_heap_create(dev, gpu, size, 1, vmm, &heap));
    gpusym_heap_slot_offer(heap, &a);
    for (unsigned k = 0; k < GPUSYM_SLOT_CLASSES; k++) {
        reserved += GPUSYM_SLOT_NONE == a.off[k] ? 0 : gpusym_slot_size(size, k);
        assert_int_equal(GPUSYM_SLOT_NONE == a.off[k], 0 == gpusym_slot_count(size, k));
    }
    assert_int_equal(heap_used(heap), reserved);
    gpusym_heap_slot_offer(heap, &b);
    for (unsigned k = 0; k < GPUSYM_SLOT_CLASSES; k++) {
        assert_true(GPUSYM_SLOT_NONE == b.off[k] || a.off[k] != b.off[k]);
        assert_true(1 != gpusym_slot_count(size, k) || GPUSYM_SLOT_NONE == b.off[k]);
    }
    gpusym_heap_slot_settle(heap, &a, 1);
    gpusym_heap_slot_settle(heap, &b, -1);
    assert_int_equal(heap_used(heap), gpusym_slot_size(size, 1));
    gpusym_heap_slot_offer(heap, &c);
    assert_int_equal(c.off[0], a.off[0]);
    assert_true(c.off[1] != a.off[1]);
    gpusym_heap_slot_settle(heap, &c, -1);
    gpusym_heap_slot_free(heap, 0, a.off[1], 1, 0);
    gpusym_heap_slot_free(heap, 0, 4096 + 1, 1, 0); /* no slot begins there: nothing happens */
    assert_int_equal(heap_used(heap), 0);
    gpusym_heap_destroy(heap);
}

/* A communicator that finds no slot of the largest class gets another slab, as long as there may be one more. */
static void a_heap_gets_more_slabs(void **state)
{
    (void) state;
    enum { MOST = 3 };
    const uint64_t size = 4 << 20;
    gpusym_heap_t *heap;
    gpusym_slot_offer_t offer[MOST + 1], more;
    gpusym_heap_id_t id[MOST];
    void *base[MOST];
    OK(gpusym_heap_create(dev, gpu, size, MOST, vmm, &heap));
    for (unsigned i = 0; i < MOST; i++) {
        gpusym_heap_slot_offer(heap, &offer[i]);
        assert_int_equal(offer[i].slab, i);
        assert_int_equal(offer[i].off[0], 0);
        assert_int_equal(gpusym_heap_slabs(heap), i + 1);
        gpusym_heap_slot_settle(heap, &offer[i], 0);
        gpusym_heap_id(heap, i, &id[i]);
        OK(gpusym_heap_peer(heap, &id[i], gpusym_heap_size(heap), &base[i]));
        assert_true(0 == i || (0 != memcmp(&id[i], &id[i - 1], sizeof id[i]) && base[i] != base[i - 1]));
        assert_int_equal(id[i].vmm, vmm);
        assert_true(!vmm || (char *) base[i] == (char *) base[0] + i * size); /* at addresses that wait for it */
    }
    gpusym_heap_slot_offer(heap, &offer[MOST]); /* the first slab with one of the next class */
    assert_int_equal(offer[MOST].slab, 0);
    assert_true(GPUSYM_SLOT_NONE == offer[MOST].off[0] && GPUSYM_SLOT_NONE != offer[MOST].off[1]);
    gpusym_heap_slot_settle(heap, &offer[MOST], -1);
    gpusym_heap_slot_free(heap, 1, offer[1].off[0], 9, 0);
    gpusym_heap_slot_offer(heap, &more);
    assert_true(1 == more.slab && 0 == more.off[0]);
    assert_true(gpusym_heap_epoch_floor(heap) >= 9);
    gpusym_heap_slot_settle(heap, &more, -1);
    gpusym_heap_slot_offer_of(heap, 2, &more);
    assert_true(2 == more.slab && GPUSYM_SLOT_NONE == more.off[0] && offer[2].off[1] == more.off[1]);
    gpusym_heap_slot_settle(heap, &more, -1);
    assert_int_equal(gpusym_heap_slabs(heap), MOST);
    gpusym_heap_destroy(heap);
}

/* A communicator that spares memory takes what the slabs have, whatever its size, and another one where they have
 * none. */
static void a_sparing_offer_makes_no_slab(void **state)
{
    (void) state;
    const uint64_t size = 4 << 20;
    uint32_t all = 0;
    gpusym_heap_t *heap;
    gpusym_slot_offer_t offer;
    OK(gpusym_heap_create(dev, gpu, size, 2, vmm, &heap));
    for (unsigned k = 0; k < GPUSYM_SLOT_CLASSES; k++) {
        all += gpusym_slot_count(size, k);
    }
    for (uint32_t i = 0; i < all; i++) {
        unsigned largest = 0;
        gpusym_heap_slot_offer_sparing(heap, &offer);
        while (GPUSYM_SLOT_NONE == offer.off[largest]) {
            largest++;
        }
        assert_int_equal(offer.slab, 0);
        assert_int_equal(gpusym_heap_slabs(heap), 1);
        gpusym_heap_slot_settle(heap, &offer, (int) largest);
    }
    gpusym_heap_slot_offer_sparing(heap, &offer);
    assert_true(1 == offer.slab && 0 == offer.off[0]);
    assert_int_equal(gpusym_heap_slabs(heap), 2);
    gpusym_heap_destroy(heap);
}

/* Without memory for another slab, communicators share those that there are, and it is not tried again. */
static void a_heap_without_memory_keeps_its_slabs(void **state)
{
    (void) state;
    gpusym_heap_t *heap;
    gpusym_slot_offer_t a, b;
    device_down(NULL);
    gpusym_sim_params.fail = "alloc:2";
    assert_int_equal(device_up(NULL), 0);
    OK(gpusym_heap_create(dev, gpu, 4 << 20, 4, vmm, &heap));
    gpusym_heap_slot_offer(heap, &a);
    gpusym_heap_slot_settle(heap, &a, 0);
    gpusym_heap_slot_offer(heap, &b);
    assert_true(0 == b.slab && GPUSYM_SLOT_NONE == b.off[0] && GPUSYM_SLOT_NONE != b.off[1]);
    gpusym_heap_slot_settle(heap, &b, 1);
    gpusym_heap_slot_offer(heap, &b);
    assert_int_equal(gpusym_heap_slabs(heap), 1);
    gpusym_heap_slot_settle(heap, &b, -1);
    gpusym_heap_destroy(heap);
}

static unsigned descriptors(void)
{
    unsigned n = 0;
    for (int fd = 0; fd < 256; fd++) {
        n += -1 != fcntl(fd, F_GETFD);
    }
    return n;
}

static uint64_t bytes_of_device(void)
{
    uint64_t now;
    gpusym_sim_bytes(&now, NULL);
    return now;
}

/* Each step of a slab of virtual memory fails: it is made of other memory, as are later ones, and the first way has
 * left nothing. */
static void a_heap_does_without_virtual_memory(void **state)
{
    (void) state;
    /* the reserving of addresses, a slab, its export, those of the second slab; what is there in the end */
    static const struct {
        const char *fault;
        unsigned vmm; /* slabs */
    } cases[] = {{"alloc:1", 0}, {"alloc:2", 0}, {"export:1", 0}, {"alloc:3", 1}, {"export:2", 1}, {"alloc:9", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gpusym_heap_t *heap;
        gpusym_slot_offer_t offer[2];
        gpusym_heap_id_t id;
        device_down(NULL);
        gpusym_sim_params.fail = cases[i].fault;
        assert_int_equal(device_up_vmm(NULL), 0);
        const unsigned maps = mappings(), fds = descriptors();
        OK(gpusym_heap_create(dev, gpu, 4 << 20, 4, vmm, &heap));
        for (unsigned s = 0; s < 2; s++) {
            gpusym_heap_slot_offer(heap, &offer[s]);
            gpusym_heap_slot_settle(heap, &offer[s], 0);
            assert_int_equal(offer[s].slab, s);
            gpusym_heap_id(heap, s, &id);
            assert_int_equal(id.vmm, s < cases[i].vmm);
        }
        assert_int_equal(bytes_of_device(), 8 << 20);
        gpusym_heap_destroy(heap);
        assert_true(maps == mappings() && fds == descriptors() && 0 == bytes_of_device());
    }
}

/* A rank cannot map what others have made: they offer other memory; what is in use stays until it is not. */
static void virtual_memory_is_refused(void **state)
{
    (void) state;
    const uint64_t size = 4 << 20;
    gpusym_heap_t *heap;
    gpusym_slot_offer_t kept, tried, other;
    gpusym_heap_id_t id;
    const unsigned maps = mappings(), fds = descriptors();
    OK(gpusym_heap_create(dev, gpu, size, 2, vmm, &heap));
    gpusym_heap_slot_offer(heap, &kept);
    gpusym_heap_slot_settle(heap, &kept, 0);
    gpusym_heap_slot_offer(heap, &tried);
    gpusym_heap_slot_settle(heap, &tried, -1);
    assert_true(0 == kept.slab && 1 == tried.slab && 2 * size == bytes_of_device());
    gpusym_heap_refuse_vmm(heap);
    assert_int_equal(bytes_of_device(), size); /* the second one is not in use */
    for (unsigned i = 0; i < 3; i++) {
        gpusym_heap_slot_offer(heap, &other);
        assert_int_equal(other.slab, i < 2 ? 2 + i : 2); /* two of these, whatever there was before */
        gpusym_heap_slot_settle(heap, &other, i < 2 ? 0 : -1);
        gpusym_heap_id(heap, (unsigned) other.slab, &id);
        assert_int_equal(id.vmm, 0);
        gpusym_heap_refuse_vmm(heap);
    }
    gpusym_heap_slot_offer_of(heap, kept.slab, &other); /* the communicator that is there goes on */
    assert_true(kept.slab == other.slab && other.off[1] == kept.off[1]);
    gpusym_heap_slot_settle(heap, &other, -1);
    assert_int_equal(bytes_of_device(), 3 * size);
    gpusym_heap_slot_free(heap, kept.slab, kept.off[0], 7, 0);
    gpusym_heap_slot_offer(heap, &other);
    assert_true(other.slab >= 2 && 2 * size == bytes_of_device());
    gpusym_heap_destroy(heap);
    assert_true(maps == mappings() && fds == descriptors() && 0 == bytes_of_device());
}

/* A multicast object of this process alone, over a slab of `size` bytes. */
static gpusym_heap_mc_t make_object(gpusym_heap_t *heap, uint64_t size, uint64_t id)
{
    gpusym_heap_mc_t object = {.id = id, .members = 1};
    gpusym_handle_t handle;
    OK(dev->mc_create(gpu, 1, 1, size, &object.mc, &handle));
    OK(dev->mc_add(object.mc));
    OK(dev->mc_bind(object.mc, 0, heap_at(heap, 0), size, &object.mp));
    return object;
}

/* A slab keeps one multicast object, and takes it along: when its memory is refused and free, or with the heap. */
static void a_slab_keeps_a_multicast_object(void **state)
{
    (void) state;
    const uint64_t size = 4 << 20;
    const unsigned maps = mappings(), fds = descriptors();
    for (unsigned refused = 0; refused < 2; refused++) {
        gpusym_heap_t *heap;
        gpusym_heap_mc_t got;
        gpusym_slot_offer_t offer;
        OK(gpusym_heap_create(dev, gpu, size, 2, vmm, &heap));
        gpusym_heap_mc_get(heap, 0, &got);
        assert_true(0 == got.id);
        gpusym_heap_mc_t first = make_object(heap, size, 5), second = make_object(heap, size, 0);
        assert_false(gpusym_heap_mc_keep(heap, 0, &second)); /* it has no id */
        assert_true(gpusym_heap_mc_keep(heap, 0, &first));
        second.id = 6;
        assert_false(gpusym_heap_mc_keep(heap, 0, &second));
        dev->mc_free(second.mc);
        gpusym_heap_mc_get(heap, 0, &got);
        assert_true(5 == got.id && 1 == got.members && first.mc == got.mc && first.mp == got.mp);
        gpusym_heap_slot_offer(heap, &offer);
        gpusym_heap_slot_settle(heap, &offer, 0);
        if (refused) {
            gpusym_heap_refuse_vmm(heap);
            gpusym_heap_mc_get(heap, 0, &got);
            assert_true(5 == got.id); /* a communicator has a slot there */
            gpusym_heap_slot_free(heap, offer.slab, offer.off[0], 7, 0);
            gpusym_heap_refuse_vmm(heap);
            gpusym_heap_mc_get(heap, 0, &got);
            assert_true(0 == got.id && 0 == bytes_of_device());
        }
        gpusym_heap_destroy(heap);
        assert_true(maps == mappings() && fds == descriptors() && 0 == bytes_of_device());
    }
}

/* There is no memory of the other kind: nothing is offered, which is an answer like another. */
static void nothing_is_offered_without_memory(void **state)
{
    (void) state;
    gpusym_heap_t *heap;
    gpusym_slot_offer_t offer;
    device_down(NULL);
    gpusym_sim_params.fail = "alloc:3+";
    assert_int_equal(device_up_vmm(NULL), 0);
    OK(gpusym_heap_create(dev, gpu, 4 << 20, 2, vmm, &heap));
    gpusym_heap_refuse_vmm(heap);
    for (unsigned i = 0; i < 2; i++) {
        gpusym_heap_slot_offer(heap, &offer);
        for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
            assert_int_equal(offer.off[c], GPUSYM_SLOT_NONE);
        }
        gpusym_heap_slot_settle(heap, &offer, -1);
    }
    gpusym_heap_destroy(heap);
    assert_int_equal(bytes_of_device(), 0);
}

/* A peer's slab is unmapped when nobody wants it any more. */
static void a_peer_is_given_back(void **state)
{
    (void) state;
    gpusym_heap_t *heap, *peer;
    gpusym_heap_id_t id, own;
    void *first, *again;
    OK(gpusym_heap_create(dev, gpu, 1 << 20, 1, vmm, &heap));
    OK(gpusym_heap_create(dev, gpu, 1 << 20, 1, vmm, &peer));
    gpusym_heap_id(peer, 0, &id);
    gpusym_heap_id(heap, 0, &own);
    const unsigned maps = mappings();
    OK(gpusym_heap_peer(heap, &id, gpusym_heap_size(heap), &first));
    OK(gpusym_heap_peer(heap, &id, gpusym_heap_size(heap), &again));
    gpusym_heap_unpeer(heap, &id);
    fill(first, 0x5a, 1 << 20); /* still there */
    gpusym_heap_unpeer(heap, &id);
    gpusym_heap_unpeer(heap, &id);
    gpusym_heap_unpeer(heap, &own);
    assert_int_equal(mappings(), maps);
    OK(gpusym_heap_peer(heap, &id, gpusym_heap_size(heap), &again));
    assert_holds(again, 0x5a, 1 << 20);
    gpusym_heap_destroy(heap);
    gpusym_heap_destroy(peer);
}

/* A communicator starts above all epochs that freed slots have seen, whichever of them it gets. */
static void the_epoch_floor_only_rises(void **state)
{
    (void) state;
    static const uint32_t epochs[] = {1, 100, 7, 100, 101, 0x80000005u, 3};
    gpusym_heap_t *heap;
    gpusym_slot_offer_t offer;
    OK(gpusym_heap_create(dev, gpu, 1 << 20, 1, vmm, &heap));
    uint32_t least = gpusym_heap_epoch_floor(heap);
    assert_true(least >= 1);
    for (size_t i = 0; i < sizeof epochs / sizeof epochs[0]; i++) {
        gpusym_heap_slot_offer(heap, &offer);
        const int keep = largest(&offer);
        gpusym_heap_slot_settle(heap, &offer, keep);
        assert_true(gpusym_heap_epoch_floor(heap) >= least);
        gpusym_heap_slot_free(heap, 0, offer.off[keep], epochs[i], 0);
        least = epochs[i] > least ? epochs[i] : least;
        assert_true(gpusym_heap_epoch_floor(heap) >= least);
    }
    gpusym_heap_destroy(heap);
}

typedef struct {
    gpusym_heap_t *heap;
    unsigned rounds, clashes;
    uint8_t *owner; /* a mark for every 4096 bytes of the slab */
} taker_t;

static void *take_and_free(void *arg)
{
    taker_t *t = arg;
    gpusym_slot_offer_t offer;
    for (unsigned i = 0; i < t->rounds; i++) {
        gpusym_heap_slot_offer(t->heap, &offer);
        const int keep = offers_any(&offer) ? largest(&offer) : -1;
        gpusym_heap_slot_settle(t->heap, &offer, keep);
        if (keep >= 0) {
            uint8_t *mark = &t->owner[offer.off[keep] / 4096];
            t->clashes += 0 != __atomic_exchange_n(mark, 1, __ATOMIC_ACQ_REL);
            __atomic_store_n(mark, 0, __ATOMIC_RELEASE);
            gpusym_heap_slot_free(t->heap, 0, offer.off[keep], i, 0);
        }
    }
    return NULL;
}

/* Thousands of communicators in several threads use up nothing, and no slot has two owners. */
static void slots_do_not_leak(void **state)
{
    (void) state;
    static uint8_t owner[256];
    gpusym_heap_t *heap;
    taker_t taker[4];
    pthread_t thread[4];
    OK(gpusym_heap_create(dev, gpu, 1 << 20, 1, vmm, &heap));
    for (unsigned t = 0; t < 4; t++) {
        taker[t] = (taker_t){heap, 5000, 0, owner};
        assert_int_equal(pthread_create(&thread[t], NULL, take_and_free, &taker[t]), 0);
    }
    for (unsigned t = 0; t < 4; t++) {
        assert_int_equal(pthread_join(thread[t], NULL), 0);
        assert_int_equal(taker[t].clashes, 0);
    }
    assert_int_equal(heap_used(heap), 0);
    assert_true(gpusym_heap_epoch_floor(heap) >= 4000);
    gpusym_heap_destroy(heap);
}

/* A slot is free once no peer can write to it: its line is the last one that is retired. */
static void a_slot_stays_as_long_as_its_line(void **state)
{
    (void) state;
    gpusym_heap_t *heap;
    gpusym_pages_id_t id;
    gpusym_slot_offer_t offer, again;
    uint64_t off[2], *generation[2];
    void **line[2];
    const uint64_t table[GPUSYM_LINE_TABLES] = {0};
    OK(gpusym_heap_create(dev, gpu, 4 << 20, 1, vmm, &heap));
    OK(gpusym_pages_open(&id));
    for (unsigned r = 0; r < 2; r++) { /* ours, and in the same slab that of a peer */
        OK(gpusym_pages_alloc(&off[r]));
    }
    for (unsigned r = 0; r < 2; r++) {
        line[r] = malloc(2 * sizeof *line[r]);
        generation[r] = malloc(2 * sizeof *generation[r]);
        for (unsigned p = 0; p < 2; p++) {
            line[r][p] = gpusym_pages_line(off[p]);
            generation[r][p] = gpusym_line_generation(line[r][p]);
        }
    }
    gpusym_heap_slot_offer(heap, &offer);
    gpusym_heap_slot_settle(heap, &offer, 0);
    gpusym_pages_retire(off[0], table, 2, 0, line[0], generation[0]);
    gpusym_heap_slot_free(heap, 0, offer.off[0], 7, off[0]);
    assert_true(gpusym_heap_epoch_floor(heap) >= 7);
    for (unsigned k = 0; k < 2; k++) { /* the peer is late */
        gpusym_heap_slot_offer(heap, &again);
        assert_int_equal(again.off[0], GPUSYM_SLOT_NONE);
        gpusym_heap_slot_settle(heap, &again, -1);
    }
    gpusym_pages_retire(off[1], table, 2, 1, line[1], generation[1]);
    gpusym_heap_slot_offer(heap, &again);
    assert_int_equal(again.off[0], offer.off[0]);
    gpusym_heap_slot_settle(heap, &again, -1);
    assert_int_equal(heap_used(heap), 0);
    gpusym_heap_destroy(heap);
    gpusym_pages_close();
}

/* A process with a line, whose place it tells; then it waits to be killed. */
static void have_line(int to)
{
    struct {
        gpusym_pages_id_t id;
        uint64_t off;
    } mine;
    memset(&mine, 0, sizeof mine);
    if (GPUSYM_SUCCESS == gpusym_pages_open(&mine.id) && GPUSYM_SUCCESS == gpusym_pages_alloc(&mine.off) &&
        sizeof mine == write(to, &mine, sizeof mine)) {
        pause();
    }
    _exit(1);
}

/* A peer that has been killed retires nothing: its place among those that may write to a slot ends with it. */
static void a_dead_peer_keeps_no_slot(void **state)
{
    (void) state;
    struct {
        gpusym_pages_id_t id;
        uint64_t off;
    } its;
    gpusym_heap_t *heap;
    gpusym_pages_id_t id;
    gpusym_slot_offer_t offer, again;
    gpusym_peer_t *peer;
    uint64_t off;
    int ends[2];
    void **line = malloc(2 * sizeof *line);
    uint64_t *generation = malloc(2 * sizeof *generation);
    const uint64_t table[GPUSYM_LINE_TABLES] = {0};
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (0 == child) {
        have_line(ends[1]);
    }
    assert_int_equal(read(ends[0], &its, sizeof its), sizeof its);
    OK(gpusym_heap_create(dev, gpu, 4 << 20, 1, vmm, &heap));
    OK(gpusym_pages_open(&id));
    OK(gpusym_pages_alloc(&off));
    OK(gpusym_pages_peer(&its.id, &peer));
    line[0] = gpusym_pages_line(off);
    line[1] = gpusym_peer_line(peer, its.off);
    generation[0] = gpusym_line_generation(line[0]);
    generation[1] = gpusym_line_generation(line[1]);
    gpusym_heap_slot_offer(heap, &offer);
    gpusym_heap_slot_settle(heap, &offer, 0);
    gpusym_pages_retire(off, table, 2, 0, line, generation);
    gpusym_heap_slot_free(heap, 0, offer.off[0], 7, off);
    gpusym_heap_slot_offer(heap, &again);
    assert_int_equal(again.off[0], GPUSYM_SLOT_NONE); /* it lives */
    gpusym_heap_slot_settle(heap, &again, -1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    usleep(20000);
    gpusym_heap_slot_offer(heap, &again);
    assert_int_equal(again.off[0], offer.off[0]);
    gpusym_heap_slot_settle(heap, &again, -1);
    assert_false(gpusym_pages_is_in_use(off));
    gpusym_heap_destroy(heap);
    gpusym_pages_close();
    close(ends[0]);
    close(ends[1]);
}

/* ---- the division of a slot ---- */

#define SLOT_LEAST (64u << 10)

/* Areas one after the other: flags, LL lines, LL128 lines, staging; LL128 lines in whole groups. */
static bool layout_right(uint64_t size, uint32_t n, uint32_t max_blocks, uint32_t blocks, const gpusym_work_t *w)
{
    return blocks >= 1 && blocks <= max_blocks && w->flag_rows >= blocks &&
           w->ll_off >= GPUSYM_FLAGS_OFF + (uint64_t) w->flag_rows * GPUSYM_FLAG_ROW && 0 == w->ll_off % 128 &&
           0 != w->ll_bytes && 0 == w->ll_bytes % 32 && w->ll_off + 2ull * n * w->ll_bytes <= w->ll128_off &&
           0 == w->ll128_off % 128 && 0 == w->ll128_room % GPUSYM_LL128_BYTES &&
           w->ll128_off + w->ll128_room == w->stage_off && 0 == w->stage_off % 128 &&
           w->stage_room >= 4 * GPUSYM_PACK * n && w->stage_off + w->stage_room == size;
}

/* Whether a two-shot in that slot stays within the staging area. */
static bool plan_right(uint32_t n, uint32_t blocks, const gpusym_work_t *shape)
{
    gpusym_work_t w = *shape;
    w.bytes = 1 + next_random() % (1u << next_random() % 31);
    w.nranks = n;
    w.nblocks = blocks;
    const uint64_t epochs =
        gpusym_kernel_plan(GPUSYM_F_RSXST_AGXST, &w, next_random() % 2 ? 0 : (uint32_t) next_random() >> 8);
    const uint64_t packs = (w.bytes + GPUSYM_PACK - 1) / GPUSYM_PACK;
    return epochs >= 2 && w.nblocks >= 1 && w.nblocks <= blocks && 0 != w.stage_bytes &&
           0 == w.stage_bytes % (GPUSYM_PACK * n) && 4ull * w.nblocks * w.stage_bytes <= w.stage_room && 0 != w.chunk &&
           0 == w.chunk % n && (uint64_t) w.chunk * GPUSYM_PACK <= w.stage_bytes &&
           (epochs - 1) * w.nblocks * w.chunk >= packs;
}

static void check_layout(uint64_t size, uint32_t n, uint32_t max_blocks)
{
    gpusym_work_t w, again;
    memset(&w, 0, sizeof w);
    memset(&again, 0, sizeof again);
    const uint32_t blocks = gpusym_slot_layout(size, n, max_blocks, &w);
    const uint32_t blocks_again = gpusym_slot_layout(size, n, max_blocks, &again);
    if (!layout_right(size, n, max_blocks, blocks, &w) || blocks != blocks_again || 0 != memcmp(&w, &again, sizeof w) ||
        !plan_right(n, blocks, &w) || !plan_right(n, 1 + (uint32_t) (next_random() % blocks), &w)) {
        print_error(
            "size %lu, %u ranks, %u blocks at most: %u blocks of %u rows, LL at %lu of %u, LL128 at %lu of %lu, "
            "stage at %lu of %lu\n",
            (unsigned long) size, n, max_blocks, blocks, w.flag_rows, (unsigned long) w.ll_off, w.ll_bytes,
            (unsigned long) w.ll128_off, (unsigned long) w.ll128_room, (unsigned long) w.stage_off,
            (unsigned long) w.stage_room);
        fail();
    }
}

static void every_slot_can_be_divided(void **state)
{
    (void) state;
    for (uint32_t n = 1; n <= GPUSYM_TEAM_MAX; n++) {
        for (uint32_t blocks = 1; blocks <= GPUSYM_BLOCKS_MAX; blocks++) {
            for (uint64_t size = SLOT_LEAST; size <= 256 << 20; size *= 2) {
                check_layout(size, n, blocks);
                check_layout(size + next_random() % (size / 4096) * 4096, n, blocks);
                check_layout(size + next_random() % size, n, blocks);
            }
        }
    }
}

/* Flags and LL lines lie where they lie whatever the team: what an old owner left there are flags and lines. */
static void borders_depend_on_the_size_alone(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 500; i++) {
        const uint64_t size = SLOT_LEAST + next_random() % (1ull << (12 + i % 16)) / 256 * 256;
        gpusym_work_t first, w;
        memset(&first, 0, sizeof first);
        assert_true(gpusym_slot_layout(size, 2, 1, &first) > 0);
        for (uint32_t n = 1; n <= GPUSYM_TEAM_MAX; n++) {
            for (uint32_t blocks = 1; blocks <= GPUSYM_BLOCKS_MAX; blocks *= 2) {
                memset(&w, 0, sizeof w);
                assert_true(gpusym_slot_layout(size, n, blocks, &w) > 0);
                assert_int_equal(w.ll_off, first.ll_off);
                assert_int_equal(w.ll128_off, first.ll128_off);
                assert_int_equal(w.stage_off, first.stage_off);
                assert_int_equal(w.flag_rows, first.flag_rows);
                assert_int_equal(w.ll_bytes % 32, 0); /* lines are on one grid, of any team */
            }
        }
    }
}

/* The larger the slot, the more of it is used: not less than half of any. */
static void a_slot_is_well_used(void **state)
{
    (void) state;
    for (uint32_t n = 2; n <= 8; n++) {
        for (uint64_t size = 1 << 20; size <= 256 << 20; size *= 2) {
            gpusym_work_t w;
            const uint32_t blocks = gpusym_slot_layout(size, n, 64, &w);
            assert_int_equal(blocks, 64);
            assert_true(w.stage_room >= size / 2);
        }
    }
}

/* Too small for even one block: refused, whatever the size. */
static void a_tiny_slot_is_refused_or_right(void **state)
{
    (void) state;
    gpusym_work_t w;
    for (uint32_t n = 1; n <= GPUSYM_TEAM_MAX; n++) {
        assert_int_equal(gpusym_slot_layout(0, n, 4, &w), 0);
        assert_int_equal(gpusym_slot_layout(GPUSYM_FLAGS_OFF, n, 4, &w), 0);
        for (uint64_t size = 512; size < SLOT_LEAST; size += 496) {
            if (0 != gpusym_slot_layout(size, n, 4, &w)) {
                check_layout(size, n, 4);
            }
        }
    }
}

#define ON_DEVICE(function) cmocka_unit_test_setup_teardown(function, device_up, device_down)
#define ON_VMM(function)                                                         \
    {                                                                            \
#function ", virtual memory", function, device_up_vmm, device_down, NULL \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_does_what_its_model_does),
        cmocka_unit_test(arena_ends),
        cmocka_unit_test(arena_is_cut),
        ON_DEVICE(a_slab_is_zeroed_and_known_by_its_id),
        ON_DEVICE(peers_are_mapped_once),
        ON_DEVICE(threads_find_the_same_mapping),
        ON_DEVICE(a_wrong_id_is_refused),
        ON_DEVICE(a_slab_is_as_long_as_its_owner_says),
        ON_DEVICE(nothing_is_held_after_an_error),
        cmocka_unit_test(classes_share_the_slab),
        cmocka_unit_test(a_slot_begins_where_slots_do),
        ON_DEVICE(every_slot_is_had_once_and_comes_back),
        ON_DEVICE(a_heap_gets_more_slabs),
        ON_DEVICE(a_heap_without_memory_keeps_its_slabs),
        ON_DEVICE(a_peer_is_given_back),
        ON_VMM(a_slab_is_zeroed_and_known_by_its_id),
        ON_VMM(peers_are_mapped_once),
        ON_VMM(threads_find_the_same_mapping),
        ON_VMM(a_wrong_id_is_refused),
        ON_VMM(a_slab_is_as_long_as_its_owner_says),
        ON_VMM(every_slot_is_had_once_and_comes_back),
        ON_VMM(a_heap_gets_more_slabs),
        ON_VMM(a_sparing_offer_makes_no_slab),
        ON_VMM(slots_do_not_leak),
        ON_VMM(a_peer_is_given_back),
        ON_VMM(a_heap_does_without_virtual_memory),
        ON_VMM(virtual_memory_is_refused),
        ON_VMM(a_slab_keeps_a_multicast_object),
        ON_VMM(nothing_is_offered_without_memory),
        ON_DEVICE(an_offer_reserves),
        ON_DEVICE(the_epoch_floor_only_rises),
        ON_DEVICE(slots_do_not_leak),
        ON_DEVICE(a_slot_stays_as_long_as_its_line),
        ON_DEVICE(a_dead_peer_keeps_no_slot),
        cmocka_unit_test(every_slot_can_be_divided),
        cmocka_unit_test(borders_depend_on_the_size_alone),
        cmocka_unit_test(a_slot_is_well_used),
        cmocka_unit_test(a_tiny_slot_is_refused_or_right),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
