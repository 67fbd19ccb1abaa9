/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of the kernels' primitives in the simulator's meaning: conversions of the 16-bit floats, loads and stores
 * of user buffers at any alignment, LL lines, operations on packs.  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/prim/move.h"
#include "test/unit/random.h"

static float f32_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* ---- 16-bit floats, by arithmetic on doubles ---- */

typedef struct {
    const char *name;
    int mantissa, least, most; /* explicit bits; exponents of normal numbers */
    float (*widen)(uint16_t h);
    uint16_t (*narrow)(float f);
} format_t;

static float widen_f16(uint16_t h)
{
    return gs_f16_to_f32(h);
}

static uint16_t narrow_f16(float f)
{
    return gs_f32_to_f16(f);
}

static float widen_bf16(uint16_t h)
{
    return gs_bf16_to_f32(h);
}

static uint16_t narrow_bf16(float f)
{
    return gs_f32_to_bf16(f);
}

static const format_t formats[] = {
    {"f16", 10, -14, 15, widen_f16, narrow_f16},
    {"bf16", 7, -126, 127, widen_bf16, narrow_bf16},
};
#define FORMATS (sizeof formats / sizeof formats[0])

static uint32_t infinity_bits(const format_t *f)
{
    return (uint32_t) (f->most - f->least + 2) << f->mantissa;
}

static bool is_nan_bits(const format_t *f, uint16_t h)
{
    return (h & 0x7fffu) > infinity_bits(f);
}

/* h is no NaN. */
static double value_of(const format_t *f, uint16_t h)
{
    const int exponent = (h & 0x7fff) >> f->mantissa, mantissa = h & ((1 << f->mantissa) - 1);
    const double a = (h & 0x7fffu) == infinity_bits(f) ? (double) INFINITY
                     : 0 == exponent                   ? ldexp(mantissa, f->least - f->mantissa)
                                     : ldexp(mantissa + (1 << f->mantissa), exponent - 1 + f->least - f->mantissa);
    return h & 0x8000 ? -a : a;
}

/* To nearest, ties to even; x is no NaN. */
static uint16_t nearest(const format_t *f, double x)
{
    const uint32_t sign = signbit(x) ? 0x8000u : 0;
    const double a = fabs(x);
    int e;
    if (isinf(a)) {
        return (uint16_t) (sign | infinity_bits(f));
    }
    (void) frexp(a, &e);
    e = 0 == a || e - 1 < f->least ? f->least : e - 1;
    const double bits = ldexp(e - f->least, f->mantissa) + nearbyint(ldexp(a, f->mantissa - e));
    return (uint16_t) (sign | (bits >= infinity_bits(f) ? infinity_bits(f) : (uint32_t) bits));
}

static void every_value_widens_exactly_and_returns(void **state)
{
    (void) state;
    for (size_t i = 0; i < FORMATS; i++) {
        const format_t *f = &formats[i];
        for (uint32_t h = 0; h < 65536; h++) {
            const float wide = f->widen((uint16_t) h);
            if (is_nan_bits(f, (uint16_t) h)) {
                assert_true(isnan(wide));
                assert_true(is_nan_bits(f, f->narrow(wide)));
                continue;
            }
            assert_true((double) wide == value_of(f, (uint16_t) h));
            assert_int_equal(!!signbit(wide), h >> 15);
            assert_int_equal(f->narrow(wide), h);
        }
    }
}

static void check_narrow(const format_t *f, uint32_t bits)
{
    const float x = f32_of(bits);
    const uint16_t got = f->narrow(x);
    if (isnan(x) ? !is_nan_bits(f, got) : got != nearest(f, (double) x)) {
        print_error("%s of %08x (%a): %04x\n", f->name, bits, (double) x, got);
        fail();
    }
}

