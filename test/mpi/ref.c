/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The tests' independent reference for collectives, see ref.h.
 */
#include "test/mpi/ref.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Wider than long double where the compiler has it: the reference for long double itself. */
#ifdef __SIZEOF_FLOAT128__
typedef __float128 wide_t;
#else
typedef long double wide_t;
#endif

#define MAT_PRIME 65521u
#define GAPS_INTS 10 /* extent of REF_USER_GAPS in ints; the data are where gaps_data says */
static const unsigned char gaps_data[GAPS_INTS] = {1, 1, 0, 1, 1, 0, 1, 1, 0, 0};
/* REF_USER_STRUCT: 8 bytes of nothing, a double, 4 of nothing, an int, 8 of nothing */
#define STRUCT_DOUBLE_AT 8
#define STRUCT_INT_AT 20
#define STRUCT_BYTES 32

/* REF_PLACED: an int, a double and 3 bytes, the int 12 bytes before the address; 5 bytes of nothing behind them */
#define PLACED_LB (-12)
#define PLACED_INT_AT (-12)
#define PLACED_DOUBLE_AT (-8)
#define PLACED_BYTES_AT 4
#define PLACED_BYTES 24

#define TYPES_MAX 96
static ref_type_t types[TYPES_MAX];
static int ntypes;

static ref_op_t ops[REF_USER + 1];

static const size_t scalar_bytes[] = {[REF_I8] = 1,
                                      [REF_U8] = 1,
                                      [REF_I16] = 2,
                                      [REF_U16] = 2,
                                      [REF_I32] = 4,
                                      [REF_U32] = 4,
                                      [REF_I64] = 8,
                                      [REF_U64] = 8,
                                      [REF_F32] = 4,
                                      [REF_F64] = 8,
                                      [REF_LD] = sizeof(long double)};

/* ---- random numbers ------------------------------------------------------------------------------------ */

uint64_t ref_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* What one element of one rank is made of: `all` is the same on every rank, `own` is not. */
typedef struct {
    uint64_t all, own;
    int rank;
} draw_t;

static draw_t draw(const ref_case_t *c, int rank, uint64_t i)
{
    draw_t d = {.rank = rank};

    d.all = ref_mix(c->seed ^ ref_mix(i));
    d.own = ref_mix(d.all + 0x632be59bd9b4e019u * (uint64_t) (rank + 1));
    return d;
}

/* ---- scalars in memory ----------------------------------------------------------------------------------- */

static bool is_signed(enum ref_scalar s)
{
    return REF_I8 == s || REF_I16 == s || REF_I32 == s || REF_I64 == s;
}

static bool is_float(enum ref_scalar s)
{
    return REF_F32 <= s;
}

/* Integer at p, sign or zero extended. */
static uint64_t load_int(enum ref_scalar s, const void *p)
{
    uint64_t v = 0;
    unsigned bits = 8 * (unsigned) scalar_bytes[s];

    memcpy(&v, p, scalar_bytes[s]); /* little endian, checked in ref_init */
    if (is_signed(s) && bits < 64 && (v >> (bits - 1)) & 1) {
        v |= ~UINT64_C(0) << bits;
    }
    return v;
}

/* The low bits of v. */
static void store_int(enum ref_scalar s, void *p, uint64_t v)
{
    memcpy(p, &v, scalar_bytes[s]);
}

static long double load_float(enum ref_scalar s, const void *p)
{
    float f;
    double d;
    long double l;

    switch (s) {
    case REF_F32:
        memcpy(&f, p, sizeof(f));
        return f;
    case REF_F64:
        memcpy(&d, p, sizeof(d));
        return d;
    default:
        memcpy(&l, p, sizeof(l));
        return l;
    }
}

static void store_float(enum ref_scalar s, void *p, long double v)
{
    float f = (float) v;
    double d = (double) v;

    switch (s) {
    case REF_F32:
        memcpy(p, &f, sizeof(f));
        return;
    case REF_F64:
        memcpy(p, &d, sizeof(d));
        return;
    default:
        memcpy(p, &v, sizeof(v));
    }
}

/* The distance from 1 to the next number: twice the largest relative error of one rounding. */
static long double epsilon(enum ref_scalar s)
{
    return REF_F32 == s ? FLT_EPSILON : REF_F64 == s ? DBL_EPSILON : LDBL_EPSILON;
}

static uint64_t int_max(enum ref_scalar s)
{
    return (~UINT64_C(0)) >> (64 - 8 * scalar_bytes[s] + (is_signed(s) ? 1 : 0));
}

static uint64_t int_min(enum ref_scalar s)
{
    return is_signed(s) ? ~int_max(s) : 0;
}

/* ---- what a rank contributes --------------------------------------------------------------------------------- */

static uint64_t extreme(enum ref_scalar s, uint64_t own)
{
    switch (own % 6) {
    case 0:
        return int_min(s);
    case 1:
        return int_max(s);
    case 2:
        return int_max(s) - 1;
    case 3:
        return int_min(s) + 1;
    case 4:
        return ~UINT64_C(0);
    default:
        return 1;
    }
}

static uint64_t any_int(enum ref_scalar s, const draw_t *d)
{
    switch (d->all & 3) {
    case 0:
        return extreme(s, d->own);
    case 1:
        return d->own % 201 - 100;
    default:
        return d->own;
    }
}

