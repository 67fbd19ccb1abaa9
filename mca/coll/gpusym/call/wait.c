/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls that wait for ranks: after a while they say for which, and where those were last; where the user wants it, they
 * end.
 *
 * What is known of a rank that does not come stands in its own shared pages, which it writes for its peers anyway: the
 * calls that it has posted in every communicator, and about when. It takes no part in this, and may compute for hours.
 */
#include "mca/coll/gpusym/call/call.h"

#include <stdarg.h>
#include <stdio.h>

/* Ranks that a line tells of; of more it gives the number. */
#define RANKS_TOLD 4
/* Time between two looks that counts, at most: a program that makes no progress for an hour has not waited for an hour.
 */
#define GAP_NS 2000000000ull
/* How much later each rank speaks than the rank before it: so that it finds out that that one has. */
#define STAGGER_NS 20000000ull
/* What a rank posts for a persistent call that is only made: see call/call.c. */
#define WHAT_MASK 0x7fu

/* Appends to a text of `size` bytes, as far as it fits. */
static __attribute__((format(printf, 4, 5))) void append(char *buf, size_t size, size_t *used, const char *format, ...)
{
    va_list ap;
    if (*used >= size) {
        return;
    }
    va_start(ap, format);
    const int n = vsnprintf(buf + *used, size - *used, format, ap);
    va_end(ap);
    *used += n > 0 ? (size_t) n : 0;
}

/* The pages of rank r, while the team's lines are not mapped. False: it has none yet, or they cannot be found. */
static bool pages_of(const coll_gpusym_team_t *t, uint32_t r, gpusym_peer_t **peer)
{
    return GPUSYM_SUCCESS == gpusym_pages_find(coll_gpusym_peer_process(t->peers[r]), peer);
}

/* What is known of rank r: false if nothing is. */
static bool look_at(const coll_gpusym_team_t *t, uint32_t r, gpusym_seen_t *seen)
{
    gpusym_peer_t *peer = t->joined ? t->rc.peer[r] : NULL;

    if (NULL == peer && !pages_of(t, r, &peer)) {
        *seen = (gpusym_seen_t){.what = -1};
        return false;
    }
    gpusym_peer_seen(peer, t->key, seen);
    return true;
}

/* Whether this call waits for rank r, of which that is known. */
static bool is_missing(const coll_gpusym_call_t *call, uint32_t r, const gpusym_seen_t *seen)
{
    const coll_gpusym_team_t *t = call->module->team;

    switch (call->state) {
    case COLL_GPUSYM_CALL_NEW:
        if (coll_gpusym_team_meeting(t)) {
            return !seen->begun || seen->step < (uint32_t) t->step;
        }
        return !gpusym_rollcall_has_posted(&t->rc, r, t->rc.seq + 1 - GPUSYM_ROLLCALL_HISTORY / 2);
    case COLL_GPUSYM_CALL_ROLLCALL:
        return !gpusym_rollcall_has_posted(&t->rc, r, call->read.seq);
    case COLL_GPUSYM_CALL_VOTE:
        return !gpusym_rollcall_has_voted(&t->rc, r, call->read.seq);
    default: /* set-up's second step: the lines are mapped */
        return !seen->begun || seen->step < (uint32_t) t->step;
    }
}

/* "rank 1 (pid 77), which has made 41 such calls here, last seen in MPI_Bcast of MPI_COMM_WORLD (cid 0) about 33 s ago"
 */
static void rank_text(const coll_gpusym_call_t *call, uint32_t r, bool known, const gpusym_seen_t *seen, char *buf,
                      size_t size, size_t *used)
{
    const coll_gpusym_team_t *t = call->module->team;
    const unsigned long long calls = t->joined ? (unsigned long long) gpusym_rollcall_last(&t->rc, r) : 0;

    append(buf, size, used, "rank %u (pid %d)", r, coll_gpusym_peer_process(t->peers[r]));
    if (!known) {
        append(buf, size, used, ", which has made no gpusym collective yet, or has ended");
        return;
    }
    if (t->joined) {
        append(buf, size, used, ", which has made %llu such calls here", calls);
    } else if (!seen->begun) {
        append(buf, size, used, ", which has made none here");
    }
    if ('\0' == seen->label[0]) {
        return;
    }
    const int coll = seen->what < 0 ? -1 : (int) ((unsigned) seen->what & WHAT_MASK);
    append(buf, size, used, ", last seen in %s of %s about %.1f s ago",
           coll < 0 || coll >= (int) COLL_GPUSYM_COLLS ? "the first collective" : coll_gpusym_mpi_name((unsigned) coll),
           seen->label, 1e-9 * (double) seen->age_ns);
}

