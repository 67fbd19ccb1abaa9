/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: MPI_Allreduce with every type x operation x count x in place or not x alignment, on every kind of
 * memory, against ref.h.  The kind "device" (where there is none: "host") gets the whole product, the others a
 * part of it, unless --full or --quick say otherwise.  The same seed repeats the same calls.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"

#define USAGE \
    "[--seed N] [--kinds host,device,managed,registered,async] [--full] [--quick] [--big] [--type NAME] [--op NAME]"

/* How much of the product. */
enum depth { QUICK, PART, WHOLE, BIG };

/* Consecutive calls work on other elements of the pool, so that no stale result is right by chance. */
#define SHIFT 29
#define SHIFTS 37
#define BIG_COUNT ((size_t) 1 << 20)

enum alignment { NATURAL, ONE_ELEMENT, ODD, ALIGNMENTS };

static const size_t counts[] = {1, 2, 3, 7, 8, 1023};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

/* For BIG: one of each way through the kernels, and one without a kernel. On 2 ranks a part of the others too. */
static const struct {
    const char *type, *op;
} few[] = {{"MPI_FLOAT", "MPI_SUM"},         {"MPI_DOUBLE", "MPI_SUM"},
           {"MPI_DOUBLE", "MPI_MAX"},        {"MPI_INT", "MPI_SUM"},
           {"MPI_INT8_T", "MPI_BXOR"},       {"MPI_UINT16_T", "MPI_PROD"},
           {"MPI_DOUBLE_INT", "MPI_MINLOC"}, {"MPI_C_DOUBLE_COMPLEX", "MPI_PROD"},
           {"MPI_LONG_DOUBLE", "MPI_SUM"}};

/* The result of elements [0, n) of one case. */
typedef struct {
    unsigned char *want;
    long double *tol;
    size_t n;
} pool_t;

static void offsets(enum alignment a, size_t bytes, int rank, check_call_t *k)
{
    switch (a) {
    case NATURAL:
        k->soff = k->roff = 0;
        return;
    case ONE_ELEMENT:
        k->soff = k->roff = bytes;
        return;
    default: /* odd, and other ones on every rank */
        k->soff = (size_t) (2 * (rank % 8) + 1);
        k->roff = (size_t) (2 * (rank * 3 % 8) + 3);
    }
}

static bool wanted(enum depth depth, size_t count, enum alignment a, bool in_place)
{
    switch (depth) {
    case QUICK:
        return (1 == count && NATURAL == a && in_place) || (1023 == count && ODD == a && !in_place);
    case PART:
        return (1 == count || 1023 == count) && ONE_ELEMENT != a;
    default:
        return true;
    }
}

static void call(check_t *t, const ref_case_t *c, const pool_t *pool, int kind, size_t count, enum alignment a,
                 bool in_place)
{
    check_call_t k = {.comm = MPI_COMM_WORLD,
                      .c = c,
                      .contribute = -1,
                      .count = count,
                      .in_place = in_place,
                      .skind = kind,
                      .rkind = kind};
    size_t first = t->calls % SHIFTS * SHIFT;

    first = first + count <= pool->n ? first : 0;
    offsets(a, c->type->bytes, t->rank, &k);
    k.first = first;
    k.want = pool->want + first * c->type->bytes;
    k.tol = pool->tol + 2 * first;
    check_run(t, &k);
}

