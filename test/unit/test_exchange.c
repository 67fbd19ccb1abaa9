/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of the exchange kernels on the simulator: segments of any length between any two ranks, moved or reduced,
 * in the patterns of MPI's collectives.  The ranks are threads of this process, the slots are plain memory.
 * A seed as the argument repeats the run that printed it.
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

/* Who has what for whom. */
enum { ALLGATHER, ALLTOALL, GATHER, SCATTER, BCAST, NEIGHBORS, REDUCE_SCATTER, REDUCE, SCAN, EXSCAN, PATTERNS };
static const char *const pattern_name[] = {"allgather", "alltoall",       "gather", "scatter", "bcast",
                                           "neighbors", "reduce_scatter", "reduce", "scan",    "exscan"};

static const unsigned families[] = {GPUSYM_F_XLL,   GPUSYM_F_XST,   GPUSYM_F_XST_Z,  GPUSYM_F_XLD_Z,
                                    GPUSYM_F_XLL_R, GPUSYM_F_XST_R, GPUSYM_F_XLD_R,  GPUSYM_F_XLD_R_Z,
                                    GPUSYM_F_XLLMC, GPUSYM_F_XSTMC, GPUSYM_F_XLDMC_R};
/* The last three are multicast, which no test makes on a GPU. */
#define FAMILIES ((unsigned) LENGTH(families) - (rig_on_gpu() ? 3 : 0))

/* Whether a kernel serves a pattern. */
static bool serves(unsigned family, unsigned pattern)
{
    if (gpusym_family_reduces(family) != (pattern >= REDUCE_SCATTER)) {
        return false;
    }
    return !gpusym_family_multicast(family) || ALLGATHER == pattern || REDUCE_SCATTER == pattern;
}

/* Whether it may work in place: of those without staging, only where no input but one's own is overwritten. */
static bool serves_in_place(unsigned family, unsigned pattern)
{
    const bool zero = GPUSYM_F_XST_Z == family || GPUSYM_F_XLD_Z == family || GPUSYM_F_XLD_R_Z == family;
    return ALLGATHER == pattern || REDUCE == pattern ||
           (!zero && GATHER != pattern && SCATTER != pattern && BCAST != pattern && NEIGHBORS != pattern);
}

/* One call as all ranks know it. */
typedef struct {
    unsigned family, op, type, pattern;
    uint32_t blocks, chunk, root;
    bool in_place, generic, even;       /* even: segments of one length, and aligned */
    uint64_t most;                      /* elements of a segment */
    uint64_t seed;                      /* of lengths and places */
    uint64_t len[RANKS_MAX][RANKS_MAX]; /* elements from one rank to another */
    uint64_t in_off[RANKS_MAX][RANKS_MAX], out_off[RANKS_MAX][RANKS_MAX]; /* bytes: [rank][peer] */
    uint64_t in_bytes[RANKS_MAX], out_bytes[RANKS_MAX];
} call_t;

/* Whether all segments that a rank has for others are the same one. */
static bool one_for_all(unsigned pattern)
{
    return ALLGATHER == pattern || BCAST == pattern || REDUCE == pattern || SCAN == pattern || EXSCAN == pattern;
}

static uint64_t random_length(const call_t *call)
{
    return call->even ? call->most : 0 == below(6) ? 0 : 0 == below(4) ? call->most : 1 + next_random() % call->most;
}

static void call_lengths(const rig_t *rig, call_t *call)
{
    uint64_t by_rank[RANKS_MAX], all = call->most;
    for (uint32_t r = 0; r < rig->nranks; r++) {
        /* in place a result may lie where a segment as long was, and nowhere else */
        by_rank[r] = REDUCE_SCATTER == call->pattern && call->in_place ? all : random_length(call);
    }
    for (uint32_t s = 0; s < rig->nranks; s++) {
        for (uint32_t d = 0; d < rig->nranks; d++) {
            const bool there[PATTERNS] = {
                true,          true, d == call->root, s == call->root, s == call->root && d != s,
                0 == below(3), true, d == call->root, s <= d,          s < d};
            const uint64_t want[PATTERNS] = {
                by_rank[s], call->in_place && d < s ? call->len[d][s] : random_length(call),
                by_rank[s], by_rank[d],
                all,        random_length(call),
                by_rank[d], all,
                all,        all};
            call->len[s][d] = there[call->pattern] ? want[call->pattern] : 0;
        }
    }
}

