/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages that fail: what test/faults/faults.sh runs for them.
 *
 * --die STATE --who sender|receiver: on 3 ranks, rank 1 is killed while a message of it to rank 0, or of rank 0 to
 * it, is in that state. Rank 0 gets an error, or the right data from a dead sender, and exchanges messages with rank 2
 * as before. The survivors end without MPI_Finalize, which would wait for rank 1. "moving": at the --events-th event,
 * on whichever rank, that coll_gpusym_sim_fail (die:...) names. "full": more messages of 1 to 8 bytes than there are
 * send descriptors, every other one synchronous, none of which is received while both live. Each ends.
 *
 * Else: on 2 ranks, a series of messages of every kind, one after the other, some of which the injected faults hit. A
 * message is right, or fails on its receiver with an error; at most --failures fail, and none hangs.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/p2p/send_desc.h"
#include "test/mpi/check.h"
#include "test/mpi/msg.h"

#define NAME "messages"
#define USAGE                                                                                     \
    "[--die offered|claimed|moving|buffered|full --who sender|receiver [--bytes N] [--to-host]\n" \
    "    [--from-host] [--pinned] [--events N]]\n"                                                \
    "    [--seed N] [--rounds N] [--kinds LIST] [--failures N]"
#define ATTACHED ((size_t) 8 << 20)

static int rank, failed;

static bool expect(bool good, const char *what)
{
    if (!good) {
        failed++;
        printf(NAME ": FAIL on rank %d: %s\n", rank, what);
        fflush(stdout);
    }
    return good;
}

/* ---- one side of a message ---- */

typedef struct {
    msg_layout_t layout;
    msg_buffer_t buffer;
} side_t;

static msg_work_t work;

static void open_side(side_t *s, int kind, enum msg_shape shape, size_t bytes, uint64_t seed, bool sends)
{
    msg_layout(&s->layout, shape, bytes, 0 == bytes % 4 ? 4 : 1, seed);
    msg_place(&s->buffer, kind, &s->layout, 0);
    if (sends) {
        msg_fill(&work, &s->buffer, seed);
    } else {
        msg_blank(&work, &s->buffer);
    }
}

static bool is_right(side_t *s, uint64_t seed, const char *what)
{
    char why[128], text[256];
    if (msg_right(&work, &s->buffer, seed, s->layout.bytes, why)) {
        return true;
    }
    snprintf(text, sizeof text, "%s: %s", what, why);
    return expect(false, text);
}

static void close_side(side_t *s)
{
    msg_layout_free(&s->layout);
    msg_release(&s->buffer);
}

#define SIDE(s) (s).buffer.address, (s).layout.count, (s).layout.type

/* ---- a rank dies ---- */

static int victim_pid;
static int events; /* of a transfer until it is killed; 0: not yet, or any more */

static void die(void)
{
    kill(getpid(), SIGKILL);
}

/* Rank 1 has ended, reaped or not. */
static void wait_for_death(void)
{
    char path[64], line[512];
    const char *state;
    do {
        usleep(1000);
        snprintf(path, sizeof path, "/proc/%d/stat", victim_pid);
        FILE *f = fopen(path, "r");
        state = NULL != f && NULL != fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
        if (NULL != f) {
            fclose(f);
        }
    } while (NULL != state && 'Z' != state[2]);
}

/* What the simulator calls. */
static void transfer_goes_on(void)
{
    if (0 == events || 0 != --events) {
        return;
    }
    if (1 == rank) {
        die();
    }
    kill(victim_pid, SIGKILL);
    wait_for_death();
}

