/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The identity of this host: whether processes can share memory.
 */
#ifndef GPUSYM_COMMON_SHM_HOST_H
#define GPUSYM_COMMON_SHM_HOST_H

#include <stdint.h>

/* Identifies a host: processes with equal keys can share memory and GPUs. */
typedef struct {
    uint64_t key[2];
} gpusym_host_t;

/* Gets the key of this host, from boot id, host name and pid namespace.  Returns 0, or the errno of reading the boot
 * id: the key then equals only those of processes that cannot read it either. */
int gpusym_host_self(gpusym_host_t *host);

#endif
