/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls that wait for ranks: after a while they say for which, and where those were last; where the user wants it, they
 * end.
 *
 * What is known of a rank that does not come stands in its own shared pages, which it writes for its peers anyway: the
 * calls that it has posted in every communicator, and about when. It takes no part in this, and may compute for hours.
 */
#include "mca/coll/gpusym/call/wait.h"

#include <stdio.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/islands.h"
#include "mca/common/gpusym/agree/status.h"
#include "mca/common/gpusym/agree/table.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/log.h"

/* How often a waiting rank checks whether its peers and its GPU are well. In nanoseconds. */
#define HEALTH_NS 10000000ull
/* Ranks that a line tells of; of more it gives the number. */
#define RANKS_TOLD 4
/* Time between two checks that counts, at most: a program that makes no progress for an hour has not waited for an
 * hour.
 */
#define GAP_NS 2000000000ull
/* How much later each rank tells the user than the rank before it: so that it finds out that that one has. */
#define STAGGER_NS 20000000ull
/* The collective, in what a rank posts. */
#define WHAT_MASK (COLL_GPUSYM_WHAT_AGREES - 1)

/* A call that waits. */
typedef struct {
    const coll_gpusym_team_t *team;
    unsigned coll; /* enum coll_gpusym_coll */
    uint64_t seq;  /* of its call agreement, where it is posted */
    coll_gpusym_wait_for_t what;
} waiter_t;

bool coll_gpusym_health_due(coll_gpusym_health_t *h)
{
    if (0 != ++h->polls % 256) {
        return false;
    }
    const uint64_t now = gpusym_now_ns();
    if (now - h->checked_ns < HEALTH_NS) {
        return false;
    }
    h->gap_ns = 0 != h->checked_ns ? now - h->checked_ns : 0;
    h->checked_ns = now;
    return true;
}

/* The pages of rank r, while the team's lines are not mapped. False: it has none yet, or they cannot be found. */
static bool find_pages(const coll_gpusym_team_t *t, uint32_t r, gpusym_peer_t **peer)
{
    return GPUSYM_SUCCESS == gpusym_pages_find(coll_gpusym_peer_process(t->host.peers[r]), peer);
}

/* What is known of rank r: false if nothing is. */
static bool find_seen(const coll_gpusym_team_t *t, uint32_t r, gpusym_seen_t *seen)
{
    gpusym_peer_t *peer = t->host.joined ? t->host.rc.peer[r] : NULL;

    if (NULL == peer && !find_pages(t, r, &peer)) {
        *seen = (gpusym_seen_t){.what = -1};
        return false;
    }
    gpusym_peer_seen(peer, t->host.key, seen);
    return true;
}

/* Whether a call waits for rank r, of which that is known. */
static bool is_missing(const waiter_t *w, uint32_t r, const gpusym_seen_t *seen)
{
    const coll_gpusym_team_t *t = w->team;
    const gpusym_table_row_t *rows;

    switch (w->what) {
    case COLL_GPUSYM_WAIT_POST:
        if (coll_gpusym_team_bootstrapping(t)) {
            return !seen->begun || seen->step < (uint32_t) t->boot.step;
        }
        return gpusym_table_awaits(&t->host.rc, r) ||
               !gpusym_agreement_has_posted(&t->host.rc, r, t->host.rc.seq + 1 - GPUSYM_AGREEMENT_HISTORY / 2);
    case COLL_GPUSYM_WAIT_ENTRIES:
        return !gpusym_agreement_has_posted(&t->host.rc, r, w->seq);
    case COLL_GPUSYM_WAIT_SIZES:
        return GPUSYM_TABLE_WAITING == gpusym_table_find(&t->host.rc, r, w->seq, &rows);
    case COLL_GPUSYM_WAIT_VOTE:
        return !gpusym_agreement_has_voted(&t->host.rc, r, w->seq);
    case COLL_GPUSYM_WAIT_READY:
        return !gpusym_agreement_is_ready(&t->host.rc, r, w->seq);
    case COLL_GPUSYM_WAIT_LAUNCH:
        return !gpusym_agreement_has_launched(&t->host.rc, r, w->seq);
    case COLL_GPUSYM_WAIT_STAGED:
        return !gpusym_agreement_has_staged(&t->host.rc, r, w->seq);
    case COLL_GPUSYM_WAIT_LED:
        return t->host.leader[r] == r && !gpusym_agreement_is_done(&t->host.rc, r, w->seq);
    default:
        return !seen->begun || seen->step < (uint32_t) t->boot.step;
    }
}

