/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of the simulated GPU, mca/common/gpusym/device/sim.  After every test no mapping
 * and no descriptor may be left.  Processes are forked before the simulator is opened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/plan.h"
#include "mca/common/gpusym/device/sim/sim.h"
#include "test/hang.h"

static const gpusym_device_t *const dev = &gpusym_device_sim;
static gpusym_gpu_t *gpu;

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)

static unsigned descriptors(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (NULL != readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n;
}

static unsigned mappings(void)
{
    unsigned n = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (NULL != fgets(line, sizeof(line), maps)) {
        n += NULL != strstr(line, "gpusym-device");
    }
    fclose(maps);
    return n;
}

static unsigned descriptors_before;

static int prepare(void **state)
{
    (void) state;
    memset(&gpusym_sim_params, 0, sizeof(gpusym_sim_params));
    descriptors_before = descriptors();
    return 0;
}

/* Not every test opens the simulator by this: params come first, and so do forks. */
static void open_sim(void)
{
    OK(dev->open(NULL));
    OK(dev->gpu_open(NULL, &gpu));
}

static int finish(void **state)
{
    (void) state;
    dev->close();
    return 0 == mappings() && descriptors_before == descriptors() ? 0 : -1;
}

static gpusym_mem_kind_t kind_of(const void *p)
{
    gpusym_mem_t mem;
    dev->query(p, &mem);
    assert_int_equal(mem.gpu, GPUSYM_MEM_HOST == mem.kind ? -1 : 0);
    return mem.kind;
}

static void *alloc(size_t size)
{
    void *p = NULL;
    OK(dev->mem_alloc(gpu, size, &p));
    assert_int_equal((uintptr_t) p % 256, 0);
    return p;
}

static void put(void *p, uint32_t value)
{
    OK(dev->copy(gpu, p, &value, sizeof(value)));
}

static uint32_t get(const void *p)
{
    uint32_t value = ~UINT32_C(0);
    OK(dev->copy(gpu, &value, p, sizeof(value)));
    return value;
}

/* Waits for the worker of the stream to end what is queued. */
static void drain(gpusym_stream_t *stream)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    int rc = 0;
    for (unsigned i = 0; i < 1000 * hang_s() && 0 == (rc = dev->stream_poll(stream)); i++) {
        nanosleep(&moment, NULL);
    }
    assert_int_equal(rc, 1);
}

/* ---- open ---- */

static void gpu_of_its_own(void **state)
{
    (void) state;
    gpusym_gpu_t *again;
    gpusym_gpu_info_t info;
    assert_int_equal(dev->gpu_open(NULL, &again), GPUSYM_ERR_NOT_AVAILABLE);
    assert_false(dev->gpu_in_use());
    open_sim();
    OK(dev->open(NULL));
    OK(dev->gpu_open(NULL, &again));
    assert_ptr_equal(gpu, again);
    const gpusym_mem_t owned = {.kind = GPUSYM_MEM_DEVICE, .gpu = 0}, unowned = {.kind = GPUSYM_MEM_HOST, .gpu = -1};
    const gpusym_mem_t other = {.kind = GPUSYM_MEM_DEVICE, .gpu = 1};
    OK(dev->gpu_open(&owned, &again));
    OK(dev->gpu_open(&unowned, &again));
    assert_ptr_equal(gpu, again);
    assert_int_equal(dev->gpu_open(&other, &again), GPUSYM_ERR_BAD_PARAM);
    bool reaches = false;
    int count = 0;
    OK(dev->gpu_count(&count));
    assert_int_equal(count, 1);
    assert_int_equal(dev->gpu_current(), 0);
    assert_true(dev->gpu_in_use());
    OK(dev->gpu_look(0, &info));
    assert_string_equal(info.name, "simulated GPU");
    OK(dev->gpu_reaches(0, 0, &reaches));
    assert_true(reaches);
    assert_int_equal(dev->gpu_look(1, &info), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->gpu_reaches(0, 1, &reaches), GPUSYM_ERR_BAD_PARAM);
    assert_false(reaches);

    dev->gpu_info(gpu, &info);
    assert_string_equal(info.name, "simulated GPU");
    assert_int_equal(info.ordinal, 0);
    assert_int_equal(info.sm_count, 16);
    assert_int_equal(info.cc, 0);
    assert_true(info.bytes > 0);
    assert_true('\0' != info.where[0]);
}

