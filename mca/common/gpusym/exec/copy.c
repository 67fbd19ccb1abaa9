/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies: see copy.h.
 */
#include "mca/common/gpusym/exec/copy.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/plan.h"
#include "mca/common/gpusym/exec/pack.h"
#include "mca/common/gpusym/lock.h"
#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/trace.h"
#include "tuning/copy.h"

/* Polls of a copy after which the stream is asked: it alone tells of the GPU's errors. */
#define STREAM_POLLS 1024u
/* Polls of a copy that waits for its launch between two attempts to make it. */
#define FLUSH_POLLS 16u
/* How often a launch under way holds the next one up: it may have failed. */
#define HELD_MAX 4096u
/* The same of a copy that the copier does: it has ended only when its owner has polled it. */
#define HELD_BY_COPIER_MAX 64u
/* A word that few copies write falls behind the lane's sequence, and must not by half of what 32 bits count. After so
 * many copies the lane is given a rest, in which all words are brought up. */
#define STARTED_MAX (1u << 29)

/* A lane for copies. */
typedef struct gpusym_copy_queue {
    pthread_mutex_t lock; /* covers the order of work in the lane */
    gpusym_lane_t *lane;
    bool kernels;       /* they are loaded */
    uint32_t under_way; /* copies; atomic */
    uint32_t started;   /* copies since all words of the lane had its sequence; atomic */
    struct gpusym_copy_queue *next;
} copy_queue_t;

static struct {
    pthread_mutex_t lock; /* covers the list */
    copy_queue_t *first;
} queues = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Copies that a resident kernel does by one command. */
typedef struct gpusym_copy_list {
    gpusym_copier_t *copier; /* NULL: it has ended */
    int ended;               /* as gpusym_copier_poll says */
    uint32_t users;          /* copies that have not been told so */
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;
    gpusym_box_run_t box[GPUSYM_LIST_MAX];
    struct gpusym_copy_list *next; /* of the free ones */
} copy_list_t;

static struct {
    pthread_mutex_t lock; /* covers all lists */
    copy_list_t *free;
} lists = {.lock = PTHREAD_MUTEX_INITIALIZER};

static copy_list_t *list_get(void)
{
    gpusym_lock(&lists.lock);
    copy_list_t *l = lists.free;
    lists.free = NULL != l ? l->next : NULL;
    gpusym_unlock(&lists.lock);
    return NULL != l ? l : malloc(sizeof *l);
}

/* With the lock held. */
static void list_put(copy_list_t *l)
{
    l->next = lists.free;
    lists.free = l;
}

static void lists_close(void)
{
    while (NULL != lists.free) {
        copy_list_t *l = lists.free;
        lists.free = l->next;
        free(l);
    }
}

/* Copies that share the next launch: of runs, or of boxes. */
typedef struct {
    pthread_mutex_t lock; /* covers all of this */
    uint32_t n;           /* also read without the lock */
    gpusym_copy_t last;   /* all blocks of the last launch; not of one that waits, which holds no other one up */
    uint32_t held;        /* how often that, or the copier, was found under way */
    uint64_t bytes;
    uint32_t units; /* of the copy that has most: of unit, of gpusym_box_run_t, each */
    bool local;     /* all of them are */
    bool awaits;    /* one of them does, for a signal */
    bool plain;     /* none of them awaits or stores one */
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;
    gpusym_copy_t *copy[GPUSYM_RUNS_MAX];
    union {
        gpusym_run_t run[GPUSYM_RUNS_MAX];
        gpusym_box_run_t box[GPUSYM_BOXES_MAX];
    };
} batch_t;
static batch_t run_batch = {.lock = PTHREAD_MUTEX_INITIALIZER}, box_batch = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- lanes ---- */

