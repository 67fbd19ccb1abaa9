/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a rank's buffers of a collective call hold, see coll_layout.h.
 */
#include <string.h>

#include "test/mpi/coll_layout.h"

/* Where this rank stands in a call. */
typedef struct {
    const coll_call_t *call;
    unsigned what;
    bool root, leaf; /* rooted collectives: the root; those that the root sends to or receives from */
    int me, peer_group;
    int root_rank;
    bool in_place; /* for this rank */
    uint64_t salt; /* the same on all ranks */
    uint64_t own;  /* another on every rank */
} place_t;

enum { SEND, RECV };

int coll_group_size(const coll_call_t *call, int group)
{
    if (coll_what(call->coll) & COLL_IS_LOCAL) {
        return 2;
    }
    return call->comm->inter && group != call->comm->group ? call->comm->peers : call->comm->n;
}

static place_t place(const coll_call_t *call)
{
    const coll_comm_t *c = call->comm;
    int root_group = c->inter ? call->root_group : 0;
    place_t p = {.call = call, .what = coll_what(call->coll), .me = c->me, .peer_group = c->inter ? 1 - c->group : 0};

    p.root_rank = call->root % coll_group_size(call, root_group);
    p.root = root_group == c->group && p.root_rank == c->me;
    p.leaf = !c->inter || root_group != c->group;
    p.in_place = call->in_place && (!(p.what & (COLL_IS_FROM_ROOT | COLL_IS_TO_ROOT)) || p.root);
    p.salt = ref_mix(call->seed + c->salt);
    p.own = ref_mix(p.salt + (uint64_t) (100 * c->group + c->me));
    return p;
}

static bool sends(const place_t *p)
{
    return p->what & COLL_IS_FROM_ROOT ? p->root : p->what & COLL_IS_TO_ROOT ? p->leaf : true;
}

static bool receives(const place_t *p)
{
    return p->what & COLL_IS_FROM_ROOT ? p->leaf : p->what & COLL_IS_TO_ROOT ? p->root : true;
}

/* Elements that rank `from` of a group sends to rank `to`. */
static size_t count_of(const place_t *p, int group, int from, int to)
{
    uint64_t x;
    size_t n;

    if (!(p->what & COLL_IS_V)) {
        return p->call->count;
    }
    from = p->what & COLL_IS_RECV_EACH ? from : 0;
    to = p->what & COLL_IS_SEND_EACH ? to : 0;
    if (p->call->in_place && from > to) { /* one count says what goes and what comes */
        int swap = from;

        from = to;
        to = swap;
    }
    x = ref_mix(p->salt + (uint64_t) (from * COLL_PEERS + to) * 2 + (uint64_t) group);
    n = 0 == x % 8 ? 0 : 0 == x % 4 ? p->call->count : (x >> 8) % (p->call->count + 1);
    /* In place and not blocking, Open MPI 4.1.4 needs counts above 0: a rank that has none but zeros does not number
     * the call (its later ones then miss their peers'), and after a zero its temporary buffer is used again too early.
     */
    return p->call->in_place && COLL_BLOCKING != p->call->mode && 0 == n && p->call->count > 0 ? 1 : n;
}

/* The first of what a rank sends to rank `to`. */
static uint64_t first_of(const place_t *p, int to)
{
    return p->what & COLL_IS_SEND_EACH ? (uint64_t) to * p->call->count : 0;
}

/* Reduced and scattered: elements of all, the same for both groups; and of them what each rank of our group gets. */
static size_t shares(const place_t *p, size_t *share)
{
    const coll_comm_t *c = p->call->comm;
    size_t most = p->call->count * (c->inter ? (size_t) c->peers : 1), all = most * (size_t) c->n, left = all;

    for (int r = 0; r < c->n; r++) {
        uint64_t x = ref_mix(p->salt + (uint64_t) (r * 2 + c->group));

        share[r] = most;
        if (p->what & COLL_IS_V) {
            share[r] = 0 == x % 4 ? 0 : (x >> 8) % (2 * most + 1);
            share[r] = share[r] > left || r == c->n - 1 ? left : share[r];
        }
        left -= share[r];
    }
    return all;
}

/* Bytes from one element to the next. */
static size_t stride(const ref_type_t *type, bool flat)
{
    int size;

    if (!flat) {
        return type->bytes;
    }
    MPI_Type_size(type->flat, &size);
    return (size_t) (type->flats * size);
}