/* The uuid of another process's GPU, whose params are local rank and GPUs. */
static void uuid_elsewhere(int local_rank, int gpus, uint8_t uuid[16])
{
    int pipes[2];
    gpusym_gpu_info_t info;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (0 == child) {
        gpusym_sim_params.local_rank = local_rank;
        gpusym_sim_params.gpus = gpus;
        bool good = GPUSYM_SUCCESS == dev->open(NULL) && GPUSYM_SUCCESS == dev->gpu_open(NULL, &gpu);
        if (good) {
            dev->gpu_info(gpu, &info);
        }
        _exit(good && 16 == write(pipes[1], info.uuid, 16) ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(read(pipes[0], uuid, 16), 16);
    close(pipes[0]);
    close(pipes[1]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void gpus_shared_by_number(void **state)
{
    (void) state;
    uint8_t rank0[16], rank1[16], rank2[16], own[16], owned[16];
    uuid_elsewhere(0, 2, rank0);
    uuid_elsewhere(1, 2, rank1);
    uuid_elsewhere(2, 2, rank2);
    uuid_elsewhere(0, 0, own);
    uuid_elsewhere(0, 0, owned);
    assert_memory_equal(rank0, rank2, 16);
    assert_memory_not_equal(rank0, rank1, 16);
    assert_memory_not_equal(own, owned, 16);
    assert_memory_not_equal(own, rank0, 16);
}

/* ---- memory ---- */

/* What a CPU that reads or writes p is killed by; 0 if it is not. */
static int touch(void *p, bool write_it)
{
    pid_t child = fork();
    if (0 == child) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        volatile char *at = p;
        if (write_it) {
            *at = 1;
        } else {
            (void) *at;
        }
        _exit(0);
    }
    assert_true(child > 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void cpu_faults(void **state)
{
    (void) state;
    open_sim();
    char *p = alloc(100000);
    void *host, *seen, *imported;
    gpusym_handle_t handle;
    assert_int_equal(touch(p, false), SIGSEGV);
    assert_int_equal(touch(p + 99999, true), SIGSEGV);
    OK(dev->mem_export(gpu, p, &handle));
    OK(dev->mem_import(gpu, &handle, &imported));
    assert_int_equal(touch(imported, false), SIGSEGV);
    assert_int_equal(touch(imported, true), SIGSEGV);
    OK(dev->host_alloc(gpu, 64, &host, &seen));
    assert_int_equal(touch(host, true), 0);
    OK(dev->mem_free(gpu, p));
}

/* The driver's memory has pages of its own: one question tells of a whole page (layout.c relies on it). */
static void pages_of_their_own(void **state)
{
    (void) state;
    const uintptr_t page = (uintptr_t) sysconf(_SC_PAGESIZE);
    void *pinned, *seen, *managed, *plain[64];
    open_sim();
    for (unsigned i = 0; i < 32; i++) {
        assert_non_null(plain[i] = malloc(100));
    }
    OK(dev->host_alloc(gpu, 100, &pinned, &seen));
    OK(gpusym_sim_managed_alloc(100, &managed));
    for (unsigned i = 32; i < 64; i++) {
        assert_non_null(plain[i] = malloc(100));
    }
    assert_true((uintptr_t) pinned / page != (uintptr_t) managed / page);
    for (unsigned i = 0; i < 64; i++) {
        for (uintptr_t at = (uintptr_t) plain[i]; at < (uintptr_t) plain[i] + 100; at += 99) {
            assert_true(at / page != (uintptr_t) pinned / page && at / page != (uintptr_t) managed / page);
        }
        free(plain[i]);
    }
    OK(gpusym_sim_managed_free(managed));
    OK(dev->host_free(gpu, pinned));
}

static void kinds_of_memory(void **state)
{
    (void) state;
    int local = 0;
    open_sim();
    char *p = alloc(5000), *q = alloc(1);
    char *host, *seen, *managed;
    OK(dev->host_alloc(gpu, 100, (void **) &host, (void **) &seen));
    OK(gpusym_sim_managed_alloc(100, (void **) &managed));
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(host[i] | managed[i], 0);
    }
    assert_int_equal(kind_of(p), GPUSYM_MEM_DEVICE);
    assert_int_equal(kind_of(p + 4999), GPUSYM_MEM_DEVICE);
    assert_int_equal(kind_of(p + 5000), GPUSYM_MEM_HOST);
    assert_int_equal(kind_of(p - 1), GPUSYM_MEM_HOST);
    assert_int_equal(kind_of(q), GPUSYM_MEM_DEVICE);
    assert_int_equal(kind_of(host + 99), GPUSYM_MEM_REGISTERED);
    assert_int_equal(kind_of(seen), GPUSYM_MEM_REGISTERED);
    assert_int_equal(kind_of(managed + 99), GPUSYM_MEM_MANAGED);
    assert_int_equal(kind_of(managed + 100), GPUSYM_MEM_HOST);
    assert_int_equal(kind_of(&local), GPUSYM_MEM_HOST);
    assert_int_equal(kind_of(NULL), GPUSYM_MEM_HOST);

    OK(dev->mem_free(gpu, p));
    OK(dev->host_free(gpu, host));
    OK(gpusym_sim_managed_free(managed));
    assert_int_equal(kind_of(p), GPUSYM_MEM_HOST);
    assert_int_equal(kind_of(host), GPUSYM_MEM_HOST);
    assert_int_equal(kind_of(managed), GPUSYM_MEM_HOST);
    assert_int_equal(kind_of(q), GPUSYM_MEM_DEVICE);
}

/* Memory of the program's own is pinned while it is registered, and stays its own. */
static void host_memory_is_registered(void **state)
{
    void *seen = NULL, *page = NULL;
    (void) state;
    open_sim();
    const size_t size = (size_t) sysconf(_SC_PAGESIZE) * 2;
    assert_int_equal(posix_memalign(&page, size, size), 0);
    char *host = page;
    assert_int_equal(dev->host_register(gpu, host + 1, size, &seen), GPUSYM_ERR_BAD_PARAM);
    OK(dev->host_register(gpu, host, size, &seen));
    assert_ptr_equal(seen, host);
    assert_int_equal(kind_of(host + size - 1), GPUSYM_MEM_REGISTERED);
    assert_int_equal(dev->host_free(gpu, host), GPUSYM_ERR_BAD_PARAM);
    OK(dev->host_unregister(gpu, host));
    assert_int_equal(kind_of(host), GPUSYM_MEM_HOST);
    assert_int_equal(dev->host_unregister(gpu, host), GPUSYM_ERR_BAD_PARAM);
    free(page);
}

static void any_pointer_is_device(void **state)
{
    (void) state;
    int local = 0;
    void *host, *seen;
    gpusym_sim_params.host = true;
    open_sim();
    assert_int_equal(kind_of(&local), GPUSYM_MEM_DEVICE);
    assert_int_equal(kind_of(alloc(8)), GPUSYM_MEM_DEVICE);
    OK(dev->host_alloc(gpu, 8, &host, &seen));
    assert_int_equal(kind_of(host), GPUSYM_MEM_DEVICE);
    assert_int_equal(kind_of(NULL), GPUSYM_MEM_HOST);
    local = 5;
    OK(dev->mem_zero(gpu, &local, sizeof(local)));
    assert_int_equal(local, 0);
    dev->close();
    assert_int_equal(kind_of(&local), GPUSYM_MEM_HOST);
}

/* Fails unless p lies in the allocation of size bytes at base; returns its id. */
static uint64_t range_id(const void *p, const void *base, size_t size, bool shareable)
{
    gpusym_range_t range;
    memset(&range, 0xff, sizeof(range));
    OK(dev->mem_range(p, &range));
    assert_ptr_equal(range.base, base);
    assert_int_equal(range.size, size);
    assert_int_equal(range.shareable, shareable);
    return range.id;
}

static void ranges_of_memory(void **state)
{
    (void) state;
    gpusym_range_t range;
    gpusym_handle_t handle;
    void *host, *seen, *managed, *imported;
    char local;
    open_sim();
    char *p = alloc(5000), *q = alloc(1);
    OK(dev->host_alloc(gpu, 100, &host, &seen));
    OK(gpusym_sim_managed_alloc(100, &managed));
    OK(dev->mem_export(gpu, p, &handle));
    OK(dev->mem_import(gpu, &handle, &imported));
    const uint64_t ids[] = {range_id(p, p, 5000, true), range_id(q, q, 1, true), range_id(host, host, 100, false),
                            range_id(managed, managed, 100, false), range_id(imported, imported, 5000, false)};
    for (unsigned i = 0; i < 5; i++) {
        for (unsigned k = 0; k < i; k++) {
            assert_true(ids[i] != ids[k]);
        }
    }
    assert_true(ids[0] == range_id(p + 4999, p, 5000, true));
    assert_int_equal(dev->mem_range(p + 5000, &range), GPUSYM_ERR_NOT_AVAILABLE);
    assert_int_equal(dev->mem_range(&local, &range), GPUSYM_ERR_NOT_AVAILABLE);
    assert_int_equal(dev->mem_range(NULL, &range), GPUSYM_ERR_NOT_AVAILABLE);
    OK(dev->mem_free(gpu, p));
    assert_int_equal(dev->mem_range(p, &range), GPUSYM_ERR_NOT_AVAILABLE);
}

/* What an allocation was called, none is called again: at the same address or another, nor after close(). */
static void ranges_have_an_id_once(void **state)
{
    (void) state;
    enum { N = 200 };
    uint64_t before = 0;
    unsigned same = 0;
    char *last = NULL;
    for (unsigned i = 0; i < N; i++) {
        open_sim();
        char *p = alloc(100000);
        same += p == last;
        last = p;
        const uint64_t id = range_id(p, p, 100000, true);
        assert_true(id > before);
        before = id;
        OK(dev->mem_free(gpu, p));
        if (0 == i % 50) {
            dev->close();
        }
    }
    print_message("%u of %u allocations had the address of the one before\n", same, (unsigned) N);
}

/* Of memory that is only taken for the GPU's nothing is known. */
static void ranges_of_any_pointer(void **state)
{
    (void) state;
    gpusym_range_t range;
    char local;
    gpusym_sim_params.host = true;
    open_sim();
    char *p = alloc(8);
    assert_int_equal(dev->mem_range(&local, &range), GPUSYM_ERR_NOT_AVAILABLE);
    range_id(p, p, 8, true);
}

static void frees_what_it_gave(void **state)
{
    (void) state;
    open_sim();
    char *p = alloc(5000);
    void *host, *seen, *none = NULL;
    OK(dev->host_alloc(gpu, 10, &host, &seen));
    assert_int_equal(dev->mem_free(gpu, p + 1), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mem_free(gpu, host), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mem_free(gpu, NULL), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mem_unimport(gpu, p), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->host_free(gpu, p), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_sim_managed_free(host), GPUSYM_ERR_BAD_PARAM);
    OK(dev->mem_free(gpu, p));
    assert_int_equal(dev->mem_free(gpu, p), GPUSYM_ERR_BAD_PARAM);
    OK(dev->host_free(gpu, host));
    assert_int_equal(dev->host_free(gpu, host), GPUSYM_ERR_BAD_PARAM);

    assert_int_equal(dev->mem_alloc(gpu, 0, &none), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mem_alloc(gpu, SIZE_MAX, &none), GPUSYM_ERR_NO_MEMORY);
    assert_int_equal(dev->host_alloc(gpu, SIZE_MAX, &none, &none), GPUSYM_ERR_NO_MEMORY);
    assert_int_equal(gpusym_sim_managed_alloc(0, &none), GPUSYM_ERR_BAD_PARAM);
    assert_null(none);
}

/* The GPU's memory is finite, and what is freed can be had again. */
static void memory_ends(void **state)
{
    (void) state;
    gpusym_gpu_info_t info;
    void *most = NULL, *more = NULL;
    open_sim();
    dev->gpu_info(gpu, &info);
    for (unsigned round = 0; round < 3; round++) {
        OK(dev->mem_alloc(gpu, (size_t) info.bytes - 4096, &most)); /* untouched, so it costs nothing */
        assert_int_equal(dev->mem_alloc(gpu, 8192, &more), GPUSYM_ERR_NO_MEMORY);
        assert_null(more);
        OK(dev->mem_free(gpu, most));
    }
}

static void copies_and_zeroes(void **state)
{
    (void) state;
    enum { SIZE = 70001 };
    open_sim();
    uint8_t *from = malloc(SIZE), *to = malloc(SIZE);
    assert_true(NULL != from && NULL != to);
    for (unsigned i = 0; i < SIZE; i++) {
        from[i] = (uint8_t) (i * 7 + i / 256 + 1);
    }
    char *p = alloc(SIZE), *q = alloc(SIZE);
    OK(dev->copy(gpu, p, from, SIZE));
    OK(dev->copy(gpu, q + 3, p + 1, SIZE - 3));
    OK(dev->copy(gpu, to, q + 3, SIZE - 3));
    assert_memory_equal(to, from + 1, SIZE - 3);
    OK(dev->copy(gpu, to, p, SIZE)); /* the source is what it was */
    assert_memory_equal(to, from, SIZE);

    OK(dev->mem_zero(gpu, p + 1, SIZE - 2));
    OK(dev->copy(gpu, to, p, SIZE));
    assert_int_equal(to[0], from[0]);
    assert_int_equal(to[SIZE - 1], from[SIZE - 1]);
    for (unsigned i = 1; i < SIZE - 1; i++) {
        assert_int_equal(to[i], 0);
    }
    memset(to, 9, 4);
    OK(dev->copy(gpu, to, from, 2)); /* host to host */
    assert_memory_equal(to, ((uint8_t[]){from[0], from[1], 9, 9}), 4);
    free(from);
    free(to);
}

static void fresh_memory_is_its_own(void **state)
{
    (void) state;
    open_sim();
    char *p = alloc(8), *q = alloc(8);
    put(p, 1);
    put(q, 2);
    assert_int_equal(get(p), 1);
    assert_int_equal(get(q), 2);
}

static void past_the_end_is_an_error(void **state)
{
    (void) state;
    char local[64] = {0};
    open_sim();
    char *p = alloc(50);
    assert_int_equal(dev->copy(gpu, p, local, 51), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->copy(gpu, local, p + 49, 2), GPUSYM_ERR_BAD_PARAM);
    assert_non_null(strstr(dev->error(), "past the end"));
    assert_int_equal(dev->mem_zero(gpu, p + 1, 50), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mem_zero(gpu, local, 1), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->copy(gpu, p, NULL, 1), GPUSYM_ERR_BAD_PARAM);
    OK(dev->copy(gpu, p, local, 50));
    OK(dev->copy(gpu, p + 50, local, 0));
}

static void *hammer(void *seed)
{
    uintptr_t fails = 0;
    for (unsigned i = 0; i < 200; i++) {
        void *p[8] = {NULL};
        for (uint32_t j = 0; j < 8; j++) {
            uint32_t value = (uint32_t) (uintptr_t) seed + 8 * i + j;
            fails += GPUSYM_SUCCESS != dev->mem_alloc(gpu, 1 + 1000 * j, &p[j]);
            fails += GPUSYM_SUCCESS != dev->copy(gpu, p[j], &value, 1);
        }
        for (uint32_t j = 0; j < 8; j++) {
            gpusym_mem_t mem;
            uint8_t value = 0;
            dev->query(p[j], &mem);
            fails += GPUSYM_MEM_DEVICE != mem.kind;
            fails += GPUSYM_SUCCESS != dev->copy(gpu, &value, p[j], 1);
            fails += (uint8_t) ((uintptr_t) seed + 8 * i + j) != value;
            fails += GPUSYM_SUCCESS != dev->mem_free(gpu, p[j]);
        }
    }
    return (void *) fails;
}

static void many_threads(void **state)
{
    (void) state;
    pthread_t thread[4];
    open_sim();
    for (uintptr_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, hammer, (void *) (i * 50)), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        void *fails;
        assert_int_equal(pthread_join(thread[i], &fails), 0);
        assert_null(fails);
    }
    assert_int_equal(mappings(), 0);
}

/* ---- peers ---- */

static void imports_its_own(void **state)
{
    (void) state;
    gpusym_handle_t handle;
    void *first, *second;
    open_sim();
    char *p = alloc(10000);
    put(p + 8, 11);
    OK(dev->mem_export(gpu, p, &handle));
    OK(dev->mem_import(gpu, &handle, &first));
    OK(dev->mem_import(gpu, &handle, &second));
    assert_ptr_not_equal(first, p);
    assert_ptr_not_equal(first, second);
    assert_int_equal(kind_of(first), GPUSYM_MEM_DEVICE);
    assert_int_equal(get((char *) first + 8), 11);
    put((char *) second + 9996, 12);
    assert_int_equal(get(p + 9996), 12);
    assert_int_equal(dev->copy(gpu, (char *) first + 9999, &handle, 2), GPUSYM_ERR_BAD_PARAM);
    OK(dev->mem_unimport(gpu, second));
    assert_int_equal(kind_of(second), GPUSYM_MEM_HOST);
    OK(dev->mem_free(gpu, p)); /* the import still holds the memory */
    assert_int_equal(get((char *) first + 9996), 12);
    OK(dev->mem_unimport(gpu, first));
    assert_int_equal(dev->mem_unimport(gpu, first), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mem_import(gpu, &handle, &first), GPUSYM_ERR_UNREACHABLE);
}

/* More than 32 bits count, untouched but for its ends. */
static void imports_gigabytes(void **state)
{
    (void) state;
    const size_t size = ((size_t) 9 << 30) / 2 + 12345 * 4;
    gpusym_gpu_info_t info;
    gpusym_handle_t handle;
    void *there;
    open_sim();
    dev->gpu_info(gpu, &info);
    if (info.bytes < size) {
        skip();
    }
    char *p = alloc(size);
    put(p, 4);
    put(p + size - 4, 5);
    range_id(p + size - 1, p, size, true);
    OK(dev->mem_export(gpu, p, &handle));
    OK(dev->mem_import(gpu, &handle, &there));
    assert_int_equal(get(there), 4);
    assert_int_equal(get((char *) there + size - 4), 5);
    range_id((char *) there + size - 1, there, size, false);
    OK(dev->mem_unimport(gpu, there));
}

/* Memory that peers map by a descriptor: it can be had until the naming ends, freed or not; then what is mapped
 * stays. */
static void descriptors_name_memory(void **state)
{
    (void) state;
    gpusym_handle_t handle, other, wrong;
    void *p = NULL, *first, *second;
    gpusym_mem_t mem;
    gpusym_range_t range;
    open_sim();
    OK(gpusym_sim_vmm_alloc(10000, &p));
    put(p, 11);
    dev->query((char *) p + 9999, &mem);
    assert_true(GPUSYM_MEM_DEVICE == mem.kind && 0 == mem.gpu && 0 == mem.id);
    range_id((char *) p + 9999, p, 10000, true);
    assert_int_equal(dev->mem_free(gpu, p), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mem_export(gpu, (char *) p + 1, &handle), GPUSYM_ERR_BAD_PARAM);
    const unsigned before = descriptors();
    OK(dev->mem_export(gpu, p, &handle));
    OK(dev->mem_export(gpu, p, &other));
    assert_int_equal(descriptors(), before + 2);
    OK(dev->mem_import(gpu, &handle, &first));
    OK(gpusym_sim_vmm_free(p));
    assert_int_equal(gpusym_sim_vmm_free(p), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mem_range(p, &range), GPUSYM_ERR_NOT_AVAILABLE);
    OK(dev->mem_import(gpu, &handle, &second));
    put((char *) first + 9996, 12);
    assert_int_equal(get((char *) second + 9996), 12);
    assert_int_equal(get(second), 11);
    OK(dev->mem_unexport(gpu, &handle));
    assert_int_equal(dev->mem_import(gpu, &handle, &p), GPUSYM_ERR_UNREACHABLE);
    assert_int_equal(dev->mem_unexport(gpu, &handle), GPUSYM_ERR_BAD_PARAM);
    OK(dev->mem_unimport(gpu, second));
    OK(dev->mem_import(gpu, &other, &second));
    OK(dev->mem_unexport(gpu, &other));
    assert_int_equal(get(first), 11);
    assert_int_equal(descriptors(), before - 1);
    memset(&wrong, 0, sizeof(wrong));
    assert_int_equal(dev->mem_unexport(gpu, &wrong), GPUSYM_ERR_BAD_PARAM);
    OK(dev->mem_export(gpu, alloc(100), &handle)); /* nothing is held for that */
    OK(dev->mem_unexport(gpu, &handle));
    OK(dev->mem_import(gpu, &handle, &first));
    assert_int_equal(gpusym_sim_vmm_alloc(0, &p), GPUSYM_ERR_BAD_PARAM);
}

/* Memory that no peer can map. */
static void pools_are_not_exported(void **state)
{
    (void) state;
    gpusym_handle_t handle;
    void *p = NULL;
    gpusym_mem_t mem;
    open_sim();
    OK(gpusym_sim_pool_alloc(10000, &p));
    put((char *) p + 9996, 13);
    assert_int_equal(get((char *) p + 9996), 13);
    dev->query((char *) p + 9999, &mem);
    assert_true(GPUSYM_MEM_DEVICE == mem.kind && 0 == mem.gpu && 0 == mem.id);
    range_id((char *) p + 9999, p, 10000, false);
    assert_int_equal(dev->mem_export(gpu, p, &handle), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mem_free(gpu, p), GPUSYM_ERR_BAD_PARAM);
    OK(gpusym_sim_pool_free(p));
    assert_int_equal(gpusym_sim_pool_free(p), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_sim_pool_alloc(0, &p), GPUSYM_ERR_BAD_PARAM);
}

static void exports_only_allocations(void **state)
{
    (void) state;
    gpusym_handle_t handle;
    void *host, *seen, *imported;
    open_sim();
    char *p = alloc(64);
    OK(dev->host_alloc(gpu, 64, &host, &seen));
    assert_int_equal(dev->mem_export(gpu, p + 1, &handle), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mem_export(gpu, host, &handle), GPUSYM_ERR_BAD_PARAM);
    OK(dev->mem_export(gpu, p, &handle));
    OK(dev->mem_import(gpu, &handle, &imported));
    assert_int_equal(dev->mem_export(gpu, imported, &handle), GPUSYM_ERR_BAD_PARAM);
}

/* Other users cannot open the memory, and programs that are started do not inherit it. */
static void memory_is_the_users_own(void **state)
{
    (void) state;
    char path[300], target[64];
    unsigned found = 0;
    struct stat st;
    open_sim();
    alloc(4096);
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); NULL != entry; entry = readdir(dir)) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        if (NULL != strstr(target, "gpusym-device")) {
            int fd = atoi(entry->d_name);
            assert_int_equal(fstat(fd, &st), 0);
            assert_int_equal(st.st_mode & 07777, 0600);
            assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
            assert_int_not_equal(ftruncate(fd, 0), 0); /* a peer's mapping stays whole */
            found++;
        }
    }
    closedir(dir);
    assert_int_equal(found, 1);
}

