/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Call agreement: see agreement.h.
 */
#include "mca/common/gpusym/agree/agreement.h"

#define HISTORY GPUSYM_AGREEMENT_HISTORY

static gpusym_entry_t *entry_of(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq)
{
    return &rc->line[r]->entry[seq % HISTORY];
}

#define KIND_MASK (GPUSYM_KIND_MIXED - 1u)
#define WORD_MIXED ((uint64_t) GPUSYM_KIND_MIXED << 40)

/* Whether the word of call seq's entry tells that its rank has posted that call, or a later one of those that its line
 * may hold by now. */
static bool tells_posted(uint64_t word, uint64_t seq)
{
    return (int16_t) (uint16_t) ((uint16_t) (word >> 48) - (uint16_t) seq) >= 0;
}

static bool has_posted(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq)
{
    return tells_posted(__atomic_load_n(&entry_of(rc, r, seq)->word, __ATOMIC_ACQUIRE), seq);
}

/* The fast path of host buffers records activity every so many calls, in gpusym_agreement_near_enough(). */
#define STAMP_CALLS 64u

/* A peer that has posted call seq - HISTORY / 2 has ended all calls before it, so no peer reads the overwritten
 * entries. */
bool gpusym_agreement_near_enough(gpusym_agreement_t *rc, uint64_t seq)
{
    uint64_t told = 0;
    if (0 == seq % STAMP_CALLS) {
        gpusym_line_stamp(rc->line[rc->rank]);
    }
    if (seq <= HISTORY / 2) {
        return true;
    }
    for (uint32_t r = 0; r < rc->nranks; r++) {
        const uint64_t word = __atomic_load_n(&entry_of(rc, r, seq - HISTORY / 2)->word, __ATOMIC_ACQUIRE);
        if (!tells_posted(word, seq - HISTORY / 2)) { /* this rank's own does */
            return false;
        }
        told |= word;
    }
    rc->looks = 0 != (told & WORD_MIXED);
    return true;
}

/* The check of an entry's keys and offsets in call seq. */
static uint64_t entry_check(const gpusym_entry_t *e, uint64_t seq)
{
    uint64_t check = (seq ^ ((uint64_t) e->in_key << 32 | e->out_key)) * 0x9e3779b97f4a7c15ull;
    check = (check ^ e->in_off) * 0xbf58476d1ce4e5b9ull;
    return (check ^ check >> 32 ^ e->out_off) * 0x94d049bb133111ebull;
}

bool gpusym_entry_intact(const gpusym_entry_t *e, uint64_t seq)
{
    return e->check == entry_check(e, seq);
}

static void entry_fill(gpusym_entry_t *e, const gpusym_post_t *post, uint64_t seq)
{
    e->bytes = post->bytes;
    e->balance = post->balance;
    e->flags = post->flags;
    e->layout = post->layout;
    e->in_key = post->in_key;
    e->out_key = post->out_key;
    e->in_off = post->in_off;
    e->out_off = post->out_off;
    if (0 != (post->in_key | post->out_key) || 0 != (post->flags & (GPUSYM_POST_STAGED_IN | GPUSYM_POST_STAGED_OUT))) {
        e->check = entry_check(e, seq);
    }
}

