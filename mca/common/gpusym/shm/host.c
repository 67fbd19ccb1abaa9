/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The key of this host: see host.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/shm/host.h"

#include <errno.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/log.h"

/* FNV-1a, 64 bits, over n bytes, continuing from h. */
static uint64_t hash_bytes(uint64_t h, const void *p, size_t n)
{
    const uint8_t *b = p;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ b[i]) * 0x100000001b3ull;
    }
    return h;
}

int gpusym_host_self(gpusym_host_t *host)
{
    char boot[64] = "", name[256] = "";
    struct stat ns;

    const int error = gpusym_file_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot) ? 0 : errno;
    if (0 != error) {
        gpusym_log_call("read", "/proc/sys/kernel/random/boot_id");
    }
    gethostname(name, sizeof name - 1);
    host->key[0] = hash_bytes(0xcbf29ce484222325ull, boot, sizeof boot);
    host->key[1] = hash_bytes(0x84222325cbf29ce4ull, name, sizeof name);
    /* Other pid namespaces see other processes under /proc: their memory cannot be mapped. */
    if (0 == stat("/proc/self/ns/pid", &ns)) {
        host->key[1] = hash_bytes(host->key[1], &ns.st_ino, sizeof ns.st_ino);
    }
    return error;
}
