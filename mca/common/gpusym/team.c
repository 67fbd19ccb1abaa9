/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Node groups and shared GPUs: see team.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/team.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* FNV-1a, 64 bits, over n bytes, continuing from h. */
static uint64_t hash(uint64_t h, const void *p, size_t n)
{
    const uint8_t *b = p;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ b[i]) * 0x100000001b3ull;
    }
    return h;
}

void gpusym_host_self(gpusym_host_t *host)
{
    char boot[64] = "", name[256] = "";
    struct stat ns;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (NULL != f) {
        if (NULL == fgets(boot, sizeof boot, f)) {
            boot[0] = '\0';
        }
        fclose(f);
    }
    gethostname(name, sizeof name - 1);
    host->key[0] = hash(0xcbf29ce484222325ull, boot, sizeof boot);
    host->key[1] = hash(0x84222325cbf29ce4ull, name, sizeof name);
    /* Other pid namespaces see other processes under /proc: their memory cannot be mapped. */
    if (0 == stat("/proc/self/ns/pid", &ns)) {
        host->key[1] = hash(host->key[1], &ns.st_ino, sizeof ns.st_ino);
    }
}

static bool same_host(const gpusym_host_t *a, const gpusym_host_t *b)
{
    return a->key[0] == b->key[0] && a->key[1] == b->key[1];
}

/* The first rank on the host of rank r. */
static uint32_t first_on_host(const gpusym_host_t *hosts, uint32_t r)
{
    uint32_t i = 0;
    while (!same_host(&hosts[i], &hosts[r])) {
        i++;
    }
    return i;
}

void gpusym_team_nodes(const gpusym_host_t *hosts, uint32_t n, uint32_t me, gpusym_nodes_t *nodes)
{
    memset(nodes, 0, sizeof *nodes);
    nodes->leader = first_on_host(hosts, me);
    for (uint32_t r = 0; r < n; r++) {
        if (first_on_host(hosts, r) == r) {
            nodes->host += r < nodes->leader;
            nodes->nhosts++;
        }
        if (same_host(&hosts[r], &hosts[me])) {
            nodes->local_rank += r < me;
            nodes->local_size++;
        }
    }
}

bool gpusym_team_shared_gpu(const void *uuids, uint32_t stride, uint32_t n, uint32_t *a, uint32_t *b)
{
    const uint8_t *u = uuids;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = i + 1; j < n; j++) {
            if (0 == memcmp(u + (size_t)i * stride, u + (size_t)j * stride, 16)) {
                *a = i;
                *b = j;
                return true;
            }
        }
    }
    return false;
}
