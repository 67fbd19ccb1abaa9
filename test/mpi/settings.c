/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun program of test/settings.sh: settings of communicators by info keys. Results are right whatever is set; the
 * component's counters say what served the calls.
 *
 *     settings --what keys       each key, by MPI_Comm_dup_with_info and MPI_Comm_set_info; what MPI_Comm_get_info says
 *              --what changes    between calls, with nonblocking calls in flight, of persistent ones, of several
 *                                communicators in turns
 *              --what random     all of that in any order
 *              --what bad        values that are none
 *              --what others     ranks that set different values, or nothing
 *              --what named      calls on communicators that have a name: for the trace
 */
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/mpi/check.h"
#include "test/mpi/mem.h"
#include "test/mpi/mpit.h"
#include "test/mpi/persistent.h"

#define USAGE "[--what keys|changes|random|bad|others|named] [--count N] [--n STEPS]"
enum { ALIKE = 4, QUEUED = 3, TURNS = 6, WORDS = 4 };

static check_t t;
static int count;
static uint64_t steps;
static int *in, *out, *host;

/* ---- calls ---- */

/* One of each collective that is called here, of `count` integers. */
typedef enum { ALLREDUCE, BCAST, ALLGATHER, RS_BLOCK } coll_t;
static const char *const colls[] = {"allreduce", "bcast", "allgather", "reduce_scatter_block"};

static void fill(int first)
{
    for (int i = 0; i < count * t.nranks; i++) {
        host[i] = first + i + t.rank;
    }
    mem_write(in, host, (size_t) (count * t.nranks) * sizeof *host);
}

static int sum_of(int i)
{
    return t.nranks * i + t.nranks * (t.nranks - 1) / 2;
}

/* Makes a call; whether the result is right. */
static bool call_one(coll_t coll, MPI_Comm comm)
{
    const int n = ALLGATHER == coll ? count * t.nranks : count;
    int *result = BCAST == coll ? in : out;
    bool right = true;

    fill(7);
    switch (coll) {
    case ALLREDUCE:
        MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm);
        break;
    case BCAST:
        MPI_Bcast(in, count, MPI_INT, 0, comm);
        break;
    case ALLGATHER:
        MPI_Allgather(in, count, MPI_INT, out, count, MPI_INT, comm);
        break;
    case RS_BLOCK:
        MPI_Reduce_scatter_block(in, out, count, MPI_INT, MPI_SUM, comm);
        break;
    }
    mem_read(host, result, (size_t) n * sizeof *host);
    for (int i = 0; i < n; i++) {
        const int want = ALLREDUCE == coll   ? sum_of(7 + i)
                         : BCAST == coll     ? 7 + i
                         : ALLGATHER == coll ? 7 + i % count + i / count
                                             : sum_of(7 + i + count * t.rank);
        right = right && host[i] == want;
    }
    return right;
}

/* A check that fails says what. */
__attribute__((format(printf, 2, 3))) static void expect(bool right, const char *format, ...)
{
    va_list ap;

    if (!right) {
        fprintf(stderr, "settings: FAIL on rank %d: ", t.rank);
        va_start(ap, format);
        vfprintf(stderr, format, ap);
        va_end(ap);
        fprintf(stderr, "\n");
    }
    check_result(&t, right);
}

/* Makes calls; which: the counter that rises by one for each, and no other does. */
static void expect_calls(coll_t coll, MPI_Comm comm, const char *which, const char *why)
{
    bool right = true;
    const unsigned long long before = mpit_count(colls[coll], which);

    for (int i = 0; i < ALIKE; i++) {
        right = call_one(coll, comm) && right;
    }
    const unsigned long long rise = mpit_count(colls[coll], which) - before;
    expect(right, "%s: wrong result of %s", why, colls[coll]);
    expect(ALIKE == rise, "%s: %s_%s has risen by %llu, not by %d", why, colls[coll], which, rise, ALIKE);
}

/* Algorithms of all-reduce. */
static const char *const words[WORDS] = {"ring_ll", "rsxld_agxst", "ring_simple", "agxll_r"};

/* ---- settings ---- */

/* An info of pairs KEY, VALUE, and NULL behind them. */
static MPI_Info make_info(va_list ap)
{
    MPI_Info info;

    MPI_Info_create(&info);
    for (const char *key; NULL != (key = va_arg(ap, const char *));) {
        MPI_Info_set(info, key, va_arg(ap, const char *));
    }
    return info;
}

