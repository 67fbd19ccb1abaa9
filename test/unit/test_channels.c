/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of rings, chains and trees on the simulator: every algorithm of the list that has a schedule.  The ranks
 * are threads of this process, the slots are plain memory; the symmetric kernels run between, in the same slots. Sums
 * are compared bit for bit with ones made in the order that docs/algorithms.md gives. A seed as the argument repeats
 * the run that printed it.
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
#include "mca/common/gpusym/topo/paths.h"
#include "mca/common/gpusym/topo/rings.h"
#include "test/unit/random.h"
#include "test/unit/rig.h"

/* Of each algorithm: its collective, and its name with that of the collective. */
static const unsigned collective_of[] = {
#define GPUSYM_ALGORITHM(id, name, coll, family, schedule, doc) GPUSYM_COLL_##coll,
#include "kernels/kernels.def"
};
static const char *const id_of[] = {
#define GPUSYM_ALGORITHM(id, name, coll, family, schedule, doc) #id,
#include "kernels/kernels.def"
};

/* What a rank has: the message, or a segment of its own where the others' buffer has one for each rank. */
enum { MESSAGE, GATHERED, SCATTERED };

static unsigned layout_of(unsigned alg)
{
    switch (collective_of[alg]) {
    case GPUSYM_COLL_ALLGATHER:
    case GPUSYM_COLL_ALLGATHERV:
        return GATHERED;
    case GPUSYM_COLL_REDUCE_SCATTER:
    case GPUSYM_COLL_REDUCE_SCATTER_BLOCK:
        return SCATTERED;
    default:
        return MESSAGE;
    }
}

/* Whether an algorithm has a schedule; whether it is one of those that run between. */
static bool has_schedule(unsigned alg)
{
    return gpusym_algorithm_schedule(alg) >= 0;
}

static bool is_symmetric(unsigned alg)
{
    return !has_schedule(alg) && !gpusym_family_copies(gpusym_algorithm_family(alg)) &&
           (MESSAGE != layout_of(alg) || GPUSYM_COLL_ALLREDUCE == collective_of[alg]);
}

/* Whether an algorithm with a schedule is the first to run that by that kernel: others of a list differ by their
 * segments. */
static bool is_first(unsigned alg)
{
    unsigned first = 0;
    while (!has_schedule(first) || gpusym_algorithm_schedule(first) != gpusym_algorithm_schedule(alg) ||
           gpusym_algorithm_family(first) != gpusym_algorithm_family(alg)) {
        first++;
    }
    return first == alg;
}

static bool is_simple(unsigned alg)
{
    const unsigned family = gpusym_algorithm_family(alg);
    return GPUSYM_F_CHAN_SIMPLE == family || GPUSYM_F_CHAN_SIMPLE_R == family;
}

static bool has_tree(unsigned alg)
{
    return gpusym_algorithm_schedule(alg) >= GS_TREE_ALLREDUCE;
}

/* One call as all ranks know it. */
typedef struct {
    unsigned alg, op, type;
    uint32_t channels, chunk, root; /* chunk: in bytes; 0: as large as there is room for */
    uint32_t npaths;
    uint32_t order[GPUSYM_PATHS_MAX][RANKS_MAX];
    bool in_place, direct, generic, aligned;
    uint64_t count[RANKS_MAX]; /* elements of the segments; [0]: of the message */
    uint64_t place[RANKS_MAX]; /* bytes: of the segments in the buffer that has them all */
    uint64_t whole;            /* bytes of that buffer */
    uint32_t late, late_us;    /* rank `late` begins so much later; 0: it does not */
} call_t;

/* Loops of a channel in a random call at most, so that FIFOs wrap; and steps of all channels, so that it takes no time.
 */
#define LOOPS_MAX 24u
#define STEPS_MAX 600u

/* ---- calls ---- */

static void shuffle(uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    for (uint32_t i = n - 1; i > 0; i--) {
        const uint32_t k = below(i + 1), other = order[k];
        order[k] = order[i];
        order[i] = other;
    }
}

/* Rings: any orders, the second the first turned round. Trees: there are two. */
static void call_paths(call_t *call, uint32_t n)
{
    call->npaths = has_tree(call->alg) ? 2 : 1 + below(GPUSYM_PATHS_MAX);
    for (uint32_t i = 0; i < call->npaths; i++) {
        shuffle(call->order[i], n);
        for (uint32_t k = 0; has_tree(call->alg) && k < n; k++) {
            call->order[i][k] = k;
        }
        for (uint32_t k = 0; 1 == i && !has_tree(call->alg) && k < n; k++) {
            call->order[1][k] = call->order[0][n - 1 - k];
        }
    }
}

static uint64_t random_gap(const call_t *call)
{
    return call->aligned ? 16 * below(3) : below(2) * below(40);
}

/* Segments for `most` elements: of one length, or of any, also of none; in any order, with gaps. */
static void call_segments(call_t *call, uint32_t n, uint64_t most)
{
    const size_t size = gpusym_type_bytes(call->type);
    const bool even = GPUSYM_COLL_ALLGATHER == collective_of[call->alg] ||
                      GPUSYM_COLL_REDUCE_SCATTER_BLOCK == collective_of[call->alg];
    uint32_t order[RANKS_MAX];
    uint64_t at = random_gap(call);
    shuffle(order, n);
    for (uint32_t r = 0; r < n; r++) {
        call->count[r] = even || 0 == below(4) ? most : 0 == below(4) ? 0 : 1 + next_random() % most;
    }
    call->count[below(n)] = most;
    for (uint32_t i = 0; i < n; i++) {
        call->place[order[i]] = at;
        at += call->count[order[i]] * size;
        at = (call->aligned ? (at + 15) / 16 * 16 : at) + random_gap(call);
    }
    call->whole = at;
}

