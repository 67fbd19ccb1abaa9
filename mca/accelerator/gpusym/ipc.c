/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * GPU memory of other processes of this host (Open MPI 6).  Open MPI's handles have 64 bytes, the device's have more: a
 * handle names a small sealed file of the exporting process, which contains the device's.
 *
 * An export holds a descriptor, and lasts until the memory is seen to be another, or there are too many.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/accelerator/gpusym/accelerator_gpusym.h"

#if GPUSYM_ACCELERATOR_IPC

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mca/common/gpusym/memory/reg.h"
#include "mca/common/gpusym/shm/fd.h"

#define EXPORTS_MAX 64

/* The bytes of a handle. The same allocation has the same bytes, and no other has them. */
typedef struct {
    int32_t pid, fd; /* of the exporter; the file that contains an export_t */
    uint64_t base, size, id;
} note_t;
_Static_assert(sizeof(note_t) <= IPC_MAX_HANDLE_SIZE, "the note does not fit a handle");

typedef struct {
    note_t note;
    gpusym_handle_t handle;
} export_t;

/* What this process has exported and imported. `lock` covers both lists. */
typedef struct entry {
    struct entry *next;
    export_t exported; /* of an export */
    void *p;           /* of an import: where it is mapped */
    gpusym_gpu_t *gpu;
} entry_t;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry_t *exports, *imports;

bool accelerator_is_ipc_enabled(void)
{
    return true;
}

/* ---- handles ---- */

static void handle_destruct(opal_accelerator_ipc_handle_t *handle)
{
    entry_t **link, *e;

    if (NULL == handle->dev_ptr) {
        return;
    }
    pthread_mutex_lock(&lock);
    for (link = &imports; NULL != (e = *link) && e->p != handle->dev_ptr; link = &e->next) {
    }
    if (NULL != e) {
        *link = e->next;
    }
    pthread_mutex_unlock(&lock);
    if (NULL != e && NULL != gpusym_current.dev) {
        (void) gpusym_current.dev->mem_unimport(e->gpu, e->p);
    }
    free(e);
    handle->dev_ptr = NULL;
}

typedef opal_accelerator_ipc_handle_t accelerator_gpusym_ipc_handle_t;
OBJ_CLASS_DECLARATION(accelerator_gpusym_ipc_handle_t);
OBJ_CLASS_INSTANCE(accelerator_gpusym_ipc_handle_t, opal_object_t, NULL, handle_destruct);

static void handle_make(opal_accelerator_ipc_handle_t *handle, const void *bytes, size_t size)
{
    OBJ_CONSTRUCT(handle, accelerator_gpusym_ipc_handle_t);
    handle->size = IPC_MAX_HANDLE_SIZE;
    handle->dev_ptr = NULL;
    memset(handle->handle, 0, IPC_MAX_HANDLE_SIZE);
    memcpy(handle->handle, bytes, size);
}

int accelerator_import_ipc_handle(int dev_id, uint8_t bytes[IPC_MAX_HANDLE_SIZE], opal_accelerator_ipc_handle_t *handle)
{
    (void) dev_id;
    handle_make(handle, bytes, IPC_MAX_HANDLE_SIZE);
    return OPAL_SUCCESS;
}

int accelerator_compare_ipc_handles(uint8_t a[IPC_MAX_HANDLE_SIZE], uint8_t b[IPC_MAX_HANDLE_SIZE])
{
    return memcmp(a, b, IPC_MAX_HANDLE_SIZE);
}

/* ---- exports ---- */

static void export_end(entry_t *e)
{
    close(e->exported.note.fd);
    if (NULL != gpusym_current.dev) {
        (void) gpusym_current.dev->mem_unexport(e->gpu, &e->exported.handle);
    }
    free(e);
}

/* With the lock held: the export of an allocation; NULL: there is none. Ends those of memory that is gone, and the
 * oldest of too many. */
static entry_t *export_find(const gpusym_range_t *range)
{
    entry_t **link = &exports, *e, *found = NULL;
    unsigned n = 0;

    while (NULL != (e = *link)) {
        const note_t *note = &e->exported.note;
        const bool here = note->base == (uintptr_t) range->base;
        const bool same = here && note->size == range->size && note->id == range->id;
        if ((here && !same) || (!same && ++n >= EXPORTS_MAX)) {
            *link = e->next;
            export_end(e);
        } else {
            found = same ? e : found;
            link = &e->next;
        }
    }
    return found;
}