static void set(MPI_Comm comm, ...)
{
    va_list ap;

    va_start(ap, comm);
    MPI_Info info = make_info(ap);
    va_end(ap);
    MPI_Comm_set_info(comm, info);
    MPI_Info_free(&info);
}

static MPI_Comm dup_with(MPI_Comm comm, ...)
{
    MPI_Comm made;
    va_list ap;

    va_start(ap, comm);
    MPI_Info info = make_info(ap);
    va_end(ap);
    MPI_Comm_dup_with_info(comm, info, &made);
    MPI_Info_free(&info);
    return made;
}

/* Whether MPI_Comm_get_info says so; value NULL: has no such key. */
/* Reads a key of a communicator into value, of `size` bytes. Returns whether it has it. */
static bool get_key(MPI_Comm comm, const char *key, char *value, int size)
{
    int flag;
    MPI_Info info;

    MPI_Comm_get_info(comm, &info);
#if MPI_VERSION >= 4
    MPI_Info_get_string(info, key, &size, value, &flag);
#else
    MPI_Info_get(info, key, size - 1, value, &flag);
#endif
    MPI_Info_free(&info);
    return 0 != flag;
}

static void expect_key(MPI_Comm comm, const char *key, const char *value)
{
    char found[128] = "";
    const bool flag = get_key(comm, key, found, sizeof(found));

    expect(NULL == value ? !flag : flag && 0 == strcmp(value, found), "%s is \"%s\", not \"%s\"", key,
           flag ? found : "(none)", NULL == value ? "(none)" : value);
}

/* ---- each key ---- */

static void test_algorithms(void)
{
    MPI_Comm comm = dup_with(MPI_COMM_WORLD, "gpusym_allreduce_algorithm", "ring_ll", "gpusym_bcast_algorithm", "st",
                             "gpusym_reduce_scatter_block", "ring_simple", "some_other_key", "x", NULL);

    expect_key(comm, "gpusym_allreduce_algorithm", "ring_ll");
    expect_key(comm, "gpusym_bcast_algorithm", "st");
    expect_key(comm, "gpusym_reduce_scatter_block", "ring_simple");
    expect_key(comm, "gpusym_allgather_algorithm", NULL);
    expect_key(MPI_COMM_WORLD, "gpusym_allreduce_algorithm", NULL);
    expect_calls(ALLREDUCE, comm, "native_ring_ll", "dup_with_info");
    expect_calls(BCAST, comm, "native_st", "dup_with_info");
    expect_calls(RS_BLOCK, comm, "native_ring_simple", "dup_with_info");
    set(comm, "gpusym_allreduce_algorithm", "rsxld_agxst", NULL);
    expect_key(comm, "gpusym_allreduce_algorithm", "rsxld_agxst");
    expect_calls(ALLREDUCE, comm, "native_rsxld_agxst", "set_info");
    expect_calls(BCAST, comm, "native_st", "set_info of another key");
    set(comm, "gpusym_allreduce_algorithm", "staged", NULL);
    expect_calls(ALLREDUCE, comm, "staged_forced", "staged");
    set(comm, "gpusym_allreduce_algorithm", "ring_ll", NULL);
    expect_calls(ALLREDUCE, comm, "native_ring_ll", "no longer staged");
    MPI_Comm_free(&comm);
}

/* Open MPI decides whether a duplicate has them. */
static void test_inherited(void)
{
    MPI_Comm comm = dup_with(MPI_COMM_WORLD, "gpusym_allreduce_algorithm", "ring_ll", NULL), other;
    char value[64];

    MPI_Comm_dup(comm, &other);
    const bool flag = get_key(other, "gpusym_allreduce_algorithm", value, sizeof(value));
    set(other, "gpusym_bcast_algorithm", "st", NULL);
    const unsigned long long before = mpit_count("allreduce", "native_ring_ll");
    expect(call_one(ALLREDUCE, other), "wrong result of a duplicate");
    expect(flag == (mpit_count("allreduce", "native_ring_ll") != before), "a duplicate: info %d", flag);
    MPI_Comm_free(&other);
    MPI_Comm_split(comm, 0, -t.rank, &other);
    expect_key(other, "gpusym_allreduce_algorithm", NULL);
    MPI_Comm_free(&other);
    MPI_Comm_free(&comm);
}

