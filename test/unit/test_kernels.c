/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of the one-shot and two-shot kernels on the simulator (all-reduce, reduce, broadcast), and of the list:
 * the ranks are threads of this process, the slots are plain memory.  Every rank works off a script of calls. A seed as
 * the argument repeats the run that printed it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/plan.h"
#include "test/unit/random.h"
#include "test/unit/rig.h"

static const char *const type_id[] = {
#define GPUSYM_TYPE(id, name, bytes, class) #name,
#include "kernels/kernels.def"
};

/* The families that are all-reduces; the first of them are bound to an order of summation; and those of them
 * that can have fewer sources and destinations. */
static const unsigned reducers[] = {GPUSYM_F_AGXLL_R,       GPUSYM_F_RSXLD_AGXST,    GPUSYM_F_RSXST_AGXST,
                                    GPUSYM_F_RSXLD_AGXST_Z, GPUSYM_F_RSXST_AGXST_Z,  GPUSYM_F_RSXLL128_AGXLL128,
                                    GPUSYM_F_AGXLLMC_R,     GPUSYM_F_RSXLDMC_AGXSTMC};
#define REDUCERS ((unsigned) LENGTH(reducers) - (rig_on_gpu() ? 2 : 0)) /* no test makes multicast on a GPU */
#define ORDERED ((unsigned) LENGTH(reducers) - (rig_on_gpu() ? 2 : 1))
static const unsigned two_shots[] = {GPUSYM_F_RSXLD_AGXST, GPUSYM_F_RSXST_AGXST, GPUSYM_F_RSXLD_AGXST_Z,
                                     GPUSYM_F_RSXST_AGXST_Z};

/* One call as all ranks know it. */
typedef struct {
    unsigned family, op, type;
    uint64_t count; /* elements */
    uint32_t blocks;
    uint32_t src, dst;        /* 1 + the only source, the only destination; 0: all are */
    unsigned in_off, out_off; /* misalignment in bytes, below 16 */
    bool uneven;              /* misalignment differs from rank to rank */
    bool in_place, generic;   /* generic: not the specialised kernel */
} call_t;

static bool is_source(const call_t *call, uint32_t rank)
{
    return 0 == call->src || rank == call->src - 1;
}

static bool is_destination(const call_t *call, uint32_t rank)
{
    return 0 == call->dst || rank == call->dst - 1;
}

static void part_fill(const rig_t *rig, const call_t *call, uint32_t rank, part_t *part)
{
    const size_t size = gpusym_type_bytes(call->type);
    const uint64_t bytes = call->count * size;
    const unsigned off = call->uneven ? rank % 3 * 4 : 0;

    assert_true(gpusym_op_valid(call->op, call->type));
    assert_in_range(call->blocks, 1, rig->blocks);
    part->source = malloc(bytes);
    assert_non_null(part->source);
    for (uint64_t i = 0; i < call->count; i++) {
        random_element(call->op, call->type, part->source + i * size);
    }
    part->out = buffer_new(bytes, (call->out_off + off) % 16);
    part->in_place = call->in_place;
    part->in = call->in_place ? part->out : buffer_new(bytes, (call->in_off + off) % 16);
    memcpy(part->in.data, part->source, bytes);
    part->kernel = call->generic ? call->family : gpusym_kernel_find(call->family, call->op, call->type);
    part->in_bytes = part->out_bytes = bytes;
    part->done = NOT_DONE;
    part->w = work_new(rig, rank, part);
    /* what a rank has no part in is not there */
    part->w.in = is_source(call, rank) ? part->in.data : NULL;
    part->w.out = is_destination(call, rank) ? part->out.data : NULL;
    part->w.bytes = bytes;
    part->w.op = call->op;
    part->w.type = call->type;
    part->w.nblocks = call->blocks;
    part->w.src_first = call->src ? call->src - 1 : 0;
    part->w.src_end = call->src ? call->src : rig->nranks;
    part->w.dst_first = call->dst ? call->dst - 1 : 0;
    part->w.dst_end = call->dst ? call->dst : rig->nranks;
}

static void describe(const rig_t *rig, const call_t *call, const part_t *part, size_t number)
{
    print_error("call %zu: %s %s %s, count %lu, %u ranks, %u blocks of %u, slot %lu, offsets %u/%u%s, source %d, "
                "destination %d, chunk %u, %u threads%s%s, seed %lu\n",
                number, gpusym_family_name(call->family), gpusym_op_name(call->op), gpusym_type_name(call->type),
                (unsigned long) call->count, rig->nranks, call->blocks, rig->blocks, (unsigned long) rig->slot_size,
                call->in_off, call->out_off, call->uneven ? " and uneven" : "", (int) call->src - 1,
                (int) call->dst - 1, part->w.chunk, part->w.nthreads, call->in_place ? ", in place" : "",
                call->generic ? ", generic" : "", (unsigned long) seed);
}

