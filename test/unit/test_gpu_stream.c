/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of test/mpi/gpu_stream.h, by which the mpirun tests use streams: on the simulator, or the device of
 * GPUSYM_TEST_DEVICE.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <time.h>

#include "test/mpi/gpu_stream.h"
#include "test/mpi/mem.h"

static int prepare(void **state)
{
    const char *device = getenv("GPUSYM_TEST_DEVICE");
    (void) state;
    return 0 == mem_init(NULL != device ? device : "sim", 0) ? gpu_stream_init() : -1;
}

static int finish(void **state)
{
    (void) state;
    mem_fini();
    return 0;
}

/* Waits, on the device, until the word is not 0. */
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

static void work_is_in_order(void **state)
{
    (void) state;
    uint32_t *host = mem_alloc(MEM_REGISTERED, 64), *p = mem_alloc(MEM_DEVICE, 64), go = 0, calls = 0;
    void *stream = gpu_stream_create(), *other = gpu_stream_create(), *event = gpu_event_create();
    host[0] = 5;
    host[1] = 0;
    gpu_stream_call(stream, wait_for_word, &go);
    gpu_stream_copy(stream, p, host, 4);
    gpu_event_record(event, stream);
    gpu_stream_wait(other, event);
    gpu_stream_copy(other, host + 1, p, 4);
    gpu_stream_call(other, word_add, &calls);
    assert_false(gpu_stream_done(stream) || gpu_stream_done(other) || gpu_event_reached(event));
    assert_int_equal(host[1], 0);
    word_add(&go);
    gpu_stream_synchronize(other);
    assert_true(gpu_stream_done(stream) && gpu_stream_done(other) && gpu_event_reached(event));
    assert_true(5 == host[1] && 1 == calls);
    gpu_event_destroy(event);
    gpu_stream_destroy(other);
    gpu_stream_destroy(stream);
    mem_free(MEM_DEVICE, p);
    mem_free(MEM_REGISTERED, host);
}

static void graphs_run_again(void **state)
{
    (void) state;
    uint32_t *host = mem_alloc(MEM_REGISTERED, 64), *p = mem_alloc(MEM_DEVICE, 64), calls = 0;
    void *stream = gpu_stream_create();
    host[0] = host[1] = 0;
    gpu_capture_begin(stream);
    gpu_stream_copy(stream, p, host, 4);
    gpu_stream_call(stream, word_add, &calls);
    gpu_stream_copy(stream, host + 1, p, 4);
    void *graph = gpu_capture_end(stream);
    gpu_stream_synchronize(stream);
    assert_int_equal(calls, 0);
    for (uint32_t i = 1; i < 4; i++) {
        host[0] = 10 * i;
        assert_true(gpu_graph_launch(graph, stream));
        gpu_stream_synchronize(stream);
        assert_true(10 * i == host[1] && i == calls);
    }
    gpu_graph_destroy(graph);
    gpu_stream_destroy(stream);
    mem_free(MEM_DEVICE, p);
    mem_free(MEM_REGISTERED, host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(work_is_in_order, prepare, finish),
        cmocka_unit_test_setup_teardown(graphs_run_again, prepare, finish),
    };
    return cmocka_run_group_tests_name("gpu_stream", tests, NULL, NULL);
}