static void test_flags(void)
{
    MPI_Comm comm = dup_with(MPI_COMM_WORLD, "gpusym_copy_engines_only", "true", NULL);

    expect_key(comm, "gpusym_copy_engines_only", "true");
    expect_calls(ALLREDUCE, comm, "native_ce", "copy_engines_only");
    expect_calls(ALLGATHER, comm, "native_ce", "copy_engines_only");
    expect_calls(BCAST, comm, "native_ce", "copy_engines_only");
    set(comm, "gpusym_copy_engines_only", "false", "gpusym_allreduce_algorithm", "ring_simple", NULL);
    expect_calls(ALLREDUCE, comm, "native_ring_simple", "another algorithm");
    const unsigned long long before = mpit_count("allreduce", "native_ring_simple");
    set(comm, "gpusym_reproducible", "true", NULL);
    expect(call_one(ALLREDUCE, comm) && mpit_count("allreduce", "native_ring_simple") == before,
           "a ring is not reproducible, and was used");
    set(comm, "gpusym_reproducible", "false", NULL);
    expect_calls(ALLREDUCE, comm, "native_ring_simple", "not reproducible");
    MPI_Comm_free(&comm);
}

static void test_keys(void)
{
    set(MPI_COMM_WORLD, "gpusym_allgather_algorithm", "ring_ll", NULL);
    expect_key(MPI_COMM_WORLD, "gpusym_allgather_algorithm", "ring_ll");
    expect_calls(ALLGATHER, MPI_COMM_WORLD, "native_ring_ll", "MPI_COMM_WORLD");
    test_algorithms();
    test_inherited();
    test_flags();
}

/* ---- changes ---- */

/* Calls in flight keep what was set when they were made, on ranks that make progress at different times. */
static void test_in_flight(void)
{
    unsigned long long before[3], rise;
    MPI_Request request[3 * QUEUED];
    char name[64];
    MPI_Comm comm;
    int n = 0, wrong = 0;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    (void) call_one(ALLREDUCE, comm);
    fill(1);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "native_%s", words[i]);
        before[i] = mpit_count("allreduce", name);
    }
    int *many = mem_alloc(MEM_DEVICE, (size_t) (3 * QUEUED * count) * sizeof *many);
    for (int i = 0; i < 3; i++) {
        usleep((useconds_t) (5000 * ((t.rank + i) % 3)));
        set(comm, "gpusym_allreduce_algorithm", words[i], "gpusym_bcast_algorithm", "st", NULL);
        for (int k = 0; k < QUEUED; k++, n++) {
            MPI_Iallreduce(in, many + n * count, count, MPI_INT, MPI_SUM, comm, &request[n]);
        }
    }
    MPI_Waitall(n, request, MPI_STATUSES_IGNORE);
    for (int i = 0; i < n; i++) {
        mem_read(host, many + i * count, (size_t) count * sizeof *host);
        for (int k = 0; k < count; k++) {
            wrong += host[k] != sum_of(1 + k);
        }
    }
    expect(0 == wrong, "%d wrong elements of calls in flight", wrong);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "native_%s", words[i]);
        rise = mpit_count("allreduce", name) - before[i];
        expect(QUEUED == rise, "in flight: %llu calls by %s, not %d", rise, words[i], QUEUED);
    }
    mem_free(MEM_DEVICE, many);
    MPI_Comm_free(&comm);
}

static void test_persistent(void)
{
    MPI_Request request;
    MPI_Comm comm;
    char name[64];

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    PERSISTENT_INIT(Allreduce)(in, out, count, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    for (int i = 0; i < TURNS; i++) {
        set(comm, "gpusym_allreduce_algorithm", words[i % 2], NULL);
        snprintf(name, sizeof(name), "native_%s", words[i % 2]);
        const unsigned long long before = mpit_count("allreduce", name);
        for (int k = 0; k < ALIKE; k++) {
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        expect(ALIKE == mpit_count("allreduce", name) - before, "persistent: not by %s", words[i % 2]);
    }
    MPI_Request_free(&request);
    MPI_Comm_free(&comm);
}

/* Small calls, which a resident kernel may serve before the ranks have agreed. */
static void test_turns(void)
{
    MPI_Comm a = dup_with(MPI_COMM_WORLD, "gpusym_allreduce_algorithm", "ring_ll", NULL), b, c;

    MPI_Comm_dup(MPI_COMM_WORLD, &b);
    MPI_Comm_split(MPI_COMM_WORLD, 0, t.rank, &c);
    set(c, "gpusym_allreduce_algorithm", "rsxst_agxst", NULL);
    for (int i = 0; i < TURNS; i++) {
        set(b, "gpusym_allreduce_algorithm", 0 == i % 2 ? "agxll_r" : "rsxld_agxst", NULL);
        expect_calls(ALLREDUCE, a, "native_ring_ll", "in turns, a");
        expect_calls(ALLREDUCE, b, 0 == i % 2 ? "native_agxll_r" : "native_rsxld_agxst", "in turns, b");
        expect_calls(ALLREDUCE, c, "native_rsxst_agxst", "in turns, c");
    }
    MPI_Comm_free(&a);
    MPI_Comm_free(&b);
    MPI_Comm_free(&c);
}

static void test_changes(void)
{
    test_in_flight();
    test_persistent();
    test_turns();
}

/* ---- any order ---- */

static unsigned next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned) (*seed >> 33);
}