static uint64_t random_gap(const call_t *call)
{
    return call->even || below(2) ? 16 * below(3) : below(40);
}

/* Where the segments lie: one after the other with gaps, where they must not be the same. */
static void call_places(const rig_t *rig, call_t *call)
{
    const size_t size = gpusym_type_bytes(call->type);
    const bool reduces = gpusym_family_reduces(call->family);
    for (uint32_t r = 0; r < rig->nranks; r++) {
        uint64_t in = random_gap(call), out = random_gap(call);
        const uint64_t first_in = in;
        for (uint32_t p = 0; p < rig->nranks; p++) {
            call->in_off[r][p] = in;
            call->out_off[r][p] = out;
            in += one_for_all(call->pattern) ? 0 : call->len[r][p] * size;
            in = (in + 15) / 16 * 16 + (one_for_all(call->pattern) ? 0 : random_gap(call));
            in = one_for_all(call->pattern) ? first_in : in;
            out += reduces ? 0 : (call->len[p][r] * size + 15) / 16 * 16 + random_gap(call);
        }
        call->in_bytes[r] = in + call->most * size;
        call->out_bytes[r] = out + call->most * size;
        if (!call->in_place) {
            continue;
        }
        for (uint32_t p = 0; p < rig->nranks; p++) {
            if (ALLTOALL == call->pattern) {
                call->out_off[r][p] = call->in_off[r][p];
            } else if (ALLGATHER == call->pattern) {
                call->in_off[r][p] = call->out_off[r][r];
            } else {
                call->out_off[r][p] = call->in_off[r][0];
            }
        }
        call->in_bytes[r] = call->out_bytes[r] =
            call->in_bytes[r] > call->out_bytes[r] ? call->in_bytes[r] : call->out_bytes[r];
    }
}

static void part_ends(const rig_t *rig, const call_t *call, uint32_t rank, gpusym_work_t *w)
{
    w->src_first = 0;
    w->src_end = SCAN == call->pattern ? rank + 1 : EXSCAN == call->pattern ? rank : rig->nranks;
    if (REDUCE == call->pattern && rank != call->root) {
        w->src_end = 0;
    }
}

static void part_fill(const rig_t *rig, const call_t *call, uint32_t rank, part_t *part)
{
    const size_t size = gpusym_type_bytes(call->type);
    const bool reduces = gpusym_family_reduces(call->family), push = GPUSYM_F_XST_Z == call->family;
    part->source = malloc(call->in_bytes[rank]);
    assert_non_null(part->source);
    memset(part->source, 0x33, call->in_bytes[rank]);
    for (uint32_t p = 0; p < rig->nranks; p++) {
        const bool filled = p > 0 && one_for_all(call->pattern) && 0 != call->len[rank][p - 1];
        for (uint64_t i = 0; i < (filled ? 0 : call->len[rank][p]); i++) {
            random_element(call->op, call->type, part->source + call->in_off[rank][p] + i * size);
        }
    }
    part->out = buffer_new(call->out_bytes[rank], call->even ? 0 : below(16));
    part->in_place = call->in_place;
    part->in = call->in_place ? part->out : buffer_new(call->in_bytes[rank], call->even ? 0 : below(16));
    memcpy(part->in.data, part->source, call->in_bytes[rank]);
    part->kernel = call->generic ? call->family : gpusym_kernel_find(call->family, call->op, call->type);
    part->in_bytes = call->in_bytes[rank];
    part->out_bytes = call->out_bytes[rank];
    part->done = NOT_DONE;
    part->w = work_new(rig, rank, part);
    part->w.in = part->in.data;
    part->w.out = part->out.data;
    part->w.op = call->op;
    part->w.type = call->type;
    part->w.nblocks = call->blocks;
    part_ends(rig, call, rank, &part->w);
    for (uint32_t p = 0; p < rig->nranks; p++) {
        const uint64_t to = call->len[rank][p] * size, from = call->len[p][rank] * size;
        part->w.send[p] = (gpusym_seg_t){call->in_off[rank][p], to};
        part->w.recv[p] = (gpusym_seg_t){call->out_off[rank][p], reduces ? 0 : from};
        part->w.remote_off[p] = push ? call->out_off[p][rank] : call->in_off[p][rank];
    }
    if (reduces) {
        const uint32_t last = rig->nranks - 1; /* who has something for this rank, if anyone has */
        const uint32_t some = SCAN == call->pattern || EXSCAN == call->pattern ? 0 : last;
        part->w.recv[rank] = (gpusym_seg_t){call->out_off[rank][rank], call->len[some][rank] * size};
    }
}

