/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Islands: see islands.h.
 */
#include "mca/common/gpusym/topo/islands.h"

#include <stdlib.h>

/*
 * The table has three arrays of numbers, of 2 bytes for up to 65,536 ranks, else of 4:
 *   island[nranks]    of each rank
 *   member[nranks]    the ranks, by island, and rising
 *   first[nislands]   where in member[] each island begins
 */
#define NARROW 65536u

static uint32_t get(const gpusym_islands_t *s, uint32_t i)
{
    return s->nranks <= NARROW ? ((const uint16_t *) s->table)[i] : ((const uint32_t *) s->table)[i];
}

static void put(const gpusym_islands_t *s, uint32_t i, uint32_t value)
{
    if (s->nranks <= NARROW) {
        ((uint16_t *) s->table)[i] = (uint16_t) value;
    } else {
        ((uint32_t *) s->table)[i] = value;
    }
}

static uint32_t member_at(const gpusym_islands_t *s, uint32_t place)
{
    return get(s, s->nranks + place);
}

/* Behind the last island: all members. */
static uint32_t first_of(const gpusym_islands_t *s, uint32_t island)
{
    return island < s->nislands ? get(s, 2 * s->nranks + island) : s->nranks;
}

uint32_t gpusym_islands_find(const gpusym_islands_t *s, uint32_t rank)
{
    return get(s, rank);
}

uint32_t gpusym_island_size(const gpusym_islands_t *s, uint32_t island)
{
    return first_of(s, island + 1) - first_of(s, island);
}

uint32_t gpusym_island_member(const gpusym_islands_t *s, uint32_t island, uint32_t i)
{
    return member_at(s, first_of(s, island) + i);
}

uint32_t gpusym_islands_number(const gpusym_islands_t *s, uint32_t rank)
{
    const uint32_t first = first_of(s, gpusym_islands_find(s, rank));
    uint32_t place = first;
    while (member_at(s, place) != rank) {
        place++;
    }
    return place - first;
}

/* ---- making ---- */

#define NONE UINT32_MAX

/* A host, or an island, while they are counted. */
typedef struct {
    uint32_t ranks; /* of the host; of the island so far */
    uint32_t last;  /* the host's last island; the island's last rank */
    uint32_t next;  /* the host's first island; the island behind it on its host */
    uint32_t most;  /* a host: of its islands' ranks */
} part_t;

/* The making of islands. All arrays are owned. */
typedef struct {
    const gpusym_islands_of_t *of;
    uint32_t *slot;    /* [slots] by the hash of a host: a rank of it; NONE */
    uint32_t slots;    /* a power of two */
    uint32_t *host;    /* [nranks] the number of each rank's host */
    uint32_t *island;  /* [nranks] */
    uint32_t *earlier; /* [nranks] the rank before it in its island; NONE */
    part_t *hosts, *islands;
    uint32_t nhosts, nislands;
} making_t;

static bool begin_making(making_t *m, const gpusym_islands_of_t *of)
{
    const uint32_t n = of->nranks;
    *m = (making_t){.of = of, .slots = 2};
    while (m->slots < 2 * n) {
        m->slots *= 2;
    }
    m->slot = malloc(m->slots * sizeof *m->slot);
    m->host = calloc(n, sizeof *m->host);
    m->island = calloc(n, sizeof *m->island);
    m->earlier = calloc(n, sizeof *m->earlier);
    m->hosts = calloc(n, sizeof *m->hosts);
    m->islands = calloc(n, sizeof *m->islands);
    if (NULL == m->slot || NULL == m->host || NULL == m->island || NULL == m->earlier || NULL == m->hosts ||
        NULL == m->islands) {
        return false;
    }
    for (uint32_t i = 0; i < m->slots; i++) {
        m->slot[i] = NONE;
    }
    return true;
}

static void end_making(making_t *m)
{
    free(m->slot);
    free(m->host);
    free(m->island);
    free(m->earlier);
    free(m->hosts);
    free(m->islands);
}

/* Where the host of a rank stands among the slots, or may. */
static uint32_t find_slot(const making_t *m, uint32_t rank)
{
    const uint64_t host = m->of->host[rank];
    uint64_t h = host * 0x9e3779b97f4a7c15ull;
    uint32_t i = (uint32_t) (h ^ h >> 32) & (m->slots - 1);
    while (NONE != m->slot[i] && m->of->host[m->slot[i]] != host) {
        i = (i + 1) & (m->slots - 1);
    }
    return i;
}