/* Whether rank r's buffers hold what they should, but for the result; says what does not. */
static bool part_right(const call_t *call, const part_t *p, uint32_t r, const part_t *result)
{
    const uint64_t bytes = call->count * gpusym_type_bytes(call->type);
    if (p->done != ((uint64_t) p->w.done_seq << 32 | GPUSYM_STATUS_OK)) {
        print_error("rank %u: completion word %lx, sequence %x\n", r, (unsigned long) p->done, p->w.done_seq);
        return false;
    }
    if (p->sum != sum_of(p->out.data, bytes)) {
        print_error("rank %u: the output was not there when the rank had ended\n", r);
        return false;
    }
    if (!guards_hold(&p->in, bytes) || !guards_hold(&p->out, bytes)) {
        print_error("rank %u: wrote beyond a buffer\n", r);
        return false;
    }
    if (call->in_place ? !is_destination(call, r) && 0 != memcmp(p->in.data, p->source, bytes) : !p->kept) {
        print_error("rank %u: the input has changed\n", r);
        return false;
    }
    if (is_destination(call, r)) {
        if (0 != memcmp(p->out.data, result->out.data, bytes)) {
            print_error("rank %u: not the same bytes as the first has\n", r);
            return false;
        }
    } else if (!call->in_place && !all_bytes(p->out.data, bytes, POISON_BYTE)) {
        print_error("rank %u: wrote a result that is none of its own\n", r);
        return false;
    }
    return true;
}

/* Whether one call came out right on every rank; says what did not. */
static bool call_right(const rig_t *rig, const call_t *call, const part_t *part)
{
    const size_t size = gpusym_type_bytes(call->type);
    const part_t *result = &part[call->dst ? call->dst - 1 : 0];
    element_t e = {.nranks = call->src ? 1 : rig->nranks, .op = call->op, .type = call->type};

    for (uint32_t r = 0; r < rig->nranks; r++) {
        if (!part_right(call, &part[r], r, result)) {
            return false;
        }
    }
    for (uint64_t i = 0; i < call->count; i++) {
        for (uint32_t r = 0; r < e.nranks; r++) {
            e.in[r] = part[call->src ? call->src - 1 : r].source + i * size;
        }
        if (!right(&e, result->out.data + i * size)) {
            print_error("epoch %u: wrong at element %lu\n", result->w.epoch, (unsigned long) i);
            return false;
        }
    }
    return true;
}

/* Chunk and threads are random, and the same on all ranks. */
static uint64_t call_parts(const rig_t *rig, const call_t *call, part_t *part, uint32_t epoch)
{
    const uint32_t chunk = below(2) ? 0 : 1 + below(4096), threads = 32 * (1 + below(rig_on_gpu() ? 16 : 4));
    uint64_t used = 0;
    for (uint32_t r = 0; r < rig->nranks; r++) {
        part_fill(rig, call, r, &part[r]);
        part[r].w.epoch = epoch;
        part[r].w.nthreads = threads;
        used = gpusym_kernel_plan(call->family, &part[r].w, chunk);
    }
    for (uint32_t r = 0; r < rig->nranks * rig->nranks; r++) { /* as if every rank had mapped the others' buffers */
        part[r / rig->nranks].w.peer_in[r % rig->nranks] = part[r % rig->nranks].w.in;
        part[r / rig->nranks].w.peer_out[r % rig->nranks] = part[r % rig->nranks].w.out;
    }
    return used;
}

#include "test/unit/script.h"

/* A script that is filled call by call. */
typedef struct {
    call_t call[1024];
    size_t n;
} script_t;

static void script_add(script_t *s, call_t call)
{
    assert_true(s->n < LENGTH(s->call));
    s->call[s->n++] = call;
}

static void script_run(rig_t *rig, script_t *s)
{
    const size_t n = s->n;
    s->n = 0; /* a call that fails leaves nothing to the next test */
    rig_run(rig, s->call, n);
}

static script_t script;

/* ---- tests ---- */

static const uint64_t counts[] = {1, 2, 3, 7, 8, 1023};

static void every_operation_and_type(void **state)
{
    (void) state;
    for (uint32_t n = 2; n <= 4; n++) {
        rig_t *rig = rig_new(n, 64 << 10, 4, 1);
        for (unsigned i = 0; i < REDUCERS * GPUSYM_OP_COUNT; i++) {
            const unsigned family = reducers[i / GPUSYM_OP_COUNT], op = i % GPUSYM_OP_COUNT;
            for (unsigned type = 0; type < GPUSYM_T_COUNT; type++) {
                for (size_t k = 0; gpusym_op_valid(op, type) && k < LENGTH(counts); k++) {
                    script_add(&script, (call_t){.family = family,
                                                 .op = op,
                                                 .type = type,
                                                 .count = counts[k],
                                                 .blocks = 1 + below(rig->blocks),
                                                 .in_place = 0 == below(3)});
                }
            }
            script_run(rig, &script);
        }
        rig_free(rig);
    }
}

/* What the specialised kernels serve, served by the generic ones. */
static void generic_kernels_serve_all(void **state)
{
    (void) state;
    static const struct {
        unsigned family, op, type;
    } special[] = {
#define GPUSYM_KERNEL(f, o, t) {GPUSYM_F_##f, GPUSYM_OP_##o, GPUSYM_T_##t},
#include "kernels/kernels.def"
    };
    rig_t *rig = rig_new(3, 64 << 10, 2, 1);
    for (size_t i = 0; i < LENGTH(special); i++) {
        for (unsigned f = 0; f < REDUCERS; f++) {
            if (reducers[f] == special[i].family) {
                script_add(&script, (call_t){.family = special[i].family,
                                             .op = special[i].op,
                                             .type = special[i].type,
                                             .count = 500,
                                             .blocks = 1 + below(2),
                                             .generic = true});
            }
        }
    }
    script_run(rig, &script);
    rig_free(rig);
}

