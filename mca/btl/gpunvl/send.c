/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages of ob1: control messages of gets; all others too, where ob1 has no other transport.  They go through a ring
 * (p2p/ring.h) in the receiver's memory.  Where it is full they wait in a queue, in their order.
 */
#include "mca/btl/gpunvl/btl_gpunvl.h"
#include "mca/btl/gpunvl/pool.h"

/* A message; its bytes follow. */
struct btl_gpunvl_message {
    mca_btl_base_descriptor_t base; /* nothing of Open MPI uses its list item */
    mca_btl_base_segment_t segment;
    btl_gpunvl_pool_t *pool;    /* that it is of */
    btl_gpunvl_message_t *next; /* in the queue, as is the tag */
    uint32_t tag;
};
typedef btl_gpunvl_message_t message_t;

/* The data of a message: 16-byte aligned. */
#define DATA ((sizeof(message_t) + 15u) / 16u * 16u)

static char *data_of(message_t *m)
{
    return (char *) m + DATA;
}

/* Messages of at most BTL_GPUNVL_EAGER bytes, and of BTL_GPUNVL_MOST. */
static btl_gpunvl_pool_t small_pool = BTL_GPUNVL_POOL(DATA + BTL_GPUNVL_EAGER);
static btl_gpunvl_pool_t large_pool = BTL_GPUNVL_POOL(DATA + BTL_GPUNVL_MOST);

/* ---- descriptors ---- */

mca_btl_base_descriptor_t *btl_gpunvl_alloc(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                            uint8_t order, size_t size, uint32_t flags)
{
    btl_gpunvl_pool_t *pool = size <= BTL_GPUNVL_EAGER ? &small_pool : &large_pool;
    message_t *m = size <= BTL_GPUNVL_MOST ? btl_gpunvl_pool_get(pool) : NULL;

    (void) btl;
    (void) endpoint;
    if (NULL == m) {
        return NULL;
    }
    m->pool = pool;
    m->segment = (mca_btl_base_segment_t){.seg_addr.pval = data_of(m), .seg_len = size};
    m->base.des_segments = &m->segment;
    m->base.des_segment_count = 1;
    m->base.des_cbfunc = NULL;
    m->base.des_flags = flags;
    m->base.order = order;
    return &m->base;
}

int btl_gpunvl_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor)
{
    message_t *m = (message_t *) descriptor;

    (void) btl;
    btl_gpunvl_pool_put(m->pool, m);
    return OPAL_SUCCESS;
}

/* A message of `reserve` bytes for ob1 and as much of the data as fits, packed. */
mca_btl_base_descriptor_t *btl_gpunvl_prepare_src(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                                  struct opal_convertor_t *convertor, uint8_t order, size_t reserve,
                                                  size_t *size, uint32_t flags)
{
    size_t bytes = *size;
    uint32_t count = 1;

    if (reserve > BTL_GPUNVL_MOST) {
        return NULL;
    }
    bytes = bytes < BTL_GPUNVL_MOST - reserve ? bytes : BTL_GPUNVL_MOST - reserve;
    message_t *m = (message_t *) btl_gpunvl_alloc(btl, endpoint, order, reserve + bytes, flags);
    if (NULL == m) {
        return NULL;
    }
    struct iovec iov = {.iov_base = data_of(m) + reserve, .iov_len = bytes};
    if (0 != bytes && opal_convertor_pack(convertor, &iov, &count, &bytes) < 0) {
        (void) btl_gpunvl_free(btl, &m->base);
        return NULL;
    }
    m->segment.seg_len = reserve + bytes;
    *size = bytes;
    return &m->base;
}

/* ---- sending ---- */

/* Ends a message that has been copied to the ring, or never will be. Its callback may free it. */
static void end_message(btl_gpunvl_endpoint_t *endpoint, message_t *m, int status)
{
    const uint32_t flags = m->base.des_flags;

    if (0 != (flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK) && NULL != m->base.des_cbfunc) {
        m->base.des_cbfunc(&btl_gpunvl.super, endpoint, &m->base, status);
    }
    if (0 != (flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP)) {
        (void) btl_gpunvl_free(&btl_gpunvl.super, &m->base);
    }
}

/* With the endpoint's lock held, as all functions of the queue. */
static void queue_message(btl_gpunvl_endpoint_t *endpoint, message_t *m)
{
    m->next = NULL;
    *(NULL == endpoint->first ? &endpoint->first : &endpoint->last->next) = m;
    endpoint->last = m;
    __atomic_fetch_add(&endpoint->queued, 1, __ATOMIC_RELAXED);
}

static message_t *unqueue_message(btl_gpunvl_endpoint_t *endpoint)
{
    message_t *m = endpoint->first;

    if (NULL != m) {
        endpoint->first = m->next;
        __atomic_fetch_sub(&endpoint->queued, 1, __ATOMIC_RELAXED);
    }
    return m;
}

/* As gpusym_ring_write. */
static int write_message(btl_gpunvl_endpoint_t *endpoint, const message_t *m)
{
    return gpusym_ring_write(&endpoint->writer, m->tag, m->segment.seg_addr.pval, (uint32_t) m->segment.seg_len);
}

