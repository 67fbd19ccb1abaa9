/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/memory/staging_buffer.c on the simulated GPU: one process, then two, by fork.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/memory/staging_buffer.h"
#include "test/unit/two.h"

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)

static gpusym_device_t dev; /* the simulator, less what a test takes away */
static gpusym_gpu_t *gpu;
static gpusym_peer_t *self;
static unsigned registered, refusals;

static int count_register(gpusym_gpu_t *g, void *host, size_t size, void **at)
{
    registered++;
    return gpusym_device_sim.host_register(g, host, size, at);
}

static int refuse_register(gpusym_gpu_t *g, void *host, size_t size, void **at)
{
    (void) g;
    (void) host;
    (void) size;
    (void) at;
    refusals++;
    return GPUSYM_ERR_NO_MEMORY;
}

static bool open_all(unsigned side, gpusym_pages_id_t *id)
{
    const char *why = "";
    dev = gpusym_device_sim;
    dev.host_register = count_register;
    return GPUSYM_SUCCESS == dev.open(&why) && GPUSYM_SUCCESS == dev.gpu_open(NULL, &gpu) &&
           GPUSYM_SUCCESS == gpusym_pages_open(id) && GPUSYM_SUCCESS == gpusym_send_descs_open(side);
}

static void close_all(void)
{
    gpusym_staging_buffers_close(&dev);
    gpusym_staging_buffers_close(&dev);
    gpusym_send_descs_close();
    gpusym_pages_close();
    dev.close();
}

static int setup(void **state)
{
    gpusym_pages_id_t id;
    (void) state;
    registered = refusals = 0;
    assert_true(open_all(0, &id));
    OK(gpusym_pages_peer(&id, &self));
    return 0;
}

static int teardown(void **state)
{
    (void) state;
    close_all();
    return 0;
}

static void there_is_one_when_it_is_needed(void **state)
{
    gpusym_staging_buffer_t *own, *again, *seen;
    uint64_t off;
    (void) state;
    assert_int_equal(gpusym_staging_buffer_of(self, &seen), GPUSYM_ERR_NOT_AVAILABLE);
    assert_int_equal(gpusym_staging_buffer_get(1, &off), GPUSYM_ERR_NOT_AVAILABLE);
    OK(gpusym_staging_buffer_own(&own));
    OK(gpusym_staging_buffer_own(&again));
    OK(gpusym_staging_buffer_of(self, &seen));
    assert_ptr_equal(own, again);
    assert_ptr_equal(own, seen);
}

static void without_a_slab_there_is_none(void **state)
{
    gpusym_staging_buffer_t *own;
    (void) state;
    gpusym_pages_close();
    assert_int_equal(gpusym_staging_buffer_own(&own), GPUSYM_ERR_NOT_AVAILABLE);
    gpusym_staging_buffers_close(&dev);
    gpusym_pages_id_t id;
    OK(gpusym_pages_open(&id));
    OK(gpusym_staging_buffer_own(&own));
}

/* Ranges do not overlap, fill the staging buffer, and come back. */
static void ranges_fill_it(void **state)
{
    enum { RANGES = GPUSYM_STAGING_BUFFER_BYTES / GPUSYM_STAGING_BUFFER_CHUNK };
    gpusym_staging_buffer_t *own;
    uint64_t off[RANGES], more;
    (void) state;
    OK(gpusym_staging_buffer_own(&own));
    for (unsigned i = 0; i < RANGES; i++) {
        OK(gpusym_staging_buffer_get(GPUSYM_STAGING_BUFFER_CHUNK, &off[i]));
        memset(gpusym_staging_buffer_at(own, off[i], GPUSYM_STAGING_BUFFER_CHUNK), (int) i,
               GPUSYM_STAGING_BUFFER_CHUNK);
    }
    assert_int_equal(gpusym_staging_buffer_get(1, &more), GPUSYM_ERR_NO_MEMORY);
    for (unsigned i = 0; i < RANGES; i++) {
        const unsigned char *p = gpusym_staging_buffer_at(own, off[i], GPUSYM_STAGING_BUFFER_CHUNK);
        assert_true(p[0] == i && p[GPUSYM_STAGING_BUFFER_CHUNK - 1] == i && 0 == (uintptr_t) p % 4096);
    }
    gpusym_staging_buffer_put(off[3]);
    gpusym_staging_buffer_put(off[4]);
    OK(gpusym_staging_buffer_get(2 * GPUSYM_STAGING_BUFFER_CHUNK, &more));
    assert_int_equal(more, off[3]);
}