/* Every byte of a handle counts: a changed one leads to no memory, or to another allocation's refusal. */
static void wrong_handles_are_refused(void **state)
{
    (void) state;
    gpusym_handle_t handle, twin, wrong;
    void *p;
    unsigned char used = 0;
    open_sim();
    OK(dev->mem_export(gpu, alloc(4096), &handle));
    OK(dev->mem_export(gpu, alloc(4096), &twin));
    for (unsigned i = 0; i < sizeof(handle.bytes); i++) {
        if (handle.bytes[i] == twin.bytes[i] && 0 == handle.bytes[i]) {
            continue; /* unused, or a part that changing makes huge */
        }
        wrong = handle;
        wrong.bytes[i] ^= 0x41;
        assert_int_not_equal(dev->mem_import(gpu, &wrong, &p), GPUSYM_SUCCESS);
        used++;
    }
    assert_true(used > 20);
    memset(&wrong, 0, sizeof(wrong));
    assert_int_equal(dev->mem_import(gpu, &wrong, &p), GPUSYM_ERR_BAD_PARAM);
    /* the same size of another allocation's descriptor, as in another container with the same numbers */
    OK(dev->mem_import(gpu, &handle, &p));
    OK(dev->mem_import(gpu, &twin, &p));
    size_t differ = 0;
    for (unsigned i = sizeof(handle.bytes); i-- > 0;) {
        if (handle.bytes[i] != twin.bytes[i]) {
            differ = i; /* the last part that differs is the descriptor */
            break;
        }
    }
    wrong = handle;
    wrong.bytes[differ] = twin.bytes[differ];
    assert_int_equal(dev->mem_import(gpu, &wrong, &p), GPUSYM_ERR_UNREACHABLE);
}

/* A child process with pipes: it gets from the parent by in, and answers by out. */
struct peer {
    pid_t pid;
    int to, from;
};

static struct peer spawn(int (*work)(int in, int out))
{
    int down[2], up[2];
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (0 == pid) {
        close(down[1]);
        close(up[0]);
        alarm(hang_s());
        _exit(work(down[0], up[1]));
    }
    assert_true(pid > 0);
    close(down[0]);
    close(up[1]);
    return (struct peer){.pid = pid, .to = down[1], .from = up[0]};
}

/* Its exit status: 0, or the line of work() that failed. */
static void join(struct peer peer)
{
    int status;
    close(peer.to);
    close(peer.from);
    assert_int_equal(waitpid(peer.pid, &status, 0), peer.pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static bool say(int fd, const void *what, size_t size)
{
    return (ssize_t) size == write(fd, what, size);
}

static bool hear(int fd, void *what, size_t size)
{
    return (ssize_t) size == read(fd, what, size);
}

/* In a child: ends work() with the line where a condition does not hold. */
#define CHILD(condition)               \
    do {                               \
        if (!(condition)) {            \
            return __LINE__ % 255 + 1; \
        }                              \
    } while (0)

/* Imports what the parent exports, adds one to its first word, and writes a pattern by a stream to its end. */
static int import_in_child(int in, int out)
{
    gpusym_handle_t handle;
    gpusym_stream_t *stream;
    void *p = NULL;
    uint32_t value = 0, pattern[4] = {1, 2, 3, 4};
    CHILD(hear(in, &handle, sizeof(handle)));
    CHILD(GPUSYM_SUCCESS == dev->open(NULL) && GPUSYM_SUCCESS == dev->gpu_open(NULL, &gpu));
    CHILD(GPUSYM_SUCCESS == dev->mem_import(gpu, &handle, &p));
    gpusym_mem_t mem;
    dev->query(p, &mem);
    CHILD(GPUSYM_MEM_DEVICE == mem.kind);
    CHILD(GPUSYM_SUCCESS == dev->copy(gpu, &value, p, sizeof(value)));
    CHILD(41 == value);
    value++;
    CHILD(GPUSYM_SUCCESS == dev->copy(gpu, p, &value, sizeof(value)));
    CHILD(GPUSYM_SUCCESS == dev->stream_create(gpu, &stream));
    CHILD(GPUSYM_SUCCESS == dev->copy_async(stream, (char *) p + 100000 - sizeof(pattern), pattern, sizeof(pattern)));
    dev->stream_destroy(stream);
    CHILD(say(out, "w", 1));
    /* the parent frees its memory now; ours stays */
    char byte;
    CHILD(hear(in, &byte, 1));
    CHILD(GPUSYM_SUCCESS == dev->copy(gpu, &value, p, sizeof(value)));
    CHILD(43 == value);
    CHILD(GPUSYM_SUCCESS == dev->mem_unimport(gpu, p));
    CHILD(GPUSYM_ERR_UNREACHABLE == dev->mem_import(gpu, &handle, &p));
    CHILD(GPUSYM_ERR_BAD_PARAM == dev->mem_unimport(gpu, p));
    dev->close();
    CHILD(0 == mappings());
    return 0;
}

static void imports_from_a_process(void **state)
{
    (void) state;
    gpusym_handle_t handle;
    uint32_t pattern[4];
    char byte;
    struct peer peer = spawn(import_in_child);
    open_sim();
    char *p = alloc(100000);
    put(p, 41);
    OK(dev->mem_export(gpu, p, &handle));
    assert_true(say(peer.to, &handle, sizeof(handle)));
    assert_true(hear(peer.from, &byte, 1));
    assert_int_equal(get(p), 42);
    OK(dev->copy(gpu, pattern, p + 100000 - sizeof(pattern), sizeof(pattern)));
    assert_memory_equal(pattern, ((uint32_t[]){1, 2, 3, 4}), sizeof(pattern));
    put(p, 43);
    OK(dev->mem_free(gpu, p));
    assert_true(say(peer.to, "f", 1));
    join(peer);
}

/* Exports, and waits for the parent's word to end. */
static int export_in_child(int in, int out)
{
    gpusym_handle_t handle;
    void *p;
    char byte;
    CHILD(GPUSYM_SUCCESS == dev->open(NULL) && GPUSYM_SUCCESS == dev->gpu_open(NULL, &gpu));
    CHILD(GPUSYM_SUCCESS == dev->mem_alloc(gpu, 4096, &p));
    CHILD(GPUSYM_SUCCESS == dev->mem_export(gpu, p, &handle));
    CHILD(say(out, &handle, sizeof(handle)));
    CHILD(hear(in, &byte, 1));
    return 0; /* without a word to anyone: as if killed */
}

static void a_dead_peer_cannot_be_reached(void **state)
{
    (void) state;
    gpusym_handle_t handle;
    void *p, *again;
    struct peer peer = spawn(export_in_child);
    open_sim();
    assert_true(hear(peer.from, &handle, sizeof(handle)));
    OK(dev->mem_import(gpu, &handle, &p));
    assert_true(say(peer.to, "x", 1));
    join(peer);
    put(p, 5); /* its memory lives as long as we use it */
    assert_int_equal(get(p), 5);
    assert_int_equal(dev->mem_import(gpu, &handle, &again), GPUSYM_ERR_UNREACHABLE);
    assert_non_null(strstr(dev->error(), "ended"));
}

/* ---- streams ---- */

static void streams_keep_order(void **state)
{
    (void) state;
    enum { N = 3000 };
    gpusym_stream_t *stream, *other;
    static uint32_t values[N], last[N];
    open_sim();
    OK(dev->stream_create(gpu, &stream));
    OK(dev->stream_create(gpu, &other));
    assert_int_equal(dev->stream_poll(stream), 1); /* nothing queued yet */
    char *p = alloc(sizeof(uint32_t)), *log = alloc(sizeof(last));
    for (uint32_t i = 0; i < N; i++) {
        values[i] = 1000 + i;
        OK(dev->copy_async(stream, p, &values[i], sizeof(values[i])));
        OK(dev->copy_async(stream, log + sizeof(last[0]) * i, p, sizeof(last[0]))); /* needs the one before */
    }
    drain(stream);
    assert_int_equal(get(p), 1000 + N - 1);
    OK(dev->copy_async(other, last, log, sizeof(last)));
    drain(other);
    assert_memory_equal(last, values, sizeof(values));
    assert_int_equal(dev->stream_poll(stream), 1);
    dev->stream_destroy(stream);
}

/* Rows of one layout into another, by a stream, against loops. */
static void copies_rows(void **state)
{
    (void) state;
    enum { ROOM = 4000 };
    static uint8_t from[ROOM], to[ROOM], got[ROOM];
    gpusym_stream_t *stream;
    open_sim();
    OK(dev->stream_create(gpu, &stream));
    char *src = alloc(ROOM), *dst = alloc(ROOM);
    for (unsigned i = 0; i < ROOM; i++) {
        from[i] = (uint8_t) (i * 7 + i / 256);
    }
    OK(dev->copy(gpu, src, from, ROOM));
    for (size_t width = 1; width < 40; width += 1 + width / 4) {
        for (size_t rows = 1; rows <= 30; rows += 7) {
            const size_t spitch = width + rows % 5, dpitch = width + width % 3, at = width % 16;
            memset(to, 0, ROOM);
            OK(dev->mem_zero(gpu, dst, ROOM));
            for (size_t row = 0; row < rows; row++) {
                memcpy(to + at + row * dpitch, from + 3 + row * spitch, width);
            }
            OK(dev->copy2d_async(stream, dst + at, dpitch, src + 3, spitch, width, rows));
            drain(stream);
            OK(dev->copy(gpu, got, dst, ROOM));
            assert_memory_equal(got, to, ROOM);
        }
    }
}

static void copies_rows_it_can(void **state)
{
    (void) state;
    enum { SIZE = 1000 };
    gpusym_stream_t *stream;
    char local[SIZE];
    open_sim();
    OK(dev->stream_create(gpu, &stream));
    char *src = alloc(SIZE), *dst = alloc(SIZE);
    OK(dev->copy2d_async(stream, dst, 100, src, 100, 100, 10)); /* to the last byte */
    OK(dev->copy2d_async(stream, dst, 110, src, 999, 1, 2));
    OK(dev->copy2d_async(stream, dst, 0, src, 0, SIZE, 1)); /* one row has no pitch */
    OK(dev->copy2d_async(stream, local, 1, local, 1, 0, 9));
    OK(dev->copy2d_async(stream, local, 1, local, 1, 9, 0));
#define REFUSED(...) assert_int_equal(dev->copy2d_async(stream, __VA_ARGS__), GPUSYM_ERR_BAD_PARAM)
    REFUSED(dst, 100, src, 101, 100, 10); /* past the end */
    REFUSED(dst + 1, 100, src, 100, 100, 10);
    REFUSED(dst, 99, src, 100, 100, 2);
    REFUSED(dst, 100, src, 99, 100, 2);
    REFUSED(dst, SIZE_MAX, src, 1, 1, 3);
    REFUSED(dst, SIZE_MAX / 2, src, SIZE_MAX / 2, 100, 3);
    REFUSED(dst, 8, src, 8, 8, SIZE_MAX);
    REFUSED(local, 8, src, 8, 4, 2); /* the CPU's own memory */
    REFUSED(dst, 8, local, 8, 4, 2);
#undef REFUSED
    drain(stream);
    dev->close();
    gpusym_sim_params.host = true;
    open_sim();
    OK(dev->stream_create(gpu, &stream));
    memset(local, 1, SIZE);
    memset(local, 2, 16);
    OK(dev->copy2d_async(stream, local + 100, 16, local, 8, 4, 2)); /* taken for the GPU's */
    drain(stream);
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(local[100 + i], i < 32 && i % 16 < 4 ? 2 : 1);
    }
}

static void destroy_and_close_finish_the_queue(void **state)
{
    (void) state;
    enum { N = 200, SIZE = 1 << 16 };
    gpusym_stream_t *stream, *left;
    void *host, *seen;
    uint32_t one = 1, two = 2;
    open_sim();
    char *p = alloc(SIZE), *q = alloc(SIZE);
    OK(dev->stream_create(gpu, &stream));
    for (unsigned i = 0; i < N; i++) {
        OK(dev->copy_async(stream, q, p, SIZE));
    }
    OK(dev->copy_async(stream, q, &one, sizeof(one)));
    dev->stream_destroy(stream);
    assert_int_equal(get(q), 1);

    OK(dev->host_alloc(gpu, sizeof(uint32_t), &host, &seen));
    OK(dev->stream_create(gpu, &left));
    static uint32_t outside;
    outside = 0;
    OK(dev->copy_async(left, q, p, SIZE));
    OK(dev->copy_async(left, seen, &two, sizeof(two)));
    OK(dev->copy_async(left, &outside, seen, sizeof(outside)));
    dev->close();
    assert_int_equal(outside, 2);
}

/* A free under queued work does as on a GPU: the work has the memory it was given. */
static void queued_work_keeps_its_memory(void **state)
{
    (void) state;
    enum { N = 400, SIZE = 1 << 16 };
    gpusym_stream_t *stream;
    void *host, *seen;
    open_sim();
    char *to = alloc(SIZE);
    OK(dev->stream_create(gpu, &stream));
    char *from = alloc(SIZE), *busy = alloc(SIZE);
    OK(dev->host_alloc(gpu, 4, &host, &seen));
    *(uint32_t *) host = 78;
    put(from + SIZE - 4, 77);
    for (unsigned i = 0; i < N; i++) {
        OK(dev->copy_async(stream, busy, to, SIZE));
    }
    OK(dev->copy_async(stream, to, from, SIZE));
    OK(dev->copy_async(stream, to, seen, 4));
    OK(dev->mem_free(gpu, from));
    OK(dev->mem_free(gpu, busy));
    OK(dev->host_free(gpu, host));
    assert_int_equal(kind_of(from), GPUSYM_MEM_HOST);
    drain(stream);
    assert_int_equal(get(to + SIZE - 4), 77);
    assert_int_equal(get(to), 78);
}

/* The name of the worker's thread, as a debugger sees it. */
static void workers_have_a_name(void **state)
{
    (void) state;
    gpusym_stream_t *stream;
    char path[300], text[64];
    unsigned found = 0;
    uint32_t word = 0;
    open_sim();
    OK(dev->stream_create(gpu, &stream));
    OK(dev->copy_async(stream, alloc(4), &word, 4));
    drain(stream);
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *task = readdir(dir); NULL != task; task = readdir(dir)) {
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
        FILE *comm = fopen(path, "r");
        if (NULL != comm) {
            found += NULL != fgets(text, sizeof(text), comm) && 0 == strcmp(text, "gpusym-sim\n");
            fclose(comm);
        }
    }
    closedir(dir);
    assert_int_equal(found, 1);
}

