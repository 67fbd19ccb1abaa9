/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: one message from one rank to another, in every way. The product of the kinds of memory of both sides,
 * sizes, shapes of datatypes of both sides, modes of sending and ways to receive; one in --thin of it is run, large
 * messages seldomer. Every byte of both buffers is checked, with canaries in gaps and around; and what MPI says of
 * the message in statuses. With one rank the messages are to itself. /
 */
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/mpi/check.h"
#include "test/mpi/msg.h"

#define USAGE                                                                                                      \
    "[--seed N] [--thin N] [--kinds LIST] [--sizes LIST] [--shapes LIST] [--modes LIST] [--ways LIST] [--most N] " \
    "[--case N] [--host-rank N]"
#define NAME "p2p"
#define STARTS 3            /* of what is persistent */
#define EAGER 2048          /* bytes that every transport sends at once */
#define LARGE 32768         /* bytes; a message of k times as many is tested 1 + k times more seldom */
#define TAG_MOST 32767      /* as every MPI allows */
#define FAILURES_SHOWN 8    /* a rank */
#define BOTH_WAYS_ROOM 4096 /* what a buffer for MPI_Bsend needs beside the data */

/* MODE(ID, name, call): of sending. Those behind PERSISTENT have a form that is made once and started. */
#define MODES                                            \
    MODE(SEND, send)                                     \
    MODE(SSEND, ssend)                                   \
    MODE(RSEND, rsend)                                   \
    MODE(BSEND, bsend)                                   \
    MODE(ISEND, isend)                                   \
    MODE(ISSEND, issend)                                 \
    MODE(IRSEND, irsend)                                 \
    MODE(IBSEND, ibsend)                                 \
    MODE(SEND_INIT, send_init)                           \
    MODE(SSEND_INIT, ssend_init)                         \
    MODE(RSEND_INIT, rsend_init)                         \
    MODE(BSEND_INIT, bsend_init)                         \
    MODE(SENDRECV, sendrecv) /* both send and receive */ \
    MODE(EXCHANGE, exchange) /* the same by MPI_Irecv and MPI_Isend */

enum mode {
#define MODE(id, name) MODE_##id,
    MODES
#undef MODE
        MODE_COUNT
};

static const char *const mode_names[] = {
#define MODE(id, name) #name,
    MODES
#undef MODE
};

/* WAY(ID, name): to receive. */
#define WAYS                  \
    WAY(RECV, recv)           \
    WAY(IRECV, irecv)         \
    WAY(RECV_INIT, recv_init) \
    WAY(PROBE, probe)         \
    WAY(IPROBE, iprobe)       \
    WAY(MPROBE, mprobe)       \
    WAY(IMPROBE, improbe)

enum way {
#define WAY(id, name) WAY_##id,
    WAYS
#undef WAY
        WAY_COUNT
};

static const char *const way_names[] = {
#define WAY(id, name) #name,
    WAYS
#undef WAY
};

static const size_t all_sizes[] = {0,       1,       6,       7,           8,      9,       8191,
                                   8192,    8193,    65535,   65536,       65537,  1048575, 1048576,
                                   1048577, 8388607, 8388608, 8388608 + 1, 1000000};
#define SIZES_MOST 64

/* One message, or one each way. The same on all ranks. */
typedef struct {
    uint64_t number, seed; /* of it; of all that is drawn for it */
    int kind[2], shape[2]; /* of sending, of receiving */
    size_t bytes, unit;
    size_t room; /* bytes that the receiver has place for: at least those sent */
    enum mode mode;
    enum way way;
    bool wild;  /* from any source, with any tag */
    bool ready; /* it is sent only when the receive has been posted */
    bool late;  /* the receiver comes late */
    enum msg_finish finish;
    int sender, receiver, tag;
} case_t;

