/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * See machine.h.
 */
#include "test/schedule/machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/topo/paths.h"
#include "mca/common/gpusym/topo/rings.h"

/* Whether a buffer is full it knows itself; `sent` and `taken`, by which ranks wait, have no say in that. */
typedef struct {
    uint64_t value;
    uint32_t loop, chunk;
    bool full;
    bool final; /* came as the result */
} buffer_t;

/* One direction of a link, at its receiver. */
typedef struct {
    uint32_t sent;  /* counted by the sender; the receiver waits for it */
    uint32_t taken; /* counted by the receiver */
    uint32_t freed; /* as much of that as the sender knows, who waits for it */
    buffer_t buffer[GS_STEPS];
} stream_t;

typedef struct {
    gs_schedule_t schedule;
    gpusym_team_path_t path;
    uint32_t next; /* step */
    uint32_t sends, stores;
    bool begun; /* the next step: it may send */
    bool queued, ended;
    stream_t in[GS_LINKS];
} rank_t;

struct machine {
    const schedule_case_t *c;
    uint32_t chunks; /* of a loop */
    uint32_t max_n;
    uint64_t *of_rank;  /* [max_n] random: the input of rank r for chunk p is of_rank[r] * of_chunk[p] */
    uint64_t *of_chunk; /* [room]; p = loop * chunks + chunk */
    uint64_t *stored;   /* a bit for each rank and p: it has stored that; stored_words of them */
    size_t room, stored_words;
    uint64_t sum;    /* of of_rank[0 .. n - 1] */
    rank_t *ranks;   /* [max_n] */
    uint32_t *queue; /* [max_n] ranks that may be able to go on: `queued` of them, from `first` on, round */
    uint32_t first, queued;
    uint64_t random;
    char wrong[256]; /* the first thing that is; empty: nothing */
};

