/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The agreement of islands: see islands.h.
 */
#include "mca/coll/gpusym/team/islands.h"

#include <stdio.h>

#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/team/part.h"

/* ---- opening ---- */

/* Streams of rails have numbers below. */
#define RECORDS_STREAM UINT16_MAX

static int get_leader(void *arg, uint32_t pos, gpusym_rail_peer_t *peer)
{
    coll_gpusym_hosts_t *h = arg;
    return coll_gpusym_part_get(h, h->leader[pos], peer);
}

/* For the helper thread, or a thread of MPI that polls. What it reads belongs to the thread that makes the
 * communicator's calls, which writes `entered` before the call agreement's number. */
static int answer(void *arg, uint64_t call)
{
    const coll_gpusym_hosts_t *h = arg;
    const uint64_t seq = __atomic_load_n(h->seq, __ATOMIC_ACQUIRE);
    return seq >= call && __atomic_load_n(&h->entered, __ATOMIC_RELAXED) != call;
}

int coll_gpusym_hosts_open_records(coll_gpusym_hosts_t *h)
{
    const gpusym_records_params_t p = {.streams = gpusym_worker_streams(h->worker),
                                       .n = h->nislands,
                                       .pos = h->island,
                                       .stream = RECORDS_STREAM,
                                       .peer = get_leader,
                                       .answer = answer,
                                       .arg = h};
    return gpusym_records_open(&p, &h->records);
}

/* ---- records ---- */

/* Kinds of records. 0: the helper thread has answered that the island is on the host. */
enum { RECORD_HOST, RECORD_NATIVE, RECORD_STAGED /* + enum coll_gpusym_reason */ };
/* Flags of a native one. */
enum { RECORD_AGAIN = 1 };

/* With all islands' records. */
static coll_gpusym_verdict_t judge_records(const coll_gpusym_hosts_t *h, const gpusym_record_t *all, bool exact)
{
    const gpusym_record_t *mine = &all[h->island];
    uint64_t balance = 0, most = 0;
    bool again = false;
    for (uint32_t i = 0; i < h->nislands; i++) {
        if (RECORD_NATIVE != all[i].kind) {
            const unsigned reason =
                RECORD_HOST == all[i].kind ? (unsigned) COLL_GPUSYM_R_MIXED : (unsigned) all[i].kind - RECORD_STAGED;
            return (coll_gpusym_verdict_t){COLL_GPUSYM_VERDICT_STAGED + reason % COLL_GPUSYM_REASONS, 0};
        }
        balance += all[i].balance;
        most = all[i].bytes > most ? all[i].bytes : most;
        again = again || 0 != (all[i].flags & RECORD_AGAIN);
    }
    for (uint32_t i = 0; i < h->nislands; i++) {
        if (all[i].what != mine->what || all[i].hash != mine->hash || (exact && all[i].bytes != mine->bytes)) {
            return (coll_gpusym_verdict_t){COLL_GPUSYM_VERDICT_MISMATCH, h->leader[i]};
        }
    }
    if (0 != balance) { /* not all that is sent is taken: the fallback tells who takes less */
        return (coll_gpusym_verdict_t){COLL_GPUSYM_VERDICT_STAGED + COLL_GPUSYM_R_BETWEEN, 0};
    }
    if (0 == most) {
        return (coll_gpusym_verdict_t){COLL_GPUSYM_VERDICT_EMPTY, 0};
    }
    return (coll_gpusym_verdict_t){again ? COLL_GPUSYM_VERDICT_AGAIN : COLL_GPUSYM_VERDICT_NATIVE, 0};
}

bool coll_gpusym_hosts_is_native(const coll_gpusym_hosts_t *h)
{
    const gpusym_record_t *all;
    return 0 != h->posted && 1 == gpusym_records_read(h->records, h->posted, &all) &&
           COLL_GPUSYM_VERDICT_NATIVE == judge_records(h, all, false).kind;
}

/* ---- verdicts ---- */

/* The word in a line: call << 24 | rank of the communicator << 8 | kind. */
_Static_assert(COLL_GPUSYM_RANKS_MAX <= 1 << 16, "a rank fits in its bits");
_Static_assert(COLL_GPUSYM_VERDICT_STAGED + COLL_GPUSYM_REASONS <= 256, "a kind fits in its bits");

void coll_gpusym_hosts_tell(const coll_gpusym_team_t *t, uint64_t seq, coll_gpusym_verdict_t v)
{
    __atomic_store_n(&t->host.rc.line[t->host.rank]->verdict, seq << 24 | (uint64_t) v.rank << 8 | v.kind,
                     __ATOMIC_RELEASE);
}

