/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One checked call of MPI_Allreduce, and what the mpirun tests share around it, see check.h.
 */
#include "test/mpi/check.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64
#define FAILURES_SHOWN 8 /* a rank; the rest are only counted */
#define ALIGN 256        /* of a buffer with offset 0 */

static int argument_count;
static char **arguments;
static bool argument_used[ARGUMENTS_MAX];
static int world_rank, world_size;
static bool trace; /* --trace: print every call before it is made */

/* Ends the job: something that the test itself needs is not there. */
__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    fprintf(stderr, "rank %d: ", world_rank);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
    MPI_Abort(MPI_COMM_WORLD, 99);
    _exit(99);
}

static void *need(void *old, size_t size)
{
    void *p = realloc(old, size);

    if (NULL == p) {
        die("no memory for %zu bytes", size);
    }
    return p;
}

/* ---- arguments --------------------------------------------------------------------------------------------- */

const char *check_option(const char *name)
{
    size_t n = strlen(name);

    for (int i = 1; i < argument_count; i++) {
        if (argument_used[i] || 0 != strncmp(arguments[i], name, n)) {
            continue;
        }
        if ('=' == arguments[i][n]) {
            argument_used[i] = true;
            return arguments[i] + n + 1;
        }
        if ('\0' == arguments[i][n]) {
            if (i + 1 == argument_count) {
                die("%s needs a value", name);
            }
            argument_used[i] = argument_used[i + 1] = true;
            return arguments[i + 1];
        }
    }
    return NULL;
}

uint64_t check_number(const char *name, uint64_t otherwise)
{
    const char *text = check_option(name);
    char *end;
    uint64_t v;

    if (NULL == text) {
        return otherwise;
    }
    errno = 0;
    v = strtoull(text, &end, 0);
    switch (*end) {
    case 'g':
        v <<= 10; /* fall through */
    case 'm':
        v <<= 10; /* fall through */
    case 'k':
        v <<= 10;
        end++;
    }
    if (end == text || '\0' != *end || 0 != errno) {
        die("%s: \"%s\" is not a number", name, text);
    }
    return v;
}

bool check_flag(const char *name)
{
    for (int i = 1; i < argument_count; i++) {
        if (!argument_used[i] && 0 == strcmp(arguments[i], name)) {
            argument_used[i] = true;
            return true;
        }
    }
    return false;
}

bool check_trace(void)
{
    return trace;
}

void check_arguments_end(const char *usage)
{
    for (int i = 1; i < argument_count; i++) {
        if (!argument_used[i]) {
            die("unknown argument %s\nusage: %s [--device sim|cuda|host] [--trace] %s", arguments[i], arguments[0],
                usage);
        }
    }
}

uint64_t check_seed(void)
{
    const char *option = check_option("--seed"), *text = NULL != option ? option : getenv("GPUSYM_TEST_SEED");
    struct timespec now;
    uint64_t seed;

    clock_gettime(CLOCK_REALTIME, &now);
    seed = ref_mix((uint64_t) now.tv_sec * 1000000007u + (uint64_t) now.tv_nsec + (uint64_t) getpid()) >> 32;
    if (NULL != text) {
        seed = strtoull(text, NULL, 0);
    }
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (0 == world_rank) {
        printf("seed %llu (repeat with --seed %llu)\n", (unsigned long long) seed, (unsigned long long) seed);
        fflush(stdout);
    }
    return seed;
}

/* ---- start and end ------------------------------------------------------------------------------------------- */

static int local_rank(void)
{
    MPI_Comm host;
    int rank;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_free(&host);
    return rank;
}

