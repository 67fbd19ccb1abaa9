/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pipes: see pipe.h.
 */
#include "mca/common/gpusym/p2p/pipe.h"

#include <pthread.h>
#include <string.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/memory/alloc.h"
#include "mca/common/gpusym/memory/reg.h"

/* ---- the flow, in the send descriptor's entry ---- */

/* The first two lines are the sender's, the third one is the receiver's. */
typedef struct {
    uint64_t filled; /* pieces; written last */
    int32_t failed;  /* not 0: why the sender gives up; then nothing else counts */
    uint32_t slots;
    uint64_t piece, off[GPUSYM_PIPE_SLOTS]; /* see gpusym_pipe_t */
    _Alignas(64) gpusym_segment_id_t segment;
    uint64_t check;  /* of slots, piece, off, segment and in_gpu, see check_of */
    uint32_t in_gpu; /* not 0: the slots are in the GPU memory of `key` */
    uint32_t key;    /* GPU memory that the receiver may map (memory/reg.h); 0: none. Written before all the rest */
    _Alignas(64) uint64_t taken; /* pieces: their slots are free again */
    uint32_t answer;             /* ANSWER_...: whether the receiver has mapped `key` */
} flow_t;
enum { ANSWER_NONE, ANSWER_MAPPED, ANSWER_NOT_MAPPED };
_Static_assert(sizeof(flow_t) <= GPUSYM_SEND_DESC_ROOM, "the flow fits an entry");

#define READ(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define WRITE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELEASE)

/* FNV-1a, by words: receivers copy from no overwritten place. */
static uint64_t check_of(const flow_t *flow)
{
    uint64_t check = (0xcbf29ce484222325ull ^ flow->slots) * 0x100000001b3ull ^ flow->piece;
    for (unsigned i = 0; i < GPUSYM_PIPE_SLOTS; i++) {
        check = check * 0x100000001b3ull ^ flow->off[i];
    }
    check = (check * 0x100000001b3ull ^ flow->segment.nonce[0]) * 0x100000001b3ull ^ flow->segment.nonce[1];
    check = check * 0x100000001b3ull ^ ((uint64_t) (uint32_t) flow->segment.pid << 32 | (uint32_t) flow->segment.fd);
    return (check * 0x100000001b3ull ^ flow->segment.bytes ^ (uint64_t) flow->in_gpu << 63) * 0x100000001b3ull;
}

/* ---- shared memory ---- */

static struct {
    pthread_mutex_t lock;      /* covers all of this */
    gpusym_shares_t host;      /* host memory */
    uint64_t buffered;         /* bytes of buffers */
    gpusym_gpu_t *gpu;         /* of `mem` */
    char *mem;                 /* own GPU memory; NULL: none yet */
    uint32_t key;              /* of it */
    gpusym_arena_t *mem_arena; /* of it */
    bool mem_refused;          /* there is none */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .host = {.name = "gpusym-pipe",
                     .magic = 0x6770757370697001ull,
                     .bytes = GPUSYM_PIPE_BYTES,
                     .what = "messages go through"}};

/* Registers a segment where a GPU is to copy. With the lock held. */
static void segment_pin(gpusym_share_t *segment, const gpusym_device_t *dev, gpusym_gpu_t *gpu)
{
    if (NULL != gpu) {
        (void) gpusym_share_register(&shared.host, segment, dev, gpu); /* else it is slow */
    }
}

/* Gets the segment that a sender's flow names, mapped. NULL: it cannot be. */
static gpusym_share_t *segment_get(const gpusym_segment_id_t *id, const gpusym_device_t *dev, gpusym_gpu_t *gpu)
{
    gpusym_share_t *segment = NULL;
    pthread_mutex_lock(&shared.lock);
    if (GPUSYM_SUCCESS == gpusym_shares_map(&shared.host, id, &segment)) {
        segment_pin(segment, dev, gpu);
    }
    pthread_mutex_unlock(&shared.lock);
    return segment;
}

/* Allocates a range of the own segment. False: none is free. With the lock held. */
static bool range_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, uint64_t *off)
{
    if (GPUSYM_SUCCESS != gpusym_shares_make(&shared.host) ||
        GPUSYM_SUCCESS != gpusym_shares_get(&shared.host, bytes, off)) {
        return false;
    }
    segment_pin(shared.host.own, dev, gpu);
    return true;
}

bool gpusym_pipes_ready(void)
{
    pthread_mutex_lock(&shared.lock);
    const int rc = gpusym_shares_make(&shared.host);
    pthread_mutex_unlock(&shared.lock);
    return GPUSYM_SUCCESS == rc;
}