/* ---- launches ---- */

enum { BLOCKS = 2, LL_BYTES = 4096, COUNT = 37, SLOT_HEADER = GPUSYM_FLAGS_OFF + BLOCKS * GPUSYM_FLAG_ROW };

/* A descriptor for an all-reduce of COUNT u32 by rank of nranks; done and abort are pinned, abort after done. */
static gpusym_work_t descriptor(unsigned rank, unsigned nranks, void *const *slot, uint64_t *done, const void *in,
                                void *out)
{
    gpusym_work_t w = {.in = in, .out = out, .bytes = COUNT * sizeof(uint32_t), .ll_off = SLOT_HEADER};
    w.stage_off = w.ll_off + 2 * nranks * LL_BYTES;
    for (unsigned r = 0; r < nranks; r++) {
        w.peer[r] = slot[r];
    }
    w.done = done;
    w.abort = (const uint32_t *) (done + 1);
    w.limit_ns = UINT64_C(60000000000);
    w.done_seq = 9;
    w.ll_bytes = LL_BYTES;
    w.stage_room = BLOCKS * 2 * 2 * 16 * nranks;
    w.epoch = 1;
    w.rank = rank;
    w.nranks = nranks;
    w.op = GPUSYM_OP_SUM;
    w.type = GPUSYM_T_U32;
    w.nblocks = BLOCKS;
    w.nthreads = 64;
    w.src_end = w.dst_end = nranks;
    gpusym_kernel_plan(GPUSYM_F_AGXLL_R, &w, 0);
    return w;
}

static size_t slot_bytes(unsigned nranks)
{
    return SLOT_HEADER + 2 * nranks * LL_BYTES + BLOCKS * 2 * 2 * 16 * nranks;
}

static uint64_t *pinned(void)
{
    void *host, *seen;
    OK(dev->host_alloc(gpu, 64, &host, &seen));
    return host;
}

/* A rank of a team in this process: its own memory, and the others' as it has imported them. */
struct rank {
    gpusym_stream_t *stream;
    void *slot, *in, *out, *mp;
    gpusym_mc_t *mc;
    uint64_t *done;
};

/* Fresh memory with the rank's part of the input, and its GPU added to a multicast object. */
static void rank_make(struct rank *rank, unsigned r, unsigned n, const gpusym_handle_t *mc)
{
    uint32_t data[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        data[i] = (r + 1) * 1000 + i;
    }
    rank->slot = alloc(slot_bytes(n));
    rank->in = alloc(sizeof(data));
    rank->out = alloc(sizeof(data));
    rank->done = pinned();
    OK(dev->mem_zero(gpu, rank->slot, slot_bytes(n)));
    OK(dev->copy(gpu, rank->in, data, sizeof(data)));
    OK(dev->mc_import(gpu, mc, &rank->mc));
    OK(dev->mc_add(rank->mc));
    OK(dev->stream_create(gpu, &rank->stream));
}

/* p as another rank sees it. */
static void *imported(void *p)
{
    gpusym_handle_t handle;
    void *there = NULL;
    OK(dev->mem_export(gpu, p, &handle));
    OK(dev->mem_import(gpu, &handle, &there));
    return there;
}

static void rank_launch(const struct rank *rank, unsigned r, unsigned n, unsigned family)
{
    void *slot[GPUSYM_TEAM_MAX];
    for (unsigned peer = 0; peer < n; peer++) {
        slot[peer] = peer == r ? rank[r].slot : imported(rank[peer].slot);
    }
    gpusym_work_t w = descriptor(r, n, slot, rank[r].done, rank[r].in, rank[r].out);
    for (unsigned peer = 0; peer < n; peer++) {
        w.peer_in[peer] = peer == r ? rank[r].in : imported(rank[peer].in);
        w.peer_out[peer] = peer == r ? rank[r].out : imported(rank[peer].out);
    }
    w.mc = rank[r].mp;
    w.nblocks = BLOCKS;
    gpusym_kernel_plan(family, &w, 0);
    OK(dev->launch(rank[r].stream, gpusym_kernel_find(family, GPUSYM_OP_SUM, GPUSYM_T_U32), &w));
    memset(&w, 0xff, sizeof(w)); /* it was copied */
}

/* Real kernels on three streams, each with its own imports of the others' memory, as ranks in threads have: one with
 * what it sends in the slots, one that goes straight to the buffers, one by multicast. */
static void launches_kernels(void **state)
{
    (void) state;
    enum { N = 3 };
    static const unsigned families[] = {GPUSYM_F_AGXLL_R, GPUSYM_F_RSXLD_AGXST_Z, GPUSYM_F_AGXLLMC_R};
    const char *why = NULL;
    open_sim();
    OK(dev->kernels_load(gpu, &why));
    for (unsigned f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        struct rank rank[N];
        gpusym_mc_t *mc;
        gpusym_handle_t handle;
        OK(dev->mc_create(gpu, 1, N, slot_bytes(N), &mc, &handle));
        for (unsigned r = 0; r < N; r++) {
            rank_make(&rank[r], r, N, &handle);
        }
        for (unsigned r = 0; r < N; r++) {
            OK(dev->mc_bind(rank[r].mc, r, rank[r].slot, slot_bytes(N), &rank[r].mp));
        }
        for (unsigned r = 0; r < N; r++) {
            rank_launch(rank, r, N, families[f]);
        }
        for (unsigned r = 0; r < N; r++) {
            uint32_t data[COUNT];
            drain(rank[r].stream);
            assert_int_equal(__atomic_load_n(rank[r].done, __ATOMIC_ACQUIRE), UINT64_C(9) << 32 | GPUSYM_STATUS_OK);
            OK(dev->copy(gpu, data, rank[r].out, sizeof(data)));
            for (uint32_t i = 0; i < COUNT; i++) {
                assert_int_equal(data[i], 6000 + 3 * i);
            }
        }
    }
}

/* One graph, whose launches differ in all but the kernel; each result is the launch's own. */
static void graphs_launch_again(void **state)
{
    (void) state;
    gpusym_graph_t *graph = NULL, *made;
    gpusym_sim_params.fail = "graph:2,launch:3";
    open_sim();
    void *slot[1] = {alloc(slot_bytes(1))};
    gpusym_stream_t *stream[2];
    uint64_t *done = pinned();
    OK(dev->mem_zero(gpu, slot[0], slot_bytes(1)));
    for (uint32_t i = 0; i < 2; i++) {
        OK(dev->stream_create(gpu, &stream[i]));
        void *in = alloc(sizeof(uint32_t) * COUNT), *out = alloc(sizeof(uint32_t) * COUNT);
        put(in, 40 + i);
        gpusym_work_t w = descriptor(0, 1, slot, done, in, out);
        w.epoch += i;
        made = graph;
        OK(dev->graph_launch(&graph, stream[i], GPUSYM_F_AGXLL_R, &w));
        assert_true(NULL != graph && (0 == i || made == graph));
        drain(stream[i]);
        assert_int_equal(get(out), 40 + i);
        assert_int_equal(get(in), 40 + i);
    }
    void *in = alloc(sizeof(uint32_t) * COUNT);
    gpusym_work_t w = descriptor(0, 1, slot, done, in, in);
    assert_int_equal(dev->graph_launch(&graph, stream[0], GPUSYM_F_AGXLL_R, &w), GPUSYM_ERR);
    assert_non_null(graph); /* that launch failed */
    made = NULL;
    assert_int_equal(dev->graph_launch(&made, stream[0], GPUSYM_F_AGXLL_R, &w), GPUSYM_ERR);
    assert_null(made); /* there is no graph */
    assert_non_null(strstr(dev->error(), "graph:2"));
    assert_int_equal(dev->graph_launch(&graph, stream[0], GPUSYM_K_COUNT, &w), GPUSYM_ERR_BAD_PARAM);
    dev->graph_destroy(graph);
}

