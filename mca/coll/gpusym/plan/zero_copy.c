/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Zero copy: see zero_copy.h.  A rank posts the keys of its buffers; peers map what is new to them, and all ranks vote.
 */
#include "mca/coll/gpusym/plan/zero_copy.h"

#include "kernels/plan.h"
#include "mca/coll/gpusym/args/facts.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/join.h"
#include "mca/coll/gpusym/team/settings.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/staging_buffer.h"

/* Largest buffer that goes through a staging buffer, in bytes: a staging buffer has room for one each way. */
#define STAGING_MAX (8ull << 20)

void coll_gpusym_zero_copy_withdraw(coll_gpusym_task_t *task)
{
    coll_gpusym_zero_copy_t *z = &task->zero_copy;
    if (0 != z->in_key) {
        gpusym_reg_put(z->in_key);
    }
    if (0 != z->out_key) {
        gpusym_reg_put(z->out_key);
    }
    z->in_key = z->out_key = 0;
    if (z->in_staging) {
        gpusym_staging_buffer_put(z->in_off);
    }
    if (z->out_staging) {
        gpusym_staging_buffer_put(z->out_off);
    }
    z->in_staging = z->out_staging = false;
}

void coll_gpusym_zero_copy_lose(coll_gpusym_task_t *task)
{
    coll_gpusym_zero_copy_t *z = &task->zero_copy;
    if (z->in_staging || z->out_staging) {
        gpusym_staging_buffer_lose();
    }
    z->in_staging = z->out_staging = false;
}

/* Whether the communicator goes without: the team's GPUs do not all reach each other, or a rank could not map a
 * buffer. */
static bool is_refused(const coll_gpusym_task_t *task)
{
    return task->cache->refused || coll_gpusym_task_team(task)->host.no_zero_copy;
}

/* One buffer to offer, and where what is posted of it goes. */
typedef struct {
    uint64_t id; /* of its allocation */
    const void *p;
    uint64_t bytes;
    uint32_t *pinned, *key;
    uint64_t *off;
} offer_t;

/* Offers one buffer: pinned until it is withdrawn. Whether it can be mapped, or there is none. */
static bool offer_buffer(coll_gpusym_task_t *task, const offer_t *o, uint32_t *flags)
{
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    if (0 == o->bytes) {
        return true;
    }
    if (NULL == o->p || GPUSYM_MEM_DEVICE != task->segments->where.kind || NULL == t->host.gpu) {
        return false;
    }
    if (!gpusym_reg_find(o->id, o->p, o->bytes, o->pinned, o->off) &&
        GPUSYM_SUCCESS != gpusym_reg_get(gpusym_current.dev, t->host.gpu, o->p, o->bytes, o->pinned, o->off)) {
        *o->pinned = 0;
        return false;
    }
    *o->key = *o->pinned;
    if (task->cache->key_mapped[*o->key % GPUSYM_REG_MAX] != *o->key) {
        *flags |= GPUSYM_POST_NEW_KEY;
    }
    return true;
}

/* Takes a range of our staging buffer for a buffer. Whether there is room. */
static bool take_range(const coll_gpusym_task_t *task, const offer_t *o, uint64_t *off, uint32_t *flags)
{
    gpusym_staging_buffer_t *staging;
    if (NULL == o->p || o->bytes > STAGING_MAX || GPUSYM_SUCCESS != gpusym_staging_buffer_own(&staging) ||
        GPUSYM_SUCCESS != gpusym_staging_buffer_get(o->bytes, off)) {
        return false;
    }
    if (*off + o->bytes > GPUSYM_STAGING_BUFFER_WAITING) {
        gpusym_staging_buffer_put(*off);
        return false;
    }
    *flags |= task->cache->staging_mapped ? 0 : GPUSYM_POST_NEW_KEY;
    return true;
}

/* Offers one buffer to leaders: by its key, or through our staging buffer. Whether they reach it, or there is none. */
static bool offer_to_leaders(coll_gpusym_task_t *task, const offer_t *o, bool *staging, uint64_t *off, uint32_t *flags)
{
    if (coll_gpusym_params.zero_copy && !is_refused(task) && offer_buffer(task, o, flags)) {
        return true;
    }
    if (0 == o->bytes) {
        return true;
    }
    *staging = take_range(task, o, off, flags);
    *o->off = *off;
    return *staging;
}