/* Makes the own GPU memory, once. With the lock held. */
static void memory_make(const gpusym_device_t *dev, gpusym_gpu_t *gpu)
{
    void *mem = NULL;
    uint64_t off;
    shared.mem_refused = true;
    if (GPUSYM_SUCCESS != gpusym_mem_alloc(dev, gpu, GPUSYM_PIPE_GPU_BYTES, &mem)) {
        return;
    }
    if (GPUSYM_SUCCESS != gpusym_reg_get(dev, gpu, mem, GPUSYM_PIPE_GPU_BYTES, &shared.key, &off)) {
        goto free_memory;
    }
    shared.mem_arena = gpusym_arena_create(GPUSYM_PIPE_GPU_BYTES, 4096);
    if (NULL == shared.mem_arena || 0 != off) { /* receivers map it from its base on */
        goto put_key;
    }
    shared.gpu = gpu;
    shared.mem = mem;
    shared.mem_refused = false;
    return;

put_key:
    gpusym_arena_destroy(shared.mem_arena);
    shared.mem_arena = NULL;
    gpusym_reg_put(shared.key);
free_memory:
    dev->mem_free(gpu, mem);
}

/* Returns the key of own memory of gpu; 0: there is none. */
static uint32_t memory_key(const gpusym_device_t *dev, gpusym_gpu_t *gpu)
{
    pthread_mutex_lock(&shared.lock);
    if (NULL == shared.mem && !shared.mem_refused) {
        memory_make(dev, gpu);
    }
    const uint32_t key = NULL != shared.mem && shared.gpu == gpu ? shared.key : 0;
    pthread_mutex_unlock(&shared.lock);
    return key;
}

/* With the lock held. */
static void memory_free(const gpusym_device_t *dev)
{
    if (NULL != shared.mem) {
        gpusym_reg_put(shared.key);
        dev->mem_free(shared.gpu, shared.mem);
    }
    gpusym_arena_destroy(shared.mem_arena);
    shared.mem_arena = NULL;
    shared.mem = NULL;
    shared.mem_refused = false;
}

void gpusym_pipes_close(const gpusym_device_t *dev)
{
    pthread_mutex_lock(&shared.lock);
    memory_free(dev);
    gpusym_shares_close(&shared.host, dev);
    shared.buffered = 0;
    pthread_mutex_unlock(&shared.lock);
}

/* ---- both halves ---- */

static uint64_t pieces_of(const gpusym_pipe_t *pipe)
{
    return (pipe->bytes + pipe->piece - 1) / pipe->piece;
}

static gpusym_flow_t ring_of(void *room)
{
    flow_t *flow = room;
    return (gpusym_flow_t){.filled = &flow->filled, .taken = &flow->taken};
}

static void note_error(gpusym_pipe_t *pipe, int rc)
{
    pipe->status = GPUSYM_SUCCESS == pipe->status ? rc : pipe->status;
}

/* What the other process has told. */
static void note_theirs(gpusym_pipe_t *pipe, int rc)
{
    pipe->theirs = pipe->theirs || (GPUSYM_SUCCESS == pipe->status && GPUSYM_SUCCESS != rc);
    note_error(pipe, rc);
}

void gpusym_pipe_fail(gpusym_pipe_t *pipe, int status)
{
    note_error(pipe, status);
    pipe->alone = true;
}

/* Copies the next piece, between its slot and our memory. Returns an error of common.h. */
static int piece_start(gpusym_pipe_t *pipe)
{
    const uint64_t n = pipe->copies.started, at = n * pipe->piece, slot = pipe->off[n % pipe->ring.slots];
    const uint64_t bytes = pipe->bytes - at < pipe->piece ? pipe->bytes - at : pipe->piece;
    const bool sends = NULL == pipe->desc, in_gpu = NULL != pipe->mem, pinned = in_gpu || NULL != pipe->segment->dev;
    char *shared_at = slot + (in_gpu                               ? pipe->mem
                              : pinned && NULL != pipe->copies.gpu ? pipe->segment->dev
                                                                   : pipe->segment->base);
    const gpusym_copy_rows_t run = {.dst = sends ? shared_at : pipe->at + at,
                                    .src = sends ? pipe->at + at : shared_at,
                                    .width = bytes,
                                    .height = 1,
                                    .local = !sends || in_gpu,
                                    .engine = !pinned,
                                    .shared = !sends && !in_gpu};
    return gpusym_queue_start(&pipe->copies, &run, 0);
}