static void reach(coll_side_t *s, const ref_type_t *type, ptrdiff_t at, size_t count, bool flat)
{
    ptrdiff_t lo = at + (flat ? 0 : type->lb), hi = lo + (ptrdiff_t) (count * stride(type, flat));

    if (count > 0) {
        s->lo = lo < s->lo ? lo : s->lo;
        s->hi = hi > s->hi ? hi : s->hi;
    }
}

static void put(coll_piece_t *list, int *n, const coll_piece_t *piece)
{
    if (piece->count > 0 && piece->to > piece->from) {
        list[(*n)++] = *piece;
    }
}

/* Blocks of a side for npeers peers, block i of counts[i] elements: offsets to at, and the arguments. */
static void blocks(const place_t *p, int which, coll_args_t *a, int npeers, const size_t *counts, bool flat,
                   ptrdiff_t *at, bool *flats)
{
    const ref_type_t *type = p->call->type;
    uint64_t x = ref_mix(p->own + (uint64_t) which);
    ptrdiff_t cursor = 0;

    for (int i = 0; i < npeers; i++) {
        int b = x & 1 ? npeers - 1 - i : i; /* displacements need not rise */
        bool f = p->what & COLL_IS_W && MPI_DATATYPE_NULL != type->flat ? ref_mix(x + (uint64_t) b) & 1 : flat;
        ptrdiff_t unit = (ptrdiff_t) (f ? stride(type, true) / (size_t) type->flats : type->bytes);
        /* Alone in a communicator: Open MPI's MPI_Alltoallw (coll/self of 4.1.4) takes bytes for elements. */
        uint64_t gap = p->what & COLL_IS_W && 1 == npeers ? 0 : ref_mix(x + 1000 + (uint64_t) b) % 3;

        if (!(p->what & COLL_IS_V)) {
            at[b] = (ptrdiff_t) ((size_t) b * p->call->count * stride(type, f));
            flats[b] = f;
            continue;
        }
        cursor += (ptrdiff_t) gap * (p->what & COLL_IS_W ? 1 : unit);
        at[b] = cursor;
        flats[b] = f;
        cursor += (ptrdiff_t) (counts[b] * stride(type, f));
        a->array[which].counts[b] = (int) counts[b] * (f ? type->flats : 1);
        a->array[which].displs[b] = (int) (at[b] / (p->what & COLL_IS_W ? 1 : unit));
        a->array[which].displs_w[b] = at[b];
        a->array[which].types[b] = f ? type->flat : type->mpi;
    }
}

/* The peers that a rank sends blocks to, or has them from. */
static int peers(const place_t *p, int which, int *list)
{
    const coll_comm_t *c = p->call->comm;
    int n = c->peers;

    if (p->what & COLL_IS_NEIGHBOR) {
        n = SEND == which ? c->nto : c->nfrom;
        memcpy(list, SEND == which ? c->to : c->from, (size_t) n * sizeof(*list));
        return n;
    }
    for (int i = 0; i < n; i++) {
        list[i] = i;
    }
    return n;
}

/* What this rank sends, as pieces of a buffer: the send buffer's, or in place the receive buffer's. */
static void send_pieces(const place_t *p, coll_side_t *s, coll_args_t *a, bool flat)
{
    const coll_call_t *call = p->call;
    coll_piece_t piece = {.group = call->comm->group, .from = p->me, .to = p->me + 1, .flat = flat};
    int list[COLL_PEERS], n;
    size_t counts[COLL_PEERS] = {0}, share[COLL_PEERS];
    ptrdiff_t at[COLL_PEERS];
    bool flats[COLL_PEERS];

    if (!(p->what & COLL_IS_SEND_EACH)) {
        piece.count = p->what & COLL_IS_SCATTERED   ? shares(p, share)
                      : p->what & COLL_IS_REDUCTION ? call->count
                                                    : count_of(p, piece.group, p->me, 0);
        put(s->before, &s->nbefore, &piece);
        reach(s, call->type, 0, piece.count, flat);
        a->scount = (int) piece.count * (flat ? call->type->flats : 1);
        return;
    }
    n = peers(p, SEND, list);
    for (int i = 0; i < n; i++) {
        counts[i] = MPI_PROC_NULL == list[i] ? call->count : count_of(p, piece.group, p->me, list[i]);
    }
    blocks(p, SEND, a, n, counts, flat, at, flats);
    for (int i = 0; i < n; i++) {
        reach(s, call->type, at[i], counts[i], flats[i]);
        piece.at = at[i];
        piece.count = counts[i];
        piece.flat = flats[i];
        piece.first = MPI_PROC_NULL == list[i] ? 0 : first_of(p, list[i]);
        put(s->before, &s->nbefore, &piece);
    }
    a->scount = (int) call->count * (flat ? call->type->flats : 1);
}