static void describe(const rig_t *rig, const call_t *call, const part_t *part, size_t number)
{
    print_error("call %zu: %s as %s, %s %s, segments to %lu, root %u, %u ranks, %u blocks of %u, chunk %u, slot %lu, "
                "epoch %u%s%s%s, seed %lu\n",
                number, gpusym_family_name(call->family), pattern_name[call->pattern], gpusym_op_name(call->op),
                gpusym_type_name(call->type), (unsigned long) call->most, call->root, rig->nranks, call->blocks,
                rig->blocks, call->chunk, (unsigned long) rig->slot_size, part->w.epoch,
                call->in_place ? ", in place" : "", call->generic ? ", generic" : "", call->even ? ", even" : "",
                (unsigned long) seed);
}

/* Whether what rank r has reduced is right; copies it to where it is expected. */
static bool reduced_right(const rig_t *rig, const call_t *call, const part_t *part, uint32_t r, uint8_t *want)
{
    const gpusym_work_t *w = &part[r].w;
    const size_t size = gpusym_type_bytes(call->type);
    const uint64_t n = w->src_first < w->src_end ? w->recv[r].bytes / size : 0;
    element_t e = {.nranks = w->src_end - w->src_first, .op = call->op, .type = call->type};
    (void) rig;
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *got = part[r].out.data + w->recv[r].off + i * size;
        for (uint32_t k = 0; k < e.nranks; k++) {
            e.in[k] = part[w->src_first + k].source + call->in_off[w->src_first + k][r] + i * size;
        }
        if (!right(&e, got)) {
            print_error("rank %u: wrong at element %lu\n", r, (unsigned long) i);
            return false;
        }
        memcpy(want + w->recv[r].off + i * size, got, size);
    }
    return true;
}

/* What rank r's output must be, byte for byte, gaps and all. */
static bool part_right(const rig_t *rig, const call_t *call, const part_t *part, uint32_t r)
{
    const part_t *p = &part[r];
    const size_t size = gpusym_type_bytes(call->type);
    const uint64_t bytes = call->out_bytes[r];
    if (p->done != ((uint64_t) p->w.done_seq << 32 | GPUSYM_STATUS_OK)) {
        print_error("rank %u: completion word %lx, sequence %x\n", r, (unsigned long) p->done, p->w.done_seq);
        return false;
    }
    if (p->sum != sum_of(p->out.data, bytes)) {
        print_error("rank %u: the output was not there when the rank had ended\n", r);
        return false;
    }
    if (!guards_hold(&p->in, call->in_bytes[r]) || !guards_hold(&p->out, bytes) || (!call->in_place && !p->kept)) {
        print_error("rank %u: wrote beyond a buffer, or to the input\n", r);
        return false;
    }
    uint8_t *want = malloc(bytes);
    bool ok = true;
    assert_non_null(want);
    memset(want, POISON_BYTE, bytes);
    if (call->in_place) {
        memcpy(want, p->source, bytes);
    }
    if (gpusym_family_reduces(call->family)) {
        ok = reduced_right(rig, call, part, r, want);
    } else {
        for (uint32_t s = 0; s < rig->nranks; s++) {
            memcpy(want + call->out_off[r][s], part[s].source + call->in_off[s][r], call->len[s][r] * size);
        }
    }
    for (uint64_t i = 0; ok && i < bytes; i++) {
        if (want[i] != p->out.data[i]) {
            print_error("rank %u: wrong at byte %lu of %lu\n", r, (unsigned long) i, (unsigned long) bytes);
            ok = false;
        }
    }
    free(want);
    return ok;
}

