/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/memory/reg.c on the simulated GPU.  A device table of the test's own stands before
 * the simulator's: it counts calls, makes them fail, and has a second GPU, which is the same one: to that, our own
 * table is a peer's, so that one process plays both sides.  Others are forked.  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/memory/alloc.h"
#include "mca/common/gpusym/memory/reg.h"
#include "test/hang.h"
#include "test/unit/random.h"

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)
#define SIZE 8192u

/* ---- the device in between ---- */

static const gpusym_device_t *const sim = &gpusym_device_sim;
static gpusym_device_t dev; /* what reg.c gets: the simulator's, with the functions below */
static gpusym_gpu_t *gpu, *elsewhere;
static gpusym_peer_t *self;
static char second_gpu;

/* Atomic: calls so far, and what is exported and mapped now. */
static struct {
    unsigned ranges, exports, imports, exported, mapped;
} calls;
/* Not 0: the id of all memory, as if it were the same, mapped at several places. */
static uint64_t one_id;
static bool all_parts; /* all memory is part of a block */
/* Of imported memory: how many bytes fewer are mapped than the owner says, and whether the device knows none of it. */
static uint64_t lacking;
static bool unknown;
static _Thread_local const void *last_import;
/* What the next such call returns; 0: what the simulator says. */
static struct {
    int export, import;
} failing;

static gpusym_gpu_t *real(gpusym_gpu_t *which)
{
    return elsewhere == which ? gpu : which;
}

static int range_counted(const void *p, gpusym_range_t *range)
{
    __atomic_add_fetch(&calls.ranges, 1, __ATOMIC_RELAXED);
    const int rc = sim->mem_range(p, range);
    if (GPUSYM_SUCCESS == rc && 0 != one_id) {
        range->id = one_id;
    }
    range->part = all_parts;
    if (p == last_import && GPUSYM_SUCCESS == rc) {
        range->size -= lacking;
        return unknown ? GPUSYM_ERR_NOT_AVAILABLE : rc;
    }
    return rc;
}

static int take(int *code)
{
    const int rc = *code;
    *code = GPUSYM_SUCCESS;
    return rc;
}

static int export_counted(gpusym_gpu_t *which, void *p, gpusym_handle_t *handle)
{
    __atomic_add_fetch(&calls.exports, 1, __ATOMIC_RELAXED);
    int rc = 0 == failing.export ? 0 : take(&failing.export);
    rc = 0 != rc ? rc : sim->mem_export(real(which), p, handle);
    if (GPUSYM_SUCCESS == rc) {
        __atomic_add_fetch(&calls.exported, 1, __ATOMIC_RELAXED);
    }
    return rc;
}

static int unexport_counted(gpusym_gpu_t *which, const gpusym_handle_t *handle)
{
    const int rc = sim->mem_unexport(real(which), handle);
    if (GPUSYM_SUCCESS == rc) {
        __atomic_sub_fetch(&calls.exported, 1, __ATOMIC_RELAXED);
    }
    return rc;
}

static int import_counted(gpusym_gpu_t *which, const gpusym_handle_t *handle, void **p)
{
    __atomic_add_fetch(&calls.imports, 1, __ATOMIC_RELAXED);
    int rc = 0 == failing.import ? 0 : take(&failing.import);
    rc = 0 != rc ? rc : sim->mem_import(real(which), handle, p);
    if (GPUSYM_SUCCESS == rc) {
        __atomic_add_fetch(&calls.mapped, 1, __ATOMIC_RELAXED);
        last_import = *p;
    }
    return rc;
}

static int unimport_counted(gpusym_gpu_t *which, void *p)
{
    const int rc = sim->mem_unimport(real(which), p);
    if (GPUSYM_SUCCESS == rc) {
        __atomic_sub_fetch(&calls.mapped, 1, __ATOMIC_RELAXED);
    }
    return rc;
}

static _Thread_local uint64_t mapped_size; /* that gpusym_reg_map said last */

/* Opens all for this process. */
static bool open_all(void)
{
    gpusym_pages_id_t id;
    dev = *sim;
    dev.mem_range = range_counted;
    dev.mem_export = export_counted;
    dev.mem_unexport = unexport_counted;
    dev.mem_import = import_counted;
    dev.mem_unimport = unimport_counted;
    elsewhere = (gpusym_gpu_t *) (void *) &second_gpu;
    memset(&calls, 0, sizeof calls);
    memset(&failing, 0, sizeof failing);
    one_id = 0;
    all_parts = unknown = false;
    lacking = 0;
    gpusym_reg_parts = true;
    gpusym_reg_limit = GPUSYM_REG_MAX;
    return GPUSYM_SUCCESS == sim->open(NULL) && GPUSYM_SUCCESS == sim->gpu_open(NULL, &gpu) &&
           GPUSYM_SUCCESS == gpusym_pages_open(&id) && GPUSYM_SUCCESS == gpusym_pages_peer(&id, &self);
}

/* Closes all; false if an export or a mapping is left. */
static bool close_all(void)
{
    gpusym_reg_close(&dev);
    gpusym_reg_close(&dev);
    gpusym_pages_close();
    sim->close();
    return 0 == calls.mapped && 0 == calls.exported;
}

static bool by_fd; /* the buffers are memory that peers map by a descriptor */

static int setup(void **state)
{
    (void) state;
    by_fd = false;
    return open_all() ? 0 : 1;
}

static int setup_by_fd(void **state)
{
    const int rc = setup(state);
    by_fd = true;
    return rc;
}

static int teardown(void **state)
{
    (void) state;
    const bool right = close_all();
    memset(&gpusym_sim_params, 0, sizeof gpusym_sim_params);
    return right ? 0 : 1;
}

