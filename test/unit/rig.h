/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the unit tests of the kernels share: random elements of every type, the reference for every operation, and ranks
 * that are threads of this process, with plain memory for slots and a multicast address.  To be included after cmocka.h
 * and test/unit/random.h.
 */
#ifndef TEST_UNIT_RIG_H
#define TEST_UNIT_RIG_H

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "mca/common/gpusym/memory/heap.h"
#include "test/unit/clock.h"
#include "test/unit/rig_gpu.h"

__extension__ typedef __int128 wide_t;
__extension__ typedef unsigned __int128 uwide_t;

#define RANKS_MAX GPUSYM_TEAM_MAX
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
/* Guard bytes on both sides of a buffer and at the end of a slot. */
#define GUARD 64
#define GUARD_BYTE 0x5a
#define POISON_BYTE 0xc3
/* Limits of waits, of a clock that goes on when all ranks wait for what does not come: of those that nothing should
 * make long, and for a rank that stays away. */
#define PATIENCE_NS 20000000000ull
#define ABSENCE_NS 1000000000ull

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

/* ---- slots and ranks ---- */

/* The slots of a team, as one communicator has them. */
typedef struct {
    uint32_t nranks, blocks; /* blocks: most that a launch may use */
    uint64_t slot_size;
    uint8_t *slot[RANKS_MAX];
    uint8_t *mc;         /* stands for the multicast address: never touched */
    gpusym_work_t shape; /* offsets and sizes */
    uint32_t epoch, seq;
    uint32_t abort;
    uint64_t limit_ns;
} rig_t; /* of rig_memory(), as are parts: kernels access the abort and completion words */

typedef struct {
    uint8_t *memory, *data;
} buffer_t;

/* One rank's share of one call. */
typedef struct {
    gpusym_work_t w;
    unsigned kernel;
    uint64_t done;
    uint8_t *source;                   /* what the input was */
    bool in_place;                     /* in is out */
    bool kept;                         /* the input was as it had been when this rank had ended */
    uint32_t late_us;                  /* it begins so much later than the others */
    uint64_t in_bytes, out_bytes, sum; /* sum: of the output when this rank had ended */
    buffer_t in, out;
} part_t;

/* The rig whose multicast address the kernels may use: the last one made. */
static rig_t *multicast_rig;

static int multicast_members(const void *mp, void **alias, unsigned max)
{
    const rig_t *rig = multicast_rig;
    const uintptr_t at = (uintptr_t) mp - (uintptr_t) rig->mc;
    if (at >= rig->slot_size || max < rig->nranks) {
        return 0;
    }
    for (uint32_t r = 0; r < rig->nranks; r++) {
        alias[r] = rig->slot[r] + at;
    }
    return (int) rig->nranks;
}

static rig_t *rig_new(uint32_t nranks, uint64_t slot_size, uint32_t max_blocks, uint32_t epoch)
{
    rig_t *rig = rig_memory(sizeof *rig);
    rig->nranks = nranks;
    rig->slot_size = slot_size;
    rig->epoch = epoch;
    rig->limit_ns = PATIENCE_NS;
    rig->blocks = rig_blocks(nranks, gpusym_slot_layout(slot_size, nranks, max_blocks, &rig->shape));
    assert_in_range(rig->blocks, 1, max_blocks);
    rig->shape.mc = rig->mc = aligned_alloc(4096, (slot_size + 4095) / 4096 * 4096);
    assert_non_null(rig->mc);
    memset(rig->mc, GUARD_BYTE, slot_size);
    multicast_rig = rig;
    gpusym_kernel_sim_mc_members = multicast_members;
    for (uint32_t r = 0; r < nranks; r++) {
        rig->slot[r] = rig_slot(slot_size + GUARD);
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
        rig_free_slot(rig->slot[r]);
    }
    assert_true(all_bytes(rig->mc, rig->slot_size, GUARD_BYTE)); /* nobody took it for memory */
    free(rig->mc);
    multicast_rig = NULL;
    rig_free_memory(rig);
}

