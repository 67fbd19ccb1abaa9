/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: the table of functions that the accelerator component gives to Open MPI 5 and 6, function by function.
 * Open MPI itself calls some of them only in builds with other transports.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/mpi/check.h"

static check_t t;

#if OMPI_MAJOR_VERSION >= 5

#include "opal_config.h"
#include "opal/constants.h"
#include "opal/mca/accelerator/accelerator.h"
#include "opal/mca/accelerator/base/base.h"

#define A opal_accelerator
#define NO_ID MCA_ACCELERATOR_NO_DEVICE_ID
#define ANY MCA_ACCELERATOR_TRANSFER_UNSPEC
#define BYTES ((size_t) 9 << 20) /* a move takes several steps */

static _Alignas(65536) char pattern[BYTES], image[BYTES]; /* whole pages can be pinned */

#define EXPECT(right)                                                                                 \
    do {                                                                                              \
        const bool is_ = (right);                                                                     \
        if (!is_) {                                                                                   \
            fprintf(stderr, "accel_table: FAIL on rank %d, line %d: %s\n", t.rank, __LINE__, #right); \
        }                                                                                             \
        check_result(&t, is_);                                                                        \
    } while (0)

static void pattern_make(uint64_t seed)
{
    for (size_t i = 0; i < BYTES; i++) {
        pattern[i] = (char) ref_mix(seed + i);
    }
}

static void addresses(char *gpu)
{
    static char data[64];
    opal_accelerator_buffer_id_t id = 0, other = 0;
    char frame[64], *heap = malloc(64), *large = malloc(BYTES);
    uint64_t flags = 1;
    void *base = NULL;
    size_t size = 0;
    int dev_id = 5;

    EXPECT(0 == A.check_addr(data, &dev_id, &flags) && NO_ID == dev_id && 0 == flags);
    EXPECT(0 == A.check_addr(frame, &dev_id, &flags));
    EXPECT(0 == A.check_addr(heap, &dev_id, &flags));
    EXPECT(0 == A.check_addr(large, &dev_id, &flags));
    EXPECT(0 == A.check_addr(NULL, &dev_id, &flags));
    EXPECT(1 == A.check_addr(gpu + 1000, &dev_id, &flags) && mem_gpu() == dev_id && 0 == flags);
    EXPECT(OPAL_SUCCESS == A.get_address_range(NO_ID, gpu + 1000, &base, &size));
    EXPECT((char *) base <= gpu && (char *) base + size >= gpu + BYTES);
    EXPECT(OPAL_SUCCESS != A.get_address_range(NO_ID, large, &base, &size));
    EXPECT(OPAL_SUCCESS == A.get_buffer_id(NO_ID, gpu, &id) && 0 != id);
    EXPECT(OPAL_SUCCESS == A.get_buffer_id(NO_ID, gpu + 7, &other) && id == other);
    free(heap);
    free(large);
}

static void copies(char *gpu)
{
    pattern_make(1);
    EXPECT(OPAL_SUCCESS == A.mem_copy(NO_ID, NO_ID, gpu, pattern, BYTES, ANY));
    EXPECT(OPAL_SUCCESS == A.mem_copy(NO_ID, NO_ID, image, gpu, BYTES, ANY));
    EXPECT(0 == memcmp(image, pattern, BYTES));
    EXPECT(OPAL_SUCCESS == A.mem_copy(NO_ID, NO_ID, image, pattern + 1, 100, ANY));
    EXPECT(0 == memcmp(image, pattern + 1, 100));
    EXPECT(OPAL_SUCCESS == A.mem_copy(NO_ID, NO_ID, gpu, gpu, 0, ANY));
}

/* Forwards and backwards, by less than a step and by more; what lies around stays. */
static void moves(char *gpu)
{
    static const size_t by[] = {1, 4096, (size_t) 5 << 20};
    const size_t n = BYTES / 3;

    for (int i = 0; i < 6; i++) {
        const size_t from = 0 == i % 2 ? 0 : by[i / 2], to = 0 == i % 2 ? by[i / 2] : 0;
        pattern_make((uint64_t) i);
        mem_write(gpu, pattern, BYTES);
        EXPECT(OPAL_SUCCESS == A.mem_move(NO_ID, NO_ID, gpu + to, gpu + from, n, ANY));
        memmove(pattern + to, pattern + from, n);
        mem_read(image, gpu, BYTES);
        EXPECT(0 == memcmp(image, pattern, BYTES));
    }
    EXPECT(OPAL_SUCCESS == A.mem_move(NO_ID, NO_ID, pattern + 1, pattern, 1000, ANY));
}

static void allocations(void)
{
    uint64_t flags;
    int dev_id;
    void *p = NULL;

    EXPECT(OPAL_SUCCESS == A.mem_alloc(NO_ID, &p, 1000));
    EXPECT(1 == A.check_addr(p, &dev_id, &flags));
    EXPECT(OPAL_SUCCESS == A.mem_copy(NO_ID, NO_ID, p, pattern, 1000, ANY));
    EXPECT(OPAL_SUCCESS == A.mem_release(NO_ID, p));
    EXPECT(OPAL_SUCCESS == A.mem_release(NO_ID, NULL));
    EXPECT(OPAL_SUCCESS != A.mem_release(NO_ID, image));
    EXPECT(OPAL_SUCCESS == A.host_register(NO_ID, image, 65536));
    EXPECT(0 == A.check_addr(image, &dev_id, &flags));
    EXPECT(OPAL_SUCCESS == A.host_unregister(NO_ID, image));
}

static void gpus(void)
{
    opal_accelerator_pci_attr_t pci;
    int dev_id = -1, access = 0;

    EXPECT(OPAL_SUCCESS == A.get_device(&dev_id) && mem_gpu() == dev_id);
    EXPECT(OPAL_SUCCESS == A.device_can_access_peer(&access, dev_id, dev_id) && 1 == access);
    EXPECT(OPAL_SUCCESS != A.device_can_access_peer(&access, dev_id, 1000) && 0 == access);
    EXPECT(OPAL_SUCCESS != A.get_device_pci_attr(1000, &pci));
}

static int wait_for(opal_accelerator_event_t *event)
{
    int rc;

    while (OPAL_ERR_RESOURCE_BUSY == (rc = A.query_event(NO_ID, event))) {
    }
    return rc;
}

static int create_event(opal_accelerator_event_t **event)
{
#if OMPI_MAJOR_VERSION >= 6
    return A.create_event(NO_ID, event, false);
#else
    return A.create_event(NO_ID, event);
#endif
}

/* Copies are done in order; each event tells of those before it; events outlive their stream. */
static void streams(char *gpu)
{
    opal_accelerator_stream_t *stream = NULL;
    opal_accelerator_event_t *event[3] = {NULL};

    EXPECT(OPAL_SUCCESS == A.create_stream(NO_ID, &stream));
    for (int i = 0; i < 3; i++) {
        EXPECT(OPAL_SUCCESS == create_event(&event[i]));
        EXPECT(OPAL_SUCCESS == A.query_event(NO_ID, event[i]));
    }
    EXPECT(OPAL_SUCCESS == A.record_event(NO_ID, event[0], stream));
    EXPECT(OPAL_SUCCESS == A.query_event(NO_ID, event[0]));
    pattern_make(7);
    memset(image, 0, BYTES);
    EXPECT(OPAL_SUCCESS == A.mem_copy_async(NO_ID, NO_ID, gpu, pattern, BYTES, stream, ANY));
    EXPECT(OPAL_SUCCESS == A.record_event(NO_ID, event[0], stream));
    EXPECT(OPAL_SUCCESS == A.mem_copy_async(NO_ID, NO_ID, gpu, gpu + 4096, 4096, stream, ANY));
    EXPECT(OPAL_SUCCESS == A.mem_copy_async(NO_ID, NO_ID, image, gpu, BYTES, stream, ANY));
    EXPECT(OPAL_SUCCESS == A.record_event(NO_ID, event[1], stream));
    EXPECT(OPAL_SUCCESS == A.mem_copy_async(NO_ID, NO_ID, image + 8192, image, 64, stream, ANY)); /* of the host */
    EXPECT(OPAL_SUCCESS == A.record_event(NO_ID, event[2], stream));
    OBJ_RELEASE(stream);
    for (int i = 0; i < 3; i++) {
        EXPECT(OPAL_SUCCESS == wait_for(event[i]));
        OBJ_RELEASE(event[i]);
    }
    memcpy(pattern, pattern + 4096, 4096);
    memcpy(pattern + 8192, pattern, 64);
    EXPECT(0 == memcmp(image, pattern, BYTES));
}

#if OMPI_MAJOR_VERSION >= 6

static void streams_of_6(char *gpu)
{
    opal_accelerator_stream_t *stream = NULL, *standard = MCA_ACCELERATOR_STREAM_DEFAULT;
    opal_accelerator_event_t *event = NULL;
    void *p = NULL;

    EXPECT(OPAL_SUCCESS == A.create_stream(NO_ID, &stream));
    EXPECT(OPAL_SUCCESS == A.create_event(NO_ID, &event, true));
    EXPECT(OPAL_SUCCESS == A.mem_alloc_stream(NO_ID, &p, 4096, stream));
    EXPECT(OPAL_SUCCESS == A.mem_copy_async(NO_ID, NO_ID, p, pattern, 4096, standard, ANY));
    EXPECT(OPAL_SUCCESS == A.record_event(NO_ID, event, NULL)); /* of the default stream too */
    EXPECT(OPAL_SUCCESS == A.wait_event(NO_ID, event, stream));
    EXPECT(OPAL_SUCCESS == A.mem_copy_async(NO_ID, NO_ID, image, p, 4096, stream, ANY));
    EXPECT(OPAL_SUCCESS == A.mem_release_stream(NO_ID, p, stream));
    EXPECT(0 == memcmp(image, pattern, 4096));
    EXPECT(OPAL_SUCCESS == A.mem_copy_async(NO_ID, NO_ID, gpu, pattern, BYTES, stream, ANY));
    EXPECT(OPAL_SUCCESS == A.mem_move_async(NO_ID, NO_ID, gpu + 1, gpu, 1000, stream, ANY));
    EXPECT(OPAL_SUCCESS == A.sync_stream(stream));
    memmove(pattern + 1, pattern, 1000);
    mem_read(image, gpu, BYTES);
    EXPECT(0 == memcmp(image, pattern, BYTES));
    OBJ_RELEASE(event);
    OBJ_RELEASE(stream);
}

static void gpus_of_6(void)
{
    float gbs = 0;
    int count = 0;

    EXPECT(OPAL_SUCCESS == A.num_devices(&count) && count > mem_gpu());
    EXPECT(OPAL_SUCCESS == A.get_mem_bw(mem_gpu(), &gbs) && gbs > 0);
}

/* Every rank maps its neighbour's memory, reads it and writes to it. */
static void peers(char *gpu)
{
    const int to = (t.rank + 1) % t.nranks, from = (t.rank + t.nranks - 1) % t.nranks;
    opal_accelerator_ipc_handle_t mine, again, theirs;
    uint8_t bytes[IPC_MAX_HANDLE_SIZE];
    opal_accelerator_ipc_event_handle_t event_handle;
    opal_accelerator_event_t *event = NULL, opened;
    void *p = NULL;
    char mark = (char) (t.rank + 1), got = 0;

    EXPECT(A.is_ipc_enabled());
    mem_write(gpu + 10, &mark, 1);
    EXPECT(OPAL_SUCCESS == A.get_ipc_handle(NO_ID, gpu, &mine));
    EXPECT(OPAL_SUCCESS == A.get_ipc_handle(NO_ID, gpu + 100, &again)); /* the same allocation */
    EXPECT(0 == A.compare_ipc_handles(mine.handle, again.handle));
    EXPECT(OPAL_SUCCESS != A.get_ipc_handle(NO_ID, image, &again));
    MPI_Sendrecv(mine.handle, IPC_MAX_HANDLE_SIZE, MPI_BYTE, from, 1, bytes, IPC_MAX_HANDLE_SIZE, MPI_BYTE, to, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT(OPAL_SUCCESS == A.import_ipc_handle(NO_ID, bytes, &theirs));
    EXPECT((to == t.rank) == (0 == A.compare_ipc_handles(mine.handle, theirs.handle)));
    EXPECT(OPAL_SUCCESS == A.open_ipc_handle(NO_ID, &theirs, &p) && NULL != p);
    mem_read(&got, (char *) p + 10, 1);
    EXPECT(to + 1 == got);
    mem_write((char *) p + 20, &mark, 1);
    OBJ_DESTRUCT(&theirs);
    MPI_Barrier(MPI_COMM_WORLD);
    mem_read(&got, gpu + 20, 1);
    EXPECT(from + 1 == got);
    bytes[0] ^= 1; /* another process, which is not there or has no such file */
    EXPECT(OPAL_SUCCESS == A.import_ipc_handle(NO_ID, bytes, &theirs));
    EXPECT(OPAL_SUCCESS != A.open_ipc_handle(NO_ID, &theirs, &p));
    OBJ_DESTRUCT(&theirs);
    OBJ_DESTRUCT(&again);
    OBJ_DESTRUCT(&mine);

    EXPECT(OPAL_SUCCESS == A.create_event(NO_ID, &event, true));
    EXPECT(OPAL_SUCCESS == A.get_ipc_event_handle(event, &event_handle));
    memcpy(bytes, event_handle.handle, sizeof(bytes));
    OBJ_DESTRUCT(&event_handle);
    EXPECT(OPAL_SUCCESS == A.import_ipc_event_handle(bytes, &event_handle));
    EXPECT(OPAL_SUCCESS == A.open_ipc_event_handle(&event_handle, &opened));
    EXPECT(OPAL_SUCCESS == A.query_event(NO_ID, &opened));
    OBJ_DESTRUCT(&opened);
    OBJ_DESTRUCT(&event_handle);
    OBJ_RELEASE(event);
}

static void all_of_6(char *gpu)
{
    streams_of_6(gpu);
    gpus_of_6();
    peers(gpu);
}

#else

static void all_of_6(char *gpu)
{
    (void) gpu;
}

#endif

/* Whether the component under test is the one that Open MPI has taken; one of its own would be another's test. */
static const char *reason(void)
{
    return 0 == strcmp("cuda", opal_accelerator_base_selected_component.base_version.mca_component_name)
               ? NULL
               : "another accelerator component is in use";
}

static void all(void)
{
    char *gpu = mem_alloc(MEM_DEVICE, BYTES);

    addresses(gpu);
    copies(gpu);
    moves(gpu);
    allocations();
    gpus();
    streams(gpu);
    all_of_6(gpu);
    check_collect(&t);
    mem_free(MEM_DEVICE, gpu);
}

#else

static const char *reason(void)
{
    return "this Open MPI has no accelerator components";
}

static void all(void)
{
}

#endif

int main(int argc, char **argv)
{
    const char *why;
    long failed;

    check_init(&argc, &argv, "accel_table", MPI_THREAD_SINGLE);
    check_arguments_end("");
    why = reason();
    if (NULL == why && !mem_have(MEM_DEVICE)) {
        why = "there is no GPU memory";
    }
    if (NULL != why) {
        printf("accel_table: %s\n", why);
        return check_fini(0), CHECK_SKIPPED;
    }
    check_start(&t, "accel_table", MPI_COMM_WORLD);
    all();
    failed = check_end(&t);
    check_print("accel_table", t.passed, t.failed);
    return check_fini(failed);
}