static bool call_right(const rig_t *rig, const call_t *call, const part_t *part)
{
    for (uint32_t r = 0; r < rig->nranks; r++) {
        if (!part_right(rig, call, part, r)) {
            return false;
        }
    }
    return true;
}

static uint64_t call_parts(const rig_t *rig, const call_t *call, part_t *part, uint32_t epoch)
{
    uint64_t used = 0;
    uint64_t longest = 1;
    for (uint32_t r = 0; r < rig->nranks; r++) {
        part_fill(rig, call, r, &part[r]);
        for (uint32_t p = 0; p < rig->nranks; p++) {
            longest = part[r].w.send[p].bytes > longest ? part[r].w.send[p].bytes : longest;
        }
    }
    for (uint32_t r = 0; r < rig->nranks; r++) {
        part[r].w.bytes = longest;
        part[r].w.epoch = epoch;
        used = gpusym_kernel_plan(call->family, &part[r].w, call->chunk);
        for (uint32_t p = 0; p < rig->nranks; p++) { /* as if every rank had mapped the others' buffers */
            part[r].w.peer_in[p] = part[p].w.in;
            part[r].w.peer_out[p] = part[p].w.out;
        }
    }
    return used;
}

#include "test/unit/script.h"

static call_t call_new(const rig_t *rig, unsigned family, unsigned pattern, uint64_t most)
{
    call_t call = {.family = family, .pattern = pattern, .most = most, .type = GPUSYM_T_U8};
    while (gpusym_family_reduces(family)) {
        call.op = below(GPUSYM_OP_COUNT);
        call.type = below(GPUSYM_T_COUNT);
        if (gpusym_op_valid(call.op, call.type)) {
            call.most = (most + gpusym_type_bytes(call.type) - 1) / gpusym_type_bytes(call.type);
            break;
        }
    }
    call.blocks = 1 + below(rig->blocks);
    call.chunk = below(2) ? 0 : 1 + below(2000);
    call.root = below(rig->nranks);
    call.generic = 0 == below(3);
    call.even = 0 == below(4);
    call.in_place = 0 == below(3) && serves_in_place(family, pattern);
    call_lengths(rig, &call);
    call_places(rig, &call);
    return call;
}

/* ---- tests ---- */

#define SCRIPT 24
static call_t script[SCRIPT];

static void every_family_and_pattern(void **state)
{
    (void) state;
    static const uint64_t most[] = {1, 8, 16, 100, 1000, 5000, 20000};
    for (uint32_t n = 1; n <= 9; n++) {
        rig_t *rig = rig_new(n, 96 << 10, 5, 1);
        for (unsigned i = 0; i < FAMILIES * PATTERNS; i++) {
            size_t calls = 0;
            for (size_t k = 0; serves(families[i / PATTERNS], i % PATTERNS) && k < 2 * LENGTH(most); k++) {
                script[calls++] = call_new(rig, families[i / PATTERNS], i % PATTERNS, most[k % LENGTH(most)]);
            }
            rig_run(rig, script, calls);
        }
        rig_free(rig);
    }
}

/* Every kernel with every type and operation, the specialised and the generic. */
static void every_operation_and_type(void **state)
{
    (void) state;
    rig_t *rig = rig_new(3, 64 << 10, 3, 1);
    for (unsigned i = 0; i < FAMILIES * GPUSYM_OP_COUNT * GPUSYM_T_COUNT; i++) {
        const unsigned family = families[i % FAMILIES], op = i / FAMILIES % GPUSYM_OP_COUNT,
                       type = i / FAMILIES / GPUSYM_OP_COUNT;
        if (!gpusym_family_reduces(family) || !gpusym_op_valid(op, type)) {
            continue;
        }
        for (size_t k = 0; k < 2; k++) {
            do {
                script[k] = call_new(rig, family, REDUCE_SCATTER, 700);
            } while (script[k].in_place);
            script[k].op = op;
            script[k].type = type;
            script[k].generic = k;
            script[k].most = 700 / gpusym_type_bytes(type);
            call_lengths(rig, &script[k]);
            call_places(rig, &script[k]);
        }
        rig_run(rig, script, 2);
    }
    rig_free(rig);
}

