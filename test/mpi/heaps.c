/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: symmetric heaps of processes (memory/heap.h), by themselves: each rank makes one, on virtual memory
 * and on the other, and another slab of it; maps all of the others', reads there what they have written, and writes
 * there what they read.  Ranks may share a GPU, where collectives map no heap: one GPU shows that the driver shares
 * such memory between processes.  --n: rounds; --slab: bytes of a slab.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/shm/fd.h"
#include "test/mpi/check.h"

#define USAGE "[--seed N] [--n ROUNDS] [--slab BYTES]"
#define SLABS 2u
#define NOTE 64u /* bytes that a rank writes to each slab of the others, at its own place from the end */

typedef struct {
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;
    gpusym_heap_t *heap;
    int rank, n;
    uint64_t slab, seed;       /* bytes; of what is written */
    unsigned char *out, *back; /* slab bytes each, of the host */
    gpusym_heap_id_t *id;      /* [n][SLABS] */
    char **at;                 /* [n][SLABS]: where they are mapped here */
} heaps_t;

static void fill(unsigned char *p, size_t size, uint64_t seed)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < size; i += sizeof x) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(p + i, &x, size - i < sizeof x ? size - i : sizeof x);
    }
}

static bool fails(const heaps_t *h, const char *what)
{
    fprintf(stderr, "heaps: rank %d: %s: %s\n", h->rank, what, h->dev->error());
    return false;
}

/* What rank `of` has in its slab s, or what `writer` notes there. */
static uint64_t seed_of(const heaps_t *h, int of, unsigned s, int writer, uint64_t round)
{
    return h->seed + ((round * SLABS + s) * (uint64_t) h->n + (uint64_t) of) * 64 + (uint64_t) (writer + 1);
}

static bool make(heaps_t *h, bool vmm, uint64_t round)
{
    gpusym_heap_id_t *own = h->id + (unsigned) h->rank * SLABS;
    bool right =
        GPUSYM_SUCCESS == gpusym_heap_create(h->dev, h->gpu, h->slab, SLABS, vmm, &h->heap) || fails(h, "make");
    for (unsigned s = 0; s < SLABS && right; s++) {
        gpusym_slot_offer_t offer;
        void *base;
        gpusym_heap_slot_offer(h->heap, &offer);
        gpusym_heap_slot_settle(h->heap, &offer, 0);
        gpusym_heap_id(h->heap, s, &own[s]);
        right = (s == offer.slab && vmm == own[s].vmm) || fails(h, "a slab is not of the kind that was asked for");
        right =
            right && (GPUSYM_SUCCESS == gpusym_heap_peer(h->heap, &own[s], h->slab, &base) || fails(h, "the own slab"));
        fill(h->out, h->slab, seed_of(h, h->rank, s, -1, round));
        right = right && (GPUSYM_SUCCESS == h->dev->copy(h->gpu, base, h->out, h->slab) || fails(h, "copy"));
    }
    return right;
}

/* A slab of a peer: what it has, but for what others note meanwhile; and our note. */
static bool visit(const heaps_t *h, int of, unsigned s, uint64_t round)
{
    char *at = h->at[(unsigned) of * SLABS + s];
    const size_t notes = NOTE * (size_t) h->n, rest = h->slab - notes;
    fill(h->out, h->slab, seed_of(h, of, s, -1, round));
    if (GPUSYM_SUCCESS != h->dev->copy(h->gpu, h->back, at, rest)) {
        return fails(h, "copy from a peer");
    }
    if (0 != memcmp(h->out, h->back, rest)) {
        fprintf(stderr, "heaps: rank %d: slab %u of rank %d has other data\n", h->rank, s, of);
        return false;
    }
    fill(h->out, NOTE, seed_of(h, of, s, h->rank, round));
    return GPUSYM_SUCCESS == h->dev->copy(h->gpu, at + rest + NOTE * (size_t) h->rank, h->out, NOTE) ||
           fails(h, "copy to a peer");
}

static bool read_notes(const heaps_t *h, unsigned s, uint64_t round)
{
    bool right = true;
    const char *at = h->at[(unsigned) h->rank * SLABS + s];
    for (int r = 0; r < h->n && right; r++) {
        fill(h->out, NOTE, seed_of(h, h->rank, s, r, round));
        right = GPUSYM_SUCCESS == h->dev->copy(h->gpu, h->back, at + h->slab - NOTE * (size_t) (h->n - r), NOTE) ||
                fails(h, "copy of a note");
        if (right && 0 != memcmp(h->out, h->back, NOTE)) {
            fprintf(stderr, "heaps: rank %d: slab %u has no note of rank %d\n", h->rank, s, r);
            right = false;
        }
    }
    return right;
}

