/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A storm of signals, for any program: loaded before it (LD_PRELOAD), it has a timer interrupt the process all the
 * time, as profilers and programs of their own do, from MPI_Init on to MPI_Finalize.
 *
 *   GPUSYM_STORM_US        microseconds between two signals (default 150)
 *   GPUSYM_STORM_RESTART   1: Linux restarts system calls itself where it can (SA_RESTART); 0 (default): they say EINTR
 *   GPUSYM_STORM_START     init: the storm begins before MPI_Init instead, and ends after MPI_Finalize
 */
#include <mpi.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static int signals; /* any thread may get one */

static void interrupt(int number)
{
    const int saved = errno;
    (void) number;
    __atomic_fetch_add(&signals, 1, __ATOMIC_RELAXED);
    errno = saved;
}

static long option(const char *name, long otherwise)
{
    const char *value = getenv(name);
    return NULL != value ? atol(value) : otherwise;
}

static void storm_set(long us)
{
    const struct itimerval timer = {{0, us}, {0, us}};
    struct sigaction action = {.sa_handler = interrupt};
    action.sa_flags = 0 != option("GPUSYM_STORM_RESTART", 0) ? SA_RESTART : 0;
    if (0 != sigaction(SIGALRM, &action, NULL) || 0 != setitimer(ITIMER_REAL, &timer, NULL)) {
        fprintf(stderr, "storm: no timer: %s\n", strerror(errno));
        abort();
    }
}

static int all_the_time(void)
{
    const char *start = getenv("GPUSYM_STORM_START");
    return NULL != start && 0 == strcmp(start, "init");
}

static int begin(int early, int rc)
{
    if (early == all_the_time()) {
        storm_set(option("GPUSYM_STORM_US", 150));
    }
    return rc;
}

int MPI_Init(int *argc, char ***argv)
{
    (void) begin(1, 0);
    return begin(0, PMPI_Init(argc, argv));
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void) begin(1, 0);
    return begin(0, PMPI_Init_thread(argc, argv, required, provided));
}

int MPI_Finalize(void)
{
    int rank, rc;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!all_the_time()) {
        storm_set(0);
    }
    rc = PMPI_Finalize();
    storm_set(0);
    if (0 == signals) {
        fprintf(stderr, "storm: no signal came\n");
        abort();
    }
    if (0 == rank) {
        printf("storm: %ld signals\n", (long) signals);
    }
    return rc;
}