/* ---- buffers ---- */

static int buffer_new(size_t size, void **p)
{
    return by_fd ? gpusym_sim_vmm_alloc(size, p) : sim->mem_alloc(gpu, size, p);
}

static int buffer_free(void *p)
{
    return by_fd ? gpusym_sim_vmm_free(p) : sim->mem_free(gpu, p);
}

static void *alloc(size_t size)
{
    void *p = NULL;
    OK(buffer_new(size, &p));
    return p;
}

/* Memory of that size at that address, where there was some before. The simulator takes what mmap gives: other
 * places of that size are used up first. */
static void *alloc_at(void *address, size_t size)
{
    enum { TRIES = 500 };
    void *other[TRIES], *p = NULL;
    unsigned n = 0;
    while (n < TRIES && GPUSYM_SUCCESS == buffer_new(size, &p) && p != address) {
        other[n++] = p;
    }
    for (unsigned i = 0; i < n; i++) {
        buffer_free(other[i]);
    }
    return n < TRIES ? p : NULL;
}

static bool put_value(void *p, uint32_t value)
{
    return GPUSYM_SUCCESS == sim->copy(gpu, p, &value, sizeof value);
}

/* Not what any test writes, if it cannot be read. */
static uint32_t get_value(const void *p)
{
    uint32_t value;
    return GPUSYM_SUCCESS == sim->copy(gpu, &value, p, sizeof value) ? value : 0xdeadbeefu;
}

static uint32_t key_of(const void *p)
{
    uint32_t key = 0;
    uint64_t off;
    OK(gpusym_reg_get(&dev, gpu, p, 4, &key, &off));
    assert_int_not_equal(key, 0);
    return key;
}

/* As key_of, not in use any more. */
static uint32_t key_of_idle(const void *p)
{
    const uint32_t key = key_of(p);
    gpusym_reg_put(key);
    return key;
}

static void *map_elsewhere(uint32_t key)
{
    void *base = NULL;
    OK(gpusym_reg_map(&dev, elsewhere, self, key, &base, &mapped_size));
    return base;
}

static bool is_listed(uint32_t key)
{
    void *base;
    return GPUSYM_SUCCESS == gpusym_reg_map(&dev, gpu, self, key, &base, &mapped_size);
}

/* ---- the owner ---- */

static void a_buffer_has_one_key(void **state)
{
    (void) state;
    char *p = alloc(SIZE), *q = alloc(SIZE);
    uint32_t key = 0, again = 0, other = 0;
    uint64_t off = 99;
    OK(gpusym_reg_get(&dev, gpu, p, SIZE, &key, &off));
    assert_int_not_equal(key, 0);
    assert_int_equal(off, 0);
    OK(gpusym_reg_get(&dev, gpu, p + 100, SIZE - 100, &again, &off));
    assert_int_equal(again, key);
    assert_int_equal(off, 100);
    OK(gpusym_reg_get(&dev, gpu, q + 1, 0, &other, &off));
    assert_int_not_equal(other, key);
    for (unsigned i = 0; i < 100; i++) { /* in turns, as input and output are */
        assert_int_equal(key_of_idle(p), key);
        assert_int_equal(key_of_idle(q), other);
    }
    assert_int_equal(calls.exports, 2);
    gpusym_reg_put(key);
    gpusym_reg_put(key);
    gpusym_reg_put(other);
    assert_int_equal(key_of_idle(p), key); /* not in use, it stays */
    assert_int_equal(calls.exports, 2);
}

static void expect_unavailable(const void *p, uint64_t bytes)
{
    uint32_t key;
    uint64_t off;
    assert_int_equal(gpusym_reg_get(&dev, gpu, p, bytes, &key, &off), GPUSYM_ERR_NOT_AVAILABLE);
}

static void what_cannot_be_shared_has_none(void **state)
{
    (void) state;
    gpusym_handle_t handle;
    char local;
    char *p = alloc(SIZE);
    void *host, *seen, *managed, *imported;
    OK(sim->host_alloc(gpu, SIZE, &host, &seen));
    OK(gpusym_sim_managed_alloc(SIZE, &managed));
    OK(sim->mem_export(gpu, p, &handle));
    OK(sim->mem_import(gpu, &handle, &imported));
    expect_unavailable(&local, 1);
    expect_unavailable(NULL, 0);
    expect_unavailable(host, 1);
    expect_unavailable(managed, 1);
    OK(sim->mem_unexport(gpu, &handle));
    expect_unavailable(imported, 1);
    expect_unavailable(p, SIZE + 1);
    expect_unavailable(p + 1, SIZE);
    expect_unavailable(p + 1, UINT64_MAX);
    expect_unavailable(p + SIZE, 0);
    gpusym_reg_limit = 0;
    expect_unavailable(p, 1);
    assert_int_equal(calls.exports, 0);
    OK(buffer_free(p));
    gpusym_reg_limit = 1;
    expect_unavailable(p, 1);
}

static void parts_of_blocks_may_be_kept_back(void **state)
{
    (void) state;
    char *p = alloc(SIZE), *q = alloc(SIZE);
    gpusym_reg_parts = false;
    key_of_idle(p);
    all_parts = true;
    expect_unavailable(q, 1);
    gpusym_reg_parts = true;
    key_of_idle(q);
}

static void any_memory_taken_for_the_gpus_has_none(void **state)
{
    (void) state;
    char local;
    assert_true(close_all());
    gpusym_sim_params.host = true;
    assert_true(open_all());
    expect_unavailable(&local, 1);
    key_of_idle(alloc(SIZE)); /* the simulator's own can be shared all the same */
}

