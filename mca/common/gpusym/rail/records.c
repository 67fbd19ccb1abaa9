/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Records: see records.h.
 */
#include "mca/common/gpusym/rail/records.h"

#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/log.h"

enum {
    PIECES = GPUSYM_RECORDS_RING_BYTES / GPUSYM_RECORD_BYTES,
    /* Records for one leader that are not handed to its stream. As long as it waits for the post of one call, this
     * leader may post one more, and has nothing to answer; else there is one post and one answer. And at the end it may
     * give up, and leaves. */
    WAITING = 4
};

/* What a record is, in the head's `stage`. The first two may be of the same call in any order: the calls of posts rise,
 * but an answer may be of a call long before the last post. */
typedef enum {
    POST,
    ANSWER,
    ABORT, /* the leader's island gave up */
    LEAVE, /* the leader will post nothing more */
    BEAT   /* the leader is there */
} stage_t;

/* A record that is to be sent. */
typedef struct {
    stage_t stage;
    gpusym_record_t record;
} waiting_t;

/* A record that is being sent. */
typedef struct {
    gpusym_net_message_t message;
    gpusym_record_t record;
} sending_t;

/* Another leader. */
typedef struct {
    gpusym_net_stream_t *stream; /* NULL: not open, or closed */
    int rc;                      /* an error: it is no longer served */

    /* In */
    bool known;           /* its record of the call that was posted last has come */
    bool asks;            /* it has posted a call that was neither answered nor posted here */
    bool answered;        /* it has got an answer */
    bool aborted, left;   /* it has told that it gave up, that it leaves */
    uint64_t why;         /* aborted: its user's word for it */
    uint64_t lowest;      /* its posts so far are below this number */
    gpusym_record_t ask;  /* asks: its record in that call */
    gpusym_record_t last; /* answered: its record in the last call that was */

    /* Out */
    uint32_t queued, sent;      /* records */
    waiting_t waiting[WAITING]; /* from `sent` on */
    sending_t sending[PIECES];

    /* The watch */
    bool spoke, warned, silent; /* since the last look; of silence; for too long */
    uint64_t silence_ns;        /* so far */
    sending_t beat;
} leader_t;

struct gpusym_records {
    gpusym_records_params_t params;
    int rc;              /* the first error */
    bool aborts, leaves; /* this leader has told so */
    bool posted;
    uint64_t call;        /* posted: the last one */
    uint32_t missing;     /* records of it */
    uint64_t watched_ns;  /* when the watch last looked; 0: it has not begun */
    uint64_t beat_ns;     /* when the last beats went */
    gpusym_record_t *all; /* [n] */
    leader_t *leader;     /* [n] */
};

/* ---- opening and closing ---- */

static bool is_sent(const gpusym_net_message_t *message)
{
    return 0 != __atomic_load_n(&message->sent, __ATOMIC_ACQUIRE);
}

void gpusym_records_free(gpusym_records_t *r)
{
    if (NULL == r) {
        return;
    }
    free(r->all);
    free(r->leader);
    free(r);
}

static bool is_quiet(const gpusym_records_t *r)
{
    for (uint32_t pos = 0; pos < r->params.n; pos++) {
        for (uint32_t i = 0; i < PIECES; i++) {
            if (!is_sent(&r->leader[pos].sending[i].message)) {
                return false;
            }
        }
        if (!is_sent(&r->leader[pos].beat.message)) {
            return false;
        }
    }
    return true;
}

/* Whether all are closed. */
static bool close_streams(gpusym_records_t *r)
{
    bool closed = true;
    for (uint32_t pos = 0; pos < r->params.n; pos++) {
        leader_t *l = &r->leader[pos];
        if (NULL != l->stream && gpusym_net_stream_close(l->stream)) {
            l->stream = NULL;
        }
        closed = closed && NULL == l->stream;
    }
    return closed;
}

bool gpusym_records_close(gpusym_records_t *r)
{
    if (NULL == r) {
        return true;
    }
    if (!is_quiet(r) || !close_streams(r)) {
        return false;
    }
    gpusym_records_free(r);
    return true;
}

