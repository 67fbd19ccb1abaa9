/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rounds of a random program, see soak.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "test/mpi/soak.h"

#include <dlfcn.h>
#include <malloc.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mca/common/gpusym/device/select.h"
#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/memory/pinned.h"
#include "mca/common/gpusym/shm/gauges.h"
#include "test/mpi/check.h"
#include "test/mpi/usage.h"

/* What a process holds. */
enum { BLOCKS, BYTES, RESIDENT, MAPPINGS, DESCRIPTORS, DEVICE, SLOTS, HELD };

/* Its name, and what may be added from the second third of the rounds to the last. Rounds differ in what caches they
 * fill; a leak of one block a call, or of one a communicator, is far over it. Resident memory is Open MPI's too, and
 * that of the simulator's queues, which double. Mappings are without those of peers' memory, and device memory is
 * without the symmetric heap: both have a limit (coll_gpusym_reg_limit, _heap_slabs), up to which they grow late. What
 * communicators have of the heap is judged for itself. */
static const struct {
    const char *name;
    long slack;
} held[HELD] = {
    [BLOCKS] = {"blocks", 64},     [BYTES] = {"bytes", 256 << 10},     [RESIDENT] = {"resident", 64 << 20},
    [MAPPINGS] = {"mappings", 64}, [DESCRIPTORS] = {"descriptors", 2}, [DEVICE] = {"device", 2 << 20},
    [SLOTS] = {"slots", 2 << 20},
};

typedef struct {
    long of[HELD];
} held_t;

struct soak {
    const char *name, *leak;
    uint64_t seed;
    int rounds, round;
    long operations, passed, failed; /* at rank 0 */
    int rank;
    held_t *after; /* each round */
    /* test/mpi/held.c; NULL: it is not loaded */
    void (*begin)(void);
    bool (*now)(long *blocks, long *bytes);
};

soak_t *soak_begin(const char *name, uint64_t seed)
{
    soak_t *s = calloc(1, sizeof *s);

    if (NULL == s) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    *s =
        (soak_t){.name = name, .seed = seed, .rounds = (int) check_number("--soak", 1), .leak = check_option("--leak")};
    s->rounds = 0 == s->rounds ? 1 : s->rounds;
    s->after = calloc((size_t) s->rounds, sizeof *s->after);
    if (NULL == s->after) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &s->rank);
    *(void **) &s->begin = dlsym(RTLD_DEFAULT, "held_begin");
    *(void **) &s->now = dlsym(RTLD_DEFAULT, "held_now");
    if (NULL != s->begin) {
        s->begin();
    }
    return s;
}

/* 32 bits, as check_seed() prints them. */
uint64_t soak_seed(const soak_t *s)
{
    return 0 == s->round ? s->seed : ref_mix(s->seed + (uint64_t) s->round) >> 32;
}

static bool leaks(const soak_t *s, const char *what)
{
    return NULL != s->leak && 0 == strcmp(s->leak, what);
}

