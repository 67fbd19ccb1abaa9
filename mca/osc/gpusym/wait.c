/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Waits of one-sided calls: see wait.h.
 */
#include "mca/osc/gpusym/wait.h"

#include <sched.h>
#include <stdio.h>

#include "ompi/request/request.h"
#include "opal/runtime/opal_progress.h"
#include "opal/util/output.h"

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/log.h"

/* Between two looks whether the others live. A longer gap is not all counted as waiting: this process may have been
 * stopped. */
#define LOOK_NS 2000000u
#define GAP_NS 100000000u
/* Progress for ranks of other hosts to be told of a death, by a rank that may then leave MPI. */
#define TELL_NS 50000000u
/* Between two statuses that are published, and before the first. */
#define TOLD_NS 10000000u
/* Ranks that a report names at most. */
#define RANKS_TOLD 4u
#define REPORTS_MAX 40u

/* ---- reports of long waits ---- */

typedef struct {
    char text[512];
    size_t used;
} report_t;

static void append_missing(report_t *r, const osc_gpusym_window_t *w, const osc_gpusym_wait_t *wait)
{
    uint32_t found = 0;

    for (uint32_t i = 0; NULL != wait->misses && i < w->n; i++) {
        if (i == w->rank || !wait->misses(wait->arg, i)) {
            continue;
        }
        found++;
        if (found <= RANKS_TOLD) {
            gpusym_append(r->text, sizeof r->text, &r->used, "%srank %u", 1 == found ? "" : ", ", (unsigned) i);
            if (NULL != w->part[i].process) {
                gpusym_append(r->text, sizeof r->text, &r->used, " (pid %d)", gpusym_peer_pid(w->part[i].process));
            }
        }
    }
    if (found > RANKS_TOLD) {
        gpusym_append(r->text, sizeof r->text, &r->used, " and %u more", (unsigned) (found - RANKS_TOLD));
    } else if (0 == found) {
        gpusym_append(r->text, sizeof r->text, &r->used, "other ranks");
    }
}

/* Of those that wait in a barrier the lowest one says it. */
static bool others_say(const osc_gpusym_window_t *w, const osc_gpusym_wait_t *wait)
{
    bool lower = false;

    for (uint32_t i = 0; GPUSYM_WINDOW_FOR_BARRIER == wait->what && NULL != wait->misses && i < w->rank; i++) {
        lower = lower || !wait->misses(wait->arg, i);
    }
    return lower;
}

/* One line, in one write. */
static void tell(const osc_gpusym_window_t *w, const osc_gpusym_wait_t *wait, uint64_t waited_ns)
{
    report_t r = {.used = 0};
    char name[GPUSYM_COMM_LABEL_MAX];

    append_missing(&r, w, wait);
    gpusym_append(r.text, sizeof r.text, &r.used, " to ");
    gpusym_window_append_for(r.text, sizeof r.text, &r.used, wait->what, wait->target);
    fprintf(stderr,
            "gpusym: rank %u of a window on %s has waited %.1f s for %s. If that is too long, check where it is "
            "(gdb -p, py-spy dump --pid). coll_gpusym_warn 0 hides this message.\n",
            (unsigned) w->rank, gpusym_comm_label(w->comm, name, sizeof name), 1e-9 * (double) waited_ns, r.text);
    fflush(stderr);
}

/* ---- waits ---- */

int osc_gpusym_window_look(osc_gpusym_window_t *w)
{
    uint32_t dead = __atomic_load_n(w->broken, __ATOMIC_RELAXED);

    for (uint32_t i = 0; 0 == dead && i < w->n; i++) {
        if (NULL != w->part[i].process && !gpusym_peer_alive(w->part[i].process)) {
            dead = i + 1;
            __atomic_store_n(w->broken, dead, __ATOMIC_RELAXED);
        }
    }
    if (0 != dead) {
        static int told;
        if (0 == __atomic_exchange_n(&told, 1, __ATOMIC_RELAXED)) {
            opal_output(0,
                        "gpusym: rank %u of a window of GPU memory has ended while others use the window.\n"
                        "  One-sided calls that wait for other ranks end with an error.",
                        (unsigned) dead - 1);
        }
        return MPI_ERR_OTHER;
    }
    return OMPI_SUCCESS;
}