static int open_leader(gpusym_records_t *r, uint32_t pos)
{
    leader_t *l = &r->leader[pos];
    gpusym_rail_peer_t peer;
    for (uint32_t i = 0; i < PIECES; i++) {
        l->sending[i].message.sent = 1;
    }
    l->beat.message.sent = 1;
    if (pos == r->params.pos) {
        return GPUSYM_SUCCESS;
    }
    const int rc = r->params.peer(r->params.arg, pos, &peer);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    const gpusym_net_stream_params_t p = {.peer = peer.net,
                                          .token_in = peer.token_in,
                                          .token_out = peer.token_out,
                                          .channel = r->params.stream,
                                          .pieces_in = PIECES,
                                          .pieces_out = PIECES,
                                          .bytes_in = GPUSYM_RECORD_BYTES,
                                          .bytes_out = GPUSYM_RECORD_BYTES,
                                          .owner = peer.owner};
    return gpusym_net_stream_open(r->params.streams, &p, &l->stream);
}

int gpusym_records_open(const gpusym_records_params_t *params, gpusym_records_t **records)
{
    int rc = GPUSYM_ERR_NO_MEMORY;
    gpusym_records_t *r = calloc(1, sizeof *r);
    if (NULL == r) {
        goto no_memory;
    }
    r->params = *params;
    r->all = calloc(params->n, sizeof *r->all);
    r->leader = calloc(params->n, sizeof *r->leader);
    if (NULL == r->all || NULL == r->leader) {
        goto no_memory;
    }
    for (uint32_t pos = 0; pos < params->n; pos++) {
        rc = open_leader(r, pos);
        if (GPUSYM_SUCCESS != rc) {
            (void) close_streams(r); /* nothing has moved them on, so nothing is under way */
            goto failed;
        }
    }
    *records = r;
    return GPUSYM_SUCCESS;

no_memory:
    gpusym_log_no_memory("the records of islands");
failed:
    gpusym_records_free(r);
    return rc;
}

/* ---- what is sent ---- */

static void fail(gpusym_records_t *r, leader_t *l, int rc)
{
    l->rc = rc;
    r->rc = GPUSYM_SUCCESS == r->rc ? rc : r->rc;
}

/* Hands a record to the stream, which has room. */
static int send_record(leader_t *l, sending_t *s, stage_t stage, const gpusym_record_t *record)
{
    s->record = *record;
    s->message.head.call = (uint32_t) record->call;
    s->message.head.stage = (uint8_t) stage;
    return gpusym_net_stream_send(l->stream, &s->message, &s->record, GPUSYM_RECORD_BYTES);
}

/* Sends what waits, as far as there is room. */
static void send_waiting(gpusym_records_t *r, leader_t *l)
{
    while (GPUSYM_SUCCESS == l->rc && l->sent != l->queued && 0 != gpusym_net_stream_room(l->stream)) {
        const waiting_t *next = &l->waiting[l->sent % WAITING];
        sending_t *s = &l->sending[l->sent % PIECES];
        if (!is_sent(&s->message)) {
            return;
        }
        const int rc = send_record(l, s, next->stage, &next->record);
        if (GPUSYM_ERR_NO_MEMORY == rc) {
            return;
        }
        if (GPUSYM_SUCCESS != rc) {
            fail(r, l, rc);
            return;
        }
        l->sent++;
    }
}

static void queue_record(gpusym_records_t *r, leader_t *l, stage_t stage, const gpusym_record_t *record)
{
    if (GPUSYM_SUCCESS != l->rc) {
        return;
    }
    if (WAITING == l->queued - l->sent) {
        GPUSYM_LOG(2, "between hosts: the leader of island %u makes calls without reading the records sent to it",
                   (uint32_t) (l - r->leader));
        fail(r, l, GPUSYM_ERR_CORRUPT);
        return;
    }
    l->waiting[l->queued % WAITING] = (waiting_t){.stage = stage, .record = *record};
    l->queued++;
    send_waiting(r, l);
}

/* ---- what has come ---- */

/* Whether a record may come now. */
static bool is_expected(const gpusym_records_t *r, const leader_t *l, stage_t stage, const gpusym_record_t *record)
{
    const bool current = r->posted && record->call == r->call;
    if (ABORT == stage || LEAVE == stage || BEAT == stage) {
        return !l->left;
    }
    if (ANSWER == stage) {
        return current && !l->known && 0 == record->kind;
    }
    return POST == stage && record->call >= l->lowest && (current ? !l->known : !l->asks);
}

