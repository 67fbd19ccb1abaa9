/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Windows: see window.h.
 */
#include "mca/osc/gpusym/window.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ompi/datatype/ompi_datatype.h"
#include "ompi/op/op.h"
#include "ompi/request/request.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/runtime/opal_progress.h"
#include "opal/util/output.h"

#include "mca/common/gpusym/memory/pool.h"
#include "mca/common/gpusym/memory/reg.h"
#include "mca/common/gpusym/gpus.h"
#include "mca/common/gpusym/shm/host.h"

#define PAGE_MAGIC 0x6770757379772131ull
#define PART_MAGIC 0x6770757379772132ull
#define HEAD 4096u /* bytes before what follows a segment's head */

/* What a rank tells the others of itself. Plain bytes. */
typedef struct {
    gpusym_pages_id_t pages;
    gpusym_segment_id_t page; /* of the first rank of a host */
    gpusym_segment_id_t share;
    uint64_t bytes, unit, off;
    uint64_t address; /* of host memory */
    uint32_t key;
    bool valid, gpu, shared;
} card_t;

int osc_gpusym_most(ompi_communicator_t *comm, int mine, int *most)
{
    *most = 0;
    return comm->c_coll->coll_allreduce(&mine, most, 1, &ompi_mpi_int.dt, &ompi_mpi_op_max.op, comm,
                                        comm->c_coll->coll_allreduce_module);
}

int osc_gpusym_any_rank(ompi_communicator_t *comm, bool mine, bool *answer)
{
    int most;
    const int rc = osc_gpusym_most(comm, mine ? 1 : 0, &most);

    *answer = 0 != most;
    return rc;
}

/* ---- this rank's memory ---- */

/* Of the segment of a part of that many bytes; 0: of none. */
static uint64_t segment_bytes(uint64_t bytes)
{
    return bytes <= UINT64_MAX / 2 ? HEAD + (bytes + 4095) / 4096 * 4096 : 0;
}

static bool allocate(osc_gpusym_window_t *w, osc_gpusym_memory_t kind, size_t bytes, const char **why)
{
    if (OSC_GPUSYM_GPU == kind) {
        w->pooled = true;
        return GPUSYM_SUCCESS == gpusym_pool_alloc(gpusym_device_for_memory(), bytes, &w->memory, why);
    }
    *why = "no host memory to share";
    return 0 != segment_bytes(bytes) &&
           GPUSYM_SUCCESS ==
               gpusym_segment_make("gpusym-window", PART_MAGIC, segment_bytes(bytes), &w->segment, &w->memory);
}

osc_gpusym_window_t *osc_gpusym_window_create(osc_gpusym_memory_t kind, void *given, size_t bytes)
{
    osc_gpusym_window_t *w = calloc(1, sizeof *w);
    const char *why = "no host memory";
    bool ok = NULL != w;

    if (ok) {
        pthread_mutex_init(&w->lock, NULL);
        pthread_mutex_init(&w->reducing, NULL);
        w->part = calloc(1, sizeof *w->part);
        ok = NULL != w->part;
    }
    if (ok && bytes > 0 && OSC_GPUSYM_GIVEN != kind) {
        ok = allocate(w, kind, bytes, &why);
        w->memory = ok ? w->memory : NULL;
        w->bytes = bytes;
        given = ok && !w->pooled ? (char *) w->memory + HEAD : w->memory;
    }
    if (!ok) {
        OSC_GPUSYM_VERBOSE("no memory for a window of %zu bytes here: %s", bytes, why);
        osc_gpusym_window_destroy(w);
        return NULL;
    }
    w->part->base = given;
    w->part->bytes = bytes;
    return w;
}

/* What a rank says of itself when a shared window is made. */
typedef struct {
    uint64_t bytes;
    bool wants, apart;
} wish_t;

