/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: random one-sided calls on windows of GPU memory: kinds of epochs, datatypes, lengths, operations, memory
 * of the origins, compared with what a sequential program would do to host memory.
 *
 * All ranks draw the same rounds, so each knows what all windows must hold. In a round every rank makes a few calls.
 * A call accesses a slot of its target's part that no other rank accesses in that round, and of which its own calls are
 * accumulates, if they are more than one; but for the common slot, to which all add. Slots hold integers and doubles by
 * turns. With --host the windows have host memory, and are other components', of which osc/pt2pt does not keep the
 * order of two accumulates: each is alone, but in the common slot; and some of 4.1 accumulate more than is sent, where
 * there is room for more: there is none. With --commanded some accumulates of each
 * rank must have been done by commands to its copier.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"
#include "test/mpi/mpit.h"
#include "test/mpi/soak.h"

#define USAGE "[--n ROUNDS] [--seed SEED] [--host] [--commanded] " SOAK_USAGE
#define COMMANDED "osc_gpusym_combined_by_command"
#define RANKS 8
#define CALLS 5  /* of a rank in a round, at most */
#define SLOT 600 /* elements of 8 bytes */
#define SLOTS (RANKS * CALLS + 1)
#define MOST 120 /* elements of a call */
#define COMMON (SLOTS - 1)

enum mode { FENCE, LOCK, LOCK_ALL, PSCW, MODES };
enum sort { CREATE, ALLOCATE, DYNAMIC, SORTS, SHARED = SORTS };
enum call { PUT, GET, ACC, GET_ACC, FETCH, SWAP, CALLS_KINDS };

typedef struct {
    MPI_Datatype type;
    int n;        /* basic elements */
    int at[MOST]; /* where they are, in basic elements */
    bool basic;   /* type is the basic one, n its count */
} shape_t;

typedef struct {
    int call, origin, target, slot, op, kind, result_kind, first;
    int n; /* basic elements that are moved; where they go there may be room for more */
    bool request, integers;
    shape_t there, here, result;
} step_t;

typedef struct {
    check_t *t;
    uint64_t state;
    int kinds[CHECK_KINDS], nkinds;
    bool host;                   /* windows of host memory */
    unsigned char *model[RANKS]; /* the parts of all ranks */
    MPI_Aint base[RANKS];        /* displacement of each, and of an element */
    MPI_Aint unit;
} test_t;

static const MPI_Op *op_of(int i)
{
    static MPI_Op ops[6];
    ops[0] = MPI_SUM, ops[1] = MPI_MAX, ops[2] = MPI_MIN, ops[3] = MPI_PROD, ops[4] = MPI_REPLACE, ops[5] = MPI_NO_OP;
    return &ops[i];
}

static uint32_t draw(test_t *s, uint32_t below)
{
    s->state = s->state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t) (s->state >> 33) % below;
}

/* ---- datatypes ---- */

static void draw_shape(test_t *s, shape_t *shape, int n, bool integers)
{
    const MPI_Datatype basic = integers ? MPI_LONG_LONG : MPI_DOUBLE;
    int at[MOST], len[MOST];

    shape->n = n;
    const uint32_t form = draw(s, 3);
    shape->basic = 0 == form || n < 2;
    if (shape->basic) {
        shape->type = basic;
        for (int i = 0; i < n; i++) {
            shape->at[i] = i;
        }
        return;
    }
    /* Blocks of a few elements, with gaps between them; by turns in falling order. */
    int blocks = 0, end = 0;
    const int size = 1 + (int) draw(s, 4), gap = 1 + (int) draw(s, 3);
    for (int i = 0; i < n; i += size) {
        len[blocks] = n - i < size ? n - i : size;
        at[blocks] = end;
        end += len[blocks++] + (1 == form ? gap : 1 + (int) draw(s, 3));
    }
    if (2 == form && 0 == draw(s, 2)) {
        for (int i = 0; i < blocks / 2; i++) {
            const int a = at[i], l = len[i];
            at[i] = at[blocks - 1 - i], len[i] = len[blocks - 1 - i];
            at[blocks - 1 - i] = a, len[blocks - 1 - i] = l;
        }
    }
    int k = 0;
    for (int b = 0; b < blocks; b++) {
        for (int j = 0; j < len[b]; j++) {
            shape->at[k++] = at[b] + j;
        }
    }
    MPI_Type_indexed(blocks, len, at, basic, &shape->type);
    MPI_Type_commit(&shape->type);
}

