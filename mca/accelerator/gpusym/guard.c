/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Places where Open MPI would touch GPU memory by the CPU although a component has told it what is GPU memory.
 *
 * Transports.  ob1 gets the data of a large message from host memory straight into the receiver's buffer, by a function
 * of the transport that copies by the CPU (self) or the kernel (cross-memory attach): a crash, or a copy that fails and
 * is repeated for ever.  That function is replaced by one that goes through host memory where the buffer is a GPU's.
 *
 * Files (6.0).  ompio marks a file as open by a bit that also means "no buffer of this file is GPU memory".
 *
 * The library stays loaded (-z nodelete), because transports keep the function for as long as the process lives.
 */
#include "mca/accelerator/gpusym/accelerator_gpusym.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "opal/mca/btl/base/base.h"

/* ---- transports ---- */

/* The transports' own functions.  Entries are only added; `count` is stored with release order. */
#define BTLS_MAX 32
static struct {
    mca_btl_base_module_t *btl;
    mca_btl_base_module_get_fn_t get;
} own[BTLS_MAX];
static unsigned count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of those who add */

static unsigned find_btl(const mca_btl_base_module_t *btl)
{
    const unsigned n = __atomic_load_n(&count, __ATOMIC_ACQUIRE);
    unsigned i = 0;

    while (i < n && own[i].btl != btl) {
        i++;
    }
    return i;
}

/* A get into GPU memory, by way of host memory. */
typedef struct {
    void *host;
    mca_btl_base_registration_handle_t *host_handle; /* NULL: the transport needs none */
    size_t size;
    void *gpu; /* the caller's, as what follows */
    mca_btl_base_registration_handle_t *handle;
    mca_btl_base_rdma_completion_fn_t done;
    void *context, *data;
} get_t;

static void get_end(mca_btl_base_module_t *btl, get_t *g)
{
    if (NULL != g->host_handle) {
        (void) btl->btl_deregister_mem(btl, g->host_handle);
    }
    free(g->host);
    free(g);
}

/* NULL: there is no memory, or the transport cannot use it. */
static get_t *get_begin(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, const get_t *what)
{
    get_t *g = malloc(sizeof(*g));

    if (NULL == g) {
        return NULL;
    }
    *g = *what;
    g->host = malloc(g->size);
    if (NULL != g->host && NULL != btl->btl_register_mem) {
        g->host_handle = btl->btl_register_mem(btl, endpoint, g->host, g->size, MCA_BTL_REG_FLAG_LOCAL_WRITE);
    }
    if (NULL == g->host || (NULL != btl->btl_register_mem && NULL == g->host_handle)) {
        get_end(btl, g);
        return NULL;
    }
    return g;
}

static int get_copy(const get_t *g)
{
    return accelerator_mem_copy(MCA_ACCELERATOR_NO_DEVICE_ID, MCA_ACCELERATOR_NO_DEVICE_ID, g->gpu, g->host, g->size,
                                MCA_ACCELERATOR_TRANSFER_HTOD);
}

/* The transport calls this where it would have called the caller's function. */
static void get_done(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local,
                     mca_btl_base_registration_handle_t *local_handle, void *context, void *data, int status)
{
    get_t *g = data;

    (void) local;
    (void) local_handle;
    (void) context;
    if (OPAL_SUCCESS == status) {
        status = get_copy(g);
    }
    g->done(btl, endpoint, g->gpu, g->handle, g->context, g->data, status);
    get_end(btl, g);
}

/* A transport's function that returns 1 is done, and calls nobody. */
static int get_by_host(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local,
                       uint64_t remote, mca_btl_base_registration_handle_t *local_handle,
                       mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
                       mca_btl_base_rdma_completion_fn_t done, void *context, void *data)
{
    const mca_btl_base_module_get_fn_t get = own[find_btl(btl)].get;
    const get_t what = {
        .size = size, .gpu = local, .handle = local_handle, .done = done, .context = context, .data = data};
    uint64_t unused;
    int dev_id, rc;
    get_t *g;

    if (0 >= accelerator_look_up(local, &dev_id, &unused)) {
        return get(btl, endpoint, local, remote, local_handle, remote_handle, size, flags, order, done, context, data);
    }
    g = get_begin(btl, endpoint, &what);
    if (NULL == g) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    rc = get(btl, endpoint, g->host, remote, g->host_handle, remote_handle, size, flags, order, get_done, NULL, g);
    if (1 == rc && OPAL_SUCCESS != get_copy(g)) {
        rc = OPAL_ERROR;
    }
    if (OPAL_SUCCESS != rc) {
        get_end(btl, g);
    }
    return rc;
}

/* gpunvl copies by the GPU. */
static bool is_guarded(const mca_btl_base_module_t *btl)
{
    return NULL == btl->btl_get || get_by_host == btl->btl_get ||
           0 == strcmp(btl->btl_component->btl_version.mca_component_name, "gpunvl");
}

static void guard_btl(mca_btl_base_module_t *btl)
{
    pthread_mutex_lock(&lock);
    const unsigned i = find_btl(btl);
    if (i < BTLS_MAX && !is_guarded(btl)) {
        own[i].btl = btl;
        own[i].get = btl->btl_get;
        if (i == count) {
            __atomic_store_n(&count, i + 1, __ATOMIC_RELEASE);
        }
        btl->btl_get = get_by_host;
    }
    pthread_mutex_unlock(&lock);
}

/* About 10 ns if nothing is to do. A transport may get its function later, or another one in its place. */
static void guard_transports(void)
{
    const mca_btl_base_selected_module_t *item;

    OPAL_LIST_FOREACH(item, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        if (!is_guarded(item->btl_module)) {
            guard_btl(item->btl_module);
        }
    }
}

int accelerator_check_addr(const void *addr, int *dev_id, uint64_t *flags)
{
    const int is = accelerator_look_up(addr, dev_id, flags);

    if (is > 0) {
        guard_transports();
    }
    return is;
}

/* ---- files ---- */

#if GPUSYM_FILE_OPEN_MEANS_HOST

#include "ompi/file/file.h"
#include "ompi/mca/io/io.h"

/* Absent where ompio is a component in a file of its own. */
extern mca_io_base_module_3_0_0_t mca_io_ompio_module __attribute__((weak));

static mca_io_base_module_file_open_fn_t own_open;

static int open_file(struct ompi_communicator_t *comm, const char *name, int mode, struct opal_info_t *info,
                     struct ompi_file_t *file)
{
    const bool asserted = 0 != (file->f_flags & OMPI_FILE_ASSERT_NO_ACCEL_BUF);
    const int rc = own_open(comm, name, mode, info, file);

    if (!asserted) {
        file->f_flags &= ~OMPI_FILE_ASSERT_NO_ACCEL_BUF;
    }
    return rc;
}

void accelerator_guard_files(void)
{
    if (NULL != &mca_io_ompio_module && open_file != mca_io_ompio_module.io_module_file_open) {
        own_open = mca_io_ompio_module.io_module_file_open;
        mca_io_ompio_module.io_module_file_open = open_file;
    }
}

#else

void accelerator_guard_files(void)
{
}

#endif
