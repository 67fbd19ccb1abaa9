/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test, on 2 ranks: messages of GPU memory, some of whose parts the PML refuses to send. An RTS that is
 * refused is an error of its message, for which nothing is kept, and later messages are right. Data that an RTS
 * has announced follow when the PML takes them; if it never does, the send ends when its receiver has died. And
 * messages that find no room to be buffered.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "mca/common/ompi/ompi_compat.h"

#include <dlfcn.h>
#include <mpi.h>

#include "mca/common/gpusym/exec/copy.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/reg.h"
#include "mca/common/gpusym/memory/scratch.h"
#include "mca/common/gpusym/p2p/pipeline.h"
#include "mca/common/gpusym/p2p/send_desc.h"
#include "ompi/mca/pml/pml.h"
#include "test/mpi/check.h"

#define USAGE ""
#define TAG 5
#define TIMES 5 /* that the PML refuses announced data, before it takes them */
enum { LONG = 100000, ROWS = 500, ROW = 64, TINY = GPUSYM_RTS };

static int rank;

/* ---- what the component calls, in place of Open MPI's and the library's functions ---- */

static mca_pml_base_module_isend_fn_t isend; /* the PML's */
static enum { NOTHING, ALL_RTS, ANNOUNCED } refuses;
static long times;      /* that it does; atomic, as are the others */
static long refused;    /* how often it has */
static long held;       /* registrations and scratch memory that have not been returned */
static bool dead;       /* the other process, as far as can be seen */
static int copies_fail; /* of the sender, into memory that its peer can map: 1: they do not start, 2: they fail; once */

static int isend_or_not(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                        mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm,
                        struct ompi_request_t **request)
{
    const bool rts = TAG == tag && GPUSYM_RTS == count, announced = tag < INT_MIN / 2;
    if (((ALL_RTS == refuses && rts) || (ANNOUNCED == refuses && announced)) &&
        __atomic_fetch_sub(&times, 1, __ATOMIC_RELAXED) > 0) {
        __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    return isend(buf, count, dtype, dst, tag, mode, comm, request);
}

/* Called before the component puts its functions before the PML's. */
const gpusym_device_t *gpusym_device_need(void)
{
    static const gpusym_device_t *(*next)(void);

    *(void **) &next = dlsym(RTLD_NEXT, "gpusym_device_need");
    if (NULL == isend && NULL != mca_pml.pml_isend) {
        isend = mca_pml.pml_isend;
        mca_pml.pml_isend = isend_or_not;
    }
    return next();
}

bool gpusym_peer_alive(gpusym_peer_t *peer)
{
    static bool (*next)(gpusym_peer_t *);

    *(void **) &next = dlsym(RTLD_NEXT, "gpusym_peer_alive");
    return !__atomic_load_n(&dead, __ATOMIC_RELAXED) && next(peer);
}

int gpusym_reg_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const void *p, uint64_t size, uint32_t *key,
                   uint64_t *off)
{
    static int (*next)(const gpusym_device_t *, gpusym_gpu_t *, const void *, uint64_t, uint32_t *, uint64_t *);

    *(void **) &next = dlsym(RTLD_NEXT, "gpusym_reg_get");
    const int rc = next(dev, gpu, p, size, key, off);
    __atomic_fetch_add(&held, GPUSYM_SUCCESS == rc, __ATOMIC_RELAXED);
    return rc;
}

bool gpusym_reg_find(uint64_t id, const void *p, uint64_t size, uint32_t *key, uint64_t *off)
{
    static bool (*next)(uint64_t, const void *, uint64_t, uint32_t *, uint64_t *);

    *(void **) &next = dlsym(RTLD_NEXT, "gpusym_reg_find");
    const bool found = next(id, p, size, key, off);
    __atomic_fetch_add(&held, found, __ATOMIC_RELAXED);
    return found;
}

void gpusym_reg_put(uint32_t key)
{
    static void (*next)(uint32_t);

    *(void **) &next = dlsym(RTLD_NEXT, "gpusym_reg_put");
    next(key);
    __atomic_fetch_sub(&held, 1, __ATOMIC_RELAXED);
}