/* Each value, the ties to both of its neighbours, and what lies next to those. */
static void ties_round_to_even(void **state)
{
    (void) state;
    for (size_t i = 0; i < FORMATS; i++) {
        const format_t *f = &formats[i];
        for (uint32_t h = 0; h < infinity_bits(f); h++) {
            /* the next one after the largest is where infinity would be, were it a number */
            const double a = value_of(f, (uint16_t) h),
                         b = h + 1 == infinity_bits(f) ? ldexp(1, f->most + 1) : value_of(f, (uint16_t) (h + 1));
            const uint32_t tie = bits_of((float) ((a + b) / 2));
            for (int d = -2; d <= 2; d++) {
                check_narrow(f, tie + (uint32_t) d);
                check_narrow(f, (tie + (uint32_t) d) ^ 0x80000000u);
                check_narrow(f, bits_of((float) a) + (uint32_t) (d < 0 && 0 == h ? 0 : d));
            }
        }
    }
}

static void random_floats_round_to_nearest(void **state)
{
    (void) state;
    static const uint32_t special[] = {0,           0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u,
                                       0xffffffffu, 1,           0x807fffffu, 0x00800000u, 0x7f7fffffu, 0xff7fffffu};
    for (size_t i = 0; i < FORMATS; i++) {
        for (size_t k = 0; k < sizeof special / sizeof special[0]; k++) {
            check_narrow(&formats[i], special[k]);
        }
        for (uint32_t k = 0; k < 2000000; k++) {
            const uint32_t bits = (uint32_t) next_random();
            check_narrow(&formats[i], bits);
            /* the same within a few octaves of what f16 can hold */
            check_narrow(&formats[i], (bits & 0x807fffffu) | (100 + (bits >> 23 & 0xff) % 46) << 23);
        }
    }
}

/* ---- user buffers ---- */

static void alignment_is_the_lowest_bit(void **state)
{
    (void) state;
    static const uint32_t want[16] = {16, 1, 2, 1, 4, 1, 2, 1, 8, 1, 2, 1, 4, 1, 2, 1};
    for (uintptr_t p = 0x1000; p < 0x1010; p++) {
        assert_int_equal(gs_align((const void *) p), want[p & 15]);
    }
}

#define ROOM 96

/* Buffers end where the allocation ends: AddressSanitizer sees who reads on. */
static void loads_of_any_alignment_and_end(void **state)
{
    (void) state;
    for (uint32_t n = 0; n < 16 * 80; n++) {
        const unsigned offset = n / 80;
        const uint64_t bytes = 1 + n % 80;
        uint8_t *memory = aligned_alloc(16, ROOM);
        assert_non_null(memory);
        uint8_t *buffer = malloc(offset + bytes);
        assert_non_null(buffer);
        assert_int_equal((uintptr_t) buffer & 15, 0);
        for (uint64_t i = 0; i < bytes; i++) {
            buffer[offset + i] = (uint8_t) next_random();
        }
        memset(memory, 0, ROOM);
        memcpy(memory, buffer + offset, bytes);
        for (uint64_t i = 0; 16 * i < bytes; i++) {
            const gs_pack_t v = gs_ld_user(buffer + offset, gs_align(buffer + offset), bytes, i);
            const gs_pack_t ragged = gs_ld_unaligned(buffer + offset, gs_align(buffer + offset), bytes, i);
            assert_memory_equal(&v, memory + 16 * i, 16);
            assert_memory_equal(&ragged, memory + 16 * i, 16);
        }
        free(buffer);
        free(memory);
    }
}

static void stores_of_any_alignment_and_end(void **state)
{
    (void) state;
    for (uint32_t n = 0; n < 16 * 80; n++) {
        const unsigned offset = n / 80;
        const uint64_t bytes = 1 + n % 80;
        uint8_t want[ROOM + 16], *buffer = malloc(offset + bytes);
        assert_non_null(buffer);
        memset(buffer, 0xa5, offset + bytes);
        memset(want, 0xa5, sizeof want);
        for (uint64_t i = 0; 16 * i < bytes; i++) {
            const gs_pack_t v = {{next_random(), next_random()}};
            const uint64_t whole = bytes - 16 * i < 16 ? bytes - 16 * i : 16;
            memcpy(want + offset + 16 * i, &v, whole);
            gs_st_user(buffer + offset, gs_align(buffer + offset), bytes, i, v);
            assert_memory_equal(buffer, want, offset + bytes);
            gs_st_unaligned(buffer + offset, gs_align(buffer + offset), bytes, i, v);
            assert_memory_equal(buffer, want, offset + bytes);
        }
        free(buffer);
    }
}

/* ---- LL lines ---- */