static bool agree(bool right)
{
    int mine = right, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return 0 != all;
}

static bool map_all(heaps_t *h)
{
    bool right = true;
    for (unsigned i = 0; i < (unsigned) h->n * SLABS && right; i++) {
        void *base = NULL;
        right = GPUSYM_SUCCESS == gpusym_heap_peer(h->heap, &h->id[i], h->slab, &base) || fails(h, "a peer's slab");
        h->at[i] = base;
    }
    return right;
}

/* What a peer has mapped outlives the heap: it may be unmapped, and virtual memory read. */
static bool leave(heaps_t *h, bool vmm, uint64_t round)
{
    bool right = true;
    if (0 == h->rank) {
        gpusym_heap_destroy(h->heap);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (0 != h->rank) {
        right = !vmm || visit(h, 0, SLABS - 1, round);
        for (unsigned i = 0; i < SLABS; i++) {
            gpusym_heap_unpeer(h->heap, &h->id[i]);
        }
        gpusym_heap_destroy(h->heap);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    h->heap = NULL;
    return right;
}

/* Each step is done by all ranks, or by none: their answers say so. */
static bool run(heaps_t *h, bool vmm, uint64_t round)
{
    const double start = MPI_Wtime();
    bool right = make(h, vmm, round);
    const double made = MPI_Wtime() - start;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, h->id, (int) (SLABS * sizeof *h->id), MPI_BYTE, MPI_COMM_WORLD);
    if (!agree(right)) {
        gpusym_heap_destroy(h->heap);
        return false;
    }
    const double meet = MPI_Wtime();
    right = agree(map_all(h));
    const double mapped = MPI_Wtime() - meet;
    for (int r = 0; r < h->n && right; r++) {
        for (unsigned s = 0; s < SLABS && right; s++) {
            right = visit(h, (h->rank + r) % h->n, s, round);
        }
    }
    right = agree(right);
    for (unsigned s = 0; s < SLABS && right; s++) {
        right = read_notes(h, s, round);
    }
    right = agree(right);
    if (0 == h->rank && 0 == round) {
        printf("heaps: %s: %u slabs made in %.0f us, those of %d ranks mapped in %.0f us\n",
               vmm ? "virtual memory" : "other memory", SLABS, 1e6 * made, h->n, 1e6 * mapped);
    }
    return leave(h, vmm, round) && right;
}

int main(int argc, char **argv)
{
    heaps_t h = {.heap = NULL};
    check_t t;

    check_init(&argc, &argv, "heaps", MPI_THREAD_SINGLE);
    const unsigned n = (unsigned) check_number("--n", 4);
    h.slab = check_number("--slab", 1 << 20);
    h.seed = check_seed();
    check_arguments_end(USAGE);
    check_start(&t, "heaps", MPI_COMM_WORLD);
    h.rank = t.rank;
    h.n = t.nranks;
    h.dev = gpusym_device_need();
    h.out = malloc(h.slab);
    h.back = malloc(h.slab);
    h.id = calloc((size_t) h.n * SLABS, sizeof *h.id);
    h.at = calloc((size_t) h.n * SLABS, sizeof *h.at);
    if (NULL == h.dev || NULL == h.out || NULL == h.back || NULL == h.id || NULL == h.at ||
        h.slab < NOTE * (size_t) h.n || GPUSYM_SUCCESS != h.dev->gpu_open(NULL, &h.gpu)) {
        fprintf(stderr, "heaps: rank %d: no device, no memory, or slabs that are too small\n", h.rank);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int *pids = calloc((size_t) h.n, sizeof *pids), pid = (int) getpid();
    MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < h.n; r++) {
        gpusym_fd_admit(pids[r]);
    }
    for (unsigned round = 0; round < n; round++) {
        check_result(&t, run(&h, true, round));
        check_result(&t, run(&h, false, round));
    }
    free(pids);
    free(h.out);
    free(h.back);
    free(h.id);
    free(h.at);
    const long failed = check_end(&t), passed = 2L * n - failed;
    check_print("heaps", passed, failed);
    return check_fini(failed);
}