static uint64_t sum_int(const ref_case_t *c, enum ref_scalar s, const draw_t *d)
{
    uint64_t most;

    if (c->overflow) {
        return any_int(s, d);
    }
    most = int_max(s) / (uint64_t) c->nranks;
    if (is_signed(s)) {
        return d->own % (2 * most + 1) - most;
    }
    return most == ~UINT64_C(0) ? d->own : d->own % (most + 1);
}

static uint64_t prod_int(const ref_case_t *c, enum ref_scalar s, const draw_t *d)
{
    if (c->overflow) { /* mostly odd: a product of many even numbers is 0 */
        return (d->own >> 60) == 0 ? any_int(s, d) : any_int(s, d) | 1;
    }
    if ((uint64_t) d->rank == (d->all >> 8) % (uint64_t) c->nranks) { /* one large factor, the others 1 or -1 */
        return is_signed(s) ? d->own % (2 * (int_max(s) / 2) + 1) - int_max(s) / 2 : d->own & int_max(s);
    }
    return is_signed(s) && (d->own & 1) ? ~UINT64_C(0) : 1;
}

/* Zero or one of several values that are true; some have only high bits set. */
static uint64_t logical_int(enum ref_scalar s, const draw_t *d)
{
    unsigned top = 8 * (unsigned) scalar_bytes[s] - 1;
    uint64_t truth[] = {1, ~UINT64_C(0), 2, UINT64_C(1) << top, UINT64_C(1) << (top / 2 + 1), d->own | 1};

    switch (d->all & 3) {
    case 0: /* true on every rank */
        break;
    case 1: /* false on every rank */
        return 0;
    case 2: /* true on one in eight */
        if (d->own >> 61) {
            return 0;
        }
        break;
    default:
        if (d->own >> 63) {
            return 0;
        }
    }
    return truth[(d->own >> 8) % (sizeof(truth) / sizeof(truth[0]))];
}

static uint64_t gen_int(const ref_case_t *c, enum ref_scalar s, const draw_t *d)
{
    switch (c->op->id) {
    case REF_SUM:
        return sum_int(c, s, d);
    case REF_PROD:
        return prod_int(c, s, d);
    case REF_LAND:
    case REF_LOR:
    case REF_LXOR:
        return logical_int(s, d);
    case REF_BAND: /* few zeros, so that the result has ones */
        return d->all & 1 ? d->own : d->own | ref_mix(d->own) | ref_mix(d->own + 1);
    case REF_BOR:
        return d->all & 1 ? d->own : d->own & ref_mix(d->own) & ref_mix(d->own + 1);
    case REF_BXOR:
        return d->own;
    default:
        return any_int(s, d);
    }
}

/* +-[1, 2) * 2^e with a mantissa of as many bits as the type has. */
static long double real(enum ref_scalar s, uint64_t bits, int e)
{
    unsigned digits = REF_F32 == s ? FLT_MANT_DIG : REF_F64 == s ? DBL_MANT_DIG : 63;
    uint64_t mantissa = (ref_mix(bits) >> (64 - (digits - 1))) | (UINT64_C(1) << (digits - 1));
    long double v = ldexpl((long double) mantissa, e - (int) digits + 1);

    return bits & 1 ? -v : v;
}

static int exponent(uint64_t bits, int most)
{
    return (int) (bits % (uint64_t) (2 * most + 1)) - most;
}

/* Terms: of one magnitude, of magnitudes far apart, small integers, subnormal numbers, one infinity. */
static long double sum_float(const ref_case_t *c, enum ref_scalar s, const draw_t *d)
{
    uint64_t which = d->all >> 32;

    switch (d->all & 7) {
    case 0:
        return real(s, d->own, exponent(d->own >> 20, 30));
    case 1:
        return (long double) (int64_t) (d->own % 2001) - 1000;
    case 2:
        if (which % 4 == 0 && (uint64_t) d->rank == which % (uint64_t) c->nranks) {
            return which & 8 ? HUGE_VALL : -HUGE_VALL;
        }
        if (which % 4 == 1 && REF_LD != s) {
            return real(s, d->own, 0) < 0 ? -ldexpl((long double) (d->own >> 45), REF_F32 == s ? -149 : -1074)
                                          : ldexpl((long double) (d->own >> 45), REF_F32 == s ? -149 : -1074);
        }
        return d->own & 2 ? 0.0L : real(s, d->own, 0);
    default:
        return real(s, d->own, exponent(d->own >> 20, 1));
    }
}

static long double gen_float(const ref_case_t *c, enum ref_scalar s, const draw_t *d)
{
    int most;

    switch (c->op->id) {
    case REF_SUM:
        return sum_float(c, s, d);
    case REF_PROD: /* no product of any of the factors leaves the normal range */
        most = 100 / c->nranks - 2;
        return real(s, d->own, exponent(d->own >> 20, most > 0 ? most : 0));
    default: /* MIN, MAX */
        if (d->all % 64 == 0) {
            return d->own & 1 ? HUGE_VALL : -HUGE_VALL;
        }
        return d->all & 1 ? real(s, d->own, exponent(d->own >> 20, 100)) : (long double) (int64_t) (d->own % 9) - 4;
    }
}

/* Values with many ties; `bits` differs a rank. */
static uint64_t tie_bits(const draw_t *d)
{
    switch (d->all & 3) {
    case 0:
        return d->all >> 8; /* the same on every rank */
    case 1:
        return d->own;
    default:
        return ref_mix(d->all + d->own % 3); /* three values */
    }
}