static buffer_t buffer_new(uint64_t bytes, unsigned offset)
{
    buffer_t b = {.memory = rig_memory(bytes + 2 * GUARD + 16)};
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

/* What a descriptor says whatever the kernel. */
static gpusym_work_t work_new(const rig_t *rig, uint32_t rank, part_t *part)
{
    gpusym_work_t w = rig->shape;
    w.limit_ns = rig->limit_ns;
    w.done = &part->done;
    w.abort = &rig->abort;
    w.done_seq = rig->seq;
    w.rank = rank;
    w.nranks = rig->nranks;
    w.nthreads = rig_on_gpu() ? 32 * (1 + rig->seq % (GPUSYM_THREADS_MAX / 32)) : 32;
    return w;
}

static void part_free(part_t *part)
{
    free(part->source);
    rig_free_memory(part->out.memory);
    if (!part->in_place) {
        rig_free_memory(part->in.memory);
    }
}

/* What all ranks' threads have in common. */
typedef struct {
    pthread_barrier_t ended;
    uint32_t nthreads;
    uint64_t arrivals; /* at the barrier; atomic */
    uint32_t failed;
    sem_t over; /* posted by each that ends */
} together_t;

/* FNV-1a. */
static uint64_t sum_of(const uint8_t *p, uint64_t bytes)
{
    uint64_t sum = 0xcbf29ce484222325ull;
    for (uint64_t i = 0; i < bytes; i++) {
        sum = (sum ^ p[i]) * 0x100000001b3ull;
    }
    return sum;
}

/* What a rank's thread runs: its part of each call, `stride` parts apart, up to the first that fails.  As with the
 * host, a launch begins when all ranks have ended the one before. */
typedef struct {
    part_t *part;
    size_t calls, stride;
    together_t *together;
    uint64_t reads, arrived; /* of the clock; at the barrier. Atomic */
    bool over;               /* atomic */
} worker_t;

/* A block that hung is enough: the others of that launch, on all ranks, need not be waited for too. */
static void end_of_patience(const gpusym_work_t *w)
{
    const uint32_t worst = ((const uint32_t *) w->peer[w->rank])[1]; /* of the blocks so far; see gs_last_block() */
    if (PATIENCE_NS == w->limit_ns && GPUSYM_STATUS_OK != worst) {
        __atomic_store_n((uint32_t *) (uintptr_t) w->abort, 1, __ATOMIC_RELAXED);
    }
}

/* The output is there, and nobody needs the input any more: the buffers are the user's again. */
static void end_part(part_t *part)
{
    part->sum = sum_of(part->out.data, part->out_bytes);
    if (!part->in_place) {
        part->kept = 0 == memcmp(part->in.data, part->source, part->in_bytes);
        memset(part->in.data, POISON_BYTE, part->in_bytes);
    }
}

static void meet(worker_t *worker)
{
    __atomic_fetch_add(&worker->arrived, 1, __ATOMIC_ACQ_REL);
    __atomic_fetch_add(&worker->together->arrivals, 1, __ATOMIC_ACQ_REL);
    pthread_barrier_wait(&worker->together->ended);
}

static void *work_off(void *arg)
{
    worker_t *worker = arg;
    bool failed = false;
    clock_reader = &worker->reads;
    for (size_t c = 0; c < worker->calls && !failed; c++) {
        part_t *part = &worker->part[c * worker->stride];
        if (0 != part->late_us) {
            usleep(part->late_us);
        }
        if (rig_on_gpu()) {
            rig_gpu_run(part->w.rank, part->kernel, &part->w);
        }
        for (uint32_t b = 0; b < part->w.nblocks && !rig_on_gpu(); b++) {
            gpusym_kernel_sim(part->kernel, &part->w, b);
            end_of_patience(&part->w);
        }
        if (GPUSYM_STATUS_OK != (uint32_t) part->done) {
            __atomic_store_n(&worker->together->failed, 1, __ATOMIC_RELAXED);
        } else {
            end_part(part);
        }
        meet(worker);
        failed = 0 != __atomic_load_n(&worker->together->failed, __ATOMIC_RELAXED);
        if (!failed && !part->in_place) {
            memcpy(part->in.data, part->source, part->in_bytes);
        }
    }
    __atomic_store_n(&worker->over, true, __ATOMIC_RELEASE);
    sem_post(&worker->together->over);
    return NULL;
}

/* Whether a thread can do nothing by itself: it has ended, waits for the others at the end of a call, or has read the
 * clock three times since then. It reads it in waits only, after many polls, so it has waited for one thing
 * meanwhile. */
static bool is_still(const worker_t *worker, uint64_t reads)
{
    const together_t *together = worker->together;
    const uint64_t arrived = __atomic_load_n(&worker->arrived, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&worker->over, __ATOMIC_ACQUIRE) ||
           arrived * together->nthreads > __atomic_load_n(&together->arrivals, __ATOMIC_ACQUIRE) ||
           __atomic_load_n(&worker->reads, __ATOMIC_ACQUIRE) >= reads + 3;
}

/* Of all slots, which others write meanwhile. */
__attribute__((no_sanitize("thread"))) static uint64_t sum_of_slots(const rig_t *rig)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < rig->nranks; r++) {
        const volatile uint64_t *word = (const volatile uint64_t *) (const volatile void *) rig->slot[r];
        for (uint64_t i = 0; i < rig->slot_size / sizeof *word; i++) {
            sum = (sum ^ word[i]) * 0x100000001b3ull;
        }
    }
    return sum;
}