int osc_gpusym_window_create_shared(ompi_communicator_t *comm, size_t bytes, bool wants, bool apart,
                                    osc_gpusym_window_t **w, bool *failed)
{
    const int n = ompi_comm_size(comm), rank = ompi_comm_rank(comm);
    wish_t own, *wish = calloc((size_t) n, sizeof *wish);
    bool all_want = true, all_apart = true, fits = true;
    uint64_t total = 0;
    int rc;

    *w = NULL;
    memset(&own, 0, sizeof own);
    own.bytes = bytes;
    own.wants = wants;
    own.apart = apart;
    rc = osc_gpusym_any_rank(comm, NULL == wish, failed);
    rc = OMPI_SUCCESS != rc || *failed
             ? rc
             : comm->c_coll->coll_allgather(&own, sizeof own, &ompi_mpi_byte.dt, wish, sizeof own, &ompi_mpi_byte.dt,
                                            comm, comm->c_coll->coll_allgather_module);
    if (OMPI_SUCCESS == rc && !*failed) {
        for (int i = 0; i < n; i++) {
            all_want = all_want && wish[i].wants;
            all_apart = all_apart && wish[i].apart;
            fits = fits && !__builtin_add_overflow(total, wish[i].bytes, &total);
        }
        const size_t mine = all_apart ? bytes : 0 == rank ? total : 0;
        *w = all_want && fits ? osc_gpusym_window_create(OSC_GPUSYM_GPU, NULL, mine) : NULL;
        rc = osc_gpusym_any_rank(comm, NULL == *w, failed);
    }
    free(wish);
    if (OMPI_SUCCESS != rc || *failed) {
        osc_gpusym_window_destroy(*w);
        *w = NULL;
        return rc;
    }
    (*w)->in_line = !all_apart;
    (*w)->part->bytes = bytes;
    return OMPI_SUCCESS;
}

static void unmap_parts(osc_gpusym_window_t *w)
{
    for (uint32_t i = 0; NULL != w->part && i < w->n; i++) {
        if (NULL != w->part[i].share) {
            munmap(w->part[i].share, w->part[i].share_bytes);
        }
    }
}

static void free_memory(osc_gpusym_window_t *w)
{
    const char *why;

    if (0 != w->key) {
        gpusym_reg_put(w->key);
    }
    if (NULL == w->memory) {
        return;
    }
    if (!w->pooled) {
        gpusym_segment_free(&w->segment, w->memory);
    } else if (GPUSYM_SUCCESS != gpusym_pool_free(gpusym_device(), w->memory, &why)) {
        OSC_GPUSYM_VERBOSE("%p is not freed: %s", w->memory, why);
    }
}

void osc_gpusym_window_destroy(osc_gpusym_window_t *w)
{
    if (NULL == w) {
        return;
    }
    if (NULL != w->comm && 0 == w->lost) {
        (void) ompi_comm_free(&w->comm);
    }
    unmap_parts(w);
    free_memory(w);
    if (NULL != w->ticket) {
        (void) w->dev->mem_free(w->gpu, w->ticket);
    }
    if (NULL != w->combine) {
        (void) w->dev->host_free(w->gpu, w->combine);
    }
    if (NULL != w->page && w->page_owner == w->rank) {
        gpusym_segment_free(&w->page_id, w->page);
    } else if (NULL != w->page) {
        munmap(w->page, w->page_bytes);
    }
    free(w->part);
    free(w->in_start);
    free(w->in_post);
    free(w->starts);
    free(w->waits);
    free(w->held);
    free(w->got);
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->reducing);
    free(w);
}

/* ---- the others ---- */

static uint64_t page_bytes(uint32_t n)
{
    const uint64_t rank = sizeof(osc_gpusym_words_t) + sizeof(osc_gpusym_mailbox_t) +
                          OSC_GPUSYM_ATTACHED_MAX * sizeof(osc_gpusym_attached_t);
    const uint64_t bytes = HEAD + n * rank + 2ull * n * n * sizeof(uint32_t) + sizeof(uint32_t);
    return (bytes + 4095) / 4096 * 4096;
}

/* The page as the ranks use it. */
static void divide_page(osc_gpusym_window_t *w)
{
    w->words = (osc_gpusym_words_t *) ((char *) w->page + HEAD);
    w->mailbox = (osc_gpusym_mailbox_t *) (w->words + w->n);
    w->attached = (osc_gpusym_attached_t *) (w->mailbox + w->n);
    w->posted = (uint32_t *) (w->attached + (size_t) w->n * OSC_GPUSYM_ATTACHED_MAX);
    w->completed = w->posted + (size_t) w->n * w->n;
    w->broken = w->completed + (size_t) w->n * w->n;
}