/* Gives all words the lane's sequence. No copy is under way. Nor is one late: that is of later ones only. */
static void bring_up_words(copy_queue_t *queue)
{
    gpusym_lane_t *lane = queue->lane;
    for (unsigned i = 0; i < GPUSYM_COPY_BLOCKS; i++) {
        __atomic_store_n(&lane->host->part[i], (uint64_t) lane->seq << 32, __ATOMIC_RELAXED);
        __atomic_store_n(&lane->host->late[i], (uint64_t) lane->seq << 32, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&lane->host->copied, lane->seq, __ATOMIC_RELAXED);
    __atomic_store_n(&queue->started, 0, __ATOMIC_RELAXED);
}

static int queue_make(const gpusym_device_t *dev, gpusym_gpu_t *gpu, copy_queue_t **out)
{
    const char *why = "";
    copy_queue_t *queue = calloc(1, sizeof *queue);
    if (NULL == queue) {
        gpusym_log_no_memory("a lane for copies");
        return GPUSYM_ERR_NO_MEMORY;
    }
    const int rc = gpusym_lane_get(dev, gpu, &queue->lane);
    if (GPUSYM_SUCCESS != rc) {
        free(queue);
        return rc;
    }
    pthread_mutex_init(&queue->lock, NULL);
    queue->kernels = GPUSYM_SUCCESS == dev->kernels_load(gpu, &why);
    if (!queue->kernels) {
        GPUSYM_LOG(2, "copy engines do all copies of messages: %s", why);
    }
    bring_up_words(queue);
    queue->next = queues.first;
    queues.first = queue;
    *out = queue;
    return GPUSYM_SUCCESS;
}

/* Gets the lane of gpu with the fewest copies; another one, if all have some and there may be more. It counts `more`
 * copies more. */
static int queue_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint32_t more, copy_queue_t **out)
{
    unsigned lanes = 0;
    uint32_t least = UINT32_MAX;
    int rc = GPUSYM_SUCCESS;
    *out = NULL;
    gpusym_lock(&queues.lock);
    for (copy_queue_t *c = queues.first; NULL != c; c = c->next) {
        const uint32_t under_way = __atomic_load_n(&c->under_way, __ATOMIC_RELAXED);
        if (c->lane->gpu != gpu || c->lane->dev != dev) {
            continue;
        }
        lanes++;
        const bool rests = 0 != under_way && __atomic_load_n(&c->started, __ATOMIC_RELAXED) > STARTED_MAX;
        if (NULL == *out || (under_way < least && !rests)) {
            least = rests ? UINT32_MAX : under_way;
            *out = c;
        }
    }
    if (0 != least && lanes < GPUSYM_COPY_LANES) {
        copy_queue_t *made;
        rc = queue_make(dev, gpu, &made);
        *out = GPUSYM_SUCCESS == rc ? made : *out;
    }
    if (NULL != *out) { /* one that is busy does as well */
        rc = GPUSYM_SUCCESS;
        __atomic_fetch_add(&(*out)->under_way, more, __ATOMIC_RELAXED);
    }
    gpusym_unlock(&queues.lock);
    return rc;
}

static void queue_put(copy_queue_t *queue, uint32_t less)
{
    __atomic_fetch_sub(&queue->under_way, less, __ATOMIC_RELEASE);
}

void gpusym_copy_queues_close(void)
{
    gpusym_copiers_close();
    lists_close();
    run_batch.last.queue = box_batch.last.queue = NULL;
    gpusym_lock(&queues.lock);
    while (NULL != queues.first) {
        copy_queue_t *queue = queues.first;
        queues.first = queue->next;
        gpusym_lane_put(queue->lane);
        pthread_mutex_destroy(&queue->lock);
        free(queue);
    }
    gpusym_unlock(&queues.lock);
}

/* ---- start ---- */

/* Queues a kernel. With the lane's lock held. */
static int launch(gpusym_lane_t *lane, unsigned kernel, gpusym_work_t *w)
{
    w->nranks = 1;
    w->nthreads = gpusym_tuning_copy_threads();
    w->enter_ns = gpusym_tuning_copy_wait_ns(lane->dev->simulated);
    gpusym_lane_begin(lane, w);
    w->done = lane->line->part;
    GPUSYM_TRACE(LAUNCH, kernel, lane->seq);
    return gpusym_lane_more(lane, kernel, w);
}

static gpusym_run_t make_run(const gpusym_copy_rows_t *rows)
{
    return (gpusym_run_t){.in = rows->src,
                          .out = rows->dst,
                          .bytes = (uint32_t) rows->width,
                          .signal = rows->signal,
                          .does = (uint16_t) rows->does};
}