int check_init(int *argc, char ***argv, const char *name, int level)
{
    const char *device = getenv("GPUSYM_TEST_DEVICE");
    const char *text;
    int given;

    MPI_Init_thread(argc, argv, level, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    argument_count = *argc;
    arguments = *argv;
    if (argument_count > ARGUMENTS_MAX) {
        die("more than %d arguments", ARGUMENTS_MAX);
    }
    text = check_option("--device");
    trace = check_flag("--trace");
    if (NULL != text) {
        device = text;
    }
    if (NULL == device || '\0' == *device) {
        device = "host";
    }
    if (0 != mem_init(device, local_rank())) {
        die("%s: no device \"%s\" here (--device or GPUSYM_TEST_DEVICE: sim, cuda or host)", name, device);
    }
    ref_init();
    if (0 == world_rank) {
        printf("%s: %d ranks, device %s\n", name, world_size, device);
        fflush(stdout);
    }
    return given;
}

int check_fini(long failed)
{
    MPI_Bcast(&failed, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    if (!mem_context_kept()) {
        fprintf(stderr, "FAIL on rank %d: the current GPU context of the calling thread was changed\n", world_rank);
        failed++;
    }
    ref_fini();
    mem_fini();
    MPI_Finalize();
    return 0 == failed ? 0 : 1;
}

void check_print(const char *name, long passed, long failed)
{
    if (0 == world_rank) {
        printf("%s: %ld passed, %ld failed\n", name, passed, failed);
        fflush(stdout);
    }
}

/* ---- what this machine and this MPI have ---------------------------------------------------------------------- */

int check_kinds(int kinds[CHECK_KINDS])
{
    const char *list = check_option("--kinds");
    int n = 0;

    for (int k = 0; k < CHECK_KINDS; k++) {
        const char *name = mem_name(k);
        const char *at = NULL == list ? NULL : strstr(list, name);
        size_t length = strlen(name);
        bool requested = NULL != at && (at == list || ',' == at[-1]) && ('\0' == at[length] || ',' == at[length]);

        if (requested && !mem_have(k)) {
            die("this device has no %s memory", name);
        }
        if (requested || (NULL == list && mem_have(k))) {
            kinds[n++] = k;
        }
    }
    if (0 == n) {
        die("--kinds %s: no such kind of memory", list);
    }
    return n;
}

/* The session of all counters; false: there is none. */
static bool counter_session(MPI_T_pvar_session *made)
{
    static MPI_T_pvar_session session;
    static int state; /* 0: not tried yet, 1: there, -1: not there */
    int provided;

    if (0 == state) {
        state = MPI_SUCCESS == MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) &&
                        MPI_SUCCESS == MPI_T_pvar_session_create(&session)
                    ? 1
                    : -1;
    }
    *made = session;
    return 1 == state;
}

/* The handle of a counter, made once and kept: Open MPI counts from when a handle is made. NULL: there is no such one.
 */
static const MPI_T_pvar_handle *counter_handle(MPI_T_pvar_session session, const char *name)
{
    static struct {
        char name[128];
        MPI_T_pvar_handle handle;
    } known[128];
    static int nknown;
    int index, count, i = 0;

    while (i < nknown && 0 != strcmp(known[i].name, name)) {
        i++;
    }
    if (i < nknown) {
        return &known[i].handle;
    }
    if (i == (int) (sizeof(known) / sizeof(known[0])) ||
        MPI_SUCCESS != MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index) ||
        MPI_SUCCESS != MPI_T_pvar_handle_alloc(session, index, NULL, &known[i].handle, &count) || 1 != count) {
        return NULL;
    }
    snprintf(known[i].name, sizeof(known[i].name), "%s", name);
    nknown++;
    return &known[i].handle;
}

bool check_counter_of(const char *coll, enum check_counter which, unsigned long long *value)
{
    static const char *const suffixes[] = {"native", "staged", "forwarded"};
    MPI_T_pvar_session session;
    const MPI_T_pvar_handle *handle;
    char name[128];

    snprintf(name, sizeof(name), "coll_gpusym_%s_%s", coll, suffixes[which]);
    if (!counter_session(&session)) {
        return false;
    }
    handle = counter_handle(session, name);
    return NULL != handle && MPI_SUCCESS == MPI_T_pvar_read(session, *handle, value);
}

bool check_counter(enum check_counter which, unsigned long long *value)
{
    return check_counter_of("allreduce", which, value);
}

/* Whether a call with an element of zeros is native. Collective; the same answer on all ranks. */
static bool is_native(int kind, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    static const unsigned char zeros[ALIGN];
    unsigned long long before = 0, after = 0;
    void *p = mem_alloc(kind, ALIGN);
    int rises;

    if (NULL == p) {
        die("mem_alloc(%s) failed", mem_name(kind));
    }
    mem_write(p, zeros, ALIGN);
    rises = check_counter(CHECK_NATIVE, &before);
    MPI_Allreduce(MPI_IN_PLACE, p, 1, type, op, comm);
    rises = check_counter(CHECK_NATIVE, &after) && rises && after > before;
    mem_free(kind, p);
    MPI_Bcast(&rises, 1, MPI_INT, 0, comm);
    return rises;
}

