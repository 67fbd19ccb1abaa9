/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: messages from host memory of rank 0 into GPU memory of rank 1, and which way they take, by the counters.
 * The first long one to a receiver is an ordinary one; the next ones are pushed by the sender's GPU, if the program has
 * pinned them and the receiver's memory can be mapped, or go in pieces; one that is received into host memory ends
 * that.
 * --no-push: the sender cannot map the receiver's memory.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "test/mpi/check.h"
#include "test/mpi/mpit.h"
#include "test/mpi/msg.h"

#define NAME "from_host"
#define USAGE "[--seed N] [--no-push]"
#define TAG 3
#define ORDINARY_MAX 8192 /* bytes: up to here no message goes by RTS */
#define SHORT_MAX 16384   /* ..., none is pushed */
#define LARGEST ((size_t) 3 << 20)
#define WINDOW 12
#define FOUND 7 /* messages of LARGEST bytes: more than 16 MiB */

/* A message's way. */
enum way { ORDINARY, PIECES, PUSH };
static const char *const way_names[] = {"an ordinary one", "in pieces", "pushed"};

enum mode { SEND, SSEND, RSEND, MODES };

static struct {
    check_t t;
    msg_work_t work;
    int rank;
    bool no_push;
} self;

static bool wrong(const char *what, const char *why)
{
    fprintf(stderr, NAME ": FAIL on rank %d: %s: %s\n", self.rank, what, why);
    return false;
}

/* ---- counters ---- */

typedef struct {
    unsigned long long from_host, pushed, piped, received_pushed, staged;
} counts_t;