static void gen_pair(const ref_type_t *t, const draw_t *d, unsigned char *p)
{
    uint64_t bits = tie_bits(d);
    draw_t v = {.all = d->all >> 2, .own = bits, .rank = d->rank};
    uint64_t index = ref_mix(d->own + 7);

    if (is_float(t->value)) {
        store_float(t->value, p,
                    d->all & 16 ? real(t->value, bits, exponent(bits >> 20, 40))
                                : (long double) (int64_t) (bits % 7) - 3);
    } else {
        store_int(t->value, p, any_int(t->value, &v));
    }
    if (is_float(t->index)) {
        store_float(t->index, p + t->index_at, (long double) (index % 100000));
    } else {
        store_int(t->index, p + t->index_at, d->all & 32 ? index : index % 16);
    }
}

static void gen_user(const ref_case_t *c, const draw_t *d, unsigned char *p)
{
    uint32_t word;
    double real8 = (double) (int64_t) (d->own % 2000001) - 1000000.0;

    switch (c->type->cls) {
    case REF_PLACED:
        for (unsigned k = 0; k < PLACED_BYTES; k++) {
            if (REF_DATA == c->type->map[k]) {
                p[k] = (unsigned char) ref_mix(d->own + k);
            }
        }
        return;
    case REF_USER_SUM:
        word = (uint32_t) d->own;
        memcpy(p, &word, sizeof(word));
        return;
    case REF_USER_MAT:
        for (unsigned k = 0; k < 4; k++) {
            word = (uint32_t) (ref_mix(d->own + k) % MAT_PRIME);
            memcpy(p + 4 * k, &word, sizeof(word));
        }
        return;
    case REF_USER_GAPS:
        for (unsigned k = 0; k < GAPS_INTS; k++) {
            if (gaps_data[k]) {
                word = (uint32_t) ref_mix(d->own + k);
                memcpy(p + 4 * k, &word, sizeof(word));
            }
        }
        return;
    default:
        word = (uint32_t) ref_mix(d->own);
        memcpy(p + STRUCT_DOUBLE_AT, &real8, sizeof(real8));
        memcpy(p + STRUCT_INT_AT, &word, sizeof(word));
    }
}

static void gen(const ref_case_t *c, int rank, uint64_t i, unsigned char *p)
{
    const ref_type_t *t = c->type;
    draw_t d = draw(c, rank, i), im;

    switch (t->cls) {
    case REF_CINT:
    case REF_MINT:
    case REF_BYTE:
        store_int(t->value, p, gen_int(c, t->value, &d));
        return;
    case REF_LOGICAL:
        store_int(t->value, p, 0 != logical_int(REF_U8, &d));
        return;
    case REF_FLOAT:
        store_float(t->value, p, gen_float(c, t->value, &d));
        return;
    case REF_COMPLEX:
        im = d;
        im.own = ref_mix(d.own + 3);
        im.all = ref_mix(d.all + 3);
        store_float(t->value, p, gen_float(c, t->value, &d));
        store_float(t->value, p + t->index_at, gen_float(c, t->value, &im));
        return;
    case REF_PAIR:
        gen_pair(t, &d, p);
        return;
    default:
        gen_user(c, &d, p);
    }
}

void ref_fill(const ref_case_t *c, int rank, uint64_t first, size_t count, void *out)
{
    unsigned char *p = out;

    for (size_t i = 0; i < count; i++) {
        gen(c, rank, first + i, p + i * c->type->bytes);
    }
}

/* ---- what must come out ------------------------------------------------------------------------------------------ */

/* a (op) b on sign- or zero-extended integers; the low bits count. */
static uint64_t apply_int(enum ref_op_id op, bool sgn, uint64_t a, uint64_t b)
{
    bool less = sgn ? (int64_t) a < (int64_t) b : a < b;

    switch (op) {
    case REF_SUM:
        return a + b;
    case REF_PROD:
        return a * b;
    case REF_MIN:
        return less ? a : b;
    case REF_MAX:
        return less ? b : a;
    case REF_LAND:
        return a && b;
    case REF_LOR:
        return a || b;
    case REF_LXOR:
        return !a != !b;
    case REF_BAND:
        return a & b;
    case REF_BOR:
        return a | b;
    default:
        return a ^ b;
    }
}

static void fold_int(const ref_case_t *c, int from, int to, uint64_t i, unsigned char *want)
{
    enum ref_scalar s = c->type->value;
    unsigned char p[REF_BYTES_MAX];
    uint64_t acc, v;

    gen(c, from, i, p);
    acc = load_int(s, p);
    for (int r = from + 1; r < to; r++) {
        gen(c, r, i, p);
        v = load_int(s, p);
        acc = apply_int(c->op->id, is_signed(s), acc, v);
    }
    store_int(s, want, acc);
}

/*
 * Sum in any order: |error| <= (n - 1) u sum|x| to first order, u = eps / 2; n eps sum|x| is more than twice
 * that, which leaves room for the rounding of the reference to the type.
 * Product in any order: n - 1 roundings, relative error <= (n - 1) u; likewise n eps.
 */
