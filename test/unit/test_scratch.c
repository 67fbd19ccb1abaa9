/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/memory/scratch.c on a device that only counts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "test/unit/random.h"

#include "mca/common/gpusym/memory/scratch.h"

#define MIB (1ull << 20)
#define ALLOCATIONS 64

/* Addresses are never touched: each allocation has a place of its own. */
static struct {
    uint64_t bytes; /* 0: none */
} allocation[ALLOCATIONS];
static uint64_t allocated; /* bytes, now */
static unsigned made;      /* allocations, ever */
static uint64_t room;      /* bytes that there are */

#define PLACE (1ull << 32) /* bytes between allocations */

static int mem_alloc(gpusym_gpu_t *gpu, size_t size, void **p)
{
    (void) gpu;
    if (allocated + size > room) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    for (unsigned i = 0; i < ALLOCATIONS; i++) {
        if (0 == allocation[i].bytes) {
            allocation[i].bytes = size;
            allocated += size;
            made++;
            *p = (void *) (uintptr_t) ((i + 1) * PLACE);
            return GPUSYM_SUCCESS;
        }
    }
    return GPUSYM_ERR_NO_MEMORY;
}

static int mem_free(gpusym_gpu_t *gpu, void *p)
{
    (void) gpu;
    const uint64_t i = (uintptr_t) p / PLACE - 1;
    assert_true(i < ALLOCATIONS && 0 == (uintptr_t) p % PLACE && 0 != allocation[i].bytes);
    allocated -= allocation[i].bytes;
    allocation[i].bytes = 0;
    return GPUSYM_SUCCESS;
}

static int mem_range(const void *p, gpusym_range_t *range)
{
    const uint64_t i = (uintptr_t) p / PLACE - 1;
    *range = (gpusym_range_t){.base = (void *) (uintptr_t) ((i + 1) * PLACE), .size = allocation[i].bytes, .id = 7 + i};
    return GPUSYM_SUCCESS;
}

static const gpusym_device_t dev = {.mem_alloc = mem_alloc, .mem_free = mem_free, .mem_range = mem_range};
static gpusym_gpu_t *const gpu = (gpusym_gpu_t *) &allocated, *const other = (gpusym_gpu_t *) &room;

static int setup(void **state)
{
    (void) state;
    made = 0;
    room = 1ull << 40;
    gpusym_scratch_max = 256 * MIB;
    return 0;
}

static int teardown(void **state)
{
    (void) state;
    gpusym_scratch_close(&dev);
    assert_true(0 == allocated);
    gpusym_scratch_close(&dev);
    return 0;
}

static void *get(gpusym_gpu_t *which, uint64_t bytes)
{
    void *p = NULL;
    assert_int_equal(gpusym_scratch_get(&dev, which, bytes, &p), GPUSYM_SUCCESS);
    const uint64_t i = (uintptr_t) p / PLACE - 1, off = (uintptr_t) p % PLACE;
    assert_true(i < ALLOCATIONS && off + bytes <= allocation[i].bytes && 0 == off % 256);
    return p;
}

/* 64 messages at a time, again and again: few allocations, once. */
static void many_short_ones_share_allocations(void **state)
{
    (void) state;
    void *p[64];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 64; i++) {
            p[i] = get(gpu, 500 << 10);
        }
        for (int i = 0; i < 64; i++) {
            gpusym_scratch_put(&dev, gpu, p[i]);
        }
        assert_true(0 == round || 4 == made);
    }
    assert_true(32 * MIB == allocated);
}

/* Those who have another way get none of an allocation of its own. */
static void parts_come_to_an_end(void **state)
{
    enum { SLABS = 32, MOST = SLABS * 8 };
    void *p[MOST + 1] = {NULL};
    int n = 0, rc;
    (void) state;
    assert_int_equal(gpusym_scratch_get_part(&dev, gpu, 5 * MIB, &p[0]), GPUSYM_ERR_NOT_AVAILABLE);
    while (GPUSYM_SUCCESS == (rc = gpusym_scratch_get_part(&dev, gpu, MIB, &p[n])) && n < MOST) {
        n++;
    }
    assert_int_equal(rc, GPUSYM_ERR_NOT_AVAILABLE);
    assert_int_equal(n, MOST);
    assert_int_equal(made, SLABS);
    gpusym_scratch_put(&dev, gpu, p[7]);
    assert_int_equal(gpusym_scratch_get_part(&dev, gpu, MIB, &p[7]), GPUSYM_SUCCESS);
    for (int i = 0; i < n; i++) {
        gpusym_scratch_put(&dev, gpu, p[i]);
    }
    assert_int_equal(made, SLABS);
}

