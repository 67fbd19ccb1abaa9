/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of the all-reduce algorithms on the simulator: the ranks are threads of this process, the slots are plain
 * memory.  Every rank works off a script of calls on its own; only the kernels hold the ranks together.
 * A seed as the argument repeats the run that printed it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "mca/common/gpusym/heap.h"
#include "test/unit/random.h"

__extension__ typedef __int128 wide_t;
__extension__ typedef unsigned __int128 uwide_t;

#define RANKS_MAX GPUSYM_TEAM_MAX
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
/* Guard bytes on both sides of a buffer and at the end of a slot. */
#define GUARD 64
#define GUARD_BYTE 0x5a
#define POISON_BYTE 0xc3
/* Of a wait that nothing should make long, in nanoseconds: a hang becomes a failure. */
#define PATIENCE_NS 20000000000ull
/* What the completion word holds before a launch. */
#define NOT_DONE 0xdeadbeefdeadbeefull

static unsigned below(unsigned n)
{
    return (unsigned) (next_random() % n);
}

/* ---- elements ---- */

static const unsigned type_class[] = {
#define GPUSYM_TYPE(id, name, bytes, class) GPUSYM_C_##class,
#include "kernels/kernels.def"
};

static const char *const type_id[] = {
#define GPUSYM_TYPE(id, name, bytes, class) #name,
#include "kernels/kernels.def"
};

/* A float format of up to 16 bits: explicit bits of the mantissa and the exponents of its normal numbers. */
typedef struct {
    int mantissa, least, most;
} format_t;

static const format_t half_format = {10, -14, 15}, bfloat_format = {7, -126, 127};

/* Exact. */
static double from_small(const format_t *f, uint16_t bits)
{
    const int exponent = (bits & 0x7fff) >> f->mantissa, top = f->most - f->least + 2;
    const int mantissa = bits & ((1 << f->mantissa) - 1);
    double x;
    if (exponent == top) {
        x = mantissa ? (double) NAN : (double) INFINITY;
    } else if (0 == exponent) {
        x = ldexp(mantissa, f->least - f->mantissa);
    } else {
        x = ldexp(mantissa + (1 << f->mantissa), exponent - 1 + f->least - f->mantissa);
    }
    return bits & 0x8000 ? -x : x;
}

/* To nearest, ties to even; x is no NaN. */
static uint16_t to_small(const format_t *f, double x)
{
    const uint32_t sign = signbit(x) ? 0x8000 : 0, infinite = (uint32_t) (f->most - f->least + 2) << f->mantissa;
    const double a = fabs(x);
    int e;
    if (isinf(a)) {
        return (uint16_t) (sign | infinite);
    }
    (void) frexp(a, &e);
    e = 0 == a || e - 1 < f->least ? f->least : e - 1;
    /* units in the last place of numbers of this exponent; the implicit bit counts as an exponent */
    const double units = nearbyint(ldexp(a, f->mantissa - e));
    const double bits = ldexp(e - f->least, f->mantissa) + units;
    return (uint16_t) (sign | (bits >= infinite ? infinite : (uint32_t) bits));
}

static double get_float(unsigned type, const uint8_t *p)
{
    uint16_t h;
    float f;
    double d;
    switch (type) {
    case GPUSYM_T_F16:
    case GPUSYM_T_BF16:
        memcpy(&h, p, sizeof h);
        return from_small(GPUSYM_T_F16 == type ? &half_format : &bfloat_format, h);
    case GPUSYM_T_F32:
    case GPUSYM_T_C32:
    case GPUSYM_T_P_F32_I32:
    case GPUSYM_T_P_F32_F32:
        memcpy(&f, p, sizeof f);
        return (double) f;
    default:
        memcpy(&d, p, sizeof d);
        return d;
    }
}

static void put_float(unsigned type, uint8_t *p, double x)
{
    const float f = (float) x;
    uint16_t h;
    switch (type) {
    case GPUSYM_T_F16:
    case GPUSYM_T_BF16:
        h = to_small(GPUSYM_T_F16 == type ? &half_format : &bfloat_format, x);
        memcpy(p, &h, sizeof h);
        return;
    case GPUSYM_T_F32:
    case GPUSYM_T_C32:
    case GPUSYM_T_P_F32_I32:
    case GPUSYM_T_P_F32_F32:
        memcpy(p, &f, sizeof f);
        return;
    default:
        memcpy(p, &x, sizeof x);
        return;
    }
}

/* A two's complement or unsigned number of `bytes` bytes. */
static wide_t get_int(const uint8_t *p, size_t bytes, bool is_signed)
{
    uint64_t u = 0;
    memcpy(&u, p, bytes); /* the least byte comes first on what this project runs on */
    if (is_signed && 0 != (u >> (8 * bytes - 1) & 1)) {
        return (wide_t) u - ((wide_t) 1 << 8 * bytes);
    }
    return (wide_t) u;
}