static void victim(const char *state, bool sends, side_t *m)
{
    MPI_Request request;
    MPI_Message message;
    int dummy, flag;

    if (0 == strcmp(state, "moving")) {
        if (sends) {
            MPI_Isend(SIDE(*m), 0, 1, MPI_COMM_WORLD, &request);
        } else {
            MPI_Irecv(SIDE(*m), 0, 1, MPI_COMM_WORLD, &request);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        pause(); /* rank 0 kills it, or waits for that in vain */
    }
    if (!sends && 0 == strcmp(state, "claimed")) {
        MPI_Mprobe(0, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    }
    if (sends && 0 == strcmp(state, "buffered")) {
        MPI_Send(SIDE(*m), 0, 1, MPI_COMM_WORLD);
    } else if (sends) {
        MPI_Isend(SIDE(*m), 0, 1, MPI_COMM_WORLD, &request);
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    }
    if (sends && 0 == strcmp(state, "claimed")) {
        MPI_Recv(&dummy, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (!sends && 0 == strcmp(state, "buffered")) { /* not before it has been sent */
        MPI_Recv(&dummy, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    die();
}

/* Rank 0 receives from rank 1, which dies. Returns MPI's code. */
static int receive_from_victim(const char *state, side_t *m)
{
    MPI_Message message;
    MPI_Request request;
    int go = 1;

    if (0 == strcmp(state, "moving")) {
        MPI_Irecv(SIDE(*m), 1, 1, MPI_COMM_WORLD, &request);
        return MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (0 == strcmp(state, "claimed")) {
        MPI_Mprobe(1, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
        MPI_Send(&go, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
        wait_for_death();
        return MPI_Mrecv(SIDE(*m), &message, MPI_STATUS_IGNORE);
    }
    wait_for_death();
    return MPI_Recv(SIDE(*m), 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Rank 0 sends to rank 1, which dies. */
static int send_to_victim(const char *state, side_t *m)
{
    MPI_Request request;
    int go = 1;

    if (0 == strcmp(state, "buffered")) {
        expect(MPI_SUCCESS == MPI_Send(SIDE(*m), 1, 1, MPI_COMM_WORLD), "a small send waits for its receiver");
        MPI_Send(&go, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
        wait_for_death();
        return MPI_Ssend(SIDE(*m), 1, 1, MPI_COMM_WORLD);
    }
    MPI_Isend(SIDE(*m), 1, 1, MPI_COMM_WORLD, &request);
    if (0 != strcmp(state, "moving")) {
        wait_for_death();
    }
    return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* ---- many small messages ---- */

#define SMALL_MAX 8u
#define SMALL_MESSAGES (GPUSYM_SEND_DESC_MAX + 1024u)
/* Buffers, and so receives at a time. */
#define SMALL_BUFFERS 512u

static bool is_synchronous(unsigned i)
{
    return 0 != i / SMALL_MAX % 2;
}

static void send_many(side_t *sides, int to, MPI_Request *request)
{
    for (unsigned i = 0; i < SMALL_MESSAGES; i++) {
        side_t *s = &sides[i % SMALL_BUFFERS];
        (void) (is_synchronous(i) ? MPI_Issend : MPI_Isend)(SIDE(*s), to, 1, MPI_COMM_WORLD, &request[i]);
    }
}

static void send_many_to_victim(side_t *sides, MPI_Request *request)
{
    unsigned errors = 0;
    send_many(sides, 1, request);
    kill(victim_pid, SIGKILL);
    wait_for_death();
    for (unsigned i = 0; i < SMALL_MESSAGES; i++) {
        const int rc = MPI_Wait(&request[i], MPI_STATUS_IGNORE);
        errors += MPI_SUCCESS != rc;
        expect(MPI_SUCCESS != rc || !is_synchronous(i), "a synchronous send to a dead rank succeeds");
    }
    printf(NAME ": of %u sends %u have ended with an error\n", SMALL_MESSAGES, errors);
    printf(NAME ": pid %d has died, an error\n", victim_pid);
}

static void receive_many_from_victim(side_t *sides, MPI_Request *request)
{
    unsigned right = 0, errors = 0;
    int dummy;
    MPI_Recv(&dummy, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* they are there */
    wait_for_death();
    for (unsigned first = 0; first < SMALL_MESSAGES; first += SMALL_BUFFERS) {
        for (unsigned i = 0; i < SMALL_BUFFERS; i++) {
            msg_blank(&work, &sides[i].buffer);
            MPI_Irecv(SIDE(sides[i]), 1, 1, MPI_COMM_WORLD, &request[i]);
        }
        for (unsigned i = 0; i < SMALL_BUFFERS; i++) {
            const bool ends_well = MPI_SUCCESS == MPI_Wait(&request[i], MPI_STATUS_IGNORE);
            errors += !ends_well;
            right += ends_well && is_right(&sides[i], i, "received from the dead");
        }
    }
    expect(right + errors == SMALL_MESSAGES, "a message is neither right nor an error");
    printf(NAME ": of %u receives %u have ended with an error\n", SMALL_MESSAGES, errors);
    printf(NAME ": pid %d has died, %s\n", victim_pid, errors > 0 ? "an error" : "right data");
}

/* Rank 1 dies once its messages have arrived, or takes none. */
static void dies_with_many(bool victim_sends, int gpu_kind)
{
    static side_t sides[SMALL_BUFFERS];
    static MPI_Request request[SMALL_MESSAGES];
    const int dummy = 0;
    for (unsigned i = 0; i < SMALL_BUFFERS; i++) {
        open_side(&sides[i], gpu_kind, MSG_CONTIGUOUS, 1 + i % SMALL_MAX, i, victim_sends == (1 == rank));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (0 == rank) {
        (victim_sends ? receive_many_from_victim : send_many_to_victim)(sides, request);
    } else if (1 == rank && victim_sends) {
        send_many(sides, 0, request);
        MPI_Ssend(&dummy, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
        die();
    } else if (1 == rank) {
        pause();
    }
}

/* Ranks 0 and 2 go on as before. */
static void exchange_with_others(int kind)
{
    static const size_t sizes[] = {7, 4000, 100000, 3 << 20};
    side_t out = {.buffer.base = NULL}, in = {.buffer.base = NULL};
    const int other = 2 - rank;

    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        open_side(&out, kind, MSG_CONTIGUOUS, sizes[i], 100 + i + (unsigned) rank, true);
        open_side(&in, kind, MSG_VECTOR, msg_bytes(MSG_VECTOR, sizes[i]), 100 + i + (unsigned) other, false);
        const int rc = MPI_Sendrecv(SIDE(out), other, 3, SIDE(in), other, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect(MPI_SUCCESS == rc, "an exchange of the survivors");
        (void) is_right(&in, 100 + i + (unsigned) other, "an exchange of the survivors");
        close_side(&out);
        close_side(&in);
    }
}

/* A process that has used no GPU takes nothing from a peer's. */
static void use_gpu(int kind)
{
    side_t out = {.buffer.base = NULL}, in = {.buffer.base = NULL};

    open_side(&out, kind, MSG_CONTIGUOUS, 100, 1, true);
    open_side(&in, kind, MSG_CONTIGUOUS, 100, 1, false);
    MPI_Sendrecv(SIDE(out), 0, 5, SIDE(in), 0, 5, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    expect(is_right(&in, 1, "a message to itself"), "a message to itself");
    close_side(&out);
    close_side(&in);
}

/* A receiver of host memory tells its sender where it goes by the first message, an ordinary one. */
static void tell_first(const int kinds[2], bool sends)
{
    side_t m = {.buffer.base = NULL};

    open_side(&m, kinds[sends ? 0 : 1], MSG_CONTIGUOUS, 100000, 9, sends);
    if (sends) {
        MPI_Send(SIDE(m), 1 - rank, 6, MPI_COMM_WORLD);
    } else {
        MPI_Recv(SIDE(m), 1 - rank, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    close_side(&m);
}

/* Rank 1 dies with one message. */
static void dies_with_message(const char *state, bool victim_sends, const int kinds[2], int gpu_kind, size_t bytes,
                              int at_event)
{
    side_t m = {.buffer.base = NULL};

    if (rank < 2) {
        const bool sends = victim_sends == (1 == rank);
        if (gpu_kind != kinds[0]) {
            tell_first(kinds, sends);
        }
        open_side(&m, kinds[sends ? 0 : 1], MSG_CONTIGUOUS, bytes, 5, sends);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    events = rank < 2 && 0 == strcmp(state, "moving") ? at_event : 0;
    if (1 == rank) {
        victim(state, victim_sends, &m);
    }
    if (0 == rank) {
        const int rc = victim_sends ? receive_from_victim(state, &m) : send_to_victim(state, &m);
        wait_for_death();
        expect(victim_sends || MPI_SUCCESS != rc, "a send to a dead rank succeeds");
        const bool right = MPI_SUCCESS == rc && victim_sends && is_right(&m, 5, "received from the dead");
        printf(NAME ": pid %d has died, %s\n", victim_pid,
               MPI_SUCCESS != rc ? "an error"
               : right           ? "right data"
                                 : "nothing");
    }
}

/* gpu_kind: of what other messages have. */
static void one_death(const char *state, const char *who, const int kinds[2], int gpu_kind, size_t bytes, int at_event)
{
    const bool victim_sends = 0 == strcmp(who, "sender");
    int pid = getpid();

    gpusym_sim_params.dies = transfer_goes_on;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    use_gpu(gpu_kind);
    victim_pid = pid;
    MPI_Bcast(&victim_pid, 1, MPI_INT, 1, MPI_COMM_WORLD);
    if (0 == strcmp(state, "full")) {
        dies_with_many(victim_sends, gpu_kind);
    } else {
        dies_with_message(state, victim_sends, kinds, gpu_kind, bytes, at_event);
    }
    exchange_with_others(gpu_kind);
    printf(NAME ": rank %d %s\n", rank, 0 == failed ? "as expected" : "failed");
    fflush(stdout);
    _exit(0 != failed);
}

/* ---- a series ---- */

enum mode { MODE_SEND, MODE_SSEND, MODE_ISEND, MODE_BSEND, MODE_COUNT };
enum way { WAY_RECV, WAY_IRECV, WAY_MPROBE, WAY_COUNT };

typedef struct {
    int from, to, kind[2];
    size_t bytes;
    enum msg_shape shape[2];
    enum mode mode;
    enum way way;
    uint64_t seed;
} message_t;

static int send_one(side_t *s, const message_t *m, MPI_Comm comm)
{
    MPI_Request request;
    int rc;
    switch (m->mode) {
    case MODE_SSEND:
        return MPI_Ssend(SIDE(*s), m->to, 1, comm);
    case MODE_BSEND:
        return MPI_Bsend(SIDE(*s), m->to, 1, comm);
    case MODE_ISEND:
        rc = MPI_Isend(SIDE(*s), m->to, 1, comm, &request);
        return MPI_SUCCESS != rc ? rc : MPI_Wait(&request, MPI_STATUS_IGNORE);
    default:
        return MPI_Send(SIDE(*s), m->to, 1, comm);
    }
}

static int receive_one(side_t *s, const message_t *m, MPI_Comm comm)
{
    MPI_Request request;
    MPI_Message message;
    int rc;
    switch (m->way) {
    case WAY_IRECV:
        rc = MPI_Irecv(SIDE(*s), m->from, 1, comm, &request);
        return MPI_SUCCESS != rc ? rc : MPI_Wait(&request, MPI_STATUS_IGNORE);
    case WAY_MPROBE:
        rc = MPI_Mprobe(m->from, 1, comm, &message, MPI_STATUS_IGNORE);
        return MPI_SUCCESS != rc ? rc : MPI_Mrecv(SIDE(*s), &message, MPI_STATUS_IGNORE);
    default:
        return MPI_Recv(SIDE(*s), m->from, 1, comm, MPI_STATUS_IGNORE);
    }
}

static void draw_message(message_t *m, uint64_t seed, const int *kinds, int nkinds)
{
    static const size_t sizes[] = {1, 7, 100, 5000, 8192, 100000, 3 << 20};
    static const enum msg_shape shapes[] = {MSG_CONTIGUOUS, MSG_CONTIGUOUS, MSG_VECTOR, MSG_INDEXED};
    const uint64_t x = ref_mix(seed), y = ref_mix(x);

    *m = (message_t){.seed = seed, .from = (int) (x & 1), .bytes = sizes[(x >> 8) % (sizeof sizes / sizeof sizes[0])]};
    m->to = 1 - m->from;
    m->mode = (enum mode)((x >> 16) % MODE_COUNT);
    m->way = (enum way)((x >> 24) % WAY_COUNT);
    for (int side = 0; side < 2; side++) {
        m->kind[side] = kinds[(y >> (8 * side)) % (uint64_t) nkinds];
        m->shape[side] = shapes[(y >> (16 + 8 * side)) % (sizeof shapes / sizeof shapes[0])];
        m->bytes = msg_bytes(m->shape[side], m->bytes);
    }
}

/* Whether the message was received; what may not be is a failure of the test. */
static bool one_message(const message_t *m, MPI_Comm data)
{
    side_t s = {.buffer.base = NULL};
    const bool sends = rank == m->from;
    int mine, theirs;

    open_side(&s, m->kind[sends ? 0 : 1], m->shape[sends ? 0 : 1], m->bytes, m->seed, sends);
    mine = sends ? send_one(&s, m, data) : receive_one(&s, m, data);
    MPI_Sendrecv(&mine, 1, MPI_INT, 1 - rank, 4, &theirs, 1, MPI_INT, 1 - rank, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const int sent = sends ? mine : theirs, received = sends ? theirs : mine;
    expect(MPI_SUCCESS == sent || MPI_SUCCESS != received, "the send has failed, the receive has not");
    if (!sends && MPI_SUCCESS == mine) {
        (void) is_right(&s, m->seed, "a message");
    }
    close_side(&s);
    return MPI_SUCCESS == received;
}

static void series(uint64_t seed, uint64_t rounds, const int *kinds, int nkinds, uint64_t most)
{
    uint64_t lost = 0;
    void *attached = malloc(ATTACHED);
    MPI_Comm data;
    message_t m;
    int size;

    MPI_Comm_dup(MPI_COMM_WORLD, &data);
    MPI_Comm_set_errhandler(data, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* Open MPI 4.1 takes it for some requests */
    MPI_Buffer_attach(attached, (int) ATTACHED);
    for (uint64_t i = 0; i < rounds; i++) {
        draw_message(&m, seed + i, kinds, nkinds);
        if (check_trace()) {
            fprintf(stderr, NAME ": rank %d, %llu: %zu bytes, %s %s to %s %s, mode %d, way %d\n", rank,
                    (unsigned long long) i, m.bytes, mem_name(m.kind[0]), msg_shape_name(m.shape[0]),
                    mem_name(m.kind[1]), msg_shape_name(m.shape[1]), m.mode, m.way);
        }
        lost += !one_message(&m, data);
    }
    MPI_Buffer_detach(&attached, &size);
    free(attached);
    MPI_Comm_free(&data);
    expect(lost <= most, "more messages have failed than faults were injected");
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (0 == rank) {
        printf(NAME ": %llu messages right, %llu failed, %s\n", (unsigned long long) (rounds - lost),
               (unsigned long long) lost, 0 == failed ? "all as expected" : "not as expected");
    }
}

int main(int argc, char **argv)
{
    int kinds[CHECK_KINDS], pair[2];

    check_init(&argc, &argv, NAME, MPI_THREAD_SINGLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const char *state = check_option("--die"), *who = check_option("--who");
    const size_t bytes = check_number("--bytes", 3 << 20);
    const uint64_t most = check_number("--failures", 0), rounds = check_number("--rounds", 60);
    const int at_event = (int) check_number("--events", 1);
    const bool to_host = check_flag("--to-host"), from_host = check_flag("--from-host"),
               pinned = check_flag("--pinned");
    const uint64_t seed = check_seed();
    const int nkinds = check_kinds(kinds);
    check_arguments_end(USAGE);
    pair[0] = pinned ? MEM_REGISTERED : from_host ? MEM_HOST : kinds[0];
    pair[1] = to_host ? MEM_HOST : kinds[0];
    msg_init((size_t) 4 << 20);
    if (NULL != state) {
        one_death(state, NULL != who ? who : "sender", pair, kinds[0], bytes, at_event);
    }
    series(seed, rounds, kinds, nkinds, most);
    msg_work_free(&work);
    msg_fini();
    return check_fini(failed);
}
