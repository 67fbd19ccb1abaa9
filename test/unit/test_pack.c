/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/exec/pack.c and the family PACK on the simulated GPU: random nodes of every form,
 * counts and ranges, compared with plain loops, every byte of both sides.  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/exec/pack.h"
#include "test/unit/random.h"

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)

enum { ROOM = 1 << 20, MARGIN = 64, NODES = 4000 };
static gpusym_device_t dev; /* the simulator, whose launches are counted by form */
static gpusym_gpu_t *gpu;
static gpusym_stream_t *stream;
static char *user, *packed; /* of the GPU, ROOM bytes each */
static unsigned char *users, *packs, *got, *expected;
static unsigned forms[3];

static uint64_t below(uint64_t n)
{
    return next_random() % n;
}

static int launch_counted(gpusym_stream_t *s, unsigned kernel, const gpusym_work_t *w)
{
    assert_int_equal(kernel, GPUSYM_F_PACK);
    forms[w->pack.form]++;
    return gpusym_device_sim.launch(s, kernel, w);
}

static int setup(void **state)
{
    const char *why = "";
    (void) state;
    dev = gpusym_device_sim;
    dev.launch = launch_counted;
    memset(forms, 0, sizeof forms);
    OK(dev.open(&why));
    OK(dev.gpu_open(NULL, &gpu));
    OK(dev.kernels_load(gpu, &why));
    OK(dev.stream_create(gpu, &stream));
    OK(dev.mem_alloc(gpu, ROOM, (void **) &user));
    OK(dev.mem_alloc(gpu, ROOM, (void **) &packed));
    return 0;
}

static int teardown(void **state)
{
    (void) state;
    dev.stream_destroy(stream);
    OK(dev.mem_free(gpu, user));
    OK(dev.mem_free(gpu, packed));
    dev.close();
    return 0;
}

/* ---- a datatype ---- */

typedef struct {
    gpusym_node_t node[NODES];
    size_t n, size, count;
    ptrdiff_t extent;
    uint64_t align; /* of all of it; the addresses keep to it, or not */
} type_t;

static type_t type;

/* Adds a node at the place `at` of its element. Returns the byte behind it. */
static int64_t add(int64_t at, uint32_t count, uint32_t bytes, int64_t stride)
{
    const int64_t last = (int64_t) (count - 1) * stride;
    type.node[type.n++] = (gpusym_node_t){last < 0 ? at - last : at, stride, count, bytes, type.size};
    type.size += (size_t) count * bytes;
    return at + (last < 0 ? -last : last) + bytes;
}

/* Puts the nodes into another order; they keep what they are packed to. */
static void shuffle(void)
{
    for (size_t i = type.n - 1; i > 0; i--) {
        const size_t j = below(i + 1);
        const gpusym_node_t node = type.node[i];
        type.node[i].disp = type.node[j].disp;
        type.node[j].disp = node.disp;
    }
}

/* Sticks: n of them side by side, or with gaps; each row of an element is one plane. */
static void make_sticks(uint32_t bytes, size_t n, uint32_t rows, uint32_t gap, bool backwards, bool mixed)
{
    const int64_t step = (int64_t) bytes * (1 + gap), plane = step * (int64_t) n + (int64_t) bytes * (int64_t) below(3);
    type = (type_t){.align = bytes, .count = 1 + below(3)};
    for (size_t i = 0; i < n; i++) {
        (void) add(step * (int64_t) i, rows, bytes, backwards ? -plane : plane);
    }
    if (mixed) {
        shuffle();
    }
    type.extent = plane * rows + (int64_t) bytes * (int64_t) below(3);
}

/* A column of a matrix, as many as there are columns: one node, and an extent of one element. */
static void make_columns(uint32_t bytes, uint32_t rows, size_t columns)
{
    type = (type_t){.align = bytes, .count = columns, .extent = bytes};
    (void) add(0, rows, bytes, (int64_t) bytes * (int64_t) (columns + below(3)));
}

