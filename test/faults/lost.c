/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A rank or a network is lost while ranks of several islands are in a series of MPI_Allreduce on GPU memory: what
 * test/faults/faults.sh runs for the ranks that are left. Before call --at
 *   --kill RANK          that rank dies instead of making the call (in one: coll_gpusym_sim_fail=die:...)
 *   --cut HOST           the port of that host of test/mpi/hosts.sh goes dead; with --after MS it works again then
 *   --expect error       a call fails on all other ranks, and so do all later ones
 *   --expect right       all calls have the right result, until the port has worked again for some
 * --end abort: all ranks that are left end by MPI_Abort, once --survivors of them have told how it went (by a file in
 * GPUSYM_FAULTS); finalize: by MPI_Finalize.
 */
#include <mpi.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "test/faults/told.h"
#include "test/mpi/check.h"

#define USAGE                                                                                  \
    "[--at CALL] [--kill RANK | --cut HOST [--after MS]] [--expect right|error] [--count N]\n" \
    "    [--mode blocking|nonblocking] [--end abort|finalize] [--survivors N]"

enum { CALLS_HEALED = 50 };

static int rank, nranks, failed, switch_fd = -1;
static size_t count;
static int *in, *out, *host; /* [count]; in and out are device memory */
static const char *mode;
static char uncut[32];                  /* what a handler writes to the switch */
static volatile sig_atomic_t is_healed; /* it has */

static void expect(bool good, const char *what, uint64_t call)
{
    if (!good) {
        failed++;
        printf("FAILED on rank %d, call %llu: %s\n", rank, (unsigned long long) call, what);
        fflush(stdout);
    }
}

static const char *option(const char *name, const char *otherwise)
{
    const char *value = check_option(name);
    return NULL != value ? value : otherwise;
}

/* ---- what happens ---- */

typedef struct {
    uint64_t at;       /* before this call */
    uint64_t victim;   /* a rank; UINT64_MAX: none */
    uint64_t port;     /* of a host; 0: none */
    uint64_t after_ms; /* the port works again then; 0: never */
} event_t;

static void write_switch(const char *text)
{
    if ((ssize_t) strlen(text) != write(switch_fd, text, strlen(text))) {
        abort();
    }
}

static void heal(int signal)
{
    (void) signal;
    write_switch(uncut);
    is_healed = 1;
}

static void cut_host(uint64_t number, uint64_t after_ms)
{
    const char *path = getenv("GPUSYM_HOSTS_SWITCH");
    char text[32];
    switch_fd = NULL != path ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    if (switch_fd < 0) {
        fprintf(stderr, "lost: GPUSYM_HOSTS_SWITCH is no file\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    snprintf(text, sizeof text, "cut %u\n", (unsigned) number);
    snprintf(uncut, sizeof uncut, "uncut %u\n", (unsigned) number);
    write_switch(text);
    if (0 != after_ms) {
        const struct itimerval timer = {
            .it_value = {.tv_sec = (time_t) (after_ms / 1000), .tv_usec = (int) (after_ms % 1000) * 1000}};
        const struct sigaction action = {.sa_handler = heal, .sa_flags = SA_RESTART};
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &timer, NULL);
    }
}

static void let_happen(const event_t *event)
{
    if (event->victim == (uint64_t) rank) {
        kill(getpid(), SIGKILL);
    }
    if (0 != event->port && 0 == rank) {
        cut_host(event->port, event->after_ms);
    }
}

/* ---- calls ---- */

/* The sum of all ranks' numbers; of the first ones, which tell whether rank 0 wants to stop. MPI's error code. */
static int sum_up(MPI_Comm comm, uint64_t call, bool stop, bool *right, bool *stopped)
{
    MPI_Request request;
    int rc;
    for (size_t i = 0; i < count; i++) {
        host[i] = (int) (call % 1000) + rank + (int) i;
    }
    host[0] = stop;
    mem_write(in, host, count * sizeof *host);
    if (0 == strcmp(mode, "nonblocking")) {
        rc = MPI_Iallreduce(in, out, (int) count, MPI_INT, MPI_SUM, comm, &request);
        rc = MPI_SUCCESS == rc ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
    } else {
        rc = MPI_Allreduce(in, out, (int) count, MPI_INT, MPI_SUM, comm);
    }
    if (MPI_SUCCESS != rc) {
        return rc;
    }
    mem_read(host, out, count * sizeof *host);
    *stopped = 0 != host[0];
    *right = host[0] <= 1;
    for (size_t i = 1; i < count; i++) {
        *right = *right && host[i] == nranks * ((int) (call % 1000) + (int) i) + nranks * (nranks - 1) / 2;
    }
    return MPI_SUCCESS;
}

/* Calls until one fails: returns true; or until rank 0 stops them. Some ranks may still be in the call before when it
 * happens. */
static bool call_on(MPI_Comm comm, const event_t *event)
{
    bool right = true, stopped = false;
    for (uint64_t call = 0, healed = 0; !stopped; call++) {
        if (call == event->at) {
            let_happen(event);
        }
        healed += 0 == rank && is_healed;
        if (MPI_SUCCESS != sum_up(comm, call, healed > CALLS_HEALED, &right, &stopped)) {
            expect(call + 1 >= event->at, "an error before anything has happened", call);
            for (int again = 0; again < 3; again++) {
                expect(MPI_SUCCESS != sum_up(comm, call, false, &right, &stopped), "a later call succeeds", call);
            }
            return true;
        }
        expect(right, "not right", call);
    }
    return false;
}

int main(int argc, char **argv)
{
    MPI_Comm comm;

    check_init(&argc, &argv, "lost", MPI_THREAD_SINGLE);
    unsetenv("PMIX_NAMESPACE"); /* without it each rank prints its errors itself: all survivors are to name the lost */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    const event_t event = {.at = check_number("--at", 5),
                           .victim = check_number("--kill", UINT64_MAX),
                           .port = check_number("--cut", 0),
                           .after_ms = check_number("--after", 0)};
    const int survivors = (int) check_number("--survivors", 0);
    const bool error = 0 == strcmp("error", option("--expect", "error"));
    const bool aborts = 0 == strcmp("abort", option("--end", "abort"));
    count = check_number("--count", 1000);
    mode = option("--mode", "blocking");
    check_arguments_end(USAGE);
    in = mem_alloc(MEM_DEVICE, count * sizeof *in);
    out = mem_alloc(MEM_DEVICE, count * sizeof *out);
    host = malloc(count * sizeof *host);
    if (NULL == in || NULL == out || NULL == host) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* Open MPI 4.1 takes it for a collective's request */
    const bool ended = call_on(comm, &event);
    expect(error == ended, ended ? "an error" : "no error", event.at);
    printf("lost: rank %d %s, %s\n", rank, 0 == failed ? "as expected" : "failed", ended ? "an error" : "no error");
    fflush(stdout);
    if (aborts) {
        tell(rank);
        wait_for_told(nranks, survivors);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Comm_free(&comm);
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    free(host);
    mem_fini();
    MPI_Finalize();
    return 0 != failed;
}
