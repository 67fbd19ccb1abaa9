/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The processes of this job on this host.
 *
 * Every process publishes memory for the rings in which it receives, one for each process of the host.  Who sends maps
 * that of the receiver, and writes to its ring there that it has.  Nothing else needs an agreement: a process reads its
 * own memory whether or not it can map its peers', and offers GPU memory only to a peer that has mapped this process's.
 */
#include "mca/btl/gpunvl/btl_gpunvl.h"

#include <sys/mman.h>
#include <time.h>

#include "ompi/mca/bml/bml.h"
#include "ompi/proc/proc.h"

#include "config.h"
#include "mca/common/gpusym/shm/host.h"
#include "mca/common/gpusym/shm/segment.h"

/* The modex key. What stands under it begins with the version, for ever. */
#define KEY "gpusym.btl"

/* The segment: its head, one page; then the rings, by the slot of the sender. */
#define MAGIC 0x6c766e7570672074ull /* "t gpunvl" */
#define SEGMENT_HEAD 4096u

/* What a process publishes: plain bytes. */
typedef struct {
    char version[32];
    gpusym_host_t host;
    gpusym_pages_id_t pages;
    gpusym_segment_id_t inboxes;
    uint64_t ring_size;
    uint32_t slot, slots;
} card_t;

static card_t my_card;
static void *my_inboxes; /* NULL: none */
static uint32_t untold;  /* endpoints that ob1 does not know to get; atomic */

static uint64_t segment_bytes(void)
{
    return SEGMENT_HEAD + btl_gpunvl.slots * btl_gpunvl_ring_bytes();
}

bool btl_gpunvl_publish(void)
{
    const char *failed = "share pages";

    memset(&my_card, 0, sizeof(my_card));
    strncpy(my_card.version, GPUSYM_VERSION, sizeof(my_card.version) - 1);
    gpusym_host_self(&my_card.host);
    my_card.ring_size = btl_gpunvl.ring_size;
    my_card.slot = btl_gpunvl.slot;
    my_card.slots = btl_gpunvl.slots;
    btl_gpunvl.endpoints = calloc(btl_gpunvl.slots, sizeof(btl_gpunvl.endpoints[0]));
    if (NULL != btl_gpunvl.endpoints && GPUSYM_SUCCESS == gpusym_pages_open(&my_card.pages)) {
        failed = "make a segment";
        const int rc = gpusym_segment_make("gpusym btl", MAGIC, segment_bytes(), &my_card.inboxes, &my_inboxes);
        my_inboxes = GPUSYM_SUCCESS == rc ? my_inboxes : NULL;
    }
    if (NULL != my_inboxes) {
        failed = "publish itself";
        if (btl_gpunvl_open_inboxes((char *) my_inboxes + SEGMENT_HEAD) &&
            gpusym_modex_put(KEY, &my_card, sizeof(my_card), true)) {
            return true;
        }
    }
    GPUSYM_LOG(2, "btl/gpunvl: rank %u of MPI_COMM_WORLD cannot %s", (unsigned) OPAL_PROC_MY_NAME.vpid, failed);
    return false;
}

void btl_gpunvl_withdraw(void)
{
    if (NULL != my_inboxes) {
        gpusym_segment_free(&my_card.inboxes, my_inboxes);
        my_inboxes = NULL;
    }
    free(btl_gpunvl.endpoints);
    btl_gpunvl.endpoints = NULL;
    btl_gpunvl.slots = 0;
}

/* ---- endpoints ---- */

/* Maps what a process has published. Returns why it cannot; NULL: it has. */
static const char *attach(const opal_process_name_t *name, btl_gpunvl_endpoint_t *endpoint)
{
    card_t card;
    const size_t bytes = gpusym_modex_wait(KEY, name, &card, sizeof(card));

    if (bytes < sizeof(card.version)) {
        return "it has not published itself";
    }
    if (sizeof(card) != bytes || 0 != memcmp(card.version, my_card.version, sizeof(card.version))) {
        return "it has a different version of gpusym";
    }
    if (0 != memcmp(&card.host, &my_card.host, sizeof(card.host))) {
        return "it is in a different PID namespace";
    }
    if (card.ring_size != my_card.ring_size || card.slots != my_card.slots || card.slot >= card.slots) {
        return "it has a different btl_gpunvl_ring_size";
    }
    if (GPUSYM_SUCCESS != gpusym_pages_peer(&card.pages, &endpoint->pages)) {
        return "its pages cannot be mapped";
    }
    if (GPUSYM_SUCCESS != gpusym_segment_map(&card.inboxes, MAGIC, segment_bytes(), &endpoint->inboxes)) {
        return "its segment cannot be mapped";
    }
    endpoint->bytes = segment_bytes();
    endpoint->slot = card.slot;
    return NULL;
}

static void open_endpoint(btl_gpunvl_endpoint_t *endpoint, opal_proc_t *proc)
{
    endpoint->proc = proc;
    pthread_mutex_init(&endpoint->lock, NULL);
    __atomic_fetch_add(&untold, 1, __ATOMIC_RELAXED);
    /* From now on that process may send handles of GPU memory. */
    gpusym_ring_open_writer(&endpoint->writer,
                            (char *) endpoint->inboxes + SEGMENT_HEAD + btl_gpunvl.slot * btl_gpunvl_ring_bytes(),
                            btl_gpunvl.ring_size);
    __atomic_store_n(&btl_gpunvl.endpoints[endpoint->slot], endpoint, __ATOMIC_RELEASE);
}

