/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A rank that comes late to a collective, or never: what test/faults/faults.sh runs for the ranks that wait. Run with
 * coll_gpusym_sim_host=1, so that ordinary memory goes to the kernels. Calls of MPI_Allreduce on a duplicate of
 * MPI_COMM_WORLD; before call --before the last rank waits, until the file --until has three lines that say that others
 * wait, or ("told") all others have ended the call; without --until it dies.
 *   --expect right   every call succeeds, with the right result
 *   --expect error   that call fails on all other ranks, later ones too, and a communicator without the last rank works
 *                    on
 *   --stuck          it comes in time, and stays in a call of its driver, until then or for ever: with
 *                    coll_gpusym_sim_fail=stay:WHAT:1+ in the first call of that kind
 * After a death the survivors end without MPI_Finalize, which would wait for the dead rank; so they do if it is stuck
 * for ever.
 */
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mca/common/gpusym/device/sim/sim.h"
#include "test/faults/told.h"
#include "test/mpi/persistent.h"

enum { COUNT = 1000 };

static int rank, nranks, failed;
static const char *mode = "blocking", *until;
static bool stuck, due; /* due: the last rank is to stay in its next call of the driver */
static int in[COUNT], out[COUNT];

static void expect(bool good, const char *what, int call)
{
    if (!good) {
        failed++;
        printf("FAILED on rank %d, call %d: %s\n", rank, call, what);
        fflush(stdout);
    }
}

static int wait_for(MPI_Request *request, int rc)
{
    return MPI_SUCCESS != rc ? rc : MPI_Wait(request, MPI_STATUS_IGNORE);
}

static int persistent(MPI_Comm comm)
{
    MPI_Request request;
    int rc = PERSISTENT_INIT(Allreduce)(in, out, COUNT, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    if (MPI_SUCCESS == rc) {
        rc = wait_for(&request, MPI_Start(&request));
        if (MPI_SUCCESS == rc) {
            MPI_Request_free(&request);
        }
    }
    return rc;
}

/* In a communicator made of comm, whose first call it is. */
static int duplicated(MPI_Comm comm)
{
    MPI_Comm copy;
    int rc = MPI_Comm_dup(comm, &copy);
    if (MPI_SUCCESS == rc) {
        rc = MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, copy);
        MPI_Comm_free(&copy);
    }
    return rc;
}

static int one_call(MPI_Comm comm, int call)
{
    MPI_Request request;
    for (int i = 0; i < COUNT; i++) {
        in[i] = call + i + rank;
    }
    memset(out, 0xff, sizeof out);
    if (0 == strcmp(mode, "nonblocking")) {
        return wait_for(&request, MPI_Iallreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm, &request));
    }
    if (0 == strcmp(mode, "persistent")) {
        return persistent(comm);
    }
    if (0 == strcmp(mode, "dup")) {
        return duplicated(comm);
    }
    return MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm);
}

static bool right(int n, int call)
{
    for (int i = 0; i < COUNT; i++) {
        if (out[i] != n * (call + i) + n * (n - 1) / 2) {
            return false;
        }
    }
    return true;
}

static const char *option(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (0 == strcmp(argv[i], name)) {
            return argv[i + 1];
        }
    }
    return otherwise;
}

static unsigned lines_that_wait(const char *path)
{
    char line[4096];
    unsigned n = 0;
    FILE *f = fopen(path, "r");
    while (NULL != f && NULL != fgets(line, sizeof line, f)) {
        n += NULL != strstr(line, " has waited ");
    }
    if (NULL != f) {
        fclose(f);
    }
    return n;
}

/* The last rank, before the call at which it is late, or in it. */
static void be_late(void)
{
    if (NULL == until && stuck) {
        for (;;) {
            pause();
        }
    } else if (NULL == until) {
        kill(getpid(), SIGKILL);
    } else if (0 == strcmp(until, "told")) {
        wait_for_told(nranks, nranks - 1);
    } else {
        while (lines_that_wait(until) < 3) {
            usleep(10000);
        }
    }
}

static void stay(void)
{
    if (__atomic_exchange_n(&due, false, __ATOMIC_RELAXED)) {
        printf("late: rank %d is stuck\n", rank);
        fflush(stdout);
        be_late();
    }
}

int main(int argc, char **argv)
{
    const int before = atoi(option(argc, argv, "--before", "0"));
    const bool error = 0 == strcmp("error", option(argc, argv, "--expect", "right"));
    MPI_Comm comm, others;

    mode = option(argc, argv, "--mode", mode);
    until = option(argc, argv, "--until", NULL);
    stuck = 0 == strcmp("--stuck", argv[argc - 1]);
    gpusym_sim_params.stays = stay;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    const bool last = nranks - 1 == rank;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_split(MPI_COMM_WORLD, last, rank, &others);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* Open MPI 4.1 takes it for a collective's request */
    for (int call = 0; call < before + 3; call++) {
        due = stuck && call == before && last;
        if (!stuck && call == before && last) {
            be_late();
        }
        const int rc = one_call(comm, call);
        const bool late = stuck && call == before && last; /* it may end well there: it has all that it needs */
        if (!error || call < before || (late && MPI_SUCCESS == rc)) {
            expect(MPI_SUCCESS == rc && right(nranks, call), "not right", call);
        } else {
            expect(MPI_SUCCESS != rc, "no error", call);
            if (!last && call == before) {
                tell(rank);
            }
        }
    }
    for (int call = 0; error && !last && call < 3; call++) {
        expect(MPI_SUCCESS == one_call(others, call) && right(nranks - 1, call), "the others' communicator", call);
    }
    printf("late: rank %d %s\n", rank, 0 == failed ? "as expected" : "failed");
    fflush(stdout);
    if (NULL == until) {
        MPI_Barrier(others); /* mpirun ends the job with the first one */
        _exit(0 != failed);
    }
    MPI_Comm_free(&others);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return 0 != failed;
}