static void free_shape(shape_t *shape)
{
    if (!shape->basic) {
        MPI_Type_free(&shape->type);
    }
}

static int count_of(const shape_t *shape)
{
    return shape->basic ? shape->n : 0 == shape->n ? 0 : 1;
}

/* ---- rounds ---- */

static void draw_step(test_t *s, step_t *step, int origin, int target, int slot, int call, bool integers)
{
    const bool single = FETCH == call || SWAP == call;
    const int n = single ? 1 : COMMON == slot ? 50 : 0 == draw(s, 8) ? 0 : 1 + (int) draw(s, MOST);

    *step = (step_t){.call = call, .origin = origin, .target = target, .slot = slot, .integers = integers};
    step->op = COMMON == slot ? 0 : (int) draw(s, 6);
    step->kind = s->kinds[draw(s, (uint32_t) s->nkinds)];
    step->result_kind = s->kinds[draw(s, (uint32_t) s->nkinds)];
    step->request = 0 == draw(s, 3);
    step->first = 1 + (int) draw(s, 9);
    const bool even = single || (s->host && ACC == call) || 0 == draw(s, 2);
    const int more = even ? 0 : (int) draw(s, (uint32_t) (MOST - n + 1));
    const bool stores = PUT == call || ACC == call;
    step->n = n;
    draw_shape(s, &step->there, stores ? n + more : n, integers);
    draw_shape(s, &step->here, n, integers);
    draw_shape(s, &step->result, stores ? n : n + more, integers);
    if (single) {
        step->there.at[0] = step->here.at[0] = step->result.at[0] = 0;
    }
}

static int draw_round(test_t *s, step_t *step, int mode)
{
    const int n = s->t->nranks;
    int k = 0;

    for (int o = 0; o < n; o++) {
        const int to = PSCW == mode ? (o + 1) % n : (int) draw(s, (uint32_t) n);
        const int calls = 1 + (int) draw(s, CALLS);
        for (int i = 0; i < calls; i++) {
            const int target = LOCK == mode || PSCW == mode ? to : (int) draw(s, (uint32_t) n);
            const int slot = o * CALLS + i;
            const bool integers = 0 == slot % 2;
            const uint32_t what = draw(s, 8), single = integers ? SWAP : FETCH;
            if (what >= 6) {
                draw_step(s, &step[k++], o, target, COMMON, ACC, true);
            } else {
                const bool again = !s->host && (ACC == what || GET_ACC == what) && 0 == draw(s, 2);
                draw_step(s, &step[k++], o, target, slot, SWAP == what ? (int) single : (int) what, integers);
                if (again) {
                    draw_step(s, &step[k++], o, target, slot, 0 == draw(s, 2) ? ACC : GET_ACC, integers);
                }
            }
        }
    }
    return k;
}

/* ---- the model ---- */

static void load(bool integers, const unsigned char *at, long long *i, double *d)
{
    memcpy(i, at, sizeof *i);
    memcpy(d, at, sizeof *d);
    *d = integers ? 0 : *d;
}

static void combine(int op, bool integers, unsigned char *at, int v)
{
    long long i;
    double d;

    load(integers, at, &i, &d);
    if (integers) {
        const unsigned long long a = (unsigned long long) i;
        i = 0 == op   ? (long long) (a + (unsigned long long) v)
            : 1 == op ? (i > v ? i : v)
            : 2 == op ? (i < v ? i : v)
            : 3 == op ? (long long) (a * (unsigned long long) v)
            : 4 == op ? v
                      : i;
        memcpy(at, &i, sizeof i);
    } else if (5 != op) {
        d = 0 == op ? d + v : 1 == op ? (d > v ? d : v) : 2 == op ? (d < v ? d : v) : 3 == op ? d * v : v;
        memcpy(at, &d, sizeof d);
    }
}

/* What the i-th element of a call's origin is. */
static int origin_value(const step_t *step, int i)
{
    return 1 + (step->first + i) % 3;
}