/* A wait ends with an error, since a rank has died. */
static void lose(osc_gpusym_window_t *w)
{
    const bool first = NULL != w->remote && 0 == __atomic_exchange_n(&w->lost, 1, __ATOMIC_RELAXED);
    const uint64_t until = gpusym_now_ns() + TELL_NS;

    while (first && gpusym_now_ns() < until) {
        opal_progress();
    }
}

/* How long a wait has taken, while this process polled. */
typedef struct {
    uint64_t looked_ns; /* 0: not yet */
    uint64_t waited_ns;
    uint32_t reports;
    uint64_t told_ns; /* when it was last published, as slot `slot` */
    int slot;         /* -1: not yet */
} patience_t;

/* For whoever asks what the job waits for. */
static void publish(const osc_gpusym_window_t *w, const osc_gpusym_wait_t *wait, patience_t *p, uint64_t now)
{
    gpusym_window_status_t s = {.since_ns = now - p->waited_ns,
                                .polled_ns = now,
                                .rank = w->rank,
                                .size = w->n,
                                .target = wait->target,
                                .what = (uint8_t) wait->what};
    char name[GPUSYM_COMM_LABEL_MAX];

    for (uint32_t i = 0; NULL != wait->misses && i < w->n; i++) {
        if (i == w->rank || !wait->misses(wait->arg, i)) {
            continue;
        }
        if (GPUSYM_WINDOW_AWAITED == s.nawaited) {
            s.more = 1;
            break;
        }
        s.awaited[s.nawaited] = i;
        s.pid[s.nawaited++] = NULL != w->part[i].process ? gpusym_peer_pid(w->part[i].process) : 0;
    }
    snprintf(s.label, sizeof s.label, "%.87s", gpusym_comm_label(w->comm, name, sizeof name));
    p->slot = gpusym_window_tell(p->slot, &s);
    p->told_ns = now;
}

/* Another look. MPI error code: a rank has died. */
static int look(osc_gpusym_window_t *w, const osc_gpusym_wait_t *wait, patience_t *p, uint64_t now)
{
    const uint64_t gap = 0 != p->looked_ns ? now - p->looked_ns : 0;
    const int rc = 0 != p->looked_ns ? osc_gpusym_window_look(w) : OMPI_SUCCESS;

    p->looked_ns = now;
    p->waited_ns += gap < GAP_NS ? gap : GAP_NS;
    if (p->waited_ns >= TOLD_NS && now - p->told_ns >= TOLD_NS) {
        publish(w, wait, p, now);
    }
    if (gpusym_params.warn > 0 && p->reports < REPORTS_MAX &&
        (double) p->waited_ns >= gpusym_params.warn * 1e9 * (double) (1ull << p->reports)) {
        p->reports++;
        if (OMPI_SUCCESS == rc && !others_say(w, wait)) {
            tell(w, wait, p->waited_ns);
        }
    }
    return rc;
}

bool osc_gpusym_wait_ended(const osc_gpusym_window_t *w, const osc_gpusym_wait_t *wait)
{
    bool missed = false;

    if (NULL != wait->ended) {
        return wait->ended(wait->arg);
    }
    for (uint32_t i = 0; i < w->n && !missed; i++) {
        missed = wait->misses(wait->arg, i);
    }
    return !missed;
}

int osc_gpusym_window_wait(osc_gpusym_window_t *w, const osc_gpusym_wait_t *wait)
{
    patience_t p = {.slot = -1};
    int rc = OMPI_SUCCESS;

    for (uint32_t i = 1; OMPI_SUCCESS == rc && !osc_gpusym_wait_ended(w, wait); i++) {
        opal_progress();
        if (0 != i % 64) {
            continue;
        }
        sched_yield();
        const uint64_t now = gpusym_now_ns();
        rc = now - p.looked_ns < LOOK_NS ? OMPI_SUCCESS : look(w, wait, &p, now);
    }
    if (OMPI_SUCCESS != rc) {
        lose(w);
        rc = osc_gpusym_wait_ended(w, wait) ? OMPI_SUCCESS : rc;
    }
    gpusym_window_tell_end(p.slot);
    return rc;
}

