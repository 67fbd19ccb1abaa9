/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of the collectives whose data copy engines send (copies.c, symm_ce.h). The ranks are data of this process:
 * a device that only notes down what is queued, and a machine that then does it, in random order: every stream by
 * itself, or all that a rank has queued in the one order in which it was queued, as a GPU with few hardware queues may.
 * Nothing may stand still, and every byte of the result must be right. A seed as the argument repeats the run that
 * printed it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/plan.h"
#include "mca/common/gpusym/exec/copies.h"
#include "test/unit/random.h"
#include "test/unit/rig.h"

/* ---- the device: notes down ---- */

typedef struct {
    enum { OP_COPY, OP_FLAG, OP_KERNEL } what;
    unsigned stream;
    void *dst;
    const void *src;
    size_t size;
    gpusym_stream_flag_t flag;
    unsigned kernel;
    gpusym_work_t *work;
} op_t;

#define OPS_MAX 8192

struct gpusym_gpu {
    unsigned streams; /* made so far */
    op_t *op;
    unsigned n;
};

struct gpusym_stream {
    gpusym_gpu_t *gpu;
    unsigned number;
};

static gpusym_gpu_t gpus[RANKS_MAX];
static unsigned streams_alive;

static op_t *note(gpusym_stream_t *stream)
{
    assert_in_range(stream->gpu->n, 0, OPS_MAX - 1);
    op_t *op = &stream->gpu->op[stream->gpu->n++];
    memset(op, 0, sizeof *op);
    op->stream = stream->number;
    return op;
}

static int note_stream_create(gpusym_gpu_t *gpu, gpusym_stream_t **stream)
{
    *stream = malloc(sizeof **stream);
    assert_non_null(*stream);
    **stream = (gpusym_stream_t){gpu, gpu->streams++};
    streams_alive++;
    return GPUSYM_SUCCESS;
}

static void note_stream_destroy(gpusym_stream_t *stream)
{
    free(stream);
    streams_alive--;
}

static bool note_gpu_alive(gpusym_gpu_t *gpu)
{
    (void) gpu;
    return true;
}

static int note_stream_poll(gpusym_stream_t *stream)
{
    (void) stream;
    return 1;
}

static int note_host_alloc(gpusym_gpu_t *gpu, size_t size, void **host, void **dev)
{
    (void) gpu;
    *host = *dev = aligned_alloc(64, (size + 63) / 64 * 64);
    assert_non_null(*host);
    memset(*host, 0, size);
    return GPUSYM_SUCCESS;
}

static int note_host_free(gpusym_gpu_t *gpu, void *host)
{
    (void) gpu;
    free(host);
    return GPUSYM_SUCCESS;
}

static int note_launch(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    op_t *op = note(stream);
    op->what = OP_KERNEL;
    op->kernel = kernel;
    op->work = malloc(sizeof *w);
    assert_non_null(op->work);
    *op->work = *w;
    return GPUSYM_SUCCESS;
}

static int note_copy_async(gpusym_stream_t *stream, void *dst, const void *src, size_t size)
{
    if (0 != size) {
        op_t *op = note(stream);
        op->what = OP_COPY;
        op->dst = dst;
        op->src = src;
        op->size = size;
    }
    return GPUSYM_SUCCESS;
}

static int note_stream_flags(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        op_t *op = note(stream);
        op->what = OP_FLAG;
        op->flag = flags[i];
    }
    return GPUSYM_SUCCESS;
}

static const gpusym_device_t device = {
    .name = "notes",
    .stream_create = note_stream_create,
    .stream_destroy = note_stream_destroy,
    .stream_poll = note_stream_poll,
    .gpu_alive = note_gpu_alive,
    .host_alloc = note_host_alloc,
    .host_free = note_host_free,
    .launch = note_launch,
    .copy_async = note_copy_async,
    .stream_flags = note_stream_flags,
};

/* ---- the machine: does it ---- */

static uint32_t flag_of(const gpusym_work_t *w, uint32_t row, uint32_t writer)
{
    return *(const uint32_t *) ((const char *) w->peer[w->rank] + GPUSYM_FLAGS_OFF + row * GPUSYM_FLAG_ROW +
                                4 * writer);
}