static void know_record(gpusym_records_t *r, leader_t *l, const gpusym_record_t *record)
{
    r->all[l - r->leader] = *record;
    l->known = true;
    r->missing--;
}

static void take_record(gpusym_records_t *r, leader_t *l, stage_t stage, const gpusym_record_t *record)
{
    l->spoke = true;
    if (ABORT == stage) {
        l->aborted = true;
        l->why = record->bytes;
        return;
    }
    if (LEAVE == stage || BEAT == stage) {
        l->left = l->left || LEAVE == stage;
        return;
    }
    if (POST == stage) {
        l->lowest = record->call + 1;
    }
    if (r->posted && record->call == r->call) {
        know_record(r, l, record);
        return;
    }
    l->ask = *record;
    l->asks = true;
}

static void read_records(gpusym_records_t *r, leader_t *l)
{
    const gpusym_net_head_t *head;
    const void *data;
    gpusym_record_t record;
    while (GPUSYM_SUCCESS == l->rc && gpusym_net_stream_read(l->stream, &head, &data)) {
        const stage_t stage = (stage_t) head->stage;
        const uint32_t bytes = head->bytes, call = head->call;
        memset(&record, 0, sizeof record);
        memcpy(&record, data, bytes < sizeof record ? bytes : sizeof record);
        gpusym_net_stream_release(l->stream, 1);
        if (GPUSYM_RECORD_BYTES != bytes || call != (uint32_t) record.call || !is_expected(r, l, stage, &record)) {
            GPUSYM_LOG(2, "between hosts: record %u of call %llu (%u), %u bytes, from the leader of island %u, in %llu",
                       (uint32_t) stage, (unsigned long long) record.call, call, bytes, (uint32_t) (l - r->leader),
                       (unsigned long long) r->call);
            fail(r, l, GPUSYM_ERR_CORRUPT);
            return;
        }
        take_record(r, l, stage, &record);
    }
}

/* ---- calls ---- */

int gpusym_records_post(gpusym_records_t *r, uint64_t call, const gpusym_record_t *mine)
{
    gpusym_record_t *own = &r->all[r->params.pos];
    if (r->posted && (call <= r->call || 0 != r->missing)) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    r->posted = true;
    r->call = call;
    r->missing = r->params.n - 1;
    *own = *mine;
    own->call = call;
    for (uint32_t pos = 0; pos < r->params.n; pos++) {
        leader_t *l = &r->leader[pos];
        l->known = false;
        if (pos == r->params.pos) {
            continue;
        }
        if (l->answered && call == l->last.call) {
            know_record(r, l, &l->last);
            continue;
        }
        if (l->asks && call == l->ask.call) {
            know_record(r, l, &l->ask);
            l->asks = false;
        }
        queue_record(r, l, POST, own);
    }
    return r->rc;
}

int gpusym_records_read(const gpusym_records_t *r, uint64_t call, const gpusym_record_t **all)
{
    if (!r->posted || call != r->call) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    if (0 != r->missing) {
        return r->rc;
    }
    *all = r->all;
    return 1;
}

/* Tells all other leaders. */
static void tell_all(gpusym_records_t *r, stage_t stage, uint64_t why)
{
    const gpusym_record_t record = {.call = r->call, .bytes = why};
    for (uint32_t pos = 0; pos < r->params.n; pos++) {
        if (pos != r->params.pos) {
            queue_record(r, &r->leader[pos], stage, &record);
        }
    }
}

void gpusym_records_abort(gpusym_records_t *r, uint64_t why)
{
    if (!r->aborts && !r->leaves) {
        r->aborts = true;
        tell_all(r, ABORT, why);
    }
}

bool gpusym_records_aborted(const gpusym_records_t *r, uint32_t *pos, uint64_t *why)
{
    for (*pos = 0; *pos < r->params.n; ++*pos) {
        if (r->leader[*pos].aborted) {
            *why = r->leader[*pos].why;
            return true;
        }
    }
    return false;
}