/* The one block that a rank receives. */
static void recv_one(const place_t *p, coll_side_t *s, coll_args_t *a, bool flat)
{
    const coll_call_t *call = p->call;
    coll_piece_t piece = {.group = p->peer_group, .flat = flat};
    size_t share[COLL_PEERS];

    if (!(p->what & COLL_IS_REDUCTION)) {
        piece.group = call->comm->inter ? call->root_group : 0;
        piece.from = p->root_rank;
        piece.to = p->root_rank + 1;
        piece.count = count_of(p, piece.group, p->root_rank, p->me);
        piece.first = first_of(p, p->me);
    } else {
        piece.count = call->count;
        piece.to = coll_group_size(call, p->peer_group);
        if (p->what & COLL_IS_PREFIX) {
            piece.to = p->what & COLL_IS_EXCLUSIVE ? p->me : p->me + 1;
        }
    }
    if (p->what & COLL_IS_SCATTERED) {
        shares(p, share);
        for (int r = 0; r < p->me; r++) {
            piece.first += share[r];
        }
        piece.count = share[p->me];
        for (int r = 0; r < call->comm->n; r++) {
            a->array[RECV].counts[r] = (int) share[r];
        }
        s->unspecified = p->in_place;
    }
    put(s->after, &s->nafter, &piece);
    reach(s, call->type, 0, piece.count, flat);
    a->rcount = (int) piece.count * (flat ? call->type->flats : 1);
}

/* A block from every sender. In place, the own one (gather, allgather) or all (alltoall) hold what is sent. */
static void recv_each(const place_t *p, coll_side_t *s, coll_args_t *a, bool flat)
{
    const coll_call_t *call = p->call;
    coll_piece_t piece = {.group = p->peer_group}, mine = {.group = call->comm->group, .from = p->me, .to = p->me + 1};
    int list[COLL_PEERS], n = peers(p, RECV, list);
    size_t counts[COLL_PEERS] = {0};
    ptrdiff_t at[COLL_PEERS];
    bool flats[COLL_PEERS];

    for (int i = 0; i < n; i++) {
        counts[i] = MPI_PROC_NULL == list[i] ? call->count : count_of(p, p->peer_group, list[i], p->me);
    }
    blocks(p, RECV, a, n, counts, flat, at, flats);
    for (int i = 0; i < n; i++) {
        reach(s, call->type, at[i], counts[i], flats[i]);
        mine.at = piece.at = at[i];
        mine.count = piece.count = counts[i];
        mine.flat = piece.flat = flats[i];
        piece.from = list[i];
        piece.to = MPI_PROC_NULL == list[i] ? list[i] : list[i] + 1;
        piece.first = first_of(p, p->me);
        put(s->after, &s->nafter, &piece);
        if (p->in_place && (p->what & COLL_IS_SEND_EACH || list[i] == p->me)) {
            mine.first = first_of(p, list[i]);
            put(s->before, &s->nbefore, &mine);
        }
    }
    a->rcount = (int) call->count * (flat ? call->type->flats : 1);
}

/* Sending through the receive buffer: MPI_IN_PLACE of reductions and MPI_Bcast. */
static void send_in_recv(const place_t *p, coll_side_t *recv, coll_args_t *a, bool flat)
{
    coll_args_t unused = {0};

    if (p->what & COLL_IS_RECV_EACH) {
        return; /* recv_each() has done it */
    }
    send_pieces(p, recv, &unused, flat);
    if (p->what & COLL_IS_ONE_BUFFER) {
        a->rcount = unused.scount;
        recv->significant = true;
        if (p->leaf) {
            return; /* of an intracommunicator: gets its own, which recv_one() has said */
        }
        recv->nafter = recv->nbefore;
        memcpy(recv->after, recv->before, sizeof(recv->after));
    }
}

