/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The watch: see watch.h.
 */
#include "mca/coll/gpusym/team/watch.h"

#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/islands.h"
#include "mca/coll/gpusym/team/part.h"

const char coll_gpusym_hosts_gave_up[] = "its island gave up";
/* In the word by which islands tell each other of a rank that is lost: so are all of its island. */
#define LOST_SILENT (1ull << 32)

const char coll_gpusym_hosts_silent[] = "nothing has come from its host for as long as coll_gpusym_timeout allows";

/* ---- other islands ---- */

/* With the lock held: hears the other islands, and tells them that this one is there, from the first native call on:
 * all leaders see at about the same time that it is. */
static void watch_islands(coll_gpusym_hosts_t *h)
{
    h->watches = h->watches || coll_gpusym_hosts_is_native(h);
    if (h->watches && coll_gpusym_params.timeout > 0) {
        gpusym_records_watch(h->records, gpusym_now_ns(), (uint64_t) (coll_gpusym_params.timeout * 1e9));
    }
}

/* With the lock held, on a leader: a rank that its records tell to be lost, or whose island gave up; -1: none. */
static int find_lost_island(const coll_gpusym_hosts_t *h, const char **why)
{
    uint32_t island;
    uint64_t lost_rank;
    if (gpusym_records_silent(h->records, &island)) {
        *why = coll_gpusym_hosts_silent;
        return (int) h->leader[island];
    }
    if (!gpusym_records_aborted(h->records, &island, &lost_rank)) {
        return -1;
    }
    const bool silent = 0 != (lost_rank & LOST_SILENT);
    lost_rank &= ~LOST_SILENT;
    if (lost_rank > 0 && lost_rank <= h->nranks) {
        *why = silent ? coll_gpusym_hosts_silent : "so says another host";
        return (int) lost_rank - 1;
    }
    *why = coll_gpusym_hosts_gave_up;
    return (int) h->leader[island];
}

/* Notes for this rank's island, which reads it once it gives up, that a rank is lost. Without the lock. */
static void note_lost(coll_gpusym_hosts_t *h, uint32_t rank, bool silent)
{
    const unsigned kind = silent ? COLL_GPUSYM_VERDICT_SILENT : COLL_GPUSYM_VERDICT_ABORTED;
    __atomic_store_n(&h->lost_rank, ((uint64_t) rank + 1) | (silent ? LOST_SILENT : 0), __ATOMIC_RELAXED);
    coll_gpusym_hosts_tell(h->team, 0, (coll_gpusym_verdict_t){kind, rank});
}

int coll_gpusym_hosts_blamed(const coll_gpusym_team_t *t, int member, const char **why)
{
    uint64_t seq;
    const coll_gpusym_verdict_t v = coll_gpusym_hosts_told(t, (uint32_t) member, &seq);
    const bool silent = COLL_GPUSYM_VERDICT_SILENT == v.kind;
    *why = silent ? coll_gpusym_hosts_silent : "another rank of this host has reported it";
    return 0 == seq && (silent || COLL_GPUSYM_VERDICT_ABORTED == v.kind) && v.rank < t->hosts->nranks ? (int) v.rank
                                                                                                      : -1;
}

void coll_gpusym_hosts_pass_on(coll_gpusym_hosts_t *h)
{
    if (__atomic_load_n(&h->gives_up, __ATOMIC_ACQUIRE)) {
        gpusym_records_abort(h->records, __atomic_load_n(&h->lost_rank, __ATOMIC_RELAXED));
    }
}

/* With the lock held, on a leader, which may do something else: a member gave up, or the islands are no longer all
 * there: so this rank gives up too. */
static void give_up_with_others(coll_gpusym_hosts_t *h)
{
    coll_gpusym_team_t *t = h->team;
    const int quitter = gpusym_agreement_quitter(&t->host.rc);
    const char *why;
    const int rank = quitter < 0 ? find_lost_island(h, &why) : coll_gpusym_hosts_blamed(t, quitter, &why);
    if (rank >= 0 && 0 == __atomic_load_n(&h->lost_rank, __ATOMIC_RELAXED)) {
        note_lost(h, (uint32_t) rank, coll_gpusym_hosts_silent == why);
    }
    if (rank >= 0 || quitter >= 0) {
        __atomic_store_n(&h->gives_up, true, __ATOMIC_RELEASE);
        gpusym_line_abort(t->host.rc.line[t->host.rank], 0);
    }
}

void coll_gpusym_hosts_watch(coll_gpusym_hosts_t *h)
{
    watch_islands(h);
    give_up_with_others(h);
    coll_gpusym_hosts_pass_on(h);
}

/* ---- for calls ---- */

/* Of the processes of this host the system tells, of the others the network; of this island the call agreement. */
static int find_lost_process(const coll_gpusym_team_t *t, const char **why)
{
    const coll_gpusym_hosts_t *h = t->hosts;
    const uint32_t n = (uint32_t) ompi_comm_size(t->fallback->comm), rank = coll_gpusym_team_rank(t);
    for (uint32_t r = 0; r < n; r++) {
        *why = NULL != h && NULL != h->peer[r] ? gpusym_worker_peer_lost(h->peer[r]) : NULL;
        if (NULL == *why && t->island != gpusym_islands_find(&t->islands, r) &&
            coll_gpusym_peers_near(t->all[r], t->all[rank]) && !coll_gpusym_peer_lives(t->all[r])) {
            *why = "its process has ended";
        }
        if (NULL != *why) {
            return (int) r;
        }
    }
    return -1;
}

int coll_gpusym_hosts_lost(coll_gpusym_team_t *t, const char **why)
{
    coll_gpusym_hosts_t *h = t->hosts;
    int rc, rank = find_lost_process(t, why);
    if (rank >= 0 || NULL == h || NULL == h->records || !gpusym_worker_enter(h->worker)) {
        return rank;
    }
    (void) gpusym_records_poll(h->records, &rc);
    watch_islands(h);
    rank = find_lost_island(h, why);
    gpusym_worker_leave(h->worker);
    return rank;
}

void coll_gpusym_hosts_abort(coll_gpusym_team_t *t, int lost, const char *why)
{
    coll_gpusym_hosts_t *h = t->hosts;
    if (NULL != h && lost >= 0) {
        note_lost(h, (uint32_t) lost, coll_gpusym_hosts_silent == why);
    }
    if (NULL == h || NULL == h->records) {
        return;
    }
    __atomic_store_n(&h->gives_up, true, __ATOMIC_RELEASE);
    if (gpusym_worker_enter(h->worker)) {
        coll_gpusym_hosts_pass_on(h);
        gpusym_worker_leave(h->worker);
    }
}