/* A queue that has wrapped around and grows behind a running kernel stays in order. */
static void queues_grow_behind_a_kernel(void **state)
{
    (void) state;
    enum { BEFORE = 10, N = 100 };
    gpusym_stream_t *stream[2];
    uint64_t *done[2];
    static uint32_t values[N], last[N];
    open_sim();
    void *slot[2] = {alloc(slot_bytes(2)), alloc(slot_bytes(2))},
         *buffer[2] = {alloc(sizeof(uint32_t) * COUNT), alloc(sizeof(uint32_t) * COUNT)};
    char *p = alloc(sizeof(uint32_t)), *log = alloc(sizeof(last));
    for (unsigned r = 0; r < 2; r++) {
        OK(dev->mem_zero(gpu, slot[r], slot_bytes(2)));
        OK(dev->stream_create(gpu, &stream[r]));
        done[r] = pinned();
    }
    for (uint32_t i = 0; i < BEFORE; i++) {
        OK(dev->copy_async(stream[0], p, &i, sizeof(i)));
        drain(stream[0]);
    }
    for (uint32_t r = 0; r < 2; r++) {
        put(buffer[r], 5 + r);
    }
    /* this one waits for its peer, which is launched at the end */
    gpusym_work_t w = descriptor(0, 2, slot, done[0], buffer[0], buffer[0]);
    OK(dev->launch(stream[0], GPUSYM_F_AGXLL_R, &w));
    char *reduced = alloc(sizeof(uint32_t));
    OK(dev->copy_async(stream[0], reduced, buffer[0], sizeof(uint32_t)));
    for (uint32_t i = 0; i < N; i++) {
        values[i] = 3000 + i;
        OK(dev->copy_async(stream[0], p, &values[i], sizeof(values[i])));
        OK(dev->copy_async(stream[0], log + sizeof(last[0]) * i, p, sizeof(last[0])));
    }
    assert_int_equal(dev->stream_poll(stream[0]), 0);
    w = descriptor(1, 2, slot, done[1], buffer[1], buffer[1]);
    OK(dev->launch(stream[1], GPUSYM_F_AGXLL_R, &w));
    drain(stream[0]);
    drain(stream[1]);
    assert_int_equal(get(reduced), 11);
    OK(dev->copy(gpu, last, log, sizeof(last)));
    assert_memory_equal(last, values, sizeof(values));
}

static void launch_checks_what_it_is_given(void **state)
{
    (void) state;
    uint32_t local[COUNT] = {0};
    gpusym_stream_t *stream;
    open_sim();
    OK(dev->stream_create(gpu, &stream));
    void *slot = alloc(slot_bytes(1)), *buffer = alloc(sizeof(local)), *managed;
    OK(dev->mem_zero(gpu, slot, slot_bytes(1)));
    OK(gpusym_sim_managed_alloc(sizeof(local), &managed));
    const gpusym_work_t good = descriptor(0, 1, &slot, pinned(), buffer, managed);
    gpusym_work_t w;
#define REFUSED(change)                                                                    \
    do {                                                                                   \
        w = good;                                                                          \
        change;                                                                            \
        assert_int_equal(dev->launch(stream, GPUSYM_F_AGXLL_R, &w), GPUSYM_ERR_BAD_PARAM); \
    } while (0)
    REFUSED(w.in = local);
    assert_non_null(strstr(dev->error(), "not memory that a GPU can reach"));
    REFUSED(w.out = local);
    REFUSED(w.peer[0] = local);
    REFUSED(w.peer_in[0] = local);
    REFUSED(w.peer_out[0] = local);
    REFUSED(w.mc = local);
    REFUSED(w.done = (uint64_t *) (void *) local);
    REFUSED(w.abort = local);
    REFUSED(w.nblocks = 0);
    REFUSED(w.nblocks = GPUSYM_BLOCKS_MAX + 1);
    REFUSED(w.nthreads = 0);
    REFUSED(w.nthreads = GPUSYM_THREADS_MAX + 1);
    REFUSED(w.nranks = 0);
    REFUSED(w.nranks = GPUSYM_TEAM_MAX + 1);
#undef REFUSED
    assert_int_equal(dev->launch(stream, GPUSYM_K_COUNT, &good), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(*good.done, 0);
    OK(dev->launch(stream, GPUSYM_F_AGXLL_R, &good));
    drain(stream);
    assert_int_equal(*good.done >> 32, 9);
}

/* ... and with any pointer taken for device memory, host buffers do. */
static void launch_takes_host_buffers(void **state)
{
    (void) state;
    uint32_t in[COUNT], out[COUNT] = {0};
    gpusym_stream_t *stream;
    for (uint32_t i = 0; i < COUNT; i++) {
        in[i] = i * i;
    }
    gpusym_sim_params.host = true;
    open_sim();
    OK(dev->stream_create(gpu, &stream));
    void *slot = alloc(slot_bytes(1));
    OK(dev->mem_zero(gpu, slot, slot_bytes(1)));
    const gpusym_work_t w = descriptor(0, 1, &slot, pinned(), in, out);
    OK(dev->launch(stream, GPUSYM_F_AGXLL_R, &w));
    drain(stream);
    assert_memory_equal(in, out, sizeof(in));
}

/* ---- streams of a program ---- */

static gpusym_stream_t *program_stream(void)
{
    gpusym_stream_t *stream = NULL;
    OK(gpusym_sim_stream_create(&stream));
    return stream;
}

/* A kernel of the program's: waits until the word is not 0. */
static void wait_for_word(void *word)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    while (0 == __atomic_load_n((uint32_t *) word, __ATOMIC_ACQUIRE)) {
        nanosleep(&moment, NULL);
    }
}

static void word_add(void *word)
{
    __atomic_fetch_add((uint32_t *) word, 1, __ATOMIC_RELEASE);
}

static void programs_have_streams(void **state)
{
    (void) state;
    gpusym_stream_t *stream = NULL, *wrapped = NULL;
    bool captured = true;
    uint32_t go = 0, calls = 0, one = 1, got = 0;
    assert_int_equal(gpusym_sim_stream_create(&stream), GPUSYM_ERR_NOT_AVAILABLE);
    gpusym_sim_params.fail = "stream:1";
    open_sim();
    assert_int_equal(gpusym_sim_stream_create(&stream), GPUSYM_ERR);
    stream = program_stream();
    char *p = alloc(4);
    put(p, 0);
    OK(gpusym_sim_stream_call(stream, wait_for_word, &go));
    OK(gpusym_sim_stream_copy(stream, p, &one, 4));
    OK(gpusym_sim_stream_copy(stream, NULL, NULL, 0));
    OK(dev->stream_wrap(gpu, stream, &wrapped));
    OK(dev->stream_captured(wrapped, &captured));
    assert_false(captured);
    OK(dev->copy_async(wrapped, &got, p, 4)); /* the device's work goes with the program's */
    OK(gpusym_sim_stream_call(stream, word_add, &calls));
    assert_int_equal(gpusym_sim_stream_query(stream), 0);
    assert_int_equal(get(p), 0);
    word_add(&go);
    OK(gpusym_sim_stream_synchronize(stream));
    assert_int_equal(gpusym_sim_stream_query(stream), 1);
    assert_true(1 == calls && 1 == got);
    dev->stream_unwrap(wrapped);
    go = 0;
    OK(gpusym_sim_stream_call(stream, word_add, &go));
    OK(gpusym_sim_stream_destroy(stream)); /* waits */
    assert_int_equal(go, 1);
}

/* What is no stream, or none any more, is told. */
static void streams_are_known(void **state)
{
    (void) state;
    gpusym_sim_graph_t *graph;
    gpusym_stream_t *wrapped;
    int local = 0;
    open_sim();
    gpusym_stream_t *gone = program_stream();
    OK(gpusym_sim_stream_destroy(gone));
    gpusym_stream_t *none[] = {NULL, (gpusym_stream_t *) (void *) &local, gone};
    for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        assert_int_equal(dev->stream_wrap(gpu, none[i], &wrapped), GPUSYM_ERR_BAD_PARAM);
        assert_non_null(strstr(dev->error(), "is not a stream of the simulator"));
        assert_int_equal(gpusym_sim_stream_destroy(none[i]), GPUSYM_ERR_BAD_PARAM);
        assert_int_equal(gpusym_sim_stream_synchronize(none[i]), GPUSYM_ERR_BAD_PARAM);
        assert_int_equal(gpusym_sim_stream_query(none[i]), GPUSYM_ERR_BAD_PARAM);
        assert_int_equal(gpusym_sim_stream_call(none[i], word_add, &local), GPUSYM_ERR_BAD_PARAM);
        assert_int_equal(gpusym_sim_stream_capture(none[i]), GPUSYM_ERR_BAD_PARAM);
        assert_int_equal(gpusym_sim_stream_capture_end(none[i], &graph), GPUSYM_ERR_BAD_PARAM);
    }
    gpusym_stream_t *stream = program_stream();
    assert_int_equal(dev->stream_wrap(NULL, stream, &wrapped), GPUSYM_ERR_BAD_PARAM);
    dev->close();
    assert_int_equal(dev->stream_wrap(gpu, stream, &wrapped), GPUSYM_ERR_NOT_AVAILABLE);
    open_sim();
    assert_int_equal(dev->stream_wrap(gpu, stream, &wrapped), GPUSYM_ERR_BAD_PARAM); /* it went with close() */
}

/* An event is what it was recorded as when a stream was told to wait for it. */
static void events_order_streams(void **state)
{
    (void) state;
    gpusym_sim_event_t *event;
    uint32_t go = 0, calls = 0;
    open_sim();
    gpusym_stream_t *first = program_stream(), *second = program_stream(), *third = program_stream();
    OK(gpusym_sim_event_create(&event));
    assert_int_equal(gpusym_sim_event_query(event), 1);
    OK(gpusym_sim_stream_wait(second, event)); /* never recorded: nothing to wait for */
    OK(gpusym_sim_stream_synchronize(second));
    OK(gpusym_sim_stream_call(first, wait_for_word, &go));
    OK(gpusym_sim_event_record(event, first));
    OK(gpusym_sim_stream_wait(second, event));
    OK(gpusym_sim_stream_call(second, word_add, &calls));
    assert_int_equal(gpusym_sim_event_query(event), 0);
    OK(gpusym_sim_event_record(event, third));
    OK(gpusym_sim_stream_synchronize(third));
    assert_int_equal(gpusym_sim_event_query(event), 1);
    assert_int_equal(gpusym_sim_stream_query(second), 0); /* ... for the record of before */
    assert_int_equal(__atomic_load_n(&calls, __ATOMIC_ACQUIRE), 0);
    OK(gpusym_sim_event_record(event, first));
    gpusym_sim_event_destroy(event); /* the waits go on */
    word_add(&go);
    OK(gpusym_sim_stream_synchronize(second));
    assert_int_equal(calls, 1);
    OK(gpusym_sim_stream_synchronize(first));
    int local;
    OK(gpusym_sim_event_create(&event));
    assert_int_equal(gpusym_sim_event_record(event, (gpusym_stream_t *) (void *) &local), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_sim_event_query(event), 1);
    gpusym_sim_event_destroy(event);
}

/* While a stream is captured nothing runs; what was queued runs at each launch of the graph, on any stream. */
static void captured_work_is_launched_again(void **state)
{
    (void) state;
    gpusym_sim_graph_t *graph = NULL, *outer = NULL, *empty = NULL;
    gpusym_sim_event_t *event;
    bool captured = false;
    uint32_t go = 0, calls = 0, value = 5, last = 0;
    open_sim();
    gpusym_stream_t *stream = program_stream(), *other = program_stream();
    char *p = alloc(4);
    put(p, 0);
    OK(gpusym_sim_event_create(&event));
    OK(gpusym_sim_stream_call(stream, wait_for_word, &go)); /* queued before: it is not of the graph */
    OK(gpusym_sim_stream_capture(stream));
    OK(dev->stream_captured(stream, &captured));
    assert_true(captured);
    word_add(&go);
    OK(dev->copy_async(stream, p, &value, 4));
    OK(gpusym_sim_stream_copy(stream, &last, p, 4));
    OK(gpusym_sim_stream_call(stream, word_add, &calls));
    assert_int_equal(gpusym_sim_stream_capture(stream), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_sim_stream_query(stream), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_sim_stream_synchronize(stream), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_sim_stream_destroy(stream), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->stream_poll(stream), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_sim_event_record(event, stream), GPUSYM_ERR_BAD_PARAM);
    assert_non_null(strstr(dev->error(), "captured"));
    OK(gpusym_sim_stream_wait(stream, event)); /* never recorded */
    OK(gpusym_sim_event_record(event, other));
    assert_int_equal(gpusym_sim_stream_wait(stream, event), GPUSYM_ERR_BAD_PARAM);
    OK(gpusym_sim_stream_capture_end(stream, &graph));
    assert_int_equal(gpusym_sim_stream_capture_end(stream, &empty), GPUSYM_ERR_BAD_PARAM);
    OK(gpusym_sim_stream_synchronize(stream));
    assert_true(0 == calls && 0 == last && 0 == get(p));
    for (uint32_t i = 1; i <= 3; i++) {
        value = 10 * i;
        OK(gpusym_sim_graph_launch(graph, 2 == i ? other : stream));
        OK(gpusym_sim_stream_synchronize(2 == i ? other : stream));
        assert_true(i == calls && value == last && value == get(p));
    }
    OK(gpusym_sim_stream_capture(stream)); /* a graph of graphs */
    OK(gpusym_sim_graph_launch(graph, stream));
    OK(gpusym_sim_graph_launch(graph, stream));
    OK(gpusym_sim_stream_capture_end(stream, &outer));
    assert_int_equal(calls, 3);
    go = 0;
    OK(gpusym_sim_stream_call(stream, wait_for_word, &go));
    OK(gpusym_sim_graph_launch(outer, stream));
    gpusym_sim_graph_destroy(graph);
    gpusym_sim_graph_destroy(outer); /* the launch goes on */
    word_add(&go);
    OK(gpusym_sim_stream_synchronize(stream));
    assert_int_equal(calls, 5);
    OK(gpusym_sim_stream_capture(stream));
    OK(gpusym_sim_stream_capture_end(stream, &empty));
    OK(gpusym_sim_graph_launch(empty, stream));
    OK(gpusym_sim_stream_synchronize(stream));
    gpusym_sim_graph_destroy(empty);
    gpusym_sim_event_destroy(event);
}

