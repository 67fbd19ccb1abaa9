/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * For test/hostpath.sh, under valgrind, which counts in initialise() and measured(), and says how much when
 * initialise() and counted() return: MPI_Init; then every collective of MPI on host buffers, CALLS times, in the order
 * of colls.def, each blocking and then nonblocking. What is set up by a first call is not counted.
 *
 *     hostpath CALLS
 *     hostpath CALLS gpu     instead: MPI_Allreduce of 4 KiB on the simulator, blocking, nonblocking, persistent
 *
 * Rank 0 prints a line "collective NAME" for each, of nonblocking ones with an i before its name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/coll_layout.h"
#include "test/mpi/mem.h"
#include "test/mpi/persistent.h"

#define COUNT 2 /* elements of a message or of a block */
#define TOGETHER \
    8 /* calls between two barriers: no rank runs so far ahead that another makes it wait inside gpusym \
       */

static struct {
    double in[COLL_PEERS * COUNT], out[COLL_PEERS * COUNT];
} buffers;

/* Blocks of COUNT elements one behind the other, for every collective; on a ring, so that there are neighbours. */
static void arguments(coll_args_t *a, MPI_Comm comm)
{
    memset(a, 0, sizeof(*a));
    a->comm = comm;
    a->sbuf = buffers.in;
    a->rbuf = buffers.out;
    a->scount = a->rcount = COUNT;
    a->stype = a->rtype = MPI_DOUBLE;
    a->op = MPI_SUM;
    for (int i = 0; i < COLL_PEERS; i++) {
        a->array[0].counts[i] = COUNT;
        a->array[0].displs[i] = i * COUNT;
        a->array[0].displs_w[i] = 0;
        a->array[0].types[i] = MPI_DOUBLE;
    }
    a->scounts = a->rcounts = a->array[0].counts;
    a->sdispls = a->rdispls = a->array[0].displs;
    a->sdispls_w = a->rdispls_w = a->array[0].displs_w;
    a->stypes = a->rtypes = a->array[0].types;
}

static void blocking(enum coll_id id, const coll_args_t *a)
{
    switch (id) {
#define COLL(ID, Name, name, what, ...) \
    case COLL_##ID:                     \
        MPI_##Name(__VA_ARGS__);        \
        break;
#define COLL_LOCAL COLL
#include "test/mpi/colls.def"
    default:
        break;
    }
}

static void nonblocking(enum coll_id id, const coll_args_t *a)
{
    MPI_Request request = MPI_REQUEST_NULL;

    switch (id) {
#define COLL(ID, Name, name, what, ...)     \
    case COLL_##ID:                         \
        MPI_I##name(__VA_ARGS__, &request); \
        break;
#include "test/mpi/colls.def"
    default: /* has no such form */
        break;
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static MPI_Request request;

static void persistent(enum coll_id id, const coll_args_t *a)
{
    (void) id;
    (void) a;
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* These three are extern and not inline, so that they are there by their names. */
void initialise(int *argc, char ***argv);
void measured(void (*call)(enum coll_id id, const coll_args_t *a), enum coll_id id, const coll_args_t *a, int calls);
void counted(void);

__attribute__((noinline)) void initialise(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
}

__attribute__((noinline)) void measured(void (*call)(enum coll_id id, const coll_args_t *a), enum coll_id id,
                                        const coll_args_t *a, int calls)
{
    for (int i = 0; i < calls; i++) {
        call(id, a);
    }
}

__attribute__((noinline)) void counted(void)
{
    __asm__ volatile("");
}

/* So many calls of one collective in one form, after one that sets up what there is to set up. */
static void count(void (*call)(enum coll_id id, const coll_args_t *a), enum coll_id id, const coll_args_t *a, int calls)
{
    call(id, a);
    for (int left = calls; left > 0; left -= TOGETHER) {
        MPI_Barrier(a->comm);
        measured(call, id, a, left < TOGETHER ? left : TOGETHER);
    }
    counted();
}

static int on_gpu(coll_args_t *a, int calls)
{
    const size_t bytes = 4096;
    if (0 != mem_init("sim", 0)) {
        return 1;
    }
    void *in = mem_alloc(MEM_DEVICE, bytes), *out = mem_alloc(MEM_DEVICE, bytes);
    a->sbuf = in;
    a->rbuf = out;
    a->scount = a->rcount = (int) (bytes / sizeof(double));
    PERSISTENT_INIT(Allreduce)(in, out, a->scount, MPI_DOUBLE, MPI_SUM, a->comm, MPI_INFO_NULL, &request);
    count(blocking, COLL_ALLREDUCE, a, calls);
    count(nonblocking, COLL_ALLREDUCE, a, calls);
    count(persistent, COLL_ALLREDUCE, a, calls);
    MPI_Request_free(&request);
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    mem_fini();
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {
#define COLL(ID, Name, name, what, ...) #name,
#define COLL_LOCAL COLL
#include "test/mpi/colls.def"
    };
    const int calls = argc > 1 ? atoi(argv[1]) : 0;
    coll_args_t a;
    MPI_Comm ring;
    int rank, ranks;

    initialise(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (calls < 1 || ranks > COLL_PEERS) {
        fprintf(stderr, "usage: hostpath CALLS, at most %d ranks\n", COLL_PEERS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, (int[]){1}, 0, &ring);
    MPI_Comm_rank(ring, &rank);
    arguments(&a, ring);
    if (argc > 2) {
        const int failed = on_gpu(&a, calls);
        MPI_Comm_free(&ring);
        MPI_Finalize();
        return failed;
    }
    for (int id = 0; id < COLL_COUNT; id++) {
        const bool local = COLL_REDUCE_LOCAL == id;

        if (0 == rank) {
            printf("collective %s\n", names[id]);
        }
        count(blocking, (enum coll_id) id, &a, calls);
        if (!local && 0 == rank) {
            printf("collective i%s\n", names[id]);
        }
        if (!local) {
            count(nonblocking, (enum coll_id) id, &a, calls);
        }
    }
    MPI_Comm_free(&ring);
    MPI_Finalize();
    return 0;
}
