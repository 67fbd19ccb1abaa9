/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Inputs, and the check of results: see content.h.
 */
#include <string.h>

#include "bench/content.h"
#include "bench/memory.h"
#include "bench/ranks.h"
#include "test/mpi/mem.h"

#define CHUNK ((size_t) 1 << 20) /* bytes made or verified at once on the host */
#define POISON 0xa5              /* every byte: no whole number of float or double, no small one of the others */

#define BENCH_TYPE(name, c_type, mpi, nccl) "|" #name
const char bench_type_names[] = BENCH_TYPE_LIST;
#undef BENCH_TYPE
#define BENCH_OP(name, mpi, nccl) "|" #name
const char bench_op_names[] = BENCH_OP_LIST;
#undef BENCH_OP

static int type = BENCH_TYPE_float, op = BENCH_OP_sum;
static uint32_t seed;
static void *chunk;

/* ---- types and operations ---------------------------------------------------------------------------------------- */

bool bench_set_type(const char *name)
{
#define BENCH_TYPE(text, c_type, mpi, nccl) \
    if (0 == strcmp(name, #text)) {         \
        type = BENCH_TYPE_##text;           \
        return true;                        \
    }
    BENCH_TYPE_LIST
#undef BENCH_TYPE
    return false;
}

bool bench_set_op(const char *name)
{
#define BENCH_OP(text, mpi, nccl)   \
    if (0 == strcmp(name, #text)) { \
        op = BENCH_OP_##text;       \
        return true;                \
    }
    BENCH_OP_LIST
#undef BENCH_OP
    return false;
}

static void add_up(void *in, void *inout, int *n, MPI_Datatype *mpi)
{
    (void) mpi; /* that of bench_type() */
    switch (type) {
#define BENCH_TYPE(name, c_type, handle, nccl) \
    case BENCH_TYPE_##name: {                  \
        const c_type *a = in;                  \
        c_type *b = inout;                     \
        for (int i = 0; i < *n; i++) {         \
            b[i] = (c_type) (a[i] + b[i]);     \
        }                                      \
        break;                                 \
    }
        BENCH_TYPE_LIST
#undef BENCH_TYPE
    default:
        break;
    }
}

MPI_Op bench_user_sum(void)
{
    static MPI_Op made;
    static bool is_made;
    if (!is_made) {
        MPI_Op_create(add_up, 1, &made);
        is_made = true;
    }
    return made;
}

/* MPI's handles are no constants everywhere: the tables are filled when they are first used. */
const bench_type_t *bench_type(void)
{
    static bench_type_t types[BENCH_TYPES];

#define BENCH_TYPE(name, c_type, mpi, nccl) types[BENCH_TYPE_##name] = (bench_type_t){#name, sizeof(c_type), mpi, nccl};
    BENCH_TYPE_LIST
#undef BENCH_TYPE
    return &types[type];
}

const bench_op_t *bench_op(void)
{
    static bench_op_t ops[BENCH_OPS];

#define BENCH_OP(name, mpi, nccl) ops[BENCH_OP_##name] = (bench_op_t){#name, mpi, nccl};
    BENCH_OP_LIST
#undef BENCH_OP
    return &ops[op];
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

void bench_content_open(void)
{
    chunk = bench_host_alloc(CHUNK);
}

void bench_content_close(void)
{
    bench_host_free(chunk);
    chunk = NULL;
}

void bench_content_seed(unsigned new_seed)
{
    seed = new_seed;
}

/* 32 random bits of element i. */
static uint32_t make_bits(size_t i, int group)
{
    uint32_t h = ((uint32_t) i + (uint32_t) group * 0x51ed270bu) * 0x9e3779b1u + seed;

    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    return h ^ (h >> 16);
}

static bool is_unsigned(void)
{
    return BENCH_TYPE_uint8 == type || BENCH_TYPE_uint32 == type || BENCH_TYPE_uint64 == type;
}

/* Made of four bits for each rank of a group of eight. */
static int64_t make_term(uint32_t bits, int r)
{
    static const int factors[] = {1, -1, 2, 1};
    const int nibble = (int) (bits >> (4 * (r % 8)) & 15);

    return BENCH_OP_prod == op ? factors[nibble % 4] : is_unsigned() ? nibble : nibble - 8;
}

static int64_t combine(int64_t a, int64_t b)
{
    switch (op) {
    case BENCH_OP_prod:
        return a * b;
    case BENCH_OP_max:
        return a > b ? a : b;
    case BENCH_OP_min:
        return a < b ? a : b;
    default:
        return a + b;
    }
}

int64_t bench_term_of(size_t i, int r)
{
    return make_term(make_bits(i, r / 8), r);
}

int64_t bench_value_of(size_t i, int r)
{
    return make_bits(i, r) & 0xffffff;
}

int64_t bench_reduced_of(size_t i, int first, int end)
{
    uint32_t bits = make_bits(i, first / 8);
    int64_t value = make_term(bits, first);

    for (int r = first + 1; r < end; r++) {
        bits = 0 == r % 8 ? make_bits(i, r / 8) : bits;
        value = combine(value, make_term(bits, r));
    }
    return value;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Elements [first, first + n) of our input, to chunk. */
static void make_chunk(size_t first, size_t n, int64_t (*content)(size_t i, int r))
{
    switch (type) {
#define BENCH_TYPE(name, c_type, mpi, nccl)                                  \
    case BENCH_TYPE_##name:                                                  \
        for (size_t i = 0; i < n; i++) {                                     \
            ((c_type *) chunk)[i] = (c_type) content(first + i, bench_rank); \
        }                                                                    \
        break;
        BENCH_TYPE_LIST
#undef BENCH_TYPE
    }
}

/* How many of those in chunk are wrong. */
static unsigned long long compare(size_t first, size_t n, int64_t (*expected)(size_t i, const void *arg),
                                  const void *arg)
{
    unsigned long long wrong = 0;

    switch (type) {
#define BENCH_TYPE(name, c_type, mpi, nccl)                                               \
    case BENCH_TYPE_##name:                                                               \
        for (size_t i = 0; i < n; i++) {                                                  \
            wrong += !(((const c_type *) chunk)[i] == (c_type) expected(first + i, arg)); \
        }                                                                                 \
        break;
        BENCH_TYPE_LIST
#undef BENCH_TYPE
    }
    return wrong;
}

void bench_content_write(void *p, size_t n, int64_t (*content)(size_t i, int r))
{
    const size_t size = bench_type()->bytes, most = CHUNK / size;

    for (size_t first = 0, part; first < n; first += part) {
        part = n - first < most ? n - first : most;
        make_chunk(first, part, content);
        mem_write((char *) p + first * size, chunk, part * size);
    }
}

void bench_content_poison(void *p, size_t bytes)
{
    memset(chunk, POISON, CHUNK);
    for (size_t at = 0; at < bytes; at += CHUNK) {
        mem_write((char *) p + at, chunk, bytes - at < CHUNK ? bytes - at : CHUNK);
    }
}

unsigned long long bench_content_wrong(const void *p, size_t n, int64_t (*expected)(size_t i, const void *arg),
                                       const void *arg)
{
    const size_t size = bench_type()->bytes, most = CHUNK / size;
    unsigned long long wrong = 0;

    for (size_t first = 0, part; first < n; first += part) {
        part = n - first < most ? n - first : most;
        mem_read(chunk, (const char *) p + first * size, part * size);
        wrong += compare(first, part, expected, arg);
    }
    return wrong;
}