bool gpusym_agreement_post(gpusym_agreement_t *rc, const gpusym_post_t *post, gpusym_agreement_read_t *read)
{
    const uint64_t seq = rc->seq + 1; /* from 1: an unused line, all zero, reads as if call 0 were posted */
    uint64_t kind = post->kind;
    if (0 == seq % (HISTORY / 2)) {
        if (!gpusym_agreement_near_enough(rc, seq)) {
            return false;
        }
        kind |= 0 != rc->mixed && rc->mixed + HISTORY > seq ? GPUSYM_KIND_MIXED : 0;
    }
    __atomic_store_n(&rc->seq, seq, __ATOMIC_RELAXED);
    *read = (gpusym_agreement_read_t){.seq = seq,
                                      .host = GPUSYM_KIND_HOST == post->kind,
                                      .bounce = -1,
                                      .bounce_rank = -1,
                                      .mismatch_rank = -1,
                                      .corrupt_rank = -1,
                                      .word = seq << 48 | kind << 40 | (uint64_t) post->what << 32 | post->hash,
                                      .bytes = post->bytes,
                                      .exact = post->exact,
                                      .max_bytes = post->bytes,
                                      .all = post->flags,
                                      .any = post->flags,
                                      .layout = post->layout,
                                      .same_layout = true};
    gpusym_entry_t *e = entry_of(rc, rc->rank, seq);
    gpusym_line_stamp(rc->line[rc->rank]);
    if (GPUSYM_KIND_HOST != post->kind) {
        entry_fill(e, post, seq);
    }
    /* Release: what this rank did before the call is done for those that read the entry. */
    __atomic_store_n(&e->word, read->word, __ATOMIC_RELEASE);
    return true;
}

/* Takes rank r's entry into account. */
static void note_entry(gpusym_agreement_read_t *read, uint32_t r, uint64_t word, const gpusym_entry_t *e)
{
    const uint8_t kind = (uint8_t) (word >> 40) & KIND_MASK;
    if (GPUSYM_KIND_HOST == kind) {
        read->host = true;
        return;
    }
    if (kind >= GPUSYM_KIND_BOUNCE && read->bounce < 0) {
        read->bounce = kind;
        read->bounce_rank = (int) r;
    }
    if (0 != (e->bytes >> GPUSYM_BYTES_BITS | e->flags / GPUSYM_POST_FLAGS_END)) {
        read->corrupt_rank = (int) r;
    }
    const bool same_call =
        (uint8_t) (word >> 32) == (uint8_t) (read->word >> 32) && (uint32_t) word == (uint32_t) read->word;
    const bool same = same_call && (!read->exact || e->bytes == read->bytes);
    read->other_call = read->other_call || !same_call;
    read->balance += e->balance;
    if (!same && read->mismatch_rank < 0) {
        read->mismatch_rank = (int) r;
        read->mismatch_bytes = e->bytes;
    }
    read->max_bytes = e->bytes > read->max_bytes ? e->bytes : read->max_bytes;
    read->all &= e->flags;
    read->any |= e->flags;
    read->same_layout = read->same_layout && e->layout == read->layout;
}

bool gpusym_agreement_has_posted(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq)
{
    return has_posted(rc, r, seq);
}

uint64_t gpusym_agreement_last(const gpusym_agreement_t *rc, uint32_t r)
{
    int16_t ahead = INT16_MIN;
    for (uint32_t i = 0; i < HISTORY; i++) {
        const uint64_t word = __atomic_load_n(&rc->line[r]->entry[i].word, __ATOMIC_ACQUIRE);
        const int16_t distance = (int16_t) (uint16_t) ((uint16_t) (word >> 48) - (uint16_t) rc->seq);
        ahead = 0 != word && distance > ahead ? distance : ahead;
    }
    return INT16_MIN == ahead ? 0 : rc->seq + (uint64_t) (int64_t) ahead;
}

bool gpusym_agreement_has_voted(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq)
{
    return __atomic_load_n(&rc->line[r]->vote[seq % HISTORY], __ATOMIC_ACQUIRE) >> 1 == seq;
}

bool gpusym_agreement_read(gpusym_agreement_t *rc, gpusym_agreement_read_t *read)
{
    /* Prefetch all lines at once: each is a cache miss of 0.1 us or more. */
    for (uint32_t r = read->next; r < rc->nranks; r++) {
        __builtin_prefetch(entry_of(rc, r, read->seq));
    }
    for (; read->next < rc->nranks; read->next++) {
        const gpusym_entry_t *e = entry_of(rc, read->next, read->seq);
        const uint64_t word = __atomic_load_n(&e->word, __ATOMIC_ACQUIRE);
        if ((uint16_t) (word >> 48) != (uint16_t) read->seq) {
            return false;
        }
        note_entry(read, read->next, word, e);
        if (0 == rc->rank && NULL != rc->order) { /* it has given its token back, and this rank takes it next */
            gpusym_peer_token_prefetch(rc->peer[read->next]);
        }
    }
    return true;
}