/* A magnitude in [0.5, 2) for products, of mixed exponents for the rest; now and then zero. */
static double random_float(unsigned op)
{
    const double m = 0.5 + (double) (next_random() >> 12) * 0x1p-53;
    const double x = GPUSYM_OP_PROD == op ? m * (1 + below(2)) : 0 == below(16) ? 0 : ldexp(m, (int) below(9) - 4);
    return below(2) ? x : -x;
}

/* How a pair is laid out: as the C struct, whose value may be followed by padding. */
static void pair_layout(unsigned type, size_t *value, size_t *index_at, bool *value_is_float, bool *index_is_float)
{
    *value_is_float = GPUSYM_T_P_F32_I32 == type || GPUSYM_T_P_F64_I32 == type || GPUSYM_T_P_F32_F32 == type ||
                      GPUSYM_T_P_F64_F64 == type;
    *index_is_float = GPUSYM_T_P_F32_F32 == type || GPUSYM_T_P_F64_F64 == type;
    *index_at = gpusym_type_bytes(type) / 2;
    *value = GPUSYM_T_P_I16_I32 == type ? 2 : *index_at;
}

/* From few values and indices, so that both often tie; padding is noise. */
static void random_pair(unsigned type, uint8_t *p)
{
    size_t value, index_at;
    bool vf, xf;
    const int v = (int) below(5) - 2, x = (int) below(4) - 1;
    pair_layout(type, &value, &index_at, &vf, &xf);
    for (size_t i = 0; i < 2 * index_at; i++) {
        p[i] = (uint8_t) next_random();
    }
    if (vf) {
        put_float(type, p, v * 0.75);
    } else {
        const int64_t wide = 0 == below(8) ? v * (INT64_MAX / 2) : v; /* truncated for the narrow ones */
        memcpy(p, &wide, value);
    }
    if (xf) {
        put_float(type, p + index_at, x);
    } else {
        memcpy(p + index_at, &x, sizeof x);
    }
}

static void random_element(unsigned op, unsigned type, uint8_t *p)
{
    const size_t bytes = gpusym_type_bytes(type);
    switch (type_class[type]) {
    case GPUSYM_C_FLOAT:
        put_float(type, p, random_float(op));
        return;
    case GPUSYM_C_COMPLEX:
        put_float(type, p, random_float(op));
        put_float(type, p + bytes / 2, random_float(op));
        return;
    case GPUSYM_C_PAIR:
        random_pair(type, p);
        return;
    default: {
        const uint64_t u = below(4) ? next_random() : below(3); /* zero matters to the logical ones */
        memcpy(p, &u, bytes);
        return;
    }
    }
}

/* ---- the reference: whether `got` is what the ranks' elements in[] reduce to ---- */

typedef struct {
    uint32_t nranks;
    unsigned op, type;
    const uint8_t *in[RANKS_MAX];
} element_t;

static bool right_int(const element_t *e, const uint8_t *got)
{
    const size_t bytes = gpusym_type_bytes(e->type);
    const bool is_signed = GPUSYM_C_INT == type_class[e->type];
    wide_t acc = get_int(e->in[0], bytes, is_signed);
    for (uint32_t r = 1; r < e->nranks; r++) {
        const wide_t v = get_int(e->in[r], bytes, is_signed);
        switch (e->op) {
        case GPUSYM_OP_SUM:
            acc += v;
            break;
        case GPUSYM_OP_PROD: /* modulo 2^128, hence modulo 2^bits too */
            acc = (wide_t) ((uwide_t) acc * (uwide_t) v);
            break;
        case GPUSYM_OP_MIN:
            acc = v < acc ? v : acc;
            break;
        case GPUSYM_OP_MAX:
            acc = v > acc ? v : acc;
            break;
        case GPUSYM_OP_LAND:
            acc = acc && v;
            break;
        case GPUSYM_OP_LOR:
            acc = acc || v;
            break;
        case GPUSYM_OP_LXOR:
            acc = !acc != !v;
            break;
        case GPUSYM_OP_BAND:
            acc &= v;
            break;
        case GPUSYM_OP_BOR:
            acc |= v;
            break;
        case GPUSYM_OP_BXOR:
            acc ^= v;
            break;
        default:
            return false;
        }
    }
    const uint64_t mask = 8 == bytes ? UINT64_MAX : (1ull << 8 * bytes) - 1;
    return (uint64_t) get_int(got, bytes, false) == ((uint64_t) (uwide_t) acc & mask);
}