/* Sets the bytes of the message, or of the longest segment: at least so many, in whole elements. */
static void call_bytes(call_t *call, uint32_t n, uint64_t bytes)
{
    const size_t size = gpusym_type_bytes(call->type);
    const uint64_t most = (bytes + size - 1) / size;
    if (MESSAGE == layout_of(call->alg)) {
        call->count[0] = most;
        call->whole = most * size;
    } else {
        call_segments(call, n, most);
    }
}

static uint32_t min32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Little, or as much as the FIFOs hold, or so much that small chunks go round in them. */
static void call_size(call_t *call, uint32_t n)
{
    const uint32_t kind = has_schedule(call->alg) ? (uint32_t) gpusym_algorithm_schedule(call->alg) : GS_TREE_REDUCE;
    const uint32_t chunks = GS_RING_ALLREDUCE == kind ? n : 1, steps = 1 + gs_schedule_sends(kind, n);
    const uint32_t loops = 1 + below(min32(LOOPS_MAX, 1 + STEPS_MAX / (steps * call->channels)));
    const uint32_t packs = 1 + below(below(4) ? 4 : 40);
    switch (below(5)) {
    case 0:
        call_bytes(call, n, 1 + below(16 * n));
        break;
    case 1:
        call_bytes(call, n, 1 + below(20000));
        break;
    default:
        call->chunk = 16 * packs;
        call_bytes(call, n, 16ull * packs * chunks * loops * call->channels - below(16 * packs));
        break;
    }
}

/* One type of each kind that is reduced in a way of its own, more often than the rest. */
static void call_type(call_t *call)
{
    static const unsigned types[] = {GPUSYM_T_U8,  GPUSYM_T_F32,       GPUSYM_T_F64,
                                     GPUSYM_T_C64, GPUSYM_T_P_F64_I32, GPUSYM_T_F16};
    call->type = GPUSYM_T_U8; /* what only moves is bytes */
    if (!gpusym_family_reduces(gpusym_algorithm_family(call->alg))) {
        return;
    }
    call->type = below(4) ? types[below(LENGTH(types))] : below(GPUSYM_T_COUNT);
    do {
        call->op = below(GPUSYM_OP_COUNT);
    } while (!gpusym_op_valid(call->op, call->type));
}

static call_t call_new(const rig_t *rig, unsigned alg, uint32_t channels)
{
    call_t call = {.alg = alg, .channels = channels, .root = below(rig->nranks), .generic = 0 == below(3)};
    const unsigned coll = collective_of[alg];
    call_type(&call);
    call.in_place = 0 == below(3);
    call.aligned = 0 != below(2);
    call.direct = is_simple(alg) && GPUSYM_COLL_REDUCE != coll && SCATTERED != layout_of(alg) && 0 != below(2);
    call_paths(&call, rig->nranks);
    call_size(&call, rig->nranks);
    return call;
}

/* ---- where things lie ---- */

static bool has_input(const call_t *call, uint32_t rank)
{
    return GPUSYM_COLL_BCAST != collective_of[call->alg] || rank == call->root;
}

static bool has_result(const call_t *call, uint32_t rank)
{
    return GPUSYM_COLL_REDUCE != collective_of[call->alg] || rank == call->root;
}

static uint64_t own_bytes(const call_t *call, uint32_t rank)
{
    return call->count[rank] * gpusym_type_bytes(call->type);
}

/* Bytes of a rank's buffers; in place, of the one. */
static uint64_t in_bytes(const call_t *call, uint32_t rank)
{
    return GATHERED == layout_of(call->alg) && !call->in_place ? own_bytes(call, rank) : call->whole;
}

static uint64_t out_bytes(const call_t *call, uint32_t rank)
{
    return SCATTERED == layout_of(call->alg) && !call->in_place ? own_bytes(call, rank) : call->whole;
}

/* Where a rank's input for segment s begins in its input, and what becomes of it in its output. */
static uint64_t in_at(const call_t *call, uint32_t rank, uint32_t s)
{
    switch (layout_of(call->alg)) {
    case GATHERED:
        return call->in_place ? call->place[rank] : 0;
    case SCATTERED:
        return call->place[s];
    default:
        return 0;
    }
}

static uint64_t out_at(const call_t *call, uint32_t rank, uint32_t s)
{
    switch (layout_of(call->alg)) {
    case GATHERED:
        return call->place[s];
    case SCATTERED:
        return call->in_place ? call->place[rank] : 0;
    default:
        return 0;
    }
}

/* ---- parts ---- */

static void fill_elements(const call_t *call, uint8_t *to, uint64_t count)
{
    const size_t size = gpusym_type_bytes(call->type);
    for (uint64_t i = 0; i < count; i++) {
        random_element(call->op, call->type, to + i * size);
    }
}

static void part_buffers(const call_t *call, uint32_t rank, uint32_t n, part_t *part)
{
    part->in_bytes = in_bytes(call, rank);
    part->out_bytes = out_bytes(call, rank);
    part->source = malloc(part->in_bytes + 1);
    assert_non_null(part->source);
    memset(part->source, 0x33, part->in_bytes);
    for (uint32_t s = 0; s < (SCATTERED == layout_of(call->alg) ? n : 1); s++) {
        const uint32_t whose = GATHERED == layout_of(call->alg) ? rank : s;
        fill_elements(call, part->source + in_at(call, rank, s), call->count[whose]);
    }
    part->out = buffer_new(part->out_bytes, call->aligned ? 0 : below(16));
    part->in_place = call->in_place;
    part->in = call->in_place ? part->out : buffer_new(part->in_bytes, call->aligned ? 0 : below(16));
    memcpy(part->in.data, part->source, part->in_bytes);
}