/* "rank 1 (pid 77), which has made 41 such calls here, last seen in MPI_Bcast of MPI_COMM_WORLD (cid 0) about 33 s ago"
 */
static void describe_rank(const coll_gpusym_team_t *t, uint32_t r, bool known, const gpusym_seen_t *seen, char *buf,
                          size_t size, size_t *used)
{
    const unsigned long long calls = t->host.joined ? (unsigned long long) gpusym_agreement_last(&t->host.rc, r) : 0;

    gpusym_append(buf, size, used, "rank %u (pid %d)", coll_gpusym_team_member(t, r),
                  coll_gpusym_peer_process(t->host.peers[r]));
    if (!known) {
        gpusym_append(buf, size, used, ", which has called no gpusym collective yet, or has ended");
        return;
    }
    if (t->host.joined) {
        gpusym_append(buf, size, used, ", which has made %llu such calls here", calls);
    } else if (!seen->begun) {
        gpusym_append(buf, size, used, ", which has made none here");
    }
    if ('\0' == seen->label[0]) {
        return;
    }
    const int coll = seen->what < 0 ? -1 : (int) ((unsigned) seen->what & WHAT_MASK);
    gpusym_append(buf, size, used, ", last seen in %s of %s about %.1f s ago",
                  coll < 0 || coll >= (int) COLL_GPUSYM_COLLS ? "the first collective"
                                                              : coll_gpusym_mpi_name((unsigned) coll),
                  seen->label, 1e-9 * (double) seen->age_ns);
}

/* All ranks that the call waits for, in words; the highest mark of another rank's reports of this wait. */
static uint64_t describe_missing(const waiter_t *w, char *buf, size_t size)
{
    const coll_gpusym_team_t *t = w->team;
    gpusym_seen_t seen;
    size_t used = 0;
    unsigned found = 0;
    uint64_t said = 0;

    buf[0] = '\0';
    if (COLL_GPUSYM_WAIT_ISLANDS == w->what) {
        coll_gpusym_hosts_missing(t, buf, size);
        return 0;
    }
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        const bool known = r != t->host.rank && find_seen(t, r, &seen);
        said = known && seen.said > said ? seen.said : said;
        if (r == t->host.rank || !is_missing(w, r, &seen)) {
            continue;
        }
        found++;
        if (found <= RANKS_TOLD) {
            gpusym_append(buf, size, &used, 1 == found ? "" : "; ");
            describe_rank(t, r, known, &seen, buf, size, &used);
            gpusym_append(buf, size, &used,
                          COLL_GPUSYM_WAIT_STAGED == w->what ? ", and is copying its data to the host" : "");
        }
    }
    if (found > RANKS_TOLD) {
        gpusym_append(buf, size, &used, "; and %u more ranks", found - RANKS_TOLD);
    } else if (0 == found) {
        gpusym_append(buf, size, &used, "setup messages, which all ranks exchange");
    }
    return said;
}

/* One line, in one write, by one of the ranks that wait. */
static void tell_missing(coll_gpusym_wait_t *wait, const waiter_t *w)
{
    const coll_gpusym_team_t *t = w->team;
    const uint64_t seq = t->host.rc.seq + (COLL_GPUSYM_WAIT_POST == w->what);
    const uint64_t mark = seq << 16 | wait->step << 8 | ++wait->reports; /* rises with all three */
    char name[GPUSYM_COMM_LABEL_MAX], missing[1024], number[48] = "";

    if (describe_missing(w, missing, sizeof missing) >= mark) {
        return;
    }
    if (t->host.has_line) {
        gpusym_line_say(gpusym_pages_line(t->host.line_off), mark);
    }
    if (!coll_gpusym_team_bootstrapping(t)) {
        snprintf(number, sizeof number, ", call %llu here,", (unsigned long long) seq);
    }
    fprintf(stderr,
            "gpusym: rank %u of %s has waited %.1f s in %s%s for %s. If that is too long, check where it is (gdb -p, "
            "py-spy dump --pid). coll_gpusym_timeout_host ends such calls, coll_gpusym_warn 0 hides this message.\n",
            coll_gpusym_team_rank(t), gpusym_comm_label(t->fallback->comm, name, sizeof name),
            1e-9 * (double) wait->waited_ns, coll_gpusym_mpi_name(w->coll), number, missing);
    fflush(stderr);
}