/* Rounding of one operation where sums and products are made, and of the one that narrows the result. */
static void roundings(unsigned type, long double *in_sum, long double *at_end, long double *least)
{
    *in_sum = GPUSYM_T_F64 == type || GPUSYM_T_C64 == type ? 0x1p-53L : 0x1p-24L;
    *at_end = GPUSYM_T_F16 == type ? 0x1p-11L : GPUSYM_T_BF16 == type ? 0x1p-8L : 0;
    *least = GPUSYM_T_F16 == type ? 0x1p-25L : 0; /* half of the smallest subnormal */
}

/*
 * n - 1 roundings in the sum, each at most in_sum times the sum of magnitudes (one more pays for the reference's own),
 * then one of the result: |got - want| <= n in_sum magnitude + at_end |want|.  The end's rounding is of the rounded
 * sum, hence at_end once more of the first term, which 2 n covers.
 */
static bool near_enough(unsigned type, uint32_t n, long double got, long double want, long double magnitude)
{
    long double in_sum, at_end, least;
    roundings(type, &in_sum, &at_end, &least);
    return fabsl(got - want) <= 2 * n * in_sum * magnitude + at_end * fabsl(want) + least; /* false for a NaN */
}

static bool right_float(const element_t *e, const uint8_t *got)
{
    long double acc = get_float(e->type, e->in[0]), magnitude = fabsl(acc);
    for (uint32_t r = 1; r < e->nranks; r++) {
        const long double v = get_float(e->type, e->in[r]);
        switch (e->op) {
        case GPUSYM_OP_SUM:
            acc += v;
            magnitude += fabsl(v);
            break;
        case GPUSYM_OP_PROD:
            acc *= v;
            magnitude = fabsl(acc);
            break;
        case GPUSYM_OP_MIN:
            acc = v < acc ? v : acc;
            break;
        case GPUSYM_OP_MAX:
            acc = v > acc ? v : acc;
            break;
        default:
            return false;
        }
    }
    if (GPUSYM_OP_MIN == e->op || GPUSYM_OP_MAX == e->op) {
        return (long double) get_float(e->type, got) == acc;
    }
    return near_enough(e->type, e->nranks, get_float(e->type, got), acc, magnitude);
}

/* A complex product's parts are two products each: their roundings, and the sum's, make four of the magnitude. */
static bool right_complex(const element_t *e, const uint8_t *got)
{
    const size_t half = gpusym_type_bytes(e->type) / 2;
    long double re = get_float(e->type, e->in[0]), im = get_float(e->type, e->in[0] + half);
    long double magnitude = fabsl(re) + fabsl(im);
    for (uint32_t r = 1; r < e->nranks; r++) {
        const long double a = get_float(e->type, e->in[r]), b = get_float(e->type, e->in[r] + half);
        if (GPUSYM_OP_PROD == e->op) {
            const long double t = re * a - im * b;
            im = re * b + im * a;
            re = t;
            magnitude *= 2 * (fabsl(a) + fabsl(b));
        } else {
            re += a;
            im += b;
            magnitude += fabsl(a) + fabsl(b);
        }
    }
    return near_enough(e->type, 4 * e->nranks, get_float(e->type, got), re, magnitude) &&
           near_enough(e->type, 4 * e->nranks, get_float(e->type, got + half), im, magnitude);
}

/* <0, 0, >0: how value and index of a and b compare for the operation: less is what wins. */
static int compare_pairs(unsigned op, unsigned type, const uint8_t *a, const uint8_t *b)
{
    size_t value, at;
    bool vf, xf;
    pair_layout(type, &value, &at, &vf, &xf);
    const int better =
        vf ? (get_float(type, a) > get_float(type, b)) - (get_float(type, a) < get_float(type, b))
           : (get_int(a, value, true) > get_int(b, value, true)) - (get_int(a, value, true) < get_int(b, value, true));
    if (0 != better) {
        return GPUSYM_OP_MINLOC == op ? better : -better;
    }
    return xf ? (get_float(type, a + at) > get_float(type, b + at)) -
                    (get_float(type, a + at) < get_float(type, b + at))
              : (get_int(a + at, 4, true) > get_int(b + at, 4, true)) -
                    (get_int(a + at, 4, true) < get_int(b + at, 4, true));
}

/* The result is some rank's whole element, padding included, that no other beats. */
static bool right_pair(const element_t *e, const uint8_t *got)
{
    const uint8_t *best = e->in[0];
    for (uint32_t r = 1; r < e->nranks; r++) {
        best = compare_pairs(e->op, e->type, e->in[r], best) < 0 ? e->in[r] : best;
    }
    for (uint32_t r = 0; r < e->nranks; r++) {
        if (0 == memcmp(e->in[r], got, gpusym_type_bytes(e->type))) {
            return 0 == compare_pairs(e->op, e->type, best, got);
        }
    }
    return false;
}