static btl_gpunvl_endpoint_t *add_proc(opal_proc_t *proc)
{
    btl_gpunvl_endpoint_t *endpoint = calloc(1, sizeof(*endpoint));
    const char *why = NULL != endpoint ? attach(&proc->proc_name, endpoint) : "there is no memory";

    if (NULL == why && NULL != btl_gpunvl.endpoints[endpoint->slot]) {
        munmap(endpoint->inboxes, endpoint->bytes);
        why = "another process has its place";
    }
    if (NULL != why) {
        GPUSYM_LOG(2, "btl/gpunvl: rank %u of MPI_COMM_WORLD cannot be reached: %s", (unsigned) proc->proc_name.vpid,
                   why);
        free(endpoint);
        return NULL;
    }
    open_endpoint(endpoint, proc);
    return endpoint;
}

int btl_gpunvl_add_procs(mca_btl_base_module_t *btl, size_t n, opal_proc_t **procs,
                         struct mca_btl_base_endpoint_t **endpoints, opal_bitmap_t *reachable)
{
    const opal_proc_t *me = opal_proc_local_get();

    (void) btl;
    for (size_t i = 0; i < n; i++) {
        endpoints[i] = NULL;
        if (procs[i] != me && procs[i]->proc_name.jobid == me->proc_name.jobid &&
            OPAL_PROC_ON_LOCAL_NODE(procs[i]->proc_flags)) {
            endpoints[i] = add_proc(procs[i]);
        }
        if (NULL != endpoints[i] && NULL != reachable) {
            opal_bitmap_set_bit(reachable, (int) i);
        }
    }
    return OPAL_SUCCESS;
}

static void del_endpoint(btl_gpunvl_endpoint_t *endpoint)
{
    __atomic_store_n(&btl_gpunvl.endpoints[endpoint->slot], NULL, __ATOMIC_RELEASE);
    __atomic_fetch_sub(&untold, endpoint->gets ? 0 : 1, __ATOMIC_RELAXED);
    btl_gpunvl_drop_queued(endpoint, OPAL_ERR_UNREACH);
    pthread_mutex_destroy(&endpoint->lock);
    munmap(endpoint->inboxes, endpoint->bytes);
    free(endpoint);
}

/* Open MPI deletes an endpoint once for each of its lists. */
int btl_gpunvl_del_procs(mca_btl_base_module_t *btl, size_t n, opal_proc_t **procs,
                         struct mca_btl_base_endpoint_t **endpoints)
{
    (void) btl;
    (void) procs;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t slot = 0; NULL != endpoints[i] && slot < btl_gpunvl.slots; slot++) {
            if (btl_gpunvl.endpoints[slot] == endpoints[i]) {
                del_endpoint(endpoints[i]);
                break;
            }
        }
    }
    return OPAL_SUCCESS;
}

/* ---- watching them ---- */

/* Calls of btl_gpunvl_watch between two looks at the clock, and the time between two looks at the peers. */
#define WATCH_CALLS 1024u
#define WATCH_MS 100u

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * 1000u + (uint64_t) now.tv_nsec / 1000000u;
}

/* Leaves all pieces of messages to the other transports of that process, if it has any. Pieces of one message that go
 * by two transports come out of order, and ob1 then unpacks some datatypes wrongly (6.0: sm and tcp, host memory). */
static void leave_pieces(mca_bml_base_endpoint_t *ob1)
{
    mca_bml_base_btl_t *own = mca_bml_base_btl_array_find(&ob1->btl_send, &btl_gpunvl.super);

    if (NULL != own && mca_bml_base_btl_array_get_size(&ob1->btl_send) > 1) {
        own->btl_weight = 0;
    }
}

/* ob1 notes the endpoint some time after btl_gpunvl_add_procs.  This is called before the transport of any piece or
 * control message of that process makes progress. */
static void tell_gets(btl_gpunvl_endpoint_t *endpoint)
{
    mca_bml_base_endpoint_t *ob1 = ((ompi_proc_t *) endpoint->proc)->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_BML];

    if (NULL == ob1) {
        return;
    }
    leave_pieces(ob1);
    if (NULL != btl_gpunvl.tell && btl_gpunvl_is_attached(endpoint->slot)) {
        btl_gpunvl.tell(&btl_gpunvl.super, GPUSYM_BTL_ADD_DEVICE_GET, endpoint->proc, NULL);
        endpoint->gets = true;
        __atomic_fetch_sub(&untold, 1, __ATOMIC_RELAXED);
    }
}

static void watch_peer(btl_gpunvl_endpoint_t *endpoint)
{
    const bool busy = 0 != __atomic_load_n(&endpoint->queued, __ATOMIC_RELAXED) ||
                      0 != __atomic_load_n(&endpoint->exports, __ATOMIC_RELAXED);

    if (busy && !gpusym_peer_alive(endpoint->pages)) {
        btl_gpunvl_report_dead(endpoint);
        btl_gpunvl_drop_queued(endpoint, OPAL_ERR_UNREACH);
    }
}

static void for_each(void (*act)(btl_gpunvl_endpoint_t *endpoint), bool told)
{
    for (uint32_t i = 0; i < btl_gpunvl.slots; i++) {
        btl_gpunvl_endpoint_t *endpoint = __atomic_load_n(&btl_gpunvl.endpoints[i], __ATOMIC_ACQUIRE);
        if (NULL != endpoint && told == endpoint->gets) {
            act(endpoint);
        }
    }
}

void btl_gpunvl_watch(void)
{
    static uint32_t calls;
    static uint64_t watched;

    if (0 != __atomic_load_n(&untold, __ATOMIC_RELAXED)) {
        for_each(tell_gets, false);
    }
    if (0 == ++calls % WATCH_CALLS && now_ms() - watched >= WATCH_MS) {
        watched = now_ms();
        for_each(watch_peer, true);
    }
}