bool coll_gpusym_zero_copy_keeps(const coll_gpusym_task_t *task)
{
    const coll_gpusym_segments_t *k = task->segments;
    const bool reads =
        k->in_place && coll_gpusym_segments_moves(k->args->coll); /* reductions write all, and read `in` */
    return task->zero_copy.out_staging && (reads || coll_gpusym_zero_copy_led_by_table(task));
}

/* What goes through scratch memory is looked up there. */
static void offer_led(coll_gpusym_task_t *task, gpusym_post_t *post)
{
    const coll_gpusym_segments_t *k = task->segments;
    const bool packed = 0 != k->pack.bytes || k->from.packed, unpacked = coll_gpusym_segments_unpacks(k);
    const bool root_bcast = coll_gpusym_segments_root_bcast(k);
    coll_gpusym_zero_copy_t *z = &task->zero_copy;
    const offer_t in = {packed || k->keep ? 0 : k->in_id, k->in, k->in_bytes, &z->in_key, &post->in_key, &post->in_off};
    const offer_t out = {unpacked ? 0 : k->out_id, k->out,        root_bcast ? 0 : k->out_bytes, &z->out_key,
                         &post->out_key,           &post->out_off};

    if (1 == k->team->host.nranks) { /* an island of one: nobody else reaches for them */
        post->flags |= GPUSYM_POST_LED_IN | GPUSYM_POST_LED_OUT;
        z->fills = packed || unpacked;
        post->flags |= z->fills ? GPUSYM_POST_FILLS : 0;
        return;
    }
    if (offer_to_leaders(task, &in, &z->in_staging, &z->in_off, &post->flags)) {
        post->flags |= GPUSYM_POST_LED_IN | (z->in_staging ? GPUSYM_POST_STAGED_IN : 0);
    }
    if (offer_to_leaders(task, &out, &z->out_staging, &z->out_off, &post->flags)) {
        post->flags |= GPUSYM_POST_LED_OUT | (z->out_staging ? GPUSYM_POST_STAGED_OUT : 0);
    }
    z->fills = packed || unpacked || z->in_staging || z->out_staging;
    if (z->fills) {
        post->flags |= GPUSYM_POST_FILLS;
    }
}

void coll_gpusym_zero_copy_offer(coll_gpusym_task_t *task, gpusym_post_t *post)
{
    const coll_gpusym_params_t *c = &coll_gpusym_params;
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    const coll_gpusym_segments_t *k = task->segments;
    coll_gpusym_zero_copy_t *z = &task->zero_copy;
    const uint64_t least =
        1 == coll_gpusym_setting(t, COLL_GPUSYM_KEY_COPY_ENGINES_ONLY, 0) ? 1 /* they store nowhere else */
        : 0 != c->zero_copy_min                                           ? c->zero_copy_min
                                : gpusym_tuning_zero_copy_min(t->host.nranks, gpusym_current.dev->simulated);
    const offer_t offer_in = {k->in_id, k->in, k->in_bytes, &z->in_key, &post->in_key, &post->in_off};
    const offer_t offer_out = {k->out_id, k->out, k->out_bytes, &z->out_key, &post->out_key, &post->out_off};
    bool in, out;

    /* Of those side by side the others have no larger parts where sizes are exact. */
    z->led = t->host.led ||
             (t->host.beside && !(task->blocking && task->alone && k->exact && coll_gpusym_team_is_short(t, k->bytes)));
    if (z->led) {
        offer_led(task, post);
    }
    if (t->host.led || t->host.beside) {
        return;
    }
    coll_gpusym_segments_maps(k->args->coll, &in, &out);
    /* A rank that has no part in it follows the others. One whose part is small keeps all from it, unless the last such
     * call has shown that others have larger parts. */
    if (!c->zero_copy || is_refused(task) ||
        (0 < k->bytes && k->bytes < least && (k->exact || task->cache->longest[k->args->coll] < least)) ||
        (0 != coll_gpusym_segments_scratch_bytes(k) && !coll_gpusym_blocks_has(k->args->coll))) {
        return;
    }
    if (!in || offer_buffer(task, &offer_in, &post->flags)) {
        post->flags |= GPUSYM_POST_CAN_IN;
    }
    if (!out || offer_buffer(task, &offer_out, &post->flags)) {
        post->flags |= GPUSYM_POST_CAN_OUT;
    }
}

