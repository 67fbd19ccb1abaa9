/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Staging pipelines: see pipeline.h.
 */
#include "mca/common/gpusym/p2p/pipeline.h"

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
    uint64_t piece, off[GPUSYM_PIPELINE_SLOTS]; /* see gpusym_pipeline_t */
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
    for (unsigned i = 0; i < GPUSYM_PIPELINE_SLOTS; i++) {
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
                     .bytes = GPUSYM_PIPELINE_BYTES,
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

bool gpusym_pipelines_ready(void)
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
    if (GPUSYM_SUCCESS != gpusym_mem_alloc(dev, gpu, GPUSYM_PIPELINE_GPU_BYTES, &mem)) {
        return;
    }
    if (GPUSYM_SUCCESS != gpusym_reg_get(dev, gpu, mem, GPUSYM_PIPELINE_GPU_BYTES, &shared.key, &off)) {
        goto free_memory;
    }
    shared.mem_arena = gpusym_arena_create(GPUSYM_PIPELINE_GPU_BYTES, 4096);
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

void gpusym_pipelines_close(const gpusym_device_t *dev)
{
    pthread_mutex_lock(&shared.lock);
    memory_free(dev);
    gpusym_shares_close(&shared.host, dev);
    shared.buffered = 0;
    pthread_mutex_unlock(&shared.lock);
}

/* ---- both halves ---- */

static uint64_t pieces_of(const gpusym_pipeline_t *pipeline)
{
    return (pipeline->bytes + pipeline->piece - 1) / pipeline->piece;
}

static gpusym_flow_t ring_of(void *room)
{
    flow_t *flow = room;
    return (gpusym_flow_t){.filled = &flow->filled, .taken = &flow->taken};
}

static void note_error(gpusym_pipeline_t *pipeline, int rc)
{
    pipeline->status = GPUSYM_SUCCESS == pipeline->status ? rc : pipeline->status;
}

/* What the other process has told. */
static void note_theirs(gpusym_pipeline_t *pipeline, int rc)
{
    pipeline->theirs = pipeline->theirs || (GPUSYM_SUCCESS == pipeline->status && GPUSYM_SUCCESS != rc);
    note_error(pipeline, rc);
}

void gpusym_pipeline_fail(gpusym_pipeline_t *pipeline, int status)
{
    note_error(pipeline, status);
    pipeline->alone = true;
}

/* Copies the next piece, between its slot and our memory. Returns an error of common.h. */
static int piece_start(gpusym_pipeline_t *pipeline)
{
    const uint64_t n = pipeline->copies.started, at = n * pipeline->piece,
                   slot = pipeline->off[n % pipeline->ring.slots];
    const uint64_t bytes = pipeline->bytes - at < pipeline->piece ? pipeline->bytes - at : pipeline->piece;
    const bool sends = NULL == pipeline->desc, in_gpu = NULL != pipeline->mem,
               pinned = in_gpu || NULL != pipeline->segment->dev;
    char *shared_at = slot + (in_gpu                                   ? pipeline->mem
                              : pinned && NULL != pipeline->copies.gpu ? pipeline->segment->dev
                                                                       : pipeline->segment->base);
    const gpusym_copy_rows_t run = {.dst = sends ? shared_at : pipeline->at + at,
                                    .src = sends ? pipeline->at + at : shared_at,
                                    .width = bytes,
                                    .height = 1,
                                    .local = !sends || in_gpu,
                                    .engine = !pinned,
                                    .shared = !sends && !in_gpu};
    return gpusym_queue_start(&pipeline->copies, &run, 0);
}

/* Copies up to so many pieces, or notes an error; of those that this thread copies itself, one. */
static void pieces_start(gpusym_pipeline_t *pipeline, int64_t may)
{
    const uint64_t left = pieces_of(pipeline) - pipeline->copies.started;
    const int64_t most = NULL != pipeline->copies.gpu ? may : may < 1 ? may : 1;
    note_error(pipeline, may < 0 ? (int) may : GPUSYM_SUCCESS);
    for (int64_t i = 0; i < most && (uint64_t) i < left && GPUSYM_SUCCESS == pipeline->status; i++) {
        note_error(pipeline, piece_start(pipeline));
    }
}

/* Ends the copies that have ended; one that has failed has ended too. */
static void pieces_end(gpusym_pipeline_t *pipeline)
{
    int rc;
    while (0 != (rc = gpusym_queue_end(&pipeline->copies, NULL))) {
        note_error(pipeline, rc < 0 ? rc : GPUSYM_SUCCESS);
    }
}

/* ---- the sender's half ---- */

void gpusym_pipeline_send(gpusym_pipeline_t *pipeline, const gpusym_device_t *dev, gpusym_gpu_t *gpu, const void *src,
                          uint64_t bytes, uint32_t index, bool by_gpu)
{
    *pipeline = (gpusym_pipeline_t){.copies = {.dev = dev, .gpu = gpu},
                                    .at = (char *) (uintptr_t) src,
                                    .bytes = bytes,
                                    .index = index,
                                    .ring = ring_of(gpusym_send_desc_room(index)),
                                    .by_gpu = by_gpu && NULL != gpu && gpusym_tuning_pipeline_by_gpu(bytes)};
}

/* Decides where the slots are. False: the receiver has not answered yet. */
static bool route_choose(gpusym_pipeline_t *pipeline, flow_t *flow)
{
    if (pipeline->by_gpu && !pipeline->told) {
        const uint32_t key = memory_key(pipeline->copies.dev, pipeline->copies.gpu);
        pipeline->by_gpu = 0 != key;
        pipeline->told = true;
        WRITE(flow->key, key);
    }
    if (pipeline->by_gpu) {
        const uint32_t answer = READ(flow->answer);
        if (ANSWER_NONE == answer) {
            return false;
        }
        pipeline->by_gpu = ANSWER_MAPPED == answer;
    }
    return true;
}

/* Takes one slot more. False: none is free. With the lock held. */
static bool slot_take(gpusym_pipeline_t *pipeline)
{
    uint64_t *off = &pipeline->off[pipeline->ring.slots];
    return pipeline->by_gpu ? GPUSYM_SUCCESS == gpusym_arena_alloc(shared.mem_arena, pipeline->piece, off)
                            : range_get(pipeline->copies.dev, pipeline->copies.gpu, pipeline->piece, off);
}

/* Takes slots, and tells the receiver which. GPUSYM_ERR_NOT_AVAILABLE: none is free, others will be given back;
 * GPUSYM_ERR_NO_MEMORY: there are none. */
static int slots_take(gpusym_pipeline_t *pipeline, flow_t *flow)
{
    pipeline->piece = gpusym_tuning_pipeline_piece(pipeline->bytes, pipeline->by_gpu);
    const uint64_t pieces = pieces_of(pipeline),
                   wanted = pieces < GPUSYM_PIPELINE_SLOTS ? pieces : GPUSYM_PIPELINE_SLOTS;
    pthread_mutex_lock(&shared.lock);
    while (pipeline->ring.slots < wanted && slot_take(pipeline)) {
        pipeline->ring.slots++;
    }
    const int lack =
        !pipeline->by_gpu && GPUSYM_SUCCESS != shared.host.refused ? GPUSYM_ERR_NO_MEMORY : GPUSYM_ERR_NOT_AVAILABLE;
    pipeline->segment = shared.host.own;
    pipeline->mem = pipeline->by_gpu ? shared.mem : NULL;
    pthread_mutex_unlock(&shared.lock);
    if (0 == pipeline->ring.slots) {
        return lack;
    }
    flow->slots = (uint32_t) pipeline->ring.slots;
    flow->piece = pipeline->piece;
    memcpy(flow->off, pipeline->off, sizeof flow->off);
    flow->segment = NULL != pipeline->segment ? pipeline->segment->id : (gpusym_segment_id_t){.bytes = 0};
    flow->in_gpu = pipeline->by_gpu;
    flow->check = check_of(flow);
    return GPUSYM_SUCCESS;
}

static void slots_give(gpusym_pipeline_t *pipeline)
{
    pthread_mutex_lock(&shared.lock);
    while (pipeline->ring.slots > 0) {
        const uint64_t off = pipeline->off[--pipeline->ring.slots];
        if (NULL == pipeline->mem) {
            gpusym_shares_put(&shared.host, off);
        } else if (NULL != shared.mem_arena) {
            gpusym_arena_free(shared.mem_arena, off);
        }
    }
    pthread_mutex_unlock(&shared.lock);
}

/* Tells which pieces are there, and fills the slots that are free. */
static void send_pieces(gpusym_pipeline_t *pipeline, flow_t *flow)
{
    if (0 == pipeline->ring.slots && 0 != pipeline->bytes && route_choose(pipeline, flow)) {
        const int rc = slots_take(pipeline, flow);
        note_error(pipeline, GPUSYM_ERR_NOT_AVAILABLE != rc ? rc : GPUSYM_SUCCESS);
    }
    if (0 != pipeline->ring.slots) {
        gpusym_flow_publish(&pipeline->ring, pipeline->copies.ended);
        pieces_start(pipeline, gpusym_flow_room(&pipeline->ring, pipeline->copies.started));
    }
}

static bool poll_send(gpusym_pipeline_t *pipeline)
{
    flow_t *flow = gpusym_send_desc_room(pipeline->index);
    int status;
    const int state = gpusym_send_desc_state(pipeline->index, &status);
    const bool over = state < 0 || GPUSYM_SEND_DESC_DONE == state || pipeline->alone;

    pieces_end(pipeline);
    if (state < 0) {
        note_error(pipeline, state);
    } else if (GPUSYM_SEND_DESC_DONE == state) {
        note_theirs(pipeline, status);
    } else if (GPUSYM_SEND_DESC_PIPELINING == state && GPUSYM_SUCCESS == pipeline->status) {
        send_pieces(pipeline, flow);
    }
    if (!over) {
        WRITE(flow->failed, pipeline->status); /* the receiver then ends the send descriptor */
    }
    if (!over || 0 != gpusym_queue_under_way(&pipeline->copies)) {
        return false;
    }
    slots_give(pipeline);
    return true;
}

/* ---- the receiver's half ---- */

void gpusym_pipeline_receive(gpusym_pipeline_t *pipeline, const gpusym_device_t *dev, gpusym_gpu_t *gpu, void *dst,
                             uint64_t bytes, gpusym_send_desc_t *desc, bool by_gpu)
{
    *pipeline = (gpusym_pipeline_t){.copies = {.dev = dev, .gpu = gpu},
                                    .at = dst,
                                    .bytes = bytes < desc->offer.bytes ? bytes : desc->offer.bytes,
                                    .desc = desc,
                                    .ring = ring_of(desc->room),
                                    .by_gpu = by_gpu && NULL != gpu};
    if (0 != pipeline->bytes) {
        pipeline->asked = GPUSYM_SEND_DESC_PIPELINE != desc->offer.kind;
        note_error(pipeline,
                   pipeline->asked ? gpusym_send_desc_ask_pipeline(desc) : gpusym_send_desc_begin_pipeline(desc));
    }
}

/* Returns whether the flow can be read. */
static bool has_flow(gpusym_pipeline_t *pipeline)
{
    int status;
    const int state =
        pipeline->asked ? gpusym_send_desc_state_of(pipeline->desc, &status) : GPUSYM_SEND_DESC_PIPELINING;
    note_error(pipeline, state < 0 ? state : GPUSYM_SUCCESS);
    pipeline->asked = GPUSYM_SEND_DESC_PIPELINING != state;
    return !pipeline->asked;
}

/* Maps the sender's GPU memory, if it offers that, and tells it whether. */
static void route_answer(gpusym_pipeline_t *pipeline, flow_t *flow)
{
    const uint32_t key = READ(flow->key);
    void *mem;
    uint64_t size;
    if (0 == key || pipeline->told) {
        return;
    }
    if (pipeline->by_gpu &&
        GPUSYM_SUCCESS ==
            gpusym_reg_map(pipeline->copies.dev, pipeline->copies.gpu, pipeline->desc->peer, key, &mem, &size) &&
        size >= GPUSYM_PIPELINE_GPU_BYTES) {
        pipeline->mem = mem;
    }
    pipeline->told = true;
    WRITE(flow->answer, NULL != pipeline->mem ? ANSWER_MAPPED : ANSWER_NOT_MAPPED);
}

/* Reads which slots the sender has taken, and maps them. Returns an error of common.h. */
static int slots_read(gpusym_pipeline_t *pipeline, const flow_t *flow)
{
    const flow_t said = *flow; /* the sender's lines do not change once pieces are there */
    if (said.check != check_of(&said) || 0 == said.slots || said.slots > GPUSYM_PIPELINE_SLOTS || 0 == said.piece ||
        said.piece > GPUSYM_PIPELINE_BYTES) {
        return GPUSYM_ERR_CORRUPT;
    }
    const uint64_t first = said.in_gpu ? 0 : GPUSYM_SHARE_FIRST,
                   end = said.in_gpu ? GPUSYM_PIPELINE_GPU_BYTES : GPUSYM_PIPELINE_BYTES;
    for (uint32_t i = 0; i < said.slots; i++) {
        if (said.off[i] < first || said.off[i] > end - said.piece) {
            return GPUSYM_ERR_CORRUPT;
        }
    }
    if (said.in_gpu && NULL == pipeline->mem) {
        return GPUSYM_ERR_CORRUPT;
    }
    if (!said.in_gpu) {
        pipeline->mem = NULL;
        pipeline->segment = segment_get(&said.segment, pipeline->copies.dev, pipeline->copies.gpu);
        if (NULL == pipeline->segment) {
            return GPUSYM_ERR_UNREACHABLE;
        }
    }
    pipeline->piece = said.piece;
    pipeline->ring.slots = said.slots;
    memcpy(pipeline->off, said.off, sizeof pipeline->off);
    return GPUSYM_SUCCESS;
}

/* Copies out the pieces that are there. */
static void receive_pieces(gpusym_pipeline_t *pipeline, flow_t *flow)
{
    if (0 == pipeline->ring.slots && !gpusym_flow_has_begun(&pipeline->ring)) {
        route_answer(pipeline, flow);
        return;
    }
    if (0 == pipeline->ring.slots) {
        note_error(pipeline, slots_read(pipeline, flow));
    }
    if (GPUSYM_SUCCESS == pipeline->status) {
        pieces_start(pipeline, gpusym_flow_ready(&pipeline->ring, pipeline->copies.started));
    }
}

static bool poll_receive(gpusym_pipeline_t *pipeline)
{
    flow_t *flow = pipeline->desc->room;

    if (GPUSYM_SUCCESS == pipeline->status && !has_flow(pipeline) && GPUSYM_SUCCESS == pipeline->status) {
        return false;
    }
    pieces_end(pipeline);
    const bool all =
        0 == pipeline->bytes || (0 != pipeline->ring.slots && pipeline->copies.ended == pieces_of(pipeline));
    if (!all && GPUSYM_SUCCESS == pipeline->status) {
        const int32_t failed = READ(flow->failed);
        gpusym_flow_take(&pipeline->ring, pipeline->copies.ended);
        note_theirs(pipeline, failed <= 0 ? failed : GPUSYM_ERR_CORRUPT);
    }
    if (!all && GPUSYM_SUCCESS == pipeline->status) {
        receive_pieces(pipeline, flow);
    }
    if ((!all && GPUSYM_SUCCESS == pipeline->status) || 0 != gpusym_queue_under_way(&pipeline->copies)) {
        return false;
    }
    gpusym_send_desc_end(pipeline->desc, pipeline->status);
    return true;
}

bool gpusym_pipeline_poll(gpusym_pipeline_t *pipeline, int *status)
{
    const bool ended = NULL == pipeline->desc ? poll_send(pipeline) : poll_receive(pipeline);
    *status = ended ? pipeline->status : GPUSYM_SUCCESS;
    return ended;
}

/* ---- buffers ---- */

int gpusym_pipeline_buffer_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes,
                               gpusym_pipeline_buffer_t *buffer)
{
    *buffer = (gpusym_pipeline_buffer_t){.bytes = bytes};
    pthread_mutex_lock(&shared.lock);
    if (0 != bytes && bytes <= GPUSYM_PIPELINE_BUFFERS - shared.buffered && range_get(dev, gpu, bytes, &buffer->off)) {
        shared.buffered += bytes;
        buffer->host = shared.host.own->base + buffer->off;
        buffer->dev = NULL != shared.host.own->dev ? shared.host.own->dev + buffer->off : NULL;
    }
    pthread_mutex_unlock(&shared.lock);
    return NULL != buffer->host ? GPUSYM_SUCCESS : GPUSYM_ERR_NOT_AVAILABLE;
}

void gpusym_pipeline_buffer_put(gpusym_pipeline_buffer_t *buffer)
{
    if (NULL == buffer->host) { /* each message asks, and few have one */
        return;
    }
    pthread_mutex_lock(&shared.lock);
    if (NULL != shared.host.own) {
        gpusym_shares_put(&shared.host, buffer->off);
        shared.buffered -= buffer->bytes;
    }
    pthread_mutex_unlock(&shared.lock);
    buffer->host = NULL;
}

int gpusym_pipeline_buffer_change(uint32_t index, const gpusym_pipeline_buffer_t *buffer)
{
    const gpusym_offer_t o = {.kind = GPUSYM_SEND_DESC_PIPELINE, .gpu = -1};
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
