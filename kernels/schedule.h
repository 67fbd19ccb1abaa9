/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The schedules of rings, chains and trees: what a rank does, step by step, in one channel.  Pure functions, used by
 * the kernels (channel.h) and, on the host, by the checker, for any number of ranks.
 *
 * A channel is a part of the message that goes its own way: along one path (a ring, a chain or a tree over all ranks),
 * by one block.  Its part is cut in loops, a loop in chunks: for rings one a rank, for chains and trees one. A step
 * receives a chunk from some links of the path, and sends one to some; between the two it may be reduced with the
 * rank's own input, and stored to the rank's output.  These are the primitives of the field (Demystifying NCCL, arXiv
 * 2507.04786): send, recv, copySend, recvCopySend, recvReduceSend, recvReduceCopy, recvReduceCopySend.
 *
 * Each direction of a link is a stream: a FIFO of GS_STEPS buffers at the receiver. The k-th send of the one is what
 * the k-th receive of the other takes; the sender waits until the receiver has taken send k - GS_STEPS.
 */
#ifndef GPUSYM_KERNELS_SCHEDULE_H
#define GPUSYM_KERNELS_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define GS_PURE static __device__ __forceinline__
#else
#define GS_PURE static inline __attribute__((unused))
#endif

/* Buffers of a stream. At least 2: with one, every rank of a ring would hold a chunk, and wait for the next one to
 * take its own. NCCL has 8; in the same memory 4 of twice the length mean half as many barriers: on 4 x H200 an
 * all-reduce of 256 MiB by the Simple ring takes 1.28 ms in place of 1.61, by LL128 1.42 in place of 2.47. */
#define GS_STEPS 4u

/*
 * Tree all-reduce: how many more chunks than its parent a rank sends up before it expects the first one down; so many
 * are between the two at any time.  With as many in all ranks nothing would be between them: a rank that sent a chunk
 * down would wait for the next one up, which the rank below sends only after that chunk is down there; and so on, level
 * by level. At most 2 GS_STEPS have room: with more, a rank that waits to send up and one that waits to send down would
 * wait for each other.
 */
#define GS_TREE_LAG GS_STEPS

/* Links of a path at a rank. Ring, chain: from the one before, to the one after. Tree: */
#define GS_LINKS 3u
#define GS_PREV 0u
#define GS_NEXT 1u
#define GS_PARENT 0u
#define GS_CHILD0 1u /* the child on the side of lower positions */
#define GS_CHILD1 2u

enum gs_schedule_kind {
    GS_RING_ALLREDUCE,      /* 2n - 1 steps a loop */
    GS_RING_ALLGATHER,      /* n */
    GS_RING_REDUCE_SCATTER, /* n */
    GS_CHAIN_BCAST,         /* 1; position 0 is the root */
    GS_CHAIN_REDUCE,        /* 1; position n - 1 is the root */
    GS_TREE_ALLREDUCE,      /* 2, the root 1 */
    GS_TREE_BCAST,          /* 1; the rank without a parent is the root */
    GS_TREE_REDUCE,         /* 1 */
    GS_SCHEDULES
};

/* What a step does: a primitive is a sum of these. */
#define GS_INPUT 1u /* takes one's own input: to send it, or to reduce it with what comes */
#define GS_RECV 2u
#define GS_COPY 4u /* stores to one's own output */
#define GS_SEND 8u
#define GS_FINAL 16u  /* what is sent (not: received) is the result: it may go straight to the receiver's output */
#define GS_LANDED 32u /* what is received is the result: it may have come straight to one's own output */

#define GS_DO_SEND (GS_INPUT | GS_SEND)
#define GS_DO_COPY_SEND (GS_INPUT | GS_COPY | GS_SEND)
#define GS_DO_RECV (GS_RECV | GS_COPY)
#define GS_DO_RECV_COPY_SEND (GS_RECV | GS_COPY | GS_SEND)
#define GS_DO_RECV_REDUCE_SEND (GS_INPUT | GS_RECV | GS_SEND)
#define GS_DO_RECV_REDUCE_COPY (GS_INPUT | GS_RECV | GS_COPY)
#define GS_DO_RECV_REDUCE_COPY_SEND (GS_INPUT | GS_RECV | GS_COPY | GS_SEND)

/* A rank in a schedule. */
typedef struct gs_schedule {
    uint32_t kind;  /* enum gs_schedule_kind */
    uint32_t n;     /* ranks, at least 2 */
    uint32_t pos;   /* ring, chain: our place, the next one is ours plus 1 (mod n); tree: links from the root to us */
    uint32_t links; /* tree: those that we have, as bits 1 << GS_PARENT, ... */
    uint32_t loops; /* the same for all ranks */
} gs_schedule_t;

typedef struct gs_step {
    uint32_t does;       /* the primitive */
    uint32_t recv, send; /* links, as bits */
    uint32_t loop;
    uint32_t chunk; /* ring: 0 .. n - 1, place of the rank whose it is (all-gather: from, reduce-scatter: to); else 0 */
} gs_step_t;

/* Steps of a loop. */
GS_PURE uint32_t gs_schedule_steps(const gs_schedule_t *s)
{
    switch (s->kind) {
    case GS_RING_ALLREDUCE:
        return 2 * s->n - 1;
    case GS_RING_ALLGATHER:
    case GS_RING_REDUCE_SCATTER:
        return s->n;
    case GS_TREE_ALLREDUCE:
        return 0 != (s->links & 1u << GS_PARENT) ? 2 : 1;
    default:
        return 1;
    }
}