/* Copies up to so many pieces, or notes an error; of those that this thread copies itself, one. */
static void pieces_start(gpusym_pipe_t *pipe, int64_t may)
{
    const uint64_t left = pieces_of(pipe) - pipe->copies.started;
    const int64_t most = NULL != pipe->copies.gpu ? may : may < 1 ? may : 1;
    note_error(pipe, may < 0 ? (int) may : GPUSYM_SUCCESS);
    for (int64_t i = 0; i < most && (uint64_t) i < left && GPUSYM_SUCCESS == pipe->status; i++) {
        note_error(pipe, piece_start(pipe));
    }
}

/* Ends the copies that have ended; one that has failed has ended too. */
static void pieces_end(gpusym_pipe_t *pipe)
{
    int rc;
    while (0 != (rc = gpusym_queue_end(&pipe->copies, NULL))) {
        note_error(pipe, rc < 0 ? rc : GPUSYM_SUCCESS);
    }
}

/* ---- the sender's half ---- */

void gpusym_pipe_send(gpusym_pipe_t *pipe, const gpusym_device_t *dev, gpusym_gpu_t *gpu, const void *src,
                      uint64_t bytes, uint32_t index, bool by_gpu)
{
    *pipe = (gpusym_pipe_t){.copies = {.dev = dev, .gpu = gpu},
                            .at = (char *) (uintptr_t) src,
                            .bytes = bytes,
                            .index = index,
                            .ring = ring_of(gpusym_send_desc_room(index)),
                            .by_gpu = by_gpu && NULL != gpu && gpusym_tuning_pipe_by_gpu(bytes)};
}

/* Decides where the slots are. False: the receiver has not answered yet. */
static bool route_choose(gpusym_pipe_t *pipe, flow_t *flow)
{
    if (pipe->by_gpu && !pipe->told) {
        const uint32_t key = memory_key(pipe->copies.dev, pipe->copies.gpu);
        pipe->by_gpu = 0 != key;
        pipe->told = true;
        WRITE(flow->key, key);
    }
    if (pipe->by_gpu) {
        const uint32_t answer = READ(flow->answer);
        if (ANSWER_NONE == answer) {
            return false;
        }
        pipe->by_gpu = ANSWER_MAPPED == answer;
    }
    return true;
}

/* Takes one slot more. False: none is free. With the lock held. */
static bool slot_take(gpusym_pipe_t *pipe)
{
    uint64_t *off = &pipe->off[pipe->ring.slots];
    return pipe->by_gpu ? GPUSYM_SUCCESS == gpusym_arena_alloc(shared.mem_arena, pipe->piece, off)
                        : range_get(pipe->copies.dev, pipe->copies.gpu, pipe->piece, off);
}

/* Takes slots, and tells the receiver which. GPUSYM_ERR_NOT_AVAILABLE: none is free, others will be given back;
 * GPUSYM_ERR_NO_MEMORY: there are none. */
static int slots_take(gpusym_pipe_t *pipe, flow_t *flow)
{
    pipe->piece = gpusym_tuning_pipe_piece(pipe->bytes, pipe->by_gpu);
    const uint64_t pieces = pieces_of(pipe), wanted = pieces < GPUSYM_PIPE_SLOTS ? pieces : GPUSYM_PIPE_SLOTS;
    pthread_mutex_lock(&shared.lock);
    while (pipe->ring.slots < wanted && slot_take(pipe)) {
        pipe->ring.slots++;
    }
    const int lack =
        !pipe->by_gpu && GPUSYM_SUCCESS != shared.host.refused ? GPUSYM_ERR_NO_MEMORY : GPUSYM_ERR_NOT_AVAILABLE;
    pipe->segment = shared.host.own;
    pipe->mem = pipe->by_gpu ? shared.mem : NULL;
    pthread_mutex_unlock(&shared.lock);
    if (0 == pipe->ring.slots) {
        return lack;
    }
    flow->slots = (uint32_t) pipe->ring.slots;
    flow->piece = pipe->piece;
    memcpy(flow->off, pipe->off, sizeof flow->off);
    flow->segment = NULL != pipe->segment ? pipe->segment->id : (gpusym_segment_id_t){.bytes = 0};
    flow->in_gpu = pipe->by_gpu;
    flow->check = check_of(flow);
    return GPUSYM_SUCCESS;
}

static void slots_give(gpusym_pipe_t *pipe)
{
    pthread_mutex_lock(&shared.lock);
    while (pipe->ring.slots > 0) {
        const uint64_t off = pipe->off[--pipe->ring.slots];
        if (NULL == pipe->mem) {
            gpusym_shares_put(&shared.host, off);
        } else if (NULL != shared.mem_arena) {
            gpusym_arena_free(shared.mem_arena, off);
        }
    }
    pthread_mutex_unlock(&shared.lock);
}