coll_gpusym_verdict_t coll_gpusym_hosts_told(const coll_gpusym_team_t *t, uint32_t member, uint64_t *seq)
{
    const uint64_t word = __atomic_load_n(&t->host.rc.line[member]->verdict, __ATOMIC_ACQUIRE);
    *seq = word >> 24;
    return (coll_gpusym_verdict_t){(unsigned) (word & 0xff), (uint32_t) (word >> 8 & 0xffff)};
}

/* ---- agreement ---- */

void coll_gpusym_hosts_enter(coll_gpusym_team_t *t, uint64_t seq)
{
    __atomic_store_n(&t->hosts->entered, seq, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* before the call agreement's number */
}

int coll_gpusym_hosts_post(coll_gpusym_team_t *t, uint64_t seq, const coll_gpusym_island_record_t *record)
{
    coll_gpusym_hosts_t *h = t->hosts;
    const gpusym_record_t mine = {.bytes = record->bytes,
                                  .balance = record->balance,
                                  .hash = record->hash,
                                  .flags = record->again ? RECORD_AGAIN : 0,
                                  .what = record->what,
                                  .kind =
                                      (uint16_t) (record->reason < 0 ? RECORD_NATIVE : RECORD_STAGED + record->reason)};
    if (!gpusym_worker_enter(h->worker)) {
        return 0;
    }
    int rc;
    (void) gpusym_records_poll(h->records, &rc);
    rc = GPUSYM_SUCCESS == rc ? gpusym_records_post(h->records, seq, &mine) : rc;
    h->posted = GPUSYM_SUCCESS == rc ? seq : h->posted;
    gpusym_worker_leave(h->worker);
    return GPUSYM_SUCCESS == rc ? 1 : GPUSYM_ERR_BAD_PARAM == rc ? 0 : rc; /* records of the call before are missing */
}

/* On a leader. */
static int read_verdict(coll_gpusym_team_t *t, uint64_t seq, bool exact, coll_gpusym_verdict_t *v)
{
    coll_gpusym_hosts_t *h = t->hosts;
    const gpusym_record_t *all;
    int rc;
    if (!gpusym_worker_enter(h->worker)) {
        return 0;
    }
    (void) gpusym_records_poll(h->records, &rc);
    rc = GPUSYM_SUCCESS == rc ? gpusym_records_read(h->records, seq, &all) : rc;
    if (1 == rc) {
        *v = judge_records(h, all, exact);
        h->watches = h->watches || COLL_GPUSYM_VERDICT_NATIVE == v->kind; /* the next post takes the records' place */
    }
    gpusym_worker_leave(h->worker);
    if (1 == rc) {
        coll_gpusym_hosts_tell(t, seq, *v);
    }
    return rc;
}

int coll_gpusym_hosts_poll(coll_gpusym_team_t *t, uint64_t seq, bool exact, coll_gpusym_verdict_t *v)
{
    uint64_t told;
    if (0 == t->host.rank) {
        return read_verdict(t, seq, exact, v);
    }
    *v = coll_gpusym_hosts_told(t, 0, &told);
    if (told < seq) {
        return 0;
    }
    return told == seq && v->rank < t->hosts->nranks ? 1 : GPUSYM_ERR_CORRUPT;
}

unsigned coll_gpusym_hosts_awaited(const coll_gpusym_team_t *t, uint32_t *rank, unsigned most)
{
    const coll_gpusym_hosts_t *h = t->hosts;
    unsigned n = 0;
    if (0 != t->host.rank) {
        rank[n++] = h->leader[h->island];
        return n;
    }
    for (uint32_t i = 0; i < h->nislands && n < most; i++) {
        if (!gpusym_records_has(h->records, i)) {
            rank[n++] = h->leader[i];
        }
    }
    return n;
}

void coll_gpusym_hosts_missing(const coll_gpusym_team_t *t, char *text, size_t size)
{
    const coll_gpusym_hosts_t *h = t->hosts;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; 0 == t->host.rank && i < h->nislands && used < size; i++) {
        if (!gpusym_records_has(h->records, i)) {
            used += (size_t) snprintf(text + used, size - used, "%sthe island of rank %u", 0 == used ? "" : ", ",
                                      h->leader[i]);
        }
    }
    if (0 != t->host.rank) {
        snprintf(text, size, "rank %u, which agrees with the other islands", h->leader[h->island]);
    }
}