enum { COMMS = 2, IN_FLIGHT = 6 };

typedef struct {
    MPI_Comm comm;
    int word;    /* that holds, by the calls so far */
    int want[2]; /* that rank 0 wants, and the others */
    int n;       /* calls in flight */
    MPI_Request request[IN_FLIGHT];
    int *out;
} flight_t;

static unsigned long long algorithm_count(int word)
{
    char name[64];
    snprintf(name, sizeof(name), "native_%s", words[word]);
    return mpit_count("allreduce", name);
}

/* Ends the calls in flight. Returns how many elements are wrong. */
static int land(flight_t *f)
{
    int wrong = 0;
    MPI_Waitall(f->n, f->request, MPI_STATUSES_IGNORE);
    for (int i = 0; i < f->n; i++) {
        mem_read(host, f->out + i * count, (size_t) count * sizeof *host);
        for (int k = 0; k < count; k++) {
            wrong += host[k] != sum_of(1 + k);
        }
    }
    f->n = 0;
    return wrong;
}

static void set_any(flight_t *f, uint64_t *seed)
{
    char blocks[2] = {(char) ('0' + next_random(seed) % 4), '\0'};
    const int word = f->want[0] = f->want[1] = (int) (next_random(seed) % WORDS);
    if (0 == next_random(seed) % 2) {
        set(f->comm, "gpusym_allreduce_algorithm", words[word], NULL);
    } else {
        set(f->comm, "gpusym_max_blocks", blocks, "gpusym_allreduce_algorithm", words[word], NULL);
    }
}

/* The algorithm of the next call. If not all ranks want the same, that of the last one. */
static int next_word(flight_t *f)
{
    f->word = f->want[0] == f->want[1] ? f->want[0] : f->word;
    f->want[0] = f->want[1] = f->word;
    return f->word;
}

/* Nonblocking and blocking calls on two communicators, whose settings change in between: each call goes as was set when
 * it was made, on ranks that make progress at different times. */
static void test_random(void)
{
    unsigned long long before[WORDS], expected[WORDS] = {0};
    uint64_t seed = check_seed(), own = seed + (uint64_t) t.rank;
    flight_t flight[COMMS];
    int wrong = 0;

    for (int i = 0; i < COMMS; i++) {
        flight[i] = (flight_t){.out = mem_alloc(MEM_DEVICE, (size_t) (IN_FLIGHT * count) * sizeof *host)};
        flight[i].comm = dup_with(MPI_COMM_WORLD, "gpusym_allreduce_algorithm", words[0], NULL);
        wrong += !call_one(ALLREDUCE, flight[i].comm);
    }
    fill(1);
    for (int w = 0; w < WORDS; w++) {
        before[w] = algorithm_count(w);
    }
    for (uint64_t i = 0; i < steps; i++) {
        flight_t *f = &flight[next_random(&seed) % COMMS];
        const unsigned what = next_random(&seed) % 8;
        if (what < 2 && 0 == next_random(&seed) % 4) { /* not all ranks */
            f->want[1] = (int) (next_random(&seed) % WORDS);
            if (0 != t.rank) {
                set(f->comm, "gpusym_allreduce_algorithm", words[f->want[1]], NULL);
            }
        } else if (what < 2) {
            set_any(f, &seed);
        } else if (what < 7 && f->n < IN_FLIGHT) {
            MPI_Iallreduce(in, f->out + f->n * count, count, MPI_INT, MPI_SUM, f->comm, &f->request[f->n]);
            f->n++;
            expected[next_word(f)]++;
        } else {
            MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, f->comm);
            expected[next_word(f)]++;
            wrong += land(f);
        }
        if (0 == next_random(&own) % 16) {
            usleep((useconds_t) (next_random(&own) % 2000));
        }
    }
    for (int i = 0; i < COMMS; i++) {
        wrong += land(&flight[i]);
        mem_free(MEM_DEVICE, flight[i].out);
        MPI_Comm_free(&flight[i].comm);
    }
    expect(0 == wrong, "random: %d wrong elements", wrong);
    for (int w = 0; w < WORDS; w++) {
        const unsigned long long rise = algorithm_count(w) - before[w];
        expect(expected[w] == rise, "random: %llu calls by %s, not %llu", rise, words[w], expected[w]);
    }
}