static void part_segments(const call_t *call, uint32_t rank, gpusym_work_t *w)
{
    for (uint32_t p = 0; p < w->nranks; p++) {
        const uint64_t there = GATHERED == layout_of(call->alg) ? 0 : call->place[p];
        const uint64_t bytes = own_bytes(call, GATHERED == layout_of(call->alg) ? rank : p);
        w->send[p] = (gpusym_seg_t){there, bytes};
        if (GATHERED == layout_of(call->alg)) {
            w->recv[p] = (gpusym_seg_t){call->place[p], own_bytes(call, p)};
        }
        w->bytes = own_bytes(call, p) > w->bytes ? own_bytes(call, p) : w->bytes;
    }
    if (SCATTERED == layout_of(call->alg)) {
        w->recv[rank] = (gpusym_seg_t){0, own_bytes(call, rank)};
    }
}

static void part_paths(const call_t *call, uint32_t rank, gpusym_work_t *w)
{
    const int schedule = gpusym_algorithm_schedule(call->alg);
    w->schedule = (uint32_t) schedule;
    w->npaths = call->npaths;
    w->direct = call->direct;
    for (uint32_t i = 0; schedule >= 0 && i < call->npaths; i++) {
        gpusym_path_t *path = &w->path[i];
        gpusym_team_path_t seen;
        gpusym_team_path((uint32_t) schedule, w->nranks, call->order[i], i, rank, call->root, &seen);
        path->pos = (uint8_t) seen.pos;
        path->links = (uint8_t) seen.links;
        for (uint32_t l = 0; l < GS_LINKS; l++) { /* a link that is not there leads nowhere */
            const bool there = 0 != (seen.links >> l & 1);
            path->peer[l] = there ? (uint8_t) seen.peer[l] : 0xff;
            path->peer_link[l] = there ? (uint8_t) seen.peer_link[l] : 0xff;
        }
        for (uint32_t k = 0; k < w->nranks; k++) {
            path->order[k] = (uint8_t) call->order[i][k];
        }
    }
}

static void part_fill(const rig_t *rig, const call_t *call, uint32_t rank, part_t *part)
{
    const unsigned family = gpusym_algorithm_family(call->alg);
    gpusym_work_t *w = &part->w;
    part_buffers(call, rank, rig->nranks, part);
    part->kernel = call->generic ? family : gpusym_kernel_find(family, call->op, call->type);
    part->done = NOT_DONE;
    part->late_us = rank == call->late ? call->late_us : 0;
    *w = work_new(rig, rank, part);
    /* what a rank has no part in is not there */
    w->in =
        has_input(call, rank) ? part->in.data + (GATHERED == layout_of(call->alg) ? in_at(call, rank, 0) : 0) : NULL;
    w->out = has_result(call, rank) ? part->out.data + (SCATTERED == layout_of(call->alg) ? out_at(call, rank, 0) : 0)
                                    : NULL;
    w->op = call->op;
    w->type = call->type;
    w->nblocks = call->channels;
    w->src_end = w->dst_end = rig->nranks;
    if (MESSAGE == layout_of(call->alg)) {
        w->bytes = call->whole;
    } else {
        part_segments(call, rank, w);
    }
    part_paths(call, rank, w);
}

/* Whether a slot has room for a call at all. */
static bool call_fits(const rig_t *rig, const call_t *call)
{
    return !has_schedule(call->alg) ||
           0 != gpusym_channels_max(gpusym_algorithm_family(call->alg), (unsigned) gpusym_algorithm_schedule(call->alg),
                                    &rig->shape);
}

static uint64_t call_parts(const rig_t *rig, const call_t *call, part_t *part, uint32_t epoch)
{
    uint64_t used = 0;
    for (uint32_t r = 0; r < rig->nranks; r++) {
        part_fill(rig, call, r, &part[r]);
        part[r].w.epoch = epoch;
        used = gpusym_kernel_plan(gpusym_algorithm_family(call->alg), &part[r].w, call->chunk);
    }
    for (uint32_t r = 0; call->direct && r < rig->nranks * rig->nranks; r++) { /* all have mapped the others' outputs */
        part[r / rig->nranks].w.peer_out[r % rig->nranks] = part[r % rig->nranks].w.out;
    }
    return used;
}

static void describe(const rig_t *rig, const call_t *call, const part_t *part, size_t number)
{
    print_error("call %zu: %s, %s %s, %lu bytes in %lu, root %u, %u ranks, %u channels (%u requested), %u paths, chunk "
                "%u packs, "
                "slot %lu, epoch %u%s%s%s%s, seed %lu\n",
                number, id_of[call->alg], gpusym_op_name(call->op), gpusym_type_name(call->type),
                (unsigned long) part->w.bytes, (unsigned long) call->whole, call->root, rig->nranks, part->w.nblocks,
                call->channels, call->npaths, part->w.chunk, (unsigned long) rig->slot_size, part->w.epoch,
                call->in_place ? ", in place" : "", call->direct ? ", direct" : "", call->generic ? ", generic" : "",
                call->aligned ? ", aligned" : "", (unsigned long) seed);
}

/* ---- the documented order of summation ---- */

/* One operation, where it is made: in binary32, or in binary64 for numbers of that. volatile: rounded there everywhere.
 */
static double join(const element_t *e, double a, double b)
{
    volatile double d = a;
    volatile float f = (float) a;
    switch (e->op) {
    case GPUSYM_OP_SUM:
        d = d + b;
        f = f + (float) b;
        break;
    case GPUSYM_OP_PROD:
        d = d * b;
        f = f * (float) b;
        break;
    case GPUSYM_OP_MIN:
        return a < b ? a : b;
    default:
        return a > b ? a : b;
    }
    return GPUSYM_T_F64 == e->type ? d : (double) f;
}