/* Numbers the hosts by their lowest ranks, and counts their ranks. */
static void count_hosts(making_t *m)
{
    for (uint32_t r = 0; r < m->of->nranks; r++) {
        const uint32_t i = find_slot(m, r);
        if (NONE == m->slot[i]) {
            m->slot[i] = r;
            m->host[r] = m->nhosts;
            m->hosts[m->nhosts++] = (part_t){.last = NONE, .next = NONE};
        }
        m->host[r] = m->host[m->slot[i]];
        m->hosts[m->host[r]].ranks++;
    }
}

/* How many ranks of a host make an island, at most. */
static uint32_t divide_host(const making_t *m, uint32_t ranks)
{
    if (0 != m->of->node_size) {
        return m->of->node_size < GPUSYM_ISLAND_MAX ? m->of->node_size : GPUSYM_ISLAND_MAX;
    }
    const uint32_t islands = (ranks + GPUSYM_ISLAND_MAX - 1) / GPUSYM_ISLAND_MAX;
    return (ranks + islands - 1) / islands;
}

/* Whether an island takes one rank more, of its host. */
static bool may_join(const making_t *m, uint32_t island, uint32_t most, uint32_t rank)
{
    bool may = m->islands[island].ranks < most;
    for (uint32_t r = m->islands[island].last; may && NULL != m->of->reach && NONE != r; r = m->earlier[r]) {
        may = m->of->reach(m->of->arg, r, rank);
    }
    return may;
}

/* The island of its host that takes the rank; NONE: none. Where all ranks reach each other, only the last has room. */
static uint32_t find_island(const making_t *m, const part_t *host, uint32_t rank)
{
    uint32_t i = NULL != m->of->reach ? host->next : host->last;
    while (NONE != i && !may_join(m, i, host->most, rank)) {
        i = m->islands[i].next;
    }
    return i;
}

static uint32_t add_island(making_t *m, part_t *host)
{
    const uint32_t i = m->nislands++;
    m->islands[i] = (part_t){.last = NONE, .next = NONE};
    if (NONE == host->last) {
        host->next = i;
    } else {
        m->islands[host->last].next = i;
    }
    host->last = i;
    return i;
}

/* Puts each rank into an island. */
static void join_islands(making_t *m)
{
    for (uint32_t h = 0; h < m->nhosts; h++) {
        m->hosts[h].most = divide_host(m, m->hosts[h].ranks);
    }
    for (uint32_t r = 0; r < m->of->nranks; r++) {
        part_t *host = &m->hosts[m->host[r]];
        uint32_t i = find_island(m, host, r);
        i = NONE == i ? add_island(m, host) : i;
        m->island[r] = i;
        m->earlier[r] = m->islands[i].last;
        m->islands[i].last = r;
        m->islands[i].ranks++;
    }
}

/* Fills the table of the islands that have been found. */
static bool fill_table(making_t *m, gpusym_islands_t *s)
{
    const uint32_t n = m->of->nranks;
    uint32_t place = 0;
    *s = (gpusym_islands_t){.nranks = n, .nislands = m->nislands};
    s->bytes = (2ull * n + m->nislands) * (n <= NARROW ? sizeof(uint16_t) : sizeof(uint32_t));
    s->table = malloc(s->bytes);
    if (NULL == s->table) {
        return false;
    }
    for (uint32_t i = 0; i < m->nislands; i++) {
        part_t *island = &m->islands[i];
        put(s, 2 * n + i, place);
        s->most = island->ranks > s->most ? island->ranks : s->most;
        place += island->ranks;
        island->last = place - island->ranks; /* from here on: where the next member goes */
    }
    for (uint32_t r = 0; r < n; r++) {
        put(s, r, m->island[r]);
        put(s, n + m->islands[m->island[r]].last++, r);
    }
    return true;
}

bool gpusym_islands_make(const gpusym_islands_of_t *of, gpusym_islands_t *islands)
{
    making_t m;
    *islands = (gpusym_islands_t){0};
    bool ok = begin_making(&m, of);
    if (ok) {
        count_hosts(&m);
        join_islands(&m);
        ok = fill_table(&m, islands);
    }
    end_making(&m);
    return ok;
}

void gpusym_islands_free(gpusym_islands_t *islands)
{
    free(islands->table);
    *islands = (gpusym_islands_t){0};
}
