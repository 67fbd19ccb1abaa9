/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A net in one process, with a time of its own: see net_fake.h.
 */
#include "test/unit/net_fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A message under way. */
typedef struct event event_t;
struct event {
    event_t *next; /* to the same end, in any order */
    uint64_t due;
    gpusym_net_peer_t *peer; /* that it goes to; NULL: it is closed */
    gpusym_net_t *from;
    const gpusym_net_head_t *head; /* the sender's memory, or `own` */
    const void *data;
    uint32_t *sent; /* NULL: a second copy */
    bool vanishes, slow;
    void *placed;              /* where a slow one is landing; NULL: it is not */
    gpusym_net_head_t landing; /* the head that it was placed by */
    gpusym_net_head_t own;     /* the head as it was sent */
    unsigned char *own_data;
};

struct gpusym_net_peer {
    gpusym_net_peer_t *next;
    gpusym_net_t *net, *to;
    void *owner;
    uint64_t lost_at; /* 0: alive */
    bool lost;
};

struct gpusym_net {
    gpusym_net_t *next;
    uint32_t id;
    gpusym_net_params_t params;
    gpusym_net_counters_t counters;
    gpusym_net_peer_t *peers;
    event_t *events;
    bool dead;
    uint64_t cut; /* bits of ids */
};

static struct {
    net_fake_params_t params;
    uint64_t now, random;
    uint32_t ids;
    gpusym_net_t *nets;
} world;

static uint32_t draw(uint32_t n)
{
    uint64_t z = world.random += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (uint32_t) ((z ^ z >> 31) % n);
}

static bool by_chance(uint32_t per_1000)
{
    return draw(1000) < per_1000;
}

static uint64_t delay(void)
{
    return NET_FAKE_DELAY + draw(world.params.jitter + 1);
}

static bool is_cut(const gpusym_net_t *a, const gpusym_net_t *b)
{
    return 0 != (a->cut >> b->id & 1);
}

/* ---- time ---- */

void net_fake_start(const net_fake_params_t *params)
{
    world.params = *params;
    world.now = 0;
    world.random = params->seed;
    world.ids = 0;
}

uint64_t net_fake_now(void)
{
    return world.now;
}

bool net_fake_step(void)
{
    uint64_t next = UINT64_MAX;

    for (gpusym_net_t *n = world.nets; NULL != n; n = n->next) {
        for (event_t *e = n->events; NULL != e && !n->dead; e = e->next) {
            if (e->due > world.now && e->due < next && !is_cut(e->from, n)) {
                next = e->due;
            }
        }
        for (gpusym_net_peer_t *p = n->peers; NULL != p && !n->dead; p = p->next) {
            if (p->lost_at > world.now && p->lost_at < next) {
                next = p->lost_at;
            }
        }
    }
    if (UINT64_MAX == next) {
        return false;
    }
    world.now = next;
    return true;
}

/* ---- messages ---- */

static void free_event(event_t *e)
{
    if (NULL != e->sent) {
        __atomic_store_n(e->sent, 1, __ATOMIC_RELEASE);
    }
    free(e->own_data);
    free(e);
}

static void count_landed(gpusym_net_t *net, const gpusym_net_head_t *head, bool whole)
{
    net->counters.landed += whole ? 1 : 0;
    net->counters.landed_bytes += whole ? head->bytes : 0;
    net->params.user.landed(net->params.user.arg, head, whole);
}

/* A message has come: true unless it goes on landing. */
static bool arrive(gpusym_net_t *net, event_t *e)
{
    if (e->vanishes) {
        return true;
    }
    if (0 != memcmp(e->head, &e->own, sizeof e->own)) {
        fprintf(stderr, "a head was changed before its message was sent\n");
        abort();
    }
    if (NULL == e->placed) {
        if (!gpusym_net_check(e->head, sizeof *e->head, e->head->bytes, net->params.bytes_max, &e->landing) ||
            NULL == (e->placed = net->params.user.place(net->params.user.arg, &e->landing))) {
            net->counters.dropped++;
            return true;
        }
        if (e->slow) {
            e->due += delay();
            return false;
        }
    }
    if (0 != e->landing.bytes) {
        memcpy(e->placed, e->data, e->landing.bytes);
    }
    count_landed(net, &e->landing, true);
    return true;
}