/* What a hop hands on is an element. */
static double hop(const element_t *e, double x)
{
    uint8_t bits[8];
    put_float(e->type, bits, x);
    return get_float(e->type, bits);
}

/* From the place behind `last`, round the ring, to it. */
static double ring_value(const element_t *e, const uint32_t *order, uint32_t last)
{
    double acc = get_float(e->type, e->in[order[(last + 1) % e->nranks]]);
    for (uint32_t k = 2; k <= e->nranks; k++) {
        acc = hop(e, join(e, acc, get_float(e->type, e->in[order[(last + k) % e->nranks]])));
    }
    return acc;
}

/* The sum of the first child's subtree, a rank's own, that of the second's. */
static double tree_value(const element_t *e, const call_t *call, uint32_t which, uint32_t rank)
{
    gpusym_team_path_t path;
    double acc = get_float(e->type, e->in[rank]);
    gpusym_team_path((uint32_t) gpusym_algorithm_schedule(call->alg), e->nranks, NULL, which, rank, call->root, &path);
    if (0 != (path.links & 1u << GS_CHILD0)) {
        acc = join(e, tree_value(e, call, which, path.peer[GS_CHILD0]), acc);
    }
    if (0 != (path.links & 1u << GS_CHILD1)) {
        acc = join(e, acc, tree_value(e, call, which, path.peer[GS_CHILD1]));
    }
    return hop(e, acc);
}

static uint32_t tree_root(const call_t *call, uint32_t n, uint32_t which)
{
    gpusym_team_path_t path;
    uint32_t rank = 0;
    do {
        gpusym_team_path((uint32_t) gpusym_algorithm_schedule(call->alg), n, NULL, which, rank++, call->root, &path);
    } while (0 != (path.links & 1u << GS_PARENT));
    return rank - 1;
}

static uint32_t place_of(const uint32_t *order, uint32_t rank)
{
    uint32_t i = 0;
    while (order[i] != rank) {
        i++;
    }
    return i;
}

static bool same_bits(const element_t *e, double want, const uint8_t *got)
{
    uint8_t bits[8];
    put_float(e->type, bits, want);
    return 0 == memcmp(bits, got, gpusym_type_bytes(e->type));
}

/* Where the check of a result is: places of a loop own slices of it one after the other. */
typedef struct {
    uint64_t channel, loop;
    uint32_t owner;
} cursor_t;

/* Whether the element in pack `pack` of the message, or of segment s, has the bits that the order gives it. */
static bool right_in_order(const call_t *call, const gpusym_work_t *w, const element_t *e, uint32_t s, uint64_t pack,
                           cursor_t *at, const uint8_t *got)
{
    const uint64_t channel = pack / w->span, loop = pack % w->span / ((uint64_t) w->chunk * e->nranks);
    const uint32_t which = (uint32_t) (channel % call->npaths), *order = call->order[which];
    switch (gpusym_algorithm_schedule(call->alg)) {
    case GS_RING_ALLREDUCE:
        if (channel != at->channel || loop != at->loop) {
            *at = (cursor_t){channel, loop, 0};
        }
        while (at->owner < e->nranks && !same_bits(e, ring_value(e, order, at->owner), got)) {
            at->owner++;
        }
        return at->owner < e->nranks;
    case GS_RING_REDUCE_SCATTER:
        return same_bits(e, ring_value(e, order, place_of(order, s)), got);
    case GS_CHAIN_REDUCE:
        return same_bits(e, ring_value(e, order, place_of(order, call->root)), got);
    default:
        return same_bits(e, tree_value(e, call, which, tree_root(call, e->nranks, which)), got);
    }
}

/* ---- what must come out ---- */

/* Whether what rank r has of segment s (or of the message) is what it reduces to. */
static bool reduced_right(const rig_t *rig, const call_t *call, const part_t *part, uint32_t r, uint32_t s)
{
    const size_t size = gpusym_type_bytes(call->type);
    const bool ordered = has_schedule(call->alg) && GPUSYM_C_FLOAT == type_class[call->type];
    element_t e = {.nranks = rig->nranks, .op = call->op, .type = call->type};
    cursor_t at = {0, 0, 0};
    for (uint64_t i = 0; i < call->count[s]; i++) {
        const uint8_t *got = part[r].out.data + out_at(call, r, s) + i * size;
        for (uint32_t p = 0; p < rig->nranks; p++) {
            e.in[p] = part[p].source + in_at(call, p, s) + i * size;
        }
        if (ordered ? !right_in_order(call, &part[r].w, &e, s, i * size / GPUSYM_PACK, &at, got) : !right(&e, got)) {
            print_error("rank %u: wrong at element %lu of %lu\n", r, (unsigned long) i, (unsigned long) call->count[s]);
            return false;
        }
    }
    return true;
}

/* Writes what rank r's output must be, where there is a result: `first` is the rank whose has been found right. */
static void want_result(const rig_t *rig, const call_t *call, const part_t *part, uint32_t r, uint32_t first,
                        uint8_t *want)
{
    switch (collective_of[call->alg]) {
    case GPUSYM_COLL_BCAST:
        memcpy(want, part[call->root].source, call->whole);
        break;
    case GPUSYM_COLL_ALLGATHER:
    case GPUSYM_COLL_ALLGATHERV:
        for (uint32_t s = 0; s < rig->nranks; s++) {
            memcpy(want + call->place[s], part[s].source + in_at(call, s, s), own_bytes(call, s));
        }
        break;
    default: {
        const uint32_t s = SCATTERED == layout_of(call->alg) ? r : 0;
        memcpy(want + out_at(call, r, s), part[first].out.data + out_at(call, r, s), own_bytes(call, s));
        break;
    }
    }
}