/* Whether a kernel would not wait. */
static bool kernel_ready(const gpusym_work_t *w)
{
    for (uint32_t p = 0; p < w->nranks; p++) {
        const uint32_t bit = 1u << p;
        const uint32_t sent = *(const uint32_t *) ((const char *) w->peer[w->rank] + GPUSYM_SENT_OFF + 4 * p);
        if ((0 != (w->copies.arrived & bit) && flag_of(w, 0, p) < w->epoch) ||
            (0 != (w->copies.delivered & bit) && flag_of(w, 1, p) < w->epoch) ||
            (0 != (w->copies.sent & bit) && sent < w->copies.sent_epoch)) {
            return false;
        }
    }
    return true;
}

static bool op_ready(const op_t *op)
{
    return OP_KERNEL == op->what
               ? kernel_ready(op->work)
               : OP_FLAG != op->what || !op->flag.wait || (int32_t) (*op->flag.at - op->flag.value) >= 0;
}

static void op_do(op_t *op)
{
    if (OP_COPY == op->what) {
        memmove(op->dst, op->src, op->size);
    } else if (OP_FLAG == op->what && !op->flag.wait) {
        *op->flag.at = op->flag.value;
    } else if (OP_KERNEL == op->what) {
        for (uint32_t b = 0; b < op->work->nblocks; b++) {
            gpusym_kernel_sim(op->kernel, op->work, b);
        }
        free(op->work);
        op->work = NULL;
    }
}

/* Does all that is queued; true if it could. one_queue: strictly in order on each rank. */
static bool machine_run(uint32_t nranks, bool one_queue)
{
    bool *done[RANKS_MAX];
    unsigned first[RANKS_MAX] = {0};
    uint32_t left = 0;
    for (uint32_t r = 0; r < nranks; r++) {
        done[r] = calloc(gpus[r].n + 1, 1);
        assert_non_null(done[r]);
        left += gpus[r].n;
    }
    /* With chance in it, "nothing went" must come often before it is believed. */
    const unsigned believed = one_queue ? 1 : 200;
    for (unsigned misses = 0; left > 0 && misses < believed;) {
        const uint32_t start = below(nranks);
        bool any = false;
        for (uint32_t q = 0; q < nranks && !any; q++) {
            const uint32_t r = (start + q) % nranks;
            uint64_t blocked = 0; /* streams whose first operation waits */
            for (unsigned i = first[r]; i < gpus[r].n; i++) {
                op_t *op = &gpus[r].op[i];
                assert_in_range(op->stream, 0, 63);
                const uint64_t bit = 1ull << op->stream;
                if (done[r][i] || 0 != (blocked & bit)) {
                    continue;
                }
                if (op_ready(op) && (one_queue || 0 != below(3))) {
                    op_do(op);
                    done[r][i] = any = true;
                    left--;
                    break;
                }
                blocked |= bit;
                if (one_queue) {
                    break;
                }
            }
            while (first[r] < gpus[r].n && done[r][first[r]]) {
                first[r]++;
            }
        }
        misses = any ? 0 : misses + 1;
    }
    for (uint32_t r = 0; r < nranks; r++) {
        free(done[r]);
        for (unsigned i = 0; i < gpus[r].n; i++) {
            free(gpus[r].op[i].work);
        }
        gpus[r].n = 0;
    }
    return 0 == left;
}

/* ---- calls ---- */

typedef struct {
    unsigned coll, op, type;
    uint64_t count[RANKS_MAX]; /* elements of the message (all the same), or of each rank's segment */
    uint32_t root;
    bool in_place;
    unsigned offset; /* bytes off alignment */
} call_t;

static bool reduces(unsigned coll)
{
    return GPUSYM_COLL_ALLREDUCE == coll || GPUSYM_COLL_REDUCE == coll || GPUSYM_COLL_REDUCE_SCATTER == coll;
}

static bool is_whole(unsigned coll)
{
    return GPUSYM_COLL_ALLREDUCE == coll || GPUSYM_COLL_REDUCE == coll || GPUSYM_COLL_BCAST == coll;
}

static uint64_t total(const call_t *call, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t p = 0; p < n; p++) {
        sum += call->count[p];
    }
    return is_whole(call->coll) ? call->count[0] : sum;
}

static uint64_t before(const call_t *call, uint32_t p)
{
    uint64_t sum = 0;
    for (uint32_t q = 0; q < p; q++) {
        sum += call->count[q];
    }
    return sum;
}

/* Elements of rank r's input and output. */
static uint64_t in_count(const call_t *call, uint32_t n, uint32_t r)
{
    switch (call->coll) {
    case GPUSYM_COLL_ALLGATHERV:
        return call->count[r];
    case GPUSYM_COLL_ALLTOALL:
        return n * call->count[0];
    case GPUSYM_COLL_BCAST:
        return r == call->root ? call->count[0] : 0;
    default:
        return total(call, n);
    }
}

