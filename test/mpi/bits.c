/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: the bits of a reduction depend on nothing but the ranks' elements: every algorithm that reduces by
 * itself, with every chunk, number of blocks and threads, straight between the users' buffers or not, in place or not,
 * at any alignment, and cut into two calls anywhere, gives those of ((a0 op a1) op a2) op ..., computed here one
 * element at a time. The elements' sums and products come out otherwise in any other order.
 *
 * With coll_gpusym_reproducible the algorithms in which the switch reduces, and the rings, chains and trees that
 * reduce, are not to be had, even by name. Without they are tested to run, where the team has what they want: their
 * bits come of another order.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "test/mpi/check.h"
#include "test/mpi/mpit.h"

#define USAGE "[--seed N] [--rounds N] [--count ELEMENTS]"
#define RANKS_MAX 32
#define ALIGNMENTS 64             /* bytes that a buffer may be moved by */
#define MAPPED ((size_t) 2 << 20) /* allocations of so many bytes can be mapped by peers, on GPUs too */
#define NEVER (1u << 30)          /* a coll_gpusym_zero_copy_min that nothing here reaches */

/* What is tested, with the name in the component's variables. */
#define COLLECTIVES(X)                            \
    X(ALLREDUCE, allreduce)                       \
    X(REDUCE, reduce)                             \
    X(REDUCE_SCATTER, reduce_scatter)             \
    X(REDUCE_SCATTER_BLOCK, reduce_scatter_block) \
    X(SCAN, scan)                                 \
    X(EXSCAN, exscan)

typedef struct {
    enum gpusym_collective id;
    const char *name;
} coll_t;

static const coll_t colls[] = {
#define X(ID, name) {GPUSYM_COLL_##ID, #name},
    COLLECTIVES(X)
#undef X
};

typedef struct {
    const char *name;
    MPI_Datatype type;
    MPI_Op op;
    bool twice;     /* f64, else f32 */
    size_t scalars; /* of an element */
} data_t;

/* One call, or the same in two parts. */
typedef struct {
    const coll_t *coll;
    const data_t *data;
    unsigned chunk, blocks, threads, least; /* coll_gpusym_chunk, ..., coll_gpusym_zero_copy_min */
    bool in_place;
    int root;
    size_t cut, in_at, out_at; /* elements of the first part; bytes behind the buffers' beginnings */
    uint64_t seed;
} case_t;

typedef struct {
    check_t t;
    int me, n;
    size_t count;                    /* elements of the message */
    unsigned char *in, *out;         /* device memory */
    unsigned char *own, *want, *got; /* images */
    size_t room;
} bits_t;

static size_t bytes_of(const data_t *d)
{
    return d->scalars * (d->twice ? sizeof(double) : sizeof(float));
}

/* Scalar i of rank r: all mantissa bits, and exponents so far apart that hardly a sum is exact. */
static double value(uint64_t seed, int r, size_t i)
{
    const uint64_t x = ref_mix(seed + 0x9e3779b97f4a7c15u * (uint64_t) (r + 1) + i);
    const double mantissa = 1 + (double) (x >> 12) / 4503599627370496.0;

    return ldexp(x & 1 ? -mantissa : mantissa, (int) (x >> 1 & 7) - 4);
}

static void fill(const data_t *d, uint64_t seed, int r, size_t n, void *to)
{
    for (size_t i = 0; i < n * d->scalars; i++) {
        const double v = value(seed, r, i);

        if (d->twice) {
            ((double *) to)[i] = v;
        } else {
            ((float *) to)[i] = (float) v;
        }
    }
}

/* Ranks [0, end) in their order, each step rounded to the element's own precision. */
static void expect(const data_t *d, uint64_t seed, int end, size_t n, void *to)
{
    fill(d, seed, 0, n, to);
    for (size_t i = 0; i < n * d->scalars; i++) {
        for (int r = 1; r < end; r++) {
            const double v = value(seed, r, i);

            if (d->twice) {
                double *a = (double *) to + i;
                *a = MPI_SUM == d->op ? *a + v : *a * v;
            } else {
                float *a = (float *) to + i, b = (float) v;
                *a = MPI_SUM == d->op ? *a + b : *a * b;
            }
        }
    }
}

/* Elements of each rank, of `count` that are scattered; the same on all ranks. */
static void shares(const bits_t *b, const case_t *c, size_t count, int *share)
{
    size_t left = count;

    for (int r = 0; r < b->n; r++) {
        const uint64_t x = ref_mix(c->seed + count * RANKS_MAX + (uint64_t) r);
        size_t n = GPUSYM_COLL_REDUCE_SCATTER_BLOCK == c->coll->id ? count / (size_t) b->n
                   : 0 == x % 8                                    ? 0
                                                                   : (x >> 8) % (2 * count / (size_t) b->n + 1);

        n = n > left || r == b->n - 1 ? left : n;
        share[r] = (int) n;
        left -= n;
    }
}