static void random_calls(uint32_t first_epoch, unsigned scripts)
{
    static const uint64_t sizes[] = {64 << 10, 80 << 10, 1 << 20};
    for (uint32_t n = 1; n <= 6; n++) {
        rig_t *rig = rig_new(n, sizes[below(LENGTH(sizes))], 7, first_epoch);
        for (unsigned s = 0; s < scripts; s++) {
            for (size_t i = 0; i < SCRIPT; i++) {
                unsigned family, pattern;
                do {
                    family = families[below(FAMILIES)];
                    pattern = below(PATTERNS);
                } while (!serves(family, pattern));
                script[i] = call_new(rig, family, pattern, 1 + below(1u << below(15)));
            }
            rig_run(rig, script, SCRIPT);
        }
        rig_free(rig);
    }
}

static void calls_of_all_kinds(void **state)
{
    (void) state;
    random_calls(1, 12);
}

static void epochs_reach_2_to_32(void **state)
{
    (void) state;
    random_calls(0xfffffb00u, 12);
}

static void many_ranks(void **state)
{
    (void) state;
    rig_t *rig = rig_new(GPUSYM_TEAM_MAX, 256 << 10, 3, 1);
    for (unsigned i = 0; i < FAMILIES * PATTERNS; i++) {
        if (serves(families[i / PATTERNS], i % PATTERNS)) {
            script[0] = call_new(rig, families[i / PATTERNS], i % PATTERNS, 700);
            rig_run(rig, script, 1);
        }
    }
    rig_free(rig);
}

/* Reduced segments have the same bits from every kernel but those in which the switch sums. */
static void bits_depend_on_inputs_alone(void **state)
{
    (void) state;
    static const unsigned types[] = {GPUSYM_T_F32, GPUSYM_T_F64, GPUSYM_T_F16, GPUSYM_T_C32};
    static const unsigned ordered[] = {GPUSYM_F_XLL_R, GPUSYM_F_XST_R, GPUSYM_F_XLD_R, GPUSYM_F_XLD_R_Z};
    static uint8_t first[6][400 * 8];
    for (unsigned i = 0; i < LENGTH(types) * LENGTH(ordered) * 4; i++) {
        const unsigned type = types[i / 4 / LENGTH(ordered)];
        const size_t bytes = 400 * gpusym_type_bytes(type);
        rig_t *rig = rig_new(6, 64 << 10, 1 + i % 5, 1);
        call_t call = {
            .family = ordered[i / 4 % LENGTH(ordered)], .pattern = REDUCE_SCATTER, .most = 400, .type = type};
        call.op = GPUSYM_OP_SUM;
        call.blocks = 1 + below(rig->blocks);
        call.chunk = 1 + below(2000);
        call.generic = i % 2;
        call.even = true;
        call_lengths(rig, &call);
        call_places(rig, &call);
        random_state = seed + type; /* the same inputs again */
        part_t *parts = parts_new(rig, &call, 1);
        parts_run(rig, parts, 1, RANKS_MAX);
        for (uint32_t r = 0; r < 6; r++) {
            const uint8_t *got = parts[r].out.data + parts[r].w.recv[r].off;
            if (0 == i / 4 % LENGTH(ordered) && 0 == i % 4) {
                memcpy(first[r], got, bytes);
            } else if (0 != memcmp(first[r], got, bytes)) {
                describe(rig, &call, parts, i);
                fail();
            }
        }
        parts_free(rig, parts, 1);
        rig_free(rig);
        random_state = seed + i;
    }
}