static bool right(const element_t *e, const uint8_t *got)
{
    switch (type_class[e->type]) {
    case GPUSYM_C_FLOAT:
        return right_float(e, got);
    case GPUSYM_C_COMPLEX:
        return right_complex(e, got);
    case GPUSYM_C_PAIR:
        return right_pair(e, got);
    default:
        return right_int(e, got);
    }
}

/* ---- slots, calls, ranks ---- */

/* The slots of a team, as one communicator has them. */
typedef struct {
    uint32_t nranks, blocks; /* blocks: most that a launch may use */
    uint64_t slot_size;
    uint8_t *slot[RANKS_MAX];
    gpusym_work_t shape; /* offsets and sizes */
    uint32_t epoch, seq;
    uint32_t abort;
    uint64_t limit_ns;
} rig_t;

/* One call as all ranks know it. */
typedef struct {
    unsigned alg, op, type;
    uint64_t count; /* elements */
    uint32_t blocks;
    unsigned in_off, out_off; /* misalignment in bytes, below 16 */
    bool in_place, generic;   /* generic: not the specialised kernel */
} call_t;

typedef struct {
    uint8_t *memory, *data;
} buffer_t;

/* One rank's share of one call. */
typedef struct {
    gpusym_work_t w;
    unsigned kernel;
    uint64_t done;
    uint8_t *source; /* what the input was */
    buffer_t in, out;
} part_t;

static rig_t *rig_new(uint32_t nranks, uint64_t slot_size, uint32_t max_blocks, uint32_t epoch)
{
    rig_t *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->nranks = nranks;
    rig->slot_size = slot_size;
    rig->epoch = epoch;
    rig->limit_ns = PATIENCE_NS;
    rig->blocks = gpusym_slot_layout(slot_size, nranks, max_blocks, &rig->shape);
    assert_in_range(rig->blocks, 1, max_blocks);
    for (uint32_t r = 0; r < nranks; r++) {
        rig->slot[r] = aligned_alloc(4096, (slot_size + GUARD + 4095) / 4096 * 4096);
        assert_non_null(rig->slot[r]);
        memset(rig->slot[r], 0, slot_size);
        memset(rig->slot[r] + slot_size, GUARD_BYTE, GUARD);
        rig->shape.peer[r] = rig->slot[r];
    }
    return rig;
}

static bool all_bytes(const uint8_t *p, size_t n, uint8_t byte)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != byte) {
            return false;
        }
    }
    return true;
}

static void rig_free(rig_t *rig)
{
    for (uint32_t r = 0; r < rig->nranks; r++) {
        assert_true(all_bytes(rig->slot[r] + rig->slot_size, GUARD, GUARD_BYTE));
        assert_true(all_bytes(rig->slot[r], 8, 0)); /* no launch has left its ticket behind */
        free(rig->slot[r]);
    }
    free(rig);
}

static buffer_t buffer_new(uint64_t bytes, unsigned offset)
{
    buffer_t b = {.memory = aligned_alloc(64, (bytes + 2 * GUARD + 16 + 63) / 64 * 64)};
    assert_non_null(b.memory);
    b.data = b.memory + GUARD + offset;
    memset(b.memory, GUARD_BYTE, (size_t) (b.data - b.memory) + bytes + GUARD);
    memset(b.data, POISON_BYTE, bytes);
    return b;
}

static bool guards_hold(const buffer_t *b, uint64_t bytes)
{
    return all_bytes(b->memory, (size_t) (b->data - b->memory), GUARD_BYTE) &&
           all_bytes(b->data + bytes, GUARD, GUARD_BYTE);
}

static void part_fill(const rig_t *rig, const call_t *call, uint32_t rank, part_t *part)
{
    const size_t size = gpusym_type_bytes(call->type);
    const uint64_t bytes = call->count * size;

    assert_true(gpusym_op_valid(call->op, call->type));
    assert_in_range(call->blocks, 1, rig->blocks);
    part->source = malloc(bytes);
    assert_non_null(part->source);
    for (uint64_t i = 0; i < call->count; i++) {
        random_element(call->op, call->type, part->source + i * size);
    }
    part->out = buffer_new(bytes, call->out_off);
    part->in = call->in_place ? part->out : buffer_new(bytes, call->in_off);
    memcpy(part->in.data, part->source, bytes);
    part->kernel = call->generic ? call->alg : gpusym_kernel_find(call->alg, call->op, call->type);
    part->done = NOT_DONE;
    part->w = rig->shape;
    part->w.in = part->in.data;
    part->w.out = part->out.data;
    part->w.bytes = bytes;
    part->w.limit_ns = rig->limit_ns;
    part->w.done = &part->done;
    part->w.abort = &rig->abort;
    part->w.done_seq = rig->seq;
    part->w.epoch = rig->epoch;
    part->w.rank = rank;
    part->w.nranks = rig->nranks;
    part->w.op = call->op;
    part->w.type = call->type;
    part->w.nblocks = call->blocks;
    part->w.nthreads = 32;
}