bool coll_gpusym_zero_copy_led_by_table(const coll_gpusym_task_t *task)
{
    const unsigned coll = coll_gpusym_task_coll(task);
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[coll];
    return NULL != task->sizes || coll_gpusym_segments_in_table(coll) || COLL_GPUSYM_L_BLOCKS_V == f->sent ||
           COLL_GPUSYM_L_BLOCKS_V == f->written;
}

bool coll_gpusym_zero_copy_tell(coll_gpusym_task_t *task, gpusym_post_t *post)
{
    const coll_gpusym_segments_t *k = task->segments;
    gpusym_agreement_t *rc = &coll_gpusym_task_team(task)->host.rc;
    const bool in_table = 0 != (post->flags & GPUSYM_POST_CAN_OUT) && coll_gpusym_segments_in_table(k->args->coll);
    const bool led = 0 != (post->flags & GPUSYM_POST_LED_OUT) && coll_gpusym_zero_copy_led_by_table(task);
    if ((!in_table && !led) || coll_gpusym_team_is_part(k->team)) {
        return true;
    }
    if (GPUSYM_SUCCESS != gpusym_table_make(rc)) {
        post->flags &= ~(uint32_t) (GPUSYM_POST_CAN_OUT | GPUSYM_POST_LED_OUT);
        return true;
    }
    gpusym_table_row_t *rows = gpusym_table_rows(rc, rc->seq + 1);
    if (NULL == rows) {
        return false;
    }
    coll_gpusym_segments_rows(k, rows);
    gpusym_table_publish(rc, rc->seq + 1);
    return true;
}

bool coll_gpusym_zero_copy_possible(const coll_gpusym_task_t *task)
{
    return !is_refused(task) && NULL == task->sizes &&
           coll_gpusym_segments_zero_copy(coll_gpusym_task_coll(task), &task->read);
}

bool coll_gpusym_zero_copy_led(const coll_gpusym_task_t *task)
{
    const uint32_t need = GPUSYM_POST_LED_IN | GPUSYM_POST_LED_OUT;
    return need == (task->read.all & need);
}

/* Where off in rank r's allocation of that key is mapped here. which: 0 its input, 1 its output. bytes: that must be
 * there. As gpusym_reg_map(). */
static int map_buffer(coll_gpusym_task_t *task, uint32_t r, unsigned which, uint32_t key, uint64_t off, uint64_t bytes,
                      char **at)
{
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    coll_gpusym_plan_cache_t *c = task->cache;
    void *base;
    uint64_t size;
    if (c->mapped[r][which].key != key) {
        const int rc = gpusym_reg_map(gpusym_current.dev, t->host.gpu, t->host.rc.peer[r], key, &base, &size);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
        c->mapped[r][which].key = key;
        c->mapped[r][which].base = base;
        c->mapped[r][which].size = size;
    }
    size = c->mapped[r][which].size;
    if (off >= size || bytes > size - off) {
        return GPUSYM_ERR_CORRUPT;
    }
    *at = (char *) c->mapped[r][which].base + off;
    return GPUSYM_SUCCESS;
}

/* Maps what rank r offers. */
static int map_peer(coll_gpusym_task_t *task, gpusym_work_t *w, const coll_gpusym_reach_t *reach, uint32_t r, bool in,
                    bool out)
{
    const gpusym_entry_t *e = gpusym_agreement_entry(&coll_gpusym_task_team(task)->host.rc, r, task->read.seq);
    int rc = GPUSYM_SUCCESS;
    char *at;

    if (0 != (e->in_key | e->out_key) && !gpusym_entry_intact(e, task->read.seq)) {
        return GPUSYM_ERR_CORRUPT;
    }
    if (in && 0 != e->in_key) {
        rc = map_buffer(task, r, 0, e->in_key, e->in_off, NULL != reach ? reach->in[r] : 0, &at);
        w->peer_in[r] = GPUSYM_SUCCESS == rc ? at : NULL;
    }
    if (GPUSYM_SUCCESS == rc && out && 0 != e->out_key) {
        rc = map_buffer(task, r, 1, e->out_key, e->out_off, NULL != reach ? reach->out[r] : 0, &at);
        w->peer_out[r] = GPUSYM_SUCCESS == rc ? at : NULL;
    }
    return rc;
}