static unsigned long long count_of(const char *name)
{
    unsigned long long value = 0;
    char whole[64];

    snprintf(whole, sizeof(whole), "coll_gpusym_p2p_%s", name);
    if (!mpit_counter(whole, &value)) {
        wrong(whole, "no such counter");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return value;
}

static counts_t count(void)
{
    return (counts_t){count_of("sent_from_host"), count_of("sent_pushed"), count_of("received_piped"),
                      count_of("received_pushed"), count_of("received_staged")};
}

/* Whether one message has gone that way since `was`. */
static bool way_right(const counts_t *was, enum way way, bool to_gpu, const char *what)
{
    const counts_t now = count();
    char why[256];
    const bool right = 0 == self.rank ? now.from_host - was->from_host == (ORDINARY != way) &&
                                            now.pushed - was->pushed == (PUSH == way)
                                      : now.piped - was->piped == (PIECES == way) &&
                                            now.received_pushed - was->received_pushed == (PUSH == way) &&
                                            now.staged - was->staged == (ORDINARY == way && to_gpu);

    MPI_Barrier(MPI_COMM_WORLD); /* the receiver tells where the message went after it has come */
    snprintf(why, sizeof(why),
             "not %s: sent from host +%llu, pushed +%llu, received in pieces +%llu, pushed +%llu, staged +%llu",
             way_names[way], now.from_host - was->from_host, now.pushed - was->pushed, now.piped - was->piped,
             now.received_pushed - was->received_pushed, now.staged - was->staged);
    return right || wrong(what, why);
}

/* ---- one message ---- */

typedef struct {
    msg_layout_t layout;
    msg_buffer_t buffer;
} side_t;

static void side_open(side_t *s, int kind, enum msg_shape shape, size_t bytes)
{
    memset(s, 0, sizeof(*s));
    msg_layout(&s->layout, shape, bytes, 1, 1);
    msg_place(&s->buffer, kind, &s->layout, 0);
}

static void side_close(side_t *s)
{
    msg_layout_free(&s->layout);
    msg_release(&s->buffer);
}

#define SIDE(s) (s).buffer.address, (s).layout.count, (s).layout.type

static void send_by(enum mode mode, const side_t *s)
{
    switch (mode) {
    case SSEND:
        MPI_Ssend(SIDE(*s), 1, TAG, MPI_COMM_WORLD);
        break;
    case RSEND:
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Rsend(SIDE(*s), 1, TAG, MPI_COMM_WORLD);
        break;
    default:
        MPI_Send(SIDE(*s), 1, TAG, MPI_COMM_WORLD);
    }
}

static void receive_by(enum mode mode, const side_t *s, MPI_Status *status)
{
    MPI_Request request;

    if (RSEND != mode) {
        MPI_Probe(0, TAG, MPI_COMM_WORLD, status);
        MPI_Recv(SIDE(*s), 0, TAG, MPI_COMM_WORLD, SSEND == mode ? MPI_STATUS_IGNORE : status);
        return;
    }
    MPI_Irecv(SIDE(*s), 0, TAG, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Wait(&request, status);
}

static bool is_gpu(int kind)
{
    return MEM_HOST != kind && MEM_REGISTERED != kind;
}

static bool message(enum way way, enum mode mode, const int kinds[2], enum msg_shape shape, size_t about)
{
    const size_t bytes = msg_bytes(shape, about);
    const counts_t was = count();
    MPI_Status status;
    side_t s;
    bool right = true;
    int elements;
    char what[128], why[128];

    snprintf(what, sizeof(what), "%zu bytes, %s to %s %s, mode %d", bytes, mem_name(kinds[0]), mem_name(kinds[1]),
             msg_shape_name(shape), mode);
    side_open(&s, kinds[self.rank], 0 == self.rank ? MSG_CONTIGUOUS : shape, bytes);
    if (0 == self.rank) {
        msg_fill(&self.work, &s.buffer, bytes);
        send_by(mode, &s);
    } else {
        msg_blank(&self.work, &s.buffer);
        receive_by(mode, &s, &status);
        MPI_Get_elements(&status, MPI_BYTE, &elements);
        right = (size_t) elements == bytes || wrong(what, "the status says another size");
    }
    right = (msg_right(&self.work, &s.buffer, bytes, bytes, why) || wrong(what, why)) && right;
    side_close(&s);
    return way_right(&was, way, is_gpu(kinds[1]), what) && right;
}

/* ---- parts ---- */

/* Started before the receiver has told where it receives, and afterwards. */
static bool persistent(void)
{
    static const enum way ways[] = {ORDINARY, PIECES, PIECES};
    MPI_Request request;
    bool right = true;
    char why[128];
    side_t s;

    side_open(&s, 0 == self.rank ? MEM_HOST : MEM_DEVICE, MSG_CONTIGUOUS, 100000);
    if (0 == self.rank) {
        MPI_Send_init(SIDE(s), 1, TAG, MPI_COMM_WORLD, &request);
    } else {
        MPI_Recv_init(SIDE(s), 0, TAG, MPI_COMM_WORLD, &request);
    }
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        const counts_t was = count();

        if (0 == self.rank) {
            msg_fill(&self.work, &s.buffer, i);
        } else {
            msg_blank(&self.work, &s.buffer);
        }
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        right = (msg_right(&self.work, &s.buffer, i, 100000, why) || wrong("persistent", why)) && right;
        right = way_right(&was, ways[i], true, "persistent") && right;
    }
    MPI_Request_free(&request);
    side_close(&s);
    return right;
}

/* Until the sender has a GPU of its own, nothing is pushed. */
static bool without_gpu(void)
{
    return message(PIECES, SEND, (int[]){MEM_REGISTERED, MEM_DEVICE}, MSG_CONTIGUOUS, 100000);
}

static void use_gpu(void)
{
    side_t out, in;

    side_open(&out, MEM_DEVICE, MSG_CONTIGUOUS, 100);
    side_open(&in, MEM_DEVICE, MSG_CONTIGUOUS, 100);
    MPI_Sendrecv(SIDE(out), 0, TAG, SIDE(in), 0, TAG, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    side_close(&out);
    side_close(&in);
}

static bool ways(void)
{
    static const size_t sizes[] = {ORDINARY_MAX, ORDINARY_MAX + 1, SHORT_MAX,  SHORT_MAX + 1,
                                   100000,       1 << 20,          LARGEST - 5};
    static const enum msg_shape shapes[] = {MSG_CONTIGUOUS, MSG_VECTOR};
    bool right = true;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int c = 0; c < 8; c++) {
            const int kinds[] = {c & 1 ? MEM_REGISTERED : MEM_HOST,
                                 c & 2 && mem_have(MEM_ASYNC) ? MEM_ASYNC : MEM_DEVICE};
            const enum msg_shape shape = shapes[c >> 2];
            const bool pushed =
                sizes[i] > SHORT_MAX && MEM_REGISTERED == kinds[0] && MEM_DEVICE == kinds[1] && MSG_CONTIGUOUS == shape;
            const enum way way = sizes[i] <= ORDINARY_MAX ? ORDINARY : pushed && !self.no_push ? PUSH : PIECES;

            right = message(way, (enum mode)((unsigned) c % MODES), kinds, shape, sizes[i]) && right;
        }
    }
    return right;
}

/* Messages into GPU memory and into host memory by turns: each way is for the next message like the last. */
static bool turns(void)
{
    const int to_gpu[] = {MEM_HOST, MEM_DEVICE}, to_host[] = {MEM_HOST, MEM_HOST},
              pinned[] = {MEM_REGISTERED, MEM_HOST};
    bool right = message(PIECES, SEND, to_gpu, MSG_CONTIGUOUS, 1 << 20);

    right = message(PIECES, SSEND, to_host, MSG_VECTOR, 1 << 20) && right;
    right = message(ORDINARY, SEND, to_host, MSG_CONTIGUOUS, 1 << 20) && right;
    right = message(ORDINARY, SEND, to_gpu, MSG_CONTIGUOUS, 1 << 20) && right;
    right = message(PIECES, SEND, pinned, MSG_CONTIGUOUS, 1 << 20) && right;
    right = message(ORDINARY, SEND, pinned, MSG_CONTIGUOUS, 1 << 20) && right;
    return message(ORDINARY, SEND, to_gpu, MSG_CONTIGUOUS, 1 << 20) && right;
}