static void part_free(const call_t *call, part_t *part)
{
    free(part->source);
    free(part->out.memory);
    if (!call->in_place) {
        free(part->in.memory);
    }
}

/* What a rank's thread runs: its part of each call, `stride` parts apart, up to the first that fails. */
typedef struct {
    part_t *part;
    size_t calls, stride;
} worker_t;

static void *work_off(void *arg)
{
    const worker_t *worker = arg;
    for (size_t c = 0; c < worker->calls; c++) {
        part_t *part = &worker->part[c * worker->stride];
        for (uint32_t b = 0; b < part->w.nblocks; b++) {
            gpusym_kernel_sim(part->kernel, &part->w, b);
        }
        if (GPUSYM_STATUS_OK != (uint32_t) part->done) {
            break;
        }
    }
    return NULL;
}

static void describe(const rig_t *rig, const call_t *call, size_t number)
{
    print_error("call %zu: %s %s %s, count %lu, %u ranks, %u blocks of %u, slot %lu, offsets %u/%u%s%s, seed %lu\n",
                number, gpusym_algorithm_name(call->alg), gpusym_op_name(call->op), gpusym_type_name(call->type),
                (unsigned long) call->count, rig->nranks, call->blocks, rig->blocks, (unsigned long) rig->slot_size,
                call->in_off, call->out_off, call->in_place ? ", in place" : "", call->generic ? ", generic" : "",
                (unsigned long) seed);
}

/* Whether one call came out right on every rank; says what did not. */
static bool call_right(const rig_t *rig, const call_t *call, const part_t *part)
{
    const size_t size = gpusym_type_bytes(call->type);
    const uint64_t bytes = call->count * size;
    element_t e = {.nranks = rig->nranks, .op = call->op, .type = call->type};

    for (uint32_t r = 0; r < rig->nranks; r++) {
        const part_t *p = &part[r];
        if (p->done != ((uint64_t) p->w.done_seq << 32 | GPUSYM_STATUS_OK)) {
            print_error("rank %u: completion word %lx, sequence %x\n", r, (unsigned long) p->done, p->w.done_seq);
            return false;
        }
        if (!guards_hold(&p->in, bytes) || !guards_hold(&p->out, bytes)) {
            print_error("rank %u: wrote beyond a buffer\n", r);
            return false;
        }
        if (!call->in_place && 0 != memcmp(p->in.data, p->source, bytes)) {
            print_error("rank %u: the input has changed\n", r);
            return false;
        }
        if (0 != memcmp(p->out.data, part[0].out.data, bytes)) {
            print_error("rank %u: not the same bytes as rank 0 has\n", r);
            return false;
        }
    }
    for (uint64_t i = 0; i < call->count; i++) {
        for (uint32_t r = 0; r < rig->nranks; r++) {
            e.in[r] = part[r].source + i * size;
        }
        if (!right(&e, part[0].out.data + i * size)) {
            print_error("epoch %u: wrong at element %lu\n", part[0].w.epoch, (unsigned long) i);
            return false;
        }
    }
    return true;
}

/* Fills the parts of a script and gives each call its epochs. Like the host, clears the slots and begins anew before
 * epochs run out. */
static part_t *parts_new(rig_t *rig, const call_t *calls, size_t ncalls)
{
    part_t *parts = calloc(ncalls * rig->nranks, sizeof *parts);
    uint64_t epochs = 0;
    assert_non_null(parts);
    for (size_t c = 0; c < ncalls; c++, rig->seq++) {
        uint64_t used = 0;
        const uint32_t chunk = below(2) ? 0 : 1 + below(4096); /* the same on all ranks */
        for (uint32_t r = 0; r < rig->nranks; r++) {
            part_t *part = &parts[c * rig->nranks + r];
            part_fill(rig, &calls[c], r, part);
            part->w.epoch = (uint32_t) epochs; /* counted from the script's first, made absolute below */
            used = gpusym_kernel_plan(calls[c].alg, &part->w, chunk);
        }
        epochs += used;
    }
    if (rig->epoch + epochs > UINT32_MAX) {
        for (uint32_t r = 0; r < rig->nranks; r++) {
            memset(rig->slot[r], 0, rig->slot_size);
        }
        rig->epoch = 1;
    }
    for (size_t i = 0; i < ncalls * rig->nranks; i++) {
        parts[i].w.epoch += rig->epoch;
    }
    rig->epoch += (uint32_t) epochs;
    return parts;
}

