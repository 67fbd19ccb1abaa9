/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: what a program may expect of messages beyond their bytes, between ranks 0 and 1, each part a test of
 * its own: order, many in flight, small messages head to head, truncation, cancelling, freeing of active requests,
 * buffers that come and go, intercommunicators, MPI_PROC_NULL, MPI_BOTTOM, 7 bytes of any content, messages to
 * itself. /
 */
#include <mpi.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mca/common/gpusym/sanitizers.h"
#include "test/hang.h"
#include "test/mpi/check.h"
#include "test/mpi/msg.h"

#define USAGE "[--seed N] [--kinds LIST] [--n MESSAGES] [--flood MESSAGES] [--only LIST]"
#define NAME "p2p_order"
#define FAILURES_SHOWN 8
#define EAGER 4000    /* bytes of a host message that every transport sends at once */
#define BUFFERED 8192 /* bytes of a message of GPU memory that waits for nobody */
#define TAG 5

static struct {
    check_t t;
    msg_work_t work;
    MPI_Comm comm; /* of ranks 0 and 1 */
    int rank, peer, printed;
    uint64_t seed;
    size_t n, flood;
    int nkinds, kinds[CHECK_KINDS];
    const char *test; /* that runs */
} self;

__attribute__((format(printf, 1, 2))) static bool wrong(const char *format, ...)
{
    va_list ap;

    if (self.printed++ < FAILURES_SHOWN) {
        char text[512];

        va_start(ap, format);
        vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        fprintf(stderr, NAME ": FAIL on rank %d: %s: %s\n", self.rank, self.test, text);
    }
    return false;
}

/* Whether the CPU reaches memory of the kind: then MPI sends it as it sends any. */
static bool is_host(int kind)
{
    return MEM_HOST == kind || MEM_MANAGED == kind || MEM_REGISTERED == kind;
}

static int random_kind(uint64_t x)
{
    return self.kinds[ref_mix(x) % (uint64_t) self.nkinds];
}

/* ---- one buffer ---- */

typedef struct {
    msg_layout_t layout;
    msg_buffer_t buffer;
} memory_t;

static void memory_open(memory_t *m, int kind, size_t bytes)
{
    memset(m, 0, sizeof(*m));
    msg_layout(&m->layout, MSG_CONTIGUOUS, bytes, 1, 1);
    msg_place(&m->buffer, kind, &m->layout, 0);
}

static void memory_close(memory_t *m)
{
    msg_release(&m->buffer);
    msg_layout_free(&m->layout);
}

#define BYTES(m) (m).buffer.address, (int) (m).layout.bytes, MPI_BYTE

static bool memory_right(memory_t *m, uint64_t seed, size_t bytes, const char *what)
{
    char why[128];

    if (msg_right(&self.work, &m->buffer, seed, bytes, why)) {
        return true;
    }
    return wrong("%s: %s, %zu bytes: %s", what, mem_name(m->buffer.kind), bytes, why);
}

static bool status_right(MPI_Status *s, int source, int tag, size_t bytes, const char *what)
{
    int count;

    MPI_Get_count(s, MPI_BYTE, &count);
    if (source == s->MPI_SOURCE && tag == s->MPI_TAG && (int) bytes == count) {
        return true;
    }
    return wrong("%s: the status says source %d, tag %d, %d bytes; not %d, %d, %zu", what, s->MPI_SOURCE, s->MPI_TAG,
                 count, source, tag, bytes);
}

/* ---- many messages, in one allocation for each kind of memory ---- */

typedef struct {
    size_t n;
    uint64_t seed;
    int *kind;
    size_t *bytes, *at; /* of each message; at: in the slab of its kind */
    unsigned char *slab[CHECK_KINDS], *image[CHECK_KINDS];
    size_t size[CHECK_KINDS];
} pile_t;

/* Most are small; some of 7 bytes, some of none. */
static size_t pile_bytes(uint64_t x)
{
    uint64_t r = ref_mix(x);

    if (0 == r % 1024) {
        return 60000 + (r >> 32) % 10000;
    }
    if (0 == r % 128) {
        return 8000 + (r >> 32) % 400;
    }
    return (size_t[]){0, 7, 7, (r >> 32) % 16, (r >> 32) % 300, (r >> 32) % 300, 8, 100}[(r >> 16) % 8];
}