bool check_native_on(int kind, MPI_Comm comm)
{
    return is_native(kind, MPI_INT, MPI_SUM, comm);
}

bool check_native_case(int kind, const ref_case_t *c)
{
    return is_native(kind, c->type->mpi, ref_mpi_op(c->type, c->op), MPI_COMM_WORLD);
}

bool check_native(int kind)
{
    return check_native_on(kind, MPI_COMM_WORLD);
}

#define TYPES_KNOWN 128 /* types whose answers are kept */
#define PROBE 256       /* elements: longer than any vector unit, so that its code is met */

/* Whether the library's reduction of two ranks' elements is right; -1: it refuses. */
static int probe(const ref_type_t *type, const ref_op_t *op, bool overflow)
{
    static unsigned char a[PROBE * REF_BYTES_MAX] __attribute__((aligned(64)));
    static unsigned char b[PROBE * REF_BYTES_MAX] __attribute__((aligned(64)));
    static unsigned char want[PROBE * REF_BYTES_MAX];
    static long double tol[2 * PROBE];
    ref_case_t c = {.type = type, .op = op, .seed = 1, .nranks = 2, .overflow = overflow};

    memset(a, 0, sizeof(a));
    memset(b, 0, sizeof(b));
    ref_fill(&c, 0, 0, PROBE, a);
    ref_fill(&c, 1, 0, PROBE, b);
    ref_expect(&c, 0, PROBE, want, tol);
    if (MPI_SUCCESS != MPI_Reduce_local(a, b, PROBE, type->mpi, ref_mpi_op(type, op))) {
        return -1;
    }
    for (size_t i = 0; i < PROBE; i++) {
        if (!ref_same(type, b + i * type->bytes, want + i * type->bytes, tol + 2 * i)) {
            return 0;
        }
    }
    return 1;
}

static enum check_library ask_library(const ref_type_t *type, const ref_op_t *op)
{
    MPI_Errhandler old;
    int exact, careful;

    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &old);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    exact = probe(type, op, true);
    careful = exact < 0 ? -1 : probe(type, op, false);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, old);
    MPI_Errhandler_free(&old);
    if (exact < 0) {
        return CHECK_LACKS;
    }
    return 1 == exact ? CHECK_RIGHT : 1 == careful ? CHECK_SATURATES : CHECK_WRONG;
}

/* Asked once a pair. Threads may ask at the same time: they find the same. */
enum check_library check_library(const ref_type_t *type, const ref_op_t *op)
{
    static atomic_uchar known[TYPES_KNOWN][REF_USER + 1]; /* 1 + enum check_library */
    ptrdiff_t i = type - ref_type(0);
    unsigned char was;

    if (i >= TYPES_KNOWN) {
        return ask_library(type, op);
    }
    was = known[i][op->id];
    if (0 == was) {
        was = (unsigned char) (1 + ask_library(type, op));
        known[i][op->id] = was;
    }
    return (enum check_library)(was - 1);
}

bool check_prepare(ref_case_t *c, bool native)
{
    enum check_library library = check_library(c->type, c->op);

    c->overflow = native || CHECK_RIGHT == library;
    return CHECK_LACKS != library && (native || CHECK_WRONG != library);
}

/* ---- one call --------------------------------------------------------------------------------------------------- */

/* What memory holds before the call, byte `at` of an image. */
static unsigned char poison(size_t at)
{
    return (unsigned char) (0xc5 + 37 * at);
}

static void poison_fill(unsigned char *image, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        image[i] = poison(i);
    }
}

/* A buffer of at least size bytes whose byte 0 is 256-byte aligned. */
static unsigned char *buffer(check_buf_t *b, int kind, size_t size)
{
    if (b->size < size) {
        if (NULL != b->p) {
            mem_free(kind, b->p);
        }
        b->size = size + size / 4 + 4096;
        b->p = mem_alloc(kind, b->size);
        if (NULL == b->p) {
            die("mem_alloc(%s, %zu) failed", mem_name(kind), b->size);
        }
    }
    return b->p + (ALIGN - (uintptr_t) b->p % ALIGN) % ALIGN;
}