int gpusym_scratch_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t size, void **p)
{
    static int (*next)(const gpusym_device_t *, gpusym_gpu_t *, uint64_t, void **);

    *(void **) &next = dlsym(RTLD_NEXT, "gpusym_scratch_get");
    const int rc = next(dev, gpu, size, p);
    __atomic_fetch_add(&held, GPUSYM_SUCCESS == rc, __ATOMIC_RELAXED);
    return rc;
}

int gpusym_scratch_get_part(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t size, void **p)
{
    static int (*next)(const gpusym_device_t *, gpusym_gpu_t *, uint64_t, void **);

    *(void **) &next = dlsym(RTLD_NEXT, "gpusym_scratch_get_part");
    const int rc = next(dev, gpu, size, p);
    __atomic_fetch_add(&held, GPUSYM_SUCCESS == rc, __ATOMIC_RELAXED);
    return rc;
}

int gpusym_copy_start_rows(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_copy_rows_t *rows,
                           gpusym_copy_t *copy)
{
    static int (*next)(const gpusym_device_t *, gpusym_gpu_t *, const gpusym_copy_rows_t *, gpusym_copy_t *);

    *(void **) &next = dlsym(RTLD_NEXT, "gpusym_copy_start_rows");
    if (1 == copies_fail) {
        copies_fail = 0;
        return GPUSYM_ERR;
    }
    return next(dev, gpu, rows, copy);
}

int gpusym_copy_poll(gpusym_copy_t *copy)
{
    static int (*next)(gpusym_copy_t *);

    *(void **) &next = dlsym(RTLD_NEXT, "gpusym_copy_poll");
    const int done = next(copy);
    if (1 == done && 2 == copies_fail) {
        copies_fail = 0;
        return GPUSYM_ERR;
    }
    return done;
}

void gpusym_scratch_put(const gpusym_device_t *dev, gpusym_gpu_t *gpu, void *p)
{
    static void (*next)(const gpusym_device_t *, gpusym_gpu_t *, void *);

    *(void **) &next = dlsym(RTLD_NEXT, "gpusym_scratch_put");
    next(dev, gpu, p);
    __atomic_fetch_sub(&held, 1, __ATOMIC_RELAXED);
}

static void refuse(int what, long n)
{
    refuses = NOTHING;
    __atomic_store_n(&refused, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&times, n, __ATOMIC_RELAXED);
    refuses = what;
}

static bool has_refused(long n)
{
    refuses = NOTHING;
    return __atomic_load_n(&refused, __ATOMIC_RELAXED) == n;
}

/* ---- messages ---- */

static char image[LONG];

static void fill(void *buffer, size_t bytes, int seed)
{
    for (size_t i = 0; i < bytes; i++) {
        image[i] = (char) (seed + (int) (i * 7 + i / 256));
    }
    mem_write(buffer, image, bytes);
}

/* Of every `stride` bytes those of a row. */
static bool is_right(const void *buffer, size_t bytes, size_t row, size_t stride, int seed)
{
    mem_read(image, buffer, bytes);
    for (size_t i = 0; i < bytes; i++) {
        if (i % stride < row && image[i] != (char) (seed + (int) (i * 7 + i / 256))) {
            return false;
        }
    }
    return true;
}

static bool say(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "refused: FAIL on rank %d: %s\n", rank, what);
    }
    return good;
}