static void *need(size_t size)
{
    void *p = malloc(size + 1);

    if (NULL == p) {
        fprintf(stderr, NAME ": no memory for %zu bytes\n", size);
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    return p;
}

/* The messages of `seed`, alike on both sides but for their kinds of memory: `kind`, or each its own. */
static void pile_open(pile_t *p, size_t n, uint64_t seed, int side, int kind)
{
    memset(p, 0, sizeof(*p));
    p->n = n;
    p->seed = seed;
    p->kind = need(n * sizeof(*p->kind));
    p->bytes = need(n * sizeof(*p->bytes));
    p->at = need(n * sizeof(*p->at));
    for (size_t i = 0; i < n; i++) {
        int k = kind < 0 ? random_kind(seed + 2 * i + (uint64_t) side) : kind;
        p->kind[i] = k;
        p->bytes[i] = pile_bytes(seed + i);
        p->at[i] = p->size[k];
        p->size[k] += (p->bytes[i] + 31) / 16 * 16; /* at least 16 bytes between two */
    }
    for (int k = 0; k < CHECK_KINDS; k++) {
        if (p->size[k] > 0) {
            p->slab[k] = mem_alloc(k, p->size[k]);
            p->image[k] = need(p->size[k]);
        }
    }
}

static void pile_close(pile_t *p)
{
    for (int k = 0; k < CHECK_KINDS; k++) {
        if (p->size[k] > 0) {
            mem_free(k, p->slab[k]);
            free(p->image[k]);
        }
    }
    free(p->kind);
    free(p->bytes);
    free(p->at);
}

static void *pile_address(const pile_t *p, size_t i)
{
    return p->slab[p->kind[i]] + p->at[i];
}

/* What the slabs hold, in the images: canaries, with messages or without. */
static void pile_draw(pile_t *p, bool messages)
{
    for (int k = 0; k < CHECK_KINDS; k++) {
        if (0 != p->size[k]) {
            memset(p->image[k], 0xa7, p->size[k]);
        }
    }
    for (size_t i = 0; messages && i < p->n; i++) {
        memcpy(p->image[p->kind[i]] + p->at[i], msg_data(p->seed + i), p->bytes[i]);
    }
}

static void pile_write(pile_t *p, bool messages)
{
    pile_draw(p, messages);
    for (int k = 0; k < CHECK_KINDS; k++) {
        if (p->size[k] > 0) {
            mem_write(p->slab[k], p->image[k], p->size[k]);
        }
    }
}

/* Every message is there, and nothing beside. */
static bool pile_right(pile_t *p, const char *what)
{
    pile_draw(p, true);
    for (int k = 0; k < CHECK_KINDS; k++) {
        unsigned char *got = need(p->size[k]);
        size_t at = 0;

        if (p->size[k] > 0) {
            mem_read(got, p->slab[k], p->size[k]);
        }
        while (at < p->size[k] && got[at] == p->image[k][at]) {
            at++;
        }
        free(got);
        if (at < p->size[k]) {
            size_t i = 0;
            while (i < p->n && !(p->kind[i] == k && at < p->at[i] + (p->bytes[i] + 31) / 16 * 16)) {
                i++;
            }
            return wrong("%s: %s memory is wrong at byte %zu of message %zu of %zu bytes", what, mem_name(k),
                         at - p->at[i], i, p->bytes[i]);
        }
    }
    return true;
}

/* ---- order ---- */

/* Messages of all kinds of memory both ways on one tag; receives with wildcards and without, before and after. */
static bool order(void)
{
    size_t n = self.n, sent = 0, posted = 0;
    MPI_Request *requests = need(2 * n * sizeof(*requests));
    MPI_Status *statuses = need(2 * n * sizeof(*statuses));
    pile_t out, in;
    bool right = true;

    pile_open(&out, n, ref_mix(self.seed + (uint64_t) self.rank), 0, -1);
    pile_open(&in, n, ref_mix(self.seed + (uint64_t) self.peer), 1, -1);
    pile_write(&out, true);
    pile_write(&in, false);
    for (uint64_t x = self.seed + 17; sent < n || posted < n; x = ref_mix(x + (uint64_t) self.rank)) {
        bool send = posted == n || (sent < n && (x & 64));
        for (size_t burst = x >> 8 & 31; burst > 0 && (send ? sent : posted) < n; burst--) {
            if (send) {
                MPI_Isend(pile_address(&out, sent), (int) out.bytes[sent], MPI_BYTE, self.peer, TAG, self.comm,
                          &requests[n + sent]);
                sent++;
            } else {
                MPI_Irecv(pile_address(&in, posted), (int) in.bytes[posted], MPI_BYTE,
                          x & 1 ? MPI_ANY_SOURCE : self.peer, x & 2 ? MPI_ANY_TAG : TAG, self.comm, &requests[posted]);
                posted++;
            }
        }
    }
    msg_finish(MSG_WAITALL, (int) (2 * n), requests, statuses);
    for (size_t i = 0; i < n; i++) {
        right = status_right(&statuses[i], self.peer, TAG, in.bytes[i], "in flight") && right;
    }
    right = pile_right(&in, "received") && pile_right(&out, "sent") && right;
    pile_close(&out);
    pile_close(&in);
    free(requests);
    free(statuses);
    return right;
}

/* The same by blocking receives: a message is found first, or received by anyone who asks. */
static bool order_blocking(void)
{
    size_t n = self.n / 4;
    MPI_Request *requests = need(n * sizeof(*requests));
    pile_t out, in;
    bool right = true;

    pile_open(&out, n, ref_mix(self.seed + 3 + (uint64_t) self.rank), 0, -1);
    pile_open(&in, n, ref_mix(self.seed + 3 + (uint64_t) self.peer), 1, -1);
    pile_write(&out, true);
    pile_write(&in, false);
    for (size_t i = 0; i < n; i++) {
        MPI_Isend(pile_address(&out, i), (int) out.bytes[i], MPI_BYTE, self.peer, TAG, self.comm, &requests[i]);
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t x = ref_mix(self.seed + i);
        int source = x & 1 ? MPI_ANY_SOURCE : self.peer, tag = x & 2 ? MPI_ANY_TAG : TAG, bytes = (int) in.bytes[i];
        MPI_Message message;
        MPI_Status status;

        if (x & 4) {
            MPI_Probe(source, tag, self.comm, &status);
            right = status_right(&status, self.peer, TAG, in.bytes[i], "probed") && right;
        }
        if (x & 8) {
            MPI_Mprobe(source, tag, self.comm, &message, &status);
            right = status_right(&status, self.peer, TAG, in.bytes[i], "found") && right;
            MPI_Mrecv(pile_address(&in, i), bytes, MPI_BYTE, &message, &status);
        } else {
            MPI_Recv(pile_address(&in, i), bytes, MPI_BYTE, source, tag, self.comm, &status);
        }
        right = status_right(&status, self.peer, TAG, in.bytes[i], "received") && right;
    }
    MPI_Waitall((int) n, requests, MPI_STATUSES_IGNORE);
    right = pile_right(&in, "received") && pile_right(&out, "sent") && right;
    pile_close(&out);
    pile_close(&in);
    free(requests);
    return right;
}

/* So many messages of one kind, each on its own tag, are sent before one is received; then from last to first. */
static bool flood_of(int kind)
{
    size_t n = self.flood;
    MPI_Request *requests = need(n * sizeof(*requests));
    pile_t p;
    bool right = true;

    for (int sender = 0; sender < 2; sender++) {
        pile_open(&p, n, ref_mix(self.seed + 9 + (uint64_t) sender), self.rank, kind);
        pile_write(&p, sender == self.rank);
        for (size_t i = 0; i < n && sender == self.rank; i++) {
            MPI_Isend(pile_address(&p, i), (int) p.bytes[i], MPI_BYTE, self.peer, (int) i, self.comm, &requests[i]);
        }
        MPI_Barrier(self.comm);
        for (size_t i = n; i-- > 0 && sender != self.rank;) {
            MPI_Status status;

            MPI_Recv(pile_address(&p, i), (int) p.bytes[i], MPI_BYTE, self.peer, (int) i, self.comm, &status);
            right = status_right(&status, self.peer, (int) i, p.bytes[i], "received") && right;
        }
        if (sender == self.rank) {
            MPI_Waitall((int) n, requests, MPI_STATUSES_IGNORE);
        }
        right = pile_right(&p, sender == self.rank ? "sent" : "received") && right;
        pile_close(&p);
    }
    free(requests);
    return right;
}

static bool flood(void)
{
    bool right = true;

    for (int k = 0; k < self.nkinds; k++) {
        if (0 == k || !is_host(self.kinds[k])) { /* the rest are sent as the first is */
            right = flood_of(self.kinds[k]) && right;
        }
    }
    return right;
}

/* ---- small messages wait for nobody ---- */

static bool head_to_head(void)
{
    const size_t sizes[] = {1, 7, 8, 1000, EAGER, BUFFERED - 1, BUFFERED};
    bool right = true;

    for (size_t i = 0; i < self.nkinds * sizeof(sizes) / sizeof(sizes[0]); i++) {
        int kind = self.kinds[i % (size_t) self.nkinds];
        size_t bytes = sizes[i / (size_t) self.nkinds];
        memory_t out, in;

        if (bytes > (is_host(kind) ? EAGER : BUFFERED)) {
            continue;
        }
        memory_open(&out, kind, bytes);
        memory_open(&in, random_kind(self.seed + i), bytes);
        for (uint64_t round = 0; round < 5; round++) {
            MPI_Status status;

            msg_fill(&self.work, &out.buffer, round + (uint64_t) self.rank);
            msg_blank(&self.work, &in.buffer);
            MPI_Send(BYTES(out), self.peer, TAG, self.comm);
            msg_fill(&self.work, &out.buffer, 99); /* it is the program's again */
            MPI_Recv(BYTES(in), self.peer, TAG, self.comm, &status);
            right = status_right(&status, self.peer, TAG, bytes, "received") && right;
            right = memory_right(&in, round + (uint64_t) self.peer, bytes, "received") && right;
        }
        memory_close(&out);
        memory_close(&in);
    }
    return right;
}

/* ---- truncation ---- */

static int class_of(int code)
{
    int class = MPI_SUCCESS;

    MPI_Error_class(code, &class);
    return class;
}

/* Receives into less than is sent, by one of the ways. */
static int receive_less(unsigned way, memory_t *in, MPI_Status *status)
{
    MPI_Message message;
    MPI_Request request;
    int code;

    switch (way % 5) {
    case 0:
        return MPI_Recv(BYTES(*in), self.peer, TAG, self.comm, status);
    case 1:
        MPI_Irecv(BYTES(*in), MPI_ANY_SOURCE, MPI_ANY_TAG, self.comm, &request);
        return MPI_Wait(&request, status);
    case 2:
        MPI_Mprobe(self.peer, TAG, self.comm, &message, status);
        return MPI_Mrecv(BYTES(*in), &message, status);
    case 3:
        MPI_Mprobe(self.peer, TAG, self.comm, &message, status);
        code = MPI_Imrecv(BYTES(*in), &message, &request);
        return MPI_SUCCESS == code ? MPI_Wait(&request, status) : code;
    default:
        MPI_Recv_init(BYTES(*in), self.peer, TAG, self.comm, &request);
        MPI_Start(&request);
        code = MPI_Wait(&request, status);
        if (MPI_REQUEST_NULL != request) { /* some MPIs free what failed */
            MPI_Request_free(&request);
        }
        return code;
    }
}

/* One message that is too long, and one behind it that is not: both ranks end, and the second is right. */
static bool truncate_one(unsigned way, int skind, int rkind, size_t bytes, size_t room)
{
    memory_t longer, after;
    bool right = true;
    char why[128];

    memory_open(&longer, 0 == self.rank ? skind : rkind, 0 == self.rank ? bytes : room);
    memory_open(&after, 0 == self.rank ? skind : rkind, 200);
    if (0 == self.rank) {
        int code;

        msg_fill(&self.work, &longer.buffer, bytes);
        msg_fill(&self.work, &after.buffer, 1);
        code = way % 2 ? MPI_Ssend(BYTES(longer), 1, TAG, self.comm) : MPI_Send(BYTES(longer), 1, TAG, self.comm);
        if (MPI_SUCCESS != code) {
            right = wrong("%zu bytes into %zu: the sender was told class %d", bytes, room, class_of(code));
        }
        MPI_Send(BYTES(after), 1, TAG, self.comm);
    } else {
        MPI_Status status;
        int code;

        msg_blank(&self.work, &longer.buffer);
        msg_blank(&self.work, &after.buffer);
        code = receive_less(way, &longer, &status);
        if (MPI_ERR_TRUNCATE != class_of(code)) {
            right = wrong("%zu bytes into %zu, way %u, %s to %s: class %d, not MPI_ERR_TRUNCATE", bytes, room, way % 5,
                          mem_name(skind), mem_name(rkind), class_of(code));
        }
        if (!msg_untouched_beside(&self.work, &longer.buffer, why)) {
            right = wrong("%zu bytes into %zu, %s to %s: %s", bytes, room, mem_name(skind), mem_name(rkind), why);
        }
        MPI_Recv(BYTES(after), 0, TAG, self.comm, &status);
        right = status_right(&status, 0, TAG, 200, "the message behind") && right;
        right = memory_right(&after, 1, 200, "the message behind") && right;
    }
    memory_close(&longer);
    memory_close(&after);
    return right;
}

static bool truncation(void)
{
    const size_t sent[] = {1, 3, 7, 8, 100, 8192, 100000, (size_t) 3 << 20}, rooms[] = {0, 1, 6, 7, 8, 5000, 70000};
    unsigned way = 0;
    bool right = true;

    MPI_Comm_set_errhandler(self.comm, MPI_ERRORS_RETURN);
    for (int s = 0; s < self.nkinds; s++) {
        for (int r = 0; r < self.nkinds; r++) {
            for (size_t i = 0; i < sizeof(sent) / sizeof(sent[0]); i++) {
                for (size_t j = 0; j < sizeof(rooms) / sizeof(rooms[0]); j++) {
                    if (rooms[j] < sent[i]) {
                        right = truncate_one(way++, self.kinds[s], self.kinds[r], sent[i], rooms[j]) && right;
                    }
                }
            }
        }
    }
    MPI_Comm_set_errhandler(self.comm, MPI_ERRORS_ARE_FATAL);
    return right;
}

/* ---- cancelling ---- */

/* Receives that nobody has sent to are cancelled; what comes then goes to the next receive. */
static bool cancel_one(int kind, bool persistent)
{
    const size_t bytes = 20000;
    memory_t gone, out, in;
    MPI_Request request;
    MPI_Status status;
    bool right = true;
    int flag = 0;

    memory_open(&gone, kind, bytes);
    memory_open(&out, kind, bytes);
    memory_open(&in, kind, bytes);
    msg_blank(&self.work, &gone.buffer);
    msg_fill(&self.work, &out.buffer, 2 + (uint64_t) self.rank);
    msg_blank(&self.work, &in.buffer);
    if (persistent) {
        MPI_Recv_init(BYTES(gone), self.peer, TAG, self.comm, &request);
        MPI_Start(&request);
    } else {
        MPI_Irecv(BYTES(gone), self.peer, TAG, self.comm, &request);
    }
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    if (!flag) {
        right = wrong("a receive of %s memory was not cancelled", mem_name(kind));
    }
    MPI_Barrier(self.comm); /* until then the peer has not sent */
    MPI_Sendrecv(BYTES(out), self.peer, TAG, BYTES(in), self.peer, TAG, self.comm, &status);
    right = status_right(&status, self.peer, TAG, bytes, "after a cancelled one") && right;
    right = memory_right(&in, 2 + (uint64_t) self.peer, bytes, "after a cancelled one") && right;
    right = memory_right(&gone, 0, 0, "cancelled") && right;
    if (persistent) { /* it may be started again */
        MPI_Request send;

        MPI_Start(&request);
        MPI_Isend(BYTES(out), self.peer, TAG, self.comm, &send);
        MPI_Wait(&request, &status);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
        right = memory_right(&gone, 2 + (uint64_t) self.peer, bytes, "started again") && right;
    }
    memory_close(&gone);
    memory_close(&out);
    memory_close(&in);
    return right;
}

/* Cancelled when the message may have come: it is cancelled or received, and received by the next one if not. */
static bool cancel_late(int kind, size_t bytes)
{
    memory_t out, in[2];
    MPI_Request send, request;
    MPI_Status status;
    bool right = true;
    int flag = 0;

    memory_open(&out, kind, bytes);
    msg_fill(&self.work, &out.buffer, 8 + (uint64_t) self.rank);
    for (int i = 0; i < 2; i++) {
        memory_open(&in[i], kind, bytes);
        msg_blank(&self.work, &in[i].buffer);
    }
    MPI_Irecv(BYTES(in[0]), self.peer, TAG, self.comm, &request);
    MPI_Isend(BYTES(out), self.peer, TAG, self.comm, &send);
    for (uint64_t i = ref_mix(self.seed + bytes) % 200; i > 0; i--) {
        MPI_Iprobe(MPI_PROC_NULL, TAG, self.comm, &flag, MPI_STATUS_IGNORE);
        sched_yield();
    }
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    if (flag) {
        MPI_Recv(BYTES(in[1]), self.peer, TAG, self.comm, &status);
        right = memory_right(&in[0], 0, 0, "cancelled") && right;
    }
    right = status_right(&status, self.peer, TAG, bytes, "cancelled late") && right;
    right = memory_right(&in[flag ? 1 : 0], 8 + (uint64_t) self.peer, bytes, "cancelled late") && right;
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    memory_close(&out);
    memory_close(&in[0]);
    memory_close(&in[1]);
    return right;
}

static bool cancel(void)
{
    bool right = true;

    for (int k = 0; k < self.nkinds; k++) {
        right = cancel_one(self.kinds[k], false) && right;
        right = cancel_one(self.kinds[k], true) && right;
        for (size_t bytes = 1; bytes < 4000000; bytes = 7 * bytes) {
            right = cancel_late(self.kinds[k], bytes) && right;
        }
    }
    return right;
}

/* ---- active requests are freed ---- */

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

/* The message comes, though no request tells when. */
static bool comes(memory_t *in, uint64_t seed, size_t bytes)
{
    double until = seconds() + hang_s();
    char why[128];
    int flag;

    while (seconds() < until) {
        GPUSYM_IGNORE_BEGIN();
        const bool right = msg_right(&self.work, &in->buffer, seed, bytes, why);
        GPUSYM_IGNORE_END();
        if (right) {
            return true;
        }
        MPI_Iprobe(MPI_ANY_SOURCE, TAG + 1, self.comm, &flag, MPI_STATUS_IGNORE); /* for progress */
        sched_yield();
    }
    return memory_right(in, seed, bytes, "after its request was freed");
}

static bool free_one(int skind, int rkind, size_t bytes, bool persistent)
{
    bool sends = 0 == self.rank, right = true;
    memory_t m;
    MPI_Request request;

    memory_open(&m, sends ? skind : rkind, bytes);
    if (sends) {
        msg_fill(&self.work, &m.buffer, bytes);
    } else {
        msg_blank(&self.work, &m.buffer);
    }
    if (persistent) {
        if (sends) {
            MPI_Send_init(BYTES(m), 1, TAG, self.comm, &request);
        } else {
            MPI_Recv_init(BYTES(m), 0, TAG, self.comm, &request);
        }
        MPI_Start(&request);
    } else if (sends) {
        MPI_Isend(BYTES(m), 1, TAG, self.comm, &request);
    } else {
        MPI_Irecv(BYTES(m), 0, TAG, self.comm, &request);
    }
    MPI_Request_free(&request);
    if (MPI_REQUEST_NULL != request) {
        right = wrong("the handle of a freed request is still there");
    }
    if (!sends) {
        right = comes(&m, bytes, bytes) && right;
    }
    MPI_Barrier(self.comm); /* it has come */
    if (sends) {
        right = memory_right(&m, bytes, bytes, "sent") && right;
    }
    GPUSYM_IGNORE_BEGIN(); /* as in comes() */
    memory_close(&m);
    GPUSYM_IGNORE_END();
    return right;
}

static bool request_free(void)
{
    bool right = true;

    for (int s = 0; s < self.nkinds; s++) {
        for (int r = 0; r < self.nkinds; r++) {
            for (size_t bytes = 1; bytes < 4000000; bytes = 7 * bytes) {
                right = free_one(self.kinds[s], self.kinds[r], bytes, bytes % 3 == 1) && right;
            }
        }
    }
    return right;
}

/* ---- buffers come and go ---- */

/* Memory at the same address is other memory: what was mapped of it before is not what is there now. */
static bool stale_one(int skind, int rkind, size_t bytes)
{
    const void *before[2] = {NULL, NULL};
    bool right = true;

    for (uint64_t round = 0; round < 6; round++) {
        memory_t out, in;
        MPI_Status status;

        memory_open(&out, skind, bytes);
        memory_open(&in, rkind, bytes);
        msg_fill(&self.work, &out.buffer, 10 * round + (uint64_t) self.rank);
        msg_blank(&self.work, &in.buffer);
        MPI_Sendrecv(BYTES(out), self.peer, TAG, BYTES(in), self.peer, TAG, self.comm, &status);
        right = memory_right(&in, 10 * round + (uint64_t) self.peer, bytes,
                             before[1] == in.buffer.address ? "at the address of a former one" : "received") &&
                right;
        before[0] = out.buffer.address;
        before[1] = in.buffer.address;
        memory_close(&out);
        memory_close(&in);
    }
    return right;
}

static bool stale(void)
{
    const size_t sizes[] = {3000, 100000, (size_t) 3 << 20};
    bool right = true;

    for (int s = 0; s < self.nkinds; s++) {
        for (int r = 0; r < self.nkinds; r++) {
            for (int i = 0; i < 3; i++) {
                right = stale_one(self.kinds[s], self.kinds[r], sizes[i]) && right;
            }
        }
    }
    return right;
}

/* ---- whom messages go to ---- */

/* A message, and room for one, of the i-th pair of kinds of memory. */
static void open_pair(memory_t *out, memory_t *in, size_t i, size_t bytes, uint64_t seed)
{
    memory_open(out, self.kinds[i % (size_t) self.nkinds], bytes);
    memory_open(in, self.kinds[i / (size_t) self.nkinds], bytes);
    msg_fill(&self.work, &out->buffer, seed);
    msg_blank(&self.work, &in->buffer);
}

static bool intercommunicator(void)
{
    const size_t sizes[] = {0, 3, 7, 100, 9000, 300000};
    MPI_Comm alone, inter;
    bool right = true;

    MPI_Comm_split(self.comm, self.rank, 0, &alone);
    MPI_Intercomm_create(alone, 0, self.comm, self.peer, TAG, &inter);
    for (size_t i = 0; i < 6 * (size_t) self.nkinds * (size_t) self.nkinds; i++) {
        size_t bytes = sizes[i % 6];
        memory_t out, in;
        MPI_Request request;
        MPI_Status status;

        open_pair(&out, &in, i / 6, bytes, i + (uint64_t) self.rank);
        MPI_Isend(BYTES(out), 0, TAG, inter, &request); /* rank 0 of the other group, as is its source */
        if (i & 1) {
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, inter, &status);
            right = status_right(&status, 0, TAG, bytes, "probed between groups") && right;
        }
        MPI_Recv(BYTES(in), i & 2 ? MPI_ANY_SOURCE : 0, TAG, inter, &status);
        right = status_right(&status, 0, TAG, bytes, "between groups") && right;
        right = memory_right(&in, i + (uint64_t) self.peer, bytes, "between groups") && right;
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        memory_close(&out);
        memory_close(&in);
    }
    MPI_Comm_free(&inter);
    MPI_Comm_free(&alone);
    return right;
}