bool coll_gpusym_zero_copy_map(coll_gpusym_task_t *task, gpusym_work_t *w, const coll_gpusym_reach_t *reach, bool voted,
                               int *corrupt)
{
    const uint32_t n = coll_gpusym_task_team(task)->host.nranks;
    bool in, out;

    *corrupt = -1;
    coll_gpusym_segments_maps(coll_gpusym_task_coll(task), &in, &out);
    for (uint32_t r = 0; r < n; r++) {
        const int rc = map_peer(task, w, reach, r, in, out);
        if (GPUSYM_ERR_CORRUPT == rc || GPUSYM_ERR_BAD_PARAM == rc || (voted && GPUSYM_ERR_UNREACHABLE == rc)) {
            *corrupt = (int) r;
        }
        if (GPUSYM_SUCCESS != rc) {
            return false;
        }
    }
    return true;
}

/* Places our segment in rank r's output, which must hold it. False: the rank's table is corrupt. */
static bool place_segment(const coll_gpusym_task_t *task, gpusym_work_t *w, uint32_t r)
{
    const gpusym_agreement_t *rc = &coll_gpusym_task_team(task)->host.rc;
    const gpusym_table_row_t *rows;
    if (GPUSYM_TABLE_THERE != gpusym_table_find(rc, r, task->read.seq, &rows)) {
        return false;
    }
    const gpusym_table_row_t row = rows[w->rank];
    const gpusym_entry_t *e = gpusym_agreement_entry(rc, r, task->read.seq);
    const uint64_t bytes = row.recv_bytes < w->send[r].bytes ? row.recv_bytes : w->send[r].bytes;
    const uint64_t room = 0 != e->out_key ? task->cache->mapped[r][1].size : 0, at = e->out_off;
    w->send[r].bytes = bytes;
    w->remote_off[r] = row.recv_off;
    return 0 == bytes || (at <= room && row.recv_off <= room - at && bytes <= room - at - row.recv_off);
}

/* How far kernels and copy engines go in the ranks' buffers. alike: all outputs are laid out as ours; rings then store
 * any rank's segment. */
static void find_reach(const coll_gpusym_task_t *task, const gpusym_work_t *w, bool alike, coll_gpusym_reach_t *reach)
{
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[coll_gpusym_task_coll(task)];
    const bool whole = gpusym_collective_whole(coll_gpusym_task_coll(task));
    uint64_t all = 0;
    for (uint32_t r = 0; alike && COLL_GPUSYM_P_ALLGATHER == f->pattern && r < w->nranks; r++) {
        const uint64_t end = w->recv[r].off + w->recv[r].bytes;
        all = 0 != w->recv[r].bytes && end > all ? end : all;
    }
    for (uint32_t r = 0; r < w->nranks; r++) {
        const uint64_t taken = w->recv[f->reduces ? w->rank : r].bytes, sent = w->send[r].bytes;
        const uint64_t out = 0 != sent ? w->remote_off[r] + sent : 0;
        reach->in[r] = whole ? w->bytes : 0 != taken ? w->remote_off[r] + taken : 0;
        reach->out[r] = whole ? w->bytes : out > all ? out : all;
    }
}

bool coll_gpusym_zero_copy_place(coll_gpusym_task_t *task, gpusym_work_t *w, coll_gpusym_reach_t *reach, int *corrupt)
{
    const unsigned coll = coll_gpusym_task_coll(task);
    const bool alike = !coll_gpusym_segments_in_table(coll) || coll_gpusym_segments_alike(coll, &task->read);
    *corrupt = -1;
    for (uint32_t r = 0; r < w->nranks && !alike; r++) {
        if (r != w->rank && !place_segment(task, w, r)) {
            *corrupt = (int) r;
            return false;
        }
    }
    find_reach(task, w, alike, reach);
    return coll_gpusym_zero_copy_map(task, w, reach, true, corrupt);
}