static uint64_t out_count(const call_t *call, uint32_t n, uint32_t r)
{
    switch (call->coll) {
    case GPUSYM_COLL_REDUCE_SCATTER:
        return call->count[r];
    case GPUSYM_COLL_ALLTOALL:
        return n * call->count[0];
    case GPUSYM_COLL_REDUCE:
        return r == call->root ? call->count[0] : 0;
    default:
        return total(call, n);
    }
}

static void describe(const call_t *call, part_t *parts, uint32_t n, uint32_t r)
{
    const uint64_t size = gpusym_type_bytes(call->type);
    gpusym_work_t *w = &parts[r].w;
    w->in = parts[r].in.data;
    w->out = parts[r].out_bytes > 0 ? parts[r].out.data : NULL;
    w->op = call->op;
    w->type = reduces(call->coll) ? call->type : GPUSYM_T_U8;
    w->copies.whole = is_whole(call->coll);
    w->src_first = GPUSYM_COLL_BCAST == call->coll ? call->root : 0;
    w->src_end = GPUSYM_COLL_BCAST == call->coll ? call->root + 1 : n;
    w->dst_first = GPUSYM_COLL_REDUCE == call->coll ? call->root : 0;
    w->dst_end = GPUSYM_COLL_REDUCE == call->coll ? call->root + 1 : n;
    w->bytes = is_whole(call->coll) ? size * call->count[0] : 0;
    for (uint32_t p = 0; p < n; p++) {
        const uint64_t mine = size * call->count[r], its = size * call->count[p];
        w->peer_out[p] = GPUSYM_COLL_REDUCE_SCATTER == call->coll ? NULL : parts[p].out.data;
        switch (call->coll) {
        case GPUSYM_COLL_REDUCE_SCATTER:
            w->send[p] = (gpusym_seg_t){size * before(call, p), its};
            w->recv[p] = (gpusym_seg_t){0, p == r ? mine : 0};
            break;
        case GPUSYM_COLL_ALLGATHERV:
            w->send[p] = (gpusym_seg_t){0, mine};
            w->recv[p] = (gpusym_seg_t){size * before(call, p), its};
            w->remote_off[p] = size * before(call, r);
            break;
        case GPUSYM_COLL_ALLTOALL:
            w->send[p] = w->recv[p] = (gpusym_seg_t){p * size * call->count[0], size * call->count[0]};
            w->remote_off[p] = r * size * call->count[0];
            break;
        default:
            break;
        }
        w->bytes = !is_whole(call->coll) && its > w->bytes ? its : w->bytes;
    }
    if (GPUSYM_COLL_ALLGATHERV == call->coll && parts[r].in_place) {
        w->in = parts[r].out.data + w->recv[r].off;
    }
}

/* Element i of rank r's output: who contributed what. */
static bool element_right(const call_t *call, const part_t *parts, uint32_t n, uint32_t r, uint64_t i)
{
    const uint64_t size = gpusym_type_bytes(call->type);
    const uint8_t *got = parts[r].out.data + size * i;
    element_t e = {.nranks = n, .op = call->op, .type = call->type};
    uint32_t p = 0;
    switch (call->coll) {
    case GPUSYM_COLL_BCAST:
        return 0 == memcmp(got, parts[call->root].source + size * i, size);
    case GPUSYM_COLL_ALLGATHERV:
        while (i >= before(call, p + 1)) {
            p++;
        }
        return 0 == memcmp(got, parts[p].source + size * (i - before(call, p)), size);
    case GPUSYM_COLL_ALLTOALL:
        p = (uint32_t) (i / call->count[0]);
        return 0 == memcmp(got, parts[p].source + size * (r * call->count[0] + i % call->count[0]), size);
    default:
        break;
    }
    for (p = 0; p < n; p++) {
        e.in[p] = parts[p].source + size * (i + (GPUSYM_COLL_REDUCE_SCATTER == call->coll ? before(call, r) : 0));
    }
    return right(&e, got);
}