static void every_number_of_ranks(void **state)
{
    (void) state;
    static const uint32_t ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 32};
    static const uint64_t sizes[] = {1, 7, 64, 1023, 5000};
    for (size_t i = 0; i < LENGTH(ranks); i++) {
        rig_t *rig = rig_new(ranks[i], ranks[i] < 8 ? 64 << 10 : 512 << 10, 3, 1); /* LL128 lines of all of them */
        for (unsigned f = 0; f < REDUCERS; f++) {
            for (size_t k = 0; k < LENGTH(sizes) - (32 == ranks[i]); k++) {
                script_add(&script, (call_t){.family = reducers[f],
                                             .op = GPUSYM_OP_SUM,
                                             .type = GPUSYM_T_F32,
                                             .count = sizes[k],
                                             .blocks = 1 + (uint32_t) k % rig->blocks,
                                             .in_place = 0 == k % 2});
            }
        }
        script_run(rig, &script);
        rig_free(rig);
    }
}

/* Buffers may lie anywhere, the input elsewhere than the output; the ends are ragged. */
static void every_alignment(void **state)
{
    (void) state;
    static const unsigned offsets[] = {0, 8, 4, 2, 1};
    static const uint64_t sizes[] = {1, 3, 16, 31, 1023, 2500};
    rig_t *rig = rig_new(3, 64 << 10, 3, 1);
    for (unsigned f = 0; f < REDUCERS; f++) {
        for (size_t i = 0; i < LENGTH(offsets) * LENGTH(offsets); i++) {
            const unsigned in_off = offsets[i / LENGTH(offsets)], out_off = offsets[i % LENGTH(offsets)];
            for (size_t k = 0; k < LENGTH(sizes); k++) {
                call_t call = {.family = reducers[f],
                               .op = GPUSYM_OP_SUM,
                               .type = GPUSYM_T_U8,
                               .count = sizes[k],
                               .blocks = 1 + (uint32_t) (i + k) % rig->blocks,
                               .in_off = in_off,
                               .out_off = out_off,
                               .uneven = 0 == (i + k) % 3,
                               .in_place = in_off == out_off && 0 == k % 2};
                script_add(&script, call);
                call.type = GPUSYM_T_F64;
                call.count = 1 + sizes[k] / 8;
                script_add(&script, call);
            }
        }
        script_run(rig, &script);
    }
    rig_free(rig);
}

/* Bytes of the largest message that a two-shot of that many blocks does in one phase. */
static uint64_t phase_bytes(const rig_t *rig, uint32_t blocks)
{
    gpusym_work_t w = rig->shape;
    w.bytes = 1;
    w.nranks = rig->nranks;
    w.nblocks = blocks;
    assert_true(gpusym_kernel_plan(GPUSYM_F_RSXST_AGXST, &w, 0) >= 2);
    return (uint64_t) w.nblocks * w.stage_bytes;
}

/* Few and many chunks, whole phases and ends of them, in slots of several shapes. */
static void chunks_and_phases(void **state)
{
    (void) state;
    static const uint32_t blocks[] = {1, 2, 3, 7};
    for (uint32_t n = 2; n <= 5; n++) {
        rig_t *rig = rig_new(n, 64 << 10, 7, 1);
        assert_int_equal(rig->blocks, 7);
        for (unsigned i = 0; i < REDUCERS * LENGTH(blocks); i++) {
            const uint32_t b = blocks[i / REDUCERS];
            const uint64_t phase = phase_bytes(rig, b);
            const uint64_t sizes[] = {16 * n,    16 * n * b - 1,     phase - 1,     phase,         phase + 1,
                                      2 * phase, 2 * phase + 16 * b, 3 * phase - 7, 5 * phase + 40};
            for (size_t k = 0; k < LENGTH(sizes); k++) {
                script_add(&script, (call_t){.family = reducers[i % REDUCERS],
                                             .op = GPUSYM_OP_SUM,
                                             .type = GPUSYM_T_U8,
                                             .count = sizes[k],
                                             .blocks = b,
                                             .in_off = below(2),
                                             .in_place = 0 == below(4)});
            }
        }
        script_run(rig, &script);
        rig_free(rig);
    }
}

static void large_messages_in_a_small_slot(void **state)
{
    (void) state;
    rig_t *rig = rig_new(4, 64 << 10, 4, 1);
    for (unsigned f = 0; f < REDUCERS; f++) {
        script_add(&script, (call_t){.family = reducers[f],
                                     .op = GPUSYM_OP_SUM,
                                     .type = GPUSYM_T_F32,
                                     .count = (256 << 10) + 3,
                                     .blocks = 1 + f % rig->blocks});
    }
    script_run(rig, &script);
    rig_free(rig);
}

/* The one-shot in several epochs of which the last has few lines, or none for some blocks, then another call at once,
 * whose blocks have other lines: no line is overwritten before it was read. */