const gpusym_entry_t *gpusym_agreement_entry(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq)
{
    return entry_of(rc, r, seq);
}

uint8_t gpusym_agreement_what(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq)
{
    return (uint8_t) (__atomic_load_n(&entry_of(rc, r, seq)->word, __ATOMIC_RELAXED) >> 32);
}

void gpusym_agreement_vote(gpusym_agreement_t *rc, uint64_t seq, bool yes)
{
    __atomic_store_n(&rc->line[rc->rank]->vote[seq % HISTORY], seq << 1 | yes, __ATOMIC_RELEASE);
}

int gpusym_agreement_votes(const gpusym_agreement_t *rc, uint64_t seq)
{
    int result = 1;
    for (uint32_t r = 0; r < rc->nranks; r++) {
        const uint64_t vote = __atomic_load_n(&rc->line[r]->vote[seq % HISTORY], __ATOMIC_ACQUIRE);
        if (vote >> 1 != seq) {
            return 0;
        }
        result = 0 == (vote & 1) ? -1 : result;
    }
    return result;
}

bool gpusym_agreement_refused(const gpusym_agreement_t *rc, uint64_t seq)
{
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (__atomic_load_n(&rc->line[r]->vote[seq % HISTORY], __ATOMIC_ACQUIRE) == seq << 1) {
            return true;
        }
    }
    return false;
}

void gpusym_agreement_launched(gpusym_agreement_t *rc, uint64_t seq)
{
    __atomic_store_n(&rc->line[rc->rank]->launched, seq, __ATOMIC_RELEASE);
}

bool gpusym_agreement_has_launched(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq)
{
    return __atomic_load_n(&rc->line[r]->launched, __ATOMIC_ACQUIRE) >= seq;
}

bool gpusym_agreement_all_launched(const gpusym_agreement_t *rc, uint64_t seq)
{
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (!gpusym_agreement_has_launched(rc, r, seq)) {
            return false;
        }
    }
    return true;
}

void gpusym_agreement_ready(gpusym_agreement_t *rc, uint64_t seq)
{
    __atomic_store_n(&rc->line[rc->rank]->ready, seq, __ATOMIC_RELEASE);
}

bool gpusym_agreement_is_ready(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq)
{
    return 0 == (entry_of(rc, r, seq)->flags & GPUSYM_POST_FILLS) || gpusym_agreement_has_staged(rc, r, seq);
}

bool gpusym_agreement_has_staged(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq)
{
    return __atomic_load_n(&rc->line[r]->ready, __ATOMIC_ACQUIRE) >= seq;
}

bool gpusym_agreement_all_staged(const gpusym_agreement_t *rc, uint64_t seq)
{
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (!gpusym_agreement_has_staged(rc, r, seq)) {
            return false;
        }
    }
    return true;
}

bool gpusym_agreement_decide(const gpusym_agreement_t *rc, uint64_t seq, bool yes)
{
    uint64_t *word = &rc->line[0]->decided, was = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    while (was >> 1 < seq) {
        if (__atomic_compare_exchange_n(word, &was, seq << 1 | yes, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            return yes;
        }
    }
    return was >> 1 > seq || 0 != (was & 1); /* ranks that are in a later call went on with this one */
}

void gpusym_agreement_done(gpusym_agreement_t *rc, uint64_t seq)
{
    __atomic_store_n(&rc->line[rc->rank]->done, seq, __ATOMIC_RELEASE);
}

bool gpusym_agreement_is_done(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq)
{
    return __atomic_load_n(&rc->line[r]->done, __ATOMIC_ACQUIRE) >= seq;
}

void gpusym_agreement_retire(gpusym_agreement_t *rc, uint64_t off, uint64_t notices)
{
    const uint64_t table[GPUSYM_LINE_TABLES] = {rc->table.off, notices};
    gpusym_pages_retire(off, table, rc->nranks, rc->rank, (void **) rc->line, rc->generation);
    rc->line = NULL;
    rc->generation = NULL;
}

/* ---- failures ---- */

/* The mark of a peer, whose line may not be mapped yet, or this rank's; 0: none. */
static uint32_t abort_of(const gpusym_agreement_t *rc, uint32_t r)
{
    return r != rc->rank && NULL != rc->line[r] ? __atomic_load_n(&rc->line[r]->abort, __ATOMIC_ACQUIRE) : 0;
}

int gpusym_agreement_aborted(const gpusym_agreement_t *rc, uint64_t seq)
{
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (!gpusym_line_serves(abort_of(rc, r), seq)) {
            return (int) r;
        }
    }
    return -1;
}