static void before_the_pages_there_is_none(void **state)
{
    (void) state;
    void *p = alloc(SIZE);
    gpusym_reg_close(&dev);
    gpusym_pages_close();
    expect_unavailable(p, 1);
}

/* The one used longest ago goes; those in use stay, and when all are there is no more room. */
static void the_table_has_a_bound(void **state)
{
    (void) state;
    char *p[6];
    uint32_t key[6];
    for (unsigned i = 0; i < 6; i++) {
        p[i] = alloc(SIZE);
    }
    gpusym_reg_limit = 3;
    for (unsigned i = 0; i < 3; i++) {
        key[i] = key_of_idle(p[i]);
    }
    key_of_idle(p[0]);
    key[3] = key_of(p[3]);
    assert_true(is_listed(key[0]) && !is_listed(key[1]) && is_listed(key[2]) && is_listed(key[3]));
    key[4] = key_of(p[4]);
    assert_true(is_listed(key[0]) && !is_listed(key[2]) && is_listed(key[3]) && is_listed(key[4]));
    assert_int_equal(key_of(p[0]), key[0]);
    expect_unavailable(p[5], 1);
    assert_int_equal(key_of(p[0]), key[0]); /* what is there is had again */
    gpusym_reg_put(key[0]);
    expect_unavailable(p[5], 1); /* used twice, put once */
    gpusym_reg_put(key[0]);
    key[5] = key_of(p[5]);
    assert_false(is_listed(key[0]));
    gpusym_reg_limit = 1; /* fewer from now on: as soon as nobody uses them */
    gpusym_reg_put(key[3]);
    gpusym_reg_put(key[4]);
    expect_unavailable(p[1], 1);
    gpusym_reg_put(key[5]);
    assert_true(is_listed(key_of_idle(p[1])));
    assert_false(is_listed(key[3]) || is_listed(key[4]) || is_listed(key[5]));
    gpusym_reg_limit = 1000; /* as many as there are */
    for (unsigned i = 0; i < GPUSYM_REG_MAX; i++) {
        key_of(alloc(SIZE));
    }
    expect_unavailable(p[2], 1);
}

static void a_failed_export_leaves_nothing(void **state)
{
    (void) state;
    void *p = alloc(SIZE), *q = alloc(SIZE);
    uint32_t key;
    uint64_t off;
    failing.export = GPUSYM_ERR;
    assert_int_equal(gpusym_reg_get(&dev, gpu, p, 1, &key, &off), GPUSYM_ERR);
    key_of_idle(p);
    assert_int_equal(calls.exports, 2);
    failing.export = GPUSYM_ERR_UNREACHABLE; /* will not work the next time either */
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(gpusym_reg_get(&dev, gpu, q, 1, &key, &off), GPUSYM_ERR_UNREACHABLE);
    }
    assert_int_equal(calls.exports, 3);
    OK(buffer_free(q));
    q = alloc_at(q, SIZE); /* another allocation may be shared */
    assert_non_null(q);
    key_of_idle(q);
}

static void freed_buffers_lose_their_keys(void **state)
{
    (void) state;
    void *p[4];
    uint32_t key[4];
    for (unsigned i = 0; i < 4; i++) {
        p[i] = alloc(SIZE);
        key[i] = key_of_idle(p[i]);
    }
    OK(buffer_free(p[0]));
    assert_true(is_listed(key[0]));
    const uint32_t fresh = key_of(alloc(2 * SIZE)); /* a buffer not seen before: the others are looked at */
    assert_true(!is_listed(key[0]) && is_listed(key[1]) && is_listed(fresh));
    OK(buffer_free(p[1]));
    gpusym_reg_sweep(&dev);
    assert_true(!is_listed(key[1]) && is_listed(key[2]) && is_listed(fresh));
    /* Freed in use, which a program must not do: nothing of it is given out, the key is put in peace. */
    assert_int_equal(key_of(p[2]), key[2]);
    OK(buffer_free(p[2]));
    gpusym_reg_sweep(&dev);
    p[2] = alloc_at(p[2], SIZE);
    assert_non_null(p[2]);
    const uint32_t anew = key_of(p[2]);
    assert_int_not_equal(anew, key[2]);
    assert_true(!is_listed(key[2]) && is_listed(anew) && is_listed(key[3]));
    gpusym_reg_put(key[2]);
    assert_int_equal(key_of(p[2]), anew);
    gpusym_reg_put(key[2]); /* once too often: not the new one's */
    assert_true(is_listed(anew));
}

/* A new buffer checks a part of the others, so its cost does not grow with the table; a few of them check all. */
static void new_buffers_find_the_freed_ones(void **state)
{
    enum { MANY = 200, PART = 64 };
    void *p[MANY];
    (void) state;
    for (unsigned i = 0; i < MANY; i++) {
        p[i] = alloc(SIZE);
        key_of_idle(p[i]);
    }
    for (unsigned i = 0; i < MANY; i++) { /* all are found by their ids, without a search through the device */
        const unsigned ranges = calls.ranges;
        key_of_idle(p[i]);
        assert_int_equal(calls.ranges, ranges + 1);
        OK(buffer_free(p[i]));
    }
    for (unsigned fresh = 1; fresh <= (MANY + 2 * PART) / PART; fresh++) {
        const unsigned ranges = calls.ranges;
        key_of_idle(alloc(SIZE));
        assert_true(calls.ranges - ranges <= PART + 1);
    }
    assert_true(calls.exported <= (MANY + 2 * PART) / PART); /* those alone */
}