/* Queues a kernel for one copy. With the lane's lock held. */
static int start_kernel(gpusym_lane_t *lane, const gpusym_copy_rows_t *rows, gpusym_copy_t *copy)
{
    const bool run = 1 == rows->height;
    gpusym_work_t w = {.nblocks = gpusym_tuning_copy_blocks(rows->width * rows->height), .out_local = rows->local};
    if (run) {
        w.run[0] = make_run(rows);
        w.rows = (gpusym_rows_t){.runs = 1};
        gpusym_run_plan(&w.run[0], 0, w.nblocks);
    } else {
        w.in = rows->src;
        w.out = rows->dst;
        w.bytes = rows->width;
        w.rows = (gpusym_rows_t){0, rows->height, rows->to_pitch, rows->from_pitch};
    }
    const int rc = launch(lane, GPUSYM_F_COPY, &w);
    copy->end = w.nblocks;
    copy->seq = lane->seq;
    return rc;
}

/* Queues a copy of a copy engine, and behind it the store of a word, if the device can do that. With the lane's lock
 * held. */
static int start_engine(gpusym_lane_t *lane, const gpusym_copy_rows_t *rows, gpusym_copy_t *copy)
{
    const gpusym_device_t *dev = lane->dev;
    const int rc = 1 == rows->height ? dev->copy_async(lane->stream, rows->dst, rows->src, rows->width)
                                     : dev->copy2d_async(lane->stream, rows->dst, rows->to_pitch, rows->src,
                                                         rows->from_pitch, rows->width, rows->height);
    copy->seq = ++lane->seq;
    if (GPUSYM_SUCCESS == rc && NULL != dev->stream_flags) {
        const gpusym_stream_flag_t copied = {.at = &lane->line->copied, .value = lane->seq};
        copy->flag = GPUSYM_SUCCESS == dev->stream_flags(lane->stream, &copied, 1);
    }
    return rc;
}

static bool awaits(const gpusym_copy_rows_t *rows)
{
    return 0 != (rows->does & GPUSYM_COPY_WAITS);
}

/* Copies where the GPU queues nothing: the driver does it, and this call waits. */
static int copy_now(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_copy_rows_t *rows)
{
    int rc = awaits(rows) ? GPUSYM_ERR_LATE : GPUSYM_SUCCESS;
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    GPUSYM_LOG(2, "a copy could not be queued: the driver does it synchronously: %s", dev->error());
    for (uint64_t i = 0; GPUSYM_SUCCESS == rc && i < rows->height; i++) {
        rc = dev->copy(gpu, (char *) rows->dst + i * rows->to_pitch, (const char *) rows->src + i * rows->from_pitch,
                       rows->width);
    }
    return rc;
}

/* Returns the copy as one run, if its rows follow each other. */
static gpusym_copy_rows_t rows_joined(const gpusym_copy_rows_t *rows)
{
    gpusym_copy_rows_t joined = *rows;
    if (1 != rows->height && rows->width == rows->to_pitch && rows->width == rows->from_pitch) {
        joined.width *= joined.height;
        joined.height = 1;
    }
    return joined;
}

/* Counts a launch before it is queued, for `mine` of the copies under way. With the lane's lock held. */
static void count_started(copy_queue_t *queue, uint32_t mine)
{
    if (__atomic_add_fetch(&queue->started, 1, __ATOMIC_RELAXED) > STARTED_MAX &&
        mine == __atomic_load_n(&queue->under_way, __ATOMIC_ACQUIRE)) {
        bring_up_words(queue);
    }
}

static bool has_reached(uint32_t seq, uint32_t wanted)
{
    return (int32_t) (seq - wanted) >= 0;
}

static bool word_says(const uint64_t *word, uint32_t seq)
{
    return has_reached((uint32_t) (__atomic_load_n(word, __ATOMIC_ACQUIRE) >> 32), seq);
}

/* Returns whether the words of pinned memory say that a copy has ended. Later copies of the lane write them too: one of
 * those that was late makes this one late. */
static bool words_say_ended(gpusym_copy_t *copy)
{
    gpusym_lane_line_t *line = copy->queue->lane->host;
    if (0 == copy->end) {
        return copy->flag && has_reached(__atomic_load_n(&line->copied, __ATOMIC_ACQUIRE), copy->seq);
    }
    while (copy->seen < copy->end && word_says(&line->part[copy->seen], copy->seq)) {
        copy->late = copy->late || (copy->awaits && word_says(&line->late[copy->seen], copy->seq));
        copy->seen++;
    }
    return copy->seen == copy->end;
}