/* Whether rank r's output is that, byte for byte, gaps and all. */
static bool output_right(const rig_t *rig, const call_t *call, const part_t *part, uint32_t r, uint32_t first)
{
    const part_t *p = &part[r];
    uint8_t *want = malloc(p->out_bytes + 1);
    uint64_t i = 0;
    assert_non_null(want);
    memset(want, POISON_BYTE, p->out_bytes);
    if (call->in_place) {
        memcpy(want, p->source, p->out_bytes);
    }
    if (has_result(call, r)) {
        want_result(rig, call, part, r, first, want);
    }
    while (i < p->out_bytes && want[i] == p->out.data[i]) {
        i++;
    }
    free(want);
    if (i < p->out_bytes) {
        print_error("rank %u: wrong at byte %lu of %lu\n", r, (unsigned long) i, (unsigned long) p->out_bytes);
    }
    return i == p->out_bytes;
}

/* Whether rank r ended well, and left alone what is not its own. */
static bool ended_well(const call_t *call, const part_t *p, uint32_t r)
{
    if (p->done != ((uint64_t) p->w.done_seq << 32 | GPUSYM_STATUS_OK)) {
        print_error("rank %u: completion word %lx, sequence %x\n", r, (unsigned long) p->done, p->w.done_seq);
        return false;
    }
    if (p->sum != sum_of(p->out.data, p->out_bytes)) {
        print_error("rank %u: the output was not there when the rank had ended\n", r);
        return false;
    }
    if (!guards_hold(&p->in, p->in_bytes) || !guards_hold(&p->out, p->out_bytes) || (!call->in_place && !p->kept)) {
        print_error("rank %u: wrote beyond a buffer, or to the input\n", r);
        return false;
    }
    return true;
}

static bool call_right(const rig_t *rig, const call_t *call, const part_t *part)
{
    const bool scattered = SCATTERED == layout_of(call->alg),
               reduces = gpusym_family_reduces(gpusym_algorithm_family(call->alg));
    const uint32_t root = GPUSYM_COLL_REDUCE == collective_of[call->alg] ? call->root : 0;
    for (uint32_t r = 0; r < rig->nranks; r++) {
        if (!ended_well(call, &part[r], r)) {
            return false;
        }
    }
    for (uint32_t r = 0; r < rig->nranks; r++) {
        const uint32_t first = scattered ? r : root;
        if ((reduces && r == first && !reduced_right(rig, call, part, r, scattered ? r : 0)) ||
            !output_right(rig, call, part, r, first)) {
            return false;
        }
    }
    return true;
}

#include "test/unit/script.h"

/* A script that is filled call by call, and run when it is full. */
static struct {
    call_t call[64];
    size_t n;
} script;

static void script_run(rig_t *rig)
{
    const size_t n = script.n;
    script.n = 0; /* a call that fails leaves nothing to the next test */
    if (n > 0) {
        rig_run(rig, script.call, n);
    }
}

/* A call that the slot has no room for is left out: whose room is enough is tested by itself. */
static void script_add(rig_t *rig, call_t call)
{
    if (call_fits(rig, &call)) {
        script.call[script.n++] = call;
    }
    if (LENGTH(script.call) == script.n) {
        script_run(rig);
    }
}

static unsigned random_algorithm(bool (*kind)(unsigned alg))
{
    unsigned alg;
    do {
        alg = below(GPUSYM_ALG_COUNT);
    } while (!kind(alg));
    return alg;
}

/* One of those that run between, for which the rig's slots have room. */
static unsigned random_symmetric(const rig_t *rig)
{
    gpusym_work_t w = rig->shape;
    unsigned alg;
    w.nranks = rig->nranks;
    do {
        alg = random_algorithm(is_symmetric);
    } while (GPUSYM_F_RSXLL128_AGXLL128 == gpusym_algorithm_family(alg) && !gpusym_ll128_fits(&w));
    return alg;
}

/* ---- tests ---- */

/* Algorithm x number of channels x number of ranks; the rest is drawn. Now and then a symmetric kernel runs between, in
 * the same flags and lines. */
static void every_algorithm(void **state)
{
    (void) state;
    static const uint32_t channels[] = {1, 2, 3, 8, 64};
    for (uint32_t n = 2; n <= 16; n += n < 4 || long_form() ? 1 : 4) {
        rig_t *rig = rig_new(n, 2 << 20, GPUSYM_CHANNELS_MAX, 1);
        for (unsigned i = 0; i < GPUSYM_ALG_COUNT * LENGTH(channels); i++) {
            const unsigned alg = i / LENGTH(channels);
            if (!has_schedule(alg)) {
                continue;
            }
            script_add(rig, call_new(rig, alg, channels[i % LENGTH(channels)]));
            if (0 == below(4)) {
                script_add(rig, call_new(rig, random_symmetric(rig), 1 + below(8)));
            }
        }
        script_run(rig);
        rig_free(rig);
    }
}

/* In a slot that has room for them with every protocol. */
static void sixty_four_channels(void **state)
{
    (void) state;
    rig_t *rig = rig_new(3, 16 << 20, GPUSYM_CHANNELS_MAX, 1);
    for (unsigned alg = 0; alg < GPUSYM_ALG_COUNT; alg++) {
        if (has_schedule(alg)) {
            assert_int_equal(gpusym_channels_max(gpusym_algorithm_family(alg),
                                                 (unsigned) gpusym_algorithm_schedule(alg), &rig->shape),
                             GPUSYM_CHANNELS_MAX);
            script_add(rig, call_new(rig, alg, GPUSYM_CHANNELS_MAX));
        }
    }
    script_run(rig);
    rig_free(rig);
}