static void room(check_t *t, size_t size, size_t elements)
{
    if (t->room < size) {
        t->room = size + size / 4;
        for (int i = 0; i < 3; i++) {
            t->image[i] = need(t->image[i], t->room);
        }
        t->want = need(t->want, t->room);
    }
    if (t->tol_room < elements) {
        t->tol_room = elements + elements / 4;
        t->tol = need(t->tol, 2 * t->tol_room * sizeof(*t->tol));
    }
}

static void tally(check_t *t, bool wrong)
{
    if (t->calls == t->calls_room) {
        t->calls_room = 2 * t->calls_room + 64;
        t->wrong = need(t->wrong, t->calls_room);
    }
    t->wrong[t->calls++] = wrong;
}

static void describe(const check_call_t *k, char *buf, size_t size)
{
    const ref_case_t *c = k->c;

    snprintf(buf, size, "%s %s count %zu %s%s%s offset %zu/%zu, %d ranks, seed %llu first %llu%s", c->type->name,
             c->op->name, k->count, k->in_place ? "in place " : mem_name(k->skind), k->in_place ? "" : " to ",
             mem_name(k->rkind), k->in_place ? k->roff : k->soff, k->roff, c->nranks, (unsigned long long) c->seed,
             (unsigned long long) k->first, c->overflow ? " overflowing" : "");
}

/* Says whether this failure is to be printed, and counts it. */
static bool show(check_t *t, const check_call_t *k, const char *what)
{
    char text[512];

    if (t->printed++ >= FAILURES_SHOWN) {
        return false;
    }
    describe(k, text, sizeof(text));
    fprintf(stderr, "%s: FAIL on rank %d: %s: %s", t->name, world_rank, text, what);
    return true;
}

/* Bytes [from, to) of got are as in expected. */
static bool untouched(check_t *t, const check_call_t *k, const char *what, const unsigned char *got,
                      const unsigned char *expected, size_t from, size_t to)
{
    if (0 == memcmp(got + from, expected + from, to - from)) {
        return true;
    }
    for (size_t i = from; i < to; i++) {
        if (got[i] != expected[i]) {
            if (show(t, k, what)) {
                fprintf(stderr, " at byte %ld of the buffer: got 0x%02x, want 0x%02x\n", (long) i - CHECK_GUARD, got[i],
                        expected[i]);
            }
            return false;
        }
    }
    return true;
}

/* The gaps of every element are as they were. */
static bool gaps_untouched(check_t *t, const check_call_t *k, const unsigned char *got)
{
    const ref_type_t *type = k->c->type;

    if (NULL == memchr(type->map, REF_GAP, type->bytes)) {
        return true;
    }
    for (size_t i = 0; i < k->count * type->bytes; i++) {
        size_t at = CHECK_GUARD + i;

        if (REF_GAP == type->map[i % type->bytes] && got[at] != poison(at)) {
            if (show(t, k, "a gap of the datatype was written")) {
                fprintf(stderr, ", element %zu byte %zu\n", i / type->bytes, i % type->bytes);
            }
            return false;
        }
    }
    return true;
}

static bool result_right(check_t *t, const check_call_t *k, const unsigned char *got)
{
    const ref_type_t *type = k->c->type;
    const unsigned char *want = k->want;
    const long double *tol = k->tol;
    char a[128], b[128];

    if (NULL == want) {
        ref_expect(k->c, k->first, k->count, t->want, t->tol);
        want = t->want;
        tol = t->tol;
    }
    for (size_t i = 0; i < k->count; i++) {
        const unsigned char *g = got + CHECK_GUARD + i * type->bytes;

        if (ref_same(type, g, want + i * type->bytes, tol + 2 * i)) {
            continue;
        }
        if (show(t, k, "element")) {
            fprintf(stderr, " %zu: got %s, want %s\n", i, ref_text(type, g, a, sizeof(a)),
                    ref_text(type, want + i * type->bytes, b, sizeof(b)));
        }
        return false;
    }
    return true;
}

/* The input as an image with its guard zones, written to the buffer that the call reads. */
static void send_image(const check_call_t *k, unsigned char *image, size_t size, unsigned char *mem)
{
    int rank = k->contribute;

    if (rank < 0) {
        MPI_Comm_rank(k->comm, &rank);
    }
    poison_fill(image, size);
    ref_fill(NULL == k->own ? k->c : k->own, rank, k->first, k->count, image + CHECK_GUARD);
    mem_write(mem - CHECK_GUARD, image, size);
}