/* Of short ones, which are parts; a long one may be another allocation the next time. */
static void allocations_have_ids(void **state)
{
    (void) state;
    void *p[8], *q = get(gpu, 20 * MIB);
    for (int i = 0; i < 8; i++) {
        p[i] = get(0 == i % 2 ? gpu : other, 3 * MIB);
        assert_true(7 + (uintptr_t) p[i] / PLACE - 1 == gpusym_scratch_id(p[i]));
        assert_true(gpusym_scratch_id(p[i]) == gpusym_scratch_id((char *) p[i] + 3 * MIB - 1));
    }
    assert_true(0 == gpusym_scratch_id(q) && 0 == gpusym_scratch_id(&room));
    for (int i = 0; i < 8; i++) {
        gpusym_scratch_put(&dev, 0 == i % 2 ? gpu : other, p[i]);
    }
    gpusym_scratch_put(&dev, gpu, q);
    gpusym_scratch_close(&dev);
    assert_true(0 == gpusym_scratch_id(p[0]));
}

static void a_long_one_is_kept(void **state)
{
    (void) state;
    void *p = get(gpu, 20 * MIB), *q = get(gpu, 10 * MIB);
    gpusym_scratch_put(&dev, gpu, q);
    gpusym_scratch_put(&dev, gpu, p);
    assert_true(20 * MIB == allocated);
    assert_ptr_equal(get(gpu, 9 * MIB), p);
    gpusym_scratch_put(&dev, gpu, p);
    assert_int_equal(made, 2);
}

static void each_gpu_has_its_own(void **state)
{
    (void) state;
    void *p = get(gpu, 1000), *q = get(other, 1000);
    assert_true((uintptr_t) p / PLACE != (uintptr_t) q / PLACE);
    gpusym_scratch_put(&dev, other, q);
    gpusym_scratch_put(&dev, gpu, p);
}

static void no_more_is_kept_than_the_user_allows(void **state)
{
    (void) state;
    gpusym_scratch_max = 1 * MIB;
    void *p = get(gpu, 1000), *q = get(gpu, 20 * MIB);
    gpusym_scratch_put(&dev, gpu, p);
    gpusym_scratch_put(&dev, gpu, q);
    assert_true(0 == allocated);
}

/* What is kept goes before a caller goes without. */
static void what_is_kept_is_given_up(void **state)
{
    (void) state;
    room = 30 * MIB;
    void *p = get(gpu, 1000), *q = get(gpu, 12 * MIB);
    gpusym_scratch_put(&dev, gpu, p);
    gpusym_scratch_put(&dev, gpu, q);
    assert_true(20 * MIB == allocated);
    p = get(gpu, 30 * MIB);
    assert_int_equal(gpusym_scratch_get(&dev, gpu, 1, &q), GPUSYM_ERR_NO_MEMORY);
    gpusym_scratch_put(&dev, gpu, p);
}

/* No two overlap, whatever comes and goes. */
static void any_order_is_right(void **state)
{
    (void) state;
    struct {
        char *p;
        uint64_t bytes;
    } lent[40] = {{NULL, 0}};
    for (int n = 0; n < (long_form() ? 200000 : 5000); n++) {
        const unsigned i = (unsigned) (next_random() % 40);
        if (NULL != lent[i].p) {
            gpusym_scratch_put(&dev, gpu, lent[i].p);
            lent[i].p = NULL;
            continue;
        }
        lent[i].bytes = 1 + next_random() % (1ull << (1 + next_random() % 24));
        char *p = get(gpu, lent[i].bytes);
        for (unsigned j = 0; j < 40; j++) {
            assert_true(NULL == lent[j].p || p + lent[i].bytes <= lent[j].p || lent[j].p + lent[j].bytes <= p);
        }
        lent[i].p = p;
    }
    for (unsigned i = 0; i < 40; i++) {
        if (NULL != lent[i].p) {
            gpusym_scratch_put(&dev, gpu, lent[i].p);
        }
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(many_short_ones_share_allocations),
        TEST(parts_come_to_an_end),
        TEST(allocations_have_ids),
        TEST(a_long_one_is_kept),
        TEST(each_gpu_has_its_own),
        TEST(no_more_is_kept_than_the_user_allows),
        TEST(what_is_kept_is_given_up),
        TEST(any_order_is_right),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests_name("scratch", tests, NULL, NULL);
}
