/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Who reaches whom: pure functions of what the ranks told each other. No MPI, no GPU.
 */
#ifndef GPUSYM_COMMON_TEAM_H
#define GPUSYM_COMMON_TEAM_H

#include <stdbool.h>
#include <stdint.h>

/* What identifies a host: ranks with equal keys share memory and GPUs. */
typedef struct {
    uint64_t key[2];
} gpusym_host_t;

/* This host's key: boot id, host name and pid namespace. */
void gpusym_host_self(gpusym_host_t *host);

typedef struct {
    uint32_t nhosts;      /* hosts that the ranks lie on */
    uint32_t host;        /* of `me`: hosts are numbered in the order of their first rank */
    uint32_t local_rank;  /* of `me` among the ranks of its host, in rank order */
    uint32_t local_size;
    uint32_t leader;      /* lowest rank on that host */
} gpusym_nodes_t;

/* Groups n ranks by host, as rank `me` sees it. */
void gpusym_team_nodes(const gpusym_host_t *hosts, uint32_t n, uint32_t me, gpusym_nodes_t *nodes);

/* Whether two of n GPUs are the same: uuids of 16 bytes, `stride` bytes apart. Sets *a < *b to the first such pair. */
bool gpusym_team_shared_gpu(const void *uuids, uint32_t stride, uint32_t n, uint32_t *a, uint32_t *b);

#endif