/* splitmix64 */
static uint64_t next_random(machine_t *m)
{
    uint64_t z = m->random += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* realloc, or the end. */
static void *must_have(void *was, size_t count, size_t size)
{
    void *p = realloc(was, count * size);
    if (NULL == p) {
        fprintf(stderr, "check: no memory\n");
        exit(2);
    }
    return p;
}

machine_t *machine_new(uint32_t max_n, uint64_t seed)
{
    machine_t *m = must_have(NULL, 1, sizeof *m);
    memset(m, 0, sizeof *m);
    m->max_n = max_n;
    m->random = seed;
    m->of_rank = must_have(NULL, max_n, sizeof *m->of_rank);
    m->ranks = must_have(NULL, max_n, sizeof *m->ranks);
    m->queue = must_have(NULL, max_n, sizeof *m->queue);
    for (uint32_t r = 0; r < max_n; r++) {
        m->of_rank[r] = next_random(m);
    }
    return m;
}

void machine_free(machine_t *m)
{
    free(m->of_rank);
    free(m->of_chunk);
    free(m->stored);
    free(m->ranks);
    free(m->queue);
    free(m);
}

uint32_t machine_sends(const machine_t *m, uint32_t r)
{
    return m->ranks[r].sends;
}

/* Keeps the first message; false, for the caller to return. */
__attribute__((format(printf, 2, 3))) static bool wrong(machine_t *m, const char *format, ...)
{
    if ('\0' == m->wrong[0]) {
        va_list args;
        va_start(args, format);
        vsnprintf(m->wrong, sizeof m->wrong, format, args);
        va_end(args);
    }
    return false;
}

/* ---- what should be ---- */

static bool is_ring(uint32_t kind)
{
    return GS_RING_ALLREDUCE == kind || GS_RING_ALLGATHER == kind || GS_RING_REDUCE_SCATTER == kind;
}

/* Whether a rank is to store a chunk. */
static bool stores(const machine_t *m, uint32_t r, uint32_t chunk)
{
    switch (m->c->kind) {
    case GS_RING_REDUCE_SCATTER:
        return m->ranks[r].path.pos == chunk;
    case GS_CHAIN_REDUCE:
    case GS_TREE_REDUCE:
        return m->c->root == r;
    default:
        return true;
    }
}

/* How many chunks a loop a rank is to store. */
static uint32_t stores_of(const machine_t *m, uint32_t r)
{
    return is_ring(m->c->kind) && GS_RING_REDUCE_SCATTER != m->c->kind ? m->chunks
           : GS_RING_REDUCE_SCATTER == m->c->kind || stores(m, r, 0)   ? 1
                                                                       : 0;
}

/* The result: of a reduction every rank's input once; else the input of whose chunk it is. */
static uint64_t result(const machine_t *m, uint32_t loop, uint32_t chunk)
{
    const uint64_t factor = m->of_chunk[loop * m->chunks + chunk];
    switch (m->c->kind) {
    case GS_RING_ALLGATHER:
        return factor * m->of_rank[NULL == m->c->order ? chunk : m->c->order[chunk]];
    case GS_CHAIN_BCAST:
    case GS_TREE_BCAST:
        return factor * m->of_rank[m->c->root];
    default:
        return factor * m->sum;
    }
}

/* ---- a step ---- */

/* schedule.h's gs_tree_both() with another GS_TREE_LAG. */
static void lag_step(const gs_schedule_t *s, uint32_t tree_lag, uint32_t i, gs_step_t *step)
{
    const uint32_t lag = s->loops < s->pos * tree_lag ? s->loops : s->pos * tree_lag;
    const uint32_t between = 2 * (s->loops - lag);
    const bool up = i < lag || (i - lag < between && 1 == (i - lag) % 2);
    gs_tree_step(s, up, step);
    step->loop = i < lag ? i : i - lag < between ? (i - lag) / 2 + (up ? lag : 0) : i - lag - between / 2;
}

static void spoil(const machine_t *m, uint32_t r, gs_step_t *step)
{
    switch (m->c->fault) {
    case FAULT_CHUNK:
        step->chunk = (step->chunk + 1) % m->chunks;
        break;
    case FAULT_LOOP:
        step->loop = (step->loop + 1) % m->c->loops;
        break;
    case FAULT_TWICE:
    case FAULT_NO_INPUT:
        step->does ^= GS_INPUT;
        break;
    case FAULT_NO_SEND:
        step->does &= ~(GS_SEND | GS_FINAL);
        step->send = 0;
        break;
    case FAULT_NO_COPY:
        step->does &= ~GS_COPY;
        break;
    case FAULT_FINAL:
        step->does ^= GS_FINAL;
        break;
    case FAULT_LANDED:
        step->does ^= GS_LANDED;
        break;
    case FAULT_LINK:
        step->send |= ~m->ranks[r].path.links & ((1u << GS_LINKS) - 1);
        break;
    default:
        break;
    }
}

/* The next step of a rank, or false: there is none. */
static bool next_step(const machine_t *m, uint32_t r, gs_step_t *step)
{
    const schedule_case_t *c = m->c;
    const rank_t *rank = &m->ranks[r];
    const bool here = FAULT_NONE != c->fault && c->fault_rank == r;
    const uint32_t i = rank->next + (here && FAULT_STEP == c->fault && rank->next >= c->fault_step ? 1 : 0);

    if (!gs_schedule_step(&rank->schedule, i, step)) {
        return false;
    }
    if (FAULT_LAG == c->fault && 2 == gs_schedule_steps(&rank->schedule)) {
        lag_step(&rank->schedule, c->fault_step, i, step);
    } else if (here && i == c->fault_step) {
        spoil(m, r, step);
    }
    return true;
}

/* Whether a step is one that this rank can do at all. */
static bool sound(machine_t *m, uint32_t r, const gs_step_t *step)
{
    const uint32_t links = m->ranks[r].path.links;
    if ((0 != (step->does & GS_RECV)) != (0 != step->recv) || (0 != (step->does & GS_SEND)) != (0 != step->send) ||
        0 != ((step->recv | step->send) & ~links) || step->loop >= m->c->loops || step->chunk >= m->chunks ||
        (0 != (step->does & GS_FINAL) && 0 == step->send) || (0 != (step->does & GS_LANDED) && 0 == step->recv)) {
        return wrong(m, "rank %u, step %u: does %x, receives %x, sends %x, links %x, loop %u, chunk %u", r,
                     m->ranks[r].next, step->does, step->recv, step->send, links, step->loop, step->chunk);
    }
    return true;
}

/* The stream that a rank's link sends into. */
static stream_t *out(machine_t *m, uint32_t r, uint32_t link)
{
    const gpusym_team_path_t *path = &m->ranks[r].path;
    return &m->ranks[path->peer[link]].in[path->peer_link[link]];
}

static void free_taken(rank_t *rank)
{
    for (uint32_t link = 0; link < GS_LINKS; link++) {
        rank->in[link].freed = rank->in[link].taken;
    }
}

/* What kernels wait for: of every link to send by a free buffer */
static bool begins(machine_t *m, uint32_t r, const gs_step_t *step)
{
    const enum fault fault = m->c->fault_rank == r ? m->c->fault : FAULT_NONE;
    for (uint32_t link = 0; link < GS_LINKS; link++) {
        if (0 != (step->send & 1u << link) && FAULT_CREDIT != fault) {
            const stream_t *to = out(m, r, link);
            if (to->sent >= to->freed + GS_STEPS) {
                return false;
            }
        }
    }
    return true;
}

/* ... and of every link to receive from a full one. */
static bool ready(machine_t *m, uint32_t r, const gs_step_t *step)
{
    const enum fault fault = m->c->fault_rank == r ? m->c->fault : FAULT_NONE;
    for (uint32_t link = 0; link < GS_LINKS; link++) {
        if (0 != (step->recv & 1u << link) && FAULT_DATA != fault) {
            const stream_t *from = &m->ranks[r].in[link];
            if (from->taken >= from->sent) {
                return false;
            }
        }
    }
    return true;
}

static bool take(machine_t *m, uint32_t r, uint32_t link, const gs_step_t *step, uint64_t *value)
{
    stream_t *from = &m->ranks[r].in[link];
    buffer_t *b = &from->buffer[from->taken++ % GS_STEPS];
    if (!b->full) {
        return wrong(m, "rank %u, step %u: reads a buffer that is not written", r, m->ranks[r].next);
    }
    if (b->loop != step->loop || b->chunk != step->chunk || b->final != (0 != (step->does & GS_LANDED))) {
        return wrong(m, "rank %u, step %u: takes loop %u, chunk %u, landed %d; sent were loop %u, chunk %u, final %d",
                     r, m->ranks[r].next, step->loop, step->chunk, 0 != (step->does & GS_LANDED), b->loop, b->chunk,
                     b->final);
    }
    *value += b->value;
    b->full = false;
    return true;
}

static bool put(machine_t *m, uint32_t r, uint32_t link, const gs_step_t *step, uint64_t value)
{
    stream_t *to = out(m, r, link);
    buffer_t *b = &to->buffer[to->sent++ % GS_STEPS];
    if (b->full) {
        return wrong(m, "rank %u, step %u: writes a buffer that is not read", r, m->ranks[r].next);
    }
    b->value = value;
    b->loop = step->loop;
    b->chunk = step->chunk;
    b->final = 0 != (step->does & GS_FINAL);
    b->full = true;
    m->ranks[r].sends++;
    return true;
}

static bool store(machine_t *m, uint32_t r, const gs_step_t *step)
{
    const size_t bit = ((size_t) r * m->c->loops + step->loop) * m->chunks + step->chunk;
    if (!stores(m, r, step->chunk) || 0 != (m->stored[bit / 64] >> bit % 64 & 1)) {
        return wrong(m, "rank %u, step %u: stores loop %u, chunk %u, which is not its own or was stored", r,
                     m->ranks[r].next, step->loop, step->chunk);
    }
    m->stored[bit / 64] |= 1ull << bit % 64;
    m->ranks[r].stores++;
    return true;
}

static bool take_step(machine_t *m, uint32_t r, const gs_step_t *step)
{
    uint64_t value = 0;
    if (0 != (step->does & GS_INPUT)) {
        value = m->of_rank[r] * m->of_chunk[step->loop * m->chunks + step->chunk];
    }
    for (uint32_t link = 0; link < GS_LINKS; link++) {
        if (0 != (step->recv & 1u << link) && !take(m, r, link, step, &value)) {
            return false;
        }
    }
    /* A result may go straight to where it is stored, over the input there: complete, it has that input in it. */
    if (0 != (step->does & (GS_COPY | GS_FINAL)) && value != result(m, step->loop, step->chunk)) {
        return wrong(m, "rank %u, step %u: loop %u, chunk %u is not the result", r, m->ranks[r].next, step->loop,
                     step->chunk);
    }
    if (0 != (step->does & GS_COPY) && !store(m, r, step)) {
        return false;
    }
    for (uint32_t link = 0; link < GS_LINKS; link++) {
        if (0 != (step->send & 1u << link) && !put(m, r, link, step, value)) {
            return false;
        }
    }
    return true;
}

/* ---- all ranks ---- */

static void enqueue(machine_t *m, uint32_t r)
{
    if (!m->ranks[r].queued) {
        m->ranks[r].queued = true;
        m->queue[(m->first + m->queued++) % m->c->n] = r;
    }
}

/* The first of the queue, or any. */
static uint32_t dequeue(machine_t *m)
{
    uint32_t *first = &m->queue[m->first];
    if (m->c->shuffled) {
        uint32_t *any = &m->queue[(m->first + next_random(m) % m->queued) % m->c->n];
        const uint32_t r = *any;
        *any = *first;
        *first = r;
    }
    m->first = (m->first + 1) % m->c->n;
    m->queued--;
    m->ranks[*first].queued = false;
    return *first;
}

/* Takes up to `most` steps of a rank, and queues whom that may let go on. */
static bool run_rank(machine_t *m, uint32_t r, uint32_t most, uint64_t *steps)
{
    rank_t *rank = &m->ranks[r];
    const uint32_t before = rank->next;
    bool moved = false;
    gs_step_t step;

    while (rank->next - before < most) {
        if (!next_step(m, r, &step)) {
            rank->ended = true;
            break;
        }
        if (!sound(m, r, &step)) {
            return false;
        }
        if (!rank->begun && !begins(m, r, &step)) {
            break;
        }
        if (!rank->begun) {
            rank->begun = moved = true;
            free_taken(rank);
        }
        if (!ready(m, r, &step)) {
            break;
        }
        if (!take_step(m, r, &step)) {
            return false;
        }
        rank->next++;
        rank->begun = false;
        if (!m->c->late) {
            free_taken(rank);
        }
    }
    *steps += rank->next - before;
    moved = moved || rank->next > before;
    for (uint32_t link = 0; moved && link < GS_LINKS; link++) {
        if (0 != (rank->path.links & 1u << link)) {
            enqueue(m, rank->path.peer[link]);
        }
    }
    if (rank->next - before == most) {
        enqueue(m, r);
    }
    return true;
}

static void prepare(machine_t *m, const schedule_case_t *c)
{
    const uint32_t chunks = is_ring(c->kind) ? c->n : 1;
    const size_t room = (size_t) c->loops * chunks, words = (room * c->n + 63) / 64;

    m->c = c;
    m->chunks = chunks;
    m->wrong[0] = '\0';
    m->first = m->queued = 0;
    if (room > m->room) {
        m->of_chunk = must_have(m->of_chunk, room, sizeof *m->of_chunk);
        for (; m->room < room; m->room++) {
            m->of_chunk[m->room] = next_random(m);
        }
    }
    if (words > m->stored_words) {
        m->stored = must_have(m->stored, words, sizeof *m->stored);
        m->stored_words = words;
    }
    memset(m->stored, 0, words * sizeof *m->stored);
    memset(m->ranks, 0, c->n * sizeof *m->ranks);
    m->sum = 0;
    for (uint32_t r = 0; r < c->n; r++) {
        rank_t *rank = &m->ranks[r];
        m->sum += m->of_rank[r];
        gpusym_team_path(c->kind, c->n, c->order, c->which, r, c->root, &rank->path);
        rank->schedule = (gs_schedule_t){
            .kind = c->kind, .n = c->n, .pos = rank->path.pos, .links = rank->path.links, .loops = c->loops};
        enqueue(m, r);
    }
}

/* After the last step that any rank could take. */
static bool all_ended(machine_t *m)
{
    for (uint32_t r = 0; r < m->c->n; r++) {
        const rank_t *rank = &m->ranks[r];
        if (!rank->ended) {
            return wrong(m, "deadlock: rank %u waits at step %u", r, rank->next);
        }
        for (uint32_t link = 0; link < GS_LINKS; link++) {
            if (rank->in[link].sent != rank->in[link].taken) {
                return wrong(m, "rank %u has taken %u of %u sends", r, rank->in[link].taken, rank->in[link].sent);
            }
        }
        if (rank->stores != stores_of(m, r) * m->c->loops) {
            return wrong(m, "rank %u has stored %u chunks of %u", r, rank->stores, stores_of(m, r) * m->c->loops);
        }
    }
    return true;
}

const char *machine_run(machine_t *m, const schedule_case_t *c, uint64_t *steps)
{
    prepare(m, c);
    while (m->queued > 0) {
        const uint32_t r = dequeue(m);
        if (!run_rank(m, r, c->shuffled ? 1 + (uint32_t) (next_random(m) % 3) : UINT32_MAX, steps)) {
            return m->wrong;
        }
    }
    return all_ended(m) ? NULL : m->wrong;
}