/* Kernels and flags in a graph: pointers are found, and faults count, at each launch, which queues all or nothing. */
static void graphs_are_launched_as_they_were_asked(void **state)
{
    (void) state;
    gpusym_sim_graph_t *graph = NULL;
    uint32_t value = 0;
    gpusym_sim_params.fail = "launch:2,hang:3";
    open_sim();
    gpusym_stream_t *stream = program_stream();
    void *slot[1] = {alloc(slot_bytes(1))};
    uint64_t *done = pinned();
    uint32_t *flag = (uint32_t *) (done + 2);
    char *in = alloc(sizeof(uint32_t) * COUNT), *out = alloc(sizeof(uint32_t) * COUNT), *log = alloc(4);
    OK(dev->mem_zero(gpu, slot[0], slot_bytes(1)));
    const gpusym_work_t w = descriptor(0, 1, slot, done, in, out);
    const gpusym_stream_flag_t flags[] = {{true, flag, 1}, {false, flag + 1, 7}};
    OK(gpusym_sim_stream_capture(stream));
    OK(dev->copy_async(stream, in, &value, 4));
    OK(dev->launch(stream, GPUSYM_F_AGXLL_R, &w));
    OK(dev->stream_flags(stream, flags, 2));
    OK(dev->copy2d_async(stream, log, 4, out, 4, 4, 1));
    OK(gpusym_sim_stream_capture_end(stream, &graph));
    for (unsigned i = 1; i <= 4; i++) {
        const bool fails = 2 == i, hangs = 3 == i;
        put(log, 0);
        put(out, 99);
        value = 100 + i;
        done[0] = flag[0] = flag[1] = 0;
        assert_int_equal(gpusym_sim_graph_launch(graph, stream), fails ? GPUSYM_ERR : GPUSYM_SUCCESS);
        assert_true(!fails || NULL != strstr(dev->error(), "launch:2"));
        assert_int_equal(gpusym_sim_stream_query(stream), fails ? 1 : 0); /* waits for the flag */
        __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
        OK(gpusym_sim_stream_synchronize(stream));
        assert_int_equal(get(log), fails ? 0 : hangs ? 99 : value);
        assert_int_equal(get(in), fails ? value - 1 : value); /* nothing of it was queued */
        assert_int_equal(flag[1], fails ? 0 : 7);
        assert_int_equal(done[0] >> 32, fails || hangs ? 0 : 9);
    }
    OK(dev->mem_free(gpu, log));
    value = 200;
    assert_int_equal(gpusym_sim_graph_launch(graph, stream), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_sim_stream_query(stream), 1);
    assert_int_equal(get(in), 104);
    gpusym_sim_graph_destroy(graph);
}

enum { GRAPH_THREADS = 4, GRAPH_LAUNCHES = 200 };

/* What each thread has, for graphs on one stream. */
struct launcher {
    pthread_t thread;
    gpusym_stream_t *stream;
    gpusym_sim_graph_t *graph;
    uint32_t mine, got, *wrong;
};

static void launcher_check(void *arg)
{
    struct launcher *l = arg;
    *l->wrong += l->got != l->mine;
}

static void *launcher_run(void *arg)
{
    struct launcher *l = arg;
    for (unsigned i = 0; i < GRAPH_LAUNCHES; i++) {
        if (GPUSYM_SUCCESS != gpusym_sim_graph_launch(l->graph, l->stream)) {
            return NULL;
        }
    }
    return arg;
}

/* Nothing comes between the items of a launch. */
static void graphs_are_whole(void **state)
{
    (void) state;
    struct launcher launcher[GRAPH_THREADS];
    uint32_t wrong = 0;
    open_sim();
    gpusym_stream_t *stream = program_stream();
    char *p = alloc(4);
    for (uint32_t i = 0; i < GRAPH_THREADS; i++) {
        launcher[i] = (struct launcher){.stream = stream, .mine = 1 + i, .wrong = &wrong};
        OK(gpusym_sim_stream_capture(stream));
        OK(gpusym_sim_stream_copy(stream, p, &launcher[i].mine, 4));
        OK(gpusym_sim_stream_copy(stream, &launcher[i].got, p, 4));
        OK(gpusym_sim_stream_call(stream, launcher_check, &launcher[i]));
        OK(gpusym_sim_stream_capture_end(stream, &launcher[i].graph));
    }
    for (unsigned i = 0; i < GRAPH_THREADS; i++) {
        assert_int_equal(pthread_create(&launcher[i].thread, NULL, launcher_run, &launcher[i]), 0);
    }
    for (unsigned i = 0; i < GRAPH_THREADS; i++) {
        void *good = NULL;
        assert_int_equal(pthread_join(launcher[i].thread, &good), 0);
        assert_non_null(good);
    }
    OK(gpusym_sim_stream_synchronize(stream));
    assert_int_equal(wrong, 0);
    for (unsigned i = 0; i < GRAPH_THREADS; i++) {
        gpusym_sim_graph_destroy(launcher[i].graph);
    }
}

/* Streams that wait for each other, for a flag that nobody sets, or are being captured, end with the simulator. */
static void close_ends_what_waits(void **state)
{
    (void) state;
    gpusym_sim_event_t *event;
    uint32_t calls = 0;
    open_sim();
    gpusym_stream_t *first = program_stream(), *second = program_stream(), *third = program_stream();
    uint64_t *word = pinned();
    const gpusym_stream_flag_t never = {true, (uint32_t *) word, 1};
    OK(gpusym_sim_event_create(&event));
    OK(dev->stream_flags(first, &never, 1));
    OK(gpusym_sim_event_record(event, first));
    OK(gpusym_sim_stream_wait(second, event));
    OK(gpusym_sim_stream_call(second, word_add, &calls));
    OK(gpusym_sim_stream_capture(third));
    OK(gpusym_sim_stream_call(third, word_add, &calls));
    dev->close();
    assert_int_equal(calls, 1);
    open_sim();
    (void) alloc(4);                 /* no stream is being captured any more */
    gpusym_sim_event_destroy(event); /* it is the program's, and outlives the simulator */
}

/* ---- injected faults ---- */

static void expect_injected(int rc, int code)
{
    assert_int_equal(rc, code);
    assert_non_null(strstr(dev->error(), "injected"));
}

static void faults_hit_the_nth(void **state)
{
    (void) state;
    gpusym_handle_t handle;
    void *p, *q, *none = NULL;
    gpusym_sim_params.fail = "alloc:2,import:1,export:2,hostalloc:1,alloc:4";
    open_sim();
    OK(dev->mem_alloc(gpu, 8, &p));
    expect_injected(dev->mem_alloc(gpu, 8, &none), GPUSYM_ERR_NO_MEMORY);
    OK(dev->mem_alloc(gpu, 8, &q));
    expect_injected(dev->mem_alloc(gpu, 8, &none), GPUSYM_ERR_NO_MEMORY);
    OK(dev->mem_alloc(gpu, 8, &q));
    OK(dev->mem_export(gpu, p, &handle));
    expect_injected(dev->mem_export(gpu, p, &handle), GPUSYM_ERR);
    expect_injected(dev->mem_import(gpu, &handle, &none), GPUSYM_ERR_UNREACHABLE);
    OK(dev->mem_import(gpu, &handle, &q));
    expect_injected(dev->host_alloc(gpu, 8, &none, &none), GPUSYM_ERR_NO_MEMORY);
    OK(dev->host_alloc(gpu, 8, &p, &q));
    assert_null(none);

    dev->close(); /* and again from the start */
    open_sim();
    OK(dev->mem_alloc(gpu, 8, &p));
    expect_injected(dev->mem_alloc(gpu, 8, &none), GPUSYM_ERR_NO_MEMORY);
}

static void faults_are_for_a_rank(void **state)
{
    (void) state;
    void *p = NULL;
    gpusym_sim_params.fail = "alloc:1@2,alloc:2@12,hostalloc:1@1";
    gpusym_sim_params.world_rank = 1;
    open_sim();
    OK(dev->mem_alloc(gpu, 8, &p));
    OK(dev->mem_alloc(gpu, 8, &p));
    expect_injected(dev->host_alloc(gpu, 8, &p, &p), GPUSYM_ERR_NO_MEMORY);
    dev->close();
    gpusym_sim_params.world_rank = 2;
    open_sim();
    expect_injected(dev->mem_alloc(gpu, 8, &p), GPUSYM_ERR_NO_MEMORY);
    OK(dev->mem_alloc(gpu, 8, &p));
    OK(dev->host_alloc(gpu, 8, &p, &p));
}

static void launches_fail_and_hang(void **state)
{
    (void) state;
    gpusym_stream_t *stream;
    uint32_t word = 6;
    gpusym_sim_params.fail = "launch:1,hang:2";
    open_sim();
    OK(dev->stream_create(gpu, &stream));
    void *slot = alloc(slot_bytes(1)), *buffer = alloc(sizeof(uint32_t) * COUNT);
    OK(dev->mem_zero(gpu, slot, slot_bytes(1)));
    uint64_t *done = pinned();
    gpusym_work_t w = descriptor(0, 1, &slot, done, buffer, buffer);
    expect_injected(dev->launch(stream, GPUSYM_F_AGXLL_R, &w), GPUSYM_ERR);
    OK(dev->launch(stream, GPUSYM_F_AGXLL_R, &w)); /* never completes */
    OK(dev->copy_async(stream, buffer, &word, sizeof(word)));
    drain(stream);
    assert_int_equal(get(buffer), 6);
    assert_int_equal(*done, 0);
    w.done_seq = 10;
    OK(dev->launch(stream, GPUSYM_F_AGXLL_R, &w));
    drain(stream);
    assert_int_equal(*done >> 32, 10);
}

static void bad_faults_are_told(void **state)
{
    (void) state;
    static const char *const bad[] = {
        "nonsense", "alloc",    "alloc:",           "alloc:0",    "alloc:-1",      "alloc:1x", "alloc: 1",
        "ALLOC:1",  "alloc:1@", "alloc:1@x",        "alloc:1@2x", "alloc:1:2",     ":1",       ",",
        "allocs:1", "allo:1",   "alloc:1;launch:1", "launch:@1",  "hang:1,,hang:2"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *why = NULL;
        char spec[64];
        gpusym_sim_params.fail = bad[i];
        assert_int_equal(dev->open(&why), GPUSYM_ERR_BAD_PARAM);
        assert_non_null(why);
        snprintf(spec, sizeof(spec), "import:3,%s", bad[i]);
        gpusym_sim_params.fail = spec;
        assert_int_equal(dev->open(&why), GPUSYM_ERR_BAD_PARAM);
        assert_null(strstr(why, "import:3")); /* that part is good */
        assert_non_null(strstr(why, "hostalloc"));
        assert_int_equal(dev->open(NULL), GPUSYM_ERR_BAD_PARAM);
        assert_int_equal(dev->gpu_open(NULL, &gpu), GPUSYM_ERR_NOT_AVAILABLE);
    }
    const char *why = NULL;
    gpusym_sim_params.fail = "bind:1,lunch:2";
    assert_int_equal(dev->open(&why), GPUSYM_ERR_BAD_PARAM);
    assert_non_null(strstr(why, "\"lunch:2\""));
    gpusym_sim_params.fail = "";
    open_sim();
}