static struct {
    check_t t;
    msg_work_t work;
    msg_buffer_t buffers[2][CHECK_KINDS]; /* for sending, for receiving */
    MPI_Comm comm, ready;                 /* of the messages; of what the test itself says */
    int rank, nranks, printed;
    void *attached;
    uint64_t seed, thin, only;
    int nkinds, kinds[CHECK_KINDS], nsizes;
    int host_rank; /* that has host memory only, or -1 */
    size_t sizes[SIZES_MOST];
    bool shapes[MSG_SHAPES], modes[MODE_COUNT], ways[WAY_COUNT];
} self;

/* ---- which cases there are ---- */

static bool is_exchange(enum mode m)
{
    return MODE_SENDRECV == m || MODE_EXCHANGE == m;
}

static bool is_ready(enum mode m)
{
    return MODE_RSEND == m || MODE_IRSEND == m || MODE_RSEND_INIT == m;
}

static bool is_blocking(enum mode m)
{
    return MODE_SEND == m || MODE_SSEND == m || MODE_RSEND == m;
}

/* The receive is posted before the sender needs anything. */
static bool is_posted(enum way w)
{
    return WAY_IRECV == w || WAY_RECV_INIT == w;
}

static bool is_persistent(const case_t *c)
{
    return (c->mode >= MODE_SEND_INIT && c->mode <= MODE_BSEND_INIT) || WAY_RECV_INIT == c->way;
}

/* Open MPI's ob1 sends other data from the second start of a buffered send on, where it is no eager one (4.1.4). A
 * message that is ours on its way must be right. */
static int starts_of(const case_t *c)
{
    bool host = MEM_HOST == c->kind[0] || MEM_MANAGED == c->kind[0] || MEM_REGISTERED == c->kind[0];

    if (!is_persistent(c) || (MODE_BSEND_INIT == c->mode && host && c->bytes > EAGER)) {
        return 1;
    }
    return STARTS;
}

static bool possible(const case_t *c)
{
    if (is_exchange(c->mode)) {
        return WAY_IRECV == c->way; /* each is its own way */
    }
    if (is_posted(c->way)) {
        return true;
    }
    return !is_ready(c->mode) && !(1 == self.nranks && is_blocking(c->mode));
}

/* What is the same for neighbours in the product is drawn. */
static void draw_rest(case_t *c)
{
    uint64_t x = c->seed;
    unsigned n = (unsigned) self.nranks;

    c->unit = (size_t) 1 << (x & 3);
    while (0 != c->bytes % c->unit) {
        c->unit /= 2;
    }
    for (int side = 0; side < 2; side++) {
        c->bytes = msg_bytes((enum msg_shape) c->shape[side], c->bytes);
    }
    c->room = c->bytes + (x >> 2 & 1 ? c->unit * ((x >> 3 & 15) + 1) : 0);
    c->room = msg_bytes((enum msg_shape) c->shape[1], c->room) < c->bytes ? c->bytes : c->room;
    c->wild = x >> 8 & 1;
    c->ready = is_posted(c->way) && (is_ready(c->mode) || (x >> 9 & 1));
    c->late = 0 == (x >> 10 & 15);
    c->finish = (enum msg_finish)((x >> 16 & 0xff) % MSG_FINISHES);
    c->tag = (int) ((x >> 24) % (TAG_MOST + 1));
    c->sender = (int) ((x >> 48) % n);
    c->receiver = (c->sender + (n > 1 ? 1 + (int) ((x >> 56) % (n - 1)) : 0)) % self.nranks;
    if (self.host_rank == c->sender || (self.host_rank == c->receiver && is_exchange(c->mode))) {
        c->kind[0] = MEM_HOST;
    }
    if (self.host_rank == c->receiver || (self.host_rank == c->sender && is_exchange(c->mode))) {
        c->kind[1] = MEM_HOST;
    }
}

static void describe(const case_t *c, char *text, size_t size)
{
    snprintf(text, size, "case %llu: %zu bytes of %zu, %s %s %s by %s%s to %s %s by %s%s%s, %s, tag %d, rank %d to %d",
             (unsigned long long) c->number, c->bytes, c->unit, mem_name(c->kind[0]), msg_shape_name(c->shape[0]),
             is_persistent(c) ? "again and again" : "once", mode_names[c->mode], c->ready ? " when ready" : "",
             mem_name(c->kind[1]), msg_shape_name(c->shape[1]), way_names[c->way], c->wild ? " from any" : "",
             c->late ? " late" : "", msg_finish_name(c->finish), c->tag, c->sender, c->receiver);
}

