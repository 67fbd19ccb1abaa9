/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rings, chains and trees as a rank sees them: see paths.h.
 */
#include "mca/common/gpusym/topo/paths.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define NONE UINT32_MAX

static void set_link(gpusym_team_path_t *path, uint32_t link, uint32_t peer, uint32_t peer_link)
{
    path->links |= 1u << link;
    path->peer[link] = peer;
    path->peer_link[link] = peer_link;
}

static uint32_t rank_at(const uint32_t *order, uint32_t place)
{
    return NULL == order ? place : order[place];
}

static uint32_t place_of(const uint32_t *order, uint32_t rank)
{
    uint32_t place = 0;
    if (NULL == order) {
        return rank;
    }
    while (order[place] != rank) {
        place++;
    }
    return place;
}

static void fill_ring(uint32_t kind, uint32_t n, const uint32_t *order, uint32_t me, uint32_t root,
                      gpusym_team_path_t *path)
{
    const bool bcast = GS_CHAIN_BCAST == kind, closed = !bcast && GS_CHAIN_REDUCE != kind;
    const uint32_t place = place_of(order, me);
    uint32_t first = 0; /* the place at which the path begins */

    if (bcast) {
        first = place_of(order, root);
    } else if (!closed) {
        first = (place_of(order, root) + 1) % n;
    }
    path->pos = (place + n - first) % n;
    if (n > 1 && (closed || path->pos > 0)) {
        set_link(path, GS_PREV, rank_at(order, (place + n - 1) % n), GS_NEXT);
    }
    if (n > 1 && (closed || path->pos < n - 1)) {
        set_link(path, GS_NEXT, rank_at(order, (place + 1) % n), GS_PREV);
    }
}

/*
 * An in-order tree over n places: the leaves are the even places; the odd ones are a balanced binary search tree, which
 * has room for one leaf between any two of them.  n = 10:
 *
 *              5
 *          /       \
 *        3           9
 *      /   \       /
 *     1     4     7
 *    / \         / \
 *   0   2       6   8
 *
 * So the inner places are odd for every n.  In the tree shifted by one place they are even ranks; with an odd n one
 * even rank is left over, and the shift brings that to place 0: a leaf.
 */

/* The inner place above inner places lo .. hi - 1, where inner place i is place 2 i + 1. */
static uint32_t middle_place(uint32_t lo, uint32_t hi)
{
    return 2 * ((lo + hi) / 2) + 1;
}

/* Sets the places at the links of a place; NONE: no link. Returns its depth, in links from the root. */
static uint32_t find_neighbours(uint32_t n, uint32_t place, uint32_t near[GS_LINKS])
{
    uint32_t lo = 0, hi = n / 2, depth = 0;
    near[GS_PARENT] = near[GS_CHILD0] = near[GS_CHILD1] = NONE;
    for (; lo < hi && middle_place(lo, hi) != place; depth++) {
        near[GS_PARENT] = middle_place(lo, hi);
        if (place < near[GS_PARENT]) {
            hi = near[GS_PARENT] / 2;
        } else {
            lo = near[GS_PARENT] / 2 + 1;
        }
    }
    if (lo < hi) { /* an inner place: above inner places on a side, or above the leaf there */
        const uint32_t own = place / 2;
        near[GS_CHILD0] = lo < own ? middle_place(lo, own) : place - 1;
        if (own + 1 < hi) {
            near[GS_CHILD1] = middle_place(own + 1, hi);
        } else if (place + 1 < n) {
            near[GS_CHILD1] = place + 1;
        }
    }
    return depth;
}

/* Tree `which` of two over members 0 .. n - 1, where member v is rank first + v (mod ranks). */
typedef struct {
    uint32_t n, which, first, ranks;
} tree_t;

static uint32_t tree_rank(const tree_t *t, uint32_t place)
{
    return (t->first + (place + t->n - t->which) % t->n) % t->ranks;
}

static uint32_t tree_place(const tree_t *t, uint32_t rank)
{
    return ((rank + t->ranks - t->first) % t->ranks + t->which) % t->n;
}

/* The path of a member; above: the rank above all members, or NONE. */
static void fill_member(const tree_t *t, uint32_t me, uint32_t above, gpusym_team_path_t *path)
{
    const uint32_t place = tree_place(t, me);
    uint32_t near[GS_LINKS];

    path->pos = find_neighbours(t->n, place, near) + (NONE != above ? 1 : 0);
    if (NONE != near[GS_PARENT]) {
        set_link(path, GS_PARENT, tree_rank(t, near[GS_PARENT]), place < near[GS_PARENT] ? GS_CHILD0 : GS_CHILD1);
    } else if (NONE != above) {
        set_link(path, GS_PARENT, above, GS_CHILD0);
    }
    for (uint32_t link = GS_CHILD0; link <= GS_CHILD1; link++) {
        if (NONE != near[link]) {
            set_link(path, link, tree_rank(t, near[link]), GS_PARENT);
        }
    }
}

static void fill_tree(uint32_t kind, uint32_t n, unsigned which, uint32_t me, uint32_t root, gpusym_team_path_t *path)
{
    if (GS_TREE_ALLREDUCE == kind) {
        const tree_t all = {.n = n, .which = which % n, .first = 0, .ranks = n};
        fill_member(&all, me, NONE, path);
    } else if (n > 1) {
        /* The root sends (or receives) each half once, whichever other ranks are inner places. */
        const tree_t others = {.n = n - 1, .which = which % (n - 1), .first = (root + 1) % n, .ranks = n};
        if (me != root) {
            fill_member(&others, me, root, path);
        } else {
            set_link(path, GS_CHILD0, tree_rank(&others, n > 2 ? middle_place(0, (n - 1) / 2) : 0), GS_PARENT);
        }
    }
}

void gpusym_team_path(uint32_t kind, uint32_t n, const uint32_t *order, unsigned which, uint32_t me, uint32_t root,
                      gpusym_team_path_t *path)
{
    memset(path, 0, sizeof *path);
    switch (kind) {
    case GS_TREE_ALLREDUCE:
    case GS_TREE_BCAST:
    case GS_TREE_REDUCE:
        fill_tree(kind, n, which, me, root, path);
        break;
    default:
        fill_ring(kind, n, order, me, root, path);
        break;
    }
}