static void a_short_last_epoch_protects_the_one_before(void **state)
{
    (void) state;
    for (uint32_t n = 2; n <= 3; n++) {
        rig_t *rig = rig_new(n, 64 << 10, 7, 1);
        const uint64_t payload = gpusym_ll_payload(rig->shape.ll_bytes);
        for (unsigned i = 0; i < 900; i++) {
            script_add(&script, (call_t){.family = GPUSYM_F_AGXLL_R,
                                         .op = GPUSYM_OP_SUM,
                                         .type = GPUSYM_T_U8,
                                         .count = i % 2 ? payload : (2 + i % 3) * payload + 1 + below(100),
                                         .blocks = i % 2 ? 1 : rig->blocks});
        }
        script_run(rig, &script);
        rig_free(rig);
    }
}

/* Streams of LL128 lines: in one round, and in many, of whose last one some streams, and the last slices, have no part;
 * units of one group and of several; other algorithms between. */
static void streams_and_rounds(void **state)
{
    (void) state;
    for (uint32_t n = 2; n <= 9; n += long_form() || n < 4 ? 1 : 4) {
        rig_t *rig = rig_new(n, (n < 8 ? 64 : 96) << 10, 7, 1);
        for (unsigned round = 0; round < (long_form() ? 6 : 2); round++) {
            for (unsigned i = 0; i < 60; i++) {
                const unsigned family = i % 8 ? (unsigned) GPUSYM_F_RSXLL128_AGXLL128 : reducers[below(REDUCERS)];
                const uint64_t groups = 1 + below(i % 3 ? 12 : 80); /* of a slice */
                script_add(&script, (call_t){.family = family,
                                             .op = GPUSYM_OP_SUM,
                                             .type = below(2) ? GPUSYM_T_U8 : GPUSYM_T_U16,
                                             .count = 1 + below((unsigned) (480 * n * groups)) / (1 + below(3)),
                                             .blocks = 1 + below(rig->blocks),
                                             .in_off = below(3) ? 0 : 2 * below(8),
                                             .out_off = below(3) ? 0 : 2 * below(8),
                                             .uneven = 0 == below(4),
                                             .in_place = 0 == below(3)});
            }
            script_run(rig, &script);
        }
        rig_free(rig);
    }
}

/* Slots in which no unit of a large team has room are told from those that have one for each stream. */
static void small_slots_have_no_streams(void **state)
{
    (void) state;
    unsigned fit = 0, not = 0;
    for (uint32_t n = 1; n <= GPUSYM_TEAM_MAX; n++) {
        for (uint64_t size = 64 << 10; size <= 1 << 20; size += 64 << 10) {
            gpusym_work_t w = {0};
            w.nranks = n;
            assert_true(gpusym_slot_layout(size, n, 8, &w) > 0);
            /* two parities of a group from every peer, scattered and results */
            const bool fits = 2 * 2 * 512ull * (n > 1 ? n - 1 : 1) <= w.ll128_room;
            assert_true(gpusym_ll128_fits(&w) == fits);
            *(fits ? &fit : &not ) += 1;
        }
    }
    assert_true(fit > 0 && not > 0);
}

/* Only one source (whose bytes go as they are), or one destination. */
static void random_ends(const rig_t *rig, call_t *call)
{
    call->family = two_shots[below(LENGTH(two_shots))];
    if (below(2)) {
        call->dst = 1 + below(rig->nranks);
    } else {
        call->src = 1 + below(rig->nranks);
        call->op = GPUSYM_OP_SUM;
        call->type = GPUSYM_T_U8;
    }
}

/* Reduce and broadcast: every root, sizes about those of a slice, a chunk, a span; what has no part in it is NULL. */
static void one_source_or_destination(void **state)
{
    (void) state;
    for (uint32_t n = 1; n <= 9; n += n < 3 || long_form() ? 1 : 3) {
        rig_t *rig = rig_new(n, 96 << 10, 3, 1);
        const uint64_t sizes[] = {1, 15, 16 * n + 1, 1000, 16 * n * 64 * 3 - 8, 30000 + below(5000), 90001};
        for (unsigned i = 0; i < LENGTH(two_shots) * 2 * n; i++) {
            const uint32_t root = 1 + i / 2 / (uint32_t) LENGTH(two_shots);
            for (size_t k = 0; k < LENGTH(sizes) - (n > 5); k++) {
                call_t call = {.family = two_shots[i / 2 % LENGTH(two_shots)],
                               .op = GPUSYM_OP_SUM,
                               .type = GPUSYM_T_U8,
                               .count = sizes[k],
                               .blocks = 1 + below(rig->blocks),
                               .in_off = below(2) ? 0 : below(16),
                               .out_off = below(2) ? 0 : below(16),
                               .uneven = 0 == below(4),
                               .in_place = 0 == below(3)};
                *(i % 2 ? &call.src : &call.dst) = root;
                script_add(&script, call);
            }
            script_run(rig, &script);
        }
        rig_free(rig);
    }
}

static call_t random_call(const rig_t *rig)
{
    call_t call = {.family = reducers[below(REDUCERS)], .blocks = 1 + below(rig->blocks), .generic = 0 == below(4)};
    do {
        call.op = below(GPUSYM_OP_COUNT);
        call.type = below(GPUSYM_T_COUNT);
    } while (!gpusym_op_valid(call.op, call.type));
    call.count = 1 + below(0 == below(8) ? 3000 : 1u << below(9));
    call.in_off = below(3) ? 0 : below(16);
    call.out_off = below(3) ? 0 : below(16);
    call.uneven = 0 == below(4);
    call.in_place = 0 == below(3);
    if (0 == below(3)) {
        random_ends(rig, &call);
    }
    return call;
}