static bool wrong(const case_t *c, const char *what)
{
    char text[512];

    if (self.printed++ < FAILURES_SHOWN) {
        describe(c, text, sizeof(text));
        fprintf(stderr, NAME ": FAIL on rank %d: %s: %s\n", self.rank, text, what);
    }
    return false;
}

/* ---- one side of a message ---- */

/* A message as one rank has it; first: what it sends. */
typedef struct {
    const case_t *c;
    int direction; /* 0: from c->sender to c->receiver; 1: the other way, of an exchange */
    int peer;
    msg_layout_t layout;
    msg_buffer_t *buffer;
    MPI_Request request;
    bool right;
} side_t;

static void side_open(side_t *s, const case_t *c, int receives, int direction)
{
    int which = receives ^ direction; /* the way back has the sides' kinds and shapes swapped */
    uint64_t x = ref_mix(c->seed + (uint64_t) (2 * direction + receives));

    *s = (side_t){.c = c, .direction = direction, .request = MPI_REQUEST_NULL, .right = true};
    s->peer = receives ^ direction ? c->sender : c->receiver;
    msg_layout(&s->layout, (enum msg_shape) c->shape[which], receives ? c->room : c->bytes, c->unit, x);
    s->buffer = &self.buffers[receives][c->kind[which]];
    if (0 == (x >> 16 & 15)) {
        msg_release(s->buffer);
    }
    msg_place(s->buffer, c->kind[which], &s->layout, (x >> 8 & 7) * c->unit);
}

static void side_close(side_t *s)
{
    if (MPI_REQUEST_NULL != s->request) {
        MPI_Request_free(&s->request);
    }
    msg_layout_free(&s->layout);
}

/* The message's data, in the start-th start. */
static uint64_t data_of(const side_t *s, int start)
{
    return ref_mix(s->c->seed + (uint64_t) (8 * start + s->direction));
}

/* (buffer, count, type, destination, tag, communicator) */
#define SENT s->buffer->address, s->layout.count, s->layout.type, s->peer, s->c->tag, self.comm

/* Until the buffer may be used again; of what is nonblocking, until finished. */
static void send_start(side_t *s, int start)
{
    if (0 == start) {
        switch (s->c->mode) {
        case MODE_SEND_INIT:
            MPI_Send_init(SENT, &s->request);
            break;
        case MODE_SSEND_INIT:
            MPI_Ssend_init(SENT, &s->request);
            break;
        case MODE_RSEND_INIT:
            MPI_Rsend_init(SENT, &s->request);
            break;
        case MODE_BSEND_INIT:
            MPI_Bsend_init(SENT, &s->request);
            break;
        default:
            break;
        }
    }
    switch (s->c->mode) {
    case MODE_SEND:
        MPI_Send(SENT);
        break;
    case MODE_SSEND:
        MPI_Ssend(SENT);
        break;
    case MODE_RSEND:
        MPI_Rsend(SENT);
        break;
    case MODE_BSEND:
        MPI_Bsend(SENT);
        break;
    case MODE_ISEND:
    case MODE_EXCHANGE:
        MPI_Isend(SENT, &s->request);
        break;
    case MODE_ISSEND:
        MPI_Issend(SENT, &s->request);
        break;
    case MODE_IRSEND:
        MPI_Irsend(SENT, &s->request);
        break;
    case MODE_IBSEND:
        MPI_Ibsend(SENT, &s->request);
        break;
    default:
        MPI_Start(&s->request);
        break;
    }
}

#define FROM (s->c->wild ? MPI_ANY_SOURCE : s->peer), (s->c->wild ? MPI_ANY_TAG : s->c->tag), self.comm
#define RECEIVED s->buffer->address, s->layout.count, s->layout.type