static void all_calls(check_t *t, const ref_case_t *c, int kind, enum depth depth)
{
    pool_t pool = {.n = (BIG == depth ? BIG_COUNT : counts[COUNTS - 1]) + SHIFT * SHIFTS};

    pool.want = calloc(pool.n, c->type->bytes);
    pool.tol = malloc(pool.n * 2 * sizeof(*pool.tol));
    if (NULL == pool.want || NULL == pool.tol) {
        fprintf(stderr, "no memory for %zu elements\n", pool.n);
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    ref_expect(c, 0, pool.n, pool.want, pool.tol);
    if (BIG == depth) {
        call(t, c, &pool, kind, BIG_COUNT, NATURAL, false);
        call(t, c, &pool, kind, BIG_COUNT, ODD, true);
    }
    for (size_t n = 0; BIG != depth && n < COUNTS; n++) {
        for (int a = 0; a < ALIGNMENTS; a++) {
            for (int in_place = 0; in_place < 2; in_place++) {
                if (wanted(depth, counts[n], a, in_place)) {
                    call(t, c, &pool, kind, counts[n], a, in_place);
                }
            }
        }
    }
    check_collect(t);
    free(pool.want);
    free(pool.tol);
}

static bool among_few(const ref_type_t *type, const ref_op_t *op)
{
    for (size_t i = 0; i < sizeof(few) / sizeof(few[0]); i++) {
        if (0 == strcmp(few[i].type, type->name) && 0 == strcmp(few[i].op, op->name)) {
            return true;
        }
    }
    return false;
}

static void run_kind(check_t *t, uint64_t seed, int kind, enum depth depth, const char *type_name, const char *op_name)
{
    bool native = check_native(kind);
    int lacking = 0, wrong = 0;

    if (0 == t->rank) {
        printf("%s memory: %s%s\n", mem_name(kind), native ? "native" : "not native",
               BIG == depth     ? ", big"
               : QUICK == depth ? ", quick"
               : PART == depth  ? ", part"
                                : "");
        fflush(stdout);
    }
    for (int i = 0; i < ref_ntypes(); i++) {
        for (int j = 0; j < ref_nops(); j++) {
            const ref_type_t *type = ref_type(i);
            const ref_op_t *op = ref_op(j);
            ref_case_t c = {.type = type,
                            .op = op,
                            .seed = ref_mix(seed + (uint64_t) (i * 100 + j) * 10 + (uint64_t) kind),
                            .nranks = t->nranks};

            if (!ref_allowed(type, op) || (NULL != type_name && 0 != strcmp(type_name, type->name)) ||
                (NULL != op_name && 0 != strcmp(op_name, op->name)) ||
                (BIG == depth && (t->nranks > 2 || 0 != c.seed % 8) && !among_few(type, op))) {
                continue;
            }
            if (check_prepare(&c, native)) {
                all_calls(t, &c, kind, depth);
            } else if (CHECK_LACKS == check_library(type, op)) {
                lacking++;
            } else {
                wrong++;
            }
        }
    }
    if (0 == t->rank && lacking + wrong > 0) {
        printf("left out: %d pairs of type and operation that this MPI library lacks, %d that it gets wrong itself\n",
               lacking, wrong);
    }
}

int main(int argc, char **argv)
{
    check_t t;
    int kinds[CHECK_KINDS], n;
    bool full, quick, big;
    const char *type_name, *op_name;
    double start;
    uint64_t seed;
    long failed;

    check_init(&argc, &argv, "allreduce", MPI_THREAD_SINGLE);
    seed = check_seed();
    n = check_kinds(kinds);
    full = check_flag("--full");
    quick = check_flag("--quick");
    big = check_flag("--big");
    type_name = check_option("--type");
    op_name = check_option("--op");
    check_arguments_end(USAGE);

    start = MPI_Wtime();
    check_start(&t, "allreduce", MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) {
        bool whole = full || MEM_DEVICE == kinds[i] || 1 == n;

        run_kind(&t, seed, kinds[i], quick ? QUICK : whole ? WHOLE : PART, type_name, op_name);
        if (big) {
            run_kind(&t, seed + 1, kinds[i], BIG, type_name, op_name);
        }
        check_forget(&t);
    }
    if (0 == t.rank) {
        printf("%d types, %.1f s\n", ref_ntypes(), MPI_Wtime() - start);
    }
    failed = check_end(&t);
    check_print("allreduce", t.passed, t.failed);
    return check_fini(failed);
}