#define FOLD_FLOAT(name, real_t)                                                                               \
    static void name(const ref_case_t *c, int from, int to, uint64_t i, unsigned char *want, long double *tol) \
    {                                                                                                          \
        enum ref_scalar s = c->type->value;                                                                    \
        unsigned char p[REF_BYTES_MAX];                                                                        \
        real_t acc, v, sum;                                                                                    \
                                                                                                               \
        gen(c, from, i, p);                                                                                    \
        acc = load_float(s, p);                                                                                \
        sum = acc < 0 ? -acc : acc;                                                                            \
        for (int r = from + 1; r < to; r++) {                                                                  \
            gen(c, r, i, p);                                                                                   \
            v = load_float(s, p);                                                                              \
            switch (c->op->id) {                                                                               \
            case REF_SUM:                                                                                      \
                acc += v;                                                                                      \
                sum += v < 0 ? -v : v;                                                                         \
                break;                                                                                         \
            case REF_PROD:                                                                                     \
                acc *= v;                                                                                      \
                sum = acc < 0 ? -acc : acc;                                                                    \
                break;                                                                                         \
            case REF_MIN:                                                                                      \
                acc = v < acc ? v : acc;                                                                       \
                break;                                                                                         \
            default:                                                                                           \
                acc = v > acc ? v : acc;                                                                       \
            }                                                                                                  \
        }                                                                                                      \
        store_float(s, want, (long double) acc);                                                               \
        tol[0] = REF_SUM == c->op->id || REF_PROD == c->op->id                                                 \
                     ? (long double) (to - from) * epsilon(s) * (long double) sum                              \
                     : 0;                                                                                      \
    }
FOLD_FLOAT(fold_float, long double)
FOLD_FLOAT(fold_wide, wide_t)

/*
 * Sum: as for real numbers, in each part.  Product: |error| of one multiplication <= sqrt(8) u |z| (each part is
 * two rounded products and a rounded sum), so n - 1 of them <= 1.5 (n - 1) eps |product|; 4 n eps is allowed.
 */
#define FOLD_COMPLEX(name, real_t)                                                                             \
    static void name(const ref_case_t *c, int from, int to, uint64_t i, unsigned char *want, long double *tol) \
    {                                                                                                          \
        const ref_type_t *t = c->type;                                                                         \
        unsigned char p[REF_BYTES_MAX];                                                                        \
        real_t re, im, x, y, tmp, sum_re, sum_im;                                                              \
        long double n_eps = (long double) (to - from) * epsilon(t->value);                                     \
                                                                                                               \
        gen(c, from, i, p);                                                                                    \
        re = load_float(t->value, p);                                                                          \
        im = load_float(t->value, p + t->index_at);                                                            \
        sum_re = re < 0 ? -re : re;                                                                            \
        sum_im = im < 0 ? -im : im;                                                                            \
        for (int r = from + 1; r < to; r++) {                                                                  \
            gen(c, r, i, p);                                                                                   \
            x = load_float(t->value, p);                                                                       \
            y = load_float(t->value, p + t->index_at);                                                         \
            if (REF_PROD == c->op->id) {                                                                       \
                tmp = re * x - im * y;                                                                         \
                im = re * y + im * x;                                                                          \
                re = tmp;                                                                                      \
                continue;                                                                                      \
            }                                                                                                  \
            re += x;                                                                                           \
            im += y;                                                                                           \
            sum_re += x < 0 ? -x : x;                                                                          \
            sum_im += y < 0 ? -y : y;                                                                          \
        }                                                                                                      \
        store_float(t->value, want, (long double) re);                                                         \
        store_float(t->value, want + t->index_at, (long double) im);                                           \
        if (REF_PROD == c->op->id) {                                                                           \
            tol[0] = tol[1] = 4 * n_eps * hypotl((long double) re, (long double) im);                          \
        } else {                                                                                               \
            tol[0] = n_eps * (long double) sum_re;                                                             \
            tol[1] = n_eps * (long double) sum_im;                                                             \
        }                                                                                                      \
    }
FOLD_COMPLEX(fold_complex, long double)
FOLD_COMPLEX(fold_complex_wide, wide_t)

/* -1, 0, 1: a less than, equal to, greater than b. */
static int compare(enum ref_scalar s, const void *a, const void *b)
{
    uint64_t x, y;

    if (is_float(s)) {
        return (load_float(s, a) > load_float(s, b)) - (load_float(s, a) < load_float(s, b));
    }
    x = load_int(s, a);
    y = load_int(s, b);
    if (is_signed(s)) {
        return ((int64_t) x > (int64_t) y) - ((int64_t) x < (int64_t) y);
    }
    return (x > y) - (x < y);
}

/* The extreme value; among equals the lowest index. */
static void fold_pair(const ref_case_t *c, int from, int to, uint64_t i, unsigned char *want)
{
    const ref_type_t *t = c->type;
    unsigned char p[REF_BYTES_MAX];

    gen(c, from, i, want);
    for (int r = from + 1; r < to; r++) {
        int order;

        gen(c, r, i, p);
        order = compare(t->value, p, want);
        if (REF_MAXLOC == c->op->id) {
            order = -order;
        }
        if (order < 0 || (0 == order && compare(t->index, p + t->index_at, want + t->index_at) < 0)) {
            memcpy(want, p, scalar_bytes[t->value]);
            memcpy(want + t->index_at, p + t->index_at, scalar_bytes[t->index]);
        }
    }
}

/* The user operations on one element: b = a (op) b, a from the lower rank.  Called by MPI and by the reference. */
static void user_sum(const unsigned char *a, unsigned char *b)
{
    uint32_t x, y;

    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    y = (uint32_t) (((uint64_t) (x % 1000003) + y % 1000003) % 1000003);
    memcpy(b, &y, sizeof(y));
}