/* What is exported is held while it is listed or in use, and no longer. */
static void exports_end(void **state)
{
    (void) state;
    void *p[3];
    uint32_t key[3];
    for (unsigned i = 0; i < 3; i++) {
        p[i] = alloc(SIZE);
        key[i] = key_of(p[i]);
    }
    gpusym_reg_put(key[1]);
    assert_int_equal(calls.exported, 3);
    OK(buffer_free(p[0])); /* in use: a program must not */
    OK(buffer_free(p[1]));
    gpusym_reg_sweep(&dev);
    assert_int_equal(calls.exported, 2);
    p[0] = alloc_at(p[0], SIZE);
    assert_non_null(p[0]);
    const uint32_t anew = key_of_idle(p[0]); /* the old one's peers may still be mapping it */
    assert_int_equal(calls.exported, 3);
    gpusym_reg_put(key[0]);
    gpusym_reg_sweep(&dev);
    assert_int_equal(calls.exported, 2);
    assert_true(is_listed(anew) && is_listed(key[2]));
    gpusym_reg_limit = 1;
    gpusym_reg_put(key[2]);
    key_of_idle(alloc(SIZE));
    gpusym_reg_sweep(&dev);
    assert_int_equal(calls.exported, 1);
}

/* The same memory at two places has two entries, each with its own base. */
static void memory_may_be_mapped_twice(void **state)
{
    (void) state;
    char *p = alloc(SIZE), *q = alloc(SIZE);
    uint32_t key = 0;
    uint64_t off = 0;
    one_id = 77;
    const uint32_t first = key_of_idle(p), second = key_of_idle(q);
    assert_int_not_equal(first, second);
    assert_true(is_listed(first) && is_listed(second));
    for (unsigned i = 0; i < 2; i++) {
        OK(gpusym_reg_get(&dev, gpu, p + 8, 4, &key, &off));
        assert_true(first == key && 8 == off);
        OK(gpusym_reg_get(&dev, gpu, q + 12, 4, &key, &off));
        assert_true(second == key && 12 == off);
    }
}

/* By what a query said of it: not of memory at whose place there may be other by now. */
static void found_by_its_id(void **state)
{
    (void) state;
    char *p = alloc(SIZE);
    const uint32_t key = key_of_idle(p);
    uint32_t found = 0;
    uint64_t off = 0;
    gpusym_mem_t mem;
    const unsigned ranges = calls.ranges;
    sim->query(p + 4, &mem);
    assert_true(gpusym_reg_find(mem.id, p + 4, SIZE - 4, &found, &off) == !by_fd);
    assert_true(by_fd || (found == key && 4 == off));
    assert_false(gpusym_reg_find(mem.id, p + 4, SIZE, &found, &off));
    assert_int_equal(calls.ranges, ranges);
}

/* ---- a table that does what reg.h says: the model ---- */

#define MODEL_BUFFERS 12u

typedef struct {
    void *p;
    uint32_t key, pins;
    uint64_t used;
} buffer_t;

static bool model_is_live(const buffer_t *b)
{
    return 0 != b->key;
}

/* Forgets the buffer used longest ago of those that are not in use; false if there is none. */
static bool model_evict(buffer_t *b)
{
    buffer_t *oldest = NULL;
    for (unsigned i = 0; i < MODEL_BUFFERS; i++) {
        if (model_is_live(&b[i]) && 0 == b[i].pins && (NULL == oldest || b[i].used < oldest->used)) {
            oldest = &b[i];
        }
    }
    if (NULL != oldest) {
        oldest->key = 0;
    }
    return NULL != oldest;
}

static void model_get(buffer_t *b, unsigned i, uint64_t now)
{
    unsigned live = 0;
    uint32_t key = 0;
    uint64_t off;
    for (unsigned k = 0; k < MODEL_BUFFERS; k++) {
        live += model_is_live(&b[k]);
    }
    const bool known = model_is_live(&b[i]);
    const bool room = known || live < gpusym_reg_limit || model_evict(b);
    assert_int_equal(gpusym_reg_get(&dev, gpu, b[i].p, SIZE, &key, &off), room ? 0 : GPUSYM_ERR_NOT_AVAILABLE);
    if (!room) {
        return;
    }
    if (known) {
        assert_int_equal(key, b[i].key);
    }
    for (unsigned k = 0; k < MODEL_BUFFERS; k++) {
        assert_true(k == i || b[k].key != key);
    }
    b[i].key = key;
    b[i].pins++;
    b[i].used = now;
}

/* Freed, and allocated again: often at the same address. Its entry goes with the next miss, which this is made to be.
 * */
static void model_renew(buffer_t *b)
{
    if (0 != b->pins) {
        return;
    }
    OK(buffer_free(b->p));
    b->p = alloc(SIZE);
    b->key = 0;
    gpusym_reg_sweep(&dev);
}

static void any_order_of_calls_is_right(void **state)
{
    (void) state;
    buffer_t b[MODEL_BUFFERS];
    memset(b, 0, sizeof b);
    gpusym_reg_limit = 5;
    for (unsigned i = 0; i < MODEL_BUFFERS; i++) {
        b[i].p = alloc(SIZE);
    }
    for (uint64_t step = 1; step < 20000; step++) {
        const unsigned i = (unsigned) (next_random() % MODEL_BUFFERS);
        switch (next_random() % 8) {
        case 0:
            model_renew(&b[i]);
            break;
        case 1:
            assert_int_equal(model_is_live(&b[i]), 0 != b[i].key && is_listed(b[i].key));
            break;
        case 2:
        case 3:
        case 4:
            model_get(b, i, step);
            break;
        default:
            if (0 != b[i].pins) {
                gpusym_reg_put(b[i].key);
                b[i].pins--;
            }
        }
        if (model_is_live(&b[i])) {
            assert_true(put_value(b[i].p, (uint32_t) step));
            assert_int_equal(get_value(map_elsewhere(b[i].key)), (uint32_t) step);
        }
        assert_true(calls.mapped <= gpusym_reg_limit);
    }
}