static void every_root(void **state)
{
    (void) state;
    for (uint32_t n = 2; n <= 12; n += n < 4 || long_form() ? 1 : 4) {
        rig_t *rig = rig_new(n, 256 << 10, GPUSYM_CHANNELS_MAX, 1);
        for (unsigned i = 0; i < GPUSYM_ALG_COUNT * n; i++) {
            const unsigned alg = i / n, coll = collective_of[alg];
            if (has_schedule(alg) && (GPUSYM_COLL_BCAST == coll || GPUSYM_COLL_REDUCE == coll) &&
                (n <= 5 || 0 == below(4))) {
                call_t call = call_new(rig, alg, 1 + below(3));
                call.root = i % n;
                script_add(rig, call);
            }
        }
        script_run(rig);
        rig_free(rig);
    }
}

/* Every kernel with every operation and type, the specialised and the generic. */
static void every_operation_and_type(void **state)
{
    (void) state;
    rig_t *rig = rig_new(4, 256 << 10, 3, 1);
    for (unsigned i = 0; i < GPUSYM_ALG_COUNT * GPUSYM_OP_COUNT * GPUSYM_T_COUNT; i++) {
        const unsigned alg = i % GPUSYM_ALG_COUNT, op = i / GPUSYM_ALG_COUNT % GPUSYM_OP_COUNT,
                       type = i / GPUSYM_ALG_COUNT / GPUSYM_OP_COUNT, coll = collective_of[alg];
        if (!has_schedule(alg) || !gpusym_family_reduces(gpusym_algorithm_family(alg)) || !gpusym_op_valid(op, type) ||
            (GPUSYM_COLL_ALLREDUCE != coll && 0 != below(8))) {
            continue;
        }
        for (unsigned k = 0; k < (GPUSYM_COLL_ALLREDUCE == coll ? 2 : 1); k++) {
            call_t call = call_new(rig, alg, 1 + below(2));
            call.op = op;
            call.type = type;
            call.generic = k;
            call_bytes(&call, rig->nranks, 1 + below(300));
            script_add(rig, call);
        }
    }
    script_run(rig);
    rig_free(rig);
}

/* As many messages as a FIFO has buffers, one less, one more, twice as many: where credits begin. One rank begins late,
 * so that the others run into the ends of their FIFOs. */
static void fifos_that_are_just_full(void **state)
{
    (void) state;
    static const uint32_t messages[] = {GS_STEPS - 1, GS_STEPS,         GS_STEPS + 1,
                                        2 * GS_STEPS, 2 * GS_STEPS + 1, 5 * GS_STEPS};
    for (uint32_t n = 2; n <= 6; n += n < 3 || long_form() ? 1 : 3) {
        rig_t *rig = rig_new(n, 256 << 10, 8, 1);
        for (unsigned i = 0; i < GPUSYM_ALG_COUNT * LENGTH(messages); i++) {
            const unsigned alg = i / LENGTH(messages);
            if (!has_schedule(alg)) {
                continue;
            }
            call_t call = call_new(rig, alg, 1 + below(2));
            const uint32_t kind = (uint32_t) gpusym_algorithm_schedule(alg), sends = gs_schedule_sends(kind, n);
            const uint32_t chunks = GS_RING_ALLREDUCE == kind ? n : 1;
            const uint32_t loops = (messages[i % LENGTH(messages)] + sends - 1) / sends;
            call.chunk = 16;
            call_bytes(&call, n, 16ull * chunks * loops * call.channels);
            call.late = below(n);
            call.late_us = below(4) ? 0 : 300;
            script_add(rig, call);
        }
        script_run(rig);
        rig_free(rig);
    }
}

static void largest_team(void **state)
{
    (void) state;
    rig_t *rig = rig_new(GPUSYM_TEAM_MAX, 1 << 20, 8, 1);
    for (unsigned alg = 0; alg < GPUSYM_ALG_COUNT; alg++) {
        if (has_schedule(alg)) {
            script_add(rig, call_new(rig, alg, 1 + below(3)));
        }
    }
    script_run(rig);
    rig_free(rig);
}

/* Calls of any kind, one after the other in the same slots, which nobody clears. */
static void random_calls(uint32_t first_epoch, unsigned calls)
{
    static const uint64_t sizes[] = {64 << 10, 80 << 10, 1 << 20};
    for (uint32_t n = 2; n <= 5; n++) {
        rig_t *rig = rig_new(n, sizes[below(LENGTH(sizes))], 16, first_epoch);
        for (unsigned i = 0; i < calls / (long_form() ? 1 : 3); i++) {
            const bool symmetric = 0 == below(3);
            const unsigned alg = symmetric ? random_symmetric(rig) : random_algorithm(has_schedule);
            script_add(rig, call_new(rig, alg, 1 + below(symmetric ? rig->blocks : 6)));
        }
        script_run(rig);
        rig_free(rig);
    }
}

static void calls_of_all_kinds(void **state)
{
    (void) state;
    random_calls(1, 500);
}

/* Flags compare right where a signed epoch would turn negative ... */
static void epochs_pass_2_to_31(void **state)
{
    (void) state;
    random_calls(0x7ffffc00u, 200);
}

/* ... and up to the last one, before which the slots are cleared. */
static void epochs_reach_2_to_32(void **state)
{
    (void) state;
    random_calls(0xfffff800u, 200);
}

/* ---- the cutting ---- */

/* Whatever the shape: as many channels as there is room for, FIFOs in their area, and all of the message in some chunk.
 */
