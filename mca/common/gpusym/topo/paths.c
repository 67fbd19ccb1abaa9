/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rings, chains and trees as a rank sees them: see paths.h.
 */
#include "mca/common/gpusym/topo/paths.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define NOBODY UINT32_MAX

static void add_link(gpusym_shape_t *shape, uint32_t link, uint32_t peer, uint32_t far)
{
    shape->links |= 1u << link;
    shape->peer[link] = peer;
    shape->far[link] = far;
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

static void ring_shape(uint32_t kind, uint32_t n, const uint32_t *order, uint32_t me, uint32_t root,
                       gpusym_shape_t *shape)
{
    const bool bcast = GS_CHAIN_BCAST == kind, closed = !bcast && GS_CHAIN_REDUCE != kind;
    const uint32_t place = place_of(order, me);
    /* Where the path begins. */
    const uint32_t first = closed ? 0 : bcast ? place_of(order, root) : (place_of(order, root) + 1) % n;

    shape->pos = (place + n - first) % n;
    if (n > 1 && (closed || shape->pos > 0)) {
        add_link(shape, GS_PREV, rank_at(order, (place + n - 1) % n), GS_NEXT);
    }
    if (n > 1 && (closed || shape->pos < n - 1)) {
        add_link(shape, GS_NEXT, rank_at(order, (place + 1) % n), GS_PREV);
    }
}

/*
 * An in-order tree over n places: the leaves are the even places; the odd ones are a balanced binary search tree, which has
 * room for one leaf between any two of them.  n = 10:
 *
 *              5
 *          /       \
 *        3           9
 *      /   \       /
 *     1     4     7
 *    / \         / \
 *   0   2       6   8
 *
 * So the inner places are odd for every n.  In the tree shifted by one place they are even ranks; with an odd n one even
 * rank is left over, and the shift brings that to place 0: a leaf.
 */

/* The inner place that stands above inner places lo .. hi - 1, where inner place i is place 2 i + 1. */
static uint32_t middle(uint32_t lo, uint32_t hi)
{
    return 2 * ((lo + hi) / 2) + 1;
}

/* The places at the links of a place, NOBODY: none. Returns how many links it is from the root. */
static uint32_t tree_links(uint32_t n, uint32_t place, uint32_t near[GS_LINKS])
{
    uint32_t lo = 0, hi = n / 2, depth = 0;
    near[GS_PARENT] = near[GS_CHILD0] = near[GS_CHILD1] = NOBODY;
    for (; lo < hi && middle(lo, hi) != place; depth++) {
        near[GS_PARENT] = middle(lo, hi);
        if (place < near[GS_PARENT]) {
            hi = near[GS_PARENT] / 2;
        } else {
            lo = near[GS_PARENT] / 2 + 1;
        }
    }
    if (lo < hi) { /* an inner place: above inner places on a side, or above the leaf there */
        const uint32_t own = place / 2;
        near[GS_CHILD0] = lo < own ? middle(lo, own) : place - 1;
        near[GS_CHILD1] = own + 1 < hi ? middle(own + 1, hi) : place + 1 < n ? place + 1 : NOBODY;
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

/* The shape of a member; above: the rank above all members, or NOBODY. */
static void member_shape(const tree_t *t, uint32_t me, uint32_t above, gpusym_shape_t *shape)
{
    const uint32_t place = tree_place(t, me);
    uint32_t near[GS_LINKS];

    shape->pos = tree_links(t->n, place, near) + (NOBODY != above ? 1 : 0);
    if (NOBODY != near[GS_PARENT]) {
        add_link(shape, GS_PARENT, tree_rank(t, near[GS_PARENT]), place < near[GS_PARENT] ? GS_CHILD0 : GS_CHILD1);
    } else if (NOBODY != above) {
        add_link(shape, GS_PARENT, above, GS_CHILD0);
    }
    for (uint32_t link = GS_CHILD0; link <= GS_CHILD1; link++) {
        if (NOBODY != near[link]) {
            add_link(shape, link, tree_rank(t, near[link]), GS_PARENT);
        }
    }
}

static void tree_shape(uint32_t kind, uint32_t n, unsigned which, uint32_t me, uint32_t root, gpusym_shape_t *shape)
{
    if (GS_TREE_ALLREDUCE == kind) {
        const tree_t all = {.n = n, .which = which % n, .first = 0, .ranks = n};
        member_shape(&all, me, NOBODY, shape);
    } else if (n > 1) {
        /* The root sends (or receives) each half once, whichever of the others are inner. */
        const tree_t others = {.n = n - 1, .which = which % (n - 1), .first = (root + 1) % n, .ranks = n};
        if (me != root) {
            member_shape(&others, me, root, shape);
        } else {
            add_link(shape, GS_CHILD0, tree_rank(&others, n > 2 ? middle(0, (n - 1) / 2) : 0), GS_PARENT);
        }
    }
}

void gpusym_team_shape(uint32_t kind, uint32_t n, const uint32_t *order, unsigned which, uint32_t me, uint32_t root,
                       gpusym_shape_t *shape)
{
    memset(shape, 0, sizeof *shape);
    switch (kind) {
    case GS_TREE_ALLREDUCE:
    case GS_TREE_BCAST:
    case GS_TREE_REDUCE:
        tree_shape(kind, n, which, me, root, shape);
        break;
    default:
        ring_shape(kind, n, order, me, root, shape);
        break;
    }
}