/* Posts the receive, if that is its way. */
static void receive_start(side_t *s, int start)
{
    if (WAY_IRECV == s->c->way) {
        MPI_Irecv(RECEIVED, FROM, &s->request);
    } else if (WAY_RECV_INIT == s->c->way) {
        if (0 == start) {
            MPI_Recv_init(RECEIVED, FROM, &s->request);
        }
        MPI_Startall(1, &s->request);
    }
}

/* What a status says of the message, when it was received or found. */
static void check_status(side_t *s, MPI_Status *status, const char *when)
{
    const case_t *c = s->c;
    int count, elements, cancelled, want = msg_count(&s->layout, c->bytes);
    char what[256];

    MPI_Get_count(status, s->layout.type, &count);
    MPI_Get_elements(status, s->layout.type, &elements);
    MPI_Test_cancelled(status, &cancelled);
    if (status->MPI_SOURCE == s->peer && status->MPI_TAG == c->tag && count == want &&
        elements == (int) (c->bytes / c->unit) && !cancelled) {
        return;
    }
    snprintf(what, sizeof(what), "%s: the status says source %d, tag %d, count %d (not %d), elements %d (not %zu)%s",
             when, status->MPI_SOURCE, status->MPI_TAG, count, want, elements, c->bytes / c->unit,
             cancelled ? ", cancelled" : "");
    s->right = wrong(c, what);
}

static void receive_found(side_t *s, MPI_Status *status)
{
    MPI_Message message = MPI_MESSAGE_NULL;
    int flag = 0;

    switch (s->c->way) {
    case WAY_PROBE:
        MPI_Probe(FROM, status);
        break;
    case WAY_IPROBE:
        while (MPI_Iprobe(FROM, &flag, status), !flag) {
            sched_yield();
        }
        break;
    case WAY_MPROBE:
        MPI_Mprobe(FROM, &message, status);
        break;
    default:
        while (MPI_Improbe(FROM, &flag, &message, status), !flag) {
            sched_yield();
        }
        break;
    }
    check_status(s, status, "found");
    if (MPI_MESSAGE_NULL == message) {
        MPI_Recv(RECEIVED, status->MPI_SOURCE, status->MPI_TAG, self.comm, status);
    } else if (WAY_MPROBE == s->c->way) {
        MPI_Mrecv(RECEIVED, &message, status);
    } else {
        MPI_Imrecv(RECEIVED, &message, &s->request);
        msg_finish(s->c->finish, 1, &s->request, status);
    }
    if (MPI_MESSAGE_NULL != message) {
        s->right = wrong(s->c, "the message's handle is still there");
    }
}

static void receive_end(side_t *s)
{
    MPI_Status status;

    switch (s->c->way) {
    case WAY_RECV:
        MPI_Recv(RECEIVED, FROM, &status);
        break;
    case WAY_IRECV:
    case WAY_RECV_INIT:
        msg_finish(s->c->finish, 1, &s->request, &status);
        break;
    default:
        receive_found(s, &status);
    }
    check_status(s, &status, "received");
}

static void check_buffer(side_t *s, int start, const char *when)
{
    char why[128], what[256];

    if (!msg_right(&self.work, s->buffer, data_of(s, start), s->c->bytes, why)) {
        snprintf(what, sizeof(what), "%s: %s", when, why);
        s->right = wrong(s->c, what);
    }
}

/* ---- one case ---- */

static void tell_ready(int peer)
{
    MPI_Send(NULL, 0, MPI_BYTE, peer, 0, self.ready);
}

static void await_ready(int peer)
{
    MPI_Recv(NULL, 0, MPI_BYTE, peer, 0, self.ready, MPI_STATUS_IGNORE);
}