int gpusym_agreement_quitter(const gpusym_agreement_t *rc)
{
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (0 != abort_of(rc, r)) {
            return (int) r;
        }
    }
    return -1;
}

/* Returns whether an entry at call seq's place is possible when our last call is rc->seq: ranks are less than HISTORY
 * calls apart, and an entry remains for HISTORY calls. */
static bool entry_plausible(const gpusym_agreement_t *rc, const gpusym_line_t *line, uint64_t seq)
{
    const gpusym_entry_t *e = &line->entry[seq % HISTORY];
    const uint64_t word = __atomic_load_n(&e->word, __ATOMIC_ACQUIRE);
    const uint64_t voted = __atomic_load_n(&line->vote[seq % HISTORY], __ATOMIC_ACQUIRE) >> 1;
    const uint16_t said = (uint16_t) (word >> 48);
    const int ahead = (int16_t) (uint16_t) (said - (uint16_t) rc->seq);
    const bool unused = 0 == word && rc->seq < 2 * HISTORY;
    return (unused || (said % HISTORY == seq % HISTORY && ahead < (int) HISTORY && ahead > -2 * (int) HISTORY)) &&
           (0 == voted || (voted % HISTORY == seq % HISTORY && voted < rc->seq + HISTORY));
}

static bool line_plausible(const gpusym_agreement_t *rc, uint32_t r)
{
    const gpusym_line_t *line = rc->line[r];
    const uint64_t generation = gpusym_line_generation(line);
    const uint32_t abort = __atomic_load_n(&line->abort, __ATOMIC_ACQUIRE);
    return (abort <= GPUSYM_LINE_NEVER || GPUSYM_LINE_FROM >> 16 == abort >> 16) &&
           (NULL == rc->generation || rc->generation[r] == generation || rc->generation[r] + 1 == generation) &&
           __atomic_load_n(&line->go, __ATOMIC_ACQUIRE) < rc->seq + HISTORY &&
           __atomic_load_n(&line->launched, __ATOMIC_ACQUIRE) < rc->seq + HISTORY &&
           __atomic_load_n(&line->ready, __ATOMIC_ACQUIRE) < rc->seq + HISTORY &&
           __atomic_load_n(&line->done, __ATOMIC_ACQUIRE) < rc->seq + HISTORY &&
           __atomic_load_n(&line->decided, __ATOMIC_ACQUIRE) >> 1 < rc->seq + HISTORY &&
           /* what gpusym_agreement_read() waits for, and what gpusym_agreement_post() does */
           entry_plausible(rc, line, rc->seq) &&
           (rc->seq < HISTORY / 2 || entry_plausible(rc, line, rc->seq + 1 - HISTORY / 2));
}

int gpusym_agreement_corrupt(const gpusym_agreement_t *rc, const gpusym_agreement_read_t *read)
{
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (!line_plausible(rc, r)) {
            return (int) r;
        }
    }
    if (0 != read->seq && read->seq == rc->seq &&
        __atomic_load_n(&entry_of(rc, rc->rank, read->seq)->word, __ATOMIC_RELAXED) != read->word) {
        return (int) rc->rank;
    }
    return -1;
}

int gpusym_agreement_dead(const gpusym_agreement_t *rc)
{
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (r != rc->rank && !gpusym_peer_alive(rc->peer[r])) {
            return (int) r;
        }
    }
    return -1;
}