/* Whether a rank holds target's lock for itself; who shares it is not known. */
static bool holds_lock(const osc_gpusym_window_t *w, uint32_t target, uint32_t rank)
{
    return rank + 1 == (uint32_t) (__atomic_load_n(&w->words[target].lock, __ATOMIC_RELAXED) >> 32);
}

typedef struct {
    const osc_gpusym_window_t *w;
    const osc_gpusym_queue_t *q;
    uint32_t ticket, target;
    gpusym_window_for_t what;
} turn_t;

static bool has_turn(void *arg)
{
    const turn_t *t = arg;
    return osc_gpusym_is_turn(t->q, t->ticket);
}

/* Of what keeps the turn from being passed on. */
static bool keeps_turn(void *arg, uint32_t rank)
{
    const turn_t *t = arg;
    return GPUSYM_WINDOW_FOR_LOCK == t->what     ? holds_lock(t->w, t->target, rank)
           : GPUSYM_WINDOW_FOR_ANSWER == t->what ? rank == t->target
                                                 : false;
}

int osc_gpusym_get_turn(osc_gpusym_window_t *w, osc_gpusym_queue_t *q, gpusym_window_for_t what, uint32_t target)
{
    turn_t t = {w, q, osc_gpusym_take_ticket(q), target, what};
    return osc_gpusym_window_wait(w, &(osc_gpusym_wait_t){has_turn, keeps_turn, &t, what, target});
}

typedef struct {
    osc_gpusym_window_t *w;
    uint32_t target;
    bool exclusive;
} try_t;

static bool has_lock(void *arg)
{
    const try_t *t = arg;
    return osc_gpusym_try_lock(t->w, t->target, t->w->rank, t->exclusive, true);
}

static bool keeps_lock(void *arg, uint32_t rank)
{
    const try_t *t = arg;
    return holds_lock(t->w, t->target, rank);
}

int osc_gpusym_await_lock(osc_gpusym_window_t *w, uint32_t target, bool exclusive)
{
    try_t t = {w, target, exclusive};
    return osc_gpusym_window_wait(w, &(osc_gpusym_wait_t){has_lock, keeps_lock, &t, GPUSYM_WINDOW_FOR_LOCK, target});
}

void osc_gpusym_window_progress(const osc_gpusym_window_t *w)
{
    if (w->asks || NULL != w->remote) {
        opal_progress();
    }
}

static bool has_not_entered(void *arg, uint32_t rank)
{
    const osc_gpusym_window_t *w = arg;
    return (int32_t) (__atomic_load_n(&w->words[rank].barrier, __ATOMIC_ACQUIRE) - w->words[w->rank].barrier) < 0;
}

static bool request_ended(void *arg)
{
    const struct ompi_request_t *request = arg;
    return REQUEST_COMPLETE(request);
}

/* Of ranks of several hosts, by Open MPI. */
static int barrier_apart(osc_gpusym_window_t *w)
{
    struct ompi_request_t *request;
    int rc = w->comm->c_coll->coll_ibarrier(w->comm, &request, w->comm->c_coll->coll_ibarrier_module);

    if (OMPI_SUCCESS == rc) {
        rc =
            osc_gpusym_window_wait(w, &(osc_gpusym_wait_t){request_ended, NULL, request, GPUSYM_WINDOW_FOR_BARRIER, 0});
    }
    return OMPI_SUCCESS == rc ? ompi_request_wait(&request, MPI_STATUS_IGNORE) : rc;
}

int osc_gpusym_window_barrier(osc_gpusym_window_t *w)
{
    if (!w->served) {
        return w->comm->c_coll->coll_barrier(w->comm, w->comm->c_coll->coll_barrier_module);
    }
    if (NULL != w->remote) {
        return barrier_apart(w);
    }
    __atomic_fetch_add(&w->words[w->rank].barrier, 1, __ATOMIC_SEQ_CST);
    return osc_gpusym_window_wait(w, &(osc_gpusym_wait_t){NULL, has_not_entered, w, GPUSYM_WINDOW_FOR_BARRIER, 0});
}