static bool truncation(int kind, size_t room)
{
    const counts_t was = count();
    bool right = true;
    char why[128];
    side_t s;
    int code, class;

    side_open(&s, 0 == self.rank ? kind : MEM_DEVICE, MSG_CONTIGUOUS, 0 == self.rank ? 200000 : room);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (0 == self.rank) {
        msg_fill(&self.work, &s.buffer, 1);
        code = MPI_Send(SIDE(s), 1, TAG, MPI_COMM_WORLD);
        right = MPI_SUCCESS == code || wrong("truncation", "the send fails");
        right = was.from_host + 1 == count().from_host || wrong("truncation", "it was an ordinary message");
    } else {
        msg_blank(&self.work, &s.buffer);
        code = MPI_Recv(SIDE(s), 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Error_class(code, &class);
        right = MPI_ERR_TRUNCATE == class || wrong("truncation", "no error");
        right = (msg_untouched_beside(&self.work, &s.buffer, why) || wrong("truncation", why)) && right;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    side_close(&s);
    return right;
}

/* A window in each direction at once, with the other rank or the rank itself. */
static bool both(int peer, int kind)
{
    MPI_Request requests[2 * WINDOW];
    side_t out[WINDOW], in[WINDOW];
    bool right = true;
    char why[128];

    for (unsigned i = 0; i < WINDOW; i++) {
        const size_t bytes = 10000 + i * 30000;
        side_open(&out[i], kind, MSG_CONTIGUOUS, bytes);
        side_open(&in[i], MEM_DEVICE, MSG_CONTIGUOUS, bytes);
        msg_fill(&self.work, &out[i].buffer, i);
        msg_blank(&self.work, &in[i].buffer);
    }
    for (unsigned i = 0; i < WINDOW; i++) {
        MPI_Irecv(SIDE(in[i]), peer, TAG, MPI_COMM_WORLD, &requests[i]);
    }
    for (unsigned i = 0; i < WINDOW; i++) {
        MPI_Isend(SIDE(out[i]), peer, TAG, MPI_COMM_WORLD, &requests[WINDOW + i]);
    }
    MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
    for (unsigned i = 0; i < WINDOW; i++) {
        right = (msg_right(&self.work, &in[i].buffer, i, in[i].layout.bytes, why) || wrong("both ways", why)) && right;
        right = (msg_right(&self.work, &out[i].buffer, i, out[i].layout.bytes, why) || wrong("sent", why)) && right;
        side_close(&out[i]);
        side_close(&in[i]);
    }
    return right;
}

/* As many as are by RTS, once the receiver has told. */
static bool windows(void)
{
    bool right = true;

    for (int i = 0; i < 2; i++) {
        const int kind = i ? MEM_REGISTERED : MEM_HOST, peers[] = {1 - self.rank, self.rank};

        for (int p = 0; p < 2; p++) {
            right = both(peers[p], kind) && right;
            MPI_Barrier(MPI_COMM_WORLD);
            const unsigned long long was = count().from_host;
            right = both(peers[p], kind) && right;
            right = (count().from_host - was == WINDOW || wrong("both ways", "some were ordinary messages")) && right;
        }
    }
    return right;
}

/* More than the slots of pieces hold are found before the last one is received first. */
static bool found(void)
{
    MPI_Request requests[FOUND];
    MPI_Message messages[FOUND];
    side_t s[FOUND];
    bool right = true;
    char why[128];

    for (unsigned i = 0; i < FOUND; i++) {
        side_open(&s[i], 0 == self.rank ? MEM_HOST : MEM_DEVICE, MSG_CONTIGUOUS, LARGEST);
        if (0 == self.rank) {
            msg_fill(&self.work, &s[i].buffer, i);
            MPI_Isend(SIDE(s[i]), 1, TAG, MPI_COMM_WORLD, &requests[i]);
        } else {
            msg_blank(&self.work, &s[i].buffer);
            MPI_Mprobe(0, TAG, MPI_COMM_WORLD, &messages[i], MPI_STATUS_IGNORE);
        }
    }
    for (unsigned i = FOUND; i-- > 0;) {
        if (0 == self.rank) {
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        } else {
            MPI_Mrecv(SIDE(s[i]), &messages[i], MPI_STATUS_IGNORE);
            right = (msg_right(&self.work, &s[i].buffer, i, LARGEST, why) || wrong("found", why)) && right;
        }
        side_close(&s[i]);
    }
    return right;
}

int main(int argc, char **argv)
{
    long failed;

    check_init(&argc, &argv, NAME, MPI_THREAD_SINGLE);
    (void) check_seed();
    self.no_push = check_flag("--no-push");
    check_arguments_end(USAGE);
    check_start(&self.t, NAME, MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
    if (2 != self.t.nranks) {
        fprintf(stderr, NAME ": for 2 ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    msg_init(LARGEST);
    (void) count();

    check_result(&self.t, persistent());
    check_result(&self.t, without_gpu());
    use_gpu();
    check_result(&self.t, ways());
    check_result(&self.t, truncation(MEM_HOST, 150000));
    check_result(&self.t, truncation(MEM_REGISTERED, 1));
    check_result(&self.t, windows());
    check_result(&self.t, found());
    check_result(&self.t, turns());

    msg_work_free(&self.work);
    msg_fini();
    failed = check_end(&self.t);
    check_print(NAME, self.t.passed, self.t.failed);
    return check_fini(failed);
}
