/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Attached memory: see attach.h.
 */
#include "mca/osc/gpusym/attach.h"

#include "mca/common/gpusym/memory/reg.h"

/* An entry of the table that a reader has copied. */
typedef struct {
    uint64_t base, bytes, off;
    uint32_t key;
    bool used, gpu;
} piece_t;

/* ---- the table: of each entry the version is odd while its owner writes it ---- */

static void write_piece(osc_gpusym_attached_t *a, const piece_t *p)
{
    __atomic_store_n(&a->version, a->version + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&a->base, p->base, __ATOMIC_RELAXED);
    __atomic_store_n(&a->bytes, p->bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&a->off, p->off, __ATOMIC_RELAXED);
    __atomic_store_n(&a->key, p->key, __ATOMIC_RELAXED);
    __atomic_store_n(&a->flags, (p->used ? 1u : 0u) | (p->gpu ? 2u : 0u), __ATOMIC_RELAXED);
    __atomic_store_n(&a->version, a->version + 1, __ATOMIC_RELEASE);
}

/* False: its owner is writing it, so that it is none that a correct program accesses. */
static bool read_piece(const osc_gpusym_attached_t *a, piece_t *p)
{
    const uint32_t version = __atomic_load_n(&a->version, __ATOMIC_ACQUIRE);
    const uint32_t flags = __atomic_load_n(&a->flags, __ATOMIC_RELAXED);

    p->base = __atomic_load_n(&a->base, __ATOMIC_RELAXED);
    p->bytes = __atomic_load_n(&a->bytes, __ATOMIC_RELAXED);
    p->off = __atomic_load_n(&a->off, __ATOMIC_RELAXED);
    p->key = __atomic_load_n(&a->key, __ATOMIC_RELAXED);
    p->used = 0 != (flags & 1u);
    p->gpu = 0 != (flags & 2u);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return 0 == version % 2 && version == __atomic_load_n(&a->version, __ATOMIC_RELAXED);
}

static osc_gpusym_attached_t *table(const osc_gpusym_window_t *w, uint32_t rank)
{
    return w->attached + (size_t) rank * OSC_GPUSYM_ATTACHED_MAX;
}

static uint32_t *used(const osc_gpusym_window_t *w, uint32_t rank)
{
    return &w->words[rank].attached;
}

/* ---- this rank's ---- */

static void register_piece(const osc_gpusym_window_t *w, void *base, piece_t *p)
{
    gpusym_mem_t mem = {.kind = GPUSYM_MEM_HOST, .gpu = -1};
    gpusym_gpu_t *gpu;

    if (0 != p->bytes) {
        w->dev->query(base, &mem);
    }
    p->gpu = GPUSYM_MEM_DEVICE == mem.kind;
    if (p->gpu && (GPUSYM_SUCCESS != w->dev->gpu_open(&mem, &gpu) ||
                   GPUSYM_SUCCESS != gpusym_reg_get(w->dev, gpu, base, p->bytes, &p->key, &p->off))) {
        p->key = 0;
        OSC_GPUSYM_VERBOSE("peers cannot map %p, which is attached to a window", base);
    }
}

int osc_gpusym_attach(struct ompi_win_t *win, void *base, size_t bytes)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);
    piece_t p = {.base = (uintptr_t) base, .bytes = bytes, .used = true}, other;
    int rc = OMPI_SUCCESS;

    if (!w->dynamic) {
        return MPI_ERR_RMA_FLAVOR;
    }
    if (!w->served) {
        return OMPI_SUCCESS; /* nothing can access it */
    }
    pthread_mutex_lock(&w->lock);
    const uint32_t end = *used(w, w->rank);
    uint32_t slot = end;
    for (uint32_t i = 0; i < end; i++) {
        (void) read_piece(&table(w, w->rank)[i], &other);
        if (!other.used) {
            slot = i < slot ? i : slot;
        } else if (p.base == other.base || (p.base < other.base + other.bytes && other.base < p.base + p.bytes)) {
            rc = MPI_ERR_RMA_ATTACH;
        }
    }
    rc = OSC_GPUSYM_ATTACHED_MAX == slot ? MPI_ERR_RMA_ATTACH : rc;
    if (OMPI_SUCCESS == rc) {
        register_piece(w, base, &p);
        write_piece(&table(w, w->rank)[slot], &p);
        __atomic_store_n(used(w, w->rank), slot < end ? end : slot + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

static void detach(osc_gpusym_attached_t *a, const piece_t *p)
{
    const piece_t none = {.used = false};

    write_piece(a, &none);
    if (0 != p->key) {
        gpusym_reg_put(p->key);
    }
}

int osc_gpusym_detach(struct ompi_win_t *win, const void *base)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);
    int rc = MPI_ERR_BASE;
    piece_t p;

    if (!w->dynamic) {
        return MPI_ERR_RMA_FLAVOR;
    }
    if (!w->served) {
        return OMPI_SUCCESS;
    }
    pthread_mutex_lock(&w->lock);
    const uint32_t end = *used(w, w->rank);
    for (uint32_t i = 0; i < end && OMPI_SUCCESS != rc; i++) {
        (void) read_piece(&table(w, w->rank)[i], &p);
        if (p.used && (uintptr_t) base == p.base) {
            detach(&table(w, w->rank)[i], &p);
            __atomic_store_n(used(w, w->rank), i + 1 < end ? end : i, __ATOMIC_RELEASE);
            rc = OMPI_SUCCESS;
        }
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void osc_gpusym_detach_all(osc_gpusym_window_t *w)
{
    piece_t p;

    for (uint32_t i = 0; w->dynamic && w->served && i < *used(w, w->rank); i++) {
        (void) read_piece(&table(w, w->rank)[i], &p);
        if (p.used) {
            detach(&table(w, w->rank)[i], &p);
        }
    }
}

/* ---- all ranks' ---- */

/* Finds the piece that has an address. */
static bool find_piece(const osc_gpusym_window_t *w, uint32_t rank, uint64_t address, piece_t *p)
{
    const uint32_t end = __atomic_load_n(used(w, rank), __ATOMIC_ACQUIRE);

    for (uint32_t i = 0; i < end; i++) {
        if (read_piece(&table(w, rank)[i], p) && p->used && address >= p->base && address - p->base < p->bytes) {
            return true;
        }
    }
    return false;
}

bool osc_gpusym_attached(osc_gpusym_window_t *w, int target, uint64_t address, uint64_t bytes, char **at, bool *gpu)
{
    piece_t p, next;
    void *base;
    uint64_t size;

    if (!find_piece(w, (uint32_t) target, address, &p)) {
        return false;
    }
    const uint64_t first = p.bytes - (address - p.base);
    for (uint64_t have = first; have < bytes; have += next.bytes - (address + have - next.base)) {
        if (!find_piece(w, (uint32_t) target, address + have, &next)) {
            return false;
        }
    }
    *gpu = p.gpu;
    *at = NULL;
    if ((uint32_t) target == w->rank) {
        *at = (char *) (uintptr_t) address;
    } else if (first >= bytes && 0 != p.key &&
               GPUSYM_SUCCESS == gpusym_reg_map(w->dev, w->gpu, w->part[target].process, p.key, &base, &size) &&
               p.off <= size && p.bytes <= size - p.off) {
        *at = (char *) base + p.off + (address - p.base);
    }
    return true;
}