/* Tells which pieces are there, and fills the slots that are free. */
static void send_pieces(gpusym_pipe_t *pipe, flow_t *flow)
{
    if (0 == pipe->ring.slots && 0 != pipe->bytes && route_choose(pipe, flow)) {
        const int rc = slots_take(pipe, flow);
        note_error(pipe, GPUSYM_ERR_NOT_AVAILABLE != rc ? rc : GPUSYM_SUCCESS);
    }
    if (0 != pipe->ring.slots) {
        gpusym_flow_publish(&pipe->ring, pipe->copies.ended);
        pieces_start(pipe, gpusym_flow_room(&pipe->ring, pipe->copies.started));
    }
}

static bool poll_send(gpusym_pipe_t *pipe)
{
    flow_t *flow = gpusym_send_desc_room(pipe->index);
    int status;
    const int state = gpusym_send_desc_state(pipe->index, &status);
    const bool over = state < 0 || GPUSYM_SEND_DESC_DONE == state || pipe->alone;

    pieces_end(pipe);
    if (state < 0) {
        note_error(pipe, state);
    } else if (GPUSYM_SEND_DESC_DONE == state) {
        note_theirs(pipe, status);
    } else if (GPUSYM_SEND_DESC_PIPING == state && GPUSYM_SUCCESS == pipe->status) {
        send_pieces(pipe, flow);
    }
    if (!over) {
        WRITE(flow->failed, pipe->status); /* the receiver then ends the send descriptor */
    }
    if (!over || 0 != gpusym_queue_under_way(&pipe->copies)) {
        return false;
    }
    slots_give(pipe);
    return true;
}

/* ---- the receiver's half ---- */

void gpusym_pipe_receive(gpusym_pipe_t *pipe, const gpusym_device_t *dev, gpusym_gpu_t *gpu, void *dst, uint64_t bytes,
                         gpusym_send_desc_t *desc, bool by_gpu)
{
    *pipe = (gpusym_pipe_t){.copies = {.dev = dev, .gpu = gpu},
                            .at = dst,
                            .bytes = bytes < desc->offer.bytes ? bytes : desc->offer.bytes,
                            .desc = desc,
                            .ring = ring_of(desc->room),
                            .by_gpu = by_gpu && NULL != gpu};
    if (0 != pipe->bytes) {
        pipe->asked = GPUSYM_SEND_DESC_PIPE != desc->offer.kind;
        note_error(pipe, pipe->asked ? gpusym_send_desc_ask_pipe(desc) : gpusym_send_desc_begin_pipe(desc));
    }
}

/* Returns whether the flow can be read. */
static bool has_flow(gpusym_pipe_t *pipe)
{
    int status;
    const int state = pipe->asked ? gpusym_send_desc_state_of(pipe->desc, &status) : GPUSYM_SEND_DESC_PIPING;
    note_error(pipe, state < 0 ? state : GPUSYM_SUCCESS);
    pipe->asked = GPUSYM_SEND_DESC_PIPING != state;
    return !pipe->asked;
}

/* Maps the sender's GPU memory, if it offers that, and tells it whether. */
static void route_answer(gpusym_pipe_t *pipe, flow_t *flow)
{
    const uint32_t key = READ(flow->key);
    void *mem;
    uint64_t size;
    if (0 == key || pipe->told) {
        return;
    }
    if (pipe->by_gpu &&
        GPUSYM_SUCCESS == gpusym_reg_map(pipe->copies.dev, pipe->copies.gpu, pipe->desc->peer, key, &mem, &size) &&
        size >= GPUSYM_PIPE_GPU_BYTES) {
        pipe->mem = mem;
    }
    pipe->told = true;
    WRITE(flow->answer, NULL != pipe->mem ? ANSWER_MAPPED : ANSWER_NOT_MAPPED);
}

/* Reads which slots the sender has taken, and maps them. Returns an error of common.h. */
static int slots_read(gpusym_pipe_t *pipe, const flow_t *flow)
{
    const flow_t said = *flow; /* the sender's lines do not change once pieces are there */
    if (said.check != check_of(&said) || 0 == said.slots || said.slots > GPUSYM_PIPE_SLOTS || 0 == said.piece ||
        said.piece > GPUSYM_PIPE_BYTES) {
        return GPUSYM_ERR_CORRUPT;
    }
    const uint64_t first = said.in_gpu ? 0 : GPUSYM_SHARE_FIRST,
                   end = said.in_gpu ? GPUSYM_PIPE_GPU_BYTES : GPUSYM_PIPE_BYTES;
    for (uint32_t i = 0; i < said.slots; i++) {
        if (said.off[i] < first || said.off[i] > end - said.piece) {
            return GPUSYM_ERR_CORRUPT;
        }
    }
    if (said.in_gpu && NULL == pipe->mem) {
        return GPUSYM_ERR_CORRUPT;
    }
    if (!said.in_gpu) {
        pipe->mem = NULL;
        pipe->segment = segment_get(&said.segment, pipe->copies.dev, pipe->copies.gpu);
        if (NULL == pipe->segment) {
            return GPUSYM_ERR_UNREACHABLE;
        }
    }
    pipe->piece = said.piece;
    pipe->ring.slots = said.slots;
    memcpy(pipe->off, said.off, sizeof pipe->off);
    return GPUSYM_SUCCESS;
}