static bool proc_null(void)
{
    bool right = true;

    for (int k = 0; k < self.nkinds; k++) {
        memory_t m;
        MPI_Request requests[4];
        MPI_Status statuses[4], status;

        memory_open(&m, self.kinds[k], 1000);
        msg_blank(&self.work, &m.buffer);
        MPI_Send(BYTES(m), MPI_PROC_NULL, TAG, self.comm);
        MPI_Recv(BYTES(m), MPI_PROC_NULL, TAG, self.comm, &status);
        right = status_right(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0, "of nobody") && right;
        MPI_Probe(MPI_PROC_NULL, TAG, self.comm, &status);
        right = status_right(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0, "of nobody, probed") && right;
        MPI_Isend(BYTES(m), MPI_PROC_NULL, TAG, self.comm, &requests[0]);
        MPI_Irecv(BYTES(m), MPI_PROC_NULL, TAG, self.comm, &requests[1]);
        MPI_Send_init(BYTES(m), MPI_PROC_NULL, TAG, self.comm, &requests[2]);
        MPI_Recv_init(BYTES(m), MPI_PROC_NULL, TAG, self.comm, &requests[3]);
        for (int i = 0; i < 3; i++) {
            MPI_Startall(2, requests + 2);
            MPI_Waitall(i ? 2 : 4, requests + (i ? 2 : 0), statuses + (i ? 2 : 0));
            right = status_right(&statuses[3], MPI_PROC_NULL, MPI_ANY_TAG, 0, "of nobody, persistent") && right;
        }
        right = status_right(&statuses[1], MPI_PROC_NULL, MPI_ANY_TAG, 0, "of nobody, nonblocking") && right;
        MPI_Request_free(&requests[2]);
        MPI_Request_free(&requests[3]);
        right = memory_right(&m, 0, 0, "of nobody") && right;
        memory_close(&m);
    }
    return right;
}