/* What a look at all threads has found. */
typedef struct {
    uint64_t sum, reads[RANKS_MAX];
} look_t;

static void look(const rig_t *rig, const worker_t *worker, look_t *l)
{
    l->sum = sum_of_slots(rig);
    for (uint32_t r = 0; r < rig->nranks; r++) {
        l->reads[r] = __atomic_load_n(&worker[r].reads, __ATOMIC_ACQUIRE);
    }
}

/* Whether one more thread has ended; waits a little for it. */
static bool ends_soon(together_t *together)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 2000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return 0 == sem_timedwait(&together->over, &until);
}

/* Waits until all threads have ended. Where all that are left have come to a stand, since when no slot has changed, the
 * clock goes on past the limit; where there is none, the abort word is set. */
static void await_threads(rig_t *rig, const worker_t *worker, uint32_t absent, together_t *together)
{
    look_t last = {.sum = 0}, now;
    for (uint32_t over = 0; over < together->nthreads;) {
        bool still = true;
        if (ends_soon(together)) {
            over++;
            continue;
        }
        for (uint32_t r = 0; r < rig->nranks && still; r++) {
            still = r == absent || is_still(&worker[r], last.reads[r]);
        }
        if (!still) {
            continue;
        }
        look(rig, worker, &now);
        if (now.sum == last.sum && 0 == rig->limit_ns) {
            __atomic_store_n(&rig->abort, 1, __ATOMIC_RELAXED);
        } else if (now.sum == last.sum) {
            clock_go_on(rig->limit_ns + 1);
        }
        last = now;
    }
}

/* The ranks run the script; `absent` (or none, RANKS_MAX) stays away. */
__attribute__((unused)) static void parts_run(rig_t *rig, part_t *parts, size_t ncalls, uint32_t absent)
{
    pthread_t thread[RANKS_MAX];
    worker_t worker[RANKS_MAX];
    together_t together = {.nthreads = rig->nranks - (absent < rig->nranks)};
    clock_hold();
    assert_int_equal(sem_init(&together.over, 0, 0), 0);
    assert_int_equal(pthread_barrier_init(&together.ended, NULL, together.nthreads), 0);
    for (uint32_t r = 0; r < rig->nranks; r++) {
        worker[r] = (worker_t){.part = &parts[r], .calls = ncalls, .stride = rig->nranks, .together = &together};
        if (r != absent) {
            assert_int_equal(pthread_create(&thread[r], NULL, work_off, &worker[r]), 0);
        }
    }
    await_threads(rig, worker, absent, &together);
    for (uint32_t r = 0; r < rig->nranks; r++) {
        if (r != absent) {
            assert_int_equal(pthread_join(thread[r], NULL), 0);
        }
    }
    pthread_barrier_destroy(&together.ended);
    sem_destroy(&together.over);
}

/* Gives the parts, whose epochs count from the first of them, absolute ones. Like the host, clears the slots and begins
 * anew before epochs run out. */
static void parts_epochs(rig_t *rig, part_t *parts, size_t nparts, uint64_t epochs)
{
    if (rig->epoch + epochs > UINT32_MAX) {
        for (uint32_t r = 0; r < rig->nranks; r++) {
            memset(rig->slot[r], 0, rig->slot_size);
        }
        rig->epoch = 1;
    }
    for (size_t i = 0; i < nparts; i++) {
        parts[i].w.epoch += rig->epoch;
    }
    rig->epoch += (uint32_t) epochs;
}

#endif