/* Elements [first, first + count) of the message, by one call. */
static void call_part(const bits_t *b, const case_t *c, size_t first, size_t count, const int *share)
{
    const size_t at = first * bytes_of(c->data);
    unsigned char *out = b->out + c->out_at + at;
    const void *in = c->in_place ? MPI_IN_PLACE : (const void *) (b->in + c->in_at + at);
    MPI_Datatype type = c->data->type;
    MPI_Op op = c->data->op;
    const int n = (int) count;

    switch (c->coll->id) {
    case GPUSYM_COLL_ALLREDUCE:
        MPI_Allreduce(in, out, n, type, op, MPI_COMM_WORLD);
        break;
    case GPUSYM_COLL_REDUCE:
        MPI_Reduce(c->in_place && b->me != c->root ? out : in, out, n, type, op, c->root, MPI_COMM_WORLD);
        break;
    case GPUSYM_COLL_REDUCE_SCATTER:
        MPI_Reduce_scatter(in, out, share, type, op, MPI_COMM_WORLD);
        break;
    case GPUSYM_COLL_REDUCE_SCATTER_BLOCK:
        MPI_Reduce_scatter_block(in, out, share[0], type, op, MPI_COMM_WORLD);
        break;
    case GPUSYM_COLL_SCAN:
        MPI_Scan(in, out, n, type, op, MPI_COMM_WORLD);
        break;
    default:
        MPI_Exscan(in, out, n, type, op, MPI_COMM_WORLD);
        break;
    }
}

static bool same_bits(const bits_t *b, const case_t *c, size_t from, size_t first, size_t n)
{
    const size_t size = bytes_of(c->data);
    const unsigned char *want = b->want + from * size, *got = b->got + first * size;

    for (size_t i = 0; i < n; i++) {
        if (0 != memcmp(want + i * size, got + i * size, size)) {
            fprintf(stderr, "bits: rank %d: element %zu:", b->me, from + i);
            for (size_t k = 0; k < size; k++) {
                fprintf(stderr, " %02x/%02x", got[i * size + k], want[i * size + k]);
            }
            fprintf(stderr, " (got/want)\n");
            return false;
        }
    }
    return true;
}

/* What this rank has of elements [first, first + count) is right. */
static bool part_right(const bits_t *b, const case_t *c, size_t first, size_t count, const int *share)
{
    size_t from = first;

    switch (c->coll->id) {
    case GPUSYM_COLL_REDUCE:
        return b->me != c->root || same_bits(b, c, first, first, count);
    case GPUSYM_COLL_EXSCAN:
        return 0 == b->me || same_bits(b, c, first, first, count);
    case GPUSYM_COLL_REDUCE_SCATTER:
    case GPUSYM_COLL_REDUCE_SCATTER_BLOCK:
        for (int r = 0; r < b->me; r++) {
            from += (size_t) share[r];
        }
        return same_bits(b, c, from, first, (size_t) share[b->me]);
    default:
        return same_bits(b, c, first, first, count);
    }
}

static int sources(const bits_t *b, const case_t *c)
{
    return GPUSYM_COLL_SCAN == c->coll->id ? b->me + 1 : GPUSYM_COLL_EXSCAN == c->coll->id ? b->me : b->n;
}

static bool run_case(bits_t *b, const case_t *c, bool compare)
{
    const size_t count[2] = {c->cut, b->count - c->cut}, size = b->count * bytes_of(c->data);
    int share[2][RANKS_MAX];
    bool ok = true;

    mpit_need("coll_gpusym_chunk", c->chunk);
    mpit_need("coll_gpusym_blocks", c->blocks);
    mpit_need("coll_gpusym_threads", c->threads);
    mpit_need("coll_gpusym_zero_copy_min", c->least);
    fill(c->data, c->seed, b->me, b->count, b->own);
    expect(c->data, c->seed, sources(b, c), b->count, b->want);
    memset(b->got, 0xa5, size);
    mem_write(b->in + c->in_at, b->own, size);
    mem_write(b->out + c->out_at, c->in_place ? b->own : b->got, size);
    for (int i = 0; i < 2; i++) {
        shares(b, c, count[i], share[i]);
        if (count[i] > 0) {
            call_part(b, c, 0 == i ? 0 : c->cut, count[i], share[i]);
        }
    }
    mem_read(b->got, b->out + c->out_at, size);
    for (int i = 0; compare && i < 2; i++) {
        ok = ok && part_right(b, c, 0 == i ? 0 : c->cut, count[i], share[i]);
    }
    return ok;
}