/* Calls of any kind, one after the other in the same slots, which nobody clears. */
static void random_calls(uint32_t first_epoch, unsigned scripts)
{
    static const uint64_t sizes[] = {64 << 10, 80 << 10, 1 << 20};
    for (uint32_t n = 1; n <= 5; n++) {
        rig_t *rig = rig_new(n, sizes[below(LENGTH(sizes))], 7, first_epoch);
        for (unsigned s = 0; s < scripts; s++) {
            for (unsigned i = 0; i < 20; i++) {
                script_add(&script, random_call(rig));
            }
            script_run(rig, &script);
        }
        rig_free(rig);
    }
}

static void calls_of_all_kinds(void **state)
{
    (void) state;
    random_calls(1, 20);
}

/* Flags compare right where a signed epoch would turn negative ... */
static void epochs_pass_2_to_31(void **state)
{
    (void) state;
    random_calls(0x7fffff00u, 12);
}

/* ... and up to the last one, before which the slots are cleared. */
static void epochs_reach_2_to_32(void **state)
{
    (void) state;
    random_calls(0xfffffb00u, 20);
}

/* A rank that stays away: the others end by themselves and say who it was. */
static void expect_timeout(rig_t *rig, const call_t *call, uint32_t absent)
{
    part_t *parts = parts_new(rig, call, 1);
    parts_run(rig, parts, 1, absent);
    for (uint32_t r = 0; r < rig->nranks; r++) {
        const uint64_t want = (uint64_t) parts[r].w.done_seq << 32 | GPUSYM_STATUS_TIMEOUT | absent << 8;
        if (parts[r].done != (r == absent ? NOT_DONE : want)) {
            print_error("rank %u of which %u is absent: completion word %lx, epoch %u\n", r, absent,
                        (unsigned long) parts[r].done, parts[r].w.epoch);
            describe(rig, call, parts, 0);
            fail();
        }
        assert_true(guards_hold(&parts[r].out, parts[r].w.bytes));
    }
    parts_free(rig, parts, 1);
}

static void an_absent_rank_is_named(void **state)
{
    (void) state;
    rig_simulated_only();
    for (unsigned f = 0; f < REDUCERS; f++) {
        for (uint32_t absent = 0; absent < 3; absent++) {
            rig_t *rig = rig_new(3, 64 << 10, 3, 1);
            const call_t call = {
                .family = reducers[f], .op = GPUSYM_OP_SUM, .type = GPUSYM_T_F32, .count = 9000, .blocks = 1 + absent};
            const call_t before = {
                .family = reducers[f], .op = GPUSYM_OP_SUM, .type = GPUSYM_T_F32, .count = 99, .blocks = 1};
            rig_run(rig, &before, 1);
            rig->limit_ns = ABSENCE_NS;
            expect_timeout(rig, &call, absent);
            rig_free(rig);
        }
    }
}

/* Flags that no call has touched for long, or ever, do not look like new ones, however high the epoch is. */
static void old_flags_let_nobody_through(void **state)
{
    (void) state;
    rig_simulated_only();
    static const uint32_t epochs[] = {2, 0x7ffffff0u, 0x80000000u, 0x80000001u, 0xc0000000u, 0xfffff000u};
    for (unsigned f = 0; f < REDUCERS; f++) {
        for (size_t i = 0; i < LENGTH(epochs); i++) {
            rig_t *rig = rig_new(2, 64 << 10, 2, epochs[i]);
            const call_t call = {
                .family = reducers[f], .op = GPUSYM_OP_SUM, .type = GPUSYM_T_F32, .count = 99, .blocks = 2};
            rig->limit_ns = ABSENCE_NS;
            expect_timeout(rig, &call, 1);
            rig_free(rig);
        }
    }
}

/* The abort word ends waits that have no limit, set before them or while they last. */
static void abort_ends_every_wait(void **state)
{
    (void) state;
    rig_simulated_only();
    for (unsigned i = 0; i < 2 * REDUCERS; i++) {
        rig_t *rig = rig_new(3, 64 << 10, 2, 1);
        call_t call = {.family = reducers[i / 2], .op = GPUSYM_OP_SUM, .type = GPUSYM_T_F32, .count = 9000};
        call.blocks = 1 + i % rig->blocks;
        rig->limit_ns = 0;
        rig->abort = i % 2;
        part_t *parts = parts_new(rig, &call, 1);
        parts_run(rig, parts, 1, 1);
        assert_int_equal(parts[0].done, (uint64_t) parts[0].w.done_seq << 32 | GPUSYM_STATUS_ABORTED);
        assert_int_equal(parts[2].done, (uint64_t) parts[2].w.done_seq << 32 | GPUSYM_STATUS_ABORTED);
        parts_free(rig, parts, 1);
        rig_free(rig);
    }
}

/* The documented order: ranks rising, f32 accumulation of the small types, one rounding at the end. */
static void sum_in_order(unsigned type, part_t *const parts, uint32_t n, uint64_t i, uint8_t *want)
{
    const size_t size = gpusym_type_bytes(type);
    volatile double d = get_float(type, parts[0].source + i * size); /* volatile: rounded to double everywhere */
    volatile float f = (float) d;
    for (uint32_t r = 1; r < n; r++) {
        const double v = get_float(type, parts[r].source + i * size);
        d = d + v;
        f = f + (float) v;
    }
    put_float(type, want, GPUSYM_T_F64 == type ? d : (double) f);
}

