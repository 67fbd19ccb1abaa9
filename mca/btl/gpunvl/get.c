/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Gets: the receiver copies from the sender's GPU memory, which it has mapped, to its own, or to host memory.
 *
 * ob1 registers the memory of a message at the sender, sends the handle, and calls the receiver's get.  The handle is a
 * key of memory/reg.h.  What has no key, and what the receiver cannot map, ob1 sends in pieces.
 */
#include "mca/btl/gpunvl/btl_gpunvl.h"
#include "mca/btl/gpunvl/pool.h"

#include "mca/common/gpusym/exec/copy.h"
#include "mca/common/gpusym/memory/reg.h"

/* What goes to the receiver: plain bytes. */
struct mca_btl_base_registration_handle_t {
    uint64_t base; /* address of the memory at its owner */
    uint64_t off;  /* of the same place, in the memory that the key names */
    uint64_t size; /* of the memory, in bytes */
    uint32_t key;
    uint32_t pad;
};

/* A registration: what the owner keeps. */
typedef struct {
    btl_gpunvl_endpoint_t *endpoint; /* of the process that may read it */
    mca_btl_base_registration_handle_t handle;
} export_t;

/* A get under way. */
typedef struct get get_t;
struct get {
    get_t *next;
    gpusym_copy_t copy;
    int done; /* 1: the copy has ended; 0: not yet; an error of common.h */
    struct mca_btl_base_endpoint_t *endpoint;
    void *local;
    mca_btl_base_registration_handle_t *local_handle;
    mca_btl_base_rdma_completion_fn_t call;
    void *context, *data;
};

static btl_gpunvl_pool_t exports = BTL_GPUNVL_POOL(sizeof(export_t)), gets = BTL_GPUNVL_POOL(sizeof(get_t));

static struct {
    pthread_mutex_t lock;
    get_t *first; /* atomic, so that none is seen without the lock */
} live = {.lock = PTHREAD_MUTEX_INITIALIZER};

size_t btl_gpunvl_handle_size(void)
{
    return sizeof(mca_btl_base_registration_handle_t);
}

/* ---- the sender ---- */

/* The GPU that this process has used last for messages; atomic. NULL: none yet. */
static gpusym_gpu_t *last_gpu;

/* The GPU whose memory this is. NULL: it is none's. */
static gpusym_gpu_t *gpu_of(const gpusym_device_t *dev, const gpusym_mem_t *mem)
{
    gpusym_gpu_t *gpu;

    if (GPUSYM_MEM_DEVICE != mem->kind || GPUSYM_SUCCESS != dev->gpu_open(mem, &gpu)) {
        return NULL;
    }
    __atomic_store_n(&last_gpu, gpu, __ATOMIC_RELEASE);
    return gpu;
}

/* The receiver registers too, although a get needs nothing of it. */
static mca_btl_base_registration_handle_t receivers;

/* NULL: peers cannot map that memory. ob1 sends it in pieces. */
mca_btl_base_registration_handle_t *btl_gpunvl_register(mca_btl_base_module_t *btl,
                                                        struct mca_btl_base_endpoint_t *endpoint, void *base,
                                                        size_t size, uint32_t flags)
{
    const gpusym_device_t *dev = gpusym_device_need();
    gpusym_mem_t mem;

    (void) btl;
    if (0 == (flags & MCA_BTL_REG_FLAG_REMOTE_READ)) {
        return &receivers;
    }
    if (NULL == dev || NULL == endpoint || MCA_BTL_ENDPOINT_ANY == endpoint) {
        return NULL;
    }
    dev->query(base, &mem);
    gpusym_gpu_t *gpu = gpu_of(dev, &mem);
    export_t *e = NULL != gpu ? btl_gpunvl_pool_get(&exports) : NULL;
    if (NULL == e) {
        return NULL;
    }
    e->handle = (mca_btl_base_registration_handle_t){.base = (uintptr_t) base, .size = size};
    e->endpoint = endpoint;
    if (GPUSYM_SUCCESS != gpusym_reg_get(dev, gpu, base, size, &e->handle.key, &e->handle.off)) {
        btl_gpunvl_pool_put(&exports, e);
        return NULL;
    }
    __atomic_fetch_add(&endpoint->exports, 1, __ATOMIC_RELAXED);
    BTL_GPUNVL_COUNT(exports, 1);
    return &e->handle;
}

int btl_gpunvl_deregister(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle)
{
    (void) btl;
    if (&receivers != handle) {
        export_t *e = (export_t *) ((char *) handle - offsetof(export_t, handle));
        gpusym_reg_put(handle->key);
        __atomic_fetch_sub(&e->endpoint->exports, 1, __ATOMIC_RELAXED);
        btl_gpunvl_pool_put(&exports, e);
    }
    return OPAL_SUCCESS;
}

/* ---- the receiver ---- */