static void user_mat(const unsigned char *a, unsigned char *b)
{
    uint32_t x[4], y[4], z[4];

    memcpy(x, a, sizeof(x));
    memcpy(y, b, sizeof(y));
    for (unsigned row = 0; row < 2; row++) {
        for (unsigned col = 0; col < 2; col++) {
            z[2 * row + col] =
                (uint32_t) (((uint64_t) x[2 * row] * y[col] + (uint64_t) x[2 * row + 1] * y[2 + col]) % MAT_PRIME);
        }
    }
    memcpy(b, z, sizeof(z));
}

static void user_gaps(const unsigned char *a, unsigned char *b)
{
    uint32_t x, y;

    for (unsigned k = 0; k < GAPS_INTS; k++) {
        if (gaps_data[k]) {
            memcpy(&x, a + 4 * k, sizeof(x));
            memcpy(&y, b + 4 * k, sizeof(y));
            y += x;
            memcpy(b + 4 * k, &y, sizeof(y));
        }
    }
}

static void user_struct(const unsigned char *a, unsigned char *b)
{
    double x, y;
    int32_t i, j;

    memcpy(&x, a + STRUCT_DOUBLE_AT, sizeof(x));
    memcpy(&y, b + STRUCT_DOUBLE_AT, sizeof(y));
    memcpy(&i, a + STRUCT_INT_AT, sizeof(i));
    memcpy(&j, b + STRUCT_INT_AT, sizeof(j));
    y = x < y ? x : y;
    j = i > j ? i : j;
    memcpy(b + STRUCT_DOUBLE_AT, &y, sizeof(y));
    memcpy(b + STRUCT_INT_AT, &j, sizeof(j));
}

#define USER_FUNCTION(name, bytes)                                                                                   \
    static void name##_mpi(void *in, void *inout, int *n, MPI_Datatype *type)                                        \
    {                                                                                                                \
        (void) type;                                                                                                 \
        for (int i = 0; i < *n; i++) {                                                                               \
            name((const unsigned char *) in + (size_t) i * (bytes), (unsigned char *) inout + (size_t) i * (bytes)); \
        }                                                                                                            \
    }
USER_FUNCTION(user_sum, 4)
USER_FUNCTION(user_mat, 16)
USER_FUNCTION(user_gaps, 4 * GAPS_INTS)
USER_FUNCTION(user_struct, STRUCT_BYTES)

/* From the last rank down: want = element of r (op) want, which is the order of ranks. */
static void fold_user(const ref_case_t *c, int from, int to, uint64_t i, unsigned char *want)
{
    unsigned char p[REF_BYTES_MAX];

    memset(p, 0, sizeof(p));
    gen(c, to - 1, i, want);
    for (int r = to - 2; r >= from; r--) {
        gen(c, r, i, p);
        switch (c->type->cls) {
        case REF_USER_SUM:
            user_sum(p, want);
            break;
        case REF_USER_MAT:
            user_mat(p, want);
            break;
        case REF_USER_GAPS:
            user_gaps(p, want);
            break;
        default:
            user_struct(p, want);
        }
    }
}

void ref_expect_ranks(const ref_case_t *c, int from, int to, uint64_t first, size_t count, void *want, long double *tol)
{
    for (size_t i = 0; i < count; i++) {
        unsigned char *p = (unsigned char *) want + i * c->type->bytes;
        long double *t = tol + 2 * i;

        t[0] = t[1] = 0;
        if (1 == to - from) {
            gen(c, from, first + i, p);
            continue;
        }
        switch (c->type->cls) {
        case REF_CINT:
        case REF_MINT:
        case REF_LOGICAL:
        case REF_BYTE:
            fold_int(c, from, to, first + i, p);
            break;
        case REF_FLOAT:
            if (REF_LD == c->type->value) {
                fold_wide(c, from, to, first + i, p, t);
            } else {
                fold_float(c, from, to, first + i, p, t);
            }
            break;
        case REF_COMPLEX:
            if (REF_LD == c->type->value) {
                fold_complex_wide(c, from, to, first + i, p, t);
            } else {
                fold_complex(c, from, to, first + i, p, t);
            }
            break;
        case REF_PAIR:
            fold_pair(c, from, to, first + i, p);
            break;
        default:
            fold_user(c, from, to, first + i, p);
        }
    }
}

void ref_expect(const ref_case_t *c, uint64_t first, size_t count, void *want, long double *tol)
{
    ref_expect_ranks(c, 0, c->nranks, first, count, want, tol);
}

/* ---- comparing ------------------------------------------------------------------------------------------------ */

static bool near(enum ref_scalar s, const void *got, const void *want, long double tol)
{
    long double g = load_float(s, got), w = load_float(s, want);

    if (g == w) {
        return true;
    }
    return isfinite(w) && isfinite(g) && fabsl(g - w) <= tol; /* a NaN is never right: no input gives one */
}

bool ref_same(const ref_type_t *type, const void *got, const void *want, const long double *tol)
{
    const unsigned char *g = got, *w = want;

    if (REF_FLOAT == type->cls) {
        return near(type->value, g, w, tol[0]);
    }
    if (REF_COMPLEX == type->cls) {
        return near(type->value, g, w, tol[0]) && near(type->value, g + type->index_at, w + type->index_at, tol[1]);
    }
    if (REF_PAIR == type->cls) {
        return 0 == compare(type->value, g, w) && 0 == compare(type->index, g + type->index_at, w + type->index_at);
    }
    for (size_t k = 0; k < type->bytes; k++) {
        if (REF_DATA == type->map[k] && g[k] != w[k]) {
            return false;
        }
    }
    return true;
}