static void say(const bits_t *b, const case_t *c, const char *algorithm, const char *what)
{
    fprintf(
        stderr,
        "bits: FAIL on rank %d: %s %s: %s %s, chunk %u, %u blocks of %u threads, zero copy from %u, %scut at %zu of "
        "%zu, offsets %zu and %zu, root %d, seed %llu: %s\n",
        b->me, c->coll->name, algorithm, c->data->name, MPI_SUM == c->data->op ? "sum" : "product", c->chunk, c->blocks,
        c->threads, c->least, c->in_place ? "in place, " : "", c->cut, b->count, c->in_at, c->out_at, c->root,
        (unsigned long long) c->seed, what);
}

/* The details that are drawn; x is the same on all ranks, and so must all be but the offsets. */
static void draw(const bits_t *b, case_t *c, uint64_t x)
{
    const size_t unit = c->data->twice ? sizeof(double) : sizeof(float);
    const uint64_t own = ref_mix(x + 7 * (uint64_t) b->me);

    c->seed = x;
    c->threads = (unsigned[]){0, 32, 96, 256}[x % 4];
    c->root = (int) ((x >> 8) % (uint64_t) b->n);
    c->cut = 0 == (x >> 16) % 3 ? 0 : (x >> 20) % (b->count + 1);
    if (GPUSYM_COLL_REDUCE_SCATTER_BLOCK == c->coll->id) {
        c->cut -= c->cut % (size_t) b->n;
    }
    c->in_at = own & 1 ? 0 : (own >> 8) % (ALIGNMENTS / unit) * unit;
    c->out_at = own & 2 ? 0 : (own >> 16) % (ALIGNMENTS / unit) * unit;
}

/* Whether an algorithm wants users' buffers to be mapped, and they are not. */
static bool unmapped(const case_t *c, size_t a)
{
    return gpusym_family_copies(gpusym_algorithm_family((unsigned) a)) && GPUSYM_COLL_REDUCE_SCATTER != c->coll->id &&
           GPUSYM_COLL_REDUCE_SCATTER_BLOCK != c->coll->id && NEVER == c->least;
}

/* reproducible: the algorithm must not run if it has another order than the ranks', another must; else it must run. */
static void one_case(bits_t *b, case_t *c, size_t a, bool reproducible)
{
    const bool ordered = gpusym_algorithm_reproducible((unsigned) a),
               refused = (reproducible && !ordered) || unmapped(c, a);
    const unsigned calls = (c->cut > 0) + (b->count > c->cut);
    unsigned long long ran, native, rose;
    char name[64];
    bool ok;

    snprintf(name, sizeof(name), "native_%s", mpit_algorithms[a].name);
    mpit_algorithm(c->coll->name, mpit_algorithms[a].name);
    ran = mpit_count(c->coll->name, name);
    native = mpit_count(c->coll->name, "native");
    ok = run_case(b, c, ordered || refused);
    if (!ok) {
        say(b, c, mpit_algorithms[a].name, "other bits");
    }
    rose = mpit_count(c->coll->name, name) - ran;
    if (rose != (refused ? 0 : calls) || mpit_count(c->coll->name, "native") - native != calls) {
        say(b, c, mpit_algorithms[a].name, refused ? "it ran, or none of the GPU's" : "another ran");
        ok = false;
    }
    mpit_algorithm(c->coll->name, "auto");
    check_result(&b->t, ok);
}

/* An algorithm with one kind of data: all chunks, blocks, ways, in place and not; few of them where no bits are
 * compared, or those of the table's algorithm. */
static void cases(bits_t *b, const coll_t *coll, const data_t *data, size_t a, bool reproducible, uint64_t x)
{
    static const unsigned chunks[] = {0, 512, 16384}, blocks[] = {0, 1, 3}, least[] = {1, NEVER};

    const size_t step = gpusym_algorithm_reproducible((unsigned) a) ? 1 : 5; /* every chunk, number of blocks and way */

    for (size_t i = 0; i < 3 * 3 * 2 * 2; i += step) {
        case_t c = {.coll = coll,
                    .data = data,
                    .chunk = chunks[i % 3],
                    .blocks = blocks[i / 3 % 3],
                    .least = least[i / 9 % 2],
                    .in_place = i / 18};

        draw(b, &c, ref_mix(x + i));
        one_case(b, &c, a, reproducible);
    }
    check_collect(&b->t);
}

