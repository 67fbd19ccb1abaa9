/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/device/plain.c: addresses that are host memory without asking the device.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mca/common/gpusym/device/plain.h"

static int initialised = 1, zero;

/* Frames below that of the function that asks are not looked at. */
static bool __attribute__((noinline)) is_plain(const void *p)
{
    return gpusym_plain(p);
}

static void data_heap_and_frames_are_plain(void **state)
{
    void *frame = __builtin_frame_address(0); /* AddressSanitizer keeps variables elsewhere */
    void *heap = sbrk(4096);

    (void) state;
    gpusym_plain_find(false);
    assert_ptr_not_equal(heap, (void *) -1);
    assert_true(is_plain(&initialised));
    assert_true(is_plain(&zero));
    assert_true(is_plain(heap));
    assert_true(is_plain((char *) heap + 4095));
    assert_true(is_plain(frame));
    assert_int_equal(gpusym_plain_place(&zero), GPUSYM_PLAIN_DATA);
    assert_int_equal(gpusym_plain_place(heap), GPUSYM_PLAIN_HEAP);
    assert_int_equal(gpusym_plain_place((char *) __builtin_frame_address(0) + 64), GPUSYM_PLAIN_STACK);
}

static void mappings_and_what_is_not_in_use_are_not(void **state)
{
    char *heap, *map = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void) state;
    gpusym_plain_find(false);
    heap = (char *) sbrk(0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_false(is_plain(map));
    assert_false(is_plain(NULL));
    assert_false(is_plain(heap));
    assert_false(is_plain((char *) __builtin_frame_address(0) - (1 << 20)));
    munmap(map, 4096);
}

/* The frames of other threads lie in mappings, between which there may be a device's. */
static void *ask_in_thread(void *first)
{
    int local = 0;
    static int answers[2];

    answers[0] = is_plain(&local);
    answers[1] = is_plain(first);
    return answers;
}

static void frames_are_plain_in_the_first_thread_only(void **state)
{
    pthread_t thread;
    void *answers;
    int local = 0;

    (void) state;
    gpusym_plain_find(false);
    assert_int_equal(pthread_create(&thread, NULL, ask_in_thread, &local), 0);
    assert_int_equal(pthread_join(thread, &answers), 0);
    assert_int_equal(((int *) answers)[0], 0);
    assert_int_equal(((int *) answers)[1], 0);
}

static void *find_in_thread(void *arg)
{
    gpusym_plain_find(false);
    return arg;
}

static void another_thread_finds_all_but_the_stack(void **state)
{
    pthread_t thread;
    int local = 0;

    (void) state;
    assert_int_equal(pthread_create(&thread, NULL, find_in_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(is_plain(&zero));
    assert_false(is_plain(&local));
}

static void nothing_is_plain_where_all_memory_is_a_gpus(void **state)
{
    int local = 0;

    (void) state;
    gpusym_plain_find(true);
    assert_false(is_plain(&initialised));
    assert_false(is_plain(&local));
    assert_false(is_plain((char *) sbrk(0) - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_heap_and_frames_are_plain),
        cmocka_unit_test(mappings_and_what_is_not_in_use_are_not),
        cmocka_unit_test(frames_are_plain_in_the_first_thread_only),
        cmocka_unit_test(another_thread_finds_all_but_the_stack),
        cmocka_unit_test(nothing_is_plain_where_all_memory_is_a_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