static int text_scalar(enum ref_scalar s, const void *p, char *buf, size_t size)
{
    if (is_float(s)) {
        return snprintf(buf, size, "%.*Lg", REF_F32 == s ? 9 : REF_F64 == s ? 17 : 21, load_float(s, p));
    }
    if (is_signed(s)) {
        return snprintf(buf, size, "%lld", (long long) load_int(s, p));
    }
    return snprintf(buf, size, "%llu", (unsigned long long) load_int(s, p));
}

const char *ref_text(const ref_type_t *type, const void *element, char *buf, size_t size)
{
    const unsigned char *p = element;
    int n;

    switch (type->cls) {
    case REF_COMPLEX:
    case REF_PAIR:
        n = text_scalar(type->value, p, buf, size);
        n += snprintf(buf + n, size - (size_t) n, ", ");
        text_scalar(REF_PAIR == type->cls ? type->index : type->value, p + type->index_at, buf + n, size - (size_t) n);
        break;
    case REF_USER_MAT:
    case REF_USER_GAPS:
    case REF_USER_STRUCT:
        n = 0;
        for (size_t k = 0; k < type->bytes && (size_t) n + 3 < size; k++) {
            n += snprintf(buf + n, size - (size_t) n, "%02x", p[k]);
        }
        break;
    default:
        text_scalar(type->value, p, buf, size);
    }
    return buf;
}

/* ---- the tables ----------------------------------------------------------------------------------------------------
 */

static ref_type_t *add(const char *name, MPI_Datatype mpi, enum ref_class cls, size_t bytes)
{
    ref_type_t *t;
    int size;

    if (MPI_DATATYPE_NULL == mpi || MPI_SUCCESS != MPI_Type_size(mpi, &size) || 0 == size) {
        return NULL;
    }
    if (TYPES_MAX == ntypes || bytes > REF_BYTES_MAX) {
        fprintf(stderr, "ref: no room for %s\n", name);
        exit(99);
    }
    t = &types[ntypes++];
    memset(t, 0, sizeof(*t));
    t->name = name;
    t->mpi = mpi;
    t->cls = cls;
    t->bytes = 0 == bytes ? (size_t) size : bytes;
    t->user = MPI_OP_NULL;
    t->flat = MPI_DATATYPE_NULL;
    memset(t->map, REF_DATA, t->bytes);
    return t;
}

static enum ref_scalar int_scalar(size_t bytes, bool sgn)
{
    enum ref_scalar s = 1 == bytes ? REF_I8 : 2 == bytes ? REF_I16 : 4 == bytes ? REF_I32 : REF_I64;

    return sgn ? s : s + 1;
}

static void add_int(const char *name, MPI_Datatype mpi, enum ref_class cls, bool sgn)
{
    ref_type_t *t = add(name, mpi, cls, 0);

    if (NULL != t) {
        t->value = int_scalar(t->bytes, sgn);
    }
}

/* x86 keeps long double in 10 of its 16 bytes. */
static void map_long_double(ref_type_t *t, size_t at)
{
    if (64 == LDBL_MANT_DIG && 16 == sizeof(long double)) {
        memset(t->map + at + 10, REF_PADDING, 6);
    }
}

static void add_float(const char *name, MPI_Datatype mpi, enum ref_scalar s)
{
    ref_type_t *t = add(name, mpi, REF_FLOAT, scalar_bytes[s]);

    if (NULL != t) {
        t->value = s;
        if (REF_LD == s) {
            map_long_double(t, 0);
        }
    }
}

static void add_complex(const char *name, MPI_Datatype mpi, enum ref_scalar s)
{
    ref_type_t *t = add(name, mpi, REF_COMPLEX, 2 * scalar_bytes[s]);

    if (NULL != t) {
        t->value = s;
        t->index_at = scalar_bytes[s];
        if (REF_LD == s) {
            map_long_double(t, 0);
            map_long_double(t, t->index_at);
        }
    }
}

static void add_pair(const char *name, MPI_Datatype mpi, enum ref_scalar value, enum ref_scalar index, size_t index_at,
                     size_t bytes)
{
    ref_type_t *t = add(name, mpi, REF_PAIR, bytes);

    if (NULL != t) {
        t->value = value;
        t->index = index;
        t->index_at = index_at;
        memset(t->map, REF_PADDING, bytes);
        memset(t->map, REF_DATA, scalar_bytes[value]);
        if (REF_LD == value) {
            map_long_double(t, 0);
        }
        memset(t->map + index_at, REF_DATA, scalar_bytes[index]);
    }
}