static void a_line_is_refused_until_both_flags_are_there(void **state)
{
    (void) state;
    static const uint32_t epochs[] = {1, 2, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
    for (size_t i = 0; i < sizeof epochs / sizeof epochs[0]; i++) {
        const uint32_t e = epochs[i];
        const uint64_t data = next_random(), other = next_random();
        uint64_t line[2] = {0, 0}, old[2], got;
        assert_false(gs_ll_ld(line, e, &got)); /* fresh */
        gs_ll_st(line, other, e - 1);
        assert_false(gs_ll_ld(line, e, &got));
        memcpy(old, line, sizeof old);
        gs_ll_st(line, data, e);
        assert_true(gs_ll_ld(line, e, &got));
        assert_true(got == data);
        assert_false(gs_ll_ld(line, e - 1, &got));
        assert_false(gs_ll_ld(line, e + 1, &got));
        assert_false(gs_ll_ld(line, e ^ 0x80000000u, &got));
        for (int half = 0; half < 2; half++) { /* one half is still the old one's */
            uint64_t torn[2] = {line[0], line[1]};
            torn[half] = old[half];
            assert_false(gs_ll_ld(torn, e, &got));
            assert_false(gs_ll_ld(torn, e - 1, &got));
        }
    }
}

/* {lo, e, hi, e}: what the GPU stores as one vector, so that simulator and GPU could share a heap. */
static void a_line_has_its_documented_layout(void **state)
{
    (void) state;
    uint32_t line[4] __attribute__((aligned(16)));
    gs_ll_st(line, 0x1122334455667788ull, 0x99aabbccu);
    assert_int_equal(line[0], 0x55667788);
    assert_int_equal(line[1], 0x99aabbcc);
    assert_int_equal(line[2], 0x11223344);
    assert_int_equal(line[3], 0x99aabbcc);
}

/* ---- operations ---- */

/* Bits that the operation passes on when both operands are the same must be those of the operand. */
static void equal_operands_stay_what_they_are(void **state)
{
    (void) state;
    static const uint32_t keep[] = {GPUSYM_OP_MIN, GPUSYM_OP_MAX,    GPUSYM_OP_BAND,
                                    GPUSYM_OP_BOR, GPUSYM_OP_MINLOC, GPUSYM_OP_MAXLOC};
    for (uint32_t type = 0; type < GPUSYM_T_COUNT; type++) {
        for (size_t k = 0; k < 200 * sizeof keep / sizeof keep[0]; k++) {
            const uint32_t op = keep[k / 200];
            const uint64_t noise = next_random();
            /* exponents stay off NaN: the top bits of every 16 are clear */
            const gs_pack_t v = {{noise & 0x3f3f3f3f3f3f3f3full, next_random() & 0xbf3fbf3fbf3fbf3full}};
            if (!gpusym_op_valid(op, type)) {
                continue;
            }
            gs_acc_t acc = gs_acc_start(type, v);
            gs_acc_apply(op, type, &acc, v);
            const gs_pack_t got = gs_acc_end(type, &acc);
            assert_memory_equal(&got, &v, sizeof v);
        }
    }
}

/* The 16-bit floats are rounded once, at the end: 2048 + 1 + 1 is 2050 in f32 and 2048 if each sum is rounded. */
static void small_floats_accumulate_in_f32(void **state)
{
    (void) state;
    static const struct {
        uint32_t type;
        uint16_t big, one, want;
    } cases[] = {
        {GPUSYM_T_F16, 0x6800, 0x3c00, 0x6801},  /* 2048, 1, 2050 */
        {GPUSYM_T_BF16, 0x4380, 0x3f80, 0x4381}, /* 256, 1, 258 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint64_t lanes = 0x0001000100010001ull;
        const gs_pack_t big = {{cases[i].big * lanes, cases[i].big * lanes}};
        const gs_pack_t one = {{cases[i].one * lanes, cases[i].one * lanes}};
        gs_acc_t acc = gs_acc_start(cases[i].type, big);
        gs_acc_apply(GPUSYM_OP_SUM, cases[i].type, &acc, one);
        gs_acc_apply(GPUSYM_OP_SUM, cases[i].type, &acc, one);
        const gs_pack_t got = gs_acc_end(cases[i].type, &acc);
        assert_true(got.w[0] == cases[i].want * lanes);
        assert_true(got.w[1] == cases[i].want * lanes);
    }
}

/* Bits that make no NaN of any type: which of two NaNs an operation returns is not said. */
#define NO_NAN 0x3fff3fff3fff3fffull

/* What a whole pack of one type gives for every operation is what the generic kernels' copy of the choice gives. */
static void the_generic_choice_is_the_same(void **state)
{
    (void) state;
    for (uint32_t i = 0; i < GPUSYM_OP_COUNT * GPUSYM_T_COUNT * 50; i++) {
        const uint32_t op = i % GPUSYM_OP_COUNT, type = i / GPUSYM_OP_COUNT % GPUSYM_T_COUNT;
        const gs_pack_t a = {{next_random() & NO_NAN, next_random() & NO_NAN}};
        const gs_pack_t b = {{next_random() & NO_NAN, next_random() & NO_NAN}};
        const gpusym_work_t w = {.op = op, .type = type};
        const gs_kernel_t one_kernel = {&w, op, type, true, 0, 0, false, {{0, 0}}, false},
                          any_kernel = {&w, GS_ANY, GS_ANY, true, 0, 0, false, {{0, 0}}, false};
        if (!gpusym_op_valid(op, type)) {
            continue;
        }
        assert_int_equal(gs_acc_type(any_kernel), type);
        gs_acc_t one = gs_acc_start(type, a), any = gs_acc_start(type, a);
        gs_acc_op(one_kernel, &one, b);
        gs_acc_op(any_kernel, &any, b);
        assert_memory_equal(&one, &any, sizeof one);
    }
}

/* What the CPU reduces has the bits of what a kernel reduces pack by pack, whatever the length and the alignment. */
static void the_cpu_reduces_to_the_same_bits(void **state)
{
    enum { INPUTS = 5, SPACE = 512 };
    static uint64_t room[INPUTS + 1][SPACE / 8 + 2];
    (void) state;
    for (uint32_t i = 0; i < GPUSYM_OP_COUNT * GPUSYM_T_COUNT * 50; i++) {
        const uint32_t op = i % GPUSYM_OP_COUNT, type = i / GPUSYM_OP_COUNT % GPUSYM_T_COUNT;
        if (!gpusym_op_valid(op, type)) {
            continue;
        }
        const gpusym_work_t w = {.op = op, .type = type};
        const gs_kernel_t kernel = {&w, op, type, true, 0, 0, false, {{0, 0}}, false};
        const size_t one = gpusym_type_bytes(type);
        const uint64_t bytes = (1 + next_random() % (SPACE / one)) * one;
        const uint32_t n = 1 + (uint32_t) (next_random() % INPUTS);
        const void *src[INPUTS];
        for (uint32_t s = 0; s < n; s++) {
            for (size_t k = 0; k < sizeof room[s] / sizeof room[s][0]; k++) {
                room[s][k] = next_random() & NO_NAN;
            }
            src[s] = (const char *) room[s] + next_random() % 2 * (one < 8 ? one : 8);
        }
        char *dst = (char *) room[INPUTS] + next_random() % 2 * (one < 8 ? one : 8);
        memset(room[INPUTS], 0x5a, sizeof room[INPUTS]);
        gpusym_kernel_reduce_on_cpu(op, type, src, n, dst, bytes);
        for (uint64_t off = 0; off < bytes; off += 16) {
            const size_t part = bytes - off < 16 ? (size_t) (bytes - off) : 16;
            gs_pack_t v = {{0, 0}};
            memcpy(&v, (const char *) src[0] + off, part);
            gs_acc_t acc = gs_acc_start(type, v);
            for (uint32_t s = 1; s < n; s++) {
                v = (gs_pack_t){{0, 0}};
                memcpy(&v, (const char *) src[s] + off, part);
                gs_acc_op(kernel, &acc, v);
            }
            v = gs_acc_end(type, &acc);
            assert_memory_equal(dst + off, &v, part);
        }
        for (const char *p = dst + bytes; p < (const char *) (room[INPUTS] + SPACE / 8 + 2); p++) {
            assert_int_equal(*p, 0x5a);
        }
    }
}

/* ---- moving ---- */

/* A block's threads, run one after the other, copy every byte and no other, whatever the alignment of either end. */
static void copies_of_any_alignment_and_length(void **state)
{
    (void) state;
    for (unsigned n = 0; n < 16 * 16 * 8; n++) {
        static const uint64_t lengths[] = {1, 7, 16, 31, 100, 1024, 1040, 2999};
        const unsigned to = n % 16, from = n / 16 % 16;
        const uint64_t bytes = lengths[n / 256];
        const uint32_t threads = 1 + (uint32_t) (next_random() % 40);
        uint8_t *dst = aligned_alloc(16, 3072), *src = aligned_alloc(16, 3072);
        assert_true(NULL != dst && NULL != src);
        for (uint64_t i = 0; i < 3072; i++) {
            src[i] = (uint8_t) next_random();
        }
        memset(dst, 0x5a, 3072);
        for (uint32_t t = 0; t < threads; t++) {
            const gs_ctx_t c = {t, threads, 0, 1};
            gs_copy(c, (char *) dst + to, (const char *) src + from, bytes);
        }
        assert_memory_equal(dst + to, src + from, bytes);
        for (uint64_t i = 0; i < 3072; i++) {
            assert_true((i >= to && i < to + bytes) || 0x5a == dst[i]);
        }
        free(dst);
        free(src);
    }
}

/* Whatever the number of threads and pieces: each piece has all threads of one share, in whole warps. */
/* Every thread is one of a share, and the only one there of its number; shares are whole warps, as even as can be. */
static void check_shares(uint32_t threads, uint32_t lanes, uint32_t parts)
{
    uint32_t size[GPUSYM_THREADS_MAX] = {0}, found[GPUSYM_THREADS_MAX] = {0}, share, shares = 0;
    bool there[GPUSYM_THREADS_MAX][GPUSYM_THREADS_MAX] = {{false}};
    for (uint32_t t = 0; t < threads; t++) {
        const gs_ctx_t mine = gs_share((gs_ctx_t){t, threads, 3, 7}, lanes, parts, &share, &shares);
        assert_true(3 == mine.block && 7 == mine.nblocks && share < shares);
        assert_int_equal(shares, parts < 2 ? 1 : parts < threads / lanes ? parts : threads / lanes);
        assert_true(mine.thread < mine.nthreads && mine.thread % lanes == t % lanes);
        assert_true(0 == mine.nthreads % lanes && (0 == size[share] || mine.nthreads == size[share]));
        assert_false(there[share][mine.thread]);
        there[share][mine.thread] = true;
        size[share] = mine.nthreads;
        found[share]++;
    }
    for (share = 0; share < shares; share++) {
        assert_int_equal(found[share], size[share]);
        assert_true(size[share] + lanes >= size[0] && size[share] <= size[0]);
    }
}

static void shares_are_whole(void **state)
{
    (void) state;
    for (uint32_t parts = 0; parts <= GPUSYM_TEAM_MAX; parts++) {
        for (uint32_t threads = 32; threads <= GPUSYM_THREADS_MAX; threads += 32) {
            check_shares(threads, 32, parts);
        }
        for (uint32_t threads = 1; threads <= 40; threads++) {
            check_shares(threads, 1, parts);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_widens_exactly_and_returns),
        cmocka_unit_test(ties_round_to_even),
        cmocka_unit_test(random_floats_round_to_nearest),
        cmocka_unit_test(alignment_is_the_lowest_bit),
        cmocka_unit_test(loads_of_any_alignment_and_end),
        cmocka_unit_test(stores_of_any_alignment_and_end),
        cmocka_unit_test(a_line_is_refused_until_both_flags_are_there),
        cmocka_unit_test(a_line_has_its_documented_layout),
        cmocka_unit_test(equal_operands_stay_what_they_are),
        cmocka_unit_test(small_floats_accumulate_in_f32),
        cmocka_unit_test(the_generic_choice_is_the_same),
        cmocka_unit_test(the_cpu_reduces_to_the_same_bits),
        cmocka_unit_test(copies_of_any_alignment_and_length),
        cmocka_unit_test(shares_are_whole),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests_name("reduce", tests, NULL, NULL);
}