/* Sends of a loop by the busiest stream. */
GS_PURE uint32_t gs_schedule_sends(uint32_t kind, uint32_t n)
{
    return GS_RING_ALLREDUCE == kind                                     ? 2 * n - 2
           : GS_RING_ALLGATHER == kind || GS_RING_REDUCE_SCATTER == kind ? n - 1
                                                                         : 1;
}

/* Position - k on a ring of n; k <= 2 n. */
GS_PURE uint32_t gs_ring_back(uint32_t n, uint32_t pos, uint32_t k)
{
    const uint32_t m = pos + 2 * n - k;
    return m >= 2 * n ? m - 2 * n : m >= n ? m - n : m;
}

/*
 * Step k of a loop on a ring.  Reduce-scatter: chunk q starts at position q + 1 and comes round to q.  All-gather: it
 * starts at q and comes round to q - 1.  All-reduce: the one, then the other; position q turns its chunk from the one
 * to the other.
 */
GS_PURE void gs_ring_step(const gs_schedule_t *s, uint32_t k, gs_step_t *step)
{
    const bool gather = GS_RING_ALLGATHER == s->kind;
    const uint32_t last = gather ? 0 : s->n - 1; /* the step with our own chunk, complete */
    if (k < last) {
        step->does = 0 == k ? GS_DO_SEND : GS_DO_RECV_REDUCE_SEND;
        step->chunk = gs_ring_back(s->n, s->pos, k + 1);
    } else if (k == last) {
        step->does = gather                              ? GS_DO_COPY_SEND | GS_FINAL
                     : GS_RING_REDUCE_SCATTER == s->kind ? GS_DO_RECV_REDUCE_COPY
                                                         : GS_DO_RECV_REDUCE_COPY_SEND | GS_FINAL;
        step->chunk = s->pos;
    } else {
        step->does = (k - last < s->n - 1 ? GS_DO_RECV_COPY_SEND | GS_FINAL : GS_DO_RECV) | GS_LANDED;
        step->chunk = gs_ring_back(s->n, s->pos, k - last);
    }
    step->recv = 0 != (step->does & GS_RECV) ? 1u << GS_PREV : 0;
    step->send = 0 != (step->does & GS_SEND) ? 1u << GS_NEXT : 0;
}

GS_PURE void gs_chain_step(const gs_schedule_t *s, gs_step_t *step)
{
    const bool first = 0 == s->pos, last = s->n - 1 == s->pos;
    if (GS_CHAIN_BCAST == s->kind) {
        step->does = first  ? GS_DO_COPY_SEND | GS_FINAL
                     : last ? GS_DO_RECV | GS_LANDED
                            : GS_DO_RECV_COPY_SEND | GS_FINAL | GS_LANDED;
    } else {
        step->does = first ? GS_DO_SEND : last ? GS_DO_RECV_REDUCE_COPY : GS_DO_RECV_REDUCE_SEND;
    }
    step->chunk = 0;
    step->recv = first ? 0 : 1u << GS_PREV;
    step->send = last ? 0 : 1u << GS_NEXT;
}

/* up: towards the root, reducing; at the root of an all-reduce what comes up goes down at once. */
GS_PURE void gs_tree_step(const gs_schedule_t *s, bool up, gs_step_t *step)
{
    const uint32_t parent = s->links & 1u << GS_PARENT, children = s->links & ~parent;
    const uint32_t recv = 0 != children ? GS_RECV : 0;
    step->chunk = 0;
    if (up && 0 != parent) {
        step->does = GS_INPUT | recv | GS_SEND;
        step->recv = children;
        step->send = parent;
    } else if (up) { /* the root */
        const bool back = GS_TREE_ALLREDUCE == s->kind;
        step->does = GS_INPUT | recv | GS_COPY | (back && 0 != children ? GS_SEND | GS_FINAL : 0);
        step->recv = children;
        step->send = back ? children : 0;
    } else {
        step->does =
            (0 != parent ? GS_RECV | GS_LANDED : GS_INPUT) | GS_COPY | (0 != children ? GS_SEND | GS_FINAL : 0);
        step->recv = parent;
        step->send = children;
    }
}

/* All-reduce on a tree, not at its root: chunks go up, and each comes down some later, in one sequence. */
GS_PURE void gs_tree_both(const gs_schedule_t *s, uint32_t i, gs_step_t *step)
{
    const uint32_t lag = s->loops < s->pos * GS_TREE_LAG ? s->loops : s->pos * GS_TREE_LAG;
    const uint32_t between = 2 * (s->loops - lag); /* steps that alternate: down, up */
    const bool up = i < lag || (i - lag < between && 1 == (i - lag) % 2);
    gs_tree_step(s, up, step);
    step->loop = i < lag ? i : i - lag < between ? (i - lag) / 2 + (up ? lag : 0) : i - lag - between / 2;
}

/* The i-th step of a rank, from 0; false: there are no more. */
GS_PURE bool gs_schedule_step(const gs_schedule_t *s, uint32_t i, gs_step_t *step)
{
    const uint32_t steps = gs_schedule_steps(s);
    if (i >= steps * s->loops) {
        return false;
    }
    step->loop = i / steps;
    switch (s->kind) {
    case GS_RING_ALLREDUCE:
    case GS_RING_ALLGATHER:
    case GS_RING_REDUCE_SCATTER:
        gs_ring_step(s, i % steps, step);
        break;
    case GS_CHAIN_BCAST:
    case GS_CHAIN_REDUCE:
        gs_chain_step(s, step);
        break;
    case GS_TREE_ALLREDUCE:
        if (2 == steps) {
            gs_tree_both(s, i, step);
        } else {
            gs_tree_step(s, true, step);
        }
        break;
    default:
        gs_tree_step(s, GS_TREE_REDUCE == s->kind, step);
        break;
    }
    return true;
}

#endif
