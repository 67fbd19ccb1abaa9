/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * For test/p2phost.sh: messages of host buffers between two ranks, and of a rank to itself.
 *
 *     hostpath_p2p CALLS           under valgrind, which counts in measured(), and says how much when counted() returns
 *     hostpath_p2p CALLS time      prints nanoseconds a call, the least of several batches, in the place of counting
 *
 * Rank 0 prints a line "case NAME" for each, or "case NAME NANOSECONDS".
 */
#include <malloc.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SMALL 8
#define LARGE 65536
#define MAPPED ((size_t) 1 << 20)
#define TAG 3
#define BATCHES 30
/* Where the buffers are under valgrind: in what is taken for the heap, and behind it. */
#define HEAP_AT ((void *) 0x7000000000)
#define MAPPED_AT ((void *) 0x7100000000)

/* Where the heap ends, in the place of what the kernel says: below valgrind a process has a heap that the kernel
 * does not know, and /proc tells where valgrind's own begins. NULL: as it is. */
static void *heap_end;

/* libc's own name of it. */
void *__sbrk(intptr_t increment);
void *sbrk(intptr_t increment);

void *sbrk(intptr_t increment)
{
    return NULL == heap_end ? __sbrk(increment) : heap_end;
}

/* What is sent and received: bytes, at in and out, from a peer to a peer. */
typedef struct {
    void *in, *out;
    int bytes, peer;
    MPI_Comm comm;
    bool first; /* it sends before it receives */
} pair_t;

static void send_recv(const pair_t *p)
{
    if (p->first) {
        MPI_Send(p->out, p->bytes, MPI_BYTE, p->peer, TAG, p->comm);
    }
    MPI_Recv(p->in, p->bytes, MPI_BYTE, p->peer, TAG, p->comm, MPI_STATUS_IGNORE);
    if (!p->first) {
        MPI_Send(p->out, p->bytes, MPI_BYTE, p->peer, TAG, p->comm);
    }
}

static void isend_irecv(const pair_t *p)
{
    MPI_Request requests[2];

    MPI_Irecv(p->in, p->bytes, MPI_BYTE, p->peer, TAG, p->comm, &requests[0]);
    MPI_Isend(p->out, p->bytes, MPI_BYTE, p->peer, TAG, p->comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

/* CASE(name, function, buffers, bytes, to itself) */
#define CASES                                                  \
    CASE(send_recv, send_recv, heap, SMALL, false)             \
    CASE(isend_irecv, isend_irecv, heap, SMALL, false)         \
    CASE(self_send_recv, send_recv, heap, SMALL, true)         \
    CASE(self_isend_irecv, isend_irecv, heap, SMALL, true)     \
    CASE(send_recv_64k, send_recv, heap, LARGE, false)         \
    CASE(isend_irecv_64k, isend_irecv, heap, LARGE, false)     \
    CASE(send_recv_static, send_recv, fixed, SMALL, false)     \
    CASE(isend_irecv_static, isend_irecv, fixed, SMALL, false) \
    CASE(send_recv_mapped, send_recv, mapped, SMALL, false)    \
    CASE(isend_irecv_mapped, isend_irecv, mapped, SMALL, false)

/* These two are extern and not inline, so that they are there by their names. */
void measured(void (*call)(const pair_t *p), const pair_t *p, int calls);
void counted(void);

__attribute__((noinline)) void measured(void (*call)(const pair_t *p), const pair_t *p, int calls)
{
    for (int i = 0; i < calls; i++) {
        call(p);
    }
}

__attribute__((noinline)) void counted(void)
{
    __asm__ volatile("");
}

static double nanoseconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double) t.tv_sec + (double) t.tv_nsec;
}

static double least(void (*call)(const pair_t *p), const pair_t *p, int calls)
{
    double best = 1e30;

    for (int i = 0; i < BATCHES; i++) {
        double start = nanoseconds();
        measured(call, p, calls);
        start = (nanoseconds() - start) / calls;
        best = start < best ? start : best;
    }
    return best;
}

/* There, if it is free. */
static char *map(void *at)
{
    void *p = mmap(at, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (MAP_FAILED == p || (NULL != at && p != at)) {
        fprintf(stderr, "hostpath_p2p: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return p;
}

int main(int argc, char **argv)
{
    static char fixed[2 * LARGE];
    static const struct {
        const char *name;
        void (*call)(const pair_t *p);
        bool to_itself;
        int bytes;
    } cases[] = {
#define CASE(name, call, buffers, bytes, self) {#name, call, self, bytes},
        CASES
#undef CASE
    };
    const int calls = argc > 1 ? atoi(argv[1]) : 0;
    const bool timed = argc > 2 && 0 == strcmp(argv[2], "time");
    char *heap, *mapped;
    int rank, ranks;

    MPI_Init(&argc, &argv);
    mallopt(M_MMAP_THRESHOLD, 4 * LARGE);
    heap = timed ? malloc(2 * LARGE) : map(HEAP_AT);
    heap_end = timed ? NULL : heap + MAPPED;
    mapped = map(timed ? NULL : MAPPED_AT);
    char *const buffers[] = {
#define CASE(name, call, buffers, bytes, self) buffers,
        CASES
#undef CASE
    };
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (calls < 1 || 2 != ranks || NULL == heap) {
        fprintf(stderr, "usage: mpirun -n 2 hostpath_p2p CALLS [time]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const pair_t p = {.in = buffers[i],
                          .out = buffers[i] + LARGE,
                          .bytes = cases[i].bytes,
                          .peer = cases[i].to_itself ? 0 : 1 - rank,
                          .comm = cases[i].to_itself ? MPI_COMM_SELF : MPI_COMM_WORLD,
                          .first = cases[i].to_itself || 0 == rank};
        double ns = 0;

        cases[i].call(&p); /* sets up what there is to set up */
        if (timed) {
            ns = least(cases[i].call, &p, calls);
        } else {
            measured(cases[i].call, &p, calls);
            counted();
        }
        if (0 == rank) {
            printf(timed ? "case %s %.1f\n" : "case %s\n", cases[i].name, ns);
        }
    }
    munmap(mapped, MAPPED);
    if (timed) {
        free(heap);
    } else {
        munmap(heap, MAPPED);
    }
    MPI_Finalize();
    return 0;
}