static void plans_fit_their_slots(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 40000; i++) {
        const unsigned alg = random_algorithm(has_schedule), family = gpusym_algorithm_family(alg);
        const uint32_t kind = (uint32_t) gpusym_algorithm_schedule(alg);
        const uint64_t size = below(4) ? (64ull << 10) << below(10) : 10000 + below(200000);
        gpusym_work_t w = {.nranks = 2 + below(GPUSYM_TEAM_MAX - 1), .schedule = kind};
        if (0 == gpusym_slot_layout(size, w.nranks, 1, &w)) {
            continue;
        }
        const uint32_t most = gpusym_channels_max(family, kind, &w), chunk = below(2) ? 0 : 1 + below(1u << below(24));
        const uint64_t area = is_simple(alg) ? w.stage_off : gpusym_family_ll128(family) ? w.ll128_off : w.ll_off;
        const uint64_t end = is_simple(alg) ? size : gpusym_family_ll128(family) ? w.stage_off : w.ll128_off;
        assert_in_range(most, 0, GPUSYM_CHANNELS_MAX);
        assert_true(2 * most <= w.flag_rows);
        if (0 == most) {
            continue;
        }
        w.nblocks = 1 + below(GPUSYM_CHANNELS_MAX);
        w.bytes = 1 + next_random() % (1ull << below(38));
        const uint32_t requested = w.nblocks;
        const uint64_t epochs = gpusym_kernel_plan(family, &w, chunk);
        const uint64_t chunks = GS_RING_ALLREDUCE == kind ? w.nranks : 1;
        const uint64_t loops = (w.span + w.chunk * chunks - 1) / (w.chunk * chunks);
        const uint64_t line_bytes = gpusym_family_ll128(family) ? (w.chunk + 29ull) / 30 * 512
                                    : is_simple(alg)            ? 16ull * w.chunk
                                                                : 32ull * w.chunk;
        assert_true(w.nblocks == (requested < most ? requested : most) && w.chunk > 0);
        assert_true(w.span * w.nblocks >= (w.bytes + 15) / 16);
        assert_true(chunk < 16 || 16ull * w.chunk <= (chunk + 15) / 16 * 16);
        assert_true(epochs == loops * gs_schedule_sends(kind, w.nranks));
        assert_true(w.fifo_step >= line_bytes && 0 == w.fifo_step % 128 && 0 == w.fifo_off % 128);
        assert_true(w.fifo_off >= area && w.fifo_off + w.fifo_step * GS_STEPS * w.fifo_links * w.nblocks <= end);
        assert_true(w.fifo_links >= (kind >= GS_TREE_ALLREDUCE ? 3 : 1));
    }
}

/* Small slots have room for one channel, or with LL128 for none. */
static void small_slots(void **state)
{
    (void) state;
    uint64_t none = 0, one = 0;
    for (uint64_t size = 24 << 10; size <= 160 << 10; size += 8 << 10) {
        gpusym_work_t w;
        if (0 == gpusym_slot_layout(size, 4, 1, &w)) {
            continue;
        }
        rig_t *rig = rig_new(4, size, GPUSYM_CHANNELS_MAX, 1);
        for (unsigned alg = 0; alg < GPUSYM_ALG_COUNT; alg++) {
            const uint32_t most = has_schedule(alg) ? gpusym_channels_max(gpusym_algorithm_family(alg),
                                                                          (unsigned) gpusym_algorithm_schedule(alg), &w)
                                                    : 2;
            none += 0 == most;
            one += 1 == most;
            if (1 == most) {
                script_add(rig, call_new(rig, alg, 1 + below(3)));
                script_add(rig, call_new(rig, random_symmetric(rig), 1 + below(rig->blocks)));
            }
        }
        script_run(rig);
        rig_free(rig);
    }
    assert_true(none > 0 && one > 0);
}

/* ---- waits that nobody ends ---- */

/* A call in which every rank has more to send than all FIFOs hold. */
static call_t endless_call(const rig_t *rig, unsigned alg)
{
    call_t call = call_new(rig, alg, 1);
    const uint32_t loops = 2 * GS_STEPS * (rig->nranks + 1);
    call.type = gpusym_family_reduces(gpusym_algorithm_family(alg)) ? GPUSYM_T_F32 : GPUSYM_T_U8;
    call.op = GPUSYM_OP_SUM;
    call.chunk = 16;
    call_bytes(&call, rig->nranks,
               16ull * loops * (GS_RING_ALLREDUCE == gpusym_algorithm_schedule(alg) ? rig->nranks : 1));
    for (uint32_t r = 0; MESSAGE != layout_of(alg) && r < rig->nranks; r++) { /* all alike, one after the other */
        call.count[r] = 16ull * loops / gpusym_type_bytes(call.type);
        call.place[r] = 16ull * loops * r;
        call.whole = 16ull * loops * rig->nranks;
    }
    return call;
}

/* Whether a rank may wait for `peer` when `absent` does not come: the neighbour on the way to it. On a ring that is the
 * one before, and the absent one itself, if its FIFO is full before those on the long way round have stopped. */