static void add_integers(void)
{
#define C_INT(mpi, sgn) add_int(#mpi, mpi, REF_CINT, sgn)
    C_INT(MPI_SIGNED_CHAR, true);
    C_INT(MPI_UNSIGNED_CHAR, false);
    C_INT(MPI_SHORT, true);
    C_INT(MPI_UNSIGNED_SHORT, false);
    C_INT(MPI_INT, true);
    C_INT(MPI_UNSIGNED, false);
    C_INT(MPI_LONG, true);
    C_INT(MPI_UNSIGNED_LONG, false);
    C_INT(MPI_LONG_LONG_INT, true);
    C_INT(MPI_UNSIGNED_LONG_LONG, false);
    C_INT(MPI_INT8_T, true);
    C_INT(MPI_UINT8_T, false);
    C_INT(MPI_INT16_T, true);
    C_INT(MPI_UINT16_T, false);
    C_INT(MPI_INT32_T, true);
    C_INT(MPI_UINT32_T, false);
    C_INT(MPI_INT64_T, true);
    C_INT(MPI_UINT64_T, false);
#define M_INT(mpi) add_int(#mpi, mpi, REF_MINT, true)
    M_INT(MPI_AINT);
    M_INT(MPI_OFFSET);
    M_INT(MPI_COUNT);
    M_INT(MPI_INTEGER);
    M_INT(MPI_INTEGER1);
    M_INT(MPI_INTEGER2);
    M_INT(MPI_INTEGER4);
    M_INT(MPI_INTEGER8);
    add_int("MPI_BYTE", MPI_BYTE, REF_BYTE, false);
#define TRUTH(mpi) add_int(#mpi, mpi, REF_LOGICAL, false)
    TRUTH(MPI_C_BOOL);
    TRUTH(MPI_CXX_BOOL);
    TRUTH(MPI_LOGICAL);
#ifdef MPI_LOGICAL1
    TRUTH(MPI_LOGICAL1);
    TRUTH(MPI_LOGICAL2);
    TRUTH(MPI_LOGICAL4);
    TRUTH(MPI_LOGICAL8);
#endif
}

static void add_reals(void)
{
#define REAL(mpi, s) add_float(#mpi, mpi, s)
    REAL(MPI_FLOAT, REF_F32);
    REAL(MPI_DOUBLE, REF_F64);
    REAL(MPI_LONG_DOUBLE, REF_LD);
    REAL(MPI_REAL, REF_F32);
    REAL(MPI_REAL4, REF_F32);
    REAL(MPI_REAL8, REF_F64);
    REAL(MPI_DOUBLE_PRECISION, REF_F64);
#define COMPLEX(mpi, s) add_complex(#mpi, mpi, s)
    COMPLEX(MPI_C_COMPLEX, REF_F32);
    COMPLEX(MPI_C_FLOAT_COMPLEX, REF_F32);
    COMPLEX(MPI_C_DOUBLE_COMPLEX, REF_F64);
    COMPLEX(MPI_C_LONG_DOUBLE_COMPLEX, REF_LD);
    COMPLEX(MPI_CXX_FLOAT_COMPLEX, REF_F32);
    COMPLEX(MPI_CXX_DOUBLE_COMPLEX, REF_F64);
    COMPLEX(MPI_CXX_LONG_DOUBLE_COMPLEX, REF_LD);
    COMPLEX(MPI_COMPLEX, REF_F32);
    COMPLEX(MPI_COMPLEX8, REF_F32);
    COMPLEX(MPI_COMPLEX16, REF_F64);
    COMPLEX(MPI_DOUBLE_COMPLEX, REF_F64);
}

