/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: messages beside collectives.
 *
 * rounds: a receive is posted, a collective is called, the receive is waited for; the peer sends before its
 * collective or behind; all are on the GPU, and buffers are new from time to time, so that peers must map them in
 * the midst of it.
 *
 * fuzz: epochs of random messages between random ranks, of every shape and size, blocking and not, with collectives
 * in flight. All of an epoch comes from the seed and its number: --epoch N runs one of them only. With --threads it
 * runs in so many threads at once, in communicators of their own and then in one that they share. Exits with 77
 * where the MPI library does not give MPI_THREAD_MULTIPLE. --by-address leaves out what Open MPI's own ob1 does
 * not send: data away from the buffer's address, buffered sends. --soak: soak.h.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"
#include "test/mpi/msg.h"
#include "test/mpi/soak.h"

#define USAGE                                                                                            \
    "[--seed N] [--kinds LIST] [--rounds N] [--fuzz MESSAGES] [--most BYTES] [--threads N] [--epoch N] " \
    "[--host-rank N] [--by-address] " SOAK_USAGE
#define NAME "p2p_beside"
#define FAILURES_SHOWN 8
#define MESSAGES 24 /* of an epoch */
#define THREADS_MOST 8
#define TAGS 4    /* of receives that are posted first; they collide */
#define LATE 100  /* the others have each its own, from here */
#define BAND 1000 /* of tags, for each thread */
#define ATTACHED ((size_t) MESSAGES * THREADS_MOST * (SMALL + MPI_BSEND_OVERHEAD))
#define SMALL 9000   /* bytes that are sent buffered at most */
#define LONGEST 3000 /* elements of a collective */

static struct {
    check_t t;
    int rank, nranks;
    int nkinds, kinds[CHECK_KINDS];
    int host_rank;   /* that has host memory only, or -1 */
    bool by_address; /* only what an ob1 sends that asks about the memory at a buffer's address, and not elsewhere */
    size_t most;
    uint64_t seed, epoch;
    atomic_int printed;
} self;

static bool wrong(uint64_t number, const char *what, const char *why)
{
    if (atomic_fetch_add(&self.printed, 1) < FAILURES_SHOWN) {
        fprintf(stderr, NAME ": FAIL on rank %d: %llu: %s: %s\n", self.rank, (unsigned long long) number, what, why);
    }
    return false;
}

/* Of memory of that rank. */
static int random_kind(uint64_t x, int rank)
{
    return self.host_rank == rank ? MEM_HOST : self.kinds[ref_mix(x) % (uint64_t) self.nkinds];
}

/* Anything from nothing to the most, every order of magnitude as often; 7 bytes at times. */
static size_t random_bytes(uint64_t x)
{
    uint64_t r = ref_mix(x);
    size_t most = (size_t) 1 << (r >> 32) % 23;

    if (0 == r % 8) {
        return 7;
    }
    most = most < self.most ? most : self.most;
    return (r >> 40) % (most + 1);
}

/* ---- a collective whose result is known ---- */

typedef struct {
    int kind, count;
    int *memory, *image; /* of the kind; of the host */
    MPI_Request request;
} sum_t;