void net_fake_inject(gpusym_net_t *net, const void *header, size_t header_bytes, const void *data, uint32_t bytes)
{
    gpusym_net_head_t head;
    void *to = NULL;

    if (gpusym_net_check(header, header_bytes, bytes, net->params.bytes_max, &head)) {
        to = net->params.user.place(net->params.user.arg, &head);
    }
    if (NULL == to) {
        net->counters.dropped++;
        return;
    }
    if (0 != bytes) {
        memcpy(to, data, bytes);
    }
    count_landed(net, &head, true);
}

static event_t *make_event(gpusym_net_peer_t *peer, const gpusym_net_head_t *head, const void *data)
{
    event_t *e = calloc(1, sizeof *e);
    *e = (event_t){.due = world.now + delay(),
                   .peer = peer,
                   .from = peer->net,
                   .head = head,
                   .own = *head,
                   .data = data,
                   .vanishes = by_chance(world.params.loss),
                   .slow = by_chance(world.params.slow),
                   .next = peer->to->events};
    peer->to->events = e;
    return e;
}

static int fake_send(gpusym_net_peer_t *peer, const gpusym_net_head_t *head, const void *data, uint32_t *sent)
{
    if (peer->lost || NULL == peer->to) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    if (by_chance(world.params.refuse)) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    if (0 != world.params.part_bytes && head->bytes > world.params.part_bytes) {
        fprintf(stderr, "a message is longer than a part\n");
        abort();
    }
    peer->net->counters.sent++;
    peer->net->counters.sent_bytes += head->bytes;
    make_event(peer, head, data)->sent = sent;
    if (by_chance(world.params.twice)) {
        event_t *e = make_event(peer, head, data);
        e->head = &e->own;
        e->own_data = malloc(head->bytes + 1u);
        if (0 != head->bytes) {
            memcpy(e->own_data, data, head->bytes);
        }
        e->data = e->own_data;
    }
    return GPUSYM_SUCCESS;
}

/* The oldest event that is due, taken out of the list. */
static event_t *take_due(gpusym_net_t *net)
{
    event_t **first = NULL;

    for (event_t **at = &net->events; NULL != *at; at = &(*at)->next) {
        if ((*at)->due <= world.now && !is_cut((*at)->from, net) && (NULL == first || (*at)->due < (*first)->due)) {
            first = at;
        }
    }
    event_t *e = NULL == first ? NULL : *first;
    if (NULL != e) {
        *first = e->next;
    }
    return e;
}

/* Ends the events to an end that match: from an end, or by a peer; NULL: any. */
static void end_events(gpusym_net_t *to, const gpusym_net_t *from, const gpusym_net_peer_t *peer)
{
    for (event_t **at = &to->events; NULL != *at;) {
        event_t *e = *at;
        if ((NULL != from && from != e->from) || (NULL != peer && peer != e->peer)) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        if (NULL != e->placed && !to->dead) {
            count_landed(to, &e->landing, false);
        }
        free_event(e);
    }
}

static bool fake_progress(gpusym_net_t *net)
{
    bool moved = false;
    event_t *e;

    while (!net->dead && NULL != (e = take_due(net))) {
        moved = true;
        if (arrive(net, e)) {
            free_event(e);
        } else {
            e->next = net->events;
            net->events = e;
        }
    }
    for (gpusym_net_peer_t *p = net->peers; NULL != p && !net->dead; p = p->next) {
        if (0 != p->lost_at && p->lost_at <= world.now && !p->lost) {
            moved = p->lost = true;
            if (NULL != p->to) {
                end_events(p->to, NULL, p);
            }
            net->counters.lost++;
            net->params.user.lost(net->params.user.arg, p->owner, "the process has ended");
        }
    }
    return moved;
}

/* ---- ends ---- */

