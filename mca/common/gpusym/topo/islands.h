/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Islands: the parts of a communicator whose ranks reach each other's GPU memory, normally the ranks of one host, at
 * most GPUSYM_ISLAND_MAX. Pure functions: every rank that knows the same hosts finds the same islands.
 */
#ifndef GPUSYM_COMMON_TOPO_ISLANDS_H
#define GPUSYM_COMMON_TOPO_ISLANDS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/work.h"

/* A kernel loads what has come from another island beside the inputs of all members. */
#define GPUSYM_ISLAND_MAX (GPUSYM_TEAM_MAX - 1u)

/* What islands are made of. */
typedef struct {
    uint32_t nranks;      /* at least 1 */
    const uint64_t *host; /* [nranks] any number, the same for ranks of one host */
    uint32_t node_size;   /* ranks of an island, a host's last one has what is left; 0: evenly */
    /* Whether two ranks of one host reach each other, symmetric; NULL: all do. */
    bool (*reach)(void *arg, uint32_t a, uint32_t b);
    void *arg;
} gpusym_islands_of_t;

/*
 * The islands of a communicator, numbered by their lowest ranks, rising. The members of an island are numbered by
 * their ranks, rising. Takes at most 6 bytes a rank for up to 65,536 ranks, twice as much above.
 */
typedef struct {
    uint32_t nranks, nislands;
    uint32_t most;  /* members of the largest island: the number of rails */
    uint64_t bytes; /* of the table */
    void *table;    /* owned; see islands.c */
} gpusym_islands_t;

/*
 * Finds the islands. Ranks of one host whose number exceeds an island's are divided in rising order: by node_size, or
 * evenly. Where not all ranks of a host reach each other, each rank joins the first island of its host all of whose
 * members it reaches.
 * O(n); where `reach` is given, a host of h ranks takes up to h * h / 2 calls of it. False: no memory. The caller ends
 * the islands by gpusym_islands_free.
 */
bool gpusym_islands_make(const gpusym_islands_of_t *of, gpusym_islands_t *islands);
/* Frees the table. Zeroed islands are fine. */
void gpusym_islands_free(gpusym_islands_t *islands);

/* Returns the island of a rank. */
uint32_t gpusym_islands_find(const gpusym_islands_t *islands, uint32_t rank);
/* Returns the number of members of an island. */
uint32_t gpusym_island_size(const gpusym_islands_t *islands, uint32_t island);
/* Returns the rank of member i of an island. Member 0 is its leader. */
uint32_t gpusym_island_member(const gpusym_islands_t *islands, uint32_t island, uint32_t i);
/* Returns the number of a rank among the members of its island. */
uint32_t gpusym_islands_number(const gpusym_islands_t *islands, uint32_t rank);

/* Returns the member that owns a rail, of `rails` that all islands have, in an island of `size` members. With more
 * members than rails some own none, with fewer each owns several, which follow each other. */
static inline uint32_t gpusym_rail_owner(uint32_t size, uint32_t rail, uint32_t rails)
{
    return (uint32_t) ((uint64_t) rail * size / rails);
}
/* Returns the first rail that member i, or one behind it, owns. Member i owns those before the first of member
 * i + 1. */
static inline uint32_t gpusym_rail_first(uint32_t size, uint32_t i, uint32_t rails)
{
    return (uint32_t) (((uint64_t) i * rails + size - 1) / size);
}

#endif