/* Makes the arrays of a window of n ranks; the own part is known. */
static bool make_arrays(osc_gpusym_window_t *w)
{
    const osc_gpusym_part_t own = *w->part;
    osc_gpusym_part_t *part = calloc(w->n, sizeof *part);

    free(w->part);
    w->part = part;
    w->in_start = calloc(w->n, sizeof *w->in_start);
    w->in_post = calloc(w->n, sizeof *w->in_post);
    w->starts = calloc(w->n, sizeof *w->starts);
    w->waits = calloc(w->n, sizeof *w->waits);
    w->held = calloc(w->n, sizeof *w->held);
    w->got = calloc(w->n, sizeof *w->got);
    if (NULL != part) {
        part[w->rank] = own;
    }
    return NULL != part && NULL != w->in_start && NULL != w->in_post && NULL != w->starts && NULL != w->waits &&
           NULL != w->held && NULL != w->got;
}

/* Finds this rank's GPU, and registers its part; of parts in line rank 0 has the memory. */
static void offer_part(osc_gpusym_window_t *w, card_t *card)
{
    osc_gpusym_part_t *own = &w->part[w->rank];
    gpusym_mem_t mem = {.kind = GPUSYM_MEM_HOST, .gpu = -1};
    const void *base = w->in_line ? w->memory : own->base;
    const uint64_t bytes = w->in_line ? w->bytes : own->bytes;

    if (0 != bytes) {
        w->dev->query(base, &mem);
    }
    own->gpu = GPUSYM_MEM_DEVICE == mem.kind;
    if (GPUSYM_SUCCESS != w->dev->gpu_open(own->gpu ? &mem : NULL, &w->gpu)) {
        OSC_GPUSYM_VERBOSE("a window has no GPU here: %s", w->dev->error());
        return;
    }
    if (own->gpu) { /* it has one here: peers that use it too are told */
        (void) gpusym_p2p_gpu_open(&mem, &w->gpu);
    }
    if (own->gpu && GPUSYM_SUCCESS != gpusym_reg_get(w->dev, w->gpu, base, bytes, &card->key, &card->off)) {
        card->key = 0;
        OSC_GPUSYM_VERBOSE("peers cannot map %p, which is a part of a window", base);
    }
    w->key = card->key;
    card->gpu = own->gpu;
    card->address = own->gpu ? 0 : (uintptr_t) own->base;
    card->shared = NULL != w->memory && !w->pooled;
    card->share = w->segment;
    card->valid = GPUSYM_SUCCESS == gpusym_pages_open(&card->pages);
    if (card->valid && w->page_owner == w->rank) {
        w->page_bytes = page_bytes(w->n);
        card->valid =
            GPUSYM_SUCCESS == gpusym_segment_make("gpusym-window", PAGE_MAGIC, w->page_bytes, &w->page_id, &w->page);
        w->page = card->valid ? w->page : NULL;
        card->page = w->page_id;
    }
}

/* Maps the part of another rank of this host, if it can be. */
static void map_part(osc_gpusym_window_t *w, osc_gpusym_part_t *part, const card_t *card)
{
    void *base;
    uint64_t size;

    if (0 != card->key) {
        if (GPUSYM_SUCCESS == gpusym_reg_map(w->dev, w->gpu, part->process, card->key, &base, &size) &&
            card->off <= size && card->bytes <= size - card->off) {
            part->base = (char *) base + card->off;
        }
    } else if (card->shared) {
        part->share_bytes = segment_bytes(card->bytes);
        if (0 != part->share_bytes &&
            GPUSYM_SUCCESS == gpusym_segment_map(&card->share, PART_MAGIC, part->share_bytes, &part->share)) {
            part->base = (char *) part->share + HEAD;
        } else {
            part->share = NULL;
        }
    }
    part->reached = NULL != part->base || 0 == card->bytes;
}

/* Adds up the parts of a window whose parts are in line. False: there is no memory of that size. */
static bool add_up(const card_t *card, uint32_t n, uint64_t *total)
{
    *total = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (__builtin_add_overflow(*total, card[i].bytes, total)) {
            return false;
        }
    }
    return true;
}

