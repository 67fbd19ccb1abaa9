/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One-sided calls that fail: on two ranks or more, a series of them on windows of GPU memory, one after the other, some
 * of which the injected faults hit. A call does what it must, or it or the one that completes it ends with an error: an
 * element is then as it was, or as it must be, and nothing else has changed. At most --failures fail, and none hangs.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"

#define NAME "windows"
#define USAGE "[--seed N] [--rounds N] [--kinds LIST] [--failures N]"
#define MOST 400000          /* elements of a call */
#define PART (2 * MOST + 64) /* elements of a rank's part */
#define ROUNDS_OF_A_WINDOW 20u
#define TRIES 10u

enum call { PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH, SWAP, REQUEST_PUT, REQUEST_GET, CALLS };
enum epoch { LOCK, LOCK_ALL, FENCE, PSCW, EPOCHS };

typedef struct {
    int call, epoch, origin, target, kind, n;
    bool gaps_there, gaps_here; /* every other element */
    uint64_t seed;
} round_t;

static int rank, size, failed;
static int *part;  /* PART elements on the GPU */
static int *image; /* of it, and of buffers */

static void expect(bool good, const char *what, const round_t *r)
{
    if (!good) {
        failed++;
        printf(NAME ": FAIL on rank %d: %s (call %d, epoch %d, %d elements from rank %d to %d)\n", rank, what, r->call,
               r->epoch, r->n, r->origin, r->target);
        fflush(stdout);
    }
}

static int old_value(const round_t *r, int i)
{
    return (int) (ref_mix(r->seed + 7u * (unsigned) i) % 1000u);
}

static int given_value(const round_t *r, int i)
{
    return 1000 + (int) (ref_mix(r->seed + 11u * (unsigned) i) % 1000u);
}

static bool fetches(const round_t *r)
{
    return GET == r->call || REQUEST_GET == r->call || GET_ACCUMULATE == r->call || FETCH == r->call || SWAP == r->call;
}

static int new_value(const round_t *r, int i)
{
    switch (r->call) {
    case GET:
    case REQUEST_GET:
        return old_value(r, i);
    case ACCUMULATE:
    case GET_ACCUMULATE:
    case FETCH:
        return old_value(r, i) + given_value(r, i);
    default:
        return given_value(r, i);
    }
}

/* n elements in `at`, with gaps or without. */
static bool are_as(const int *at, int n, int step, const round_t *r, bool ended_well, int (*old)(const round_t *, int),
                   int (*now)(const round_t *, int))
{
    for (int i = 0; i < n; i++) {
        const int v = at[i * step];
        if (v != now(r, i) && (ended_well || v != old(r, i))) {
            return false;
        }
        if (2 == step && -1 != at[2 * i + 1]) {
            return false;
        }
    }
    return true;
}

static int blank_value(const round_t *r, int i)
{
    (void) r, (void) i;
    return -1;
}

static void fill(int *to, int n, int step, size_t room, const round_t *r, int (*value)(const round_t *, int))
{
    memset(image, 0xff, sizeof *image * room);
    for (int i = 0; i < n; i++) {
        image[i * step] = value(r, i);
    }
    mem_write(to, image, sizeof *image * room);
}

/* ---- a call ---- */

static int step_of(bool gaps)
{
    return gaps ? 2 : 1;
}