/* ---- the peer ---- */

static void our_own_is_not_mapped(void **state)
{
    (void) state;
    char *p = alloc(SIZE);
    void *base = NULL;
    const uint32_t key = key_of(p + 5);
    OK(gpusym_reg_map(&dev, gpu, self, key, &base, &mapped_size));
    assert_ptr_equal(base, p);
    assert_int_equal(calls.imports, 0);
}

static void peers_map_once(void **state)
{
    (void) state;
    char *p = alloc(SIZE), *q = alloc(SIZE);
    const uint32_t key = key_of(p), other = key_of(q);
    assert_true(put_value(p + 64, 17));
    char *base = map_elsewhere(key);
    assert_ptr_not_equal(base, p);
    assert_int_equal(get_value(base + 64), 17);
    assert_true(put_value(base + SIZE - 4, 18));
    assert_int_equal(get_value(p + SIZE - 4), 18);
    char *beside = map_elsewhere(other);
    for (unsigned i = 0; i < 10; i++) {
        assert_ptr_equal(map_elsewhere(key), base);
        assert_ptr_equal(map_elsewhere(other), beside);
    }
    assert_int_equal(calls.imports, 2);
    gpusym_reg_put(key);
    assert_ptr_equal(map_elsewhere(key_of(p)), base); /* from one call to the next */
    assert_int_equal(calls.imports, 2);
    gpusym_reg_close(&dev);
    assert_int_equal(calls.mapped, 0);
    assert_false(is_listed(key));
    const uint32_t anew = key_of(p);
    assert_int_not_equal(anew, key);
    assert_int_equal(get_value((char *) map_elsewhere(anew) + 64), 17);
}

/* What issue 3 asks for: the same address, other memory, and never the old contents. */
static void a_reallocated_buffer_is_mapped_anew(void **state)
{
    (void) state;
    void *p = alloc(SIZE), *base;
    uint32_t old = 0;
    for (uint32_t round = 1; round <= 50; round++) {
        assert_true(put_value(p, round));
        const uint32_t key = key_of(p);
        assert_int_not_equal(key, old);
        if (0 != old) {
            assert_int_equal(gpusym_reg_map(&dev, elsewhere, self, old, &base, &mapped_size), GPUSYM_ERR_UNREACHABLE);
        }
        assert_int_equal(get_value(map_elsewhere(key)), round);
        assert_int_equal(calls.mapped, 1); /* the old one was let go of */
        gpusym_reg_put(key);
        OK(buffer_free(p));
        p = alloc_at(p, SIZE);
        assert_non_null(p);
        old = key;
    }
}

/* ... of another size, so that it only overlaps what was there. */
static void a_larger_buffer_over_a_freed_one(void **state)
{
    (void) state;
    char *p = alloc(SIZE), *q = alloc(SIZE);
    const uint32_t first = key_of(p), second = key_of_idle(q);
    map_elsewhere(first);
    map_elsewhere(second);
    OK(buffer_free(p));
    OK(buffer_free(q));
    for (unsigned i = 0; i < 20; i++) {
        char *both = alloc(2 * SIZE);
        assert_true(put_value(both, 7 + i));
        const uint32_t key = key_of(both);
        assert_true(key != first && key != second);
        assert_int_equal(get_value(map_elsewhere(key)), 7 + i);
        assert_false(is_listed(second));
    }
}

static unsigned mapped_most; /* from so many mappings on there is no memory */
static unsigned allocations;

static int alloc_under_pressure(gpusym_gpu_t *which, size_t size, void **p)
{
    allocations++;
    return calls.mapped >= mapped_most ? GPUSYM_ERR_NO_MEMORY : sim->mem_alloc(real(which), size, p);
}

/* Where memory runs out, what freed buffers keep is given back first. What is in use is left alone. */
static void memory_comes_back_under_pressure(void **state)
{
    (void) state;
    char *p[3];
    void *more;
    for (unsigned i = 0; i < 3; i++) {
        p[i] = alloc(SIZE);
        map_elsewhere(key_of_idle(p[i]));
    }
    dev.mem_alloc = alloc_under_pressure;
    mapped_most = 3;
    allocations = 0;
    assert_int_equal(gpusym_mem_alloc(&dev, gpu, SIZE, &more), GPUSYM_ERR_NO_MEMORY);
    assert_int_equal(allocations, 1); /* nothing came back: not tried again */
    assert_int_equal(calls.mapped, 3);
    OK(buffer_free(p[1]));
    OK(gpusym_mem_alloc(&dev, gpu, SIZE, &more));
    assert_int_equal(allocations, 3);
    assert_int_equal(calls.mapped, 2);
    OK(sim->mem_free(gpu, more));
    assert_int_equal(gpusym_reg_sweep(&dev), 0);
}