/* Maps parts in line, if they can be, and gives each rank its one. False: they are longer than what rank 0 has. */
static bool map_line(osc_gpusym_window_t *w, const card_t *card)
{
    uint64_t size = w->bytes, at = 0, total;
    void *base = w->memory;

    if (!add_up(card, w->n, &total)) {
        return false;
    }
    if (0 != w->rank && 0 != card[0].key &&
        GPUSYM_SUCCESS == gpusym_reg_map(w->dev, w->gpu, w->part[0].process, card[0].key, &base, &size)) {
        at = card[0].off;
    }
    if (NULL != base && (at > size || total > size - at)) {
        return false;
    }
    for (uint32_t i = 0; i < w->n; i++) {
        w->part[i].gpu = card[0].gpu;
        w->part[i].base = NULL != base ? (char *) base + at : NULL;
        w->part[i].reached = NULL != base || 0 == total;
        at += card[i].bytes;
    }
    return true;
}

/* Maps page and parts of this host's ranks. False: this window cannot be served here. */
static bool map_all(osc_gpusym_window_t *w, const card_t *card)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < w->n; i++) {
        ok = card[i].valid && (i == w->rank || !w->part[i].here ||
                               GPUSYM_SUCCESS == gpusym_pages_peer(&card[i].pages, &w->part[i].process));
    }
    if (ok && w->page_owner != w->rank) {
        w->page_bytes = page_bytes(w->n);
        ok = GPUSYM_SUCCESS == gpusym_segment_map(&card[w->page_owner].page, PAGE_MAGIC, w->page_bytes, &w->page);
        w->page = ok ? w->page : NULL;
    }
    if (ok) {
        divide_page(w);
    }
    for (uint32_t i = 0; ok && i < w->n; i++) {
        w->part[i].bytes = card[i].bytes;
        w->part[i].unit = card[i].unit;
        w->part[i].gpu = card[i].gpu;
        w->part[i].address = card[i].address;
        w->part[i].direct = NULL != w->part[i].process && !card[i].gpu;
        if (w->in_line) {
            continue;
        }
        if (i == w->rank) {
            w->part[i].reached = true;
        } else if (w->part[i].near) {
            map_part(w, &w->part[i], &card[i]);
        }
    }
    return ok && (!w->in_line || map_line(w, card));
}

/* Whether this rank does not reach some memory of its host, or cannot know that it does. */
static bool some_unreached(const osc_gpusym_window_t *w)
{
    bool some = w->dynamic;

    for (uint32_t i = 0; i < w->n; i++) {
        some = some || (w->part[i].near && !w->part[i].reached);
    }
    return some;
}

/* Ranks of a host that are treated as one of their own, at most (coll_gpusym_node_size). 0: all. */
static uint32_t node_size(void)
{
    const int at = mca_base_var_find("ompi", "coll", "gpusym", "node_size");
    const int *value = NULL;

    return at >= 0 && OPAL_SUCCESS == mca_base_var_get_value(at, &value, NULL, NULL) && NULL != value && *value > 0
               ? (uint32_t) *value
               : 0;
}

/* Finds which ranks are on this one's host, and which one has the page. host[n]: of all. Returns whether all are. */
static bool find_near(osc_gpusym_window_t *w, const gpusym_host_t *host)
{
    const uint32_t size = node_size();
    uint32_t before = 0, at = 0; /* ranks of the host: below this one; in all so far */
    bool all = true;

    for (uint32_t i = 0; i < w->rank; i++) {
        before += 0 == memcmp(&host[i], &host[w->rank], sizeof *host) ? 1 : 0;
    }
    w->page_owner = w->n;
    for (uint32_t i = 0; i < w->n; i++) {
        const bool same = 0 == memcmp(&host[i], &host[w->rank], sizeof *host);
        w->part[i].here = same;
        w->part[i].near = same && (0 == size || at / size == before / size);
        w->page_owner = w->part[i].near && w->page_owner == w->n ? i : w->page_owner;
        all = all && w->part[i].near;
        at += same ? 1 : 0;
    }
    return all;
}