/* Little, as what is to be found: a block for one call in ten or so, two descriptors. */
static void leak(const soak_t *s)
{
    enum { SIZE = 100, AREA = 32 << 20, DEVICE_AREA = 2 << 20, PAGE = 4096 };

    for (int i = 0; leaks(s, "heap") && i < 60; i++) {
        char *volatile kept = malloc(SIZE);
        (void) kept;
    }
    if (leaks(s, "resident")) {
        memset(mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, AREA);
    }
    for (int i = 0; leaks(s, "mapping") && i < 40; i++) { /* alike ones would become one */
        (void) mmap(NULL, PAGE, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    for (int i = 0; leaks(s, "descriptor") && i < 2; i++) {
        (void) !dup(STDERR_FILENO);
    }
    if (leaks(s, "device")) {
        (void) !mem_alloc(MEM_DEVICE, DEVICE_AREA);
    }
}

static held_t measure(const soak_t *s)
{
#ifdef __GLIBC__
    malloc_trim(0); /* else more or less of what is free is resident */
#endif
    if (NULL != gpusym_device()) {
        gpusym_pinned_trim(gpusym_device()); /* as many are kept as calls have needed at once, up to 8 */
    }
    const usage_t usage = usage_now();
    held_t h = {.of = {[RESIDENT] = usage.bytes,
                       [MAPPINGS] = usage.maps - (long) gpusym_gauge_sum(GPUSYM_GAUGE_MAPPINGS),
                       [DESCRIPTORS] = usage.fds,
                       [SLOTS] = (long) gpusym_gauge_sum(GPUSYM_GAUGE_HEAP_USED)}};
    if (NULL != mem_device() && 0 == strcmp("sim", mem_device())) {
        uint64_t device;
        gpusym_sim_bytes(&device, NULL);
        h.of[DEVICE] = (long) (device - gpusym_gauge_sum(GPUSYM_GAUGE_HEAP));
    }
    if (NULL != s->now) {
        if (!s->now(&h.of[BLOCKS], &h.of[BYTES])) {
            fprintf(stderr, "%s: more blocks than can be counted\n", s->name);
            MPI_Abort(MPI_COMM_WORLD, 99);
        }
        s->begin(); /* libraries that calls have loaded */
    }
    return h;
}

bool soak_next(soak_t *s, long operations, long passed, long failed)
{
    s->operations += operations;
    s->passed += passed;
    s->failed += failed;
    if (0 == s->rank && failed > 0 && s->rounds > 1) {
        fprintf(stderr, "%s: round %d of seed %llu failed: it alone is --seed %llu without --soak\n", s->name, s->round,
                (unsigned long long) s->seed, (unsigned long long) soak_seed(s));
    }
    leak(s);
    MPI_Barrier(MPI_COMM_WORLD); /* all have freed what is the round's */
    s->after[s->round++] = measure(s);
    return s->round < s->rounds;
}

static int by_number(const void *a, const void *b)
{
    const long x = *(const long *) a, y = *(const long *) b;
    return (x > y) - (x < y);
}

/* Of each that rounds [from, to) held, the least and the median: what caches hold rises in steps, or goes up and down,
 * so that only one of these rises; what leaks makes both rise. */
enum { LEAST, MEDIAN, MARKS };
static void find_marks(const soak_t *s, int from, int to, held_t marks[MARKS])
{
    const size_t n = (size_t) (to - from);
    long *sorted = malloc(n * sizeof *sorted);

    if (NULL == sorted) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    for (int k = 0; k < HELD; k++) {
        for (size_t i = 0; i < n; i++) {
            sorted[i] = s->after[from + (int) i].of[k];
        }
        qsort(sorted, n, sizeof *sorted, by_number);
        marks[LEAST].of[k] = sorted[0];
        marks[MEDIAN].of[k] = sorted[n / 2];
    }
    free(sorted);
}

static bool has_risen(int k, const held_t *before, const held_t *after)
{
    return after->of[k] > before->of[k] + held[k].slack;
}

static void print_rounds(const soak_t *s)
{
    for (int i = 0; i < s->rounds; i++) {
        char line[400];
        int n = 0;
        for (int k = 0; k < HELD; k++) {
            n += snprintf(line + n, sizeof line - (size_t) n, " %s %ld", held[k].name, s->after[i].of[k]);
        }
        fprintf(stderr, "%s: rank %d, after round %d:%s\n", s->name, s->rank, i, line);
    }
}

static bool is_flat(const soak_t *s, const held_t before[MARKS], const held_t after[MARKS])
{
    bool flat = true;

    for (int k = 0; k < HELD; k++) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        if (RESIDENT == k || MAPPINGS == k) { /* the sanitizers keep what is freed */
            continue;
        }
#endif
        if (has_risen(k, &before[LEAST], &after[LEAST]) && has_risen(k, &before[MEDIAN], &after[MEDIAN])) {
            fprintf(stderr, "%s: FAIL on rank %d: %s %ld to %ld\n", s->name, s->rank, held[k].name,
                    before[MEDIAN].of[k], after[MEDIAN].of[k]);
            flat = false;
        }
    }
    if (!flat) {
        print_rounds(s);
    }
    return flat;
}

/* The most that any rank held. */
static void tell(const soak_t *s, const held_t *before, const held_t *after)
{
    held_t most[2];

    MPI_Reduce(before->of, most[0].of, HELD, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(after->of, most[1].of, HELD, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    if (0 == s->rank) {
        printf("%s: %d rounds, %ld operations,", s->name, s->rounds, s->operations);
        for (int k = 0; k < HELD; k++) {
            printf(" %s %ld to %ld%s", held[k].name, most[0].of[k], most[1].of[k], k + 1 < HELD ? "," : "\n");
        }
    }
}

long soak_end(soak_t *s)
{
    const int n = s->rounds, third = n / 3;
    int flat = 1, all = 1;

    if (n >= SOAK_LEAST) {
        held_t before[MARKS], after[MARKS];
        find_marks(s, third, n - third, before);
        find_marks(s, n - third, n, after);
        flat = is_flat(s, before, after);
        MPI_Allreduce(&flat, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        tell(s, &before[MEDIAN], &after[MEDIAN]);
    }
    check_print(s->name, s->passed, s->failed);
    s->failed += !all;
    MPI_Bcast(&s->failed, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    const long failed = s->failed;
    free(s->after);
    free(s);
    return failed;
}