/* Whether an algorithm of the all-reduce is to be had by name. */
static bool is_had(bits_t *b, const char *name)
{
    unsigned long long before;
    char which[64];

    snprintf(which, sizeof(which), "native_%s", name);
    before = mpit_count("allreduce", which);
    mpit_algorithm("allreduce", name);
    MPI_Allreduce(b->in, b->out, 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    mpit_algorithm("allreduce", "auto");
    return mpit_count("allreduce", which) > before;
}

/* What algorithms want that a team may not have. */
typedef struct {
    bool reproducible, multicast, ll128;
} has_t;

/* The switch adds and compares numbers, nothing else: sums of real ones. */
static bool wanted(size_t a, const data_t *data, const has_t *has)
{
    const unsigned family = mpit_algorithms[a].family;

    return has->reproducible ||
           ((!gpusym_family_multicast(family) || (has->multicast && MPI_SUM == data->op && 1 == data->scalars)) &&
            (!gpusym_family_ll128(family) || has->ll128));
}

static void say_what_is_had(bits_t *b, const has_t *has)
{
    const bool rings = is_had(b, "ring_simple"),
               wrong = has->reproducible ? rings || has->multicast || has->ll128 : !rings;

    if (wrong) {
        fprintf(stderr,
                "bits: FAIL on rank %d: with coll_gpusym_reproducible=%d: multicast %d, rings %d, with LL128 %d\n",
                b->me, has->reproducible, has->multicast, rings, has->ll128);
    }
    check_result(&b->t, !wrong);
    if (0 == b->me) {
        printf("multicast: %s\nrings: %s\n", has->multicast ? "yes" : "no", rings ? "yes" : "no");
    }
}

static void all(bits_t *b, uint64_t seed, uint64_t rounds, bool reproducible)
{
    const data_t data[] = {{"float", MPI_FLOAT, MPI_SUM, false, 1},
                           {"double", MPI_DOUBLE, MPI_SUM, true, 1},
                           {"float", MPI_FLOAT, MPI_PROD, false, 1},
                           {"complex float", MPI_C_FLOAT_COMPLEX, MPI_SUM, false, 2},
                           {"complex double", MPI_C_DOUBLE_COMPLEX, MPI_SUM, true, 2}};
    const has_t has = {reproducible, is_had(b, "agxllmc_r"), is_had(b, "ring_ll128")};
    uint64_t x = seed;

    say_what_is_had(b, &has);
    for (uint64_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < (size_t) GPUSYM_ALG_COUNT * sizeof(colls) / sizeof(colls[0]); i++) {
            const size_t a = i % GPUSYM_ALG_COUNT;
            const coll_t *coll = &colls[i / GPUSYM_ALG_COUNT];

            for (size_t d = 0; mpit_algorithms[a].coll == coll->id && d < sizeof(data) / sizeof(data[0]); d++) {
                x = ref_mix(x + 1);
                if (wanted(a, &data[d], &has)) {
                    cases(b, coll, &data[d], a, reproducible, x);
                }
            }
        }
    }
}

static void buffers(bits_t *b)
{
    b->room = b->count * 2 * sizeof(double) + ALIGNMENTS;
    b->in = mem_alloc(MEM_DEVICE, b->room < MAPPED ? MAPPED : b->room);
    b->out = mem_alloc(MEM_DEVICE, b->room < MAPPED ? MAPPED : b->room);
    b->own = calloc(3, b->room);
    if (NULL == b->in || NULL == b->out || NULL == b->own) {
        fprintf(stderr, "bits: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    b->want = b->own + b->room;
    b->got = b->want + b->room;
    mem_write(b->in, b->own, b->room);
}

int main(int argc, char **argv)
{
    static bits_t b;
    uint64_t seed, rounds;
    unsigned reproducible = 0;
    long failed = 0;
    bool native;

    check_init(&argc, &argv, "bits", MPI_THREAD_SINGLE);
    seed = check_seed();
    rounds = check_number("--rounds", 1);
    b.count = (size_t) check_number("--count", 4000);
    check_arguments_end(USAGE);
    check_start(&b.t, "bits", MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.me);
    MPI_Comm_size(MPI_COMM_WORLD, &b.n);
    b.count -= b.count % (size_t) b.n;
    native = mem_have(MEM_DEVICE) && b.n > 1 && b.n <= RANKS_MAX && check_native(MEM_DEVICE);
    if (native) {
        mpit_get("coll_gpusym_reproducible", &reproducible);
        buffers(&b);
        all(&b, seed, rounds, 0 != reproducible);
        mem_free(MEM_DEVICE, b.in);
        mem_free(MEM_DEVICE, b.out);
        free(b.own);
    }
    failed = check_end(&b.t);
    check_print("bits", b.t.passed, b.t.failed);
    if (!native && 0 == b.me) {
        printf("bits: needs 2 ranks or more whose device memory the kernels reach\n");
    }
    return native ? check_fini(failed) : (check_fini(0), CHECK_SKIPPED);
}