/* ---- errors ---- */

static void test_bad(void)
{
    MPI_Comm comm = dup_with(MPI_COMM_WORLD, "gpusym_allreduce_algorithm", "ring_lll", "gpusym_max_blocks", "2", NULL);

    expect_key(comm, "gpusym_allreduce_algorithm", NULL);
    expect_key(comm, "gpusym_max_blocks", "2");
    set(comm, "gpusym_allreduce_algorithm", "ring_ll", NULL);
    expect_calls(ALLREDUCE, comm, "native_ring_ll", "a good value behind a bad one");
    const unsigned long long before = mpit_count("allreduce", "native_ring_ll");
    set(comm, "gpusym_allreduce_algorithm", "bogus", "gpusym_max_blocks", "-1", "gpusym_reproducible", "perhaps", NULL);
    expect_key(comm, "gpusym_allreduce_algorithm", NULL);
    expect_key(comm, "gpusym_max_blocks", NULL);
    expect_key(comm, "gpusym_reproducible", NULL);
    expect_calls(ALLREDUCE, comm, "native", "behind bad values");
    expect(before == mpit_count("allreduce", "native_ring_ll"), "a bad value, and what was set before holds");
    MPI_Comm_free(&comm);
}

static void test_others(void)
{
    MPI_Comm comm =
        dup_with(MPI_COMM_WORLD, "gpusym_allreduce_algorithm", 1 == t.rank ? "ring_ll" : "rsxld_agxst", NULL);

    (void) call_one(ALLREDUCE, comm);
    expect_key(comm, "gpusym_allreduce_algorithm", NULL);
    set(comm, "gpusym_allreduce_algorithm", "ring_ll", NULL);
    expect_calls(ALLREDUCE, comm, "native_ring_ll", "then the same");
    if (0 != t.rank) {
        set(comm, "gpusym_allreduce_algorithm", "rsxld_agxst", NULL);
    }
    expect_calls(ALLREDUCE, comm, "native_ring_ll", "rank 0 sets nothing");
    expect_key(comm, "gpusym_allreduce_algorithm", "ring_ll");
    set(comm, "gpusym_allreduce_algorithm", "agxll_r", NULL);
    expect_calls(ALLREDUCE, comm, "native_agxll_r", "agreed");
    if (1 == t.rank) { /* with a kernel that may be resident */
        set(comm, "gpusym_reproducible", "true", NULL);
    }
    expect_calls(ALLREDUCE, comm, "native_agxll_r", "one rank alone");
    expect_key(comm, "gpusym_reproducible", NULL);
    MPI_Comm_free(&comm);
}

static void test_named(void)
{
    MPI_Comm comm = dup_with(MPI_COMM_WORLD, "gpusym_name", "rows", "gpusym_max_blocks", "1", NULL);

    expect_key(comm, "gpusym_name", "rows");
    (void) call_one(ALLGATHER, comm);
    set(comm, "gpusym_max_blocks", "3", NULL);
    (void) call_one(ALLGATHER, comm);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"keys", test_keys}, {"changes", test_changes}, {"random", test_random},
               {"bad", test_bad},   {"others", test_others},   {"named", test_named}};

    check_init(&argc, &argv, "settings", MPI_THREAD_SINGLE);
    const char *what = check_option("--what");
    count = (int) check_number("--count", 100);
    steps = check_number("--n", 400);
    check_arguments_end(USAGE);
    check_start(&t, "settings", MPI_COMM_WORLD);
    const size_t bytes = (size_t) (count * t.nranks) * sizeof *host;
    in = mem_alloc(MEM_DEVICE, bytes);
    out = mem_alloc(MEM_DEVICE, bytes);
    host = malloc(bytes);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (NULL == what || 0 == strcmp(what, all[i].name)) {
            all[i].run();
        }
    }
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    free(host);
    const long failed = check_end(&t);
    check_print("settings", t.passed, t.failed);
    return check_fini(failed);
}