static void *read_error(void *text)
{
    *(const char **) text = dev->error();
    return NULL;
}

/* ---- links ---- */

static void links_have_classes(void **state)
{
    (void) state;
    gpusym_gpu_info_t info;
    gpusym_place_t other = {.pci = ""};
    static const int classes[] = {0, 2, GPUSYM_LINK_SELF, 254, 4, 4};
    gpusym_sim_params.local_rank = 8;
    gpusym_sim_params.gpus = 6; /* so we are number 2 */
    gpusym_sim_params.links = "0-2:0,3-2:1,3-2:254!,2-1:2!,1-4:7";
    open_sim();
    dev->gpu_info(gpu, &info);
    assert_int_equal(info.place.number, 2);
    for (int i = 0; i < 6; i++) {
        other.number = i;
        assert_int_equal(dev->gpu_link(gpu, &other), classes[i]);
    }
    other.number = -1; /* not of the simulator */
    assert_int_equal(dev->gpu_link(gpu, &other), GPUSYM_ERR_NOT_AVAILABLE);
}

static void bad_links_are_told(void **state)
{
    (void) state;
    static const char *const bad[] = {"x",       "0",     "0-",     "0-1", "0-1:", "0-1:x", "0-1:!",
                                      "0-1:255", "1-1:4", "0-1:4;", ",",   "-1:2", "0:1-2", "0-1:4!!"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *why = NULL;
        char spec[64];
        gpusym_sim_params.links = bad[i];
        assert_int_equal(dev->open(&why), GPUSYM_ERR_BAD_PARAM);
        assert_non_null(strstr(why, bad[i]));
        snprintf(spec, sizeof(spec), "2-3:0,%s", bad[i]);
        gpusym_sim_params.links = spec;
        assert_int_equal(dev->open(&why), GPUSYM_ERR_BAD_PARAM);
        assert_null(strstr(why, "2-3")); /* that part is good */
    }
    gpusym_sim_params.links = "";
    open_sim();
}

/* A child on GPU 1 that exports, and gets a handle which it cannot map. */
static int unlinked_child(int in, int out)
{
    gpusym_handle_t handle;
    void *p;
    gpusym_sim_params.local_rank = 1;
    CHILD(GPUSYM_SUCCESS == dev->open(NULL) && GPUSYM_SUCCESS == dev->gpu_open(NULL, &gpu));
    CHILD(GPUSYM_SUCCESS == dev->mem_alloc(gpu, 4096, &p));
    CHILD(GPUSYM_SUCCESS == dev->mem_export(gpu, p, &handle));
    CHILD(say(out, &handle, sizeof(handle)));
    CHILD(hear(in, &handle, sizeof(handle)));
    CHILD(GPUSYM_ERR_UNREACHABLE == dev->mem_import(gpu, &handle, &p));
    CHILD(NULL != strstr(dev->error(), "GPU 1 does not reach GPU 0"));
    return 0;
}

static void memory_without_a_link_is_not_mapped(void **state)
{
    (void) state;
    gpusym_handle_t handle;
    void *p = NULL;
    gpusym_sim_params.links = "1-0:0";
    struct peer peer = spawn(unlinked_child);
    open_sim();
    assert_true(hear(peer.from, &handle, sizeof(handle)));
    assert_int_equal(dev->mem_import(gpu, &handle, &p), GPUSYM_ERR_UNREACHABLE);
    assert_null(p);
    char *own = alloc(100);
    OK(dev->mem_export(gpu, own, &handle));
    assert_true(say(peer.to, &handle, sizeof(handle)));
    join(peer);
    OK(dev->mem_import(gpu, &handle, &p)); /* one's own */
    OK(dev->mem_unimport(gpu, p));
}

/* A child on GPU 1 that exports zeroes until it hears of us. */
static int exporting_child(int in, int out)
{
    gpusym_handle_t handle;
    void *p;
    gpusym_sim_params.local_rank = 1;
    CHILD(GPUSYM_SUCCESS == dev->open(NULL) && GPUSYM_SUCCESS == dev->gpu_open(NULL, &gpu));
    CHILD(GPUSYM_SUCCESS == dev->mem_alloc(gpu, 4096, &p) && GPUSYM_SUCCESS == dev->mem_zero(gpu, p, 4096));
    CHILD(GPUSYM_SUCCESS == dev->mem_export(gpu, p, &handle));
    CHILD(say(out, &handle, sizeof(handle)));
    CHILD(hear(in, &handle, sizeof(handle)));
    return 0;
}

static void a_link_may_change_a_byte_of_each_copy(void **state)
{
    (void) state;
    gpusym_handle_t handle;
    void *p;
    char host[100] = "";
    gpusym_sim_params.links = "1-0:4!";
    struct peer peer = spawn(exporting_child);
    open_sim();
    assert_true(hear(peer.from, &handle, sizeof(handle)));
    OK(dev->mem_import(gpu, &handle, &p));
    OK(dev->copy(gpu, host, p, sizeof(host)));
    for (size_t i = 0; i < sizeof(host); i++) {
        assert_int_equal(0 != host[i], sizeof(host) / 2 == i);
    }
    char *own = alloc(sizeof(host));
    OK(dev->mem_zero(gpu, own, sizeof(host)));
    OK(dev->copy(gpu, host, own, sizeof(host)));
    assert_int_equal(host[sizeof(host) / 2], 0);
    assert_true(say(peer.to, &handle, sizeof(handle)));
    join(peer);
    OK(dev->mem_unimport(gpu, p));
}

static void bytes_are_counted(void **state)
{
    (void) state;
    uint64_t now, peak;
    open_sim();
    gpusym_sim_bytes(&now, &peak);
    const uint64_t before = now;
    assert_true(peak == before);
    void *p, *q;
    OK(dev->mem_alloc(gpu, 1000, &p));
    OK(dev->mem_alloc(gpu, 500, &q));
    OK(dev->mem_free(gpu, p));
    OK(dev->mem_alloc(gpu, 300, &p));
    OK(dev->mem_free(gpu, p));
    gpusym_sim_bytes(&now, NULL);
    gpusym_sim_bytes(NULL, &peak);
    assert_true(before + 500 == now);
    assert_true(before + 1500 == peak);
    OK(dev->mem_free(gpu, q));
    dev->close();
    open_sim();
    gpusym_sim_bytes(&now, &peak);
    assert_true(now == before && peak == before);
}