/* Into host memory the GPU used last copies; a process that has used none gets no context for that. */
static int start_copy(get_t *g, btl_gpunvl_endpoint_t *endpoint, uint64_t remote,
                      const mca_btl_base_registration_handle_t *from, uint64_t bytes)
{
    const gpusym_device_t *dev = gpusym_device_need();
    gpusym_mem_t mem;
    void *base;
    uint64_t size;

    if (NULL == dev) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    dev->query(g->local, &mem);
    const bool local = GPUSYM_MEM_DEVICE == mem.kind;
    gpusym_gpu_t *gpu = local ? gpu_of(dev, &mem) : __atomic_load_n(&last_gpu, __ATOMIC_ACQUIRE);
    if (NULL == gpu) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    const int rc = gpusym_reg_map(dev, gpu, endpoint->pages, from->key, &base, &size);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (from->off > size || from->size > size - from->off || remote < from->base || remote - from->base > from->size ||
        bytes > from->size - (remote - from->base)) {
        return GPUSYM_ERR_CORRUPT;
    }
    const gpusym_copy_rows_t rows = {.dst = g->local,
                                     .src = (const char *) base + from->off + (remote - from->base),
                                     .width = bytes,
                                     .height = 1,
                                     .local = local,
                                     .engine = !local && GPUSYM_MEM_REGISTERED != mem.kind};
    return gpusym_copy_start_rows(dev, gpu, &rows, &g->copy);
}

static const char *words_of(int rc)
{
    switch (rc) {
    case GPUSYM_ERR:
        return gpusym_current.dev->error();
    case GPUSYM_ERR_CORRUPT:
        return "its handle does not match its memory";
    case GPUSYM_ERR_NOT_AVAILABLE:
        return "this process has no GPU in use";
    default:
        return "its GPU memory cannot be mapped";
    }
}

/* A get that fails ends as the others do, later: ob1 has the sender send these bytes in pieces. */
int btl_gpunvl_get(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local, uint64_t remote,
                   mca_btl_base_registration_handle_t *local_handle, mca_btl_base_registration_handle_t *remote_handle,
                   size_t size, int flags, int order, mca_btl_base_rdma_completion_fn_t call, void *context, void *data)
{
    get_t *g = btl_gpunvl_pool_get(&gets);

    (void) btl;
    (void) flags;
    (void) order;
    if (NULL == g) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    g->endpoint = endpoint;
    g->local = local;
    g->local_handle = local_handle;
    g->call = call;
    g->context = context;
    g->data = data;
    g->done = start_copy(g, endpoint, remote, remote_handle, size);
    if (GPUSYM_SUCCESS == g->done) {
        BTL_GPUNVL_COUNT(gets, 1);
        BTL_GPUNVL_COUNT(bytes, size);
    } else {
        GPUSYM_LOG(2, "btl/gpunvl: a message of rank %u of MPI_COMM_WORLD is sent in pieces: %s",
                   (unsigned) endpoint->proc->proc_name.vpid, words_of(g->done));
    }
    pthread_mutex_lock(&live.lock);
    g->next = live.first;
    __atomic_store_n(&live.first, g, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&live.lock);
    return OPAL_SUCCESS;
}

/* Takes the gets whose copies have ended from the list. */
static get_t *take_ended(void)
{
    get_t *ended = NULL, *rest = NULL, *next;

    pthread_mutex_lock(&live.lock);
    for (get_t *g = live.first; NULL != g; g = next) {
        next = g->next;
        g->done = 0 == g->done ? gpusym_copy_poll(&g->copy) : g->done;
        get_t **list = 0 == g->done ? &rest : &ended;
        g->next = *list;
        *list = g;
    }
    __atomic_store_n(&live.first, rest, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&live.lock);
    return ended;
}

int btl_gpunvl_end_gets(void)
{
    int n = 0;

    if (NULL == __atomic_load_n(&live.first, __ATOMIC_ACQUIRE)) {
        return 0;
    }
    for (get_t *g = take_ended(), *next; NULL != g; g = next, n++) {
        next = g->next;
        if (g->done < 0) {
            BTL_GPUNVL_COUNT(failed, 1);
        }
        g->call(&btl_gpunvl.super, g->endpoint, g->local, g->local_handle, g->context, g->data,
                g->done < 0 ? OPAL_ERROR : OPAL_SUCCESS);
        btl_gpunvl_pool_put(&gets, g);
    }
    return n;
}

void btl_gpunvl_close_gets(void)
{
    last_gpu = NULL;
    while (NULL != live.first) {
        for (get_t *g = take_ended(), *next; NULL != g; g = next) {
            next = g->next;
            btl_gpunvl_pool_put(&gets, g);
        }
    }
    btl_gpunvl_pool_close(&exports);
    btl_gpunvl_pool_close(&gets);
}
