/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: messages between small buffers that are freed and allocated again all the time, so that a buffer is
 * often another one at the address of an earlier one, in a block that peers have mapped or in a new one. Whoever used
 * an old mapping would receive old data: every buffer has other contents, and every byte is compared.
 *
 * In each round every rank sends to the next one and receives from the one before: a buffer as one message, or as
 * several that are under way together, whose requests may be freed at once; the receiver then tells when it has them.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"

#define USAGE "[--seed N] [--n ROUNDS] [--most BYTES] [--kinds LIST]"
#define ALIVE 48 /* buffers: several blocks of the driver's */
#define LEAST 8u /* bytes of a buffer: shorter than the RTS none goes directly */
#define PARTS 6  /* messages of a buffer, at most */

typedef struct {
    unsigned char *p;
    size_t size;
    int kind;
} buffer_t;

typedef struct {
    check_t t;
    uint64_t x; /* what is drawn next; the same on all ranks */
    size_t most;
    int kinds[CHECK_KINDS], nkinds;
    buffer_t alive[ALIVE];
    unsigned char *image, *want;
} reused_t;

static uint64_t draw(reused_t *r, uint64_t below)
{
    r->x = ref_mix(r->x + 1);
    return (r->x >> 8) % below;
}

/* Contents that no other round, and no other rank, has. */
static void fill(unsigned char *to, size_t bytes, uint64_t round, int rank)
{
    uint64_t x = ref_mix(round * 1024 + (uint64_t) rank);

    for (size_t i = 0; i < bytes; i += sizeof x) {
        memcpy(to + i, &x, bytes - i < sizeof x ? bytes - i : sizeof x);
        x += 0x9e3779b97f4a7c15ull;
    }
}

static void drop(buffer_t *b)
{
    if (NULL != b->p) {
        mem_free(b->kind, b->p);
        b->p = NULL;
    }
}

/* A new buffer in place of one that is drawn, of a size that only this rank knows. */
static buffer_t *renew(reused_t *r, size_t bytes, uint64_t own)
{
    buffer_t *b = &r->alive[own % ALIVE];

    drop(b);
    b->kind = r->kinds[(own >> 20) % (uint64_t) r->nkinds];
    b->size = bytes + (own >> 32) % (bytes + 1);
    b->p = mem_alloc(b->kind, b->size);
    if (NULL == b->p) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    return b;
}

/* All blocks of the driver's are given back, and others may get their addresses. */
static void drop_all(reused_t *r)
{
    for (int i = 0; i < ALIVE; i++) {
        drop(&r->alive[i]);
    }
}

static bool is_right(reused_t *r, const buffer_t *b, size_t bytes, uint64_t round, int from)
{
    fill(r->want, bytes, round, from);
    mem_read(r->image, b->p, bytes);
    for (size_t i = 0; i < bytes; i++) {
        if (r->image[i] != r->want[i]) {
            fprintf(stderr, "reused: FAIL on rank %d: round %llu, %zu bytes from rank %d: byte %zu is %02x, not %02x\n",
                    r->t.rank, (unsigned long long) round, bytes, from, i, r->image[i], r->want[i]);
            return false;
        }
    }
    return true;
}

/* Sends one buffer and receives the other, in parts. */
static void exchange(const buffer_t *in, const buffer_t *out, size_t length, int parts, bool freed, int to, int from)
{
    MPI_Request receive[PARTS], send[PARTS];
    char token = 0;

    for (int i = 0; i < parts; i++) {
        const size_t first = length * (size_t) i / (size_t) parts, end = length * ((size_t) i + 1) / (size_t) parts;
        MPI_Irecv(out->p + first, (int) (end - first), MPI_BYTE, from, 1, MPI_COMM_WORLD, &receive[i]);
        MPI_Isend(in->p + first, (int) (end - first), MPI_BYTE, to, 1, MPI_COMM_WORLD, &send[i]);
        if (freed) {
            MPI_Request_free(&send[i]);
        }
    }
    MPI_Waitall(parts, receive, MPI_STATUSES_IGNORE);
    if (freed) {
        MPI_Sendrecv(&token, 1, MPI_CHAR, from, 2, &token, 1, MPI_CHAR, to, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Waitall(parts, send, MPI_STATUSES_IGNORE);
    }
}

static void one(reused_t *r, uint64_t round)
{
    const int n = r->t.nranks, to = (r->t.rank + 1) % n, from = (r->t.rank + n - 1) % n;
    const size_t least = (size_t) LEAST << draw(r, 16), drawn = least + draw(r, least);
    const size_t length = drawn < r->most ? drawn : r->most;
    const uint64_t own = ref_mix(r->x + 7 * (uint64_t) r->t.rank);
    const int parts = 0 == draw(r, 2) ? 1 : 1 + (int) draw(r, PARTS);
    const bool freed = 0 == draw(r, 3);

    if (0 == draw(r, 500)) {
        drop_all(r);
    }
    const buffer_t *in = renew(r, length, own);
    fill(r->image, length, round, r->t.rank);
    mem_write(in->p, r->image, length);
    const buffer_t *out = renew(r, length, in == &r->alive[(own >> 8) % ALIVE] ? own + 1 : own >> 8);
    exchange(in, out, length, parts, freed, to, from);
    check_result(&r->t, is_right(r, out, length, round, from));
}

int main(int argc, char **argv)
{
    static reused_t r;
    long failed;

    check_init(&argc, &argv, "reused", MPI_THREAD_SINGLE);
    r.x = check_seed();
    const uint64_t rounds = check_number("--n", 1000);
    r.most = check_number("--most", 256 << 10);
    r.nkinds = check_kinds(r.kinds);
    check_arguments_end(USAGE);
    check_start(&r.t, "reused", MPI_COMM_WORLD);
    r.image = malloc(r.most);
    r.want = malloc(r.most);
    if (NULL == r.image || NULL == r.want) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    for (uint64_t round = 0; round < rounds; round++) {
        one(&r, round);
        if (0 == round % 1000) {
            check_collect(&r.t);
        }
    }
    drop_all(&r);
    free(r.image);
    free(r.want);
    failed = check_end(&r.t);
    check_print("reused", r.t.passed, r.t.failed);
    return check_fini(failed);
}