/* Absolute addresses: two blocks of a buffer, the second first. */
static MPI_Datatype at_bottom(const memory_t *m, int bytes)
{
    MPI_Datatype type;
    MPI_Aint address, displs[2];
    int lengths[2] = {bytes - bytes / 3, bytes / 3};

    MPI_Get_address(m->buffer.address, &address);
    displs[0] = address + bytes / 3;
    displs[1] = address;
    MPI_Type_create_hindexed(2, lengths, displs, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
}

static bool bottom(void)
{
    const int sizes[] = {7, 100, 9000, 300000};
    bool right = true;

    for (int i = 0; i < 4 * self.nkinds * self.nkinds; i++) {
        int bytes = sizes[i % 4];
        memory_t out, in;
        MPI_Datatype from, to;
        MPI_Request request;

        memory_open(&out, self.kinds[i / 4 % self.nkinds], (size_t) bytes);
        memory_open(&in, self.kinds[i / 4 / self.nkinds], (size_t) bytes);
        msg_fill(&self.work, &out.buffer, (uint64_t) (i + self.rank));
        msg_blank(&self.work, &in.buffer);
        from = at_bottom(&out, bytes);
        to = at_bottom(&in, bytes);
        MPI_Irecv(MPI_BOTTOM, 1, to, self.peer, TAG, self.comm, &request);
        MPI_Send(MPI_BOTTOM, 1, from, self.peer, TAG, self.comm);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        right = memory_right(&in, (uint64_t) (i + self.peer), (size_t) bytes, "from MPI_BOTTOM") && right;
        MPI_Type_free(&from);
        MPI_Type_free(&to);
        memory_close(&out);
        memory_close(&in);
    }
    return right;
}

/* ---- messages to itself ---- */

static bool to_itself(void)
{
    const size_t sizes[] = {0, 5, 7, 100, 9000, 300000};
    bool right = true;

    for (size_t i = 0; i < 6 * (size_t) self.nkinds * (size_t) self.nkinds; i++) {
        size_t bytes = sizes[i % 6];
        memory_t out, in;
        MPI_Request request;
        MPI_Status status;

        open_pair(&out, &in, i / 6, bytes, i);
        if (i & 1) {
            MPI_Irecv(BYTES(in), MPI_ANY_SOURCE, TAG, MPI_COMM_SELF, &request);
            MPI_Send(BYTES(out), 0, TAG, MPI_COMM_SELF);
            MPI_Wait(&request, &status);
        } else {
            MPI_Isend(BYTES(out), 0, TAG, MPI_COMM_SELF, &request);
            MPI_Recv(BYTES(in), 0, MPI_ANY_TAG, MPI_COMM_SELF, &status);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        right = status_right(&status, 0, TAG, bytes, "to itself") && right;
        right = memory_right(&in, i, bytes, "to itself") && right;
        memory_close(&out);
        memory_close(&in);
    }
    return right;
}

/* ---- all of them ---- */

/* TEST(function) */
#define TESTS               \
    TEST(order)             \
    TEST(order_blocking)    \
    TEST(flood)             \
    TEST(head_to_head)      \
    TEST(truncation)        \
    TEST(cancel)            \
    TEST(request_free)      \
    TEST(stale)             \
    TEST(intercommunicator) \
    TEST(proc_null)         \
    TEST(bottom)            \
    TEST(to_itself)

static const struct {
    const char *name;
    bool (*run)(void);
} tests[] = {
#define TEST(name) {#name, name},
    TESTS
#undef TEST
};

static void run_tests(const char *only, bool part)
{
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        double start = seconds();

        self.test = tests[i].name;
        if (NULL != only && NULL == strstr(only, self.test)) {
            continue;
        }
        if (part) {
            check_result(&self.t, tests[i].run());
            MPI_Barrier(self.comm);
        } else {
            check_absent(&self.t);
        }
        if (check_trace() && 0 == self.rank) {
            fprintf(stderr, NAME ": %s: %.1f s\n", self.test, seconds() - start);
        }
    }
}

int main(int argc, char **argv)
{
    const char *only;
    long failed;

    check_init(&argc, &argv, NAME, MPI_THREAD_SINGLE);
    self.seed = check_seed();
    self.nkinds = check_kinds(self.kinds);
    self.n = check_number("--n", 2000);
    self.flood = check_number("--flood", 5000);
    only = check_option("--only");
    check_arguments_end(USAGE);
    check_start(&self.t, NAME, MPI_COMM_WORLD);
    if (self.t.nranks < 2) {
        fprintf(stderr, NAME ": for 2 ranks at least\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_split(MPI_COMM_WORLD, self.t.rank < 2 ? 0 : 1, 0, &self.comm);
    self.rank = self.t.rank;
    self.peer = 1 - self.rank;
    msg_init((size_t) 4 << 20);

    run_tests(only, self.rank < 2);

    msg_work_free(&self.work);
    msg_fini();
    MPI_Comm_free(&self.comm);
    failed = check_end(&self.t);
    check_print(NAME, self.t.passed, self.t.failed);
    return check_fini(failed);
}