static void point(const place_t *p, coll_args_t *a, bool sflat, bool rflat)
{
    const ref_type_t *type = p->call->type;

    a->stype = sflat ? type->flat : type->mpi;
    a->rtype = rflat ? type->flat : type->mpi;
    a->scounts = a->array[SEND].counts;
    a->sdispls = a->array[SEND].displs;
    a->sdispls_w = a->array[SEND].displs_w;
    a->stypes = a->array[SEND].types;
    a->rcounts = a->array[RECV].counts;
    a->rdispls = a->array[RECV].displs;
    a->rdispls_w = a->array[RECV].displs_w;
    a->rtypes = a->array[RECV].types;
}

/* What MPI does not look at on this rank is as programs leave it. */
static void leave_out(const place_t *p, coll_args_t *a, const coll_side_t *send, const coll_side_t *recv)
{
    bool sloppy = p->own & 1;

    if (p->what & COLL_IS_FROM_ROOT && p->in_place) {
        a->rbuf = MPI_IN_PLACE;
    } else if (p->in_place) {
        a->sbuf = MPI_IN_PLACE;
    }
    if (!send->significant && sloppy) {
        a->scount = 0;
        a->stype = MPI_DATATYPE_NULL;
        a->scounts = a->sdispls = NULL;
        a->sdispls_w = NULL;
        a->stypes = NULL;
    }
    if (!recv->significant && sloppy && !(p->what & (COLL_IS_REDUCTION | COLL_IS_ONE_BUFFER))) {
        a->rcount = 0;
        a->rtype = MPI_DATATYPE_NULL;
        a->rcounts = a->rdispls = NULL;
    }
}

/* Rank 0's elements are in, rank 1's inout; on every rank of a communicator that MPI does not know of. */
static void local(const place_t *p, coll_side_t *send, coll_side_t *recv, coll_args_t *a)
{
    coll_piece_t piece = {.from = 0, .to = 1, .count = p->call->count};

    send->significant = recv->significant = true;
    put(send->before, &send->nbefore, &piece);
    piece.to = 2;
    put(recv->after, &recv->nafter, &piece);
    piece.from = 1;
    put(recv->before, &recv->nbefore, &piece);
    reach(send, p->call->type, 0, piece.count, false);
    reach(recv, p->call->type, 0, piece.count, false);
    a->rcount = (int) piece.count;
    point(p, a, false, false);
}

void coll_layout(const coll_call_t *call, coll_side_t *send, coll_side_t *recv, coll_args_t *args)
{
    place_t p = place(call);
    bool flat = MPI_DATATYPE_NULL != call->type->flat && !(p.what & COLL_IS_REDUCTION);
    bool sflat = flat && call->sflat, rflat = flat && call->rflat;

    memset(send, 0, sizeof(*send));
    memset(recv, 0, sizeof(*recv));
    memset(args, 0, sizeof(*args));
    args->comm = call->comm->comm;
    args->op = p.what & COLL_IS_REDUCTION ? ref_mpi_op(call->type, call->op) : MPI_OP_NULL;
    args->root = !call->comm->inter || p.leaf ? p.root_rank : p.root ? MPI_ROOT : MPI_PROC_NULL;
    if (p.what & COLL_IS_LOCAL) {
        local(&p, send, recv, args);
        return;
    }
    /* In place the receive buffer is what is given, and the send arguments are ignored (scatter: the other way). */
    if (receives(&p) && !(p.in_place && p.what & COLL_IS_FROM_ROOT)) {
        recv->significant = true;
        (p.what & COLL_IS_RECV_EACH ? recv_each : recv_one)(&p, recv, args, rflat);
    }
    if (sends(&p)) {
        if (p.what & COLL_IS_ONE_BUFFER || (p.in_place && !(p.what & COLL_IS_FROM_ROOT))) {
            send_in_recv(&p, recv, args, rflat);
        } else {
            send->significant = true;
            send_pieces(&p, send, args, sflat);
        }
    }
    if (p.what & COLL_IS_REDUCTION && !(p.what & COLL_IS_SCATTERED)) {
        args->rcount = (int) call->count; /* significant on all ranks */
    }
    if (p.what & COLL_IS_ONE_BUFFER && !recv->significant) {
        /* Ignored; but Open MPI 4.1 does not number a nonblocking call of no elements, and the ranks' numbers must
         * agree. */
        args->rcount = (int) call->count;
    }
    if (p.what & COLL_IS_SCATTERED && !(p.what & COLL_IS_V)) {
        args->rcount = (int) (call->count * (call->comm->inter ? (size_t) call->comm->peers : 1));
    }
    point(&p, args, sflat, rflat);
    leave_out(&p, args, send, recv);
}