static int fake_open(const gpusym_net_params_t *params, gpusym_net_t **net, const char **why)
{
    *why = "64 ends at most";
    if (64 == world.ids) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    gpusym_net_t *n = calloc(1, sizeof *n);
    *n = (gpusym_net_t){.params = *params, .id = world.ids++, .next = world.nets};
    world.nets = n;
    *net = n;
    return GPUSYM_SUCCESS;
}

static const void *fake_address(gpusym_net_t *net, size_t *bytes)
{
    *bytes = sizeof net->id;
    return &net->id;
}

static void lose_peers(const gpusym_net_t *at, const gpusym_net_t *to)
{
    for (gpusym_net_peer_t *p = at->peers; NULL != p; p = p->next) {
        if (p->to == to && 0 == p->lost_at) {
            p->lost_at = world.now + NET_FAKE_DELAY;
        }
    }
}

static void fake_peer_close(gpusym_net_peer_t *peer)
{
    gpusym_net_peer_t **at = &peer->net->peers;

    while (*at != peer) {
        at = &(*at)->next;
    }
    *at = peer->next;
    if (NULL != peer->to) {
        end_events(peer->to, NULL, peer);
        lose_peers(peer->to, peer->net);
    }
    free(peer);
}

void net_fake_kill(gpusym_net_t *net)
{
    net->dead = true;
    end_events(net, NULL, NULL);
    for (gpusym_net_t *n = world.nets; NULL != n; n = n->next) {
        lose_peers(n, net);
        end_events(n, net, NULL);
    }
}

void net_fake_cut(gpusym_net_t *a, gpusym_net_t *b, bool cut)
{
    const uint64_t a_bit = 1ull << a->id, b_bit = 1ull << b->id;

    a->cut = cut ? a->cut | b_bit : a->cut & ~b_bit;
    b->cut = cut ? b->cut | a_bit : b->cut & ~a_bit;
}

static void fake_close(gpusym_net_t *net)
{
    gpusym_net_t **at = &world.nets;

    if (NULL == net) {
        return;
    }
    end_events(net, NULL, NULL);
    while (NULL != net->peers) {
        fake_peer_close(net->peers);
    }
    for (gpusym_net_t *n = world.nets; NULL != n; n = n->next) {
        lose_peers(n, net);
        for (gpusym_net_peer_t *p = n->peers; NULL != p; p = p->next) {
            p->to = p->to == net ? NULL : p->to;
        }
    }
    while (*at != net) {
        at = &(*at)->next;
    }
    *at = net->next;
    free(net);
}

static int fake_peer_open(gpusym_net_t *net, const void *address, size_t bytes, bool inside, void *owner,
                          gpusym_net_peer_t **peer)
{
    uint32_t id = UINT32_MAX;
    gpusym_net_t *to = world.nets;

    (void) inside;
    if (sizeof id == bytes) {
        memcpy(&id, address, sizeof id);
    }
    while (NULL != to && to->id != id) {
        to = to->next;
    }
    if (NULL == to) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    gpusym_net_peer_t *p = calloc(1, sizeof *p);
    *p = (gpusym_net_peer_t){.net = net, .to = to, .owner = owner, .next = net->peers};
    net->peers = p;
    *peer = p;
    return GPUSYM_SUCCESS;
}

static uint32_t fake_part_bytes(gpusym_net_peer_t *peer)
{
    (void) peer;
    return 0 != world.params.part_bytes ? world.params.part_bytes : UINT32_MAX;
}

static void fake_describe(gpusym_net_peer_t *peer, char *text, size_t size)
{
    (void) peer;
    strncpy(text, "fake", size);
}

static const gpusym_net_counters_t *fake_counters(gpusym_net_t *net)
{
    return &net->counters;
}

const gpusym_transport_t net_fake = {
    .name = "fake",
    .open = fake_open,
    .close = fake_close,
    .address = fake_address,
    .peer_open = fake_peer_open,
    .peer_close = fake_peer_close,
    .send = fake_send,
    .part_bytes = fake_part_bytes,
    .progress = fake_progress,
    .describe = fake_describe,
    .counters = fake_counters,
};