bool coll_gpusym_wait_note(coll_gpusym_wait_t *wait, const coll_gpusym_team_t *t, unsigned coll, uint64_t seq,
                           coll_gpusym_wait_for_t what, uint64_t gap_ns)
{
    const double limit = coll_gpusym_params.timeout_host, warn = gpusym_params.warn;
    const waiter_t w = {t, coll, seq, what};
    const uint32_t step = (uint32_t) what << 4 | (uint32_t) t->boot.step; /* less than 16 of each */

    if (step != wait->step) { /* the ranks came: it is others, or the same at another step, that it waits for */
        wait->step = step;
        wait->waited_ns = wait->reports = 0;
    }
    wait->waited_ns += gap_ns < GAP_NS ? gap_ns : GAP_NS;
    if (limit > 0 && (double) wait->waited_ns > limit * 1e9) {
        return true;
    }
    if (warn > 0 && wait->reports < 40 &&
        (double) wait->waited_ns >=
            warn * 1e9 * (double) (1ull << wait->reports) + (double) (coll_gpusym_team_rank(t) * STAGGER_NS)) {
        tell_missing(wait, &w);
    }
    return false;
}

void coll_gpusym_wait_report(const coll_gpusym_team_t *t, unsigned coll, uint64_t seq, coll_gpusym_wait_for_t what)
{
    const waiter_t w = {t, coll, seq, what};
    char name[GPUSYM_COMM_LABEL_MAX], missing[1024];
    describe_missing(&w, missing, sizeof missing);
    coll_gpusym_help("no-rank", (int) coll_gpusym_team_rank(t), gpusym_comm_label(t->fallback->comm, name, sizeof name),
                     coll_gpusym_mpi_name(coll), missing, coll_gpusym_params.timeout_host);
}

_Static_assert(
    (int) COLL_GPUSYM_WAIT_NONE == GPUSYM_STATUS_NOBODY && (int) COLL_GPUSYM_WAIT_POST == GPUSYM_STATUS_POST &&
        (int) COLL_GPUSYM_WAIT_ENTRIES == GPUSYM_STATUS_ENTRIES &&
        (int) COLL_GPUSYM_WAIT_SIZES == GPUSYM_STATUS_SIZES && (int) COLL_GPUSYM_WAIT_SETUP == GPUSYM_STATUS_SETUP &&
        (int) COLL_GPUSYM_WAIT_VOTE == GPUSYM_STATUS_VOTE && (int) COLL_GPUSYM_WAIT_READY == GPUSYM_STATUS_READY &&
        (int) COLL_GPUSYM_WAIT_LED == GPUSYM_STATUS_LED && (int) COLL_GPUSYM_WAIT_ISLANDS == GPUSYM_STATUS_ISLANDS &&
        (int) COLL_GPUSYM_WAIT_LAUNCH == GPUSYM_STATUS_LAUNCH && (int) COLL_GPUSYM_WAIT_STAGED == GPUSYM_STATUS_STAGED,
    "a status names what a call waits for as exec/way.h does");

void coll_gpusym_wait_publish(const coll_gpusym_health_t *h, const coll_gpusym_run_t *run, const char *way,
                              gpusym_status_state_t state, uint64_t seq, coll_gpusym_wait_for_t what)
{
    const coll_gpusym_team_t *t = run->engine->team;
    if (0 == h->gap_ns || !t->host.has_line) {
        return;
    }
    gpusym_status_t s = {.seq = seq,
                         .since_ns = h->checked_ns - h->gap_ns,
                         .polled_ns = h->checked_ns,
                         .bytes = run->task.read.max_bytes > 0 ? run->task.read.max_bytes : run->task.read.bytes,
                         .what = coll_gpusym_run_what(run),
                         .state = (uint8_t) state,
                         .awaits = (uint8_t) what};
    snprintf(s.way, sizeof s.way, "%s", NULL == way ? "" : way);
    if (COLL_GPUSYM_WAIT_ISLANDS == what) {
        s.nawaited = (uint8_t) coll_gpusym_hosts_awaited(t, s.awaited, GPUSYM_STATUS_AWAITED);
    }
    gpusym_status_tell(gpusym_pages_line(t->host.line_off), &s);
}