static bool may_wait_for(const call_t *call, uint32_t n, uint32_t rank, uint32_t absent, uint32_t peer)
{
    const uint32_t kind = (uint32_t) gpusym_algorithm_schedule(call->alg);
    uint32_t on_way[RANKS_MAX] = {0}, queue[RANKS_MAX], tail = 1;
    gpusym_team_path_t path;
    if (kind < GS_CHAIN_BCAST) {
        gpusym_team_path(kind, n, call->order[0], 0, rank, call->root, &path);
        return peer == path.peer[GS_PREV] || (peer == absent && peer == path.peer[GS_NEXT] && n > GS_STEPS);
    }
    queue[0] = absent; /* outwards from it: who finds a rank first is on its way */
    on_way[absent] = absent + 1;
    for (uint32_t head = 0; head < tail; head++) {
        gpusym_team_path(kind, n, call->order[0], 0, queue[head], call->root, &path);
        for (uint32_t l = 0; l < GS_LINKS; l++) {
            if (0 != (path.links >> l & 1) && 0 == on_way[path.peer[l]]) {
                on_way[path.peer[l]] = queue[head] + 1;
                queue[tail++] = path.peer[l];
            }
        }
    }
    return peer == on_way[rank] - 1;
}

/* Whether a rank has ended as it should without `absent`. */
static bool ended_alone(const call_t *call, const part_t *part, uint32_t absent, bool aborted)
{
    const uint32_t status = (uint32_t) part->done;
    if (part->w.rank == absent) {
        return NOT_DONE == part->done;
    }
    if (part->done >> 32 != part->w.done_seq) {
        return false;
    }
    return aborted ? GPUSYM_STATUS_ABORTED == status
                   : GPUSYM_STATUS_TIMEOUT == (status & 0xff) &&
                         may_wait_for(call, part->w.nranks, part->w.rank, absent, status >> 8);
}

static void expect_end(rig_t *rig, const call_t *call, uint32_t absent, bool aborted)
{
    part_t *parts = parts_new(rig, call, 1);
    parts_run(rig, parts, 1, absent);
    for (uint32_t r = 0; r < rig->nranks; r++) {
        if (!ended_alone(call, &parts[r], absent, aborted)) {
            print_error("rank %u, where %u is absent: completion word %lx\n", r, absent, (unsigned long) parts[r].done);
            describe(rig, call, parts, 0);
            fail();
        }
        assert_true(guards_hold(&parts[r].out, parts[r].out_bytes));
    }
    parts_free(rig, parts, 1);
}

/* A rank that stays away: the others end by themselves, and each says for whom it waited. So it is after other calls,
 * and whatever the epoch: no flag and no line of old looks like a new one. */
static void a_rank_that_is_absent_is_waited_for(void **state)
{
    (void) state;
    static const uint32_t epochs[] = {2, 0x7ffffff0u, 0x80000000u, 0xc0000000u, 0xffff0000u};
    for (unsigned alg = 0; alg < GPUSYM_ALG_COUNT; alg++) {
        if (!has_schedule(alg) || !is_first(alg)) {
            continue;
        }
        rig_t *rig = rig_new(2 + below(4), 256 << 10, 3, epochs[below(LENGTH(epochs))]);
        const call_t call = endless_call(rig, alg);
        if (below(2)) {
            script_add(rig, call_new(rig, random_symmetric(rig), 1));
            script_add(rig, call_new(rig, alg, 1));
            script_run(rig);
        }
        rig->limit_ns = ABSENCE_NS;
        expect_end(rig, &call, below(rig->nranks), false);
        rig_free(rig);
    }
}

/* The last message of all does not come, with credits and without: a call that ends well must have had all of it. */
static void a_missing_last_message_is_noticed(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 2 * GPUSYM_ALG_COUNT; i++) {
        const unsigned alg = i / 2;
        const uint64_t messages = i % 2 ? GS_STEPS - 1 : 2 * GS_STEPS;
        if (!has_schedule(alg) || GPUSYM_COLL_BCAST != collective_of[alg]) {
            continue;
        }
        rig_t *rig = rig_new(2, 256 << 10, 3, 1);
        call_t call = call_new(rig, alg, 1);
        call.chunk = 16;
        call_bytes(&call, 2, 16 * messages);
        rig->limit_ns = ABSENCE_NS;
        part_t *parts = parts_new(rig, &call, 1);
        const part_t *last = &parts[1 - call.root];
        parts[call.root].w.bytes -= 16; /* the root thinks that it is done */
        parts_run(rig, parts, 1, RANKS_MAX);
        if (last->done != ((uint64_t) last->w.done_seq << 32 | GPUSYM_STATUS_TIMEOUT | (uint64_t) call.root << 8)) {
            print_error("completion word %lx\n", (unsigned long) last->done);
            describe(rig, &call, parts, 0);
            fail();
        }
        parts_free(rig, parts, 1);
        rig_free(rig);
    }
}

/* The abort word ends waits that have no limit, set before them or while they last. */
static void abort_ends_every_wait(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 2 * GPUSYM_ALG_COUNT; i++) {
        if (!has_schedule(i / 2) || !is_first(i / 2)) {
            continue;
        }
        rig_t *rig = rig_new(2 + below(4), 256 << 10, 2, 1);
        const call_t call = endless_call(rig, i / 2);
        rig->limit_ns = 0;
        rig->abort = i % 2;
        expect_end(rig, &call, below(rig->nranks), true);
        rig_free(rig);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_fit_their_slots),
        cmocka_unit_test(every_algorithm),
        cmocka_unit_test(sixty_four_channels),
        cmocka_unit_test(every_root),
        cmocka_unit_test(every_operation_and_type),
        cmocka_unit_test(fifos_that_are_just_full),
        cmocka_unit_test(largest_team),
        cmocka_unit_test(calls_of_all_kinds),
        cmocka_unit_test(epochs_pass_2_to_31),
        cmocka_unit_test(epochs_reach_2_to_32),
        cmocka_unit_test(small_slots),
        cmocka_unit_test(a_rank_that_is_absent_is_waited_for),
        cmocka_unit_test(a_missing_last_message_is_noticed),
        cmocka_unit_test(abort_ends_every_wait),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests_name("channels", tests, NULL, NULL);
}