static unsigned char *there(const test_t *s, const step_t *step, int i)
{
    return s->model[step->target] + 8 * ((size_t) step->slot * SLOT + (size_t) step->there.at[i]);
}

/* Does a step to the model; what it fetches goes to result, in the order of the elements. */
static void model(const test_t *s, const step_t *step, unsigned char *result)
{
    for (int i = 0; i < step->n; i++) {
        unsigned char *at = there(s, step, i);
        memcpy(result + 8 * i, at, 8);
        if (PUT == step->call) {
            combine(4, step->integers, at, origin_value(step, i));
        } else if (SWAP == step->call) {
            long long old;
            memcpy(&old, at, sizeof old);
            combine(0 == old % 2 ? 4 : 5, true, at, origin_value(step, i));
        } else if (GET != step->call) {
            combine(step->op, step->integers, at, origin_value(step, i));
        }
    }
}

/* ---- calls ---- */

typedef struct {
    void *origin, *result, *compare;
    unsigned char want[8 * MOST];
} buffers_t;

#define BUFFER (8 * 4 * MOST)

/* Every byte of a result's memory that no element has. */
#define BLANK 0x5a

static void prepare(const test_t *s, const step_t *step, buffers_t *b)
{
    unsigned char image[BUFFER];

    memset(image, BLANK, sizeof image);
    b->result = mem_alloc(step->result_kind, BUFFER);
    mem_write(b->result, image, BUFFER);
    for (int i = 0; i < step->here.n; i++) {
        memset(image + 8 * step->here.at[i], 0, 8);
        combine(4, step->integers, image + 8 * step->here.at[i], origin_value(step, i));
    }
    b->origin = mem_alloc(step->kind, BUFFER);
    mem_write(b->origin, image, BUFFER);
    b->compare = mem_alloc(step->kind, 8);
    if (SWAP == step->call) { /* equal to what is there, if that is even */
        long long old;
        memcpy(&old, there(s, step, 0), sizeof old);
        old += 0 == old % 2 ? 0 : 1;
        mem_write(b->compare, &old, sizeof old);
    }
}

static int call(const test_t *s, const step_t *step, const buffers_t *b, MPI_Win win, bool passive, MPI_Request *req)
{
    const int hn = count_of(&step->here), tn = count_of(&step->there), rn = count_of(&step->result), to = step->target;
    const MPI_Datatype ht = step->here.type, tt = step->there.type, rt = step->result.type;
    const MPI_Aint at = s->base[to] + s->unit * step->slot * SLOT;
    const MPI_Op op = *op_of(step->op);
    const bool r = step->request && passive;

    *req = MPI_REQUEST_NULL;
    switch (step->call) {
    case PUT:
        return r ? MPI_Rput(b->origin, hn, ht, to, at, tn, tt, win, req)
                 : MPI_Put(b->origin, hn, ht, to, at, tn, tt, win);
    case GET:
        return r ? MPI_Rget(b->result, rn, rt, to, at, tn, tt, win, req)
                 : MPI_Get(b->result, rn, rt, to, at, tn, tt, win);
    case ACC:
        if (MPI_NO_OP == op) { /* not for this call */
            return MPI_SUCCESS;
        }
        return r ? MPI_Raccumulate(b->origin, hn, ht, to, at, tn, tt, op, win, req)
                 : MPI_Accumulate(b->origin, hn, ht, to, at, tn, tt, op, win);
    case GET_ACC:
        return r ? MPI_Rget_accumulate(b->origin, hn, ht, b->result, rn, rt, to, at, tn, tt, op, win, req)
                 : MPI_Get_accumulate(b->origin, hn, ht, b->result, rn, rt, to, at, tn, tt, op, win);
    case FETCH:
        return MPI_Fetch_and_op(b->origin, b->result, ht, to, at, op, win);
    default:
        return MPI_Compare_and_swap(b->origin, b->compare, b->result, MPI_LONG_LONG, to, at, win);
    }
}