static void sums_follow_the_ranks(void **state)
{
    (void) state;
    static const unsigned types[] = {GPUSYM_T_F16, GPUSYM_T_BF16, GPUSYM_T_F32, GPUSYM_T_F64};
    for (unsigned i = 0; i < LENGTH(types) * ORDERED * 2; i++) {
        rig_t *rig = rig_new(7, 64 << 10, 3, 1);
        const call_t call = {.family = reducers[i / 2 % ORDERED],
                             .op = GPUSYM_OP_SUM,
                             .type = types[i / 2 / ORDERED],
                             .count = 2001,
                             .blocks = 1 + i % rig->blocks,
                             .generic = i % 2};
        part_t *parts = parts_new(rig, &call, 1);
        parts_run(rig, parts, 1, RANKS_MAX);
        for (uint64_t k = 0; k < call.count; k++) {
            const size_t size = gpusym_type_bytes(call.type);
            uint8_t want[8];
            sum_in_order(call.type, parts, rig->nranks, k, want);
            if (0 != memcmp(want, parts[0].out.data + k * size, size)) {
                print_error("element %lu\n", (unsigned long) k);
                describe(rig, &call, parts, 0);
                fail();
            }
        }
        parts_free(rig, parts, 1);
        rig_free(rig);
    }
}

/* Bits depend on inputs and rank count alone: not on algorithm, kernel, blocks, slot, alignment or place. */
static void bits_depend_on_inputs_alone(void **state)
{
    (void) state;
    static const struct {
        unsigned op, type;
    } kinds[] = {{GPUSYM_OP_SUM, GPUSYM_T_F32}, {GPUSYM_OP_SUM, GPUSYM_T_F64},  {GPUSYM_OP_SUM, GPUSYM_T_F16},
                 {GPUSYM_OP_SUM, GPUSYM_T_C32}, {GPUSYM_OP_PROD, GPUSYM_T_F32}, {GPUSYM_OP_SUM, GPUSYM_T_BF16}};
    static const uint64_t slots[] = {64 << 10, 72 << 10, 512 << 10};
    static uint8_t first[2500 * 8];

    for (size_t k = 0; k < LENGTH(kinds); k++) {
        const uint64_t inputs = next_random();
        memset(first, 0, sizeof first);
        for (unsigned i = 0; i < ORDERED * LENGTH(slots) * 3; i++) {
            rig_t *rig = rig_new(6, slots[i / 3 % LENGTH(slots)], 1 + i, 1);
            call_t call = {
                .family = reducers[i / 3 / LENGTH(slots)], .op = kinds[k].op, .type = kinds[k].type, .count = 2500};
            call.blocks = 1 + below(rig->blocks);
            call.in_off = below(2) * 4;
            call.out_off = below(2) * 4;
            call.in_place = i % 3 == 1;
            call.generic = i % 3 == 2;
            random_state = inputs;
            part_t *parts = rig_run_kept(rig, &call, 1);
            const size_t bytes = call.count * gpusym_type_bytes(call.type);
            if (0 == i) {
                memcpy(first, parts->out.data, bytes);
            } else if (0 != memcmp(first, parts->out.data, bytes)) {
                describe(rig, &call, parts, i);
                fail();
            }
            parts_free(rig, parts, 1);
            rig_free(rig);
        }
    }
}

/* ---- the list ---- */