/* The ranks run the script; `absent` (or none, RANKS_MAX) stays away. */
static void parts_run(const rig_t *rig, part_t *parts, size_t ncalls, uint32_t absent)
{
    pthread_t thread[RANKS_MAX];
    worker_t worker[RANKS_MAX];
    for (uint32_t r = 0; r < rig->nranks; r++) {
        worker[r] = (worker_t){&parts[r], ncalls, rig->nranks};
        if (r != absent) {
            assert_int_equal(pthread_create(&thread[r], NULL, work_off, &worker[r]), 0);
        }
    }
    for (uint32_t r = 0; r < rig->nranks; r++) {
        if (r != absent) {
            assert_int_equal(pthread_join(thread[r], NULL), 0);
        }
    }
}

static void parts_free(const rig_t *rig, const call_t *calls, part_t *parts, size_t ncalls)
{
    for (size_t i = 0; i < ncalls * rig->nranks; i++) {
        part_free(&calls[i / rig->nranks], &parts[i]);
    }
    free(parts);
}

/* Runs a script and checks every call. result: if not NULL, takes a copy of the last call's bytes. */
static void rig_run(rig_t *rig, const call_t *calls, size_t ncalls, uint8_t *result)
{
    part_t *parts = parts_new(rig, calls, ncalls);
    parts_run(rig, parts, ncalls, RANKS_MAX);
    for (size_t c = 0; c < ncalls; c++) {
        if (!call_right(rig, &calls[c], &parts[c * rig->nranks])) {
            describe(rig, &calls[c], c);
            fail();
        }
    }
    if (NULL != result) {
        const part_t *last = &parts[(ncalls - 1) * rig->nranks];
        memcpy(result, last->out.data, last->w.bytes);
    }
    parts_free(rig, calls, parts, ncalls);
}

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
    rig_run(rig, s->call, n, NULL);
}

static script_t script;

/* ---- tests ---- */

static const uint64_t counts[] = {1, 2, 3, 7, 8, 1023};