/* A rank that stays away: the others end by themselves and say who it was, or that they were told to end. */
/* A rank that gets nothing from another and gives nothing to it does not wait for it. */
static void nobody_waits_for_strangers(void **state)
{
    (void) state;
    static const unsigned moving[] = {GPUSYM_F_XLL, GPUSYM_F_XST, GPUSYM_F_XST_Z, GPUSYM_F_XLD_Z};
    for (unsigned i = 0; i < LENGTH(moving) * 6; i++) {
        rig_t *rig = rig_new(3, 64 << 10, 3, 1);
        call_t call = call_new(rig, moving[i % LENGTH(moving)], NEIGHBORS, 1 + below(9000));
        const uint32_t absent = i / LENGTH(moving) % 3, a = (absent + 1) % 3, b = (absent + 2) % 3;
        memset(call.len, 0, sizeof call.len);
        call.len[a][b] = call.most;
        call.len[b][a] = i % 2 ? call.most / 2 : 0;
        call_places(rig, &call);
        part_t *parts = parts_new(rig, &call, 1);
        parts_run(rig, parts, 1, absent);
        assert_true(part_right(rig, &call, parts, a));
        assert_true(part_right(rig, &call, parts, b));
        assert_int_equal(parts[absent].done, NOT_DONE);
        parts_free(rig, parts, 1);
        rig_free(rig);
    }
}

static void waits_end(void **state)
{
    (void) state;
    rig_simulated_only();
    for (unsigned i = 0; i < FAMILIES * 3 * 2; i++) {
        const unsigned family = families[i % FAMILIES];
        const uint32_t absent = i / FAMILIES % 3, aborted = i / FAMILIES / 3;
        rig_t *rig = rig_new(3, 64 << 10, 3, 1);
        call_t call = call_new(rig, family, gpusym_family_reduces(family) ? REDUCE_SCATTER : ALLGATHER, 9000);
        call.even = true;
        call_lengths(rig, &call);
        call_places(rig, &call);
        rig->limit_ns = aborted ? 0 : ABSENCE_NS;
        rig->abort = aborted;
        part_t *parts = parts_new(rig, &call, 1);
        parts_run(rig, parts, 1, absent);
        for (uint32_t r = 0; r < 3; r++) {
            const uint64_t why = aborted ? GPUSYM_STATUS_ABORTED : GPUSYM_STATUS_TIMEOUT | (uint64_t) absent << 8;
            const uint64_t want = r == absent ? NOT_DONE : (uint64_t) parts[r].w.done_seq << 32 | why;
            if (want != parts[r].done) {
                print_error("rank %u of which %u is absent: %lx\n", r, absent, (unsigned long) parts[r].done);
                describe(rig, &call, parts, i);
                fail();
            }
            assert_true(guards_hold(&parts[r].out, call.out_bytes[r]));
        }
        parts_free(rig, parts, 1);
        rig_free(rig);
    }
}

/* A multicast kernel where there is no multicast says so. */
static void no_multicast_is_an_error(void **state)
{
    (void) state;
    rig_simulated_only();
    for (unsigned family = 0; family < GPUSYM_F_COUNT; family++) {
        if (!gpusym_family_multicast(family)) {
            continue;
        }
        for (unsigned without = 0; without < 2; without++) {
            rig_t *rig = rig_new(1, 64 << 10, 2, 1);
            call_t call = call_new(rig, GPUSYM_F_XLL, ALLGATHER, 100);
            part_t *parts = parts_new(rig, &call, 1);
            parts->kernel = family;
            if (without) {
                gpusym_kernel_sim_mc_members = NULL;
            } else {
                parts->w.mc = NULL;
            }
            parts_run(rig, parts, 1, RANKS_MAX);
            assert_int_equal(parts->done, (uint64_t) parts->w.done_seq << 32 | GPUSYM_STATUS_NO_MULTICAST);
            parts_free(rig, parts, 1);
            rig_free(rig);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_and_pattern),
        cmocka_unit_test(every_operation_and_type),
        cmocka_unit_test(many_ranks),
        cmocka_unit_test(calls_of_all_kinds),
        cmocka_unit_test(epochs_reach_2_to_32),
        cmocka_unit_test(bits_depend_on_inputs_alone),
        cmocka_unit_test(nobody_waits_for_strangers),
        cmocka_unit_test(waits_end),
        cmocka_unit_test(no_multicast_is_an_error),
    };
    random_start(argc, argv);
    rig_gpu_start();
    return cmocka_run_group_tests_name("exchange", tests, NULL, NULL);
}
