/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams of pieces: see stream.h.
 */
#include "mca/common/gpusym/net/stream.h"

#include <stdlib.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/shm/arena.h"
#include "mca/common/gpusym/shm/flow.h"

enum { BUCKETS = 1024, RING_ALIGN = 4096, BUFFER_ALIGN = 64, PARTS_MAX = 64, BUFFERS_MAX = 128 };

/* A buffer of the ring. Where a piece comes in parts, these may overtake each other as pieces do. */
typedef enum {
    EMPTY,   /* or its piece was released */
    LANDING, /* the net writes it, or has written parts of it */
    STALE,   /* the net writes it, for an earlier generation */
    LANDED
} buffer_state_t;
typedef struct {
    gpusym_net_head_t
        head; /* of the piece; LANDED: `buffers` is 0 where the piece of an earlier one reaches, or none is */
    buffer_state_t state;
    uint32_t writing;        /* messages that the net writes */
    uint64_t placed, landed; /* parts, as bits; a piece that comes as a whole is one */
} buffer_t;

/* A piece that is sent in parts. */
typedef struct {
    gpusym_net_message_t *message; /* the piece's; NULL: none is being sent */
    const char *data;
    uint32_t bytes, count;
    uint32_t begun;             /* parts that were handed to the transport */
    uint32_t ended;             /* of these, the first so many no longer need their memory */
    gpusym_net_message_t *part; /* [parts_out] */
} parts_t;

struct gpusym_net_stream {
    gpusym_net_stream_t *next;         /* in its bucket */
    gpusym_net_stream_t *next_pending; /* in the list of those that have something to tell */
    bool pending;
    gpusym_net_streams_t *streams;
    gpusym_net_stream_params_t params;
    uint16_t generation;

    /* Out: `sent` pieces of this generation were sent, and the other end has released all below `credit`. */
    uint32_t sent, credit;
    bool heard;                   /* a hello has come */
    uint16_t heard_in;            /* in this generation, the newest */
    bool hello_due, greeted;      /* we owe a hello; have said it once in this generation */
    gpusym_net_message_t hello;   /* under way while sent is 0 */
    gpusym_net_message_t release; /* the message that tells what was released, likewise */
    uint32_t longest;             /* bytes of a piece */
    uint32_t part_bytes;          /* longer pieces are sent in parts */
    uint32_t parts_out;           /* of a piece, at most */
    parts_t *parts;               /* [pieces_out], of the piece of a number; NULL: none is sent in parts */
    gpusym_net_message_t *part_messages;

    /* In */
    uint32_t released, read, landed;
    uint32_t told;    /* what was released, as the other end will know */
    uint32_t landing; /* messages that the net writes */
    uint32_t longs;   /* pieces of several buffers that have landed and are not released */
    uint64_t ring;    /* its offset in the memory */
    buffer_t *buffer; /* [pieces_in] */
};

struct gpusym_net_streams {
    gpusym_net_streams_params_t params;
    gpusym_net_t *net;
    gpusym_arena_t *arena;
    uint64_t used;
    gpusym_net_stream_t *pending;
    gpusym_net_stream_t *bucket[BUCKETS];
};

/* ---- the table ---- */

/* Tokens are random. */
static gpusym_net_stream_t **bucket_of(gpusym_net_streams_t *streams, uint64_t token, uint16_t channel)
{
    return &streams->bucket[(token + channel) % BUCKETS];
}

static gpusym_net_stream_t *find(gpusym_net_streams_t *streams, uint64_t token, uint16_t channel)
{
    gpusym_net_stream_t *s = *bucket_of(streams, token, channel);

    while (NULL != s && (s->params.token_in != token || s->params.channel != channel)) {
        s = s->next;
    }
    return s;
}

static void have_pending(gpusym_net_stream_t *s)
{
    if (!s->pending) {
        s->pending = true;
        s->next_pending = s->streams->pending;
        s->streams->pending = s;
    }
}

static bool is_busy(const gpusym_net_message_t *message)
{
    return 0 == __atomic_load_n(&message->sent, __ATOMIC_ACQUIRE);
}

/* ---- what arrives ---- */

static buffer_t *buffer_of(const gpusym_net_stream_t *s, uint32_t number)
{
    return &s->buffer[number & (s->params.pieces_in - 1)];
}