static void every_operation_and_type(void **state)
{
    (void) state;
    for (uint32_t n = 2; n <= 4; n++) {
        rig_t *rig = rig_new(n, 64 << 10, 4, 1);
        for (unsigned i = 0; i < GPUSYM_ALG_COUNT * GPUSYM_OP_COUNT; i++) {
            const unsigned alg = i / GPUSYM_OP_COUNT, op = i % GPUSYM_OP_COUNT;
            for (unsigned type = 0; type < GPUSYM_T_COUNT; type++) {
                for (size_t k = 0; gpusym_op_valid(op, type) && k < LENGTH(counts); k++) {
                    script_add(&script, (call_t){.alg = alg,
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
    rig_t *rig = rig_new(3, 64 << 10, 2, 1);
#define GPUSYM_KERNEL(a, o, t)                           \
    script_add(&script, (call_t){.alg = GPUSYM_ALG_##a,  \
                                 .op = GPUSYM_OP_##o,    \
                                 .type = GPUSYM_T_##t,   \
                                 .count = 500,           \
                                 .blocks = 1 + below(2), \
                                 .generic = true});
#include "kernels/kernels.def"
    script_run(rig, &script);
    rig_free(rig);
}

static void every_number_of_ranks(void **state)
{
    (void) state;
    static const uint32_t ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 32};
    static const uint64_t sizes[] = {1, 7, 64, 1023, 5000};
    for (size_t i = 0; i < LENGTH(ranks); i++) {
        rig_t *rig = rig_new(ranks[i], 64 << 10, 3, 1);
        for (unsigned alg = 0; alg < GPUSYM_ALG_COUNT; alg++) {
            for (size_t k = 0; k < LENGTH(sizes) - (32 == ranks[i]); k++) {
                script_add(&script, (call_t){.alg = alg,
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
    for (unsigned alg = 0; alg < GPUSYM_ALG_COUNT; alg++) {
        for (size_t i = 0; i < LENGTH(offsets) * LENGTH(offsets); i++) {
            const unsigned in_off = offsets[i / LENGTH(offsets)], out_off = offsets[i % LENGTH(offsets)];
            for (size_t k = 0; k < LENGTH(sizes); k++) {
                call_t call = {.alg = alg,
                               .op = GPUSYM_OP_SUM,
                               .type = GPUSYM_T_U8,
                               .count = sizes[k],
                               .blocks = 1 + (uint32_t) (i + k) % rig->blocks,
                               .in_off = in_off,
                               .out_off = out_off,
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
    assert_true(gpusym_kernel_plan(GPUSYM_ALG_RSXST_AGXST, &w, 0) >= 2);
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
        for (unsigned i = 0; i < GPUSYM_ALG_COUNT * LENGTH(blocks); i++) {
            const uint32_t b = blocks[i / GPUSYM_ALG_COUNT];
            const uint64_t phase = phase_bytes(rig, b);
            const uint64_t sizes[] = {16 * n,    16 * n * b - 1,     phase - 1,     phase,         phase + 1,
                                      2 * phase, 2 * phase + 16 * b, 3 * phase - 7, 5 * phase + 40};
            for (size_t k = 0; k < LENGTH(sizes); k++) {
                script_add(&script, (call_t){.alg = i % GPUSYM_ALG_COUNT,
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
    for (unsigned alg = 0; alg < GPUSYM_ALG_COUNT; alg++) {
        script_add(&script, (call_t){.alg = alg,
                                     .op = GPUSYM_OP_SUM,
                                     .type = GPUSYM_T_F32,
                                     .count = (256 << 10) + 3,
                                     .blocks = 1 + alg % rig->blocks});
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
            script_add(&script, (call_t){.alg = GPUSYM_ALG_AGXLL_R,
                                         .op = GPUSYM_OP_SUM,
                                         .type = GPUSYM_T_U8,
                                         .count = i % 2 ? payload : (2 + i % 3) * payload + 1 + below(100),
                                         .blocks = i % 2 ? 1 : rig->blocks});
        }
        script_run(rig, &script);
        rig_free(rig);
    }
}

static call_t random_call(const rig_t *rig)
{
    call_t call = {.alg = below(GPUSYM_ALG_COUNT), .blocks = 1 + below(rig->blocks), .generic = 0 == below(4)};
    do {
        call.op = below(GPUSYM_OP_COUNT);
        call.type = below(GPUSYM_T_COUNT);
    } while (!gpusym_op_valid(call.op, call.type));
    call.count = 1 + below(0 == below(8) ? 3000 : 1u << below(9));
    call.in_off = below(3) ? 0 : below(16);
    call.out_off = below(3) ? 0 : below(16);
    call.in_place = 0 == below(3);
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
            describe(rig, call, 0);
            fail();
        }
        assert_true(guards_hold(&parts[r].out, parts[r].w.bytes));
    }
    parts_free(rig, call, parts, 1);
}

static void an_absent_rank_is_named(void **state)
{
    (void) state;
    for (unsigned alg = 0; alg < GPUSYM_ALG_COUNT; alg++) {
        for (uint32_t absent = 0; absent < 3; absent++) {
            rig_t *rig = rig_new(3, 64 << 10, 3, 1);
            const call_t call = {
                .alg = alg, .op = GPUSYM_OP_SUM, .type = GPUSYM_T_F32, .count = 9000, .blocks = 1 + absent};
            const call_t before = {.alg = alg, .op = GPUSYM_OP_SUM, .type = GPUSYM_T_F32, .count = 99, .blocks = 1};
            rig_run(rig, &before, 1, NULL);
            rig->limit_ns = 5000000;
            expect_timeout(rig, &call, absent);
            rig_free(rig);
        }
    }
}

/* Flags that no call has touched for long, or ever, do not look like new ones, however high the epoch is. */
static void old_flags_let_nobody_through(void **state)
{
    (void) state;
    static const uint32_t epochs[] = {2, 0x7ffffff0u, 0x80000000u, 0x80000001u, 0xc0000000u, 0xfffff000u};
    for (unsigned alg = 0; alg < GPUSYM_ALG_COUNT; alg++) {
        for (size_t i = 0; i < LENGTH(epochs); i++) {
            rig_t *rig = rig_new(2, 64 << 10, 2, epochs[i]);
            const call_t call = {.alg = alg, .op = GPUSYM_OP_SUM, .type = GPUSYM_T_F32, .count = 99, .blocks = 2};
            rig->limit_ns = 5000000;
            expect_timeout(rig, &call, 1);
            rig_free(rig);
        }
    }
}

static void *abort_later(void *arg)
{
    rig_t *rig = arg;
    const struct timespec nap = {0, 10000000};
    nanosleep(&nap, NULL);
    __atomic_store_n(&rig->abort, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* The abort word ends waits that have no limit, set before them or while they last. */
static void abort_ends_every_wait(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 2 * GPUSYM_ALG_COUNT; i++) {
        rig_t *rig = rig_new(3, 64 << 10, 2, 1);
        const call_t call = {
            .alg = i / 2, .op = GPUSYM_OP_SUM, .type = GPUSYM_T_F32, .count = 9000, .blocks = 1 + i % rig->blocks};
        pthread_t thread;
        rig->limit_ns = 0;
        rig->abort = i % 2;
        part_t *parts = parts_new(rig, &call, 1);
        assert_int_equal(pthread_create(&thread, NULL, abort_later, rig), 0);
        parts_run(rig, parts, 1, 1);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(parts[0].done, (uint64_t) parts[0].w.done_seq << 32 | GPUSYM_STATUS_ABORTED);
        assert_int_equal(parts[2].done, (uint64_t) parts[2].w.done_seq << 32 | GPUSYM_STATUS_ABORTED);
        parts_free(rig, &call, parts, 1);
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
    for (unsigned i = 0; i < LENGTH(types) * GPUSYM_ALG_COUNT * 2; i++) {
        rig_t *rig = rig_new(7, 64 << 10, 3, 1);
        const call_t call = {.alg = i / 2 % GPUSYM_ALG_COUNT,
                             .op = GPUSYM_OP_SUM,
                             .type = types[i / 2 / GPUSYM_ALG_COUNT],
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
                describe(rig, &call, 0);
                fail();
            }
        }
        parts_free(rig, &call, parts, 1);
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
    static uint8_t first[2500 * 8], again[sizeof first];

    for (size_t k = 0; k < LENGTH(kinds); k++) {
        const uint64_t inputs = next_random();
        memset(first, 0, sizeof first);
        for (unsigned i = 0; i < GPUSYM_ALG_COUNT * LENGTH(slots) * 3; i++) {
            rig_t *rig = rig_new(6, slots[i / 3 % LENGTH(slots)], 1 + i, 1);
            call_t call = {.alg = i / 3 / LENGTH(slots), .op = kinds[k].op, .type = kinds[k].type, .count = 2500};
            call.blocks = 1 + below(rig->blocks);
            call.in_off = below(2) * 4;
            call.out_off = below(2) * 4;
            call.in_place = i % 3 == 1;
            call.generic = i % 3 == 2;
            random_state = inputs;
            rig_run(rig, &call, 1, 0 == i ? first : again);
            if (0 != i && 0 != memcmp(first, again, call.count * gpusym_type_bytes(call.type))) {
                describe(rig, &call, i);
                fail();
            }
            rig_free(rig);
        }
    }
}

/* ---- the list ---- */

static void kernels_serve_what_they_say(void **state)
{
    (void) state;
    for (unsigned i = 0; i < GPUSYM_ALG_COUNT * GPUSYM_OP_COUNT * GPUSYM_T_COUNT; i++) {
        const unsigned alg = i % GPUSYM_ALG_COUNT, op = i / GPUSYM_ALG_COUNT % GPUSYM_OP_COUNT,
                       type = i / GPUSYM_ALG_COUNT / GPUSYM_OP_COUNT;
        if (!gpusym_op_valid(op, type)) {
            continue;
        }
        const unsigned kernel = gpusym_kernel_find(alg, op, type);
        const char *symbol = gpusym_kernel_symbol(kernel);
        assert_true(kernel < GPUSYM_K_COUNT);
        assert_non_null(symbol);
        /* by its name: that algorithm's, generic or for that operation */
        char prefix[64], upper[64];
        snprintf(prefix, sizeof prefix, "gpusym_%s_", gpusym_algorithm_name(alg));
        for (size_t k = 0; k <= strlen(symbol); k++) {
            upper[k] = k < 63 && symbol[k] >= 'A' && symbol[k] <= 'Z' ? (char) (symbol[k] - 'A' + 'a') : symbol[k];
        }
        assert_memory_equal(upper, prefix, strlen(prefix));
        if (0 != strcmp(upper + strlen(prefix), "any")) {
            assert_memory_equal(upper + strlen(prefix), gpusym_op_name(op), strlen(gpusym_op_name(op)));
        }
    }
#define GPUSYM_KERNEL(a, o, t)                                                                                   \
    assert_int_equal(gpusym_kernel_find(GPUSYM_ALG_##a, GPUSYM_OP_##o, GPUSYM_T_##t), GPUSYM_K_##a##_##o##_##t); \
    assert_string_equal(gpusym_kernel_symbol(GPUSYM_K_##a##_##o##_##t), "gpusym_" #a "_" #o "_" #t);
#include "kernels/kernels.def"
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
        assert_int_equal(gpusym_kernel_symbol(alg)[0], 'g');
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
        cmocka_unit_test(names_end_where_lists_end),
        cmocka_unit_test(every_operation_and_type),
        cmocka_unit_test(generic_kernels_serve_all),
        cmocka_unit_test(every_number_of_ranks),
        cmocka_unit_test(every_alignment),
        cmocka_unit_test(chunks_and_phases),
        cmocka_unit_test(large_messages_in_a_small_slot),
        cmocka_unit_test(a_short_last_epoch_protects_the_one_before),
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
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