/* Copies out the pieces that are there. */
static void receive_pieces(gpusym_pipe_t *pipe, flow_t *flow)
{
    if (0 == pipe->ring.slots && !gpusym_flow_has_begun(&pipe->ring)) {
        route_answer(pipe, flow);
        return;
    }
    if (0 == pipe->ring.slots) {
        note_error(pipe, slots_read(pipe, flow));
    }
    if (GPUSYM_SUCCESS == pipe->status) {
        pieces_start(pipe, gpusym_flow_ready(&pipe->ring, pipe->copies.started));
    }
}

static bool poll_receive(gpusym_pipe_t *pipe)
{
    flow_t *flow = pipe->desc->room;

    if (GPUSYM_SUCCESS == pipe->status && !has_flow(pipe) && GPUSYM_SUCCESS == pipe->status) {
        return false;
    }
    pieces_end(pipe);
    const bool all = 0 == pipe->bytes || (0 != pipe->ring.slots && pipe->copies.ended == pieces_of(pipe));
    if (!all && GPUSYM_SUCCESS == pipe->status) {
        const int32_t failed = READ(flow->failed);
        gpusym_flow_take(&pipe->ring, pipe->copies.ended);
        note_theirs(pipe, failed <= 0 ? failed : GPUSYM_ERR_CORRUPT);
    }
    if (!all && GPUSYM_SUCCESS == pipe->status) {
        receive_pieces(pipe, flow);
    }
    if ((!all && GPUSYM_SUCCESS == pipe->status) || 0 != gpusym_queue_under_way(&pipe->copies)) {
        return false;
    }
    gpusym_send_desc_end(pipe->desc, pipe->status);
    return true;
}

bool gpusym_pipe_poll(gpusym_pipe_t *pipe, int *status)
{
    const bool ended = NULL == pipe->desc ? poll_send(pipe) : poll_receive(pipe);
    *status = ended ? pipe->status : GPUSYM_SUCCESS;
    return ended;
}

/* ---- buffers ---- */

int gpusym_pipe_buffer_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, gpusym_pipe_buffer_t *buffer)
{
    *buffer = (gpusym_pipe_buffer_t){.bytes = bytes};
    pthread_mutex_lock(&shared.lock);
    if (0 != bytes && bytes <= GPUSYM_PIPE_BUFFERS - shared.buffered && range_get(dev, gpu, bytes, &buffer->off)) {
        shared.buffered += bytes;
        buffer->host = shared.host.own->base + buffer->off;
        buffer->dev = NULL != shared.host.own->dev ? shared.host.own->dev + buffer->off : NULL;
    }
    pthread_mutex_unlock(&shared.lock);
    return NULL != buffer->host ? GPUSYM_SUCCESS : GPUSYM_ERR_NOT_AVAILABLE;
}

void gpusym_pipe_buffer_put(gpusym_pipe_buffer_t *buffer)
{
    pthread_mutex_lock(&shared.lock);
    if (NULL != buffer->host && NULL != shared.host.own) {
        gpusym_shares_put(&shared.host, buffer->off);
        shared.buffered -= buffer->bytes;
    }
    pthread_mutex_unlock(&shared.lock);
    buffer->host = NULL;
}

int gpusym_pipe_buffer_change(uint32_t index, const gpusym_pipe_buffer_t *buffer)
{
    const gpusym_offer_t o = {.kind = GPUSYM_SEND_DESC_PIPE, .gpu = -1};
    union {
        flow_t flow;
        unsigned char room[GPUSYM_SEND_DESC_ROOM];
    } first = {.room = {0}};
    first.flow.filled = 1;
    first.flow.slots = 1;
    first.flow.piece = buffer->bytes;
    first.flow.off[0] = buffer->off;
    first.flow.segment = shared.host.own->id;
    first.flow.check = check_of(&first.flow);
    return gpusym_send_desc_change(index, &o, first.room);
}