static void make_any(void)
{
    int64_t at = 0;
    const size_t n = 1 + below(0 == below(4) ? 300 : 6);
    type = (type_t){.align = 1u << below(5), .count = 1 + below(4)};
    const uint32_t longest = 1 + (uint32_t) below(0 == below(3) ? 20000 / type.align : 20);
    for (size_t i = 0; i < n && at < 40000; i++) {
        const uint32_t count = 1 + (uint32_t) below(0 == below(3) ? 200 : 3);
        const uint32_t bytes = (uint32_t) (type.align * (1 + below(1 + longest / count)));
        const int64_t stride = bytes + (int64_t) (type.align * below(5));
        at = add(at + (int64_t) (type.align * below(9)), count, bytes, 0 == below(4) ? -stride : stride);
    }
    type.extent = at + (int64_t) (type.align * below(4));
}

/* ---- packing it ---- */

/* Writes the packed bytes [from, to) by plain loops. */
static void move_plainly(unsigned char *at_user, unsigned char *at_packed, uint64_t from, uint64_t to, bool unpack)
{
    for (size_t e = 0; e < type.count; e++) {
        for (size_t i = 0; i < type.n; i++) {
            const gpusym_node_t *node = &type.node[i];
            for (uint64_t b = 0; b < (uint64_t) node->count * node->bytes; b++) {
                const uint64_t pos = e * type.size + node->packed + b;
                unsigned char *there = at_user + (ptrdiff_t) e * type.extent + node->disp +
                                       (int64_t) (b / node->bytes) * node->stride + (int64_t) (b % node->bytes);
                if (pos < from || pos >= to) {
                    continue;
                }
                if (unpack) {
                    *there = at_packed[pos - from];
                } else {
                    at_packed[pos - from] = *there;
                }
            }
        }
    }
}

static void compare(const char *what, const char *mem, const unsigned char *right, uint64_t from, uint64_t to)
{
    OK(dev.copy(gpu, got, mem, ROOM));
    for (size_t i = 0; i < ROOM; i++) {
        if (got[i] != right[i]) {
            fail_msg(
                "%s, byte %zu: %zu elements of %zu nodes, the first of %u rows of %u bytes; packed bytes %lu to %lu "
                "of %zu",
                what, i, type.count, type.n, type.node[0].count, type.node[0].bytes, (unsigned long) from,
                (unsigned long) to, type.count * type.size);
        }
    }
}

/* Packs or unpacks [from, to). nodes NULL: type has one node, of which the launch tells. */
static void move(const gpusym_nodes_t *nodes, uint64_t from, uint64_t to, uint64_t skew, bool unpack)
{
    unsigned char *const from_user = unpack ? expected : users, *const to_packed = unpack ? packs : expected;
    const size_t at = MARGIN + skew, at_packed = MARGIN + (0 == below(4) ? below(MARGIN) : type.align * below(3));
    const gpusym_pack_call_t call = {.rows = type.node[0],
                                     .size = type.size,
                                     .extent = type.extent,
                                     .lo = (ptrdiff_t) below(9),
                                     .from = from,
                                     .to = to,
                                     .user = user + at,
                                     .packed = packed + at_packed,
                                     .unpack = unpack};
    int rc;
    memcpy(expected, unpack ? users : packs, ROOM);
    OK(dev.copy(gpu, user, users, ROOM));
    OK(dev.copy(gpu, packed, packs, ROOM));
    move_plainly(from_user + at, to_packed + at_packed, from, to, unpack);
    OK(gpusym_pack_queue(&dev, gpu, stream, nodes, &call));
    while (0 == (rc = dev.stream_poll(stream))) {
        sched_yield();
    }
    assert_int_equal(rc, 1);
    compare("elements", user, unpack ? expected : users, from, to);
    compare("packed", packed, unpack ? packs : expected, from, to);
}