/* Sets what a kernel copies, and which blocks each copy gets. With the batch's lock held. */
static void plan_batch(batch_t *batch, gpusym_work_t *w)
{
    const uint32_t share = GPUSYM_COPY_BLOCKS / batch->n;
    if (&box_batch == batch) {
        gpusym_boxes_plan(w, batch->box, batch->n);
        for (uint32_t i = 0; i < batch->n; i++) {
            batch->copy[i]->seen = w->box[i].first;
            batch->copy[i]->end = (uint32_t) w->box[i].first + w->box[i].blocks;
        }
        return;
    }
    w->rows = (gpusym_rows_t){.runs = batch->n};
    for (uint32_t i = 0; i < batch->n; i++) {
        const uint32_t wanted = gpusym_tuning_copy_blocks(batch->run[i].bytes);
        const uint32_t first = w->nblocks, blocks = wanted < share ? wanted : share;
        w->run[i] = batch->run[i];
        gpusym_run_plan(&w->run[i], first, blocks);
        batch->copy[i]->seen = first;
        w->nblocks = batch->copy[i]->end = first + blocks;
    }
}

/* Queues one kernel for the batch. With its lock held. */
static int launch_batch(batch_t *batch, copy_queue_t *queue)
{
    gpusym_work_t w;
    memset(&w, 0, offsetof(gpusym_work_t, send)); /* the kernels take no more of it */
    w.out_local = batch->local;
    plan_batch(batch, &w);
    gpusym_lock(&queue->lock);
    count_started(queue, batch->n);
    const int rc = launch(queue->lane, &box_batch == batch ? GPUSYM_F_BOXES : GPUSYM_F_COPY, &w);
    for (uint32_t i = 0; i < batch->n; i++) {
        batch->copy[i]->queue = queue;
        batch->copy[i]->seq = queue->lane->seq;
    }
    gpusym_unlock(&queue->lock);
    batch->last = (gpusym_copy_t){
        .queue = GPUSYM_SUCCESS == rc && !batch->awaits ? queue : NULL, .seq = queue->lane->seq, .end = w.nblocks};
    return rc;
}

/* Where a packed byte lies from the first byte of a box; *left: the bytes that follow it there. */
static uint64_t box_offset(const gpusym_box_t *b, uint32_t at, uint32_t *left)
{
    const uint32_t row = at / b->bytes, plane = row / b->n[0];
    *left = b->bytes - at % b->bytes;
    return at % b->bytes + (uint64_t) (row % b->n[0]) * b->stride[0] + (uint64_t) (plane % b->n[1]) * b->stride[1] +
           (uint64_t) (plane / b->n[1]) * b->stride[2];
}

/* The driver copies, run by run, and this call waits. */
static int copy_box_now(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_box_run_t *run)
{
    int rc = GPUSYM_SUCCESS;
    for (uint32_t at = 0, bytes; GPUSYM_SUCCESS == rc && at < run->bytes; at += bytes) {
        uint32_t from_left, to_left;
        const char *src = (const char *) run->in + box_offset(&run->from, at, &from_left);
        char *dst = (char *) run->out + box_offset(&run->to, at, &to_left);
        bytes = from_left < to_left ? from_left : to_left;
        bytes = bytes < run->bytes - at ? bytes : run->bytes - at;
        rc = dev->copy(gpu, dst, src, bytes);
    }
    return rc;
}