static void kernels_serve_what_they_say(void **state)
{
    (void) state;
    for (unsigned i = 0; i < GPUSYM_F_COUNT * GPUSYM_OP_COUNT * GPUSYM_T_COUNT; i++) {
        const unsigned family = i % GPUSYM_F_COUNT, op = i / GPUSYM_F_COUNT % GPUSYM_OP_COUNT,
                       type = i / GPUSYM_F_COUNT / GPUSYM_OP_COUNT;
        if (!gpusym_op_valid(op, type)) {
            continue;
        }
        const unsigned kernel = gpusym_kernel_find(family, op, type);
        const char *symbol = gpusym_kernel_symbol(kernel);
        assert_true(kernel < GPUSYM_K_COUNT);
        assert_non_null(symbol);
        /* by its name: that family's, generic or for that operation */
        char prefix[64], lower[64];
        const size_t n = (size_t) snprintf(prefix, sizeof prefix, "gpusym_%s_", gpusym_family_name(family));
        assert_memory_equal(symbol, prefix, n);
        for (size_t k = n; k <= strlen(symbol); k++) {
            lower[k - n] = symbol[k] >= 'A' && symbol[k] <= 'Z' ? (char) (symbol[k] - 'A' + 'a') : symbol[k];
        }
        if (0 != strcmp(lower, "any")) {
            assert_memory_equal(lower, gpusym_op_name(op), strlen(gpusym_op_name(op)));
        }
    }
#define GPUSYM_KERNEL(a, o, t)                                                                                 \
    assert_int_equal(gpusym_kernel_find(GPUSYM_F_##a, GPUSYM_OP_##o, GPUSYM_T_##t), GPUSYM_K_##a##_##o##_##t); \
    assert_string_equal(gpusym_kernel_symbol(GPUSYM_K_##a##_##o##_##t), "gpusym_" #a "_" #o "_" #t);
#include "kernels/kernels.def"
}

/* Rings, chains and trees. */
static bool is_channels(unsigned family)
{
    return 0 == strncmp(gpusym_family_name(family), "CHAN_", 5);
}

static void families_are_what_they_say(void **state)
{
    (void) state;
    for (unsigned family = 0; family < GPUSYM_F_COUNT; family++) {
        const char *name = gpusym_family_name(family);
        const unsigned zero = gpusym_family_zero_copy(family);
        const size_t n = strlen(name);
        assert_true(gpusym_family_multicast(family) == (NULL != strstr(name, "MC")));
        assert_true(gpusym_family_ll128(family) == (NULL != strstr(name, "LL128")));
        assert_int_equal(gpusym_family_zero_copy(zero), zero);
        assert_true(gpusym_family_reduces(zero) == gpusym_family_reduces(family));
        if (zero != family) {
            const char *z = gpusym_family_name(zero);
            assert_string_equal(z + strlen(z) - 2, "_Z");
        }
        if (!gpusym_family_reduces(family)) { /* whatever the operation is */
            assert_int_equal(gpusym_kernel_find(family, GPUSYM_OP_COUNT, GPUSYM_T_COUNT), family);
            assert_true(gpusym_family_valid(family, GPUSYM_OP_COUNT, GPUSYM_T_COUNT));
        } else {
            const bool by_switch = NULL != strstr(name, "LDMC");
            assert_true(gpusym_family_valid(family, GPUSYM_OP_SUM, GPUSYM_T_F64));
            assert_true(gpusym_family_valid(family, GPUSYM_OP_SUM, GPUSYM_T_BF16));
            assert_true(gpusym_family_valid(family, GPUSYM_OP_MIN, GPUSYM_T_I64));
            assert_true(gpusym_family_valid(family, GPUSYM_OP_BXOR, GPUSYM_T_U8));
            assert_true(gpusym_family_valid(family, GPUSYM_OP_MAX, GPUSYM_T_F32) != by_switch);
            assert_true(gpusym_family_valid(family, GPUSYM_OP_SUM, GPUSYM_T_I16) != by_switch);
            assert_true(gpusym_family_valid(family, GPUSYM_OP_PROD, GPUSYM_T_F32) != by_switch);
            assert_true(gpusym_family_valid(family, GPUSYM_OP_MINLOC, GPUSYM_T_P_F64_I32) != by_switch);
            assert_false(gpusym_family_valid(family, GPUSYM_OP_BAND, GPUSYM_T_F32));
        }
        assert_true(n > 0);
    }
    assert_null(gpusym_family_name(GPUSYM_F_COUNT));
}

/* An algorithm's family, schedule and order of summation belong together; names tell which they are. */
static void algorithms_are_what_they_say(void **state)
{
    (void) state;
    static const struct {
        const char *in_name;
        int schedules[3];
    } shapes[] = {{"ring_", {GS_RING_ALLREDUCE, GS_RING_ALLGATHER, GS_RING_REDUCE_SCATTER}},
                  {"chain_", {GS_CHAIN_BCAST, GS_CHAIN_REDUCE, -1}},
                  {"dbtree_", {GS_TREE_ALLREDUCE, GS_TREE_BCAST, GS_TREE_REDUCE}}};
    for (unsigned alg = 0; alg < GPUSYM_ALG_COUNT; alg++) {
        const unsigned family = gpusym_algorithm_family(alg);
        const char *name = gpusym_algorithm_name(alg);
        const int schedule = gpusym_algorithm_schedule(alg);
        bool named = false;
        assert_true(family < GPUSYM_F_COUNT);
        assert_true((schedule >= 0) == is_channels(family));
        for (size_t i = 0; i < LENGTH(shapes); i++) {
            const int *s = shapes[i].schedules;
            if (0 == strncmp(name, shapes[i].in_name, strlen(shapes[i].in_name))) {
                named = true;
                assert_true(schedule >= 0 && (schedule == s[0] || schedule == s[1] || schedule == s[2]));
            }
        }
        assert_true(named == is_channels(family));
        assert_true(NULL == strstr(name, "_ll128") || gpusym_family_ll128(family));
        /* what only moves has no order */
        assert_true(gpusym_algorithm_reproducible(alg) ==
                    (!gpusym_family_multicast(family) && !(is_channels(family) && gpusym_family_reduces(family))));
    }
}

/* Whatever the shape: what a plan lays out fits the room, and all of the message is in some chunk. */
static void plans_fit_their_slots(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 20000; i++) {
        gpusym_work_t w = {0};
        const unsigned family = below(GPUSYM_F_COUNT);
        if (is_channels(family) || gpusym_family_copies(family) || GPUSYM_F_LEAD == family ||
            GPUSYM_F_LEAD_R == family) { /* test_channels.c, test_copies.c, test_lead.c have those */
            continue;
        }
        w.nranks = 1 + below(GPUSYM_TEAM_MAX);
        const uint32_t blocks = gpusym_slot_layout((64ull << 10) << below(10), w.nranks, 1 + below(256), &w);
        w.nblocks = 1 + below(blocks);
        w.nthreads = 32 * (1 + below(GPUSYM_THREADS_MAX / 32));
        if (GPUSYM_F_RSXLL128_AGXLL128 == family && !gpusym_ll128_fits(&w)) {
            continue;
        }
        w.bytes = 1 + next_random() % (1ull << below(38));
        const uint32_t chunk = below(2) ? 0 : 1 + below(1u << below(24));
        const uint64_t epochs = gpusym_kernel_plan(family, &w, chunk), packs = (w.bytes + 15) / 16;
        assert_true(w.nblocks > 0 && w.chunk > 0 && epochs > 0);
        if (0 == w.span) {
            assert_true(32ull * w.chunk <= w.ll_bytes && epochs * w.chunk >= packs);
            continue;
        }
        const uint64_t chunks = (w.span + w.chunk - 1) / w.chunk;
        if (GPUSYM_F_RSXLL128_AGXLL128 == family) {
            const uint64_t streams = (uint64_t) w.nblocks * GPUSYM_LL128_STREAMS(w.nthreads), peers = w.nranks - 1;
            assert_true(w.span * w.nranks >= packs && epochs == (chunks + streams - 1) / streams);
            assert_true(512ull * w.chunk == 30ull * w.stage_bytes);
            assert_true((epochs > 1 ? 2 : 1) * streams * 2 * peers * w.stage_bytes <= w.ll128_room);
            continue;
        }
        const bool exchange = 'X' == gpusym_family_name(family)[0] || GPUSYM_F_COPY == family ||
                              GPUSYM_F_BOXES == family || GPUSYM_F_PACK == family; /* no owners */
        const uint64_t buffers = exchange                           ? (chunks > 1 ? 2 : 1) * w.nranks
                                 : GPUSYM_F_RSXST_AGXST_Z == family ? (chunks > 1 ? 2 : 1)
                                                                    : 4;
        assert_true(w.span * w.nblocks >= packs);
        assert_true(buffers * w.nblocks * w.stage_bytes <= w.stage_room);
        assert_true(0 == w.stage_bytes || 16ull * w.chunk <= w.stage_bytes);
        assert_true(0 == w.stage_bytes || epochs >= chunks);
        assert_true(exchange || 0 == w.chunk % w.nranks);
    }
}

static void names_end_where_lists_end(void **state)
{
    (void) state;
    for (unsigned type = 0; type < GPUSYM_T_COUNT; type++) {
        assert_string_equal(gpusym_type_name(type), type_id[type]);
        assert_true(gpusym_type_bytes(type) > 0 && 0 == GPUSYM_PACK % gpusym_type_bytes(type));
    }
    for (unsigned alg = 0; alg < GPUSYM_ALG_COUNT; alg++) {
        assert_non_null(gpusym_algorithm_name(alg));
        assert_non_null(gpusym_algorithm_doc(alg));
    }
    for (unsigned kernel = 0; kernel < GPUSYM_K_COUNT; kernel++) {
        assert_int_equal(gpusym_kernel_symbol(kernel)[0], 'g');
    }
    assert_null(gpusym_type_name(GPUSYM_T_COUNT));
    assert_null(gpusym_op_name(GPUSYM_OP_COUNT));
    assert_null(gpusym_algorithm_name(GPUSYM_ALG_COUNT));
    assert_null(gpusym_algorithm_doc(GPUSYM_ALG_COUNT));
    assert_null(gpusym_kernel_symbol(GPUSYM_K_COUNT));
    assert_false(gpusym_op_valid(GPUSYM_OP_COUNT, 0));
    assert_false(gpusym_op_valid(0, GPUSYM_T_COUNT));
    assert_false(gpusym_op_valid(GPUSYM_OP_BAND, GPUSYM_T_F32));
    assert_false(gpusym_op_valid(GPUSYM_OP_MAX, GPUSYM_T_C32));
    assert_false(gpusym_op_valid(GPUSYM_OP_SUM, GPUSYM_T_P_F32_I32));
    assert_false(gpusym_op_valid(GPUSYM_OP_MINLOC, GPUSYM_T_I32));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_serve_what_they_say),
        cmocka_unit_test(families_are_what_they_say),
        cmocka_unit_test(algorithms_are_what_they_say),
        cmocka_unit_test(plans_fit_their_slots),
        cmocka_unit_test(names_end_where_lists_end),
        cmocka_unit_test(every_operation_and_type),
        cmocka_unit_test(generic_kernels_serve_all),
        cmocka_unit_test(every_number_of_ranks),
        cmocka_unit_test(every_alignment),
        cmocka_unit_test(chunks_and_phases),
        cmocka_unit_test(large_messages_in_a_small_slot),
        cmocka_unit_test(a_short_last_epoch_protects_the_one_before),
        cmocka_unit_test(streams_and_rounds),
        cmocka_unit_test(small_slots_have_no_streams),
        cmocka_unit_test(one_source_or_destination),
        cmocka_unit_test(calls_of_all_kinds),
        cmocka_unit_test(epochs_pass_2_to_31),
        cmocka_unit_test(epochs_reach_2_to_32),
        cmocka_unit_test(an_absent_rank_is_named),
        cmocka_unit_test(old_flags_let_nobody_through),
        cmocka_unit_test(abort_ends_every_wait),
        cmocka_unit_test(sums_follow_the_ranks),
        cmocka_unit_test(bits_depend_on_inputs_alone),
    };
    random_start(argc, argv);
    rig_gpu_start();
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