static bool right_result(const step_t *step, const buffers_t *b)
{
    unsigned char want[BUFFER], got[BUFFER];

    memset(want, BLANK, sizeof want);
    if (PUT != step->call && ACC != step->call) {
        for (int i = 0; i < step->n; i++) {
            memcpy(want + 8 * step->result.at[i], b->want + 8 * i, 8);
        }
    }
    mem_read(got, b->result, BUFFER);
    return 0 == memcmp(want, got, BUFFER);
}

static void begin(MPI_Win win, int mode, const step_t *mine, MPI_Group to, MPI_Group from)
{
    switch (mode) {
    case FENCE:
        MPI_Win_fence(0, win);
        break;
    case LOCK:
        MPI_Win_lock(mine->first % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, mine->target, 0, win);
        break;
    case LOCK_ALL:
        MPI_Win_lock_all(0, win);
        break;
    default:
        MPI_Win_post(from, 0, win);
        MPI_Win_start(to, 0, win);
    }
}

static void end(MPI_Win win, int mode, const step_t *mine)
{
    switch (mode) {
    case FENCE:
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
        break;
    case LOCK:
        MPI_Win_unlock(mine->target, win);
        break;
    case LOCK_ALL:
        MPI_Win_unlock_all(win);
        break;
    default:
        MPI_Win_complete(win);
        MPI_Win_wait(win);
    }
}

