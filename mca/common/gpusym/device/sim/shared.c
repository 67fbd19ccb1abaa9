/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memfds that processes share: a page with the identity, then the contents.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mca/common/gpusym/device/sim/sim_internal.h"
#include "mca/common/gpusym/shm/fd.h"

size_t sim_page_size(void)
{
    return (size_t) sysconf(_SC_PAGESIZE);
}

size_t sim_round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

static uint64_t shared_bytes(uint64_t size)
{
    return sim_page_size() + sim_round_up(size, sim_page_size());
}

int sim_shared_create(const char *magic, size_t size, sim_shared_id_t *id, int *fd)
{
    ssize_t n;
    memset(id, 0, sizeof(*id));
    memcpy(id->magic, magic, sizeof(id->magic));
    id->size = size;
    *fd = -1;
    if (!gpusym_random(id->nonce, sizeof(id->nonce))) {
        return sim_fail(GPUSYM_ERR, "getrandom: %s", strerror(errno));
    }
    if (GPUSYM_SUCCESS != gpusym_memfd_make("gpusym-device", shared_bytes(size), fd)) {
        return sim_fail(GPUSYM_ERR_NO_MEMORY, "%zu bytes of a memfd: %s", size, strerror(errno));
    }
    GPUSYM_RESTART(n, pwrite(*fd, id, sizeof(*id), 0));
    if ((ssize_t) sizeof(*id) != n) {
        int rc = sim_fail(GPUSYM_ERR_NO_MEMORY, "%zu bytes of a memfd: %s", size, strerror(errno));
        close(*fd);
        *fd = -1;
        return rc;
    }
    return GPUSYM_SUCCESS;
}

bool sim_is_vmm(const sim_shared_id_t *id)
{
    return 0 == memcmp(id->magic, SIM_MAGIC_VMM, sizeof(id->magic));
}

/* Opens a memfd by the name that its process gives it. */
static int shared_open_path(const sim_handle_t *handle, int *fd)
{
    struct stat st;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int) handle->pid, (int) handle->fd);
    /* stat first: opening a pipe, terminal or device by mistake could have effects */
    if (0 != stat(path, &st)) {
        return sim_fail(GPUSYM_ERR_UNREACHABLE, "%s: %s (another container or user, or it has ended)", path,
                        strerror(errno));
    }
    if (!S_ISREG(st.st_mode) || (uint64_t) st.st_size != shared_bytes(handle->id.size)) {
        return sim_fail(GPUSYM_ERR_UNREACHABLE, "%s is not the peer's memory (another container?)", path);
    }
    GPUSYM_RESTART(*fd, open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    return *fd >= 0 ? GPUSYM_SUCCESS : sim_fail(GPUSYM_ERR_UNREACHABLE, "%s: %s", path, strerror(errno));
}

/* Process and descriptor numbers may mean another file here (another pid namespace, an exporter that has ended), so
 * what is opened is compared with the handle. */
int sim_shared_open(const sim_handle_t *handle, int *fd)
{
    sim_shared_id_t id;
    ssize_t n;
    int rc;

    if (sim_is_vmm(&handle->id)) {
        rc = gpusym_fd_fetch(handle->pid, handle->fd, fd);
        if (GPUSYM_SUCCESS != rc) {
            sim_fail(rc, "descriptor %d of process %d: %s", (int) handle->fd, (int) handle->pid, strerror(errno));
        }
    } else {
        rc = shared_open_path(handle, fd);
    }
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    GPUSYM_RESTART(n, pread(*fd, &id, sizeof(id), 0));
    if ((ssize_t) sizeof(id) != n || 0 != memcmp(&id, &handle->id, sizeof(id)) ||
        !gpusym_memfd_is_sealed(*fd, shared_bytes(id.size))) {
        close(*fd);
        *fd = -1;
        return sim_fail(GPUSYM_ERR_UNREACHABLE,
                        "descriptor %d of process %d is not the peer's memory (another container?)", (int) handle->fd,
                        (int) handle->pid);
    }
    return GPUSYM_SUCCESS;
}

void sim_handle_put(const sim_shared_id_t *id, int fd, sim_handle_t *handle)
{
    memset(handle, 0, sizeof(*handle));
    handle->id = *id;
    handle->pid = (int32_t) getpid();
    handle->fd = fd;
    handle->gpu = sim.gpu.info.place.number;
}

int sim_handle_get(const gpusym_handle_t *from, const char *magic, sim_handle_t *handle)
{
    memcpy(handle, from->bytes, sizeof(*handle));
    const bool vmm = sim_is_vmm(&handle->id) && 0 == strcmp(magic, SIM_MAGIC_MEMORY);
    if ((!vmm && 0 != memcmp(handle->id.magic, magic, sizeof(handle->id.magic))) || handle->pid <= 0 ||
        handle->fd < 0 || 0 == handle->id.size || handle->id.size > SIZE_MAX / 4) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "not a handle of the simulator for this use");
    }
    return GPUSYM_SUCCESS;
}