static char *memory_of(const gpusym_net_stream_t *s, uint32_t number)
{
    const uint64_t offset = (uint64_t) (number & (s->params.pieces_in - 1)) * s->params.bytes_in;
    return (char *) s->streams->params.memory + s->ring + offset;
}

/* Bytes of all parts of a piece but the last one, which may be shorter. */
static uint32_t part_step(uint32_t bytes, uint32_t count)
{
    return ((bytes + count - 1) / count + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
}

static uint32_t part_length(uint32_t bytes, uint32_t count, uint32_t index)
{
    const uint64_t step = part_step(bytes, count), from = step * index;
    return from >= bytes ? 0 : (uint32_t) (bytes - from < step ? bytes - from : step);
}

static uint64_t all_parts(uint32_t count)
{
    return UINT64_MAX >> (PARTS_MAX - count);
}

static bool are_empty(const gpusym_net_stream_t *s, uint32_t number, uint32_t count)
{
    while (count > 0 && EMPTY == buffer_of(s, number + count - 1)->state) {
        count--;
    }
    return 0 == count;
}

/* Whether another part of the same piece has this head. */
static bool is_of_piece(const gpusym_net_head_t *head, const gpusym_net_head_t *piece)
{
    return head->whole == piece->whole && head->parts == piece->parts && head->buffers == piece->buffers &&
           head->skipped == piece->skipped;
}

/* Whether a message may come: its piece is of this generation, is one of those that the other end may have out, and
 * that part of it has not come before. */
static bool is_expected(const gpusym_net_stream_t *s, const gpusym_net_head_t *head)
{
    const uint32_t buffers = head->buffers, first = head->number - head->skipped;

    if (head->generation != s->generation || 0 == buffers || 0 != (buffers & (buffers - 1)) ||
        0 != head->number % buffers || head->skipped >= buffers || first - s->released >= s->params.pieces_in ||
        first - s->released + head->skipped + buffers > s->params.pieces_in ||
        head->whole > (uint64_t) buffers * s->params.bytes_in || 0 == head->parts || head->parts > PARTS_MAX ||
        head->part >= head->parts || head->bytes != part_length(head->whole, head->parts, head->part)) {
        return false;
    }
    const buffer_t *buffer = buffer_of(s, head->number);
    return are_empty(s, first, head->skipped) && are_empty(s, head->number + 1, buffers - 1) &&
           (EMPTY == buffer->state ||
            (LANDING == buffer->state && is_of_piece(head, &buffer->head) && 0 == (buffer->placed >> head->part & 1)));
}

static void *place(void *arg, const gpusym_net_head_t *head)
{
    gpusym_net_streams_t *streams = arg;
    gpusym_net_stream_t *s = find(streams, head->token, head->channel);

    if (NULL == s) {
        return NULL;
    }
    if (GPUSYM_NET_DATA != head->kind) {
        return s;
    }
    if (!is_expected(s, head)) {
        return NULL;
    }
    buffer_t *buffer = buffer_of(s, head->number);
    if (EMPTY == buffer->state) {
        *buffer = (buffer_t){.head = *head, .state = LANDING};
    }
    buffer->placed |= 1ull << head->part;
    buffer->writing++;
    s->landing++;
    return memory_of(s, head->number) + (uint64_t) head->part * part_step(head->whole, head->parts);
}

/* The other end is in this generation. A hello that is no answer wants one: its sender may have missed ours. */
static void hear(gpusym_net_stream_t *s, const gpusym_net_head_t *head)
{
    if (!s->heard || (int16_t) (head->generation - s->heard_in) > 0) {
        s->heard = true;
        s->heard_in = head->generation;
    }
    if (GPUSYM_NET_HELLO == head->kind && 0 == head->number && head->generation == s->generation) {
        s->hello_due = true;
        have_pending(s);
    }
}

/* Of several heads the newest credit counts, whatever their order. One of pieces that were never sent is none. */
static void take_credit(gpusym_net_stream_t *s, const gpusym_net_head_t *head)
{
    if (head->generation == s->generation && gpusym_flow_credits(s->sent, s->credit, head->credit)) {
        s->credit = head->credit;
    }
}

/* A buffer that is not read: the rest of a piece, or skipped. */
static void fill_up(gpusym_net_stream_t *s, uint32_t number)
{
    buffer_t *buffer = buffer_of(s, number);
    buffer->state = LANDED;
    buffer->head.buffers = 0;
}

static void complete(gpusym_net_stream_t *s, buffer_t *buffer)
{
    const gpusym_net_head_t *head = &buffer->head;

    buffer->state = LANDED;
    buffer->head.bytes = head->whole;
    s->longs += head->buffers > 1;
    for (uint32_t i = 1; i < head->buffers; i++) {
        fill_up(s, head->number + i);
    }
    for (uint32_t i = 1; i <= head->skipped; i++) {
        fill_up(s, head->number - i);
    }
}

/* Whether the other end is to be told what was released: half of the ring. While a long piece is here, all: the next
 * one needs more than may be left, and this one may be in use until that one has come (a ring of processes). */
static bool owes_credit(const gpusym_net_stream_t *s)
{
    const uint32_t untold = s->released - s->told;
    return s->greeted && 0 != untold && (2 * untold >= s->params.pieces_in || 0 != s->longs);
}

/* Skipped buffers that nothing before is in use are free at once. */
static void release_skipped(gpusym_net_stream_t *s)
{
    while (s->released == s->read && s->read != s->landed && 0 == buffer_of(s, s->read)->head.buffers) {
        buffer_of(s, s->read)->state = EMPTY;
        s->released = ++s->read;
    }
    if (owes_credit(s)) {
        have_pending(s);
    }
}

/* A message has landed, or never will. */
static void land(gpusym_net_stream_t *s, const gpusym_net_head_t *head, bool whole)
{
    buffer_t *buffer = buffer_of(s, head->number);
    const uint64_t bit = 1ull << head->part;

    s->landing--;
    buffer->writing--;
    if (STALE == buffer->state) {
        buffer->state = 0 == buffer->writing ? EMPTY : STALE;
    } else {
        buffer->landed |= whole ? bit : 0;
        buffer->placed &= whole ? ~0ull : ~bit;
        if (0 == buffer->placed) {
            buffer->state = EMPTY;
        } else if (buffer->landed == all_parts(head->parts)) {
            complete(s, buffer);
        }
    }
    if (0 == s->landing && s->hello_due) {
        have_pending(s);
    }
    while (s->landed - s->released < s->params.pieces_in && LANDED == buffer_of(s, s->landed)->state) {
        s->landed++;
    }
    release_skipped(s);
}

static void landed(void *arg, const gpusym_net_head_t *head, bool whole)
{
    gpusym_net_streams_t *streams = arg;
    gpusym_net_stream_t *s = find(streams, head->token, head->channel);

    if (NULL == s) { /* a head without data: a stream does not close while a piece lands */
        return;
    }
    if (GPUSYM_NET_DATA == head->kind) {
        land(s, head, whole);
    }
    if (!whole) {
        return;
    }
    if (GPUSYM_NET_NOTE != head->kind) {
        hear(s, head);
    }
    take_credit(s, head);
    if (GPUSYM_NET_NOTE == head->kind && NULL != streams->params.note) {
        streams->params.note(streams->params.arg, s->params.owner, head);
    }
}

static void lost(void *arg, void *owner, const char *why)
{
    gpusym_net_streams_t *streams = arg;
    streams->params.lost(streams->params.arg, owner, why);
}

/* ---- what is sent ---- */

static int send_head(gpusym_net_stream_t *s, gpusym_net_message_t *message, gpusym_net_kind_t kind, uint32_t number,
                     const void *data, uint32_t bytes)
{
    gpusym_net_head_t *head = &message->head;

    head->token = s->params.token_out;
    head->number = number;
    head->credit = s->released;
    head->bytes = bytes;
    head->generation = s->generation;
    head->channel = s->params.channel;
    head->mark = GPUSYM_NET_MARK;
    head->kind = (uint8_t) kind;
    message->sent = 0;
    const int rc = s->streams->params.transport->send(s->params.peer, head, data, &message->sent);
    if (GPUSYM_SUCCESS != rc) {
        message->sent = 1;
    } else {
        s->told = s->released;
    }
    return rc;
}

/* Hands further parts of a piece to the transport, as many as it takes. */
static int send_parts(gpusym_net_stream_t *s, parts_t *p)
{
    int rc = GPUSYM_SUCCESS;

    while (p->begun < p->count && GPUSYM_SUCCESS == rc) {
        gpusym_net_message_t *part = &p->part[p->begun];
        const uint64_t from = (uint64_t) p->begun * part_step(p->bytes, p->count);
        part->head = p->message->head;
        part->head.whole = p->bytes;
        part->head.part = (uint8_t) p->begun;
        part->head.parts = (uint8_t) p->count;
        rc = send_head(s, part, GPUSYM_NET_DATA, p->message->head.number, p->data + from,
                       part_length(p->bytes, p->count, p->begun));
        p->begun += GPUSYM_SUCCESS == rc;
    }
    return rc;
}

/* Parts that were not sent are not needed: of an earlier generation, or the peer is lost. */
static void forget_unsent(parts_t *p)
{
    if (NULL != p->message) {
        p->count = p->begun;
    }
}

/* Moves the pieces that are sent in parts on. Returns whether some still are. */
static bool move_parts(gpusym_net_stream_t *s)
{
    bool sending = false;

    for (uint32_t i = 0; NULL != s->parts && i < s->params.pieces_out; i++) {
        parts_t *p = &s->parts[i];
        if (NULL == p->message) {
            continue;
        }
        if (GPUSYM_ERR_UNREACHABLE == send_parts(s, p)) {
            forget_unsent(p);
        }
        while (p->ended < p->begun && !is_busy(&p->part[p->ended])) {
            p->ended++;
        }
        if (p->ended == p->count) {
            __atomic_store_n(&p->message->sent, 1, __ATOMIC_RELEASE);
            p->message = NULL;
        }
        sending = sending || NULL != p->message;
    }
    return sending;
}

/* Begins to send the next piece in parts. On failure nothing of it is sent. */
static int begin_parts(gpusym_net_stream_t *s, gpusym_net_message_t *message, const void *data, uint32_t bytes)
{
    parts_t *p = &s->parts[message->head.number & (s->params.pieces_out - 1)];

    if (NULL != p->message) { /* its piece has landed, but the transport has not told of all parts */
        return GPUSYM_ERR_NO_MEMORY;
    }
    *p = (parts_t){.message = message,
                   .data = data,
                   .bytes = bytes,
                   .count = (bytes + s->part_bytes - 1) / s->part_bytes,
                   .part = p->part};
    const int rc = send_parts(s, p);
    if (0 == p->begun) {
        p->message = NULL;
        return rc;
    }
    message->sent = 0;
    if (move_parts(s)) {
        have_pending(s);
    }
    return GPUSYM_SUCCESS;
}

/* Sends what is due. Returns whether something remains to be sent. */
static bool tell(gpusym_net_stream_t *s)
{
    int rc = GPUSYM_SUCCESS;
    const bool sending = move_parts(s);

    if (s->hello_due && 0 == s->landing && !is_busy(&s->hello)) {
        rc = send_head(s, &s->hello, GPUSYM_NET_HELLO, s->greeted ? 1 : 0, NULL, 0);
        s->hello_due = GPUSYM_ERR_NO_MEMORY == rc;
        s->greeted = s->greeted || GPUSYM_SUCCESS == rc;
    }
    if (owes_credit(s) && !is_busy(&s->release)) {
        rc = send_head(s, &s->release, GPUSYM_NET_CREDIT, 0, NULL, 0);
    }
    return sending || (GPUSYM_ERR_UNREACHABLE != rc && (s->hello_due || owes_credit(s)));
}

bool gpusym_net_streams_progress(gpusym_net_streams_t *streams)
{
    bool moved = streams->params.transport->progress(streams->net);
    gpusym_net_stream_t *s = streams->pending;

    streams->pending = NULL;
    while (NULL != s) {
        gpusym_net_stream_t *next = s->next_pending;
        s->pending = false;
        if (tell(s)) {
            have_pending(s);
        } else {
            moved = true;
        }
        s = next;
    }
    return moved;
}

uint32_t gpusym_net_stream_room(const gpusym_net_stream_t *s)
{
    const bool meet = s->heard && s->heard_in == s->generation && s->greeted;
    return meet ? gpusym_flow_left(s->params.pieces_out, s->sent, s->credit) : 0;
}

/* Buffers for the longest piece of a ring. The other end may keep a release of half of the ring but one to itself, and
 * as many buffers but one may have to be skipped: what is left of the ring has room for the piece. */
static uint32_t most_buffers(uint32_t pieces)
{
    uint32_t buffers = 1;

    while (4 * (2 * buffers - 1) <= pieces && buffers < BUFFERS_MAX) {
        buffers *= 2;
    }
    return buffers;
}

/* Buffers for a piece; 0: it is too long. */
static uint32_t buffers_for(const gpusym_net_stream_t *s, uint32_t bytes)
{
    uint32_t buffers = 1;

    if (bytes > s->longest) {
        return 0;
    }
    while (bytes > (uint64_t) buffers * s->params.bytes_out) {
        buffers *= 2;
    }
    return buffers;
}

uint32_t gpusym_net_stream_room_for(const gpusym_net_stream_t *s, uint32_t bytes)
{
    const uint32_t buffers = buffers_for(s, bytes), left = gpusym_net_stream_room(s);
    const uint32_t skipped = 0 == buffers ? left : -s->sent & (buffers - 1);
    return left > skipped ? (left - skipped) / buffers : 0;
}

int gpusym_net_stream_send(gpusym_net_stream_t *s, gpusym_net_message_t *message, const void *data, uint32_t bytes)
{
    const uint32_t buffers = buffers_for(s, bytes);

    if (0 == gpusym_net_stream_room_for(s, bytes)) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    const uint32_t skipped = -s->sent & (buffers - 1), number = s->sent + skipped;
    message->head.number = number;
    message->head.whole = bytes;
    message->head.part = 0;
    message->head.parts = 1;
    message->head.buffers = (uint8_t) buffers;
    message->head.skipped = (uint8_t) skipped;
    const int rc = bytes > s->part_bytes ? begin_parts(s, message, data, bytes)
                                         : send_head(s, message, GPUSYM_NET_DATA, number, data, bytes);
    s->sent += GPUSYM_SUCCESS == rc ? skipped + buffers : 0;
    return rc;
}

int gpusym_net_stream_note(gpusym_net_stream_t *s, gpusym_net_message_t *message)
{
    return send_head(s, message, GPUSYM_NET_NOTE, 0, NULL, 0);
}

/* ---- what is read ---- */

/* The first number from this one on that a piece has, or `end`. */
static uint32_t next_piece(const gpusym_net_stream_t *s, uint32_t number, uint32_t end)
{
    while (number != end && 0 == buffer_of(s, number)->head.buffers) {
        number++;
    }
    return number;
}

bool gpusym_net_stream_read(gpusym_net_stream_t *s, const gpusym_net_head_t **head, const void **data)
{
    const uint32_t number = next_piece(s, s->read, s->landed);

    if (number == s->landed) {
        return false;
    }
    *head = &buffer_of(s, number)->head;
    *data = memory_of(s, number);
    s->read = number + (*head)->buffers;
    return true;
}

void gpusym_net_stream_release(gpusym_net_stream_t *s, uint32_t pieces)
{
    for (; pieces > 0 && s->released != s->read; pieces--) {
        const uint32_t number = next_piece(s, s->released, s->read);
        const uint32_t buffers = number == s->read ? 0 : buffer_of(s, number)->head.buffers, end = number + buffers;
        s->longs -= buffers > 1;
        for (; s->released != end; s->released++) {
            buffer_of(s, s->released)->state = EMPTY;
        }
    }
    release_skipped(s);
}

/* ---- memory ---- */

static uint64_t whole_pages(uint64_t bytes)
{
    return (bytes + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
}

static int get_range(gpusym_net_streams_t *streams, uint64_t bytes, uint64_t *off)
{
    const int rc = gpusym_arena_alloc(streams->arena, bytes, off);
    streams->used += GPUSYM_SUCCESS == rc ? whole_pages(bytes) : 0;
    return rc;
}

static void put_range(gpusym_net_streams_t *streams, uint64_t off, uint64_t bytes)
{
    gpusym_arena_free(streams->arena, off);
    streams->used -= whole_pages(bytes);
}

int gpusym_net_streams_cut(gpusym_net_streams_t *streams, uint64_t bytes)
{
    return gpusym_arena_cut(streams->arena, bytes);
}

int gpusym_net_streams_alloc(gpusym_net_streams_t *streams, uint64_t bytes, void **p)
{
    uint64_t off;
    const int rc = get_range(streams, bytes, &off);

    if (GPUSYM_SUCCESS == rc) {
        *p = (char *) streams->params.memory + off;
    }
    return rc;
}

void gpusym_net_streams_free(gpusym_net_streams_t *streams, void *p, uint64_t bytes)
{
    put_range(streams, (uint64_t) ((char *) p - (char *) streams->params.memory), bytes);
}

uint64_t gpusym_net_streams_used(const gpusym_net_streams_t *streams)
{
    return streams->used;
}

/* ---- open and close ---- */

int gpusym_net_streams_open(const gpusym_net_streams_params_t *params, gpusym_net_streams_t **streams, const char **why)
{
    gpusym_net_streams_t *all = calloc(1, sizeof *all);

    *why = "out of host memory";
    if (NULL == all) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    all->params = *params;
    all->arena = gpusym_arena_create(params->bytes, RING_ALIGN);
    if (NULL == all->arena) {
        free(all);
        return GPUSYM_ERR_NO_MEMORY;
    }
    const gpusym_net_params_t net = {
        .user = {.arg = all, .place = place, .landed = landed, .lost = lost},
        .bytes_max = params->piece_bytes,
        .devices = params->devices,
    };
    const int rc = params->transport->open(&net, &all->net, why);
    if (GPUSYM_SUCCESS != rc) {
        gpusym_arena_destroy(all->arena);
        free(all);
        return rc;
    }
    *streams = all;
    return GPUSYM_SUCCESS;
}

static void free_stream(gpusym_net_stream_t *s)
{
    if (0 != s->params.pieces_in) {
        put_range(s->streams, s->ring, (uint64_t) s->params.pieces_in * s->params.bytes_in);
    }
    free(s->part_messages);
    free(s->parts);
    free(s->buffer);
    free(s);
}

void gpusym_net_streams_close(gpusym_net_streams_t *streams)
{
    if (NULL == streams) {
        return;
    }
    streams->params.transport->close(streams->net);
    for (unsigned i = 0; i < BUCKETS; i++) {
        while (NULL != streams->bucket[i]) {
            gpusym_net_stream_t *s = streams->bucket[i];
            streams->bucket[i] = s->next;
            free_stream(s);
        }
    }
    gpusym_arena_destroy(streams->arena);
    free(streams);
}

gpusym_net_t *gpusym_net_streams_net(gpusym_net_streams_t *streams)
{
    return streams->net;
}

static bool is_ring(uint32_t pieces, uint32_t bytes, uint32_t bytes_max)
{
    return pieces <= GPUSYM_NET_PIECES_MAX && 0 == (pieces & (pieces - 1)) && bytes <= bytes_max &&
           0 == bytes % BUFFER_ALIGN && (0 == pieces || 0 != bytes);
}

/* The ring and the states of its buffers. */
static int make_ring(gpusym_net_streams_t *streams, gpusym_net_stream_t *s)
{
    const uint64_t bytes = (uint64_t) s->params.pieces_in * s->params.bytes_in;

    if (0 == bytes) {
        return GPUSYM_SUCCESS;
    }
    s->buffer = calloc(s->params.pieces_in, sizeof *s->buffer);
    if (NULL == s->buffer) {
        gpusym_log_no_memory("a ring between hosts");
        return GPUSYM_ERR_NO_MEMORY;
    }
    const int rc = get_range(streams, bytes, &s->ring);
    if (GPUSYM_SUCCESS != rc) {
        GPUSYM_LOG(2, "no room for a ring of %lu bytes between hosts: %lu of %lu are in use", (unsigned long) bytes,
                   (unsigned long) streams->used, (unsigned long) streams->params.bytes);
        return rc;
    }
    return GPUSYM_SUCCESS;
}

static uint32_t longest_piece(const gpusym_net_stream_t *s)
{
    const uint64_t bytes = (uint64_t) most_buffers(s->params.pieces_out) * s->params.bytes_out;
    return bytes < s->streams->params.piece_bytes ? (uint32_t) bytes : s->streams->params.piece_bytes;
}

/* What pieces in parts are sent with, if the way to the peer wants that. */
static int make_parts(gpusym_net_stream_t *s)
{
    const gpusym_transport_t *transport = s->streams->params.transport;
    const uint32_t most = (NULL != transport->part_bytes ? transport->part_bytes(s->params.peer) : UINT32_MAX) /
                          BUFFER_ALIGN * BUFFER_ALIGN;
    const uint32_t longest = s->longest = longest_piece(s);
    const uint32_t least = part_step(longest, PARTS_MAX);

    s->part_bytes = most > least ? most : least;
    if (longest <= s->part_bytes) {
        s->part_bytes = UINT32_MAX;
        return GPUSYM_SUCCESS;
    }
    s->parts_out = (longest + s->part_bytes - 1) / s->part_bytes;
    s->parts = calloc(s->params.pieces_out, sizeof *s->parts);
    s->part_messages = calloc((size_t) s->params.pieces_out * s->parts_out, sizeof *s->part_messages);
    if (NULL == s->parts || NULL == s->part_messages) {
        gpusym_log_no_memory("a stream between hosts");
        return GPUSYM_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < s->params.pieces_out; i++) {
        s->parts[i].part = &s->part_messages[(size_t) i * s->parts_out];
    }
    return GPUSYM_SUCCESS;
}

int gpusym_net_stream_open(gpusym_net_streams_t *streams, const gpusym_net_stream_params_t *params,
                           gpusym_net_stream_t **stream)
{
    gpusym_net_stream_t **bucket = bucket_of(streams, params->token_in, params->channel);

    if (!is_ring(params->pieces_in, params->bytes_in, streams->params.piece_bytes) ||
        !is_ring(params->pieces_out, params->bytes_out, streams->params.piece_bytes) ||
        NULL != find(streams, params->token_in, params->channel)) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    gpusym_net_stream_t *s = calloc(1, sizeof *s);
    if (NULL == s) {
        gpusym_log_no_memory("a stream between hosts");
        return GPUSYM_ERR_NO_MEMORY;
    }
    *s = (gpusym_net_stream_t){
        .streams = streams, .params = *params, .hello.sent = 1, .release.sent = 1, .next = *bucket};
    int rc = make_parts(s);
    if (GPUSYM_SUCCESS == rc) {
        rc = make_ring(streams, s);
    }
    if (GPUSYM_SUCCESS != rc) {
        s->params.pieces_in = 0; /* there is no ring */
        free_stream(s);
        return rc;
    }
    *bucket = s;
    gpusym_net_stream_reset(s, params->generation);
    *stream = s;
    return GPUSYM_SUCCESS;
}

/* The hello goes out once the net writes no buffer of an earlier generation. */
void gpusym_net_stream_reset(gpusym_net_stream_t *s, uint16_t generation)
{
    s->generation = generation;
    s->sent = s->credit = 0;
    s->released = s->read = s->landed = s->told = s->longs = 0;
    for (uint32_t i = 0; i < s->params.pieces_in; i++) {
        s->buffer[i].state = 0 != s->buffer[i].writing ? STALE : EMPTY;
    }
    for (uint32_t i = 0; NULL != s->parts && i < s->params.pieces_out; i++) {
        forget_unsent(&s->parts[i]);
    }
    s->greeted = false;
    s->hello_due = true;
    have_pending(s);
}

static void forget_pending(gpusym_net_stream_t *s)
{
    gpusym_net_stream_t **at = &s->streams->pending;

    while (s->pending && *at != s) {
        at = &(*at)->next_pending;
    }
    if (s->pending) {
        *at = s->next_pending;
        s->pending = false;
    }
}

static bool is_sending_parts(gpusym_net_stream_t *s)
{
    for (uint32_t i = 0; NULL != s->parts && i < s->params.pieces_out; i++) {
        forget_unsent(&s->parts[i]);
    }
    return move_parts(s);
}

bool gpusym_net_stream_close(gpusym_net_stream_t *s)
{
    if (0 != s->landing || is_busy(&s->hello) || is_busy(&s->release) || is_sending_parts(s)) {
        return false;
    }
    gpusym_net_stream_t **at = bucket_of(s->streams, s->params.token_in, s->params.channel);
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
    forget_pending(s);
    free_stream(s);
    return true;
}