static void buffers_make(const call_t *call, part_t *part, uint32_t n, uint32_t r)
{
    const uint64_t size = gpusym_type_bytes(call->type), ins = in_count(call, n, r);
    part->in_bytes = size * ins;
    part->out_bytes = size * out_count(call, n, r);
    part->in_place = call->in_place && part->out_bytes > 0 && part->in_bytes > 0;
    part->source = malloc(part->in_bytes + 1);
    assert_non_null(part->source);
    for (uint64_t i = 0; i < ins; i++) {
        random_element(call->op, call->type, part->source + size * i);
    }
    part->out = buffer_new(part->out_bytes, call->offset);
    uint64_t at = 0;
    if (part->in_place) {
        part->in = part->out;
        at = GPUSYM_COLL_ALLGATHERV == call->coll ? size * before(call, r) : 0;
    } else {
        part->in = buffer_new(part->in_bytes, call->offset);
    }
    memcpy(part->in.data + at, part->source, part->in_bytes);
}

static void call_run(rig_t *rig, const call_t *call, uint32_t chunk, bool one_queue)
{
    const uint32_t n = rig->nranks;
    const bool does = reduces(call->coll);
    const unsigned family = does ? GPUSYM_F_CE_R : GPUSYM_F_CE;
    gpusym_copies_streams_t *streams[RANKS_MAX];
    gpusym_lane_t *lane[RANKS_MAX];
    part_t *parts = calloc(n, sizeof *parts);
    uint64_t epochs = 0;

    assert_non_null(parts);
    for (uint32_t r = 0; r < n; r++) {
        buffers_make(call, &parts[r], n, r);
    }
    for (uint32_t r = 0; r < n; r++) {
        parts[r].w = work_new(rig, r, &parts[r]);
        describe(call, parts, n, r);
        parts[r].w.nblocks = 1 + below(3);
        if (0 == parts[r].w.bytes) {
            continue;
        }
        const uint64_t mine = gpusym_kernel_plan(family, &parts[r].w, chunk);
        assert_true(0 == r || mine == epochs);
        assert_in_range(mine, 1, GPUSYM_COPIES_MAX);
        epochs = mine;
    }
    if (0 != epochs) {
        parts_epochs(rig, parts, n, epochs);
        for (uint32_t r = 0; r < n; r++) {
            bool queued = false;
            assert_int_equal(gpusym_lane_get(&device, &gpus[r], &lane[r]), GPUSYM_SUCCESS);
            assert_int_equal(gpusym_copies_get(&device, &gpus[r], n, &streams[r]), GPUSYM_SUCCESS);
            assert_int_equal(gpusym_copies_queue(streams[r], lane[r],
                                                 gpusym_kernel_find(family, call->op, parts[r].w.type), GPUSYM_F_CE,
                                                 does, does && one_queue == (r % 2), &parts[r].w, &queued),
                             GPUSYM_SUCCESS);
            assert_true(queued);
        }
        if (!machine_run(n, one_queue)) {
            fail_msg("stands still: collective %u, %u ranks, root %u, %lu elements, chunk %u, one queue %d", call->coll,
                     n, call->root, (unsigned long) call->count[0], chunk, one_queue);
        }
    }
    for (uint32_t r = 0; r < n; r++) {
        uint32_t status = 1;
        if (0 != epochs) {
            assert_true(gpusym_lane_done(lane[r], &status));
            assert_int_equal(status, GPUSYM_STATUS_OK);
            gpusym_lane_put(lane[r]);
            gpusym_copies_put(streams[r]);
            for (uint64_t i = 0; i < out_count(call, n, r); i++) {
                if (!element_right(call, parts, n, r, i)) {
                    fail_msg(
                        "wrong: collective %u, op %u, type %u, rank %u of %u, root %u, element %lu of %lu, chunk %u",
                        call->coll, call->op, call->type, r, n, call->root, (unsigned long) i,
                        (unsigned long) out_count(call, n, r), chunk);
                }
            }
        }
        assert_true(guards_hold(&parts[r].out, parts[r].out_bytes));
        if (!parts[r].in_place) {
            assert_true(guards_hold(&parts[r].in, parts[r].in_bytes));
            assert_true(0 == memcmp(parts[r].in.data, parts[r].source, parts[r].in_bytes));
        }
    }
    for (uint32_t r = 0; r < n; r++) {
        part_free(&parts[r]);
    }
    free(parts);
}

static const unsigned colls[] = {GPUSYM_COLL_ALLREDUCE,      GPUSYM_COLL_REDUCE,     GPUSYM_COLL_BCAST,
                                 GPUSYM_COLL_REDUCE_SCATTER, GPUSYM_COLL_ALLGATHERV, GPUSYM_COLL_ALLTOALL};

static uint64_t random_count(void)
{
    switch (below(4)) {
    case 0:
        return below(4);
    case 1:
        return below(200);
    default:
        return below(6000);
    }
}

