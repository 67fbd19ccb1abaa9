/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which memory a message has.
 */
#include "mca/pml/gpusym/host.h"

#include "mca/common/gpusym/device/plain.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/lock.h"

mca_pml_base_module_t pml_gpusym_host;
pml_gpusym_range_t pml_gpusym_range;

/* Whether the bytes from first to last are host memory for sure. Remembers how far the heap reaches: it rarely shrinks,
 * and what it has given back is not used for device memory, since it lies below what may be mapped. */
static bool is_plain(uintptr_t first, uintptr_t last)
{
    const gpusym_plain_t place = gpusym_plain_place((const void *) first);
    if (GPUSYM_PLAIN_HEAP == place && first - gpusym_plain_ranges.heap >= pml_gpusym_range.size) {
        pml_gpusym_range.heap = gpusym_plain_ranges.heap;
        __atomic_store_n(&pml_gpusym_range.size, (uintptr_t) sbrk(0) - gpusym_plain_ranges.heap, __ATOMIC_RELEASE);
    }
    return GPUSYM_PLAIN_NO != place && (first == last || place == gpusym_plain_place((const void *) last));
}

/* ---- the allocation in use ---- */

/* Requests of GPU memory under way from which on an allocation is remembered: what lies in it is asked once more then,
 * which a message in each direction would not gain. */
#define SEVERAL 3u

static struct {
    pthread_mutex_t lock; /* covers all of this */
    uint32_t requests;    /* of GPU memory, under way */
    uint32_t users;       /* those in this allocation; 0: there is none. Also read without the lock */
    uintptr_t base;
    uint64_t size;
    gpusym_mem_t mem;
} used = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Whether these bytes lie in it. With the lock held. */
static bool used_has(uintptr_t first, size_t span)
{
    return first - used.base < used.size && span <= used.size - (first - used.base);
}

/* Remembers the allocation of a buffer, if it can. Only one that has an id is told from another one at its address, and
 * memory that is mapped piece by piece has none. Not where each question waits for the legacy stream. With the lock
 * held. */
static bool remember(const gpusym_mem_t *mem, uintptr_t first)
{
    gpusym_range_t range;
    if (0 == mem->id || gpusym_cuda_wait_legacy_stream ||
        GPUSYM_SUCCESS != gpusym_current.dev->mem_range((const void *) first, &range) || range.id != mem->id) {
        return false;
    }
    used.base = (uintptr_t) range.base;
    used.size = range.size;
    used.mem = *mem;
    return true;
}

static uintptr_t first_byte(const gpusym_layout_t *layout, const void *buf)
{
    return (uintptr_t) buf + (uintptr_t) layout->lo;
}

bool pml_gpusym_memory_use(const gpusym_mem_t *mem, const gpusym_layout_t *layout, const void *buf)
{
    const uintptr_t first = first_byte(layout, buf);
    gpusym_lock(&used.lock);
    used.requests++;
    const bool there = 0 != used.users || (used.requests >= SEVERAL && remember(mem, first));
    const bool known = there && mem->id == used.mem.id && used_has(first, layout->span);
    __atomic_store_n(&used.users, used.users + (known ? 1 : 0), __ATOMIC_RELAXED);
    gpusym_unlock(&used.lock);
    return known;
}

void pml_gpusym_memory_unuse(bool known)
{
    gpusym_lock(&used.lock);
    used.requests--;
    __atomic_store_n(&used.users, used.users - (known ? 1 : 0), __ATOMIC_RELAXED);
    gpusym_unlock(&used.lock);
}

/* Whether a buffer lies in the allocation in use; *mem is then set. */
static bool find_used(const gpusym_layout_t *layout, const void *buf, gpusym_mem_t *mem)
{
    if (0 == __atomic_load_n(&used.users, __ATOMIC_RELAXED)) {
        return false;
    }
    gpusym_lock(&used.lock);
    const bool known = 0 != used.users && used_has(first_byte(layout, buf), layout->span);
    if (known) {
        *mem = used.mem;
    }
    gpusym_unlock(&used.lock);
    return known;
}

bool pml_gpusym_ask_device(const void *buf, size_t count, struct ompi_datatype_t *dtype, pml_gpusym_memory_t *memory)
{
    const bool gaps = 0 == (dtype->super.flags & OPAL_DATATYPE_FLAG_NO_GAPS);
    ptrdiff_t lo = dtype->super.true_lb, hi = lo + 1;
    if (0 == count || 0 == dtype->super.size) {
        return false;
    }
    if (gaps) {
        gpusym_layout_range(count, dtype, &lo, &hi);
    }
    if (is_plain((uintptr_t) buf + (uintptr_t) lo, (uintptr_t) buf + (uintptr_t) hi - 1)) {
        return false;
    }
    gpusym_layout_find(count, dtype, &memory->layout);
    if (!find_used(&memory->layout, buf, &memory->mem)) {
        gpusym_layout_where(gpusym_current.dev, &memory->layout, buf, &memory->mem);
    }
    return GPUSYM_MEM_DEVICE == memory->mem.kind;
}