static void move_parts(const gpusym_nodes_t *nodes)
{
    const uint64_t all = type.count * type.size, first = below(all);
    const uint64_t aligned = first / type.align * type.align, skew = 0 == below(3) ? below(MARGIN) : 0;
    for (int unpack = 0; unpack < 2; unpack++) {
        move(nodes, 0, all, skew, unpack);
        move(nodes, first, first + 1 + below(all - first), 0, unpack);
        move(nodes, aligned, all, 0, unpack);
    }
}

static unsigned boxes; /* types that had one */

/* A type's box, if it has one, has its bytes where the nodes have them. */
static void compare_box(const gpusym_nodes_t *nodes)
{
    gpusym_box_t box;
    if (!gpusym_nodes_box(nodes, type.count, type.extent, &box)) {
        return;
    }
    boxes++;
    for (size_t e = 0; e < type.count; e++) {
        for (size_t i = 0; i < type.n; i++) {
            const gpusym_node_t *node = &type.node[i];
            for (uint64_t row = 0; row < node->count; row++) {
                const uint64_t at = e * type.size + node->packed + row * node->bytes;
                const uint64_t n = at / box.bytes, plane = n / box.n[0];
                const uint64_t off =
                    n % box.n[0] * box.stride[0] + plane % box.n[1] * box.stride[1] + plane / box.n[1] * box.stride[2];
                assert_int_equal(at % box.bytes, 0);
                assert_int_equal((int64_t) off, (int64_t) e * type.extent + node->disp - type.node[0].disp +
                                                    (int64_t) row * node->stride);
            }
        }
    }
}

static void move_type(void)
{
    gpusym_nodes_t *nodes;
    uint64_t copies, rows, bytes;
    assert_true((uint64_t) type.extent * type.count < ROOM - 4 * MARGIN);
    OK(gpusym_nodes_make(type.node, type.n, &nodes));
    gpusym_nodes_count(nodes, &copies, &rows, &bytes);
    uint64_t one_by_one = 0; /* rows backwards are no one copy */
    for (size_t i = 0; i < type.n; i++) {
        one_by_one += type.node[i].stride < 0 ? type.node[i].count : 1;
    }
    assert_int_equal(copies, one_by_one);
    assert_int_equal(bytes, type.size);
    compare_box(nodes);
    OK(gpusym_nodes_upload(nodes, &dev, gpu));
    move_parts(nodes);
    gpusym_nodes_free(nodes);
}

static void sticks_of_any_length(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 40; i++) {
        const uint32_t bytes = 4u << below(3), rows = 8 + (uint32_t) below(0 == below(2) ? 10 : 70);
        const size_t most = (ROOM - 8 * MARGIN) / 3 / 3 / bytes / (rows + 1);
        make_sticks(bytes, 1 + below(most < 900 ? most : 900), rows, (uint32_t) below(3), 0 == below(3), 0 == below(2));
        move_type();
    }
    assert_true(forms[GPUSYM_PACK_STICKS] > 20 && forms[GPUSYM_PACK_PIECES] > 20);
}

static void columns_of_matrices(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 20; i++) {
        make_columns(4u << below(3), 8 + (uint32_t) below(150), 1 + below(200));
        move_type();
    }
    assert_true(forms[GPUSYM_PACK_STICKS] > 10);
}

static void nodes_of_any_kind(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 100; i++) {
        make_any();
        move_type();
    }
    assert_true(forms[GPUSYM_PACK_PIECES] > 400);
}

static void rows_without_nodes(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 60; i++) {
        const uint32_t unit = 1u << below(5), bytes = unit * (1 + (uint32_t) below(500 >> below(9)));
        const uint32_t count = 1 + (uint32_t) below(30000 / bytes + 1);
        type = (type_t){.align = unit, .count = 1};
        (void) add((int64_t) (unit * below(4)), count, bytes, bytes + (int64_t) (unit * (1 + below(5))));
        move_parts(NULL);
    }
    assert_int_equal(forms[GPUSYM_PACK_ROWS], 60 * 6);
}