/* The file of an export, complete and open to peers; -1: it cannot be made. */
static int file_make(const export_t *exported)
{
    int fd;

    if (GPUSYM_SUCCESS != gpusym_memfd_make("gpusym-ipc", sizeof(*exported), &fd)) {
        return -1;
    }
    if (GPUSYM_SUCCESS != gpusym_fd_share(fd)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* With the lock held. */
static entry_t *export_make(const gpusym_range_t *range, gpusym_gpu_t *gpu)
{
    entry_t *e = calloc(1, sizeof(*e));
    ssize_t written = -1;

    if (NULL == e) {
        return NULL;
    }
    e->gpu = gpu;
    e->exported.note =
        (note_t){.pid = (int32_t) getpid(), .base = (uintptr_t) range->base, .size = range->size, .id = range->id};
    if (GPUSYM_SUCCESS != gpusym_current.dev->mem_export(gpu, range->base, &e->exported.handle)) {
        free(e);
        return NULL;
    }
    e->exported.note.fd = file_make(&e->exported);
    if (e->exported.note.fd >= 0) {
        GPUSYM_RESTART(written, pwrite(e->exported.note.fd, &e->exported, sizeof(e->exported), 0));
    }
    if ((ssize_t) sizeof(e->exported) != written) {
        export_end(e);
        return NULL;
    }
    e->next = exports;
    exports = e;
    return e;
}

int accelerator_get_ipc_handle(int dev_id, void *p, opal_accelerator_ipc_handle_t *handle)
{
    const gpusym_device_t *dev = accelerator_device();
    gpusym_range_t range;
    gpusym_gpu_t *gpu;
    entry_t *e;

    (void) dev_id;
    if (NULL == dev || GPUSYM_SUCCESS != dev->mem_range(p, &range) || !gpusym_reg_allows(&range) ||
        OPAL_SUCCESS != accelerator_gpu_of(p, p, &gpu) || NULL == gpu) {
        return OPAL_ERROR;
    }
    pthread_mutex_lock(&lock);
    e = export_find(&range);
    if (NULL == e) {
        e = export_make(&range, gpu);
    }
    if (NULL != e) {
        handle_make(handle, &e->exported.note, sizeof(e->exported.note));
    }
    pthread_mutex_unlock(&lock);
    if (NULL == e) {
        ACCELERATOR_VERBOSE(1, "%p cannot be shared: %s", p, dev->error());
        return OPAL_ERROR;
    }
    return OPAL_SUCCESS;
}

/* ---- imports ---- */

/* Reads the file that a note names. False: it is gone, or another one. */
static bool file_read(const note_t *note, export_t *exported)
{
    ssize_t got = -1;
    int fd;

    if (GPUSYM_SUCCESS != gpusym_fd_fetch((pid_t) note->pid, note->fd, &fd)) {
        return false;
    }
    if (gpusym_memfd_is_sealed(fd, sizeof(*exported))) {
        GPUSYM_RESTART(got, pread(fd, exported, sizeof(*exported), 0));
    }
    close(fd);
    return (ssize_t) sizeof(*exported) == got && 0 == memcmp(&exported->note, note, sizeof(*note));
}

int accelerator_open_ipc_handle(int dev_id, opal_accelerator_ipc_handle_t *handle, void **p)
{
    export_t theirs;
    note_t note;
    entry_t *e;
    int rc;

    memcpy(&note, handle->handle, sizeof(note));
    e = calloc(1, sizeof(*e));
    if (NULL == e) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    rc = accelerator_gpu(dev_id, &e->gpu);
    if (OPAL_SUCCESS == rc && !file_read(&note, &theirs)) {
        rc = OPAL_ERR_NOT_FOUND;
    }
    if (OPAL_SUCCESS == rc && GPUSYM_SUCCESS != gpusym_current.dev->mem_import(e->gpu, &theirs.handle, &e->p)) {
        rc = OPAL_ERROR;
    }
    if (OPAL_SUCCESS != rc) {
        ACCELERATOR_VERBOSE(1, "memory of process %d cannot be mapped", (int) note.pid);
        free(e);
        return rc;
    }
    pthread_mutex_lock(&lock);
    e->next = imports;
    imports = e;
    pthread_mutex_unlock(&lock);
    *p = handle->dev_ptr = e->p;
    return OPAL_SUCCESS;
}

/* ---- events of other processes: recording one has waited for its stream, so that they are complete ---- */

static int event_handle_make(opal_accelerator_ipc_event_handle_t *handle)
{
    OBJ_CONSTRUCT(handle, opal_accelerator_ipc_event_handle_t);
    handle->size = IPC_MAX_HANDLE_SIZE;
    memset(handle->handle, 0, IPC_MAX_HANDLE_SIZE);
    return OPAL_SUCCESS;
}

int accelerator_get_ipc_event_handle(opal_accelerator_event_t *event, opal_accelerator_ipc_event_handle_t *handle)
{
    (void) event;
    return event_handle_make(handle);
}

int accelerator_import_ipc_event_handle(uint8_t bytes[IPC_MAX_HANDLE_SIZE], opal_accelerator_ipc_event_handle_t *handle)
{
    (void) bytes;
    return event_handle_make(handle);
}

int accelerator_open_ipc_event_handle(opal_accelerator_ipc_event_handle_t *handle, opal_accelerator_event_t *event)
{
    (void) handle;
    OBJ_CONSTRUCT(event, accelerator_gpusym_event_t);
    return NULL != event->event ? OPAL_SUCCESS : OPAL_ERR_OUT_OF_RESOURCE;
}

void accelerator_ipc_close(void)
{
    while (NULL != exports) {
        entry_t *e = exports;
        exports = e->next;
        export_end(e);
    }
    while (NULL != imports) { /* the device ends their mappings as it closes */
        entry_t *e = imports;
        imports = e->next;
        free(e);
    }
}

#endif