static int start(const round_t *r, MPI_Win win, MPI_Aint at, int *given, int *result, int *compared)
{
    MPI_Datatype there = MPI_INT, here = MPI_INT;
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;

    MPI_Type_vector(r->n, 1, step_of(r->gaps_there), MPI_INT, &there);
    MPI_Type_vector(r->n, 1, step_of(r->gaps_here), MPI_INT, &here);
    MPI_Type_commit(&there);
    MPI_Type_commit(&here);
    switch (r->call) {
    case PUT:
        rc = MPI_Put(given, 1, here, r->target, at, 1, there, win);
        break;
    case GET:
        rc = MPI_Get(result, 1, here, r->target, at, 1, there, win);
        break;
    case ACCUMULATE:
        rc = MPI_Accumulate(given, 1, here, r->target, at, 1, there, MPI_SUM, win);
        break;
    case GET_ACCUMULATE:
        rc = MPI_Get_accumulate(given, 1, here, result, 1, here, r->target, at, 1, there, MPI_SUM, win);
        break;
    case FETCH:
        rc = MPI_Fetch_and_op(given, result, MPI_INT, r->target, at, MPI_SUM, win);
        break;
    case SWAP:
        rc = MPI_Compare_and_swap(given, compared, result, MPI_INT, r->target, at, win);
        break;
    case REQUEST_PUT:
        rc = MPI_Rput(given, 1, here, r->target, at, 1, there, win, &request);
        break;
    default:
        rc = MPI_Rget(result, 1, here, r->target, at, 1, there, win, &request);
    }
    if (MPI_REQUEST_NULL != request && MPI_SUCCESS == rc) {
        rc = MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Type_free(&there);
    MPI_Type_free(&here);
    return rc;
}

static int first_of(int a, int b)
{
    return MPI_SUCCESS != a ? a : b;
}

/* The call, if it is ours, in its epoch. MPI's code of the first that has failed. */
static int one_epoch(const round_t *r, MPI_Win win, MPI_Aint at, int *given, int *result, int *compared)
{
    const bool mine = rank == r->origin;
    MPI_Group all, other;
    int rc = MPI_SUCCESS;

    switch (r->epoch) {
    case FENCE:
        rc = MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
        rc = mine ? first_of(rc, start(r, win, at, given, result, compared)) : rc;
        return first_of(rc, MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    case PSCW:
        MPI_Comm_group(MPI_COMM_WORLD, &all);
        if (rank == r->target) {
            MPI_Group_incl(all, 1, &r->origin, &other);
            rc = first_of(rc, MPI_Win_post(other, 0, win));
            MPI_Group_free(&other);
        }
        if (mine) {
            MPI_Group_incl(all, 1, &r->target, &other);
            rc = first_of(rc, MPI_Win_start(other, 0, win));
            rc = first_of(rc, start(r, win, at, given, result, compared));
            rc = first_of(rc, MPI_Win_complete(win));
            MPI_Group_free(&other);
        }
        if (rank == r->target) {
            rc = first_of(rc, MPI_Win_wait(win));
        }
        MPI_Group_free(&all);
        return rc;
    case LOCK:
        if (mine) {
            rc = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, r->target, 0, win);
            rc = first_of(rc, start(r, win, at, given, result, compared));
            rc = first_of(rc, MPI_Win_unlock(r->target, win));
        }
        return rc;
    default:
        if (mine) {
            rc = MPI_Win_lock_all(0, win);
            rc = first_of(rc, start(r, win, at, given, result, compared));
            rc = first_of(rc, MPI_Win_flush(r->target, win));
            rc = first_of(rc, MPI_Win_unlock_all(win));
        }
        return rc;
    }
}

/* Whether it has ended well on all ranks. */
static bool one_round(const round_t *r, MPI_Win win, MPI_Aint at)
{
    const bool mine = rank == r->origin;
    const int there = step_of(r->gaps_there), here = step_of(r->gaps_here);
    const size_t room = (size_t) r->n * 2 + 64;
    int *given = NULL, *result = NULL, *compared = NULL;

    if (rank == r->target) {
        fill(part, r->n, there, PART, r, old_value);
    }
    if (mine) {
        given = mem_alloc(r->kind, sizeof *given * room);
        result = mem_alloc(r->kind, sizeof *result * room);
        compared = mem_alloc(r->kind, sizeof *compared);
        fill(given, r->n, here, room, r, given_value);
        fill(result, 0, here, room, r, blank_value);
        fill(compared, 1, 1, 1, r, old_value);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const int rc = one_epoch(r, win, at, given, result, compared);
    int bad = MPI_SUCCESS != rc, any;
    MPI_Allreduce(&bad, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == r->target) {
        mem_read(image, part, sizeof *image * PART);
        expect(are_as(image, r->n, there, r, !any, old_value, new_value), "wrong in the window", r);
        bool kept = true;
        for (int i = r->n * there; i < PART; i++) {
            kept = kept && -1 == image[i];
        }
        expect(kept, "written beside the elements", r);
    }
    if (mine) {
        mem_read(image, result, sizeof *image * room);
        if (fetches(r)) {
            expect(are_as(image, r->n, here, r, !any, blank_value, old_value), "wrong result", r);
        }
        mem_free(r->kind, given);
        mem_free(r->kind, result);
        mem_free(r->kind, compared);
    }
    return !any;
}

static void draw_round(round_t *r, uint64_t seed, const int *kinds, int nkinds)
{
    static const int counts[] = {1, 25, 2000, 2000, 30000, MOST};
    const uint64_t x = ref_mix(seed), y = ref_mix(x);

    *r = (round_t){.seed = seed,
                   .call = (int) (x % CALLS),
                   .epoch = (int) ((x >> 8) % EPOCHS),
                   .origin = (int) ((x >> 16) % (unsigned) size),
                   .kind = kinds[(x >> 24) % (unsigned) nkinds],
                   .n = counts[(x >> 32) % (sizeof counts / sizeof counts[0])],
                   .gaps_there = 0 == y % 3,
                   .gaps_here = 0 == (y >> 8) % 3};
    r->target = (r->origin + 1 + (int) ((y >> 16) % (unsigned) (size - 1))) % size;
    r->n = FETCH == r->call || SWAP == r->call ? 1 : r->n;
}

/* ---- windows ---- */

static int make(bool dynamic, MPI_Win *win)
{
    if (!dynamic) {
        return MPI_Win_create(part, sizeof *part * PART, sizeof *part, MPI_INFO_NULL, MPI_COMM_WORLD, win);
    }
    const int rc = MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, win);
    return first_of(rc, MPI_SUCCESS == rc ? MPI_Win_attach(*win, part, sizeof *part * PART) : rc);
}

/* All ranks get it, or none. Returns how often it was tried in vain. */
static unsigned get_window(bool dynamic, MPI_Win *win)
{
    for (unsigned tried = 0; tried < TRIES; tried++) {
        *win = MPI_WIN_NULL;
        int bad = MPI_SUCCESS != make(dynamic, win), any;
        MPI_Allreduce(&bad, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (!any) {
            return tried;
        }
        if (MPI_WIN_NULL != *win) {
            MPI_Win_free(win);
        }
    }
    fprintf(stderr, NAME ": no window in %u tries\n", TRIES);
    MPI_Abort(MPI_COMM_WORLD, 2);
    return TRIES;
}

static void series(uint64_t seed, uint64_t rounds, const int *kinds, int nkinds, uint64_t most)
{
    uint64_t lost = 0;
    MPI_Aint address, at[64];
    round_t r;
    MPI_Win win;

    MPI_Get_address(part, &address);
    MPI_Allgather(&address, 1, MPI_AINT, at, 1, MPI_AINT, MPI_COMM_WORLD);
    for (uint64_t i = 0; i < rounds; i++) {
        const bool dynamic = 0 != i / ROUNDS_OF_A_WINDOW % 2;
        if (0 == i % ROUNDS_OF_A_WINDOW) {
            lost += get_window(dynamic, &win);
            MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
        }
        draw_round(&r, seed + i, kinds, nkinds);
        if (check_trace()) {
            fprintf(stderr, NAME ": rank %d, %llu: call %d, epoch %d, %d elements of %s, %d to %d\n", rank,
                    (unsigned long long) i, r.call, r.epoch, r.n, mem_name(r.kind), r.origin, r.target);
        }
        lost += !one_round(&r, win, dynamic ? at[r.target] : 0);
        if (rounds == i + 1 || 0 == (i + 1) % ROUNDS_OF_A_WINDOW) {
            if (dynamic) {
                MPI_Win_detach(win, part);
            }
            MPI_Win_free(&win);
        }
    }
    expect(lost <= most, "more calls have failed than faults were injected", &r);
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (0 == rank) {
        printf(NAME ": %llu calls right, %llu failed, %s\n", (unsigned long long) (rounds - lost),
               (unsigned long long) lost, 0 == failed ? "all as expected" : "not as expected");
    }
}

int main(int argc, char **argv)
{
    int kinds[CHECK_KINDS];

    check_init(&argc, &argv, NAME, MPI_THREAD_SINGLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const uint64_t most = check_number("--failures", 0), rounds = check_number("--rounds", 80);
    const uint64_t seed = check_seed();
    const int nkinds = check_kinds(kinds);
    check_arguments_end(USAGE);
    if (size < 2 || size > 64 || !mem_have(MEM_DEVICE)) {
        fprintf(stderr, NAME ": needs GPUs, and 2 to 64 ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* also of windows that are not made */
    part = mem_alloc(MEM_DEVICE, sizeof *part * PART);
    image = malloc(sizeof *image * PART);
    series(seed, rounds, kinds, nkinds, most);
    mem_free(MEM_DEVICE, part);
    free(image);
    return check_fini(failed);
}
