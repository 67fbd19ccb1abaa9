/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Staging: device buffers are copied to the host, the previous module runs there, the result is
 * copied back.  The message is not cut: ranks with host buffers call the previous module with the whole of it.
 */
#include "coll_gpusym_team.h"

#include <pthread.h>
#include <stdlib.h>

/* One pinned buffer is kept for the next call; larger messages use ordinary memory (pinning it would cost more). */
#define PINNED_MAX (64ull << 20)

static struct {
    pthread_mutex_t lock; /* held while the buffer is in use */
    gpusym_gpu_t *gpu;
    char *buf;
    size_t size;
} pinned = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock held: makes the pinned buffer at least `size` large. NULL if that cannot be. */
static char *pinned_fit(gpusym_gpu_t *gpu, size_t size)
{
    const gpusym_device_t *dev = mca_coll_gpusym_component.dev;
    void *host, *seen;
    if (NULL != pinned.buf && pinned.size >= size && pinned.gpu == gpu) {
        return pinned.buf;
    }
    if (NULL != pinned.buf) {
        dev->host_free(pinned.gpu, pinned.buf);
        pinned.buf = NULL;
    }
    size_t room = 64u << 10;
    while (room < size) {
        room *= 2;
    }
    if (GPUSYM_SUCCESS != dev->host_alloc(gpu, room, &host, &seen)) {
        return NULL;
    }
    pinned.gpu = gpu;
    pinned.buf = host;
    pinned.size = room;
    return pinned.buf;
}

/* Temporary host memory: the pinned buffer if it is free and large enough, else ordinary memory. */
static char *host_get(gpusym_gpu_t *gpu, size_t size, bool *is_pinned)
{
    *is_pinned = false;
    if (size <= PINNED_MAX && 0 == pthread_mutex_trylock(&pinned.lock)) {
        char *buf = pinned_fit(gpu, size);
        if (NULL != buf) {
            *is_pinned = true;
            return buf;
        }
        pthread_mutex_unlock(&pinned.lock);
    }
    return malloc(size);
}

static void host_put(char *buf, bool is_pinned)
{
    if (is_pinned) {
        pthread_mutex_unlock(&pinned.lock);
    } else {
        free(buf);
    }
}

void coll_gpusym_stage_fini(void)
{
    pthread_mutex_lock(&pinned.lock);
    if (NULL != pinned.buf) {
        mca_coll_gpusym_component.dev->host_free(pinned.gpu, pinned.buf);
        pinned.buf = NULL;
    }
    pthread_mutex_unlock(&pinned.lock);
}

static int fail(mca_coll_gpusym_module_t *m, const char *topic, size_t bytes)
{
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    const gpusym_device_t *dev = mca_coll_gpusym_component.dev;
    coll_gpusym_comm_name(m->comm, name, sizeof name);
    if (0 == strcmp("no-memory", topic)) {
        coll_gpusym_help(topic, ompi_comm_rank(m->comm), name, "MPI_Allreduce", bytes, "host memory for staging");
    } else {
        coll_gpusym_help(topic, ompi_comm_rank(m->comm), "of the buffer", name, "MPI_Allreduce", dev->error());
    }
    return MPI_ERR_OTHER;
}

int coll_gpusym_stage_allreduce(mca_coll_gpusym_module_t *m, const void *sbuf, void *rbuf, gpusym_count_t count,
                                struct ompi_datatype_t *dtype, struct ompi_op_t *op, const gpusym_mem_t *where)
{
    const gpusym_device_t *dev = mca_coll_gpusym_component.dev;
    const bool in_place = MPI_IN_PLACE == sbuf;
    ptrdiff_t gap;
    const size_t span = (size_t)opal_datatype_span(&dtype->super, (int64_t)count, &gap);
    /* The result's gaps must come back as they are; without gaps nothing of it is read. */
    const bool keep = in_place || !ompi_datatype_is_contiguous_memory_layout(dtype, (int32_t)(count > 1 ? 2 : count));
    gpusym_gpu_t *gpu;
    bool is_pinned;
    int rv = MPI_ERR_OTHER;

    if (0 == span) {
        return m->saved.allreduce(sbuf, rbuf, count, dtype, op, m->comm, m->saved.allreduce_module);
    }
    if (GPUSYM_SUCCESS != dev->gpu_open(where, &gpu)) {
        return fail(m, "gpu-error", 0);
    }
    const size_t room = (span + 255) / 256 * 256;
    char *host = host_get(gpu, 2 * room, &is_pinned);
    if (NULL == host) {
        return fail(m, "no-memory", 2 * room);
    }
    char *in = host, *out = host + room;
    if ((!in_place && GPUSYM_SUCCESS != dev->copy(gpu, in, (const char *)sbuf + gap, span)) ||
        (keep && GPUSYM_SUCCESS != dev->copy(gpu, out, (char *)rbuf + gap, span))) {
        rv = fail(m, "gpu-error", 0);
        goto put;
    }
    rv = m->saved.allreduce(in_place ? MPI_IN_PLACE : in - gap, out - gap, count, dtype, op, m->comm,
                            m->saved.allreduce_module);
    if (MPI_SUCCESS == rv && GPUSYM_SUCCESS != dev->copy(gpu, (char *)rbuf + gap, out, span)) {
        rv = fail(m, "gpu-error", 0);
    }
put:
    host_put(host, is_pinned);
    return rv;
}