/* Returns 1: the message has been sent; 0: it is queued. Then its callback is called in any case. */
int btl_gpunvl_send(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                    mca_btl_base_descriptor_t *descriptor, mca_btl_base_tag_t tag)
{
    message_t *m = (message_t *) descriptor;
    int rc = 0;

    (void) btl;
    if (__atomic_load_n(&endpoint->dead, __ATOMIC_ACQUIRE)) {
        return OPAL_ERR_UNREACH;
    }
    m->tag = tag;
    pthread_mutex_lock(&endpoint->lock);
    if (NULL == endpoint->first) {
        rc = write_message(endpoint, m);
    }
    if (0 == rc) {
        m->base.des_flags |= MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
        queue_message(endpoint, m);
    }
    pthread_mutex_unlock(&endpoint->lock);
    if (rc < 0) {
        btl_gpunvl_report_corrupt(endpoint);
        return OPAL_ERR_UNREACH;
    }
    BTL_GPUNVL_COUNT(sent, 1);
    if (0 == rc) {
        BTL_GPUNVL_COUNT(queued, 1);
        return 0;
    }
    end_message(endpoint, m, OPAL_SUCCESS);
    return 1;
}

/* The first message of the queue, if the ring has room for it now. NULL: none; *rc as gpusym_ring_write. */
static message_t *send_first(btl_gpunvl_endpoint_t *endpoint, int *rc)
{
    message_t *m = NULL;

    pthread_mutex_lock(&endpoint->lock);
    *rc = NULL != endpoint->first ? write_message(endpoint, endpoint->first) : 0;
    if (1 == *rc) {
        m = unqueue_message(endpoint);
    }
    pthread_mutex_unlock(&endpoint->lock);
    return m;
}

int btl_gpunvl_send_queued(void)
{
    int n = 0, rc;

    for (uint32_t i = 0; i < btl_gpunvl.slots; i++) {
        btl_gpunvl_endpoint_t *endpoint = __atomic_load_n(&btl_gpunvl.endpoints[i], __ATOMIC_ACQUIRE);
        if (NULL == endpoint || 0 == __atomic_load_n(&endpoint->queued, __ATOMIC_RELAXED)) {
            continue;
        }
        for (message_t *m; NULL != (m = send_first(endpoint, &rc)); n++) {
            end_message(endpoint, m, OPAL_SUCCESS);
        }
        if (rc < 0) {
            btl_gpunvl_report_corrupt(endpoint);
            btl_gpunvl_drop_queued(endpoint, OPAL_ERR_UNREACH);
        }
    }
    return n;
}

void btl_gpunvl_drop_queued(btl_gpunvl_endpoint_t *endpoint, int status)
{
    for (;;) {
        pthread_mutex_lock(&endpoint->lock);
        message_t *m = unqueue_message(endpoint);
        pthread_mutex_unlock(&endpoint->lock);
        if (NULL == m) {
            return;
        }
        end_message(endpoint, m, status);
    }
}

/* ---- receiving ---- */

static gpusym_ring_reader_t *readers; /* by slot */

uint64_t btl_gpunvl_ring_bytes(void)
{
    return GPUSYM_RING_HEAD + btl_gpunvl.ring_size;
}

bool btl_gpunvl_open_inboxes(void *memory)
{
    readers = calloc(btl_gpunvl.slots, sizeof(*readers));
    for (uint32_t i = 0; NULL != readers && i < btl_gpunvl.slots; i++) {
        gpusym_ring_open_reader(&readers[i], (char *) memory + i * btl_gpunvl_ring_bytes(), btl_gpunvl.ring_size);
    }
    return NULL != readers;
}

bool btl_gpunvl_is_attached(uint32_t slot)
{
    return gpusym_ring_is_written(&readers[slot]);
}

/* Delivers what the process of that slot has sent. endpoint NULL: this process cannot send to it, or not yet. */
static int receive_from(uint32_t slot, btl_gpunvl_endpoint_t *endpoint)
{
    uint32_t tag, bytes;
    void *data;
    int n = 0, rc;

    while (1 == (rc = gpusym_ring_read(&readers[slot], &tag, &data, &bytes))) {
        if (tag >= MCA_BTL_TAG_MAX ||
            !gpusym_btl_deliver(&btl_gpunvl.super, endpoint, (mca_btl_base_tag_t) tag, data, bytes)) {
            rc = GPUSYM_ERR_CORRUPT;
            break;
        }
        gpusym_ring_end_read(&readers[slot]);
        n++;
    }
    if (rc < 0 && NULL != endpoint) {
        btl_gpunvl_report_corrupt(endpoint);
    }
    return n;
}

int btl_gpunvl_receive(void)
{
    int n = 0;

    for (uint32_t i = 0; i < btl_gpunvl.slots; i++) {
        btl_gpunvl_endpoint_t *endpoint = __atomic_load_n(&btl_gpunvl.endpoints[i], __ATOMIC_ACQUIRE);
        /* The first get must not come before ob1 knows of gets with that process: see btl_gpunvl_watch. */
        if (NULL == endpoint || (endpoint->gets && !__atomic_load_n(&endpoint->dead, __ATOMIC_RELAXED))) {
            n += receive_from(i, endpoint);
        }
    }
    return n;
}

void btl_gpunvl_close_sends(void)
{
    free(readers);
    readers = NULL;
    btl_gpunvl_pool_close(&small_pool);
    btl_gpunvl_pool_close(&large_pool);
}
