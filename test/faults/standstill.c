/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A job that stands still, for test/job.sh, on ordinary memory, which counts as GPU memory with coll_gpusym_sim_host=1.
 * After some calls of MPI_Allreduce and messages on MPI_COMM_WORLD, in the next call, until FILE is there,
 *   standstill late FILE    the last rank makes none
 *   standstill calm FILE    nor does any other
 *   standstill halves FILE  nor does the last rank on one half of the ranks; the others of its half do, and the other
 *                           half on MPI_COMM_WORLD
 *   standstill window FILE  nor does the last rank call MPI_Win_fence, or another call, and the others do
 *   standstill chain FILE   rank 0 waits in MPI_Win_start for rank 1, which waits in MPI_Allreduce for the last rank
 *   standstill cross FILE   rank 0 has begun one on MPI_COMM_WORLD, the others one on "other"
 * Ends after 120 s at the latest.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 100, LATE = 4, CALLS = 6, PATIENCE_MS = 120000 };

static int in[2][COUNT], out[2][COUNT], rank, nranks, wrong;
static const char *file;

static void wait_for_file(void)
{
    for (int ms = 0; ms < PATIENCE_MS && 0 != access(file, F_OK); ms += 10) {
        usleep(10000);
    }
}

static void begin(int which, int call, MPI_Comm comm, MPI_Request *request)
{
    for (int i = 0; i < COUNT; i++) {
        in[which][i] = call + i + rank;
    }
    if (NULL == request) {
        MPI_Allreduce(in[which], out[which], COUNT, MPI_INT, MPI_SUM, comm);
    } else {
        MPI_Iallreduce(in[which], out[which], COUNT, MPI_INT, MPI_SUM, comm, request);
    }
}

/* Of n ranks, the sum of whose numbers in MPI_COMM_WORLD is `sum`. */
static void compare(int which, int call, int n, int sum)
{
    for (int i = 0; i < COUNT; i++) {
        wrong += out[which][i] != n * (call + i) + sum;
    }
}

static void call_world(int call)
{
    begin(0, call, MPI_COMM_WORLD, NULL);
    compare(0, call, nranks, nranks * (nranks - 1) / 2);
}

static void message(void)
{
    MPI_Sendrecv(in[0], COUNT, MPI_INT, (rank + 1) % nranks, 0, in[1], COUNT, MPI_INT, (rank + nranks - 1) % nranks, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    wrong += in[1][0] != in[0][0] - rank + (rank + nranks - 1) % nranks;
}

/* Sends of all ranks end before any is received, so each rank needs pinned memory. */
static void buffered_message(void)
{
    MPI_Send(in[0], COUNT, MPI_INT, (rank + 1) % nranks, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(in[1], COUNT, MPI_INT, (rank + nranks - 1) % nranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    wrong += in[1][0] != in[0][0] - rank + (rank + nranks - 1) % nranks;
}

static void halves(bool waits)
{
    const int half = rank % 2;
    int n = 0, sum = 0;
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, half, rank, &comm);
    MPI_Comm_set_name(comm, "half");
    if (waits) {
        wait_for_file();
    }
    for (int r = half; r < nranks; r += 2, n++) {
        sum += r;
    }
    if (half == (nranks - 1) % 2) {
        begin(0, 0, comm, NULL);
        compare(0, 0, n, sum);
    }
    call_world(1);
    MPI_Comm_free(&comm);
}

static void cross(void)
{
    MPI_Comm comm[2] = {MPI_COMM_WORLD};
    MPI_Request request[2];
    const int first = 0 != rank;
    int done = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm[1]);
    MPI_Comm_set_name(comm[1], "other");
    begin(1, 0, comm[1], NULL);
    begin(first, first, comm[first], &request[first]);
    for (int ms = 0; ms < PATIENCE_MS && 0 != access(file, F_OK); ms++) {
        MPI_Test(&request[first], &done, MPI_STATUS_IGNORE);
        wrong += done;
        usleep(1000);
    }
    begin(!first, !first, comm[!first], &request[!first]);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    for (int which = 0; which < 2; which++) {
        compare(which, which, nranks, nranks * (nranks - 1) / 2);
    }
    MPI_Comm_free(&comm[1]);
}

static void window(bool waits)
{
    MPI_Win win;
    MPI_Win_create(in[1], sizeof in[1], sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    if (waits) {
        wait_for_file();
    }
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
}

static void chain(bool last)
{
    MPI_Win win;
    MPI_Group all, one;
    MPI_Comm rest;
    const int other = 0 == rank ? 1 : 0;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &other, &one);
    MPI_Comm_split(MPI_COMM_WORLD, 0 == rank, rank, &rest);
    MPI_Comm_set_name(rest, "rest");
    MPI_Win_create(in[1], sizeof in[1], sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    if (0 == rank) {
        MPI_Win_start(one, 0, win);
        MPI_Win_complete(win);
    } else {
        if (last) {
            wait_for_file();
        }
        begin(0, 0, rest, NULL);
        if (1 == rank) {
            MPI_Win_post(one, 0, win);
            MPI_Win_wait(win);
        }
    }
    MPI_Win_free(&win);
    MPI_Comm_free(&rest);
    MPI_Group_free(&one);
    MPI_Group_free(&all);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    if (3 != argc) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const bool last = nranks - 1 == rank, calm = 0 == strcmp(argv[1], "calm");
    file = argv[2];
    for (int call = 0; call < LATE; call++) {
        call_world(call);
        message();
    }
    buffered_message();
    if (0 == strcmp(argv[1], "halves")) {
        halves(last);
    } else if (0 == strcmp(argv[1], "window")) {
        window(last);
    } else if (0 == strcmp(argv[1], "chain")) {
        chain(last);
    } else if (0 == strcmp(argv[1], "cross")) {
        cross();
    } else if (last || calm) {
        wait_for_file();
    }
    for (int call = LATE; call < CALLS; call++) {
        call_world(call);
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (0 == rank) {
        printf("standstill: %s\n", 0 == wrong ? "right" : "wrong");
    }
    MPI_Finalize();
    return 0 != wrong;
}