/* One message, as far as this rank has part in it: s[0] sends, s[1] receives. */
static void message(const case_t *c, side_t *s, bool sends, bool receives, int start)
{
    if (sends) {
        msg_fill(&self.work, s[0].buffer, data_of(&s[0], start));
    }
    if (receives) {
        msg_blank(&self.work, s[1].buffer);
        if (c->late && !(c->ready && sends)) {
            usleep(300);
        }
        receive_start(&s[1], start);
        if (c->ready && !sends) {
            tell_ready(c->sender);
        }
    }
    if (sends) {
        if (c->ready && !receives) {
            await_ready(c->receiver);
        }
        send_start(&s[0], start);
    }
    if (receives) {
        receive_end(&s[1]);
        check_buffer(&s[1], start, "the receiver's buffer");
    }
    if (sends) {
        if (MPI_REQUEST_NULL != s[0].request) {
            msg_finish(c->finish, 1, &s[0].request, NULL);
        }
        check_buffer(&s[0], start, "the sender's buffer");
    }
}

static void exchange(const case_t *c, side_t *out, side_t *in)
{
    MPI_Status status[2];
    side_t *s = in;

    msg_fill(&self.work, out->buffer, data_of(out, 0));
    msg_blank(&self.work, in->buffer);
    if (MODE_SENDRECV == c->mode) {
        MPI_Sendrecv(out->buffer->address, out->layout.count, out->layout.type, out->peer, c->tag, RECEIVED, FROM,
                     &status[1]);
    } else {
        MPI_Request both[2];

        MPI_Irecv(RECEIVED, FROM, &both[1]);
        s = out;
        MPI_Isend(SENT, &both[0]);
        msg_finish(c->finish, 2, both, status);
    }
    check_status(in, &status[1], "received");
    check_buffer(in, 0, "the buffer that received");
    check_buffer(out, 0, "the buffer that was sent");
}

static bool run_exchange(const case_t *c)
{
    int back = self.rank == c->sender ? 0 : 1; /* the direction of what this rank sends */
    side_t out, in;

    side_open(&out, c, 0, back);
    side_open(&in, c, 1, c->sender == c->receiver ? back : !back);
    exchange(c, &out, &in);
    side_close(&out);
    side_close(&in);
    return out.right && in.right;
}

static bool run_message(const case_t *c)
{
    bool sends = self.rank == c->sender, receives = self.rank == c->receiver, right = true;
    side_t s[2];

    for (int i = 0; i < 2; i++) {
        if (i ? receives : sends) {
            side_open(&s[i], c, i, 0);
        }
    }
    for (int start = 0; start < starts_of(c); start++) {
        message(c, s, sends, receives, start);
    }
    for (int i = 0; i < 2; i++) {
        if (i ? receives : sends) {
            side_close(&s[i]);
            right = right && s[i].right;
        }
    }
    return right;
}

static void run(const case_t *c)
{
    char text[512];

    if (self.nranks > 2) { /* else a later message from another rank could be taken for this one */
        MPI_Barrier(self.ready);
    }
    if (self.rank != c->sender && self.rank != c->receiver) {
        check_absent(&self.t);
        return;
    }
    if (check_trace()) {
        describe(c, text, sizeof(text));
        fprintf(stderr, NAME ": rank %d: %s\n", self.rank, text);
    }
    check_result(&self.t, is_exchange(c->mode) ? run_exchange(c) : run_message(c));
}

/* ---- all of them ---- */

/* Takes i modulo n from *i. */
static int digit(uint64_t *i, int n)
{
    int d = (int) (*i % (uint64_t) n);

    *i /= (uint64_t) n;
    return d;
}

static uint64_t product(void)
{
    return (uint64_t) self.nkinds * (uint64_t) self.nkinds * (uint64_t) self.nsizes * MSG_SHAPES * MSG_SHAPES *
           MODE_COUNT * WAY_COUNT;
}

static bool wanted(const case_t *c)
{
    if (UINT64_MAX != self.only) {
        return c->number == self.only;
    }
    return self.shapes[c->shape[0]] && self.shapes[c->shape[1]] && self.modes[c->mode] && self.ways[c->way] &&
           0 == ref_mix(c->seed) % (self.thin * (1 + c->bytes / LARGE));
}