/* What a peer tells may be anything. */
static void only_what_lies_in_it_has_an_address(void **state)
{
    gpusym_staging_buffer_t *own;
    uint64_t first;
    (void) state;
    OK(gpusym_staging_buffer_own(&own));
    OK(gpusym_staging_buffer_get(GPUSYM_STAGING_BUFFER_BYTES, &first));
    assert_non_null(gpusym_staging_buffer_at(own, first, GPUSYM_STAGING_BUFFER_BYTES));
    assert_null(gpusym_staging_buffer_at(own, first, GPUSYM_STAGING_BUFFER_BYTES + 1));
    assert_null(gpusym_staging_buffer_at(own, 0, 1)); /* the segment's head */
    assert_null(gpusym_staging_buffer_at(own, first + GPUSYM_STAGING_BUFFER_BYTES, 1));
    assert_null(gpusym_staging_buffer_at(own, UINT64_MAX, 2));
    assert_null(gpusym_staging_buffer_at(own, first, UINT64_MAX));
}

static void gpus_register_it_once(void **state)
{
    gpusym_staging_buffer_t *own;
    gpusym_mem_t mem;
    void *at, *again, *memory;
    uint64_t off;
    char got[100];
    (void) state;
    OK(gpusym_staging_buffer_own(&own));
    OK(gpusym_staging_buffer_get(sizeof got, &off));
    OK(gpusym_staging_buffer_register(own, &dev, gpu, &at));
    OK(gpusym_staging_buffer_register(own, &dev, gpu, &again));
    assert_ptr_equal(at, again);
    assert_int_equal(registered, 1);
    dev.query((char *) at + off, &mem);
    assert_int_equal(mem.kind, GPUSYM_MEM_REGISTERED);
    OK(dev.mem_alloc(gpu, sizeof got, &memory));
    memset(gpusym_staging_buffer_at(own, off, sizeof got), 0x5a, sizeof got);
    OK(dev.copy(gpu, memory, (char *) at + off, sizeof got));
    OK(dev.copy(gpu, got, memory, sizeof got));
    assert_memory_equal(got, gpusym_staging_buffer_at(own, off, sizeof got), sizeof got);
    OK(dev.mem_free(gpu, memory));
}

static void what_cannot_be_registered_is_tried_once(void **state)
{
    gpusym_staging_buffer_t *own;
    void *at = &own;
    (void) state;
    dev.host_register = refuse_register;
    OK(gpusym_staging_buffer_own(&own));
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(gpusym_staging_buffer_register(own, &dev, gpu, &at), GPUSYM_ERR_NO_MEMORY);
        assert_null(at);
    }
    assert_int_equal(refusals, 1);
}

/* ---- two processes ---- */

typedef struct {
    two_meeting_t meeting;
    uint64_t off;
    uint32_t step;
} channel_t;
static channel_t *channel;

/* Fills a range that the parent reads, and a word that it answers. */
static void fill_a_range(gpusym_peer_t *peer)
{
    gpusym_staging_buffer_t *own;
    (void) peer;
    if (GPUSYM_SUCCESS != gpusym_staging_buffer_own(&own) ||
        GPUSYM_SUCCESS != gpusym_staging_buffer_get(GPUSYM_STAGING_BUFFER_CHUNK, &channel->off)) {
        _exit(3);
    }
    char *p = gpusym_staging_buffer_at(own, channel->off, GPUSYM_STAGING_BUFFER_CHUNK);
    memset(p, 0x77, GPUSYM_STAGING_BUFFER_CHUNK);
    __atomic_store_n(&channel->step, 1, __ATOMIC_RELEASE);
    two_reach((const uint32_t *) (const void *) p, 0x77777778);
    close_all();
    _exit(0);
}

static void peers_map_it(void **state)
{
    gpusym_staging_buffer_t *seen, *again;
    gpusym_peer_t *peer;
    (void) state;
    close_all();
    channel = two_channel(sizeof *channel);
    const pid_t pid = two_start(&channel->meeting, open_all, fill_a_range, &peer);
    two_reach(&channel->step, 1);
    OK(gpusym_staging_buffer_of(peer, &seen));
    OK(gpusym_staging_buffer_of(peer, &again));
    assert_ptr_equal(seen, again);
    char *p = gpusym_staging_buffer_at(seen, channel->off, GPUSYM_STAGING_BUFFER_CHUNK);
    assert_non_null(p);
    for (size_t i = 0; i < GPUSYM_STAGING_BUFFER_CHUNK; i++) {
        assert_int_equal(p[i], 0x77);
    }
    __atomic_store_n((uint32_t *) (void *) p, 0x77777778, __ATOMIC_RELEASE);
    assert_int_equal(two_reap(pid, channel, sizeof *channel), 0);
    assert_int_equal(p[5], 0x77); /* it is gone, its staging buffer is not */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(there_is_one_when_it_is_needed, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_slab_there_is_none, setup, teardown),
        cmocka_unit_test_setup_teardown(ranges_fill_it, setup, teardown),
        cmocka_unit_test_setup_teardown(only_what_lies_in_it_has_an_address, setup, teardown),
        cmocka_unit_test_setup_teardown(gpus_register_it_once, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_registered_is_tried_once, setup, teardown),
        cmocka_unit_test_setup_teardown(peers_map_it, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