/* Where off in rank r's staging buffer is for our GPU, and how much follows. As gpusym_reg_map(). */
static int map_staging(const coll_gpusym_task_t *task, uint32_t r, uint64_t off, char **at, uint64_t *room)
{
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    gpusym_staging_buffer_t *staging;
    void *base = NULL;
    int rc = gpusym_staging_buffer_of(t->host.rc.peer[r], &staging);
    if (GPUSYM_SUCCESS == rc) {
        *room = gpusym_staging_buffer_room(staging, off);
        if (0 == *room) {
            return GPUSYM_ERR_CORRUPT;
        }
        rc = gpusym_staging_buffer_register(staging, gpusym_current.dev, t->host.gpu, &base);
    }
    *at = (char *) base + off;
    return GPUSYM_SUCCESS == rc ? rc : GPUSYM_ERR_UNREACHABLE;
}

/* Maps one buffer of rank r, if it has any. which: 0 its input, 1 its output. *room: bytes that are mapped there. */
static int map_led(coll_gpusym_task_t *task, uint32_t r, unsigned which, char **at, uint64_t *room)
{
    const gpusym_entry_t *e = gpusym_agreement_entry(&coll_gpusym_task_team(task)->host.rc, r, task->read.seq);
    const uint32_t key = 0 == which ? e->in_key : e->out_key;
    const uint64_t off = 0 == which ? e->in_off : e->out_off;
    const bool staging = 0 != (e->flags & (0 == which ? GPUSYM_POST_STAGED_IN : GPUSYM_POST_STAGED_OUT));
    *at = NULL;
    *room = 0;
    if (0 == key && !staging) {
        return GPUSYM_SUCCESS;
    }
    if (!gpusym_entry_intact(e, task->read.seq)) {
        return GPUSYM_ERR_CORRUPT;
    }
    if (staging) {
        return map_staging(task, r, off, at, room);
    }
    const int rc = map_buffer(task, r, which, key, off, 0, at);
    *room = GPUSYM_SUCCESS == rc ? task->cache->mapped[r][which].size - off : 0;
    return rc;
}

bool coll_gpusym_zero_copy_map_led(coll_gpusym_task_t *task, coll_gpusym_led_buffers_t *all, bool voted, int *corrupt)
{
    const uint32_t n = coll_gpusym_task_team(task)->host.nranks;
    *corrupt = -1;
    if (1 == n) {
        all->in[0] = task->segments->in;
        all->out[0] = task->segments->out;
        return true;
    }
    for (uint32_t i = 0; i < 2 * n; i++) {
        const uint32_t r = i / 2;
        char *at;
        const int rc = map_led(task, r, i % 2, &at, 0 == i % 2 ? &all->in_room[r] : &all->out_room[r]);
        if (GPUSYM_ERR_CORRUPT == rc || GPUSYM_ERR_BAD_PARAM == rc || (voted && GPUSYM_ERR_UNREACHABLE == rc)) {
            *corrupt = (int) r;
        }
        if (GPUSYM_SUCCESS != rc) {
            return false;
        }
        if (0 == i % 2) {
            all->in[r] = at;
        } else {
            all->out[r] = at;
        }
    }
    return true;
}

/* key: of ours; 0: none, which must not take the place of one. */
static void note_mapped(coll_gpusym_plan_cache_t *c, uint32_t key)
{
    if (0 != key) {
        c->key_mapped[key % GPUSYM_REG_MAX] = key;
    }
}

void coll_gpusym_zero_copy_mapped(coll_gpusym_task_t *task)
{
    note_mapped(task->cache, task->zero_copy.in_key);
    note_mapped(task->cache, task->zero_copy.out_key);
    task->cache->staging_mapped =
        task->cache->staging_mapped || task->zero_copy.in_staging || task->zero_copy.out_staging;
}