void gpusym_records_leave(gpusym_records_t *r)
{
    if (!r->leaves) {
        r->leaves = true;
        tell_all(r, LEAVE, 0);
    }
}

bool gpusym_records_left(const gpusym_records_t *r)
{
    for (uint32_t pos = 0; pos < r->params.n; pos++) {
        const leader_t *l = &r->leader[pos];
        if (pos != r->params.pos && GPUSYM_SUCCESS == l->rc && (!l->left || l->sent != l->queued)) {
            return false;
        }
    }
    return r->leaves;
}

bool gpusym_records_has(const gpusym_records_t *r, uint32_t pos)
{
    return r->posted && (pos == r->params.pos || r->leader[pos].known);
}

/* ---- the watch ---- */

static void send_beat(gpusym_records_t *r, leader_t *l)
{
    const gpusym_record_t record = {.call = r->call};
    if (l->sent != l->queued || !is_sent(&l->beat.message) || 0 == gpusym_net_stream_room(l->stream)) {
        return; /* what waits tells as much */
    }
    const int rc = send_record(l, &l->beat, BEAT, &record);
    if (GPUSYM_SUCCESS != rc && GPUSYM_ERR_NO_MEMORY != rc) {
        fail(r, l, rc);
    }
}

/* gap_ns: since the last look. */
static void hear_leader(gpusym_records_t *r, leader_t *l, uint64_t gap_ns, uint64_t limit_ns)
{
    l->silence_ns = l->spoke ? 0 : l->silence_ns + gap_ns;
    l->spoke = false;
    l->silent = l->silent || l->silence_ns >= limit_ns;
    if (!l->warned && l->silence_ns / 3 >= limit_ns / 5) {
        l->warned = true;
        GPUSYM_LOG(2, "between hosts: the leader of island %u has been silent for %.1f s", (uint32_t) (l - r->leader),
                   1e-9 * (double) l->silence_ns);
    }
}

void gpusym_records_watch(gpusym_records_t *r, uint64_t now_ns, uint64_t limit_ns)
{
    const uint32_t n = r->params.n, next = (r->params.pos + 1) % n, before = (r->params.pos + n - 1) % n;
    const bool begins = 0 == r->watched_ns, beats = begins || now_ns - r->beat_ns >= limit_ns / 5;
    const uint64_t gap_ns = begins ? 0 : now_ns - r->watched_ns, most_ns = limit_ns / 20;
    r->watched_ns = now_ns;
    r->beat_ns = beats ? now_ns : r->beat_ns;
    for (uint32_t pos = 0; pos < n && !r->aborts && !r->leaves; pos++) {
        leader_t *l = &r->leader[pos];
        if ((pos != next && pos != before) || pos == r->params.pos || l->aborted || l->left ||
            GPUSYM_SUCCESS != l->rc) {
            continue;
        }
        hear_leader(r, l, gap_ns < most_ns ? gap_ns : most_ns, limit_ns);
        if (beats) {
            send_beat(r, l);
        }
    }
}

bool gpusym_records_silent(const gpusym_records_t *r, uint32_t *pos)
{
    for (*pos = 0; *pos < r->params.n; ++*pos) {
        if (r->leader[*pos].silent) {
            return true;
        }
    }
    return false;
}

/* ---- polling ---- */

static void answer_leader(gpusym_records_t *r, leader_t *l)
{
    const gpusym_record_t record = {.call = l->ask.call};
    if (1 == r->params.answer(r->params.arg, l->ask.call)) {
        l->last = l->ask;
        l->answered = true;
        l->asks = false;
        queue_record(r, l, ANSWER, &record);
    }
}

bool gpusym_records_poll(gpusym_records_t *r, int *rc)
{
    bool open = false;
    for (uint32_t pos = 0; pos < r->params.n; pos++) {
        leader_t *l = &r->leader[pos];
        if (NULL == l->stream || GPUSYM_SUCCESS != l->rc) { /* ourselves, or closed before the others */
            continue;
        }
        read_records(r, l);
        if (l->asks) {
            answer_leader(r, l);
        }
        send_waiting(r, l);
        open = open || l->asks;
    }
    *rc = r->rc;
    return open;
}