void check_run(check_t *t, const check_call_t *k)
{
    const ref_type_t *type = k->c->type;
    size_t bytes = k->count * type->bytes, size = bytes + 2 * CHECK_GUARD;
    unsigned char *sent, *expected, *got, *smem = NULL, *rmem;
    char text[512];
    bool right = true;
    int ret;

    room(t, size, k->count);
    sent = t->image[0];
    expected = t->image[1];
    got = t->image[2];
    rmem = buffer(&t->recv[k->rkind], k->rkind, size + ALIGN + k->roff + ALIGN) + ALIGN + k->roff;
    poison_fill(expected, size);
    if (k->in_place) {
        send_image(k, sent, size, rmem);
    } else {
        smem = buffer(&t->send[k->skind], k->skind, size + ALIGN + k->soff + ALIGN) + ALIGN + k->soff;
        send_image(k, sent, size, smem);
        mem_write(rmem - CHECK_GUARD, expected, size);
    }
    if (trace) {
        describe(k, text, sizeof(text));
        fprintf(stderr, "%s: rank %d: %s\n", t->name, world_rank, text);
    }

    ret = MPI_Allreduce(k->in_place ? MPI_IN_PLACE : smem, rmem, (int) k->count, type->mpi, ref_mpi_op(type, k->c->op),
                        k->comm);
    if (MPI_SUCCESS != ret) {
        right = false;
        if (show(t, k, "MPI_Allreduce returned")) {
            fprintf(stderr, " %d\n", ret);
        }
    }

    mem_read(got, rmem - CHECK_GUARD, size);
    right = right && result_right(t, k, got) && gaps_untouched(t, k, got) &&
            untouched(t, k, "written before the result", got, expected, 0, CHECK_GUARD) &&
            untouched(t, k, "written behind the result", got, expected, CHECK_GUARD + bytes, size);
    if (!k->in_place) {
        mem_read(got, smem - CHECK_GUARD, size);
        right = right && untouched(t, k, "the input was changed", got, sent, 0, size);
    }
    tally(t, !right);
}

void check_absent(check_t *t)
{
    tally(t, false);
}

void check_result(check_t *t, bool right)
{
    tally(t, !right);
}

/* ---- many calls ---------------------------------------------------------------------------------------------------
 */

void check_start(check_t *t, const char *name, MPI_Comm world)
{
    memset(t, 0, sizeof(*t));
    t->name = name;
    t->world = world;
    MPI_Comm_rank(world, &t->rank);
    MPI_Comm_size(world, &t->nranks);
}

void check_forget(check_t *t)
{
    for (int k = 0; k < CHECK_KINDS; k++) {
        check_buf_t *both[2] = {&t->send[k], &t->recv[k]};

        for (int i = 0; i < 2; i++) {
            if (NULL != both[i]->p) {
                mem_free(k, both[i]->p);
            }
            both[i]->p = NULL;
            both[i]->size = 0;
        }
    }
}

/* By MPI_Gather of bytes: no reduction counts the failures of reductions. */
void check_collect(check_t *t)
{
    int n = (int) t->calls;
    unsigned char *all = NULL;

    if (0 == t->rank) {
        all = need(NULL, t->calls * (size_t) t->nranks + 1);
    }
    MPI_Gather(t->wrong, n, MPI_BYTE, all, n, MPI_BYTE, 0, t->world);
    for (int i = 0; 0 == t->rank && i < n; i++) {
        bool wrong = false;

        for (int r = 0; r < t->nranks; r++) {
            wrong = wrong || all[(size_t) r * t->calls + (size_t) i];
        }
        t->passed += !wrong;
        t->failed += wrong;
    }
    free(all);
    t->calls = 0;
}

long check_end(check_t *t)
{
    check_collect(t);
    check_forget(t);
    for (int i = 0; i < 3; i++) {
        free(t->image[i]);
        t->image[i] = NULL;
    }
    free(t->want);
    free(t->tol);
    free(t->wrong);
    t->want = t->wrong = NULL;
    t->tol = NULL;
    t->room = t->tol_room = t->calls_room = 0;
    MPI_Bcast(&t->failed, 1, MPI_LONG, 0, t->world);
    return t->failed;
}