static void one_round(test_t *s, MPI_Win win, const unsigned char *part, MPI_Group to, MPI_Group from)
{
    static step_t step[2 * RANKS * CALLS];
    static buffers_t buffer[2 * RANKS * CALLS];
    static unsigned char image[8 * SLOT * SLOTS];
    unsigned char result[8 * MOST];
    const int mode = (int) draw(s, MODES), n = draw_round(s, step, mode);
    const step_t *mine = NULL;
    bool right = true;

    /* In the model the steps of a round follow each other; those to the common slot only add. */
    for (int i = 0; i < n; i++) {
        const bool own = step[i].origin == s->t->rank;
        if (own) {
            prepare(s, &step[i], &buffer[i]);
            mine = NULL == mine ? &step[i] : mine;
        }
        model(s, &step[i], own ? buffer[i].want : result);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    begin(win, mode, mine, to, from);
    for (int i = 0; i < n; i++) {
        MPI_Request req;
        if (step[i].origin == s->t->rank) {
            right = MPI_SUCCESS == call(s, &step[i], &buffer[i], win, LOCK == mode || LOCK_ALL == mode, &req) && right;
            MPI_Wait(&req, MPI_STATUS_IGNORE);
        }
    }
    end(win, mode, mine);
    for (int i = 0; i < n; i++) {
        if (step[i].origin == s->t->rank) {
            if (!right_result(&step[i], &buffer[i])) {
                fprintf(stderr, "rank %d: call %d to rank %d, operation %d, mode %d: a wrong result\n", s->t->rank,
                        step[i].call, step[i].target, step[i].op, mode);
                right = false;
            }
            mem_free(step[i].kind, buffer[i].origin);
            mem_free(step[i].kind, buffer[i].compare);
            mem_free(step[i].result_kind, buffer[i].result);
        }
        free_shape(&step[i].here);
        free_shape(&step[i].there);
        free_shape(&step[i].result);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    mem_read(image, part, sizeof image);
    if (0 != memcmp(image, s->model[s->t->rank], sizeof image)) {
        fprintf(stderr, "rank %d: the window holds something else, mode %d\n", s->t->rank, mode);
        right = false;
    }
    check_result(s->t, right);
}

/* ---- windows ---- */

/* A rank's part in memory of a kind that is drawn. */
static unsigned char *new_part(test_t *s, int sort, int *kind, MPI_Win *win)
{
    const MPI_Aint bytes = (MPI_Aint) 8 * SLOT * SLOTS;
    unsigned char *part;
    MPI_Aint at = 0;
    MPI_Info info;

    for (int i = 0; i < s->t->nranks; i++) {
        const int drawn = 0 == i ? MEM_DEVICE : s->kinds[draw(s, (uint32_t) s->nkinds)];
        *kind = s->host ? MEM_HOST : i == s->t->rank ? drawn : *kind;
    }
    MPI_Info_create(&info);
    if (CREATE == sort) {
        part = mem_alloc(*kind, (size_t) bytes);
        MPI_Win_create(part, bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, win);
    } else if (ALLOCATE == sort) {
        if (MEM_DEVICE == *kind) {
            MPI_Info_set(info, "mpool_hints", "mpool=gpusym");
        }
        MPI_Win_allocate(bytes, 8, info, MPI_COMM_WORLD, &part, win);
    } else if (SHARED == sort) {
        MPI_Win_allocate_shared(bytes, 8, info, MPI_COMM_WORLD, &part, win);
    } else {
        if (s->host && mem_have(MEM_DEVICE)) { /* a program that uses no GPU need not say this */
            MPI_Info_set(info, "mpool_hints", "mpool=default");
        } else if (!s->host && 0 == draw(s, 2)) { /* nor this, one that does */
            MPI_Info_set(info, "mpool_hints", "mpool=gpusym");
        }
        MPI_Win_create_dynamic(info, MPI_COMM_WORLD, win);
        part = mem_alloc(*kind, (size_t) bytes);
        MPI_Win_attach(*win, part, bytes);
        MPI_Get_address(part, &at);
    }
    MPI_Info_free(&info);
    s->unit = DYNAMIC == sort ? 8 : 1;
    MPI_Allgather(&at, 1, MPI_AINT, s->base, 1, MPI_AINT, MPI_COMM_WORLD);
    return part;
}

static void one_window(test_t *s, int rounds)
{
    const int sort = (int) draw(s, SORTS + (s->host ? 1 : 0));
    const int left = (s->t->rank + s->t->nranks - 1) % s->t->nranks, right = (s->t->rank + 1) % s->t->nranks;
    int kind = MEM_HOST;
    MPI_Group all, to, from;
    MPI_Win win;

    for (int i = 0; i < s->t->nranks; i++) {
        memset(s->model[i], 0, (size_t) 8 * SLOT * SLOTS);
    }
    unsigned char *part = new_part(s, sort, &kind, &win);
    mem_write(part, s->model[s->t->rank], (size_t) 8 * SLOT * SLOTS);
    MPI_Win_get_group(win, &all);
    MPI_Group_incl(all, 1, &right, &to);
    MPI_Group_incl(all, 1, &left, &from);
    for (int i = 0; i < rounds; i++) {
        one_round(s, win, part, to, from);
    }
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Group_free(&all);
    if (DYNAMIC == sort && 0 == draw(s, 2)) {
        MPI_Win_detach(win, part);
    }
    MPI_Win_free(&win);
    if (ALLOCATE != sort && SHARED != sort) {
        mem_free(kind, part);
    }
}

/* Windows one after the other, with n rounds in all. */
static void windows(test_t *s, int n)
{
    enum { LIFE = 20 };

    for (int i = 0; i < s->t->nranks; i++) {
        s->model[i] = malloc((size_t) 8 * SLOT * SLOTS);
    }
    for (int i = 0; i < n; i += LIFE) {
        one_window(s, n - i < LIFE ? n - i : LIFE);
        check_collect(s->t);
    }
    for (int i = 0; i < s->t->nranks; i++) {
        free(s->model[i]);
    }
}

int main(int argc, char **argv)
{
    check_t t;
    test_t s = {.t = &t};
    unsigned long long commanded = 0;
    bool more;

    check_init(&argc, &argv, "random_rma", MPI_THREAD_SINGLE);
    soak_t *const soak = soak_begin("random_rma", check_seed());
    const int n = (int) check_number("--n", 200);
    s.nkinds = check_kinds(s.kinds);
    s.host = check_flag("--host");
    const bool commands = check_flag("--commanded");
    check_arguments_end(USAGE);
    do {
        s.state = soak_seed(soak);
        check_start(&t, "random_rma", MPI_COMM_WORLD);
        if (t.nranks > RANKS) {
            fprintf(stderr, "at most %d ranks\n", RANKS);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        (void) mpit_counter(COMMANDED, &commanded); /* counts from here on */
        windows(&s, n);
        if (commands) {
            check_result(&t, mpit_counter(COMMANDED, &commanded) && commanded > 0);
        }
        const long failed = check_end(&t);
        more = soak_next(soak, t.passed + failed, t.passed, failed);
    } while (more);
    return check_fini(soak_end(soak));
}