static call_t random_call(uint32_t n)
{
    call_t call = {.coll = colls[below(LENGTH(colls))], .root = below(n), .in_place = 0 != below(2)};
    do {
        call.op = below(GPUSYM_OP_COUNT);
        call.type = below(GPUSYM_T_COUNT);
    } while (!gpusym_op_valid(call.op, call.type));
    const uint64_t same = random_count();
    const bool differ = GPUSYM_COLL_REDUCE_SCATTER == call.coll || GPUSYM_COLL_ALLGATHERV == call.coll;
    for (uint32_t p = 0; p < n; p++) {
        call.count[p] = differ && below(2) ? random_count() : same;
    }
    call.offset = below(2) ? 0 : (unsigned) (gpusym_type_bytes(call.type) * below(4)) % 16;
    /* What goes through zero copy has these apart. */
    if (GPUSYM_COLL_ALLTOALL == call.coll || GPUSYM_COLL_REDUCE_SCATTER == call.coll ||
        GPUSYM_COLL_BCAST == call.coll) {
        call.in_place = GPUSYM_COLL_BCAST == call.coll && call.in_place;
    }
    return call;
}

static void gpus_open(uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        gpus[r] = (gpusym_gpu_t){.op = malloc(OPS_MAX * sizeof(op_t))};
        assert_non_null(gpus[r].op);
    }
}

static void gpus_close(uint32_t n)
{
    gpusym_lanes_close();
    assert_int_equal(streams_alive, 0);
    for (uint32_t r = 0; r < n; r++) {
        free(gpus[r].op);
    }
}

/* Many calls one after the other in the same slots, of any collective, in chunks of any length. */
static void test_random_calls(void **state)
{
    static const uint32_t chunks[] = {0, 16, 128, 256, 1000, 4096};
    (void) state;
    for (uint32_t n = 2; n <= 9; n++) {
        rig_t *rig = rig_new(n, 256 << 10, 4, 1 + below(1000));
        gpus_open(n);
        for (unsigned i = 0; i < 150; i++) {
            const call_t call = random_call(n);
            call_run(rig, &call, chunks[below(LENGTH(chunks))], 0 != below(2));
        }
        gpus_close(n);
        rig_free(rig);
    }
}

/* Each collective in many chunks, all that a rank has in one queue. */
static void test_one_queue(void **state)
{
    (void) state;
    for (uint32_t n = 2; n <= 8; n++) {
        rig_t *rig = rig_new(n, 128 << 10, 4, 1);
        gpus_open(n);
        for (unsigned c = 0; c < LENGTH(colls); c++) {
            call_t call = {.coll = colls[c], .op = GPUSYM_OP_SUM, .type = GPUSYM_T_F32, .root = n - 1};
            for (uint32_t p = 0; p < n; p++) {
                call.count[p] = 64 * 32 * 5;
            }
            call_run(rig, &call, 128, true);
        }
        gpus_close(n);
        rig_free(rig);
    }
}

/* The largest messages that fit are cut into no more chunks than the queues hold. */
static void test_fit(void **state)
{
    (void) state;
    for (uint32_t n = 2; n <= 9; n++) {
        gpusym_work_t w = {.nranks = n};
        assert_in_range(gpusym_slot_layout(1 << 20, n, 64, &w), 1, 64);
        w.dst_end = w.src_end = n;
        w.nblocks = 1;
        for (unsigned whole = 0; whole < 2; whole++) {
            uint64_t most = 0;
            for (uint64_t step = 1ull << 40; step > 0; step /= 2) {
                most += gpusym_copies_fit(GPUSYM_F_CE_R, &w, 0 != whole, most + step) ? step : 0;
            }
            assert_in_range(most, 1 << 20, 1ull << 40);
            w.bytes = most;
            w.copies.whole = whole;
            assert_in_range(gpusym_kernel_plan(GPUSYM_F_CE_R, &w, 16), 1, GPUSYM_COPIES_MAX);
            assert_true((uint64_t) GPUSYM_COPIES_BUFFERS * n * w.stage_bytes <= w.stage_room);
            assert_true((w.span + w.chunk - 1) / w.chunk <= GPUSYM_COPIES_MAX);
        }
        w.flag_rows = 2;
        assert_false(gpusym_copies_fit(GPUSYM_F_CE, &w, true, 1));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_calls),
        cmocka_unit_test(test_one_queue),
        cmocka_unit_test(test_fit),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
