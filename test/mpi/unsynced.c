/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: programs that call MPI without having waited for what they have queued on the legacy stream, which
 * coll_gpusym_wait_legacy_stream allows. Each call reads a buffer that is about to be written, or writes one that is
 * about to be read. On a device without such a stream nothing is queued.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "test/mpi/check.h"

#define USAGE "[--n ROUNDS]"
#define COUNT 1000

typedef struct {
    check_t t;
    int *a, *b, *c, *store; /* of the GPU */
    void *busy;
    int image[COUNT];
} unsynced_t;

/* Queues that `to` becomes: i + value, element by element. */
static void write_later(unsynced_t *u, int *to, int value)
{
    for (int i = 0; i < COUNT; i++) {
        u->image[i] = i + value;
    }
    mem_write(u->store, u->image, sizeof u->image);
    mem_write_later(to, u->store, sizeof u->image, u->busy);
}

/* Whether an element is `times` times itself, and value more. */
static void expect(unsynced_t *u, const int *p, int times, int value, const char *what)
{
    bool right = true;

    mem_read(u->image, p, sizeof u->image);
    for (int i = 0; i < COUNT; i++) {
        right = right && u->image[i] == times * i + value;
    }
    if (!right) {
        fprintf(stderr, "unsynced: FAIL on rank %d: %s: 0: %d, wanted %d\n", u->t.rank, what, u->image[0], value);
    }
    check_result(&u->t, right);
}

static void reduce(unsynced_t *u, int round)
{
    const int n = u->t.nranks, all = n * (n - 1) / 2 + n * round;
    MPI_Request request;

    write_later(u, u->a, u->t.rank + round);
    MPI_Allreduce(u->a, u->b, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect(u, u->b, n, all, "MPI_Allreduce");
    write_later(u, u->a, u->t.rank + round + 1);
    MPI_Iallreduce(u->a, u->b, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(u, u->b, n, all + n, "MPI_Iallreduce");
}

static void send(unsynced_t *u, int round)
{
    const int n = u->t.nranks, next = (u->t.rank + 1) % n, last = (u->t.rank + n - 1) % n;
    MPI_Request request[2];

    write_later(u, u->a, 7 * u->t.rank + round);
    MPI_Sendrecv(u->a, COUNT, MPI_INT, next, 1, u->b, COUNT, MPI_INT, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(u, u->b, 1, 7 * last + round, "MPI_Sendrecv");
    write_later(u, u->a, 7 * u->t.rank + round + 1);
    MPI_Irecv(u->b, COUNT, MPI_INT, last, 1, MPI_COMM_WORLD, &request[0]);
    MPI_Isend(u->a, COUNT, MPI_INT, next, 1, MPI_COMM_WORLD, &request[1]);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    expect(u, u->b, 1, 7 * last + round + 1, "MPI_Isend");
}

/* Of what is received, the last contents are still read. */
static void receive(unsynced_t *u, int round)
{
    const int n = u->t.nranks, next = (u->t.rank + 1) % n, last = (u->t.rank + n - 1) % n;

    for (int i = 0; i < COUNT; i++) {
        u->image[i] = i + round;
    }
    mem_write(u->b, u->image, sizeof u->image);
    for (int i = 0; i < COUNT; i++) {
        u->image[i] = i - u->t.rank;
    }
    mem_write(u->a, u->image, sizeof u->image);
    MPI_Barrier(MPI_COMM_WORLD);
    mem_write_later(u->c, u->b, sizeof u->image, u->busy);
    MPI_Sendrecv(u->a, COUNT, MPI_INT, next, 1, u->b, COUNT, MPI_INT, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(u, u->b, 1, -last, "MPI_Recv");
    expect(u, u->c, 1, round, "what was in the receiver's buffer");
}

static void persistent(unsynced_t *u, MPI_Request request[2], int round)
{
    const int n = u->t.nranks, last = (u->t.rank + n - 1) % n;

    write_later(u, u->a, 3 * u->t.rank + round);
    MPI_Startall(2, request);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    expect(u, u->b, 1, 3 * last + round, "MPI_Startall");
}

int main(int argc, char **argv)
{
    static unsynced_t u;
    MPI_Request request[2];

    check_init(&argc, &argv, "unsynced", MPI_THREAD_SINGLE);
    const int rounds = (int) check_number("--n", 20);
    check_arguments_end(USAGE);
    check_start(&u.t, "unsynced", MPI_COMM_WORLD);
    int **buffers[] = {&u.a, &u.b, &u.c, &u.store};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        *buffers[i] = mem_alloc(MEM_DEVICE, sizeof u.image);
    }
    u.busy = mem_alloc(MEM_DEVICE, MEM_BUSY);
    if (NULL == u.a || NULL == u.b || NULL == u.c || NULL == u.store || NULL == u.busy) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    const int n = u.t.nranks;
    MPI_Send_init(u.a, COUNT, MPI_INT, (u.t.rank + 1) % n, 2, MPI_COMM_WORLD, &request[0]);
    MPI_Recv_init(u.b, COUNT, MPI_INT, (u.t.rank + n - 1) % n, 2, MPI_COMM_WORLD, &request[1]);
    for (int round = 0; round < rounds; round++) {
        reduce(&u, round);
        send(&u, round);
        receive(&u, round);
        persistent(&u, request, round);
    }
    MPI_Request_free(&request[0]);
    MPI_Request_free(&request[1]);
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        mem_free(MEM_DEVICE, *buffers[i]);
    }
    mem_free(MEM_DEVICE, u.busy);
    const long failed = check_end(&u.t);
    check_print("unsynced", u.t.passed, u.t.failed);
    return check_fini(failed);
}