static void add_pairs(void)
{
#define C_PAIR(mpi, ctype, s)                                                               \
    do {                                                                                    \
        struct pair {                                                                       \
            ctype value;                                                                    \
            int index;                                                                      \
        };                                                                                  \
        add_pair(#mpi, mpi, s, REF_I32, offsetof(struct pair, index), sizeof(struct pair)); \
    } while (0)
    C_PAIR(MPI_FLOAT_INT, float, REF_F32);
    C_PAIR(MPI_DOUBLE_INT, double, REF_F64);
    C_PAIR(MPI_LONG_INT, long, int_scalar(sizeof(long), true));
    C_PAIR(MPI_2INT, int, REF_I32);
    C_PAIR(MPI_SHORT_INT, short, REF_I16);
    C_PAIR(MPI_LONG_DOUBLE_INT, long double, REF_LD);
    add_pair("MPI_2REAL", MPI_2REAL, REF_F32, REF_F32, 4, 8);
    add_pair("MPI_2DOUBLE_PRECISION", MPI_2DOUBLE_PRECISION, REF_F64, REF_F64, 8, 16);
    add_pair("MPI_2INTEGER", MPI_2INTEGER, REF_I32, REF_I32, 4, 8);
}

static void add_users(void)
{
    int lengths[3] = {1, 1, 3};
    MPI_Aint at[2] = {STRUCT_DOUBLE_AT, STRUCT_INT_AT};
    MPI_Aint placed_at[3] = {PLACED_INT_AT, PLACED_DOUBLE_AT, PLACED_BYTES_AT};
    MPI_Datatype parts[2] = {MPI_DOUBLE, MPI_INT}, placed[3] = {MPI_INT, MPI_DOUBLE, MPI_BYTE}, tmp, made;
    ref_type_t *t;

    t = add("user sum of MPI_UINT32_T", MPI_UINT32_T, REF_USER_SUM, 0);
    t->value = REF_U32;
    MPI_Op_create(user_sum_mpi, 1, &t->user);

    MPI_Type_contiguous(4, MPI_UINT32_T, &made);
    MPI_Type_commit(&made);
    t = add("user matrix", made, REF_USER_MAT, 16);
    t->derived = true;
    t->flat = MPI_UINT32_T;
    t->flats = 4;
    MPI_Op_create(user_mat_mpi, 0, &t->user);

    MPI_Type_vector(3, 2, 3, MPI_INT, &tmp);
    MPI_Type_create_resized(tmp, 0, 4 * GAPS_INTS, &made);
    MPI_Type_free(&tmp);
    MPI_Type_commit(&made);
    t = add("user vector with gaps", made, REF_USER_GAPS, 4 * GAPS_INTS);
    t->derived = true;
    t->flat = MPI_INT;
    t->flats = 6;
    for (size_t k = 0; k < 4 * GAPS_INTS; k++) {
        t->map[k] = gaps_data[k / 4] ? REF_DATA : REF_GAP;
    }
    MPI_Op_create(user_gaps_mpi, 1, &t->user);

    MPI_Type_create_struct(2, lengths, at, parts, &tmp);
    MPI_Type_create_resized(tmp, 0, STRUCT_BYTES, &made);
    MPI_Type_free(&tmp);
    MPI_Type_commit(&made);
    t = add("user struct", made, REF_USER_STRUCT, STRUCT_BYTES);
    t->derived = true;
    memset(t->map, REF_GAP, STRUCT_BYTES);
    memset(t->map + STRUCT_DOUBLE_AT, REF_DATA, 8);
    memset(t->map + STRUCT_INT_AT, REF_DATA, 4);
    /* Called not commutative: for a commutative operation Open MPI (4.1.4) takes a ring whose temporary buffer is too
     * short by the lower bound of the data, and writes behind it. */
    MPI_Op_create(user_struct_mpi, 0, &t->user);

    MPI_Type_create_struct(3, lengths, placed_at, placed, &tmp);
    MPI_Type_create_resized(tmp, PLACED_LB, PLACED_BYTES, &made);
    MPI_Type_free(&tmp);
    MPI_Type_commit(&made);
    t = add("struct with a negative lower bound", made, REF_PLACED, PLACED_BYTES);
    t->derived = true;
    t->lb = PLACED_LB;
    memset(t->map, REF_GAP, PLACED_BYTES);
    memset(t->map + PLACED_INT_AT - PLACED_LB, REF_DATA, 4);
    memset(t->map + PLACED_DOUBLE_AT - PLACED_LB, REF_DATA, 8);
    memset(t->map + PLACED_BYTES_AT - PLACED_LB, REF_DATA, 3);
}

static void add_ops(void)
{
#define OP(op)                           \
    do {                                 \
        ops[REF_##op].name = "MPI_" #op; \
        ops[REF_##op].id = REF_##op;     \
        ops[REF_##op].mpi = MPI_##op;    \
    } while (0)
    OP(SUM);
    OP(PROD);
    OP(MIN);
    OP(MAX);
    OP(LAND);
    OP(LOR);
    OP(LXOR);
    OP(BAND);
    OP(BOR);
    OP(BXOR);
    OP(MINLOC);
    OP(MAXLOC);
    ops[REF_USER] = (ref_op_t){.name = "user operation", .id = REF_USER, .mpi = MPI_OP_NULL};
}

void ref_init(void)
{
    const uint16_t one = 1;

    if (1 != *(const unsigned char *) &one) {
        fprintf(stderr, "ref: written for little-endian machines\n");
        exit(99);
    }
    ntypes = 0;
    add_ops();
    add_integers();
    add_reals();
    add_pairs();
    add_users();
}

void ref_fini(void)
{
    for (int i = 0; i < ntypes; i++) {
        if (MPI_OP_NULL != types[i].user) {
            MPI_Op_free(&types[i].user);
        }
        if (types[i].derived) {
            MPI_Type_free(&types[i].mpi);
        }
    }
    ntypes = 0;
}

int ref_ntypes(void)
{
    return ntypes;
}

const ref_type_t *ref_type(int i)
{
    return &types[i];
}

int ref_nops(void)
{
    return REF_USER + 1;
}

const ref_op_t *ref_op(int i)
{
    return &ops[i];
}

const ref_type_t *ref_type_find(const char *name)
{
    for (int i = 0; i < ntypes; i++) {
        if (0 == strcmp(types[i].name, name)) {
            return &types[i];
        }
    }
    return NULL;
}

const ref_op_t *ref_op_find(const char *name)
{
    for (int i = 0; i < ref_nops(); i++) {
        if (0 == strcmp(ops[i].name, name)) {
            return &ops[i];
        }
    }
    return NULL;
}

bool ref_allowed(const ref_type_t *type, const ref_op_t *op)
{
    static const unsigned arithmetic = 1u << REF_SUM | 1u << REF_PROD;
    static const unsigned order = 1u << REF_MIN | 1u << REF_MAX;
    static const unsigned logical = 1u << REF_LAND | 1u << REF_LOR | 1u << REF_LXOR;
    static const unsigned bitwise = 1u << REF_BAND | 1u << REF_BOR | 1u << REF_BXOR;
    unsigned mask;

    switch (type->cls) {
    case REF_CINT:
        mask = arithmetic | order | logical | bitwise;
        break;
    case REF_MINT:
        mask = arithmetic | order | bitwise;
        break;
    case REF_FLOAT:
        mask = arithmetic | order;
        break;
    case REF_COMPLEX:
        mask = arithmetic;
        break;
    case REF_LOGICAL:
        mask = logical;
        break;
    case REF_BYTE:
        mask = bitwise;
        break;
    case REF_PAIR:
        mask = 1u << REF_MINLOC | 1u << REF_MAXLOC;
        break;
    case REF_PLACED:
        mask = 0;
        break;
    default:
        mask = 1u << REF_USER;
    }
    return (mask >> op->id) & 1;
}

MPI_Op ref_mpi_op(const ref_type_t *type, const ref_op_t *op)
{
    return REF_USER == op->id ? type->user : op->mpi;
}
