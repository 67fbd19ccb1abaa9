/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which host this is: whether processes can share memory.
 */
#ifndef GPUSYM_COMMON_SHM_HOST_H
#define GPUSYM_COMMON_SHM_HOST_H

#include <stdint.h>

/* What identifies a host: ranks with equal keys share memory and GPUs. */
typedef struct {
    uint64_t key[2];
} gpusym_host_t;

/* This host's key: boot id, host name and pid namespace. 0, or errno where the boot id could not be read: the key is then not
 * that of the other ranks here, unless they cannot read it either. */
int gpusym_host_self(gpusym_host_t *host);

#endif