/* Gathers the hosts of all ranks. MPI error code. */
static int gather_hosts(osc_gpusym_window_t *w, gpusym_host_t *host)
{
    gpusym_host_t own;

    (void) gpusym_host_self(&own);
    return w->comm->c_coll->coll_allgather(&own, sizeof own, &ompi_mpi_byte.dt, host, sizeof own, &ompi_mpi_byte.dt,
                                           w->comm, w->comm->c_coll->coll_allgather_module);
}

int osc_gpusym_window_join(osc_gpusym_window_t *w, ompi_communicator_t *comm, uint64_t unit, bool *apart)
{
    gpusym_host_t *host;
    card_t own, *card;
    bool failed = false;
    int rc = ompi_comm_dup(comm, &w->comm);

    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    w->n = (uint32_t) ompi_comm_size(comm);
    w->rank = (uint32_t) ompi_comm_rank(comm);
    w->dev = gpusym_device_for_memory();
    card = calloc(w->n, sizeof *card);
    host = calloc(w->n, sizeof *host);
    rc = osc_gpusym_any_rank(w->comm, !make_arrays(w) || NULL == card || NULL == host, &failed);
    rc = OMPI_SUCCESS == rc && failed ? OMPI_ERR_OUT_OF_RESOURCE : rc;
    rc = OMPI_SUCCESS == rc ? gather_hosts(w, host) : rc;
    if (OMPI_SUCCESS == rc) {
        *apart = !find_near(w, host);
    }
    free(host);
    if (OMPI_SUCCESS != rc) {
        free(card);
        return rc;
    }
    memset(&own, 0, sizeof own);
    own.bytes = w->part[w->rank].bytes;
    own.unit = w->part[w->rank].unit = unit;
    if (NULL != w->dev) {
        offer_part(w, &own);
    }
    rc = w->comm->c_coll->coll_allgather(&own, sizeof own, &ompi_mpi_byte.dt, card, sizeof own, &ompi_mpi_byte.dt,
                                         w->comm, w->comm->c_coll->coll_allgather_module);
    if (OMPI_SUCCESS == rc) {
        rc = osc_gpusym_any_rank(w->comm, !map_all(w, card), &failed);
    }
    w->served = OMPI_SUCCESS == rc && !failed;
    if (w->served) {
        rc = osc_gpusym_any_rank(w->comm, some_unreached(w), &w->asks);
    }
    free(card);
    return rc;
}

/* ---- words ---- */

/* Who takes a ticket while this looks whether somebody waits has come at the same time, not before. */
bool osc_gpusym_try_lock(const osc_gpusym_window_t *w, uint32_t target, uint32_t holder, bool exclusive, bool ahead)
{
    const osc_gpusym_queue_t *q = &w->words[target].lockers;
    uint64_t *lock = &w->words[target].lock, v = __atomic_load_n(lock, __ATOMIC_RELAXED), next;

    if (!ahead && !osc_gpusym_is_turn(q, __atomic_load_n(&q->ticket, __ATOMIC_RELAXED))) {
        return false;
    }
    do {
        if (exclusive ? 0 != v : 0 != v >> 32) {
            return false;
        }
        next = exclusive ? (uint64_t) (holder + 1) << 32 : v + 1;
    } while (!__atomic_compare_exchange_n(lock, &v, next, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    return true;
}

void osc_gpusym_release(const osc_gpusym_window_t *w, uint32_t target, osc_gpusym_held_t held)
{
    uint64_t *lock = &w->words[target].lock;

    if (OSC_GPUSYM_EXCLUSIVE == held) {
        __atomic_store_n(lock, 0, __ATOMIC_SEQ_CST);
    } else if (OSC_GPUSYM_SHARED == held) {
        __atomic_fetch_sub(lock, 1, __ATOMIC_SEQ_CST);
    }
}

uint32_t osc_gpusym_take_ticket(osc_gpusym_queue_t *q)
{
    return __atomic_fetch_add(&q->ticket, 1, __ATOMIC_RELAXED);
}

bool osc_gpusym_is_turn(const osc_gpusym_queue_t *q, uint32_t ticket)
{
    return __atomic_load_n(&q->serving, __ATOMIC_ACQUIRE) == ticket;
}

void osc_gpusym_next_turn(osc_gpusym_queue_t *q)
{
    __atomic_fetch_add(&q->serving, 1, __ATOMIC_SEQ_CST);
}
