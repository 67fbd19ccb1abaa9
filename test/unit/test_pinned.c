/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/memory/pinned.c on a device that only counts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>

#include "mca/common/gpusym/memory/pinned.h"

#define MIB ((size_t) 1 << 20)

static size_t pinned, most; /* bytes, now and ever */
static unsigned allocations;
static bool refuse;

/* Only a word that tells the size. */
static int host_alloc(gpusym_gpu_t *gpu, size_t size, void **host, void **dev)
{
    (void) gpu;
    size_t *p = refuse ? NULL : malloc(sizeof *p);
    if (NULL == p) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    *p = size;
    pinned += size;
    most = pinned > most ? pinned : most;
    allocations++;
    *host = *dev = p;
    return GPUSYM_SUCCESS;
}

static int host_free(gpusym_gpu_t *gpu, void *host)
{
    (void) gpu;
    pinned -= *(size_t *) host;
    free(host);
    return GPUSYM_SUCCESS;
}

static const gpusym_device_t dev = {.host_alloc = host_alloc, .host_free = host_free};
static gpusym_gpu_t *const gpu = (gpusym_gpu_t *) &pinned, *const other = (gpusym_gpu_t *) &most;

static int setup(void **state)
{
    (void) state;
    pinned = most = allocations = 0;
    refuse = false;
    gpusym_pinned_max = 256 * MIB;
    return 0;
}

static int teardown(void **state)
{
    (void) state;
    gpusym_pinned_close(&dev);
    assert_int_equal(pinned, 0);
    gpusym_pinned_close(&dev);
    return 0;
}

static size_t size_of(const void *buf)
{
    return *(const size_t *) buf;
}

static void buffers_are_used_again(void **state)
{
    (void) state;
    void *a = gpusym_pinned_get(&dev, gpu, 100), *b = gpusym_pinned_get(&dev, gpu, 100 << 10);
    assert_true(NULL != a && NULL != b && a != b && size_of(a) >= 100 && size_of(b) >= 100 << 10);
    gpusym_pinned_put(b);
    assert_ptr_equal(gpusym_pinned_get(&dev, gpu, 90 << 10), b);
    gpusym_pinned_put(a);
    gpusym_pinned_put(b);
    assert_int_equal(allocations, 2);
    void *c = gpusym_pinned_get(&dev, other, 100); /* of another GPU */
    assert_int_equal(allocations, 3);
    gpusym_pinned_put(c);
}

static void large_ones_fit_closely(void **state)
{
    (void) state;
    for (size_t mib = 1; mib <= 200; mib += 13) {
        void *p = gpusym_pinned_get(&dev, gpu, mib * MIB + 1);
        assert_non_null(p);
        assert_true(size_of(p) > mib * MIB && size_of(p) <= 2 * mib * MIB && size_of(p) <= (mib + 8) * MIB);
        gpusym_pinned_put(p);
    }
    assert_true(most <= 256 * MIB);
}

static void small_ones_leave_the_large(void **state)
{
    (void) state;
    void *large = gpusym_pinned_get(&dev, gpu, 200 * MIB), *small = gpusym_pinned_get(&dev, gpu, 100);
    gpusym_pinned_put(large);
    gpusym_pinned_put(small);
    assert_ptr_equal(gpusym_pinned_get(&dev, gpu, 100), small);
    assert_ptr_equal(gpusym_pinned_get(&dev, gpu, 150 * MIB), large);
    gpusym_pinned_put(small);
    assert_null(gpusym_pinned_get(&dev, gpu, 100 * MIB)); /* frees nothing, in vain */
    assert_ptr_equal(gpusym_pinned_get(&dev, gpu, 100), small);
    assert_int_equal(allocations, 2);
    gpusym_pinned_put(large);
    gpusym_pinned_put(small);
}

static void there_is_a_limit(void **state)
{
    (void) state;
    assert_null(gpusym_pinned_get(&dev, gpu, 256 * MIB + 1));
    void *a = gpusym_pinned_get(&dev, gpu, 128 * MIB), *b = gpusym_pinned_get(&dev, gpu, 100 * MIB);
    assert_true(NULL != a && NULL != b);
    assert_null(gpusym_pinned_get(&dev, gpu, 64 * MIB));
    void *c = gpusym_pinned_get(&dev, gpu, 8 * MIB);
    assert_non_null(c);
    gpusym_pinned_put(b);
    b = gpusym_pinned_get(&dev, gpu, 120 * MIB); /* in the place of what nobody uses */
    assert_non_null(b);
    gpusym_pinned_put(a);
    gpusym_pinned_put(c);
    a = gpusym_pinned_get(&dev, other, 136 * MIB);
    assert_non_null(a);
    assert_true(most <= 256 * MIB && pinned == size_of(a) + size_of(b));
    gpusym_pinned_put(a);
    gpusym_pinned_put(b);
    refuse = true;
    assert_null(gpusym_pinned_get(&dev, gpu, 250 * MIB));
    refuse = false;
    a = gpusym_pinned_get(&dev, gpu, 250 * MIB);
    assert_non_null(a);
    gpusym_pinned_put(a);
}

static void none_are_pinned_if_none_may_be(void **state)
{
    (void) state;
    gpusym_pinned_max = 0;
    assert_null(gpusym_pinned_get(&dev, gpu, 1));
    assert_int_equal(allocations, 0);
}

static void what_is_not_in_use_can_be_freed(void **state)
{
    (void) state;
    void *a = gpusym_pinned_get(&dev, gpu, 100), *b = gpusym_pinned_get(&dev, gpu, 8 * MIB);
    gpusym_pinned_put(b);
    gpusym_pinned_trim(&dev);
    assert_int_equal(pinned, size_of(a));
    gpusym_pinned_put(a);
    assert_ptr_equal(gpusym_pinned_get(&dev, gpu, 100), a);
    gpusym_pinned_put(a);
    gpusym_pinned_trim(&dev);
    assert_int_equal(pinned, 0);
    assert_int_equal(allocations, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(buffers_are_used_again, setup, teardown),
        cmocka_unit_test_setup_teardown(large_ones_fit_closely, setup, teardown),
        cmocka_unit_test_setup_teardown(small_ones_leave_the_large, setup, teardown),
        cmocka_unit_test_setup_teardown(there_is_a_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_in_use_can_be_freed, setup, teardown),
        cmocka_unit_test_setup_teardown(none_are_pinned_if_none_may_be, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