/* Whose entries are gone are unmapped at the next new key, or by a sweep. */
static void peers_let_go(void **state)
{
    (void) state;
    char *p[5];
    uint32_t key[5];
    for (unsigned i = 0; i < 5; i++) {
        p[i] = alloc(SIZE);
        key[i] = key_of_idle(p[i]);
        map_elsewhere(key[i]);
    }
    assert_int_equal(calls.mapped, 5);
    OK(buffer_free(p[0]));
    OK(buffer_free(p[1]));
    const uint32_t fresh = key_of(alloc(SIZE));
    assert_int_equal(calls.mapped, 5);
    map_elsewhere(key[2]); /* found: no call to the device */
    assert_int_equal(calls.mapped, 5);
    map_elsewhere(fresh);
    assert_int_equal(calls.mapped, 4);
    OK(buffer_free(p[2]));
    gpusym_reg_sweep(&dev);
    assert_int_equal(calls.mapped, 3);
    const unsigned imports = calls.imports;
    map_elsewhere(key[3]);
    assert_int_equal(calls.imports, imports);
    gpusym_reg_limit = 2; /* what the owner has no room for, the peers have not either */
    map_elsewhere(key_of(alloc(SIZE)));
    assert_int_equal(calls.mapped, 2);
}

static void expect_map(uint32_t key, int rc)
{
    void *base = &key;
    assert_int_equal(gpusym_reg_map(&dev, elsewhere, self, key, &base, &mapped_size), rc);
    assert_ptr_equal(base, &key);
    assert_int_equal(gpusym_reg_map(&dev, gpu, self, key, &base, &mapped_size), rc);
}

static void bad_keys_are_refused(void **state)
{
    (void) state;
    const uint32_t key = key_of(alloc(SIZE));
    expect_map(0, GPUSYM_ERR_BAD_PARAM);
    expect_map(key & 0xff, GPUSYM_ERR_BAD_PARAM); /* no generation */
    expect_map(key | 0xff, GPUSYM_ERR_UNREACHABLE);
    expect_map(key + 1, GPUSYM_ERR_UNREACHABLE); /* of another entry, an empty one */
    expect_map(key + 256, GPUSYM_ERR_UNREACHABLE);
    expect_map(key ^ 0x80000000u, GPUSYM_ERR_UNREACHABLE);
    assert_int_equal(calls.imports, 0);
    for (unsigned i = 0; i < 1000; i++) {
        const uint32_t any = (uint32_t) next_random();
        if (any != key) {
            void *base;
            assert_true(GPUSYM_SUCCESS > gpusym_reg_map(&dev, elsewhere, self, any, &base, &mapped_size));
            gpusym_reg_put(any);
        }
    }
    gpusym_reg_put(0);
    gpusym_reg_put(key);
    gpusym_reg_put(key); /* once too often */
    assert_true(is_listed(key));
}

/* That an allocation cannot be mapped is remembered as long as its entry lives; that memory was short is not. */
static void a_failed_import(void **state)
{
    (void) state;
    char *p = alloc(SIZE), *q = alloc(SIZE);
    void *base;
    uint32_t key = key_of_idle(p);
    failing.import = GPUSYM_ERR_NO_MEMORY;
    assert_int_equal(gpusym_reg_map(&dev, elsewhere, self, key, &base, &mapped_size), GPUSYM_ERR_NO_MEMORY);
    map_elsewhere(key);
    assert_int_equal(calls.imports, 2);
    for (unsigned i = 0; i < 2; i++) {
        key = key_of_idle(q);
        failing.import = 0 == i ? GPUSYM_ERR_UNREACHABLE : GPUSYM_ERR;
        for (unsigned k = 0; k < 3; k++) {
            assert_int_equal(gpusym_reg_map(&dev, elsewhere, self, key, &base, &mapped_size), GPUSYM_ERR_UNREACHABLE);
        }
        assert_int_equal(calls.imports, 3 + i);
        OK(buffer_free(q));
        q = alloc_at(q, SIZE);
        assert_non_null(q);
    }
    map_elsewhere(key_of_idle(q));
    assert_int_equal(calls.mapped, 2);
}

static void injected_faults_are_told(void **state)
{
    (void) state;
    uint32_t key;
    uint64_t off;
    void *base;
    assert_true(close_all());
    gpusym_sim_params.fail = "export:1,import:1";
    assert_true(open_all());
    void *p = alloc(SIZE);
    assert_int_equal(gpusym_reg_get(&dev, gpu, p, 1, &key, &off), GPUSYM_ERR);
    assert_non_null(strstr(sim->error(), "export:1"));
    OK(gpusym_reg_get(&dev, gpu, p, 1, &key, &off));
    assert_int_equal(gpusym_reg_map(&dev, elsewhere, self, key, &base, &mapped_size), GPUSYM_ERR_UNREACHABLE);
    assert_non_null(strstr(sim->error(), "import:1"));
}

/* How reg.c lays out an entry of its table, and where that begins: in bytes. */
enum { ENTRY_FIRST = 128, ENTRY_BYTES = 128, ENTRY_USED = 120, ENTRY_SIZE_OFF = 8 };

static int map_rc(uint32_t key)
{
    void *base;
    return gpusym_reg_map(&dev, elsewhere, self, key, &base, &mapped_size);
}

/* One bit of an entry: nothing is mapped by what its owner has not written. */
static void entries_overwritten_are_refused(void **state)
{
    (void) state;
    const uint32_t key = key_of(alloc(SIZE));
    unsigned char *entry =
        (unsigned char *) gpusym_pages_area(GPUSYM_AREA_REG) + ENTRY_FIRST + (key & 0xff) * ENTRY_BYTES;
    for (unsigned bit = 0; bit < 8 * ENTRY_USED; bit++) {
        entry[bit / 8] ^= (unsigned char) (1u << bit % 8);
        /* the low bits of the generation are in the key */
        assert_int_equal(map_rc(key), bit < 24 ? GPUSYM_ERR_UNREACHABLE : GPUSYM_ERR_CORRUPT);
        entry[bit / 8] ^= (unsigned char) (1u << bit % 8);
    }
    assert_int_equal(calls.imports, 0);
    OK(map_rc(key));
    assert_int_equal(mapped_size, SIZE);
    /* what is mapped stays as it is, whatever its entry says then */
    memset(entry + ENTRY_SIZE_OFF, 0xff, ENTRY_USED - ENTRY_SIZE_OFF);
    OK(map_rc(key));
    assert_int_equal(mapped_size, SIZE);
    gpusym_reg_put(key);
}