/* Without a launch: a copy of the batch by itself. copy queue: NULL if there is none. With the batch's lock held. */
static void copy_alone(batch_t *batch, copy_queue_t *queue, uint32_t i)
{
    const gpusym_run_t *run = &batch->run[i];
    const gpusym_copy_rows_t rows = {
        .dst = run->out, .src = run->in, .width = run->bytes, .height = 1, .does = run->does};
    gpusym_copy_t copy = {.queue = queue, .waits = true};
    int rc = GPUSYM_ERR_NOT_AVAILABLE;
    if (NULL != queue && &run_batch == batch && !awaits(&rows)) {
        gpusym_lock(&queue->lock);
        count_started(queue, batch->n - i);
        rc = start_engine(queue->lane, &rows, &copy);
        gpusym_unlock(&queue->lock);
    }
    if (GPUSYM_SUCCESS != rc) {
        if (NULL != queue) {
            queue_put(queue, 1);
        }
        rc = &run_batch == batch ? copy_now(batch->dev, batch->gpu, &rows)
                                 : copy_box_now(batch->dev, batch->gpu, &batch->box[i]);
        copy = (gpusym_copy_t){.waits = true, .error = rc};
    }
    *batch->copy[i] = copy;
}

/* ---- lists ---- */

static gpusym_box_run_t box_of_run(const gpusym_run_t *run)
{
    const gpusym_box_t whole = {run->bytes, {1, 1}, {0, 0, 0}};
    gpusym_box_run_t box = {.in = run->in, .out = run->out, .bytes = run->bytes, .from = whole, .to = whole};
    box.unit = gpusym_box_unit(&box);
    return box;
}

/* Whether a batch is to be a list of the copier's. With the batch's lock held. */
static bool is_list(const batch_t *batch)
{
    return batch->plain && gpusym_tuning_copy_list(batch->n, batch->units, batch->bytes) &&
           0 != gpusym_copier_blocks(batch->dev, batch->gpu);
}

/* Has the copier do the batch. False: it does not. With the batch's lock held. */
static bool start_list(batch_t *batch)
{
    copy_list_t *l = list_get();
    if (NULL == l) {
        return false;
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        l->box[i] = &run_batch == batch ? box_of_run(&batch->run[i]) : batch->box[i];
    }
    l->dev = batch->dev;
    l->gpu = batch->gpu;
    l->ended = 0;
    l->users = batch->n;
    if (GPUSYM_SUCCESS !=
        gpusym_copier_start_list(batch->dev, batch->gpu, l->box, batch->n, !batch->local, &l->copier)) {
        gpusym_lock(&lists.lock);
        list_put(l);
        gpusym_unlock(&lists.lock);
        return false;
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        batch->copy[i]->list = l;
        batch->copy[i]->in_list = i;
    }
    return true;
}

/* As gpusym_copy_poll. */
static int poll_list(gpusym_copy_t *copy)
{
    copy_list_t *l = copy->list;
    gpusym_lock(&lists.lock);
    if (NULL != l->copier) {
        l->ended = gpusym_copier_poll(l->copier);
        l->copier = 0 == l->ended ? l->copier : NULL;
    }
    int rc = l->ended;
    if (GPUSYM_ERR_LATE == rc) { /* the kernel had left, and could not be launched again */
        rc = copy_box_now(l->dev, l->gpu, &l->box[copy->in_list]);
        rc = GPUSYM_SUCCESS == rc ? 1 : rc;
    }
    if (0 != rc) {
        copy->list = NULL;
        copy->error = rc < 0 ? rc : GPUSYM_SUCCESS;
        if (0 == --l->users) {
            list_put(l);
        }
    }
    gpusym_unlock(&lists.lock);
    return rc;
}

/* ---- batches ---- */

/* Queues one kernel for the batch, or has it copied otherwise. With its lock held. */
static void launch_all(batch_t *batch)
{
    copy_queue_t *queue;
    const bool there = GPUSYM_SUCCESS == queue_get(batch->dev, batch->gpu, batch->n, &queue);
    const bool launched = there && queue->kernels && GPUSYM_SUCCESS == launch_batch(batch, queue);
    for (uint32_t i = 0; i < batch->n; i++) {
        if (!launched) {
            copy_alone(batch, there ? queue : NULL, i);
        }
    }
}

/* With the batch's lock held. */
static void end_batch(batch_t *batch)
{
    if (!is_list(batch) || !start_list(batch)) {
        launch_all(batch);
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        __atomic_store_n(&batch->copy[i]->waits, false, __ATOMIC_RELEASE);
    }
    batch->held = 0;
    __atomic_store_n(&batch->n, 0, __ATOMIC_RELAXED);
}

static bool is_full(const batch_t *batch)
{
    return &box_batch == batch ? GPUSYM_BOXES_MAX == batch->n : !gpusym_tuning_copy_joins(batch->n, batch->bytes);
}