/* Subarrays of three and four dimensions: the nodes are planes. */
static void subarrays_are_boxes(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 40; i++) {
        const unsigned planes = 1 + (unsigned) below(5), more = 1 + (unsigned) below(4);
        const uint32_t bytes = 8 * (1 + (uint32_t) below(4)), rows = 1 + (uint32_t) below(5);
        const int64_t row = bytes + 8 * (int64_t) below(3), plane = row * rows + 8 * (int64_t) below(3),
                      far = plane * planes + 8 * (int64_t) below(3);
        type = (type_t){.align = 8, .count = 1 == more ? 1 + below(3) : 1, .extent = far * more};
        for (unsigned m = 0; m < more; m++) {
            for (unsigned p = 0; p < planes; p++) {
                (void) add(m * far + p * plane, rows, bytes, row);
            }
        }
        boxes = 0;
        move_type();
        assert_int_equal(boxes, 1);
        if (type.n > 2) { /* one that lies elsewhere */
            type.node[1 + below(type.n - 1)].disp += 8;
            type.extent += 8;
            boxes = 0;
            move_type();
            assert_int_equal(boxes, 0);
        }
    }
}

/* Nodes that are not there, or for which there is no room, are an error, and no launch. */
static void nodes_without_memory(void **state)
{
    gpusym_nodes_t *nodes, *more[3] = {NULL};
    gpusym_node_t *many = calloc(GPUSYM_NODES_MAX, sizeof *many);
    const gpusym_pack_call_t call = {.size = 8, .to = 8, .user = user, .packed = packed};
    (void) state;
    assert_non_null(many);
    for (size_t i = 0; i < GPUSYM_NODES_MAX; i++) {
        many[i] = (gpusym_node_t){(int64_t) (i * 16), 0, 1, 8, i * 8};
    }
    OK(gpusym_nodes_make(many, 1, &nodes));
    assert_int_equal(gpusym_pack_queue(&dev, gpu, stream, nodes, &call), GPUSYM_ERR_NOT_AVAILABLE);
    for (unsigned i = 0; i < 3; i++) {
        OK(gpusym_nodes_make(many, GPUSYM_NODES_MAX, &more[i]));
        assert_int_equal(gpusym_nodes_upload(more[i], &dev, gpu), i < 2 ? GPUSYM_SUCCESS : GPUSYM_ERR_NOT_AVAILABLE);
    }
    gpusym_nodes_free(more[0]);
    OK(gpusym_nodes_upload(more[2], &dev, gpu));
    assert_int_equal(gpusym_nodes_upload(nodes, &dev, gpu), GPUSYM_ERR_NOT_AVAILABLE);
    gpusym_nodes_free(more[1]);
    gpusym_nodes_free(more[2]);
    gpusym_nodes_free(nodes);
    gpusym_nodes_free(NULL);
    free(many);
    assert_int_equal(forms[0] + forms[1] + forms[2], 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sticks_of_any_length, setup, teardown),
        cmocka_unit_test_setup_teardown(columns_of_matrices, setup, teardown),
        cmocka_unit_test_setup_teardown(nodes_of_any_kind, setup, teardown),
        cmocka_unit_test_setup_teardown(rows_without_nodes, setup, teardown),
        cmocka_unit_test_setup_teardown(subarrays_are_boxes, setup, teardown),
        cmocka_unit_test_setup_teardown(nodes_without_memory, setup, teardown),
    };
    random_start(argc, argv);
    users = malloc(ROOM);
    packs = malloc(ROOM);
    got = malloc(ROOM);
    expected = malloc(ROOM);
    for (size_t i = 0; i < ROOM; i++) {
        users[i] = (unsigned char) next_random();
        packs[i] = (unsigned char) next_random();
    }
    const int failed = cmocka_run_group_tests_name("pack", tests, NULL, NULL);
    free(users);
    free(packs);
    free(got);
    free(expected);
    return failed;
}