/* What the owner says of the size is checked against what is mapped. */
static void a_size_that_is_not_mapped(void **state)
{
    (void) state;
    const uint32_t key = key_of(alloc(SIZE));
    for (unsigned i = 0; i < 2; i++) {
        lacking = 0 == i ? 1 : SIZE;
        assert_int_equal(map_rc(key), GPUSYM_ERR_CORRUPT);
        assert_int_equal(calls.imports, i + 1);
        assert_int_equal(calls.mapped, 0);
    }
    lacking = 0;
    OK(map_rc(key));
    assert_int_equal(mapped_size, SIZE);
    const uint32_t other = key_of(alloc(SIZE));
    unknown = true;
    for (unsigned i = 0; i < 2; i++) { /* remembered: it cannot be mapped */
        assert_int_equal(map_rc(other), GPUSYM_ERR_UNREACHABLE);
        assert_int_equal(calls.imports, 4);
        assert_int_equal(calls.mapped, 1);
    }
    gpusym_reg_put(other);
    gpusym_reg_put(key);
}

/* Any bytes in the whole table, and any keys. */
static void garbage_maps_nothing(void **state)
{
    (void) state;
    static unsigned char saved[GPUSYM_AREA_REG_LAST + 1 - GPUSYM_AREA_REG];
    const uint32_t key = key_of(alloc(SIZE));
    unsigned char *area = gpusym_pages_area(GPUSYM_AREA_REG);
    memcpy(saved, area, sizeof saved);
    for (unsigned round = 0; round < 300; round++) {
        for (unsigned i = 0; i < sizeof saved; i++) {
            area[i] = (unsigned char) next_random();
        }
        for (unsigned i = 0; i < GPUSYM_REG_MAX; i++) { /* keys that fit what stands there */
            uint32_t any;
            memcpy(&any, area + ENTRY_FIRST + i * ENTRY_BYTES, sizeof any);
            assert_true(GPUSYM_SUCCESS != map_rc(any << 8 | i));
            assert_true(GPUSYM_SUCCESS != map_rc((uint32_t) next_random()));
        }
        assert_true(GPUSYM_SUCCESS != map_rc(key));
    }
    assert_int_equal(calls.imports, 0);
    memcpy(area, saved, sizeof saved);
    OK(map_rc(key));
    gpusym_reg_put(key);
}

/* ---- threads ---- */

#define THREADS 4u
#define SHARED_BUFFERS 6u

static void *shared_buffer[SHARED_BUFFERS];

/* Uses buffers that all threads use and one of its own, which it frees now and then. Counts what is wrong. */
static void *use_buffers(void *arg)
{
    const uint32_t mark = (uint32_t) (uintptr_t) arg << 24;
    uintptr_t wrong = 0;
    void *mine = NULL, *base;
    for (uint32_t i = 1; i < 3000; i++) {
        const bool shared = 0 != i % 3;
        uint32_t key;
        uint64_t off;
        if (NULL == mine && GPUSYM_SUCCESS != buffer_new(SIZE, &mine)) {
            return (void *) ++wrong;
        }
        void *p = shared ? shared_buffer[(i + (mark >> 24)) % SHARED_BUFFERS] : mine;
        if (GPUSYM_SUCCESS != gpusym_reg_get(&dev, gpu, p, SIZE, &key, &off)) {
            return (void *) ++wrong;
        }
        const uint32_t value = shared ? get_value(p) : mark | i;
        wrong += !shared && !put_value(p, value);
        wrong += GPUSYM_SUCCESS != gpusym_reg_map(&dev, elsewhere, self, key, &base, &mapped_size) ||
                 get_value(base) != value;
        gpusym_reg_put(key);
        if (!shared && 0 == i % 7) {
            wrong += GPUSYM_SUCCESS != buffer_free(mine);
            mine = NULL;
        }
        if (0 == i % 100) {
            gpusym_reg_sweep(&dev);
        }
    }
    return (void *) wrong;
}

static void threads_share_the_tables(void **state)
{
    (void) state;
    pthread_t thread[THREADS];
    gpusym_reg_limit = 8; /* there is room for what is in use, and not for all */
    for (uint32_t i = 0; i < SHARED_BUFFERS; i++) {
        shared_buffer[i] = alloc(SIZE);
        assert_true(put_value(shared_buffer[i], 1000 + i));
    }
    for (uintptr_t t = 0; t < THREADS; t++) {
        assert_int_equal(pthread_create(&thread[t], NULL, use_buffers, (void *) (t + 1)), 0);
    }
    for (unsigned t = 0; t < THREADS; t++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(thread[t], &wrong), 0);
        assert_null(wrong);
    }
    assert_true(calls.mapped <= 8);
}

/* ---- two processes ---- */

/* What the owner tells its peer of a call, and what the peer must find there. */
typedef struct {
    uint32_t key, value;
    uint64_t off;
    bool gone; /* the entry is not there any more */
} message_t;

static bool say(int fd, const void *what, size_t size)
{
    return (ssize_t) size == write(fd, what, size);
}