/* Whether more copies may come. With the batch's lock held. */
static bool gathers(batch_t *batch)
{
    return !is_full(batch) && gpusym_tuning_copy_gathers(batch->bytes) && NULL != batch->last.queue &&
           batch->held < HELD_MAX && !words_say_ended(&batch->last);
}

/* Whether the copier is about to have time for the batch, sooner than a launch would end. With the batch's lock
 * held. */
static bool awaits_copier(const batch_t *batch)
{
    return batch->held < HELD_BY_COPIER_MAX && is_list(batch) && gpusym_copier_is_busy(batch->dev, batch->gpu);
}

static void flush(batch_t *batch, bool more)
{
    if (0 != __atomic_load_n(&batch->n, __ATOMIC_RELAXED)) {
        gpusym_lock(&batch->lock);
        if (0 != batch->n && ((more && gathers(batch)) || awaits_copier(batch))) {
            batch->held++;
        } else if (0 != batch->n) {
            end_batch(batch);
        }
        gpusym_unlock(&batch->lock);
    }
}

void gpusym_copy_flush(bool more)
{
    flush(&run_batch, more);
    flush(&box_batch, more);
}

/* Makes room for one copy more, which the caller then sets. With the batch's lock held. */
static void join_batch(batch_t *batch, const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_box_run_t *box,
                       bool local, gpusym_copy_t *copy)
{
    const uint32_t units = box->bytes / box->unit;
    if (is_full(batch) || (0 != batch->n && (batch->gpu != gpu || batch->dev != dev))) {
        end_batch(batch);
    }
    *copy = (gpusym_copy_t){.waits = true};
    if (0 == batch->n) {
        batch->dev = dev;
        batch->gpu = gpu;
        batch->bytes = batch->units = 0;
        batch->awaits = false;
        batch->local = batch->plain = true;
    }
    batch->bytes += box->bytes;
    batch->units = units > batch->units ? units : batch->units;
    batch->local = batch->local && local;
    batch->copy[batch->n] = copy;
    __atomic_store_n(&batch->n, batch->n + 1, __ATOMIC_RELAXED);
}

static void start_run(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_copy_rows_t *rows,
                      gpusym_copy_t *copy)
{
    const gpusym_run_t run = make_run(rows);
    const gpusym_box_run_t box = box_of_run(&run);
    gpusym_lock(&run_batch.lock);
    join_batch(&run_batch, dev, gpu, &box, rows->local, copy);
    copy->awaits = awaits(rows);
    run_batch.awaits = run_batch.awaits || copy->awaits;
    run_batch.plain = run_batch.plain && 0 == run.does;
    run_batch.run[run_batch.n - 1] = run;
    gpusym_unlock(&run_batch.lock);
}

int gpusym_copy_start_box(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_box_run_t *run,
                          gpusym_copy_t *copy)
{
    const char *why = "";
    *copy = (gpusym_copy_t){.queue = NULL};
    if (0 == run->bytes) {
        return GPUSYM_SUCCESS;
    }
    if (GPUSYM_SUCCESS != dev->kernels_load(gpu, &why)) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    gpusym_box_run_t box = *run;
    box.unit = gpusym_box_unit(run);
    gpusym_lock(&box_batch.lock);
    join_batch(&box_batch, dev, gpu, &box, true, copy);
    box_batch.box[box_batch.n - 1] = box;
    gpusym_unlock(&box_batch.lock);
    return GPUSYM_SUCCESS;
}

/* Whether no copy waits for a launch that others share, and none is in one. */
static bool is_quiet(batch_t *batch)
{
    gpusym_lock(&batch->lock);
    const bool quiet = 0 == batch->n && (NULL == batch->last.queue || words_say_ended(&batch->last));
    gpusym_unlock(&batch->lock);
    return quiet;
}

/* Whether a resident kernel is to do the copy. A longer one only if it is alone: of several, launches are faster. */
static bool is_short(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_copy_rows_t *rows)
{
    if ((!rows->local && !rows->far) || rows->engine || 1 != rows->height) {
        return false;
    }
    return rows->width <= gpusym_tuning_copy_resident_max() ||
           (rows->width <= gpusym_tuning_copy_resident_packs_max(gpusym_copier_blocks(dev, gpu)) &&
            0 == (((uintptr_t) rows->dst | (uintptr_t) rows->src | rows->width) & 15) && is_quiet(&run_batch));
}

