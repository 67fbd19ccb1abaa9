/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test, of 3 ranks in two islands (coll_gpusym_node_size=2), the last of which fails
 * (coll_gpusym_sim_fail=launch:6@2): the others give up for it, so the leader of the first island knows a member that
 * has. Their communicator is freed, and at that moment the thread that moves calls between hosts on looks at it once
 * more. Another communicator works on.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "mca/common/gpusym/rail/records.h"
#include "mca/common/gpusym/rail/worker.h"
#include "test/hang.h"
#include "test/mpi/check.h"

#define USAGE ""
#define CALLS 12
#define COUNT 1000
#define LOOKS 3 /* polls of records: the last one begins behind a whole look that began after the first */

static pthread_t main_thread;
static bool closing, waited; /* atomic */
static unsigned looks;       /* of the helper thread since; atomic */

/* In place of the library's: called by the coll component, also in the helper thread. */
bool gpusym_records_poll(gpusym_records_t *records, int *rc)
{
    static bool (*next)(gpusym_records_t *, int *);

    *(void **) &next = dlsym(RTLD_NEXT, "gpusym_records_poll");
    if (!pthread_equal(pthread_self(), main_thread)) {
        __atomic_fetch_add(&looks, 1, __ATOMIC_RELEASE);
    }
    return next(records, rc);
}

/* In place of the library's: before the lock is taken to close a communicator, the helper thread has a look. */
void gpusym_worker_enter_wait(gpusym_worker_t *worker)
{
    static void (*next)(gpusym_worker_t *);

    *(void **) &next = dlsym(RTLD_NEXT, "gpusym_worker_enter_wait");
    if (__atomic_load_n(&closing, __ATOMIC_ACQUIRE) && pthread_equal(pthread_self(), main_thread)) {
        const unsigned before = __atomic_load_n(&looks, __ATOMIC_ACQUIRE);
        const uint64_t end = gpusym_now_ns() + hang_s() * 1000000000ull;
        while (__atomic_load_n(&looks, __ATOMIC_ACQUIRE) - before < LOOKS && gpusym_now_ns() < end) {
            usleep(1000);
        }
        __atomic_store_n(&waited, gpusym_now_ns() < end, __ATOMIC_RELEASE);
    }
    next(worker);
}

/* Sums up on a communicator until a call fails, at most so often. Whether one has. */
static bool fails(int *memory, MPI_Comm comm, int calls)
{
    bool failed = false;
    for (int i = 0; !failed && i < calls; i++) {
        failed = MPI_SUCCESS != MPI_Allreduce(MPI_IN_PLACE, memory, COUNT, MPI_INT, MPI_MAX, comm);
    }
    return failed;
}

int main(int argc, char **argv)
{
    check_t t;
    MPI_Comm bad, good;

    main_thread = pthread_self();
    check_init(&argc, &argv, "closing", MPI_THREAD_SINGLE);
    check_arguments_end(USAGE);
    check_start(&t, "closing", MPI_COMM_WORLD);
    int *memory = mem_alloc(MEM_DEVICE, COUNT * sizeof(int));
    if (NULL == memory) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &bad);
    MPI_Comm_dup(MPI_COMM_WORLD, &good);
    MPI_Comm_set_errhandler(bad, MPI_ERRORS_RETURN);
    check_result(&t, fails(memory, bad, CALLS));
    MPI_Barrier(MPI_COMM_WORLD);
    __atomic_store_n(&closing, 0 == t.rank, __ATOMIC_RELEASE);
    MPI_Comm_free(&bad);
    __atomic_store_n(&closing, false, __ATOMIC_RELEASE);
    check_result(&t, 0 != t.rank || __atomic_load_n(&waited, __ATOMIC_ACQUIRE));
    check_result(&t, !fails(memory, good, 3));
    MPI_Comm_free(&good);
    mem_free(MEM_DEVICE, memory);
    const long failed = check_end(&t);
    check_print("closing", t.passed, t.failed);
    return check_fini(failed);
}