static bool hear(int fd, void *what, size_t size)
{
    return (ssize_t) size == read(fd, what, size);
}

/* In a child: ends it with the line where a condition does not hold. */
#define CHILD(condition)               \
    do {                               \
        if (!(condition)) {            \
            _exit(__LINE__ % 255 + 1); \
        }                              \
    } while (0)

/* Maps what the owner names, looks whether it holds what the owner wrote, and answers in its place; until the pipe
 * ends. */
static void child_maps(int in, int out)
{
    gpusym_pages_id_t id;
    gpusym_peer_t *owner;
    message_t message;
    void *base;
    CHILD(hear(in, &id, sizeof id));
    CHILD(open_all());
    CHILD(GPUSYM_SUCCESS == gpusym_pages_peer(&id, &owner));
    while (hear(in, &message, sizeof message)) {
        const int rc = gpusym_reg_map(&dev, gpu, owner, message.key, &base, &mapped_size);
        CHILD(rc == (message.gone ? GPUSYM_ERR_UNREACHABLE : GPUSYM_SUCCESS));
        if (!message.gone) {
            CHILD(message.value == get_value((char *) base + message.off));
            CHILD(put_value((char *) base + message.off, ~message.value));
        }
        CHILD(calls.mapped <= 5); /* the owner's limit */
        CHILD(say(out, "", 1));
    }
    CHILD(calls.mapped > 0);
    CHILD(close_all());
    _exit(0);
}

static void tell(int to, int from, const message_t *message)
{
    char byte;
    assert_true(say(to, message, sizeof *message));
    assert_true(hear(from, &byte, 1));
}

/* Random buffers, of which some are freed and had again at the same place. Both processes see both's writes. */
static void owner_calls(int to, int from)
{
    enum { BUFFERS = 9 };
    char *p[BUFFERS] = {NULL};
    uint32_t old[BUFFERS] = {0};
    unsigned renewed = 0;
    gpusym_reg_limit = 5;
    for (uint32_t call = 1; call <= 3000; call++) {
        const unsigned i = (unsigned) (next_random() % BUFFERS);
        message_t message = {.value = call};
        if (NULL == p[i]) {
            p[i] = alloc(SIZE);
        } else if (0 == next_random() % 4) {
            OK(buffer_free(p[i]));
            char *again = alloc(SIZE);
            renewed += again == p[i];
            p[i] = again;
        }
        const uint64_t at = next_random() % (SIZE / 4) * 4;
        assert_true(put_value(p[i] + at, call));
        OK(gpusym_reg_get(&dev, gpu, p[i] + at, 4, &message.key, &message.off));
        assert_int_equal(message.off, at);
        tell(to, from, &message);
        assert_int_equal(get_value(p[i] + at), ~call);
        gpusym_reg_put(message.key);
        if (0 != old[i] && old[i] != message.key) {
            message = (message_t){.key = old[i], .gone = true};
            tell(to, from, &message);
        }
        old[i] = message.gone ? old[i] : message.key;
        old[i] = message.gone ? 0 : old[i];
    }
    print_message("%u buffers came back at their address\n", renewed);
    assert_true(renewed > 10);
}

/* *state: not NULL for memory that is shared by a descriptor. */
static void a_peer_process_never_sees_old_memory(void **state)
{
    int down[2], up[2], status;
    gpusym_pages_id_t id;
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    fflush(NULL);
    const pid_t pid = fork(); /* before anything is open */
    if (0 == pid) {
        close(down[1]);
        close(up[0]);
        alarm(hang_s());
        child_maps(down[0], up[1]);
    }
    assert_true(pid > 0);
    close(down[0]);
    close(up[1]);
    by_fd = NULL != *state;
    assert_true(open_all());
    OK(gpusym_pages_open(&id));
    assert_true(say(down[1], &id, sizeof id));
    owner_calls(down[1], up[0]);
    close(down[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(up[0]);
}

/* Each with either kind of memory. */
#define TEST(function)                                                     \
    cmocka_unit_test_setup_teardown(function, setup, teardown),            \
    {                                                                      \
#function ", by descriptor", function, setup_by_fd, teardown, NULL \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        /* These fork: first. */
        cmocka_unit_test_teardown(a_peer_process_never_sees_old_memory, teardown),
        {"a_peer_process_never_sees_old_memory, by descriptor", a_peer_process_never_sees_old_memory, NULL, teardown,
         &by_fd},
        TEST(a_buffer_has_one_key),
        TEST(what_cannot_be_shared_has_none),
        TEST(parts_of_blocks_may_be_kept_back),
        TEST(any_memory_taken_for_the_gpus_has_none),
        TEST(before_the_pages_there_is_none),
        TEST(the_table_has_a_bound),
        TEST(a_failed_export_leaves_nothing),
        TEST(freed_buffers_lose_their_keys),
        TEST(new_buffers_find_the_freed_ones),
        TEST(exports_end),
        TEST(memory_may_be_mapped_twice),
        TEST(found_by_its_id),
        TEST(any_order_of_calls_is_right),
        TEST(our_own_is_not_mapped),
        TEST(peers_map_once),
        TEST(a_reallocated_buffer_is_mapped_anew),
        TEST(a_larger_buffer_over_a_freed_one),
        TEST(memory_comes_back_under_pressure),
        TEST(peers_let_go),
        TEST(bad_keys_are_refused),
        TEST(a_failed_import),
        TEST(entries_overwritten_are_refused),
        TEST(a_size_that_is_not_mapped),
        TEST(garbage_maps_nothing),
        TEST(injected_faults_are_told),
        TEST(threads_share_the_tables),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests_name("reg", tests, NULL, NULL);
}