/* All ranks that the call waits for, in words; the highest mark of what another rank has said of this wait. */
static uint64_t who_text(const coll_gpusym_call_t *call, char *buf, size_t size)
{
    const coll_gpusym_team_t *t = call->module->team;
    gpusym_seen_t seen;
    size_t used = 0;
    unsigned found = 0;
    uint64_t said = 0;

    buf[0] = '\0';
    for (uint32_t r = 0; r < t->nranks; r++) {
        const bool known = r != t->rank && look_at(t, r, &seen);
        said = known && seen.said > said ? seen.said : said;
        if (r == t->rank || !is_missing(call, r, &seen)) {
            continue;
        }
        found++;
        if (found <= RANKS_TOLD) {
            append(buf, size, &used, 1 == found ? "" : "; ");
            rank_text(call, r, known, &seen, buf, size, &used);
        }
    }
    if (found > RANKS_TOLD) {
        append(buf, size, &used, "; and %u more ranks", found - RANKS_TOLD);
    } else if (0 == found) {
        append(buf, size, &used, "setup messages, which all ranks exchange");
    }
    return said;
}

/* One line, in one piece, by one of the ranks that wait. */
static void say(coll_gpusym_call_t *call)
{
    const coll_gpusym_team_t *t = call->module->team;
    const uint64_t seq = t->rc.seq + (COLL_GPUSYM_CALL_NEW == call->state);
    const uint64_t mark = seq << 16 | call->waits_in << 8 | ++call->said; /* rises with all three */
    char name[COLL_GPUSYM_COMM_NAME_MAX], who[1024], number[48] = "";

    if (who_text(call, who, sizeof who) >= mark) {
        return;
    }
    if (t->has_line) {
        gpusym_line_say(gpusym_pages_line(t->line_off), mark);
    }
    if (!coll_gpusym_team_meeting(t)) {
        snprintf(number, sizeof number, ", call %llu here,", (unsigned long long) seq);
    }
    fprintf(stderr,
            "gpusym: rank %u of %s has waited %.1f s in %s%s for %s. If that is too long, check where it is (gdb -p, "
            "py-spy dump --pid). coll_gpusym_timeout_host ends such calls, coll_gpusym_warn 0 hides this message.\n",
            t->rank, coll_gpusym_comm_name(call->module->comm, name, sizeof name), 1e-9 * (double) call->waited_ns,
            coll_gpusym_mpi_name(call->args.coll), number, who);
    fflush(stderr);
}

bool coll_gpusym_wait_note(coll_gpusym_call_t *call, uint64_t gap_ns)
{
    const mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;
    const coll_gpusym_team_t *t = call->module->team;
    const uint32_t waits_in = (uint32_t) call->state << 4 | (uint32_t) t->step; /* less than 16 of each */
    char name[COLL_GPUSYM_COMM_NAME_MAX], who[1024];

    if (waits_in !=
        call->waits_in) { /* the ranks came: it is others, or the same at another step, that it waits for */
        call->waits_in = waits_in;
        call->waited_ns = call->said = 0;
    }
    call->waited_ns += gap_ns < GAP_NS ? gap_ns : GAP_NS;
    if (c->timeout_host > 0 && (double) call->waited_ns > c->timeout_host * 1e9) {
        who_text(call, who, sizeof who);
        coll_gpusym_help("no-rank", (int) t->rank, coll_gpusym_comm_name(call->module->comm, name, sizeof name),
                         coll_gpusym_mpi_name(call->args.coll), who, c->timeout_host);
        return true;
    }
    if (c->warn > 0 && call->said < 40 &&
        (double) call->waited_ns >= c->warn * 1e9 * (double) (1ull << call->said) + (double) (t->rank * STAGGER_NS)) {
        say(call);
    }
    return false;
}