/* The RTS of a message is refused; then the message is sent again. */
static bool rts_refused(void *buffer, MPI_Datatype type, int count, size_t bytes, size_t row, size_t stride)
{
    bool good = true;

    if (1 == rank) {
        mem_write(buffer, memset(image, 0, bytes), bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Recv(buffer, count, type, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return say(is_right(buffer, bytes, row, stride, 3), "wrong data behind a refused RTS");
    }
    fill(buffer, bytes, 3);
    const long before = held;
    refuse(ALL_RTS, 1);
    good = say(MPI_SUCCESS != MPI_Send(buffer, count, type, 1, TAG, MPI_COMM_WORLD), "no error of a refused RTS");
    good = say(has_refused(1), "the RTS was not refused") && good;
    good = say(before == held, "memory is kept for a message that has failed") && good;
    MPI_Barrier(MPI_COMM_WORLD);
    good = say(MPI_SUCCESS == MPI_Send(buffer, count, type, 1, TAG, MPI_COMM_WORLD), "the message behind") && good;
    return say(before == held, "memory is kept for a message that has ended") && good;
}

/* More messages than there is room to buffer, which nobody receives yet: some complete, the others once they are
 * received. */
static bool room_full(void)
{
    enum { BYTES = 8192, MESSAGES = GPUSYM_PIPELINE_BUFFERS / BYTES + 40 };
    static MPI_Request request[MESSAGES];
    static int which[MESSAGES];
    char *buffer = mem_alloc(MEM_DEVICE, (size_t) MESSAGES * BYTES);
    int flag, some, ended = 0, all = 0;
    bool good = NULL != buffer;

    MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
    for (int i = 0; good && 0 == rank && i < MESSAGES; i++) {
        fill(buffer + (size_t) i * BYTES, BYTES, i);
        MPI_Isend(buffer + (size_t) i * BYTES, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request[i]);
    }
    while (good && 0 == rank && ended < MESSAGES - 40) { /* not always the first: the time that each waits decides */
        MPI_Waitsome(MESSAGES, request, &some, which, MPI_STATUSES_IGNORE);
        ended += some;
    }
    if (good && 0 == rank) {
        MPI_Testall(MESSAGES, request, &all, MPI_STATUSES_IGNORE);
        good = say(!all, "there was room for all");
        for (int i = 0; i < MESSAGES; i++) { /* the buffers are the program's again */
            MPI_Test(&request[i], &flag, MPI_STATUS_IGNORE);
            if (flag) {
                mem_write(buffer + (size_t) i * BYTES, memset(image, 0, BYTES), BYTES);
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Waitall(MESSAGES, request, MPI_STATUSES_IGNORE);
    } else if (1 == rank && NULL != buffer) {
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; good && i < MESSAGES; i++) {
            MPI_Recv(buffer, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            good = say(is_right(buffer, BYTES, 1, 1, i), "wrong data of a buffered message");
        }
    }
    mem_free(MEM_DEVICE, buffer);
    return good;
}

/* Messages of the size of an RTS, until the table of send descriptors is full. Returns how many. */
static unsigned fill_table(int tag)
{
    unsigned n = 0;
    char tiny[TINY] = {0};
    while (gpusym_send_descs_live() < GPUSYM_SEND_DESC_MAX && n < 2 * GPUSYM_SEND_DESC_MAX) {
        memcpy(tiny, &n, sizeof n);
        MPI_Send(tiny, TINY, MPI_BYTE, 1, tag, MPI_COMM_WORLD);
        n++;
    }
    return n;
}

/* So many messages of the size of an RTS that the table of send descriptors is full: data of two more follow theirs,
 * and are refused at first. */
static bool following_refused(void *buffer)
{
    unsigned n = 0;
    bool good = true;
    char tiny[TINY] = {0};

    if (0 == rank) {
        n = fill_table(TAG);
        refuse(ANNOUNCED, TIMES);
        fill(buffer, TINY, 4);
        good = say(MPI_SUCCESS == MPI_Send(buffer, TINY, MPI_BYTE, 1, TAG, MPI_COMM_WORLD), "a send that follows");
        good = say(has_refused(TIMES), "data that follow were not refused as often") && good;
        fill(buffer, TINY, 5);
        MPI_Send(buffer, TINY, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Send(&n, 1, MPI_UNSIGNED, 1, TAG + 1, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        return good;
    }
    MPI_Recv(&n, 1, MPI_UNSIGNED, 0, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (unsigned i = 0; good && i < n; i++) {
        MPI_Recv(tiny, TINY, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        good = say(0 == memcmp(tiny, &i, sizeof i), "messages are not in order");
    }
    for (int seed = 4; good && seed < 6; seed++) {
        MPI_Recv(buffer, TINY, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        good = say(is_right(buffer, TINY, 1, 1, seed), "wrong data of a message whose data follow");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return good;
}

/* Several messages of memory that the peer cannot map. Of the first one the copy into memory that it can map fails: it
 * comes through a pipeline. */
static bool copy_fails(int how)
{
    enum { MESSAGES = 3, BYTES = LONG / MESSAGES };
    MPI_Request request[MESSAGES];
    char *buffer = mem_alloc(MEM_ASYNC, LONG);
    bool good = NULL != buffer;

    MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
    if (good && 0 == rank) {
        const long before = held;
        fill(buffer, LONG, how);
        copies_fail = how;
        for (int i = 0; i < MESSAGES; i++) {
            MPI_Isend(buffer + i * BYTES, BYTES, MPI_BYTE, 1, TAG + 2, MPI_COMM_WORLD, &request[i]);
        }
        good = say(MPI_SUCCESS == MPI_Waitall(MESSAGES, request, MPI_STATUSES_IGNORE), "a send whose copy has failed");
        good = say(0 == copies_fail, "no copy has failed") && good;
        good = say(before == held, "memory is kept for messages that have ended") && good;
    } else if (good) {
        mem_write(buffer, memset(image, 0, LONG), LONG);
        for (int i = 0; i < MESSAGES; i++) {
            MPI_Irecv(buffer + i * BYTES, BYTES, MPI_BYTE, 0, TAG + 2, MPI_COMM_WORLD, &request[i]);
        }
        MPI_Waitall(MESSAGES, request, MPI_STATUSES_IGNORE);
        good = say(is_right(buffer, MESSAGES * BYTES, 1, 1, how), "wrong data behind a copy that failed");
    }
    mem_free(MEM_ASYNC, buffer);
    return good;
}

/* The PML never takes the data, and the receiver dies; it does not, but nobody receives the message. */
static bool receiver_dead(void *buffer)
{
    bool good = true;

    if (0 == rank) {
        (void) fill_table(TAG + 3);
        fill(buffer, TINY, 1);
        refuse(ANNOUNCED, LONG_MAX);
        __atomic_store_n(&dead, true, __ATOMIC_RELAXED);
        good = say(MPI_SUCCESS != MPI_Send(buffer, TINY, MPI_BYTE, 1, TAG + 3, MPI_COMM_WORLD), "sent to the dead");
        __atomic_store_n(&dead, false, __ATOMIC_RELAXED);
        good = say(!has_refused(0), "the PML was not asked") && good;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return good;
}

int main(int argc, char **argv)
{
    check_t t;
    MPI_Datatype rows;

    check_init(&argc, &argv, "refused", MPI_THREAD_SINGLE);
    check_arguments_end(USAGE);
    check_start(&t, "refused", MPI_COMM_WORLD);
    rank = t.rank;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    void *buffer = mem_alloc(MEM_DEVICE, LONG);
    if (NULL == buffer || 2 != t.nranks || NULL == isend) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    MPI_Type_vector(ROWS, ROW, 2 * ROW, MPI_BYTE, &rows);
    MPI_Type_commit(&rows);
    check_result(&t, rts_refused(buffer, MPI_BYTE, LONG, LONG, 1, 1));
    check_result(&t, rts_refused(buffer, rows, 1, (2 * ROWS - 1) * ROW, ROW, 2 * ROW));
    check_result(&t, rts_refused(buffer, MPI_BYTE, TINY, TINY, 1, 1));
    check_result(&t, room_full());
    check_result(&t, following_refused(buffer));
    check_result(&t, receiver_dead(buffer));
    check_result(&t, copy_fails(1)); /* the next messages go through pipelines, too */
    check_result(&t, copy_fails(2));
    MPI_Type_free(&rows);
    mem_free(MEM_DEVICE, buffer);
    const long failed = check_end(&t);
    check_print("refused", t.passed, t.failed);
    return check_fini(failed);
}
