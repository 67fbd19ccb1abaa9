/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Processes that come later: MPI_Comm_spawn, and MPI_Comm_accept with MPI_Comm_connect. Calls on the intercommunicator,
 * and on the communicator that both sides are merged to, which is served like any other of this host: with
 * coll_gpusym_sim_host=1 by the kernels (--native), of parents and children who see the same parameters. Each side says
 * what it found.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/mpit.h"
#include "test/mpi/persistent.h"

enum { COUNT = 3000, CHILDREN = 2, CALLS = 5 };

static int rank, failed;
static int in[COUNT], out[COUNT];

static void expect(bool good, const char *what)
{
    if (!good) {
        failed++;
        printf("FAILED on rank %d: %s\n", rank, what);
    }
}

static void fill(int number)
{
    for (int i = 0; i < COUNT; i++) {
        in[i] = number + i;
        out[i] = -1;
    }
}

/* The sum over ranks 0 to n - 1 that gave their numbers. */
static bool is_sum(int n)
{
    for (int i = 0; i < COUNT; i++) {
        if (out[i] != n * i + n * (n - 1) / 2) {
            return false;
        }
    }
    return true;
}

/* Each side gets the sum of the other's. */
static void between(MPI_Comm inter)
{
    MPI_Request request;
    int mine, remote;
    MPI_Comm_rank(inter, &mine);
    MPI_Comm_remote_size(inter, &remote);
    for (int i = 0; i < CALLS; i++) {
        fill(mine);
        MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, inter);
        expect(is_sum(remote), "all-reduce between the sides");
        fill(mine);
        MPI_Iallreduce(in, out, 0, MPI_INT, MPI_SUM, inter, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Iallreduce(in, out, COUNT, MPI_INT, MPI_SUM, inter, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(is_sum(remote), "nonblocking all-reduce between the sides");
    }
    fill(mine);
    PERSISTENT_INIT(Allreduce)(in, out, COUNT, MPI_INT, MPI_SUM, inter, MPI_INFO_NULL, &request);
    for (int i = 0; i < CALLS; i++) {
        fill(mine);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(is_sum(remote), "persistent all-reduce between the sides");
    }
    MPI_Request_free(&request);
}

static void merged(MPI_Comm inter, bool high, bool native)
{
    unsigned long long first = 0, calls = 0;
    MPI_Comm all;
    int mine, n;
    MPI_Intercomm_merge(inter, high, &all);
    MPI_Comm_rank(all, &mine);
    MPI_Comm_size(all, &n);
    mpit_counter("coll_gpusym_allreduce_native", &first);
    for (int i = 0; i < CALLS; i++) {
        fill(mine);
        MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, all);
        expect(is_sum(n), "all-reduce of both sides");
    }
    mpit_counter("coll_gpusym_allreduce_native", &calls);
    expect(!native || calls - first >= CALLS, "both sides together are served by the kernels");
    MPI_Comm_free(&all);
}

/* Two halves of this job that meet by a port. */
static void by_port(bool native)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm half, inter;
    const bool odd = rank % 2;
    MPI_Comm_split(MPI_COMM_WORLD, odd, rank, &half);
    if (0 == rank) {
        MPI_Open_port(MPI_INFO_NULL, port);
    }
    MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (odd) {
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter);
    } else {
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter);
    }
    between(inter);
    merged(inter, odd, native);
    MPI_Comm_disconnect(&inter);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    const bool native = argc > 1 && 0 == strcmp(argv[1], "--native");
    MPI_Comm parent, inter;
    int n;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_get_parent(&parent);
    const bool child = MPI_COMM_NULL != parent;
    if (child) {
        between(parent);
        merged(parent, true, native);
        MPI_Comm_disconnect(&parent);
    } else {
        if (n > 1) {
            by_port(native);
        }
        MPI_Comm_spawn(argv[0], argc > 1 ? argv + 1 : MPI_ARGV_NULL, CHILDREN, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                       MPI_ERRCODES_IGNORE);
        between(inter);
        merged(inter, false, native);
        MPI_Comm_disconnect(&inter);
    }
    printf("spawn: %s %d: %s\n", child ? "child" : "parent", rank, 0 == failed ? "right" : "wrong");
    MPI_Finalize();
    return 0 != failed;
}