static void all(void)
{
    uint64_t run_so_far = 0;

    for (uint64_t i = 0; i < product(); i++) {
        uint64_t rest = i;
        case_t c = {.number = i, .seed = ref_mix(self.seed + ref_mix(i))};

        c.way = (enum way) digit(&rest, WAY_COUNT);
        c.mode = (enum mode) digit(&rest, MODE_COUNT);
        for (int side = 0; side < 2; side++) {
            c.shape[side] = digit(&rest, MSG_SHAPES);
            c.kind[side] = self.kinds[digit(&rest, self.nkinds)];
        }
        c.bytes = self.sizes[digit(&rest, self.nsizes)];
        if (!possible(&c) || !wanted(&c)) {
            continue;
        }
        draw_rest(&c);
        run(&c);
        if (0 == ++run_so_far % 4096) {
            check_collect(&self.t);
        }
    }
}

/* ---- what is asked for ---- */

/* Whether `name` stands in the list of an option, or there is no such option. */
static bool listed(const char *list, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = list; NULL != at; at = strchr(at, ',')) {
        at += ',' == *at;
        if (0 == strncmp(at, name, length) && ('\0' == at[length] || ',' == at[length])) {
            return true;
        }
    }
    return NULL == list;
}

static void choose_sizes(const char *list, size_t most)
{
    size_t n = sizeof(all_sizes) / sizeof(all_sizes[0]);

    if (NULL == list) {
        for (size_t i = 0; i < n; i++) {
            if (all_sizes[i] <= most) {
                self.sizes[self.nsizes++] = all_sizes[i];
            }
        }
        return;
    }
    for (const char *at = list; NULL != at && self.nsizes < SIZES_MOST; at = strchr(at, ',')) {
        at += ',' == *at;
        self.sizes[self.nsizes++] = strtoull(at, NULL, 0);
    }
}

static void choose(void)
{
    const char *shapes = check_option("--shapes"), *modes = check_option("--modes"), *ways = check_option("--ways");

    self.nkinds = check_kinds(self.kinds);
    choose_sizes(check_option("--sizes"), check_number("--most", SIZE_MAX));
    self.thin = check_number("--thin", 100);
    self.only = check_number("--case", UINT64_MAX);
    self.host_rank = (int) check_number("--host-rank", UINT64_MAX);
    for (int i = 0; i < MSG_SHAPES; i++) {
        self.shapes[i] = listed(shapes, msg_shape_name(i));
    }
    for (int i = 0; i < MODE_COUNT; i++) {
        self.modes[i] = listed(modes, mode_names[i]);
    }
    for (int i = 0; i < WAY_COUNT; i++) {
        self.ways[i] = listed(ways, way_names[i]);
    }
    check_arguments_end(USAGE);
}

static size_t largest(void)
{
    size_t most = 0;

    for (int i = 0; i < self.nsizes; i++) {
        most = self.sizes[i] > most ? self.sizes[i] : most;
    }
    return most + 256;
}

int main(int argc, char **argv)
{
    long failed;
    size_t room;
    int size;

    check_init(&argc, &argv, NAME, MPI_THREAD_SINGLE);
    self.seed = check_seed();
    choose();
    check_start(&self.t, NAME, MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &self.nranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &self.comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &self.ready);
    msg_init(largest());
    /* The messages of the cases before may still be on their way. */
    room = 3 * STARTS * (largest() + BOTH_WAYS_ROOM + MPI_BSEND_OVERHEAD);
    self.attached = malloc(room);
    MPI_Buffer_attach(self.attached, (int) room);

    all();

    MPI_Buffer_detach(&self.attached, &size);
    free(self.attached);
    for (int kind = 0; kind < CHECK_KINDS; kind++) {
        msg_release(&self.buffers[0][kind]);
        msg_release(&self.buffers[1][kind]);
    }
    msg_work_free(&self.work);
    msg_fini();
    MPI_Comm_free(&self.comm);
    MPI_Comm_free(&self.ready);
    failed = check_end(&self.t);
    check_print(NAME, self.t.passed, self.t.failed);
    return check_fini(failed);
}