static void errors_are_a_threads_own(void **state)
{
    (void) state;
    pthread_t thread;
    const char *elsewhere = NULL;
    void *p;
    gpusym_sim_params.fail = "alloc:1";
    open_sim();
    expect_injected(dev->mem_alloc(gpu, 8, &p), GPUSYM_ERR_NO_MEMORY);
    assert_int_equal(pthread_create(&thread, NULL, read_error, &elsewhere), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(elsewhere);
    assert_ptr_not_equal(elsewhere, dev->error());
    assert_non_null(strstr(dev->error(), "alloc:1"));
}

/* ---- multicast ---- */

static void multicast_among_threads(void **state)
{
    (void) state;
    enum { SIZE = 10000 };
    gpusym_mc_t *mc[2], *late;
    gpusym_handle_t handle;
    void *mp[2], *alias[GPUSYM_TEAM_MAX], *none;
    char local;
    open_sim();
    char *p[2] = {alloc(SIZE), alloc(SIZE + 512)};
    OK(dev->mc_create(gpu, 1, 2, SIZE, &mc[0], &handle));
    OK(dev->mc_import(gpu, &handle, &mc[1]));
    OK(dev->mc_add(mc[0]));
    assert_int_equal(dev->mc_add(mc[0]), GPUSYM_ERR_BAD_PARAM); /* twice */
    assert_int_equal(dev->mc_bind(mc[0], 0, p[0], SIZE, &none), GPUSYM_ERR_BAD_PARAM);
    assert_non_null(strstr(dev->error(), "only 1 of 2 GPUs"));
    OK(dev->mc_add(mc[1]));
    OK(dev->mc_import(gpu, &handle, &late));
    assert_int_equal(dev->mc_add(late), GPUSYM_ERR_BAD_PARAM); /* one too many */
    dev->mc_free(late);
    assert_int_equal(dev->mc_bind(mc[0], 2, p[0], SIZE, &none), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mc_bind(mc[0], 0, p[0], SIZE - 1, &none), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mc_bind(mc[0], 0, p[0] + 1, SIZE, &none), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mc_bind(mc[0], 0, &local, SIZE, &none), GPUSYM_ERR_BAD_PARAM);
    OK(dev->mc_bind(mc[0], 0, p[0], SIZE, &mp[0]));
    assert_int_equal(gpusym_sim_mc_members(mp[0], alias, GPUSYM_TEAM_MAX), GPUSYM_ERR_NOT_AVAILABLE);
    assert_int_equal(dev->mc_bind(mc[1], 0, p[1], SIZE, &none), GPUSYM_ERR_BAD_PARAM); /* taken */
    OK(dev->mc_bind(mc[1], 1, p[1] + 512, SIZE, &mp[1]));

    for (unsigned r = 0; r < 2; r++) {
        assert_int_equal(gpusym_sim_mc_members((char *) mp[r] + 100, alias, 1), GPUSYM_ERR_BAD_PARAM);
        assert_int_equal(gpusym_sim_mc_members((char *) mp[r] + 100 * r, alias, GPUSYM_TEAM_MAX), 2);
        *(uint32_t *) alias[0] = 500 + r;
        *(uint32_t *) alias[1] = 600 + r;
        assert_int_equal(get(p[0] + 100 * r), 500 + r);
        assert_int_equal(get(p[1] + 512 + 100 * r), 600 + r);
        assert_int_equal(kind_of(mp[r]), GPUSYM_MEM_DEVICE);
        assert_int_equal(touch(mp[r], true), SIGSEGV);
        assert_int_equal(dev->copy(gpu, mp[r], &local, 1), GPUSYM_ERR_BAD_PARAM);
    }
    assert_int_equal(gpusym_sim_mc_members((char *) mp[0] + SIZE, alias, GPUSYM_TEAM_MAX), 0);
    assert_int_equal(gpusym_sim_mc_members(p[0], alias, GPUSYM_TEAM_MAX), 0);
    assert_int_equal(gpusym_sim_mc_members(&local, alias, GPUSYM_TEAM_MAX), 0);
    dev->mc_free(mc[1]);
    assert_int_equal(gpusym_sim_mc_members(mp[1], alias, GPUSYM_TEAM_MAX), 0);
    assert_int_equal(gpusym_sim_mc_members(mp[0], alias, GPUSYM_TEAM_MAX), 2);
    dev->mc_free(mc[0]);
    OK(dev->mem_free(gpu, p[0]));
    OK(dev->mem_free(gpu, p[1]));
    assert_int_equal(mappings(), 0);
}

/* ---- ... of slabs, by several threads and several processes: each binds a piece of one large allocation ---- */

enum { SLAB = 1 << 20, PIECE = 64 << 10, PIECE_AT = 3 * PIECE, MEMBERS = 4 };

typedef struct {
    unsigned member;
    gpusym_handle_t handle;
    pthread_barrier_t *bound;
    bool right;
} binder_t;

/* Binds a member's piece; once all have, writes a word to every member's memory and finds what the others wrote. */
static void *bind_in_thread(void *arg)
{
    binder_t *b = arg;
    gpusym_mc_t *mc = NULL;
    void *mp = NULL, *alias[GPUSYM_TEAM_MAX], *slab = NULL;
    bool right = GPUSYM_SUCCESS == dev->mem_alloc(gpu, SLAB, &slab) &&
                 GPUSYM_SUCCESS == dev->mc_import(gpu, &b->handle, &mc) && GPUSYM_SUCCESS == dev->mc_add(mc);
    pthread_barrier_wait(b->bound); /* for all threads of the test */
    right = right && GPUSYM_SUCCESS == dev->mc_bind(mc, b->member, (char *) slab + PIECE_AT, PIECE, &mp);
    pthread_barrier_wait(b->bound);
    right = right && MEMBERS == gpusym_sim_mc_members((char *) mp + 8 * b->member, alias, GPUSYM_TEAM_MAX);
    for (unsigned i = 0; i < MEMBERS && right; i++) {
        __atomic_store_n((uint32_t *) alias[i], 100 * b->member + i, __ATOMIC_RELAXED);
    }
    pthread_barrier_wait(b->bound);
    for (unsigned i = 0; i < MEMBERS && right; i++) {
        right = 100 * i + b->member == get((char *) slab + PIECE_AT + 8 * i);
    }
    if (NULL != mc) {
        dev->mc_free(mc);
    }
    b->right = right && GPUSYM_SUCCESS == dev->mem_free(gpu, slab);
    return NULL;
}

static void threads_bind_slabs(void **state)
{
    (void) state;
    pthread_t thread[MEMBERS];
    binder_t binder[MEMBERS];
    pthread_barrier_t bound;
    gpusym_mc_t *mc;
    gpusym_handle_t handle;
    open_sim();
    OK(dev->mc_create(gpu, 1, MEMBERS, PIECE, &mc, &handle));
    assert_int_equal(pthread_barrier_init(&bound, NULL, MEMBERS), 0);
    for (unsigned i = 0; i < MEMBERS; i++) {
        binder[i] = (binder_t){.member = i, .handle = handle, .bound = &bound};
        assert_int_equal(pthread_create(&thread[i], NULL, bind_in_thread, &binder[i]), 0);
    }
    for (unsigned i = 0; i < MEMBERS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_true(binder[i].right);
    }
    pthread_barrier_destroy(&bound);
    dev->mc_free(mc);
    assert_int_equal(mappings(), 0);
}

static void multicast_handles_are_their_own(void **state)
{
    (void) state;
    gpusym_mc_t *mc;
    gpusym_handle_t handle, memory;
    void *p;
    open_sim();
    assert_int_equal(dev->mc_create(gpu, 1, 0, 4096, &mc, &handle), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mc_create(gpu, 1, GPUSYM_TEAM_MAX + 1, 4096, &mc, &handle), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mc_create(gpu, 1, 2, 0, &mc, &handle), GPUSYM_ERR_BAD_PARAM);
    OK(dev->mc_create(gpu, 1, 2, 4096, &mc, &handle));
    OK(dev->mem_export(gpu, alloc(4096), &memory));
    assert_int_equal(dev->mem_import(gpu, &handle, &p), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(dev->mc_import(gpu, &memory, &mc), GPUSYM_ERR_BAD_PARAM);
}

static void a_bind_can_fail(void **state)
{
    (void) state;
    gpusym_mc_t *mc;
    gpusym_handle_t handle;
    void *mp, *alias[1];
    gpusym_sim_params.fail = "bind:1";
    open_sim();
    void *p = alloc(4096);
    OK(dev->mc_create(gpu, 1, 1, 4096, &mc, &handle));
    OK(dev->mc_add(mc));
    expect_injected(dev->mc_bind(mc, 0, p, 4096, &mp), GPUSYM_ERR);
    OK(dev->mc_bind(mc, 0, p, 4096, &mp));
    assert_int_equal(gpusym_sim_mc_members(mp, alias, 1), 1);
}

/* A bind that fails on one rank: the member stays free, the others' objects say that it is not there, and no memory is
 * lost. */
static void a_bind_fails_on_one_rank(void **state)
{
    (void) state;
    gpusym_mc_t *mc[2];
    gpusym_handle_t handle;
    void *mp, *alias[2];
    gpusym_sim_params.fail = "bind:2@1,bind:1@7";
    gpusym_sim_params.world_rank = 1;
    open_sim();
    char *p[2] = {alloc(SLAB), alloc(SLAB)};
    OK(dev->mc_create(gpu, 1, 2, PIECE, &mc[0], &handle));
    OK(dev->mc_import(gpu, &handle, &mc[1]));
    OK(dev->mc_add(mc[0]));
    OK(dev->mc_add(mc[1]));
    OK(dev->mc_bind(mc[0], 0, p[0] + PIECE, PIECE, &mp));
    expect_injected(dev->mc_bind(mc[1], 1, p[1] + PIECE, PIECE, &mp), GPUSYM_ERR);
    assert_int_equal(gpusym_sim_mc_members(mp, alias, 2), GPUSYM_ERR_NOT_AVAILABLE);
    dev->mc_free(mc[1]);
    dev->mc_free(mc[0]);
    OK(dev->mem_free(gpu, p[0]));
    OK(dev->mem_free(gpu, p[1]));
    assert_int_equal(mappings(), 0);
}

/* A slab of a process of its own, bound as the member that the parent says. */
static int bind_in_child(int in, int out)
{
    gpusym_handle_t handle;
    gpusym_mc_t *mc;
    unsigned member;
    void *slab, *mp, *alias[GPUSYM_TEAM_MAX];
    char byte;
    CHILD(hear(in, &handle, sizeof(handle)));
    CHILD(hear(in, &member, sizeof(member)));
    CHILD(GPUSYM_SUCCESS == dev->open(NULL) && GPUSYM_SUCCESS == dev->gpu_open(NULL, &gpu));
    CHILD(GPUSYM_SUCCESS == dev->mem_alloc(gpu, SLAB, &slab));
    CHILD(GPUSYM_SUCCESS == dev->mc_import(gpu, &handle, &mc));
    CHILD(GPUSYM_SUCCESS == dev->mc_add(mc));
    CHILD(say(out, "a", 1));
    CHILD(hear(in, &byte, 1)); /* all have been added */
    CHILD(GPUSYM_SUCCESS == dev->mc_bind(mc, member, (char *) slab + PIECE_AT, PIECE, &mp));
    CHILD(say(out, "b", 1));
    CHILD(hear(in, &byte, 1)); /* all have bound */
    CHILD(MEMBERS == gpusym_sim_mc_members((char *) mp + 8 * member, alias, GPUSYM_TEAM_MAX));
    for (unsigned i = 0; i < MEMBERS; i++) {
        __atomic_store_n((uint32_t *) alias[i], 100 * member + i, __ATOMIC_RELAXED);
    }
    CHILD(say(out, "w", 1));
    CHILD(hear(in, &byte, 1)); /* all have written */
    for (unsigned i = 0; i < MEMBERS; i++) {
        CHILD(100 * i + member == get((char *) slab + PIECE_AT + 8 * i));
    }
    dev->close();
    CHILD(0 == mappings());
    return 0;
}

static void processes_bind_slabs(void **state)
{
    (void) state;
    struct peer peer[MEMBERS];
    gpusym_mc_t *mc;
    gpusym_handle_t handle;
    char byte;
    for (unsigned i = 0; i < MEMBERS; i++) {
        peer[i] = spawn(bind_in_child);
    }
    open_sim();
    OK(dev->mc_create(gpu, 1, MEMBERS, PIECE, &mc, &handle));
    for (unsigned i = 0; i < MEMBERS; i++) {
        assert_true(say(peer[i].to, &handle, sizeof(handle)));
        assert_true(say(peer[i].to, &i, sizeof(i)));
    }
    for (unsigned step = 0; step < 3; step++) {
        for (unsigned i = 0; i < MEMBERS; i++) {
            assert_true(hear(peer[i].from, &byte, 1));
        }
        for (unsigned i = 0; i < MEMBERS; i++) {
            assert_true(say(peer[i].to, "g", 1));
        }
    }
    for (unsigned i = 0; i < MEMBERS; i++) {
        join(peer[i]);
    }
    dev->mc_free(mc);
}

/* Joins the parent's object as member 1 and stores to both memories. */
static int multicast_in_child(int in, int out)
{
    gpusym_handle_t handle;
    gpusym_mc_t *mc;
    void *p, *mp, *alias[GPUSYM_TEAM_MAX];
    char byte;
    uint32_t value = 0;
    CHILD(hear(in, &handle, sizeof(handle)));
    CHILD(GPUSYM_SUCCESS == dev->open(NULL) && GPUSYM_SUCCESS == dev->gpu_open(NULL, &gpu));
    CHILD(GPUSYM_SUCCESS == dev->mem_alloc(gpu, 8192, &p));
    CHILD(GPUSYM_SUCCESS == dev->mc_import(gpu, &handle, &mc));
    CHILD(GPUSYM_SUCCESS == dev->mc_add(mc));
    CHILD(say(out, "a", 1));
    CHILD(hear(in, &byte, 1)); /* the parent has been added too */
    CHILD(GPUSYM_SUCCESS == dev->mc_bind(mc, 1, p, 8192, &mp));
    CHILD(say(out, "b", 1));
    CHILD(hear(in, &byte, 1)); /* the parent has bound too, and written */
    CHILD(GPUSYM_SUCCESS == dev->copy(gpu, &value, (char *) p + 4, sizeof(value)));
    CHILD(71 == value);
    CHILD(2 == gpusym_sim_mc_members((char *) mp + 8188, alias, GPUSYM_TEAM_MAX));
    *(uint32_t *) alias[0] = 80;
    *(uint32_t *) alias[1] = 81;
    CHILD(GPUSYM_SUCCESS == dev->copy(gpu, &value, (char *) p + 8188, sizeof(value)));
    CHILD(81 == value);
    CHILD(say(out, "w", 1));
    dev->mc_free(mc);
    dev->close();
    CHILD(0 == mappings());
    return 0;
}

static void multicast_among_processes(void **state)
{
    (void) state;
    gpusym_mc_t *mc;
    gpusym_handle_t handle;
    void *mp, *alias[GPUSYM_TEAM_MAX];
    char byte;
    struct peer peer = spawn(multicast_in_child);
    open_sim();
    char *p = alloc(8192);
    OK(dev->mc_create(gpu, 1, 2, 8192, &mc, &handle));
    assert_true(say(peer.to, &handle, sizeof(handle)));
    OK(dev->mc_add(mc));
    assert_true(hear(peer.from, &byte, 1));
    assert_true(say(peer.to, "g", 1));
    assert_true(hear(peer.from, &byte, 1));
    OK(dev->mc_bind(mc, 0, p, 8192, &mp));
    assert_int_equal(gpusym_sim_mc_members((char *) mp + 4, alias, GPUSYM_TEAM_MAX), 2);
    *(uint32_t *) alias[0] = 70;
    *(uint32_t *) alias[1] = 71;
    assert_int_equal(get(p + 4), 70);
    assert_true(say(peer.to, "g", 1));
    assert_true(hear(peer.from, &byte, 1));
    assert_int_equal(get(p + 8188), 80);
    dev->mc_free(mc);
    join(peer);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, prepare, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gpu_of_its_own),
        TEST(gpus_shared_by_number),
        TEST(cpu_faults),
        TEST(pages_of_their_own),
        TEST(kinds_of_memory),
        TEST(host_memory_is_registered),
        TEST(any_pointer_is_device),
        TEST(ranges_of_memory),
        TEST(ranges_have_an_id_once),
        TEST(ranges_of_any_pointer),
        TEST(frees_what_it_gave),
        TEST(memory_ends),
        TEST(copies_and_zeroes),
        TEST(fresh_memory_is_its_own),
        TEST(past_the_end_is_an_error),
        TEST(many_threads),
        TEST(imports_its_own),
        TEST(imports_gigabytes),
        TEST(descriptors_name_memory),
        TEST(pools_are_not_exported),
        TEST(exports_only_allocations),
        TEST(memory_is_the_users_own),
        TEST(wrong_handles_are_refused),
        TEST(imports_from_a_process),
        TEST(a_dead_peer_cannot_be_reached),
        TEST(streams_keep_order),
        TEST(copies_rows),
        TEST(copies_rows_it_can),
        TEST(destroy_and_close_finish_the_queue),
        TEST(queued_work_keeps_its_memory),
        TEST(workers_have_a_name),
        TEST(launches_kernels),
        TEST(graphs_launch_again),
        TEST(queues_grow_behind_a_kernel),
        TEST(launch_checks_what_it_is_given),
        TEST(launch_takes_host_buffers),
        TEST(programs_have_streams),
        TEST(streams_are_known),
        TEST(events_order_streams),
        TEST(captured_work_is_launched_again),
        TEST(graphs_are_launched_as_they_were_asked),
        TEST(graphs_are_whole),
        TEST(close_ends_what_waits),
        TEST(faults_hit_the_nth),
        TEST(faults_are_for_a_rank),
        TEST(launches_fail_and_hang),
        TEST(bad_faults_are_told),
        TEST(links_have_classes),
        TEST(bad_links_are_told),
        TEST(a_link_may_change_a_byte_of_each_copy),
        TEST(memory_without_a_link_is_not_mapped),
        TEST(bytes_are_counted),
        TEST(errors_are_a_threads_own),
        TEST(multicast_among_threads),
        TEST(threads_bind_slabs),
        TEST(multicast_handles_are_their_own),
        TEST(a_bind_can_fail),
        TEST(a_bind_fails_on_one_rank),
        TEST(multicast_among_processes),
        TEST(processes_bind_slabs),
    };
    return cmocka_run_group_tests_name("device_sim", tests, NULL, NULL);
}
