/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Segments: see segment.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/shm/segment.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/shm/fd.h"

int gpusym_segment_make(const char *name, uint64_t magic, uint64_t bytes, gpusym_segment_id_t *id, void **base)
{
    gpusym_segment_head_t head = {.magic = magic};
    int fd;
    const int rc = gpusym_memfd_make(name, bytes, &fd);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    void *p = MAP_FAILED;
    if (gpusym_random(head.nonce, sizeof head.nonce)) {
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (MAP_FAILED == p) {
        const int error = errno;
        gpusym_log_call("mmap", name);
        close(fd);
        errno = error;
        return GPUSYM_ERR_NO_MEMORY;
    }
    memcpy(p, &head, sizeof head);
    *id = (gpusym_segment_id_t){{head.nonce[0], head.nonce[1]}, getpid(), fd, bytes};
    *base = p;
    return GPUSYM_SUCCESS;
}

void gpusym_segment_free(const gpusym_segment_id_t *id, void *base)
{
    munmap(base, id->bytes);
    close(id->fd);
}

int gpusym_segment_map(const gpusym_segment_id_t *id, uint64_t magic, uint64_t bytes, void **base)
{
    char path[64];
    gpusym_segment_head_t head;
    ssize_t n = 0;
    int fd;

    if (id->pid <= 0 || id->fd < 0 || bytes != id->bytes) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", id->pid, id->fd);
    GPUSYM_RESTART(fd, open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd < 0) {
        gpusym_log_call("open", path);
        return GPUSYM_ERR_UNREACHABLE;
    }
    void *p = MAP_FAILED;
    errno = ESRCH; /* the descriptor number may belong to another process by now */
    if (gpusym_memfd_is_sealed(fd, bytes)) {
        GPUSYM_RESTART(n, pread(fd, &head, sizeof head, 0));
    }
    if (sizeof head == n && magic == head.magic && head.nonce[0] == id->nonce[0] && head.nonce[1] == id->nonce[1]) {
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    const int error = errno;
    close(fd);
    if (MAP_FAILED == p) {
        errno = error;
        gpusym_log_call("mmap", path);
        return GPUSYM_ERR_UNREACHABLE;
    }
    *base = p;
    return GPUSYM_SUCCESS;
}