static void sum_open(sum_t *s, uint64_t x)
{
    s->kind =
        random_kind(x + 77 * (x >> 60 ? 0 : (uint64_t) self.rank), self.rank); /* seldom of many kinds in one call */
    s->count = (int) (1 + ref_mix(x) % LONGEST);
    s->request = MPI_REQUEST_NULL;
    s->memory = mem_alloc(s->kind, (size_t) s->count * sizeof(int));
    s->image = malloc((size_t) s->count * sizeof(int));
    if (NULL == s->memory || NULL == s->image) {
        fprintf(stderr, NAME ": no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    for (int i = 0; i < s->count; i++) {
        s->image[i] = self.rank + i;
    }
    mem_write(s->memory, s->image, (size_t) s->count * sizeof(int));
}

#define SUMMED(s) MPI_IN_PLACE, (s).memory, (s).count, MPI_INT, MPI_SUM

static bool sum_close(sum_t *s, uint64_t number)
{
    int n = self.nranks;
    bool right = true;

    mem_read(s->image, s->memory, (size_t) s->count * sizeof(int));
    for (int i = 0; i < s->count && right; i++) {
        if (s->image[i] != n * i + n * (n - 1) / 2) {
            right = wrong(number, "MPI_Allreduce", mem_name(s->kind));
        }
    }
    mem_free(s->kind, s->memory);
    free(s->image);
    return right;
}

/* ---- rounds ---- */

typedef struct {
    msg_layout_t layout;
    msg_buffer_t buffer;
    msg_work_t work;
} single_t;

#define MESSAGE m->buffer.address, m->layout.count, m->layout.type

/* The receiver's round: the receive is posted, the collective comes between. */
static void receive_round(single_t *m, sum_t *sum, unsigned way, MPI_Comm comm)
{
    MPI_Request requests[2];

    MPI_Irecv(MESSAGE, 0, 1, comm, &requests[0]);
    if (way < 2) {
        MPI_Allreduce(SUMMED(*sum), comm);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    } else if (2 == way) {
        MPI_Iallreduce(SUMMED(*sum), comm, &requests[1]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    } else {
        MPI_Iallreduce(SUMMED(*sum), comm, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
}

static void send_round(single_t *m, sum_t *sum, unsigned way, MPI_Comm comm)
{
    MPI_Request requests[2];

    if (0 == way) {
        MPI_Send(MESSAGE, 1, 1, comm);
        MPI_Allreduce(SUMMED(*sum), comm);
    } else if (1 == way) {
        MPI_Isend(MESSAGE, 1, 1, comm, &requests[0]);
        MPI_Allreduce(SUMMED(*sum), comm);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    } else if (2 == way) {
        MPI_Iallreduce(SUMMED(*sum), comm, &requests[1]);
        MPI_Send(MESSAGE, 1, 1, comm);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    } else {
        MPI_Ssend(MESSAGE, 1, 1, comm);
        MPI_Iallreduce(SUMMED(*sum), comm, &requests[1]);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    }
}

/* comm's rank 0 sends, 1 receives, others only reduce. */
static bool one_round(single_t *m, uint64_t round, MPI_Comm comm)
{
    uint64_t x = ref_mix(self.seed + 31 * round);
    int rank, kind = random_kind(x + (uint64_t) self.rank, self.rank);
    unsigned way = (unsigned) (x >> 8) % 4;
    bool right = true;
    char why[128];
    sum_t sum;

    MPI_Comm_rank(comm, &rank);
    sum_open(&sum, x);
    if (rank > 1) {
        if (way < 2) {
            MPI_Allreduce(SUMMED(sum), comm);
        } else {
            MPI_Iallreduce(SUMMED(sum), comm, &sum.request);
            MPI_Wait(&sum.request, MPI_STATUS_IGNORE);
        }
        return sum_close(&sum, round);
    }
    if (0 == x % 16) {
        msg_release(&m->buffer);
    }
    msg_layout(&m->layout, MSG_CONTIGUOUS, random_bytes(x), 1, x);
    msg_place(&m->buffer, kind, &m->layout, x >> 16 & 7);
    if (0 == rank) {
        msg_fill(&m->work, &m->buffer, x);
        send_round(m, &sum, way, comm);
    } else {
        msg_blank(&m->work, &m->buffer);
        receive_round(m, &sum, way, comm);
    }
    if (!msg_right(&m->work, &m->buffer, x, m->layout.bytes, why)) {
        right = wrong(round, 0 == rank ? "sent in a round" : "received in a round", why);
    }
    msg_layout_free(&m->layout);
    return sum_close(&sum, round) && right;
}

static void rounds(uint64_t n)
{
    single_t m;
    MPI_Comm turned;

    memset(&m, 0, sizeof(m));
    MPI_Comm_split(MPI_COMM_WORLD, 0, self.nranks - self.rank, &turned); /* the ranks from last to first */
    for (uint64_t i = 0; i < n; i++) {
        check_result(&self.t, one_round(&m, i, i & 1 ? turned : MPI_COMM_WORLD));
    }
    msg_release(&m.buffer);
    msg_work_free(&m.work);
    MPI_Comm_free(&turned);
}

/* ---- fuzz ---- */

/* HOW(ID): a receive is posted before anything is sent, or comes when all is. */
enum how { HOW_POSTED, HOW_RECV, HOW_PROBE, HOW_MPROBE, HOW_IRECV, HOW_COUNT };

enum send { SEND_ISEND, SEND_ISSEND, SEND_IBSEND, SEND_PERSISTENT, SEND_SEND, SEND_SSEND, SEND_COUNT };

/* Of one epoch, the same on all ranks. */
typedef struct {
    int from, to, tag, kind[2];
    size_t bytes, unit;
    enum msg_shape shape[2];
    enum send send;
    enum how how;
    uint64_t seed;
} message_t;

/* One rank's, or one thread's. */
typedef struct {
    pthread_t id;
    uint64_t seed, messages; /* of all; how many in all */
    int band;                /* its tags begin there */
    MPI_Comm comm, coll;     /* of messages, of collectives */
    msg_work_t work;
    msg_layout_t layouts[2][MESSAGES];
    msg_buffer_t buffers[2][MESSAGES]; /* sent, received */
    MPI_Request requests[2 * MESSAGES];
    bool right;
} fuzz_t;

static enum msg_shape random_shape(uint64_t x)
{
    static const enum msg_shape at_address[] = {MSG_CONTIGUOUS, MSG_VECTOR, MSG_INDEXED, MSG_STRUCT};

    return self.by_address ? at_address[x % (sizeof at_address / sizeof at_address[0])]
                           : (enum msg_shape)(x % MSG_SHAPES);
}

static void draw_message(message_t *m, const fuzz_t *f, uint64_t seed, int number)
{
    uint64_t x = ref_mix(seed + 1000 + (uint64_t) number), y = ref_mix(x);

    *m = (message_t){.seed = x, .bytes = random_bytes(x + 1)};
    m->from = (int) (x % (uint64_t) self.nranks);
    m->to = (int) ((x >> 16) % (uint64_t) self.nranks);
    for (int side = 0; side < 2; side++) {
        m->kind[side] = random_kind(x + 2 + (uint64_t) side, 0 == side ? m->from : m->to);
        m->shape[side] = y >> side & 1 ? MSG_CONTIGUOUS : random_shape(y >> (8 + 8 * side) & 0xff);
        m->bytes = msg_bytes(m->shape[side], m->bytes);
    }
    m->unit = (size_t) 1 << (y >> 32 & 3);
    while (0 != m->bytes % m->unit) {
        m->unit /= 2;
    }
    m->how = y & 4 ? HOW_POSTED : (enum how)((y >> 40 & 0xff) % HOW_COUNT);
    m->send = (enum send)((y >> 48 & 0xff) % SEND_COUNT);
    if ((m->how != HOW_POSTED && m->send >= SEND_SEND) ||
        (SEND_IBSEND == m->send && (m->bytes > SMALL || self.by_address))) {
        m->send = SEND_ISEND; /* what blocks may wait only for what was posted first */
    }
    m->tag = BAND * f->band + (HOW_POSTED == m->how ? (int) (y >> 56) % TAGS : LATE + number);
}

#define SIDE(f, side, i) (f)->buffers[side][i].address, (f)->layouts[side][i].count, (f)->layouts[side][i].type

static void open_side(fuzz_t *f, const message_t *m, int side, int i)
{
    uint64_t x = ref_mix(m->seed + (uint64_t) side);
    msg_buffer_t *b = &f->buffers[side][i];

    if (0 == x % 32) {
        msg_release(b);
    }
    msg_layout(&f->layouts[side][i], m->shape[side], m->bytes, m->unit, x);
    msg_place(b, m->kind[side], &f->layouts[side][i], (x >> 8 & 7) * m->unit);
    if (0 == side) {
        msg_fill(&f->work, b, m->seed);
    } else {
        msg_blank(&f->work, b);
    }
}

static void send_message(fuzz_t *f, const message_t *m, int i)
{
    MPI_Request *request = &f->requests[i];

    switch (m->send) {
    case SEND_ISSEND:
        MPI_Issend(SIDE(f, 0, i), m->to, m->tag, f->comm, request);
        break;
    case SEND_IBSEND:
        MPI_Ibsend(SIDE(f, 0, i), m->to, m->tag, f->comm, request);
        break;
    case SEND_PERSISTENT:
        MPI_Send_init(SIDE(f, 0, i), m->to, m->tag, f->comm, request);
        MPI_Start(request);
        break;
    case SEND_SEND:
        MPI_Send(SIDE(f, 0, i), m->to, m->tag, f->comm);
        break;
    case SEND_SSEND:
        MPI_Ssend(SIDE(f, 0, i), m->to, m->tag, f->comm);
        break;
    default:
        MPI_Isend(SIDE(f, 0, i), m->to, m->tag, f->comm, request);
    }
}

/* A receive that comes late: the message is found first, or not. */
static void receive_late(fuzz_t *f, const message_t *m, int i)
{
    MPI_Message message;
    MPI_Status status;
    int elements;
    char why[128];

    switch (m->how) {
    case HOW_PROBE:
        MPI_Probe(m->from, m->tag, f->comm, &status);
        MPI_Recv(SIDE(f, 1, i), m->from, m->tag, f->comm, MPI_STATUS_IGNORE);
        break;
    case HOW_MPROBE:
        MPI_Mprobe(m->from, m->tag, f->comm, &message, &status);
        MPI_Mrecv(SIDE(f, 1, i), &message, MPI_STATUS_IGNORE);
        break;
    case HOW_RECV:
        MPI_Recv(SIDE(f, 1, i), m->from, m->tag, f->comm, &status);
        break;
    default:
        MPI_Irecv(SIDE(f, 1, i), m->from, m->tag, f->comm, &f->requests[MESSAGES + i]);
        return;
    }
    MPI_Get_elements(&status, f->layouts[1][i].type, &elements);
    if (elements != (int) (m->bytes / m->unit) || status.MPI_SOURCE != m->from || status.MPI_TAG != m->tag) {
        snprintf(why, sizeof(why), "source %d, tag %d, %d elements; not %d, %d, %zu", status.MPI_SOURCE, status.MPI_TAG,
                 elements, m->from, m->tag, m->bytes / m->unit);
        f->right = wrong(m->seed, "a status", why);
    }
}

static void check_side(fuzz_t *f, const message_t *m, int side, int i, uint64_t epoch)
{
    char why[128], what[256];

    if (!msg_right(&f->work, &f->buffers[side][i], m->seed, m->bytes, why)) {
        snprintf(what, sizeof(what),
                 "epoch, message %d %s: %zu bytes, %s %s to %s %s, by %d to %d, tag %d, rank %d to %d", i,
                 side ? "received" : "sent", m->bytes, mem_name(m->kind[0]), msg_shape_name(m->shape[0]),
                 mem_name(m->kind[1]), msg_shape_name(m->shape[1]), m->send, m->how, m->tag, m->from, m->to);
        f->right = wrong(epoch, what, why);
    }
    msg_layout_free(&f->layouts[side][i]);
}

/* Receives that are posted first, in their order; then sends, in theirs; then the late receives, in any. */
static void exchange(fuzz_t *f, const message_t *m, uint64_t seed)
{
    for (int i = 0; i < MESSAGES; i++) {
        if (m[i].to == self.rank && HOW_POSTED == m[i].how) {
            MPI_Irecv(SIDE(f, 1, i), m[i].from, m[i].tag, f->comm, &f->requests[MESSAGES + i]);
        }
    }
    for (int i = 0; i < MESSAGES; i++) {
        if (m[i].from == self.rank) {
            send_message(f, &m[i], i);
        }
    }
    for (int at = 0; at < MESSAGES; at++) {
        int i = (int) (((uint64_t) at * 5 + seed) % MESSAGES); /* 5: no divisor of MESSAGES */
        if (m[i].to == self.rank && HOW_POSTED != m[i].how) {
            receive_late(f, &m[i], i);
        }
    }
}

static void finish(fuzz_t *f, uint64_t x)
{
    MPI_Request *persistent[MESSAGES], kept[MESSAGES];
    int n = 0;

    msg_finish((enum msg_finish)(x % MSG_FINISHES), 2 * MESSAGES, f->requests, NULL);
    for (int i = 0; i < MESSAGES; i++) {
        if (MPI_REQUEST_NULL != f->requests[i]) {
            persistent[n] = &f->requests[i];
            kept[n++] = f->requests[i];
        }
    }
    for (int i = 0; i < n; i++) {
        MPI_Request_free(&kept[i]);
        *persistent[i] = MPI_REQUEST_NULL;
    }
}

static void epoch(fuzz_t *f, uint64_t number)
{
    uint64_t seed = ref_mix(f->seed + number), x = ref_mix(seed);
    message_t m[MESSAGES];
    sum_t sums[2];

    for (int i = 0; i < MESSAGES; i++) {
        draw_message(&m[i], f, seed, i);
        f->requests[i] = f->requests[MESSAGES + i] = MPI_REQUEST_NULL;
        for (int side = 0; side < 2; side++) {
            if (self.rank == (side ? m[i].to : m[i].from)) {
                open_side(f, &m[i], side, i);
            }
        }
    }
    if (x & 1) {
        sum_open(&sums[0], x);
        MPI_Iallreduce(SUMMED(sums[0]), f->coll, &sums[0].request);
    }
    exchange(f, m, seed);
    if (x & 2) {
        sum_open(&sums[1], x + 1);
        MPI_Allreduce(SUMMED(sums[1]), f->coll);
        f->right = sum_close(&sums[1], number) && f->right;
    }
    finish(f, ref_mix(x + (uint64_t) self.rank));
    if (x & 1) {
        MPI_Wait(&sums[0].request, MPI_STATUS_IGNORE);
        f->right = sum_close(&sums[0], number) && f->right;
    }
    for (int i = 0; i < MESSAGES; i++) {
        for (int side = 0; side < 2; side++) {
            if (self.rank == (side ? m[i].to : m[i].from)) {
                check_side(f, &m[i], side, i, number);
            }
        }
    }
}

static void *fuzz(void *arg)
{
    fuzz_t *f = arg;

    f->right = true;
    for (uint64_t i = 0; i < f->messages / MESSAGES; i++) {
        if (UINT64_MAX == self.epoch || i == self.epoch) {
            if (check_trace()) {
                fprintf(stderr, NAME ": rank %d: thread %d, epoch %llu\n", self.rank, f->band, (unsigned long long) i);
            }
            epoch(f, i);
        }
    }
    return NULL;
}

static void fuzz_close(fuzz_t *f)
{
    for (int i = 0; i < MESSAGES; i++) {
        msg_release(&f->buffers[0][i]);
        msg_release(&f->buffers[1][i]);
    }
    msg_work_free(&f->work);
    MPI_Comm_free(&f->coll);
}

static void fuzz_alone(uint64_t messages)
{
    static fuzz_t f;

    f.seed = self.seed;
    f.messages = messages;
    f.comm = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &f.coll);
    fuzz(&f);
    check_result(&self.t, f.right);
    fuzz_close(&f);
}

/* shared: all threads' messages go by one communicator. */
static void fuzz_threads(int n, uint64_t messages, bool shared)
{
    static fuzz_t f[THREADS_MOST];

    memset(f, 0, sizeof(f));
    for (int i = 0; i < n; i++) {
        f[i].seed = ref_mix(self.seed + 2 * (uint64_t) i + shared);
        f[i].messages = messages / (uint64_t) n;
        f[i].band = i;
        f[i].comm = MPI_COMM_WORLD;
        MPI_Comm_dup(MPI_COMM_WORLD, &f[i].coll);
        if (!shared) {
            MPI_Comm_dup(MPI_COMM_WORLD, &f[i].comm);
        }
    }
    for (int i = 0; i < n; i++) {
        if (0 != pthread_create(&f[(i + self.rank) % n].id, NULL, fuzz, &f[(i + self.rank) % n])) {
            fprintf(stderr, "rank %d: pthread_create failed\n", self.rank);
            MPI_Abort(MPI_COMM_WORLD, 99);
        }
    }
    for (int i = 0; i < n; i++) {
        pthread_join(f[i].id, NULL);
        check_result(&self.t, f[i].right);
    }
    for (int i = 0; i < n; i++) {
        fuzz_close(&f[i]);
        if (!shared) {
            MPI_Comm_free(&f[i].comm);
        }
    }
}

/* ---- both ---- */

/* The rounds and messages of one seed; returns what failed. */
static long both(uint64_t seed, uint64_t nrounds, uint64_t messages, int threads)
{
    self.seed = seed;
    check_start(&self.t, NAME, MPI_COMM_WORLD);
    self.rank = self.t.rank;
    self.nranks = self.t.nranks;
    msg_init((size_t) 4 << 20);
    if (self.nranks > 1) {
        rounds(nrounds);
    }
    if (0 == threads) {
        fuzz_alone(messages);
    } else {
        fuzz_threads(threads, messages / 2, false);
        fuzz_threads(threads, messages / 2, true);
    }
    msg_fini();
    return check_end(&self.t);
}

int main(int argc, char **argv)
{
    uint64_t nrounds, messages;
    int level, threads = 0, size;
    void *attached = malloc(ATTACHED);
    soak_t *soak;
    bool more;

    for (int i = 1; i < argc; i++) { /* the level is asked for before options are */
        threads = threads || 0 == strncmp(argv[i], "--threads", 9);
    }
    level = check_init(&argc, &argv, NAME, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    if (threads && level < MPI_THREAD_MULTIPLE) {
        printf(NAME ": this MPI library gives no MPI_THREAD_MULTIPLE: skipped\n");
        check_fini(0);
        return CHECK_SKIPPED;
    }
    soak = soak_begin(NAME, check_seed());
    self.nkinds = check_kinds(self.kinds);
    threads = (int) check_number("--threads", 0);
    nrounds = check_number("--rounds", threads ? 0 : 1000);
    messages = check_number("--fuzz", 2000);
    self.most = check_number("--most", (size_t) 3 << 20);
    self.epoch = check_number("--epoch", UINT64_MAX);
    self.host_rank = (int) check_number("--host-rank", UINT64_MAX);
    self.by_address = check_flag("--by-address");
    check_arguments_end(USAGE);
    if (threads > THREADS_MOST) {
        fprintf(stderr, "--threads: at most %d\n", THREADS_MOST);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Buffer_attach(attached, (int) ATTACHED);
    do {
        const long failed = both(soak_seed(soak), nrounds, messages, threads);
        more = soak_next(soak, (long) (nrounds + messages), self.t.passed, failed);
    } while (more);
    MPI_Buffer_detach(&attached, &size);
    free(attached);
    return check_fini(soak_end(soak));
}