int gpusym_copy_start_rows(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_copy_rows_t *asked,
                           gpusym_copy_t *copy)
{
    const gpusym_copy_rows_t joined = rows_joined(asked), *rows = &joined;
    copy_queue_t *queue;
    *copy = (gpusym_copy_t){.queue = NULL};
    if (0 == rows->width || 0 == rows->height) {
        return GPUSYM_SUCCESS;
    }
    int rc = GPUSYM_ERR_NOT_AVAILABLE;
    if (is_short(dev, gpu, rows)) {
        const gpusym_copier_run_t run = {.dst = rows->dst,
                                         .src = rows->src,
                                         .bytes = (uint32_t) rows->width,
                                         .does = rows->does | (rows->far ? GPUSYM_COPY_FAR : 0),
                                         .signal = rows->signal};
        rc = gpusym_copier_start(dev, gpu, &run, &copy->copier);
    }
    if (GPUSYM_SUCCESS == rc) {
        return rc;
    }
    copy->copier = NULL;
    const bool by_kernel = !rows->engine && gpusym_tuning_copy_by_kernel(rows->width, rows->height);
    copy->awaits = awaits(rows);
    if (by_kernel && rows->shared && 1 == rows->height) {
        start_run(dev, gpu, rows, copy);
        return GPUSYM_SUCCESS;
    }
    rc = queue_get(dev, gpu, 1, &queue);
    if (GPUSYM_SUCCESS != rc) {
        return copy_now(dev, gpu, rows);
    }
    gpusym_lock(&queue->lock);
    count_started(queue, 1);
    rc = by_kernel && queue->kernels ? start_kernel(queue->lane, rows, copy)
         : awaits(rows)              ? GPUSYM_ERR_LATE
                                     : start_engine(queue->lane, rows, copy);
    gpusym_unlock(&queue->lock);
    if (GPUSYM_SUCCESS == rc) {
        copy->queue = queue;
        return rc;
    }
    queue_put(queue, 1);
    return copy_now(dev, gpu, rows);
}

int gpusym_copy_start(const gpusym_device_t *dev, gpusym_gpu_t *gpu, void *dst, const void *src, uint64_t bytes,
                      gpusym_copy_t *copy)
{
    const gpusym_copy_rows_t run = {.dst = dst, .src = src, .width = bytes, .height = 1};
    return gpusym_copy_start_rows(dev, gpu, &run, copy);
}

/* ---- poll ---- */

int gpusym_copy_poll(gpusym_copy_t *copy)
{
    if (__atomic_load_n(&copy->waits, __ATOMIC_ACQUIRE)) {
        if (0 == ++copy->held % FLUSH_POLLS) {
            gpusym_copy_flush(true); /* the caller does not */
        }
        return 0;
    }
    copy_queue_t *queue = copy->queue;
    if (NULL != copy->list) {
        return poll_list(copy);
    }
    if (NULL != copy->copier) {
        const int ended = gpusym_copier_poll(copy->copier);
        copy->copier = 0 == ended ? copy->copier : NULL;
        copy->error = ended < 0 ? ended : GPUSYM_SUCCESS;
        return ended;
    }
    if (NULL == queue) {
        return GPUSYM_SUCCESS == copy->error ? 1 : copy->error;
    }
    int rc = words_say_ended(copy);
    const bool by_words = copy->flag || 0 != copy->end;
    if (0 == rc && (!by_words || 0 == ++copy->polls % STREAM_POLLS)) {
        rc = queue->lane->dev->stream_poll(queue->lane->stream);
        if (1 == rc && 0 != copy->end && !words_say_ended(copy)) {
            rc = GPUSYM_ERR; /* the kernel has ended without its words */
        }
    }
    if (0 != rc) {
        queue_put(queue, 1);
        copy->queue = NULL;
        copy->error = copy->late ? GPUSYM_ERR_LATE : copy->error;
    }
    return copy->late && rc > 0 ? GPUSYM_ERR_LATE : rc;
}
